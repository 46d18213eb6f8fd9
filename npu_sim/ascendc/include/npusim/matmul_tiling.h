// Tilings of the Matmul class, made on the host: our own rules under the names of the vendor's.
//
// `npu_sim.ascendc.matmul_tiling` is the same rule in Python; tests hold both to the same numbers.
#pragma once
#include <cstddef>
#include <cstring>

#include "kernel_tiling/kernel_tiling.h"
#include "npusim/matmul_cut.h"
#include "tiling/platform/platform_ascendc.h"

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
  NPUSIM_FIELD(dbL0A) NPUSIM_FIELD(dbL0B) NPUSIM_FIELD(dbL0C) NPUSIM_FIELD(singleBatchM) NPUSIM_FIELD(singleBatchN)
  NPUSIM_FIELD(ALayoutInfoB) NPUSIM_FIELD(ALayoutInfoS) NPUSIM_FIELD(ALayoutInfoN) NPUSIM_FIELD(ALayoutInfoG)
  NPUSIM_FIELD(ALayoutInfoD) NPUSIM_FIELD(BLayoutInfoB) NPUSIM_FIELD(BLayoutInfoS) NPUSIM_FIELD(BLayoutInfoN)
  NPUSIM_FIELD(BLayoutInfoG) NPUSIM_FIELD(BLayoutInfoD) NPUSIM_FIELD(CLayoutInfoB) NPUSIM_FIELD(CLayoutInfoS1)
  NPUSIM_FIELD(CLayoutInfoN) NPUSIM_FIELD(CLayoutInfoG) NPUSIM_FIELD(CLayoutInfoS2) NPUSIM_FIELD(BatchNum)
#undef NPUSIM_FIELD
  size_t GetDataSize() const { return sizeof(::TCubeTiling); }
  void SaveToBuffer(void* buffer, size_t room) const {
    if (room >= GetDataSize()) memcpy(buffer, (const ::TCubeTiling*)this, GetDataSize());
  }
};
}  // namespace optiling

namespace matmul_tiling {

enum class TPosition { GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC, LCM = VECCALC, SPM, SHM = SPM, TSCM, MAX };
enum class CubeFormat { ND = 0, NZ, ZN, ZZ, NN, ND_ALIGN, SCALAR, VECTOR, ROW_MAJOR = 0, COLUMN_MAJOR = 8 };
enum class DataType { DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_BF16 = 27, DT_INT4 = 29, DT_BFLOAT16 = 33 };
enum class MatrixTraverse { NOSET = 0, FIRSTM, FIRSTN };
enum class MatrixMadType { NORMAL = 0, HF32 };
enum class DequantType { SCALAR = 0, TENSOR };
enum class ScheduleType { INNER_PRODUCT = 0, OUTER_PRODUCT, N_BUFFER_33 };

struct SysTilingTempBufSize {
  int32_t ubSize = 0, l1Size = 0, l0cSize = 0;
};
struct MatmulConfigParams {
  int32_t mmConfigType;
  bool enableL1CacheUB;
  ScheduleType scheduleType;
  MatrixTraverse traverse;
  bool enVecND2NZ;
  MatmulConfigParams(int32_t type = 1, bool l1_caches_ub = false, ScheduleType schedule = ScheduleType::INNER_PRODUCT,
                     MatrixTraverse order = MatrixTraverse::NOSET, bool vector_nd2nz = false)
      : mmConfigType(type), enableL1CacheUB(l1_caches_ub), scheduleType(schedule), traverse(order),
        enVecND2NZ(vector_nd2nz) {}
};

// Of a chip, as a host may say it itself: sizes in bytes. ASSUMED to be those of the chip of the call, which are taken.
struct PlatformInfo {
  platform_ascendc::SocVersion socVersion = platform_ascendc::SocVersion::RESERVED_VERSION;
  uint64_t l1Size = 0, l0CSize = 0, ubSize = 0, l0ASize = 0, l0BSize = 0, btSize = 0, fbSize = 0;
};

class MatmulApiTiling {
 public:
  MatmulApiTiling() = default;
  template <class P> explicit MatmulApiTiling(const P&) {}

