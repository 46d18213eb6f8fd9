// From numbers to int8_t and back: AscendQuant, AscendDequant, AscendAntiQuant, by one factor or one of each column.
//
// AscendQuant computes in half as it is documented, of float too; AscendDequant in float; AscendAntiQuant in the type
// of its result, bfloat16_t by way of float. Columns are taken in pieces of what the buffer holds, row by row.
#pragma once
#include "npusim/row_steps.h"

namespace AscendC {

struct AscendQuantConfig {
  uint32_t calcCount = 0, offsetCount = 0, scaleCount = 0, workLocalSize = 0;
};
inline constexpr AscendQuantConfig ASCEND_QUANT_DEFAULT_CFG = {};
enum class DeQuantMode : uint8_t { DEQUANT_WITH_SINGLE_ROW, DEQUANT_WITH_MULTI_ROW };
struct DequantParams {
  uint32_t m, n, calCount;
};
struct AntiQuantShapeInfo {
  uint32_t offsetHeight = 0, offsetWidth = 0, scaleHeight = 0, scaleWidth = 0;
};
}  // namespace AscendC

namespace npusim {

// A number for all, or one of each column.
template <class T> struct Factor {
  const LocalTensor<T>* tensor = nullptr;
  float value = 0;
  Factor(const LocalTensor<T>& of_columns) : tensor(&of_columns) {}
  Factor(float of_all) : value(of_all) {}
};

// How many columns a buffer holds at a time, of so many bytes each: a multiple of `unit`.
inline int64_t columns_at_once(Here here, const char* call, const Temporary& room, int64_t width, int64_t bytes,
                               int64_t unit) {
  int64_t columns = room.bytes() / bytes / unit * unit;
  if (!columns)
    refuse(here, "%s must be given a temporary buffer of at least %lld bytes, not %lld", call,
           (long long)(bytes * unit), (long long)room.bytes());
  return columns < up(width, unit) ? columns : up(width, unit);
}

template <class T>
inline void ascend_quant(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<int8_t>& dst,
                         const LocalTensor<T>& src, const Factor<T>& scale, const Factor<T>& offset, int64_t width,
                         int64_t count) {
  using namespace AscendC;
  constexpr const char* call = "AscendQuant";
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "AscendQuant is of half and float");
  constexpr bool is_wide = sizeof(T) == 4;
  if (!has_vector() || count <= 0) return;
  if (width <= 0 || (width < count && width % 32))
    refuse(here, "%s must be of rows of whole blocks, not of %lld elements", call, (long long)width);
  Temporary room(here, call, given);
  int64_t bytes = quant_bytes(sizeof(T)) / 128, piece = columns_at_once(here, call, room, width, bytes, 128);
  room.take(piece * bytes);
  LocalTensor<half> product = room.part<half>(0, piece * 2);
  auto narrow = [&](const Factor<T>& factor, int64_t column, int64_t columns, int i) {
    LocalTensor<half> free = is_wide ? room.part<half>(i * piece * 2, piece * 2) : LocalTensor<half>();
    if (!factor.tensor) return free;
    const LocalTensor<T> part = (*factor.tensor)[uint32_t(column)];
    if constexpr (is_wide) {
      Cast(free, part, RoundMode::CAST_RINT, uint32_t(columns), here);
      return free;
    } else {
      return part;
    }
  };
  for (int64_t column = 0; column < width; column += piece) {
    int64_t columns = width - column < piece ? width - column : piece;
    LocalTensor<half> scales = narrow(scale, column, columns, 1), offsets = narrow(offset, column, columns, 2);
    barrier(here, pipe::V);
    for (int64_t at = column; at < count; at += width) {
      int32_t length = int32_t(count - at < columns ? count - at : columns);
      LocalTensor<half> x = product;
      if constexpr (is_wide) Cast(product, src[uint32_t(at)], RoundMode::CAST_RINT, uint32_t(length), here);
      else x = src[uint32_t(at)];
      barrier(here, pipe::V);
      if (scale.tensor) Mul(product, x, scales, length, here);
      else Muls(product, x, half(scale.value), length, here);
      barrier(here, pipe::V);
      if (offset.tensor) Add(product, product, offsets, length, here);
      else Adds(product, product, half(offset.value), length, here);
      barrier(here, pipe::V);
      Cast(dst[uint32_t(at)], product, RoundMode::CAST_RINT, uint32_t(length), here);
      barrier(here, pipe::V);
    }
  }
}

