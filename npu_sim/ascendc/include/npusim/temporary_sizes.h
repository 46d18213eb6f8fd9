// What host code asks the library for: how large temporary buffers of its functions are, and tilings of SoftMax.
//
// The sizes are those that the functions here need (math.h, angles.h, library.h), not the vendor's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernel_tiling/kernel_tiling.h"
#include "npusim/host_types.h"
#include "npusim/rooms.h"

namespace AscendC {

class TensorShape {
 public:
  TensorShape() = default;
  TensorShape(std::initializer_list<int64_t> sizes) : dims(sizes) {}
  explicit TensorShape(const std::vector<int64_t>& sizes) : dims(sizes) {}
  size_t GetDimNum() const { return dims.size(); }
  int64_t GetDim(size_t axis) const { return axis < dims.size() ? dims[axis] : 0; }
  const std::vector<int64_t>& GetDims() const { return dims; }
  void SetDim(size_t axis, int64_t size) { dims.at(axis) = size; }
  int64_t GetShapeSize() const {
    int64_t elements = 1;
    for (int64_t size : dims) elements *= size;
    return elements;
  }

 private:
  std::vector<int64_t> dims;
};

namespace tiling {
using ::LogSoftMaxTiling;
using ::SoftMaxTiling;
}  // namespace tiling
}  // namespace AscendC

namespace ge {
using Shape = AscendC::TensorShape;
}
namespace optiling {
using ::SoftMaxTiling;
}

namespace npusim {

constexpr uint32_t LEAST_TEMPORARY = 256;  // also of functions that need none: a buffer has to have bytes

// So many floats for each of 64 elements, at least once; half has its operands and the result in float as well.
inline uint32_t least_temporary(uint32_t temporaries, uint32_t type_size, uint32_t operands = 1) {
  uint32_t parts = temporaries + (type_size == 2 ? 1 + operands : 0);
  return parts ? 256 * parts : LEAST_TEMPORARY;
}
inline uint32_t most_temporary(uint32_t temporaries, uint32_t type_size, int64_t count, uint32_t operands = 1) {
  return least_temporary(temporaries, type_size, operands) * uint32_t(count < 64 ? 1 : (count + 63) / 64);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_SIZES(Name, temporaries)                                                                            \
  inline void Get##Name##MaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, const bool,             \
                                       uint32_t& most, uint32_t& least) {                                          \
    most = npusim::most_temporary(temporaries, type_size, shape.GetShapeSize());                                   \
    least = npusim::least_temporary(temporaries, type_size);                                                       \
  }                                                                                                                \
  inline void Get##Name##TmpBufferFactorSize(const uint32_t type_size, uint32_t& live, uint32_t& more) {           \
    live = npusim::least_temporary(temporaries, type_size) / (64 * type_size);                                     \
    more = 0;                                                                                                      \
  }
NPUSIM_SIZES(Exp, 0) NPUSIM_SIZES(Log, 0) NPUSIM_SIZES(Log2, 1) NPUSIM_SIZES(Log10, 1) NPUSIM_SIZES(Sigmoid, 2)
NPUSIM_SIZES(Tanh, 2) NPUSIM_SIZES(Floor, 0) NPUSIM_SIZES(Ceil, 0) NPUSIM_SIZES(Trunc, 0) NPUSIM_SIZES(Round, 0)
NPUSIM_SIZES(Frac, 1) NPUSIM_SIZES(Sign, 0) NPUSIM_SIZES(Sin, 3) NPUSIM_SIZES(Cos, 3) NPUSIM_SIZES(Tan, 4)
NPUSIM_SIZES(Erf, 4) NPUSIM_SIZES(Erfc, 4) NPUSIM_SIZES(Asin, 5) NPUSIM_SIZES(Acos, 5) NPUSIM_SIZES(Atan, 4)
NPUSIM_SIZES(Sinh, 2) NPUSIM_SIZES(Cosh, 2) NPUSIM_SIZES(Asinh, 2) NPUSIM_SIZES(Acosh, 1) NPUSIM_SIZES(Atanh, 2)
NPUSIM_SIZES(Clamp, 0) NPUSIM_SIZES(Axpy, 0)
#undef NPUSIM_SIZES