  int32_t SetAType(TPosition, CubeFormat format, DataType type, bool turned = false) {
    return bits = bits_of(type), a_turned = turned, is_row = format == CubeFormat::VECTOR, 0;
  }
  int32_t SetBType(TPosition, CubeFormat, DataType, bool turned = false) { return b_turned = turned, 0; }
  int32_t SetCType(TPosition, CubeFormat, DataType) { return 0; }
  int32_t SetBiasType(TPosition, CubeFormat, DataType) { return 0; }
  int32_t SetBias(bool on = false) { return is_bias = on, 0; }
  int32_t EnableBias(bool on = false) { return SetBias(on); }
  // Scales of columns take L1.
  int32_t SetDequantType(DequantType type) { return has_words = type == DequantType::TENSOR, 0; }
  int32_t SetShape(int32_t m, int32_t n, int32_t k) { return M = m, N = n, K = k, 0; }
  int32_t SetOrgShape(int32_t m, int32_t n, int32_t ka, int32_t kb = 0) {
    return org_m = m, org_n = n, org_ka = ka, org_kb = kb ? kb : ka, 0;
  }
  int32_t SetSingleShape(int32_t m = -1, int32_t n = -1, int32_t k = -1) {
    return single_m = m, single_n = n, single_k = k, 0;
  }
  int32_t SetFixSplit(int32_t m = -1, int32_t n = -1, int32_t k = -1) { return fix_m = m, fix_n = n, fix_k = k, 0; }
  int32_t SetBufferSpace(int32_t l1 = -1, int32_t l0c = -1, int32_t = -1, int32_t = -1) {
    return l1_bytes = l1 < 0 ? L1_BYTES : l1, l0c_bytes = l0c < 0 ? L0C_BYTES : l0c, 0;
  }
  int32_t SetTraverse(MatrixTraverse order) { return traverse = order, 0; }
  int32_t SetMadType(MatrixMadType) { return 0; }
  // Taken, and without effect in the vendor's public library, too.
  int32_t SetSplitRange(int32_t = -1, int32_t = -1, int32_t = -1, int32_t = -1, int32_t = -1, int32_t = -1) { return 0; }
  int32_t SetDoubleBuffer(bool, bool, bool, bool, bool = true, bool = true) { return 0; }
  // What is not modelled: the tiling is refused.
  int32_t SetSparse(bool on = false) { return is_sparse = on, 0; }

  void SetMatmulConfigParams(const MatmulConfigParams& params) {
    schedule = params.scheduleType;
    is_mdl = params.mmConfigType == 1;
    if (params.traverse != MatrixTraverse::NOSET) traverse = params.traverse;
  }
  void SetMatmulConfigParams(int32_t type = 1, bool l1_caches_ub = false,
                             ScheduleType how = ScheduleType::INNER_PRODUCT,
                             MatrixTraverse order = MatrixTraverse::NOSET, bool vector_nd2nz = false) {
    SetMatmulConfigParams(MatmulConfigParams(type, l1_caches_ub, how, order, vector_nd2nz));
  }