// Rows of n numbers, of each of which `count` are meant, to rows of whole blocks.
template <AscendC::DeQuantMode mode, class D, class S>
inline void ascend_dequant(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<D>& dst,
                           const LocalTensor<int32_t>& src, const Factor<S>& scale, AscendC::DequantParams p) {
  using namespace AscendC;
  constexpr const char* call = "AscendDequant";
  static_assert(std::is_same_v<D, half> || std::is_same_v<D, float> || std::is_same_v<D, bfloat16_t>,
                "AscendDequant is to half, bfloat16_t and float");
  static_assert(std::is_same_v<S, float> || std::is_same_v<S, bfloat16_t> || std::is_same_v<S, uint64_t>,
                "AscendDequant must be by factors of float, bfloat16_t or uint64_t");
  if (!has_vector()) return;
  if (!p.calCount || p.calCount > p.n || p.n % 8 || (scale.tensor && p.calCount > scale.tensor->GetSize()))
    refuse(here,
           "AscendDequant must be of rows of whole blocks that hold what is meant of them, with a factor for each "
           "element, not of %u of %u elements", p.calCount, p.n);
  constexpr uint32_t in_block = 32 / sizeof(D);
  if (mode == DeQuantMode::DEQUANT_WITH_SINGLE_ROW && p.m == 1 && p.calCount % in_block == 0 && p.n % p.calCount == 0)
    p = {p.n / p.calCount, p.calCount, p.calCount};
  int64_t pitch = up(p.n, in_block);
  Temporary room(here, call, given);
  int64_t piece = columns_at_once(here, call, room, p.calCount, dequant_bytes() / 64, 64);
  room.take(piece * dequant_bytes() / 64);
  LocalTensor<float> product = room.part<float>(0, piece * 4), factors = room.part<float>(piece * 4, piece * 4);
  for (int64_t column = 0; column < p.calCount; column += piece) {
    RowSteps steps(here, p.calCount - column < piece ? p.calCount - column : piece);
    LocalTensor<float> by = factors;
    if (scale.tensor) {
      const LocalTensor<S> part = (*scale.tensor)[uint32_t(column)];
      if constexpr (sizeof(S) == 8) {  // a float in the lower half of each
        uint64_t kept;
        uint32_t lanes = uint32_t(steps.count) * 2;
        GatherMask(factors, part.template ReinterpretCast<float>(), 1, true, lanes, {1, 1, 0, 0}, kept, here);
        barrier(here, pipe::V);
      } else if constexpr (sizeof(S) == 2) {
        steps.cast(factors, part, RoundMode::CAST_NONE);
      } else {
        by = part;
      }
    }
    for (int64_t row = 0; row < p.m; row++) {
      steps.cast(product, src[uint32_t(row * p.n + column)], RoundMode::CAST_NONE);
      if (scale.tensor) steps.mul(product, product, by);
      else steps.muls(product, product, scale.value);
      const LocalTensor<D> to = dst[uint32_t(row * pitch + column)];
      if constexpr (sizeof(D) == 2) steps.cast(to, product, RoundMode::CAST_RINT);
      else steps.adds(to, product, 0.0f);
    }
  }
  ResetMask(here);
}

