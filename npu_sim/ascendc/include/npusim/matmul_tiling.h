// Tilings of the Matmul class, made on the host: our own rule under the names of the vendor's.
//
// `npu_sim.ascendc.matmul_tiling` is the same rule in Python; tests hold both to the same numbers.
#pragma once
#include <cstddef>
#include <cstring>

#include "kernel_tiling/kernel_tiling.h"

namespace optiling {

struct TCubeTiling : ::TCubeTiling {
  TCubeTiling() : ::TCubeTiling{} {}
#define NPUSIM_FIELD(name)                            \
  void set_##name(int32_t value) { name = value; }    \
  int32_t get_##name() const { return name; }
  NPUSIM_FIELD(usedCoreNum) NPUSIM_FIELD(M) NPUSIM_FIELD(N) NPUSIM_FIELD(Ka) NPUSIM_FIELD(Kb)
  NPUSIM_FIELD(singleCoreM) NPUSIM_FIELD(singleCoreN) NPUSIM_FIELD(singleCoreK)
  NPUSIM_FIELD(baseM) NPUSIM_FIELD(baseN) NPUSIM_FIELD(baseK) NPUSIM_FIELD(depthA1) NPUSIM_FIELD(depthB1)
  NPUSIM_FIELD(stepM) NPUSIM_FIELD(stepN) NPUSIM_FIELD(isBias) NPUSIM_FIELD(transLength) NPUSIM_FIELD(iterateOrder)
  NPUSIM_FIELD(shareMode) NPUSIM_FIELD(shareL1Size) NPUSIM_FIELD(shareL0CSize) NPUSIM_FIELD(shareUbSize)
  NPUSIM_FIELD(batchM) NPUSIM_FIELD(batchN) NPUSIM_FIELD(stepKa) NPUSIM_FIELD(stepKb)
  NPUSIM_FIELD(dbL0A) NPUSIM_FIELD(dbL0B) NPUSIM_FIELD(dbL0C)
#undef NPUSIM_FIELD
  size_t GetDataSize() const { return sizeof(::TCubeTiling); }
  void SaveToBuffer(void* buffer, size_t room) const {
    if (room >= GetDataSize()) memcpy(buffer, (const ::TCubeTiling*)this, GetDataSize());
  }
};
}  // namespace optiling

namespace matmul_tiling {

enum class TPosition { GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC, LCM = VECCALC, SPM, SHM = SPM, TSCM, MAX };
enum class CubeFormat { ND = 0, NZ, ZN, ZZ, NN, ND_ALIGN, SCALAR, VECTOR };
enum class DataType { DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_BFLOAT16 = 27, DT_BF16 = 27, DT_INT4 = 29 };
enum class MatrixTraverse { NOSET = 0, FIRSTM, FIRSTN };
enum class MatrixMadType { NORMAL = 0, HF32 };
enum class ScheduleType { INNER_PRODUCT = 0, OUTER_PRODUCT };

inline constexpr int64_t up(int64_t value, int64_t by) { return (value + by - 1) / by * by; }
inline constexpr int64_t parts(int64_t value, int64_t by) { return (value + by - 1) / by; }

class MatmulApiTiling {
 public:
  MatmulApiTiling() = default;
  template <class P> explicit MatmulApiTiling(const P&) {}

  int32_t SetAType(TPosition, CubeFormat, DataType type, bool = false) { return item = bytes_of(type), 0; }
  int32_t SetBType(TPosition, CubeFormat, DataType, bool = false) { return 0; }
  int32_t SetCType(TPosition, CubeFormat, DataType) { return 0; }
  int32_t SetBiasType(TPosition, CubeFormat, DataType) { return 0; }
  int32_t SetBias(bool on) { return is_bias = on, 0; }
  int32_t EnableBias(bool on) { return SetBias(on); }
  int32_t SetShape(int32_t m, int32_t n, int32_t k) { return M = m, N = n, K = k, 0; }
  int32_t SetOrgShape(int32_t m, int32_t n, int32_t ka, int32_t kb = 0) {
    return org_m = m, org_n = n, org_ka = ka, org_kb = kb ? kb : ka, 0;
  }
  int32_t SetSingleShape(int32_t m, int32_t n, int32_t k) { return single_m = m, single_n = n, single_k = k, 0; }
  int32_t SetFixSplit(int32_t m = -1, int32_t n = -1, int32_t k = -1) { return fix_m = m, fix_n = n, fix_k = k, 0; }
  int32_t SetBufferSpace(int32_t l1 = -1, int32_t l0c = -1, int32_t = -1, int32_t = -1) {
    return l1_bytes = l1 < 0 ? L1_BYTES : l1, l0c_bytes = l0c < 0 ? L0C_BYTES : l0c, 0;
  }
  int32_t SetTraverse(MatrixTraverse order) { return traverse = order, 0; }
  int32_t SetMadType(MatrixMadType) { return 0; }
  template <class... T> int32_t SetMatmulConfigParams(T...) { return 0; }