  int32_t SetALayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) { return set(layouts, b, s, n, g, d); }
  int32_t SetBLayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) { return set(layouts + 5, b, s, n, g, d); }
  int32_t SetCLayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) { return set(layouts + 10, b, s, n, g, d); }
  int32_t SetBatchNum(int32_t count) { return batch = count, 0; }
  int32_t SetBatchInfoForNormal(int32_t a, int32_t b, int32_t m, int32_t n, int32_t k) {
    if (a <= 0 || b <= 0 || m <= 0 || n <= 0 || k <= 0) return -1;
    SetALayout(a, m, 1, 1, k);
    SetBLayout(b, n, 1, 1, k);
    return SetCLayout(a > b ? a : b, m, 1, 1, n);
  }

  // Returns 0, or -1 where nothing fits.
  int64_t GetTiling(::TCubeTiling& t) {
    int64_t all_m = M > 0 ? M : org_m, all_n = N > 0 ? N : org_n, all_k = K > 0 ? K : org_ka;
    if (all_m <= 0 || all_n <= 0 || all_k <= 0 || is_sparse) return -1;
    if (is_row && (all_m != 1 || a_turned)) return -1;
    if (bits == 4 && a_turned) return -1;
    t = {};
    const int64_t c0 = 256 / bits;
    bool is_given = single_m > 0 || single_n > 0;
    int64_t m = single_m > 0 ? single_m : all_m, n = single_n > 0 ? single_n : all_n, k = single_k > 0 ? single_k : all_k;
    rule::Product product{parts(m, 16), parts(n, 16), parts(k, c0), a_turned, b_turned, cuts_k};
    rule::Cut cut = rule::cut(product, is_given ? 1 : cores, l1_bytes - L1_RESERVED);
    rule::Room room{L0_BYTES / 1024, L0_BYTES / 1024, l0c_bytes / 1024, is_bias, bits < 16 ? 16 / bits : 1, bits == 32 ? 2 : 1};
    bool is_nine = schedule == ScheduleType::N_BUFFER_33;  // blocks of A in L1: at most three by three
    rule::Base given{fix_m > 0 ? parts(fix_m, 16) : 0, fix_n > 0 ? parts(fix_n, 16) : 0, 0};
    if (is_nine && !is_given) {  // rows for three blocks of A, columns by what cores are left
      int64_t high = given.m ? given.m : least(8, up(product.m, room.unit)), wide = given.n ? given.n : 16;
      cut = {least(product.m, 3 * high), product.n, product.k, parts(product.m, 3 * high), 1, 1};
      if (cut.rows > cores) return -1;
      cut.columns = least(cores / cut.rows, parts(product.n, wide));
      cut.n = parts(product.n, cut.columns);
    }
    rule::Base base = rule::base_block(cut.m, cut.n, cut.k, given, room);
    if (fix_k > 0 && given.m && given.n) base = {given.m, given.n, fix_k / c0};
    int64_t base_m = base.m * 16, base_n = base.n * 16, base_k = fix_k > 0 ? fix_k : base.k * c0;
    // what the last core has beside the matrix, its kernel leaves off
    if (!is_given && cores > 1) m = parts(up(m, 16), cut.rows), n = parts(up(n, 16), cut.columns);
    if (!is_given && cores > 1 && bits == 4) n = up(n, c0);  // whole bytes, and squares of B
    if (!is_given && cuts_k && cores > 1) k = cut.k * c0;
    int64_t widest = base_m > base_n ? base_m : base_n, bias = is_bias;
    if (base_k <= 0 || !base_m || widest * base_k * bits / 4 > L0_BYTES || base_m * base_n * 4 > l0c_bytes) return -1;
    t.iterateOrder = traverse == MatrixTraverse::FIRSTN;
    int64_t step_m = 1, step_n = 1;
    if (schedule == ScheduleType::OUTER_PRODUCT) {  // two blocks at a time
      if (base_k < k && (is_mdl || batch)) return -1;
      bool is_split = base_m * base_n * 8 > l0c_bytes;
      if (is_split) (t.iterateOrder ? base_m : base_n) = up((t.iterateOrder ? base_m : base_n) / 2, bits < 16 ? c0 : 16);
      (t.iterateOrder ? step_m : step_n) = 2;
    }
    int64_t extra = bias * 4 * base_n * step_n + has_words * 8 * base_n * step_n, free = l1_bytes - extra;
    rule::L1Steps steps = rule::l1_steps(k, base_m * step_m, base_n * step_n, base_k, bits, free);
    if (free < steps.line) return -1;
    t.usedCoreNum = int32_t(parts(all_m, m) * parts(all_n, n) * parts(all_k, k));
    t.M = org_m ? org_m : M;
    t.N = org_n ? org_n : N;
    t.Ka = org_ka ? org_ka : K;
    t.Kb = org_kb ? org_kb : K;
    t.singleCoreM = int32_t(m);
    t.singleCoreN = int32_t(n);
    t.singleCoreK = int32_t(k);
    t.baseM = int32_t(base_m);
    t.baseN = int32_t(base_n);
    t.baseK = int32_t(base_k);
    t.stepM = int32_t(step_m);
    t.stepN = int32_t(step_n);
    t.stepKa = t.stepKb = int32_t(steps.step);
    t.depthA1 = int32_t(steps.buffers * steps.step * step_m);
    t.depthB1 = int32_t(steps.buffers * steps.step * step_n);
    if (is_nine) {
      int64_t deep = parts(k, base_k), high = parts(m, base_m);
      if (deep > 3 || high > 3) return -1;
      t.stepKa = t.stepKb = int32_t(deep);
      t.stepM = int32_t(high);
      t.depthA1 = int32_t(high * deep);
      t.depthB1 = int32_t(2 * deep);
      if ((high * base_m + 2 * base_n) * deep * base_k * bits / 8 + extra > l1_bytes) return -1;
    }
    t.isBias = int32_t(bias);
    if (traverse == MatrixTraverse::NOSET)
      t.iterateOrder = steps.is_full && m + n * parts(m, base_m) < n + m * parts(n, base_n);
    t.dbL0A = t.dbL0B = 2;
    t.dbL0C = base_m * base_n * 8 <= l0c_bytes ? 2 : 1;
    t.shareL1Size = int32_t(steps.buffers * steps.step * steps.line + extra);
    t.shareL0CSize = int32_t(base_m * base_n * 4 * t.dbL0C);
    t.batchM = batch_m;
    t.batchN = batch_n;
    t.singleBatchM = single_batch_m;
    t.singleBatchN = single_batch_n;
    memcpy(&t.ALayoutInfoB, layouts, sizeof layouts);
    t.BatchNum = batch;
    return 0;
  }
  int64_t GetTiling(optiling::TCubeTiling& t) { return GetTiling((::TCubeTiling&)t); }
  int32_t GetBaseM() { return made().baseM; }
  int32_t GetBaseN() { return made().baseN; }
  int32_t GetBaseK() { return made().baseK; }
  // ASSUMED: without effect on products with two halves of L1 in one.
  bool EnableL1BankConflictOptimise() { return false; }

 protected:
  int32_t cores = 1, batch_m = 1, batch_n = 1, single_batch_m = 1, single_batch_n = 1;
  bool cuts_k = false;
  ::TCubeTiling made() {
    ::TCubeTiling t{};
    GetTiling(t);
    return t;
  }

 private:
  // Of L1 the vendor's library leaves some.
  static constexpr int64_t L0_BYTES = 64 * 1024, L1_RESERVED = 256;