// Rows of `width`, the first `together` of which have the first row of factors, and so on; `offset` null: none.
template <class D, class S>
inline void ascend_antiquant(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<D>& dst,
                             const LocalTensor<S>& src, const Factor<D>* offset, const Factor<D>& scale,
                             int64_t rows, int64_t width, int64_t together) {
  using namespace AscendC;
  constexpr const char* call = "AscendAntiQuant";
  constexpr bool is_half = std::is_same_v<D, half>;
  static_assert(is_half || std::is_same_v<D, bfloat16_t>, "AscendAntiQuant is to half and bfloat16_t");
  static_assert(std::is_same_v<S, int8_t> || is_int4<S>, "AscendAntiQuant is modelled of int8_t and int4b_t");
  if (!has_vector()) return;
  int64_t unit = rows > 1 ? elements_in<S>(32) : is_int4<S> ? 2 : 1;
  if (rows <= 0 || width <= 0 || together <= 0 || rows % together || width % unit)
    refuse(here, "%s must be of rows of whole blocks in groups of the same height, not %lld x %lld by %lld", call,
           (long long)rows, (long long)width, (long long)together);
  Temporary room(here, call, given);
  int64_t bytes = antiquant_bytes(is_half) / 128;
  int64_t piece = is_half ? width : columns_at_once(here, call, room, width, bytes, 128);
  if (!is_half) room.take(piece * bytes);
  for (int64_t column = 0; column < width; column += piece) {
    int32_t length = int32_t(width - column < piece ? width - column : piece);
    RowSteps steps(here, length);
    LocalTensor<half> narrow;
    LocalTensor<float> x, offsets, scales;
    if constexpr (!is_half) {
      x = room.part<float>(0, piece * 4), offsets = room.part<float>(piece * 4, piece * 4);
      scales = room.part<float>(piece * 8, piece * 4), narrow = room.part<half>(piece * 12, piece * 2);
    }
    for (int64_t row = 0; row < rows; row++) {
      uint32_t at = uint32_t(row * width + column), of_group = uint32_t(row / together * width + column);
      if constexpr (is_half) {
        const LocalTensor<half> to = dst[at];
        steps.cast(to, src[at], RoundMode::CAST_NONE);
        if (offset) {
          if (offset->tensor) Add(to, to, (*offset->tensor)[of_group], length, here);
          else Adds(to, to, half(offset->value), length, here);
          barrier(here, pipe::V);
        }
        if (scale.tensor) Mul(to, to, (*scale.tensor)[of_group], length, here);
        else Muls(to, to, half(scale.value), length, here);
        barrier(here, pipe::V);
      } else {
        if (row % together == 0) {
          if (offset && offset->tensor) steps.cast(offsets, (*offset->tensor)[of_group], RoundMode::CAST_NONE);
          if (scale.tensor) steps.cast(scales, (*scale.tensor)[of_group], RoundMode::CAST_NONE);
        }
        steps.cast(narrow, src[at], RoundMode::CAST_NONE);
        steps.cast(x, narrow, RoundMode::CAST_NONE);
        if (offset && offset->tensor) steps.add(x, x, offsets);
        else if (offset) steps.adds(x, x, offset->value);
        if (scale.tensor) steps.mul(x, x, scales);
        else steps.muls(x, x, scale.value);
        steps.cast(dst[at], x, RoundMode::CAST_RINT);
      }
    }
  }
}