inline void GetXorMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, const bool, uint32_t& most,
                                uint32_t& least) {
  least = npusim::LEAST_TEMPORARY;
  most = uint32_t((shape.GetShapeSize() * type_size + 255) / 256 * 256);
}
inline void GetPowerMaxMinTmpSize(const TensorShape& base, const TensorShape& exponent, const bool, const uint32_t type_size,
                                  const bool, uint32_t& most, uint32_t& least) {
  int64_t count = base.GetShapeSize() > exponent.GetShapeSize() ? base.GetShapeSize() : exponent.GetShapeSize();
  most = npusim::most_temporary(4, type_size, count);
  least = npusim::least_temporary(4, type_size);
}

#define NPUSIM_SIZES_TOGETHER(Name)                                                                             \
  inline void Get##Name##TmpSize(const TensorShape& shape, const uint32_t type_size, const bool, uint32_t& most,  \
                                 uint32_t& least) {                                                              \
    most = npusim::most_temporary(1, type_size, shape.GetShapeSize());                                           \
    least = npusim::least_temporary(1, type_size);                                                               \
  }
NPUSIM_SIZES_TOGETHER(Swish)
NPUSIM_SIZES_TOGETHER(Silu)
#undef NPUSIM_SIZES_TOGETHER
inline uint32_t GetGeluMinTmpSize(const TensorShape&, const uint32_t type_size) {
  return npusim::least_temporary(2, type_size);
}
inline uint32_t GetGeluMaxTmpSize(const TensorShape& shape, const uint32_t type_size) {
  return npusim::most_temporary(2, type_size, shape.GetShapeSize());
}
inline void GetGeluMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, uint32_t& most, uint32_t& least) {
  most = GetGeluMaxTmpSize(shape, type_size);
  least = GetGeluMinTmpSize(shape, type_size);
}
inline void GetSumMaxMinTmpSize(const uint32_t, const uint32_t, const bool, uint32_t& most, uint32_t& least) {
  least = npusim::LEAST_TEMPORARY;
  most = 255 * npusim::LEAST_TEMPORARY;
}
inline void GetMeanMaxMinTmpSize(const uint32_t count, const uint32_t type_size, const uint32_t, const bool reuses,
                                 uint32_t& most, uint32_t& least) {
  GetSumMaxMinTmpSize(count, type_size, reuses, most, least);
}

// None of these functions gains by more than one row's room.
#define NPUSIM_ROW_SIZES(Name, bytes, ...)                                                    \
  inline uint32_t Get##Name##MinTmpSize(const TensorShape& shape, __VA_ARGS__) {              \
    int64_t count = shape.GetDim(shape.GetDimNum() - 1);                                      \
    return uint32_t(bytes);                                                                   \
  }                                                                                           \
  inline uint32_t Get##Name##MaxTmpSize(const TensorShape& shape, __VA_ARGS__) {              \
    int64_t count = shape.GetDim(shape.GetDimNum() - 1);                                      \
    return uint32_t(bytes);                                                                   \
  }
NPUSIM_ROW_SIZES(SoftMax, npusim::softmax_bytes(count, 1), const uint32_t, const bool)
NPUSIM_ROW_SIZES(LogSoftMax, npusim::softmax_bytes(count, 1), const uint32_t, const bool)
NPUSIM_ROW_SIZES(SoftMaxFlashV2, npusim::softmax_flash_bytes(count, !is_without_blocks), const uint32_t, const uint32_t,
                 const bool, const bool = false, const bool is_without_blocks = false)
NPUSIM_ROW_SIZES(SoftMaxGrad, npusim::softmax_grad_bytes(count, type_size), const uint32_t type_size, const bool,
                 const bool)
#undef NPUSIM_ROW_SIZES

