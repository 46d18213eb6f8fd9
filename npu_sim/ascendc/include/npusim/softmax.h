// SoftMax and what belongs to it: for attention in parts, its gradient, its logarithm, corrections of its results.
//
// ASSUMED of bits: as of other functions of rows (library.h); all is computed in float and rounded once at the end.
#pragma once
#include "npusim/row_steps.h"

namespace AscendC {

enum class SoftmaxMode : uint8_t { SOFTMAX_NORMAL = 0, SOFTMAX_OUTPUT_WITHOUT_BRC = 1 };

struct SoftMaxShapeInfo {
  uint32_t srcM = 0, srcK = 0, oriSrcM = 0, oriSrcK = 0;
  constexpr SoftMaxShapeInfo() = default;
  constexpr SoftMaxShapeInfo(uint32_t m, uint32_t k, uint32_t own_m = 0, uint32_t own_k = 0)
      : srcM(m), srcK(k), oriSrcM(own_m), oriSrcK(own_k) {}
};
struct SoftmaxConfig {
  bool isCheckTiling = true;
  uint32_t oriSrcM = 0, oriSrcK = 0;
  SoftmaxMode mode = SoftmaxMode::SOFTMAX_NORMAL;
};
inline constexpr SoftmaxConfig SOFTMAX_DEFAULT_CFG = {};
}  // namespace AscendC