// By the factors of columns, whose groups and columns are those of the call, else of the tensors.
template <bool transposes, class D, class S>
inline void antiquant_by_columns(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<D>& dst,
                                 const LocalTensor<S>& src, const LocalTensor<D>* offset, const LocalTensor<D>& scale,
                                 int64_t k, const AscendC::AntiQuantShapeInfo& info) {
  static_assert(!transposes, "AscendAntiQuant of transposed matrices is modelled with one factor for all");
  const AscendC::ShapeInfo own = offset ? offset->GetShapeInfo() : AscendC::ShapeInfo(), other = scale.GetShapeInfo();
  const AscendC::ShapeInfo& shape = own.shapeDim ? own : other;
  int64_t height = offset ? info.offsetHeight : info.scaleHeight, width = offset ? info.offsetWidth : info.scaleWidth;
  int64_t groups = height ? height : shape.shapeDim > 1 ? shape.shape[0] : 1;
  if (!width) width = shape.shapeDim > 1 ? shape.shape[1] : shape.shape[0];
  if (!width) refuse(here, "AscendAntiQuant must be given the shape of its factors, by the call or their ShapeInfo");
  const Factor<D> added = offset ? Factor<D>(*offset) : Factor<D>(0.0f);
  ascend_antiquant<D, S>(here, given, dst, src, offset ? &added : nullptr, scale, k, width, k / groups);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_QUANT_TEMPLATE \
  template <class T, bool reuse = false, NPUSIM_CONFIG(AscendQuantConfig) config = ASCEND_QUANT_DEFAULT_CFG>
#define NPUSIM_QUANT(Name, PARAMETER, given)                                                                          \
  NPUSIM_QUANT_TEMPLATE inline void Name(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src,                   \
                                         PARAMETER const float scale, const float offset, const uint32_t count,       \
                                         Here here = Here::now()) {                                                   \
    npusim::ascend_quant<T>(here, given, dst, src, scale, offset, count, count);                                      \
  }                                                                                                                   \
  NPUSIM_QUANT_TEMPLATE inline void Name(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src,                   \
                                         PARAMETER const float scale, const float offset, Here here = Here::now()) {  \
    npusim::ascend_quant<T>(here, given, dst, src, scale, offset, src.GetSize(), src.GetSize());                      \
  }                                                                                                                   \
  NPUSIM_QUANT_TEMPLATE inline void Name(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src,                   \
                                         PARAMETER const LocalTensor<T>& scale, const std::common_type_t<T> offset,   \
                                         const uint32_t width, const uint32_t count, Here here = Here::now()) {       \
    npusim::ascend_quant<T>(here, given, dst, src, scale, float(offset), width, count);                               \
  }                                                                                                                   \
  NPUSIM_QUANT_TEMPLATE inline void Name(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src,                   \
                                         PARAMETER const LocalTensor<T>& scale, const std::common_type_t<T> offset,   \
                                         Here here = Here::now()) {                                                   \
    npusim::ascend_quant<T>(here, given, dst, src, scale, float(offset), scale.GetSize(), src.GetSize());             \
  }                                                                                                                   \
  NPUSIM_QUANT_TEMPLATE inline void Name(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src,                   \
                                         PARAMETER const LocalTensor<T>& scale, const LocalTensor<T>& offset,         \
                                         const uint32_t width, const uint32_t offsets, const uint32_t count,          \
                                         Here here = Here::now()) {                                                   \
    if (width != offsets) npusim::refuse(here, "AscendQuant must be given as many offsets as factors");               \
    npusim::ascend_quant<T>(here, given, dst, src, scale, offset, width, count);                                      \
  }                                                                                                                   \
  NPUSIM_QUANT_TEMPLATE inline void Name(const LocalTensor<int8_t>& dst, const LocalTensor<T>& src,                   \
                                         PARAMETER const LocalTensor<T>& scale, const LocalTensor<T>& offset,         \
                                         Here here = Here::now()) {                                                   \
    npusim::ascend_quant<T>(here, given, dst, src, scale, offset, scale.GetSize(), src.GetSize());                    \
  }
NPUSIM_QUANT(AscendQuant, NPUSIM_GIVEN, &temporary)
NPUSIM_QUANT(AscendQuant, , nullptr)
#undef NPUSIM_QUANT_TEMPLATE

// ASSUMED without a shape: one row of all that the tensor holds, of which as many are meant as there are factors.
#define NPUSIM_DEQUANT_TEMPLATE \
  template <class D, class S, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
#define NPUSIM_DEQUANT(Name, PARAMETER, given)                                                                        \
  NPUSIM_DEQUANT_TEMPLATE inline void Name(const LocalTensor<D>& dst, const LocalTensor<int32_t>& src,                \
                                           const LocalTensor<S>& scale, PARAMETER DequantParams p,                    \
                                           Here here = Here::now()) {                                                 \
    npusim::ascend_dequant<mode, D, S>(here, given, dst, src, scale, p);                                              \
  }                                                                                                                   \
  NPUSIM_DEQUANT_TEMPLATE inline void Name(const LocalTensor<D>& dst, const LocalTensor<int32_t>& src, const S scale, \
                                           PARAMETER DequantParams p, Here here = Here::now()) {                      \
    npusim::ascend_dequant<mode, D, S>(here, given, dst, src, float(scale), p);                                       \
  }                                                                                                                   \
  NPUSIM_DEQUANT_TEMPLATE inline void Name(const LocalTensor<D>& dst, const LocalTensor<int32_t>& src,                \
                                           const LocalTensor<S>& scale, PARAMETER const uint32_t count,               \
                                           Here here = Here::now()) {                                                 \
    npusim::ascend_dequant<mode, D, S>(here, given, dst, src, scale, {1, src.GetSize(), count});                      \
  }
NPUSIM_DEQUANT(AscendDequant, NPUSIM_GIVEN, &temporary)
NPUSIM_DEQUANT(AscendDequant, , nullptr)
NPUSIM_DEQUANT_TEMPLATE
inline void AscendDequant(const LocalTensor<D>& dst, const LocalTensor<int32_t>& src, const LocalTensor<S>& scale,
                          const LocalTensor<uint8_t>& temporary, Here here = Here::now()) {
  AscendDequant<D, S, mode>(dst, src, scale, temporary, scale.GetSize(), here);
}
NPUSIM_DEQUANT_TEMPLATE
inline void AscendDequant(const LocalTensor<D>& dst, const LocalTensor<int32_t>& src, const LocalTensor<S>& scale,
                          Here here = Here::now()) {
  AscendDequant<D, S, mode>(dst, src, scale, scale.GetSize(), here);
}
#undef NPUSIM_DEQUANT_TEMPLATE

#define NPUSIM_ANTIQUANT(Name, PARAMETER, given)                                                                      \
  template <class S, class D, bool transposes>                                                                        \
  inline void Name(const LocalTensor<D>& dst, const LocalTensor<S>& src, const LocalTensor<D>& offset,                \
                   const LocalTensor<D>& scale, PARAMETER const uint32_t k, const AntiQuantShapeInfo& info = {},      \
                   Here here = Here::now()) {                                                                         \
    npusim::antiquant_by_columns<transposes>(here, given, dst, src, &offset, scale, k, info);                         \
  }                                                                                                                   \
  template <class S, class D, bool transposes>                                                                        \
  inline void Name(const LocalTensor<D>& dst, const LocalTensor<S>& src, const std::common_type_t<D> offset,          \
                   const std::common_type_t<D> scale, PARAMETER const uint32_t, const AntiQuantShapeInfo& = {},       \
                   Here here = Here::now()) {                                                                         \
    const npusim::Factor<D> added = float(offset);                                                                    \
    npusim::ascend_antiquant<D, S>(here, given, dst, src, &added, float(scale), 1, src.GetSize(), 1);                 \
  }
NPUSIM_ANTIQUANT(AscendAntiQuant, NPUSIM_GIVEN, &temporary)
NPUSIM_ANTIQUANT(AscendAntiQuant, , nullptr)
#undef NPUSIM_ANTIQUANT
// Without an offset.
template <class S, class D, bool transposes>
inline void AscendAntiQuant(const LocalTensor<D>& dst, const LocalTensor<S>& src, const LocalTensor<D>& scale,
                            NPUSIM_GIVEN const uint32_t k, const AntiQuantShapeInfo& info = {},
                            Here here = Here::now()) {
  npusim::antiquant_by_columns<transposes>(here, &temporary, dst, src, (const LocalTensor<D>*)nullptr, scale, k, info);
}
template <class S, class D, bool transposes>
inline void AscendAntiQuant(const LocalTensor<D>& dst, const LocalTensor<S>& src, const std::common_type_t<D> scale,
                            NPUSIM_GIVEN const uint32_t, const AntiQuantShapeInfo& = {}, Here here = Here::now()) {
  npusim::ascend_antiquant<D, S>(here, &temporary, dst, src, nullptr, float(scale), 1, src.GetSize(), 1);
}
}  // namespace AscendC