// Rows by rows: of this SoftMax takes the sizes of the matrix.
inline void SoftMaxTilingFunc(const TensorShape& shape, const uint32_t type_size, const uint32_t room,
                              ::SoftMaxTiling& tiling) {
  uint32_t columns = uint32_t(shape.GetDim(shape.GetDimNum() - 1)), rows = uint32_t(shape.GetShapeSize()) / columns;
  uint32_t block = 32 / type_size, fit = room / 4 / (columns + block);
  fit = fit < 1 ? 1 : fit > rows ? rows : fit;
  tiling = {rows, columns, rows * columns, rows, block, rows * block, fit, columns, fit * columns,
            fit, block, fit * block, rows / fit, rows % fit, rows % fit * columns, rows % fit * block};
}
inline void LogSoftMaxTilingFunc(const TensorShape& shape, const uint32_t type_size, const uint32_t room,
                                 ::LogSoftMaxTiling& tiling) {
  SoftMaxTilingFunc(shape, type_size, room, tiling);
}
inline void SoftMaxFlashV2TilingFunc(const TensorShape& shape, const uint32_t type_size, const uint32_t,
                                     const uint32_t room, ::SoftMaxTiling& tiling, const bool, const bool = false,
                                     const bool = false) {
  SoftMaxTilingFunc(shape, type_size, room, tiling);
}
inline void GetSoftMaxFlashV3MaxMinTmpSize(const TensorShape& shape, const uint32_t, const uint32_t, uint32_t& most,
                                           uint32_t& least, const bool, const bool = false) {
  most = least = uint32_t(npusim::softmax_flash_v3_bytes(shape.GetDim(shape.GetDimNum() - 1)));
}
inline void SoftMaxFlashV3TilingFunc(const TensorShape& shape, const uint32_t, const uint32_t type_size,
                                     const uint32_t room, ::SoftMaxTiling& tiling, const bool, const bool = false) {
  SoftMaxTilingFunc(shape, type_size, room, tiling);
}
inline void SoftMaxGradTilingFunc(const TensorShape& shape, const uint32_t type_size, const uint32_t room,
                                  ::SoftMaxTiling& tiling, const bool = false) {
  SoftMaxTilingFunc(shape, type_size, room, tiling);
}

#define NPUSIM_PATTERN_SIZES(Name)                                                                                  \
  inline void Get##Name##MaxMinTmpSize(const TensorShape&, const TensorDataType, ReducePattern, bool, bool,          \
                                       uint32_t& most, uint32_t& least) {                                            \
    least = npusim::LEAST_TEMPORARY;                                                                                 \
    most = 255 * npusim::LEAST_TEMPORARY;                                                                            \
  }
NPUSIM_PATTERN_SIZES(ReduceMax)
NPUSIM_PATTERN_SIZES(ReduceMin)
NPUSIM_PATTERN_SIZES(ReduceSum)
NPUSIM_PATTERN_SIZES(ReduceMean)
NPUSIM_PATTERN_SIZES(ReduceProd)
#undef NPUSIM_PATTERN_SIZES
#define NPUSIM_LOGICAL_SIZES(Name)                                                                                  \
  inline void Get##Name##MaxMinTmpSize(const TensorShape& shape, const TensorDataType type, ReducePattern pattern,   \
                                       bool, bool, uint32_t& most, uint32_t& least) {                                \
    bool is_bytes = type == TensorDataType::DT_UINT8, is_rows = pattern == ReducePattern::AR;                        \
    least = npusim::LEAST_TEMPORARY;                                                                                 \
    most = 255 * npusim::LEAST_TEMPORARY;                                                                            \
    if (is_bytes && is_rows) most = least = uint32_t(npusim::logical_row_bytes(shape.GetDim(0), shape.GetDim(1)));   \
    if (is_bytes && !is_rows) most = uint32_t(npusim::whole(shape.GetDim(1), 64) / 32 * npusim::LOGICAL_COLUMN_BYTES);     \
  }