namespace npusim {

// Rows, their pitch and the elements that are meant: of the call, else of the tiling.
struct SoftMaxShape {
  int64_t rows, pitch, count;
  SoftMaxShape(const SoftMaxTiling& tiling, const AscendC::SoftMaxShapeInfo& info)
      : rows(info.srcM ? info.srcM : tiling.srcM), pitch(info.srcK ? info.srcK : tiling.srcK),
        count(info.oriSrcK ? info.oriSrcK : pitch) {}
};

// The blocks that SoftMax has of each row beside it, one a row.
template <class U> class RowBlocks {
 public:
  static constexpr int32_t COPIES = 32 / sizeof(U);
  const RowSteps& row;
  using F = RowSteps::F;

  explicit RowBlocks(const RowSteps& of) : row(of) {}
  void store(const LocalTensor<U>& to, int64_t index, const F& block) const {
    if constexpr (std::is_same_v<U, float>) AscendC::Adds(to[uint32_t(index * COPIES)], block, 0.0f, COPIES, row.here);
    else AscendC::Cast(to[uint32_t(index * COPIES)], block, AscendC::RoundMode::CAST_RINT, COPIES, row.here);
    barrier(row.here, pipe::V);
  }
  // Into 8 floats, or 16 that are to become a block of half.
  void load(const F& block, const LocalTensor<U>& from, int64_t index, int32_t copies = 8) const {
    if constexpr (std::is_same_v<U, float>)
      for (int32_t at = 0; at < copies; at += 8)
        AscendC::Adds(block[uint32_t(at)], from[uint32_t(index * COPIES)], 0.0f, 8, row.here);
    else
      AscendC::Cast(block, from[uint32_t(index * COPIES)], AscendC::RoundMode::CAST_NONE, uint32_t(copies), row.here);
    barrier(row.here, pipe::V);
  }
};

// The same of values one behind the other: rows are taken from the first on.
template <class U> class RowValues {
 public:
  using F = RowSteps::F;
  const RowSteps& row;
  F free, blocks;  // a block, 16 blocks of the rows that are being taken
  int64_t rows;

  void store(const LocalTensor<U>& to, int64_t index, const F& block) const { row.keep(to, index, block, free); }
  void load(const F& block, const LocalTensor<U>& from, int64_t index, int32_t copies) const {
    if (index % 16 == 0) blocks_of(row.here, blocks, free, from, index, rows);
    for (int32_t at = 0; at < copies; at += 8)
      AscendC::Adds(block[uint32_t(at)], blocks[uint32_t(index % 16 * 8)], 0.0f, 8, row.here);
    barrier(row.here, pipe::V);
  }
};

enum class SoftMaxKind { PLAIN, LOGARITHM, GIVEN };  // GIVEN: sums and maxima are there already

template <SoftMaxKind kind, class T, class U>
inline void softmax(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                    const LocalTensor<U>* sum, const LocalTensor<U>* max, const LocalTensor<T>& src,
                    const SoftMaxShape& shape) {
  if (!has_vector()) return;
  check_rows<T>(here, call, shape.rows, shape.pitch, shape.count);
  Temporary room(here, call, given);
  take_room(here, call, room, softmax_bytes(shape.count, 1));
  int64_t wide_bytes = up(shape.count * 4, 256);
  LocalTensor<float> wide = room.part<float>(0, wide_bytes), lanes = room.part<float>(wide_bytes, 256);
  LocalTensor<float> block = room.part<float>(wide_bytes + 256, BLOCK_BYTES);
  RowSteps steps(here, shape.count);
  RowBlocks<U> blocks(steps);
  for (int64_t row = 0; row < shape.rows; row++) {
    steps.load(wide, src[uint32_t(row * shape.pitch)]);
    if constexpr (kind == SoftMaxKind::GIVEN) {
      blocks.load(block, *max, row);
    } else {
      fold(here, lanes, wide, shape.count, -__builtin_inff(), [&](auto&& into, auto&& part, int32_t n) {
        AscendC::Max(into, into, part, n, here);
      });
      AscendC::WholeReduceMax(block, lanes, 64, 32 / sizeof(U), 1, 1, 0, AscendC::ReduceOrder::ORDER_ONLY_VALUE, here);
      barrier(here, pipe::V);
      if (max) blocks.store(*max, row, block);
    }
    steps.sub_block(wide, block);
    steps.exp(wide, wide);
    if constexpr (kind == SoftMaxKind::GIVEN) {
      blocks.load(block, *sum, row);
    } else {
      fold_sum(here, lanes, wide, shape.count);
      sums_of(here, block, lanes, 32 / sizeof(U), 0);
      if (sum) blocks.store(*sum, row, block);
    }
    steps.div_block(wide, block);
    if constexpr (kind == SoftMaxKind::LOGARITHM) {
      steps.ln(wide, wide);
      steps.muls(wide, wide, 0.434294482f);
    }
    steps.store(dst[uint32_t(row * shape.pitch)], wide);
  }
  AscendC::ResetMask(here);
}

// A part of a row of attention: dst = e^(x - max), with the sums and maxima of the parts so far, and in `scale` by what
// the results of the parts before are to be multiplied. The older call divides both by the sum of all parts. `own_max`:
// where the maxima of the part alone go, if anywhere.
template <bool updates, bool divides, bool in_blocks, class T, class U>
inline void softmax_flash(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                          const LocalTensor<U>* own_max, const LocalTensor<U>& sum, const LocalTensor<U>& max,
                          const LocalTensor<T>& src, const LocalTensor<T>& scale, const LocalTensor<U>& sum_before,
                          const LocalTensor<U>& max_before, const SoftMaxShape& shape) {
  if (!has_vector()) return;
  if (!in_blocks && !is_split) refuse(here, "%s in SOFTMAX_OUTPUT_WITHOUT_BRC must run on A2 or A3", call);
  check_rows<T>(here, call, shape.rows, shape.pitch, shape.count);
  Temporary room(here, call, given);
  take_room(here, call, room, softmax_flash_bytes(shape.count, in_blocks));
  int64_t wide_bytes = up(shape.count * 4, 256);
  LocalTensor<float> wide = room.part<float>(0, wide_bytes), lanes = room.part<float>(wide_bytes, 256);
  auto block = [&](int i) { return room.part<float>(wide_bytes + 256 + i * BLOCK_BYTES, BLOCK_BYTES); };
  LocalTensor<float> most = block(0), all = block(1), before = block(2), factor = block(3);
  RowSteps steps(here, shape.count), one(here, 32 / sizeof(T));
  auto beside = [&](auto type, int64_t number) {  // what is one a row, in blocks or one behind the other
    using V = decltype(type);
    if constexpr (in_blocks) return RowBlocks<V>(steps);
    else return RowValues<V>{steps, block(4), room.part<float>(wide_bytes + 256 + 5 * BLOCK_BYTES + number * 512, 512),
                             shape.rows};
  };
  auto sums = beside(U(), 0), maxima = beside(U(), 1);
  auto scales = beside(T(), 0);
  for (int64_t row = 0; row < shape.rows; row++) {
    steps.load(wide, src[uint32_t(row * shape.pitch)]);
    fold(here, lanes, wide, shape.count, -__builtin_inff(), [&](auto&& into, auto&& part, int32_t n) {
      AscendC::Max(into, into, part, n, here);
    });
    AscendC::WholeReduceMax(most, lanes, 64, one.count, 1, 1, 0, AscendC::ReduceOrder::ORDER_ONLY_VALUE, here);
    barrier(here, pipe::V);
    if constexpr (updates) {
      if (own_max) maxima.store(*own_max, row, most);
      maxima.load(before, max_before, row, one.count);
      AscendC::Max(most, most, before, one.count, here);
      barrier(here, pipe::V);
      one.sub(factor, before, most);
      one.exp(factor, factor);
      if constexpr (!divides) scales.store(scale, row, factor);
    }
    maxima.store(max, row, most);
    steps.sub_block(wide, most);
    steps.exp(wide, wide);
    if constexpr (!divides) steps.store(dst[uint32_t(row * shape.pitch)], wide);
    fold_sum(here, lanes, wide, shape.count);
    sums_of(here, all, lanes, one.count, 0);
    if constexpr (updates) {
      sums.load(before, sum_before, row, one.count);
      one.mul(before, before, factor);
      one.add(all, all, before);
    }
    if constexpr (divides) {
      one.div(before, before, all);
      scales.store(scale, row, before);
      steps.div_block(wide, all);
      steps.store(dst[uint32_t(row * shape.pitch)], wide);
    }
    sums.store(sum, row, all);
  }
  AscendC::ResetMask(here);
}

// (gradient - the sum of gradient times result) times the result; is_front: the sums alone, in blocks.
template <class T>
inline void softmax_grad(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                         const LocalTensor<T>& gradient, const LocalTensor<T>& src, const SoftMaxShape& shape,
                         bool is_front) {
  if (!has_vector()) return;
  check_rows<T>(here, call, shape.rows, shape.pitch, shape.count);
  Temporary room(here, call, given);
  take_room(here, call, room, softmax_grad_bytes(shape.count, sizeof(T)));
  int64_t bytes = row_bytes(shape.count);
  LocalTensor<float> product = room.part<float>(0, bytes);
  LocalTensor<float> block = room.part<float>(bytes * (sizeof(T) == 2 ? 3 : 1), BLOCK_BYTES);
  RowSteps steps(here, shape.count);
  for (int64_t row = 0; row < shape.rows; row++) {
    uint32_t at = uint32_t(row * shape.pitch);
    LocalTensor<float> slope = steps.wide(gradient[at], room.part<float>(bytes, bytes));
    LocalTensor<float> result = steps.wide(src[at], room.part<float>(2 * bytes, bytes));
    steps.mul(product, slope, result);
    steps.total(block, product, 32 / sizeof(T));
    if (is_front) {
      RowBlocks<T>(steps).store(dst, row, block);
      continue;
    }
    steps.adds(product, slope, 0.0f);
    steps.sub_block(product, block);
    steps.mul(product, product, result);
    steps.store(dst[at], product);
  }
  AscendC::ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_SOFTMAX_WITH(Name, kind, PARAMETER, given)                                                            \
  template <class T, bool reuse = false, bool basic = false, bool nz = false,                                       \
            NPUSIM_CONFIG(SoftmaxConfig) config = SOFTMAX_DEFAULT_CFG, class U>                                      \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& sum, const LocalTensor<U>& max,                 \
                   const LocalTensor<T>& src, PARAMETER const SoftMaxTiling& tiling,                                \
                   const SoftMaxShapeInfo& info = {}, Here here = Here::now()) {                                    \
    static_assert(!nz, "SoftMax of fractals is not modelled");                                                      \
    static_assert(config.mode == SoftmaxMode::SOFTMAX_NORMAL, "SoftMax is modelled with blocks of sums and maxima"); \
    npusim::softmax<npusim::SoftMaxKind::kind, T, U>(here, #Name, given, dst, &sum, &max, src, {tiling, info});     \
  }
NPUSIM_SOFTMAX_WITH(SoftMax, PLAIN, NPUSIM_GIVEN, &temporary)
NPUSIM_SOFTMAX_WITH(SoftMax, PLAIN, , nullptr)
NPUSIM_SOFTMAX_WITH(SimpleSoftMax, GIVEN, NPUSIM_GIVEN, &temporary)
NPUSIM_SOFTMAX_WITH(SimpleSoftMax, GIVEN, , nullptr)

#define NPUSIM_SOFTMAX_ALONE(PARAMETER, given)                                                                       \
  template <class T, bool reuse = false, bool basic = false, NPUSIM_CONFIG(SoftmaxConfig) config = SOFTMAX_DEFAULT_CFG> \
  inline void SoftMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, PARAMETER const SoftMaxTiling& tiling,  \
                      const SoftMaxShapeInfo& info = {}, Here here = Here::now()) {                                 \
    npusim::softmax<npusim::SoftMaxKind::PLAIN, T, float>(here, "SoftMax", given, dst, nullptr, nullptr, src,       \
                                                          {tiling, info});                                          \
  }
NPUSIM_SOFTMAX_ALONE(NPUSIM_GIVEN, &temporary)
NPUSIM_SOFTMAX_ALONE(, nullptr)

// The form with the maxima of the part alone is documented for values one behind the other.
#define NPUSIM_SOFTMAX_FLASH(Name, PARAMETER, given)                                                                 \
  template <class T, bool updates = false, bool reuse = false, bool basic = false, bool nz = false,                  \
            NPUSIM_CONFIG(SoftmaxConfig) config = SOFTMAX_DEFAULT_CFG, class U>                                      \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& sum, const LocalTensor<U>& max,                  \
                   const LocalTensor<T>& src, const LocalTensor<T>& scale, const LocalTensor<U>& old_sum,            \
                   const LocalTensor<U>& old_max, PARAMETER const SoftMaxTiling& tiling,                             \
                   const SoftMaxShapeInfo& info = {}, Here here = Here::now()) {                                     \
    static_assert(!nz, #Name " of fractals is not modelled");                                                        \
    npusim::softmax_flash<updates, false, config.mode == SoftmaxMode::SOFTMAX_NORMAL, T, U>(                         \
        here, #Name, given, dst, nullptr, sum, max, src, scale, old_sum, old_max, {tiling, info});                   \
  }                                                                                                                  \
  template <class T, bool updates = false, bool reuse = false, bool basic = false, bool nz = false,                  \
            NPUSIM_CONFIG(SoftmaxConfig) config = SOFTMAX_DEFAULT_CFG>                                               \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& own_max, const LocalTensor<T>& sum,              \
                   const LocalTensor<T>& max, const LocalTensor<T>& src, const LocalTensor<T>& scale,                \
                   const LocalTensor<T>& old_sum, const LocalTensor<T>& old_max,                                     \
                   PARAMETER const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info = {},                         \
                   Here here = Here::now()) {                                                                        \
    static_assert(!nz && config.mode == SoftmaxMode::SOFTMAX_OUTPUT_WITHOUT_BRC,                                     \
                  #Name " with outReduceMax must be of ND and in SOFTMAX_OUTPUT_WITHOUT_BRC");                       \
    npusim::softmax_flash<updates, false, false, T, T>(here, #Name, given, dst, &own_max, sum, max, src,             \
                                                       scale, old_sum, old_max, {tiling, info});                     \
  }
NPUSIM_SOFTMAX_FLASH(SoftmaxFlashV2, NPUSIM_GIVEN, &temporary)
NPUSIM_SOFTMAX_FLASH(SoftmaxFlashV2, , nullptr)

#define NPUSIM_SOFTMAX_FLASH_OLD(PARAMETER, given)                                                                    \
  template <class T, bool reuse = false, bool basic = false, class U>                                                \
  inline void SoftmaxFlash(const LocalTensor<T>& dst, const LocalTensor<U>& sum, const LocalTensor<U>& max,          \
                           const LocalTensor<T>& src, const LocalTensor<T>& scale, const LocalTensor<U>& old_sum,    \
                           const LocalTensor<U>& old_max, PARAMETER const SoftMaxTiling& tiling,                     \
                           bool updates = false, const SoftMaxShapeInfo& info = {}, Here here = Here::now()) {       \
    if (updates)                                                                                                     \
      npusim::softmax_flash<true, true, true, T, U>(here, "SoftmaxFlash", given, dst, nullptr, sum, max, src, scale,  \
                                                    old_sum, old_max, {tiling, info});                               \
    else                                                                                                             \
      npusim::softmax<npusim::SoftMaxKind::PLAIN, T, U>(here, "SoftmaxFlash", given, dst, &sum, &max, src,           \
                                                        {tiling, info});                                             \
  }
NPUSIM_SOFTMAX_FLASH_OLD(NPUSIM_GIVEN, &temporary)
NPUSIM_SOFTMAX_FLASH_OLD(, nullptr)

// The tiling that a kernel makes itself for another shape: of these functions only the sizes matter.
inline constexpr SoftMaxTiling SoftMaxFlashV2TilingFunc(const SoftMaxShapeInfo& info, const uint32_t, const uint32_t,
                                                        const uint32_t, const bool = false, const bool = false,
                                                        const bool = false, const bool = false) {
  SoftMaxTiling tiling{};
  tiling.srcM = info.srcM, tiling.srcK = info.srcK, tiling.srcSize = info.srcM * info.srcK;
  return tiling;
}

inline constexpr SoftMaxTiling SoftMaxFlashV2TilingFuncImpl(const uint32_t rows, const uint32_t width, const uint32_t,
                                                            const uint32_t, const uint32_t, const bool = false,
                                                            const bool = false, const bool = false,
                                                            const bool = false) {
  return SoftMaxFlashV2TilingFunc({rows, width, rows, width}, 0, 0, 0);
}

#define NPUSIM_SOFTMAX_GRAD(Name, Front, PARAMETER, given)                                                           \
  template <class T, bool reuse = false, bool nz = false>                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& gradient, const LocalTensor<T>& src,     \
                          PARAMETER const SoftMaxTiling& tiling, bool is_front = false,                             \
                          const SoftMaxShapeInfo& info = {}, Here here = Here::now()) {                             \
    static_assert(!nz, #Name " of fractals is not modelled");                                                  \
    npusim::softmax_grad<T>(here, #Name, given, dst, gradient, src, {tiling, info}, is_front);              \
  }                                                                                                                  \
  template <class T, bool basic = false, bool nz = false>                                                           \
  inline void Front(const LocalTensor<T>& dst, const LocalTensor<T>& gradient,                           \
                               const LocalTensor<T>& src, PARAMETER const SoftMaxTiling& tiling,                    \
                               const SoftMaxShapeInfo& info = {}, Here here = Here::now()) {                        \
    static_assert(!nz, #Front " of fractals is not modelled");                                             \
    npusim::softmax_grad<T>(here, #Front, given, dst, gradient, src, {tiling, info}, true);             \
  }
NPUSIM_SOFTMAX_GRAD(SoftmaxGrad, SoftmaxGradFront, NPUSIM_GIVEN, &temporary)
NPUSIM_SOFTMAX_GRAD(SoftmaxGrad, SoftmaxGradFront, , nullptr)

// To the base of 10, as the documentation defines it.
template <class T, bool reuse = false, bool nz = false>
inline void LogSoftMax(const LocalTensor<T>& dst, const LocalTensor<T>& sum, const LocalTensor<T>& max,
                       const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary, const LogSoftMaxTiling& tiling,
                       const SoftMaxShapeInfo& info = {}, Here here = Here::now()) {
  static_assert(!nz, "LogSoftMax of fractals is not modelled");
  npusim::softmax<npusim::SoftMaxKind::LOGARITHM, T, T>(here, "LogSoftMax", &temporary, dst, &sum, &max, src,
                                                        {tiling, info});
}

// Rows whose maximum has these bits become `to`; whether there are any. ASSUMED of a maximum of half: bits of half.
template <class T, class U, bool nz = false, uint8_t step = 0>
inline bool AdjustSoftMaxRes(const LocalTensor<T>& result, const LocalTensor<U>& max, const uint32_t from,
                             const std::common_type_t<T> to, const SoftMaxShapeInfo& info, Here here = Here::now()) {
  static_assert(!nz, "AdjustSoftMaxRes of fractals is not modelled");
  if (!npusim::has_vector()) return false;
  npusim::check_rows<T>(here, "AdjustSoftMaxRes", info.srcM, info.srcK, info.oriSrcK ? info.oriSrcK : info.srcK);
  constexpr int64_t apart = step ? 1 : 32 / int64_t(sizeof(U)), together = 1024 / apart;
  if (from >> (8 * sizeof(U) - 1) > 1)
    npusim::refuse(here, "AdjustSoftMaxRes must look for %d bits, not 0x%x", int(8 * sizeof(U)), unsigned(from));
  bool found = false;
  for (int64_t first = 0; first < info.srcM; first += together) {
    int64_t rows = info.srcM - first < together ? info.srcM - first : together;
    U values[1024];
    npusim::look(here, max[uint32_t(first * apart)], rows * apart, values);
    for (int64_t row = 0; row < rows; row++) {
      uint32_t bits = 0;
      memcpy(&bits, (const void*)&values[row * apart], sizeof(U));
      if (bits != from) continue;
      found = true;
      Duplicate(result[uint32_t((first + row) * info.srcK)], T(to), int32_t(info.srcK), here);
    }
  }
  npusim::barrier(here, npusim::pipe::V);
  npusim::let_go(here);
  return found;
}
}  // namespace AscendC