#if defined __NPU_ARCH__ && __NPU_ARCH__ != 2201
  static constexpr int64_t L1_BYTES = 1024 * 1024, L0C_BYTES = 256 * 1024;
#else
  static constexpr int64_t L1_BYTES = 512 * 1024, L0C_BYTES = 128 * 1024;
#endif
  int32_t M = 0, N = 0, K = 0, org_m = 0, org_n = 0, org_ka = 0, org_kb = 0;
  int32_t single_m = -1, single_n = -1, single_k = -1, fix_m = -1, fix_n = -1, fix_k = -1;
  int64_t bits = 16, l1_bytes = L1_BYTES, l0c_bytes = L0C_BYTES;
  bool is_bias = false, a_turned = false, b_turned = false, is_row = false, has_words = false, is_sparse = false;
  bool is_mdl = true;
  MatrixTraverse traverse = MatrixTraverse::NOSET;
  ScheduleType schedule = ScheduleType::INNER_PRODUCT;
  int32_t layouts[15] = {}, batch = 0;  // of A, B and C: B, S, N, G, D

  static int32_t set(int32_t* at, int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) {
    return at[0] = b, at[1] = s, at[2] = n, at[3] = g, at[4] = d, 0;
  }
  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
  static int64_t bits_of(DataType type) {
    switch (type) {
      case DataType::DT_FLOAT:
      case DataType::DT_INT32: return 32;
      case DataType::DT_INT8: return 8;
      case DataType::DT_INT4: return 4;
      default: return 16;
    }
  }
};

class MultiCoreMatmulTiling : public MatmulApiTiling {
 public:
  using MatmulApiTiling::MatmulApiTiling;
  int32_t SetDim(int32_t count) { return cores = count < 1 ? 1 : count, 0; }
  void EnableMultiCoreSplitK(bool on) { cuts_k = on; }
  void SetSplitK(bool on) { cuts_k = on; }
  // Taken, and without effect on operands in memory in the vendor's public library, too.
  int32_t SetAlignSplit(int32_t, int32_t, int32_t) { return 0; }
  int32_t SetSingleRange(int32_t = -1, int32_t = -1, int32_t = -1, int32_t = -1, int32_t = -1, int32_t = -1) { return 0; }
  int32_t GetSingleShape(int32_t& m, int32_t& n, int32_t& k) {
    ::TCubeTiling t = made();
    return m = t.singleCoreM, n = t.singleCoreN, k = t.singleCoreK, 0;
  }
  int32_t GetCoreNum(int32_t& count, int32_t& rows, int32_t& columns) {
    ::TCubeTiling t = made();
    if (!t.usedCoreNum) return -1;
    count = t.usedCoreNum;
    rows = int32_t(parts(t.M, t.singleCoreM));
    columns = int32_t(parts(t.N, t.singleCoreN));
    return 0;
  }
};

class BatchMatmulTiling : public MatmulApiTiling {
 public:
  using MatmulApiTiling::MatmulApiTiling;
  int32_t SetBatch(int32_t m = 1, int32_t n = 1) { return batch_m = m, batch_n = n, 0; }
  int32_t SetSingleBatch(int32_t m = -1, int32_t n = -1) {
    if (m > 0) single_batch_m = m;
    if (n > 0) single_batch_n = n;
    return 0;
  }
  int32_t GetCoreNum(int32_t& count, int32_t& rows, int32_t& columns, int32_t& batches_m, int32_t& batches_n) {
    ::TCubeTiling t = made();
    if (!t.usedCoreNum) return -1;
    count = t.usedCoreNum;
    rows = int32_t(parts(t.M, t.singleCoreM));
    columns = int32_t(parts(t.N, t.singleCoreN));
    batches_m = int32_t(parts(batch_m, single_batch_m));
    batches_n = int32_t(parts(batch_n, single_batch_n));
    return 0;
  }
};
}  // namespace matmul_tiling

// What a tiling takes of the buffers, in bytes.
inline int32_t MatmulGetTmpBufSize(optiling::TCubeTiling& tiling, matmul_tiling::SysTilingTempBufSize& size) {
  size = {tiling.shareUbSize, tiling.shareL1Size, tiling.shareL0CSize};
  return 0;
}
inline int32_t MultiCoreMatmulGetTmpBufSize(optiling::TCubeTiling& tiling, matmul_tiling::SysTilingTempBufSize& size) {
  return MatmulGetTmpBufSize(tiling, size);
}