NPUSIM_LOGICAL_SIZES(ReduceAny)
NPUSIM_LOGICAL_SIZES(ReduceAll)
#undef NPUSIM_LOGICAL_SIZES
inline void GetReduceXorSumMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, uint32_t& most,
                                         uint32_t& least) {
  least = uint32_t(npusim::XOR_SUM_BYTES);
  most = uint32_t(256 + npusim::whole(shape.GetShapeSize(), 128) * 8);
}

inline void GetAscendQuantMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, uint32_t& most,
                                        uint32_t& least) {
  least = uint32_t(npusim::quant_bytes(type_size));
  most = least * uint32_t(npusim::whole(shape.GetShapeSize(), 128) / 128);
}
inline void GetAscendDequantMaxMinTmpSize(const TensorShape& shape, const uint32_t, uint32_t& most, uint32_t& least) {
  least = uint32_t(npusim::dequant_bytes());
  most = least * uint32_t(npusim::whole(shape.GetDim(shape.GetDimNum() - 1), 64) / 64);
}
inline uint32_t GetAscendAntiQuantMinTmpSize(const TensorShape&, const TensorShape&, bool, TensorDataType,
                                             TensorDataType to) {
  return uint32_t(npusim::antiquant_bytes(to == TensorDataType::DT_FLOAT16));
}
inline uint32_t GetAscendAntiQuantMaxTmpSize(const TensorShape& shape, const TensorShape& of_scale, bool transposes,
                                             TensorDataType from, TensorDataType to) {
  int64_t pieces = npusim::whole(shape.GetDim(shape.GetDimNum() - 1), 128) / 128;
  return GetAscendAntiQuantMinTmpSize(shape, of_scale, transposes, from, to) * uint32_t(pieces);
}
inline void GetAscendAntiQuantMaxMinTmpSize(const TensorShape& shape, const TensorShape& of_scale, bool transposes,
                                            TensorDataType from, TensorDataType to, uint32_t& most, uint32_t& least) {
  most = GetAscendAntiQuantMaxTmpSize(shape, of_scale, transposes, from, to);
  least = GetAscendAntiQuantMinTmpSize(shape, of_scale, transposes, from, to);
}

#define NPUSIM_SIZES_OF_TWO(Name)                                                                                   \
  inline void Get##Name##MaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, const bool,               \
                                       uint32_t& most, uint32_t& least) {                                            \
    most = npusim::most_temporary(1, type_size, shape.GetShapeSize(), 2);                                            \
    least = npusim::least_temporary(1, type_size, 2);                                                                \
  }                                                                                                                  \
  inline void Get##Name##TmpBufferFactorSize(const uint32_t type_size, uint32_t& live, uint32_t& more) {             \
    live = npusim::least_temporary(1, type_size, 2) / (64 * type_size);                                              \
    more = 0;                                                                                                        \
  }
NPUSIM_SIZES_OF_TWO(Fmod)
NPUSIM_SIZES_OF_TWO(GeGLU)
NPUSIM_SIZES_OF_TWO(ReGlu)
#undef NPUSIM_SIZES_OF_TWO
inline void GetSwiGLUMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, uint32_t& most, uint32_t& least,
                                   const bool reuses) {
  GetGeGLUMaxMinTmpSize(shape, type_size, reuses, most, least);
}
inline void GetSwiGLUTmpBufferFactorSize(const uint32_t type_size, uint32_t& live, uint32_t& more) {
  GetGeGLUTmpBufferFactorSize(type_size, live, more);
}

inline void GetCumSumMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, const bool is_last_axis,
                                   const bool, uint32_t& most, uint32_t& least) {
  most = least = uint32_t(npusim::cumsum_bytes(shape.GetDim(shape.GetDimNum() - 1), type_size, is_last_axis));
}
inline void GetArangeMaxMinTmpSize(uint32_t& most, uint32_t& least) { most = least = 0; }
inline void GetArithProgressionMaxMinTmpSize(uint32_t& most, uint32_t& least) { most = least = 0; }
}  // namespace AscendC