  // Returns 0, or -1 where nothing fits.
  int64_t GetTiling(::TCubeTiling& t) {
    if (M <= 0 || N <= 0 || K <= 0) return -1;
    t = {};
    int64_t m = single_m > 0 ? single_m : M, n = single_n > 0 ? single_n : N, k = single_k > 0 ? single_k : K;
    if (single_m <= 0 && single_n <= 0) share(m, n);
    int64_t bias = is_bias;
    t.usedCoreNum = int32_t(parts(M, m) * parts(N, n));
    t.M = org_m ? org_m : M;
    t.N = org_n ? org_n : N;
    t.Ka = org_ka ? org_ka : K;
    t.Kb = org_kb ? org_kb : K;
    t.singleCoreM = int32_t(m);
    t.singleCoreN = int32_t(n);
    t.singleCoreK = int32_t(k);
    int64_t unit = item == 1 ? 32 : 16;  // of what a load turns at a time
    int64_t base_m = fix_m > 0 ? fix_m : least(128, up(m, unit)), base_n = fix_n > 0 ? fix_n : least(256, up(n, unit));
    int64_t widest = base_m > base_n ? base_m : base_n;
    int64_t base_k = fix_k > 0 ? fix_k : least(L0_BYTES / 2 / (widest * item) / unit * unit, up(k, unit));
    if (base_k <= 0 || widest * base_k * item * 2 > L0_BYTES || base_m * base_n * 4 > l0c_bytes) return -1;
    int64_t k_steps = parts(k, base_k), line = base_k * (base_m + base_n) * item, free = l1_bytes - bias * 4 * base_n;
    int64_t step = least(free / (2 * line), k_steps);
    if (step < 1 && free < line) return -1;
    int64_t buffers = step < 1 || step == k_steps ? 1 : 2;
    step = step < 1 ? 1 : step;
    t.baseM = int32_t(base_m);
    t.baseN = int32_t(base_n);
    t.baseK = int32_t(base_k);
    t.stepM = t.stepN = 1;
    t.stepKa = t.stepKb = int32_t(step);
    t.depthA1 = t.depthB1 = int32_t(buffers * step);
    t.isBias = int32_t(bias);
    t.iterateOrder = order(m, n, base_m, base_n, step == k_steps);
    t.dbL0A = t.dbL0B = 2;
    t.dbL0C = base_m * base_n * 8 <= l0c_bytes ? 2 : 1;
    t.shareL1Size = int32_t(buffers * step * line + bias * 4 * base_n);
    t.shareL0CSize = int32_t(base_m * base_n * 4 * t.dbL0C);
    t.batchM = t.batchN = t.singleBatchM = t.singleBatchN = 1;
    return 0;
  }
  int64_t GetTiling(optiling::TCubeTiling& t) { return GetTiling((::TCubeTiling&)t); }
  int32_t GetBaseM() { return made().baseM; }
  int32_t GetBaseN() { return made().baseN; }
  int32_t GetBaseK() { return made().baseK; }

 protected:
  int32_t cores = 1;
  ::TCubeTiling made() {
    ::TCubeTiling t{};
    GetTiling(t);
    return t;
  }

 private:
  static constexpr int64_t L0_BYTES = 64 * 1024;
#if defined __NPU_ARCH__ && __NPU_ARCH__ != 2201
  static constexpr int64_t L1_BYTES = 1024 * 1024, L0C_BYTES = 256 * 1024;
#else
  static constexpr int64_t L1_BYTES = 512 * 1024, L0C_BYTES = 128 * 1024;
#endif
  int32_t M = 0, N = 0, K = 0, org_m = 0, org_n = 0, org_ka = 0, org_kb = 0;
  int32_t single_m = -1, single_n = -1, single_k = -1, fix_m = -1, fix_n = -1, fix_k = -1;
  int64_t item = 2, l1_bytes = L1_BYTES, l0c_bytes = L0C_BYTES;
  bool is_bias = false;
  MatrixTraverse traverse = MatrixTraverse::NOSET;

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
  static int64_t bytes_of(DataType type) {
    return type == DataType::DT_FLOAT || type == DataType::DT_INT32 ? 4 : type == DataType::DT_INT8 ? 1 : 2;
  }
  // Rows and columns of a core: the cut with the smallest blocks, of these the squarest ones.
  void share(int64_t& m, int64_t& n) const {
    int64_t rows = parts(M, 16), columns = parts(N, 16), best = -1, edges = 0;
    for (int64_t i = 1; i <= cores && i <= rows; i++) {
      int64_t others = least(cores / i, columns), high = parts(rows, i), wide = parts(columns, others);
      if (best >= 0 && (high * wide > best || (high * wide == best && high + wide >= edges))) continue;
      best = high * wide;
      edges = high + wide;
      m = least(high * 16, M);
      n = least(wide * 16, N);
    }
  }
  int32_t order(int64_t m, int64_t n, int64_t base_m, int64_t base_n, bool is_full) const {
    if (traverse != MatrixTraverse::NOSET) return traverse == MatrixTraverse::FIRSTN;
    return is_full && m + n * parts(m, base_m) < n + m * parts(n, base_n);
  }
};

class MultiCoreMatmulTiling : public MatmulApiTiling {
 public:
  using MatmulApiTiling::MatmulApiTiling;
  int32_t SetDim(int32_t count) { return cores = count < 1 ? 1 : count, 0; }
  int32_t GetCoreNum(int32_t& count, int32_t& rows, int32_t& columns) {
    ::TCubeTiling t = made();
    if (!t.usedCoreNum) return -1;
    count = t.usedCoreNum;
    rows = int32_t(parts(t.M, t.singleCoreM));
    columns = int32_t(parts(t.N, t.singleCoreN));
    return 0;
  }
};
}  // namespace matmul_tiling
