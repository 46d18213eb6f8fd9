// What hosts ask of functions that choose, pad, sort and transpose: how large their buffers are, and their tilings.
#pragma once
#include "npusim/rooms.h"
#include "npusim/temporary_sizes.h"
#include "tiling/platform/platform_ascendc.h"

namespace AscendC {

namespace tiling {
using ::ConfusionTransposeTiling;
using ::PadTiling;
using ::TopkTiling;
using ::UnPadTiling;
}  // namespace tiling

#define NPUSIM_BYTE_MASK_SIZES(Name, ...)                                                                             \
  inline uint32_t Get##Name##MinTmpSize(const TensorShape&, __VA_ARGS__) { return npusim::BYTE_MASK_ROOM; }           \
  inline uint32_t Get##Name##MaxTmpSize(const TensorShape& shape, __VA_ARGS__) {                                      \
    return uint32_t(npusim::BYTE_MASK_ROOM * (npusim::whole(shape.GetShapeSize(), 256) / 256));                       \
  }                                                                                                                   \
  inline void Get##Name##MaxMinTmpSize(const TensorShape& shape, __VA_ARGS__, uint32_t& most, uint32_t& least) {      \
    least = npusim::BYTE_MASK_ROOM;                                                                                   \
    most = uint32_t(npusim::BYTE_MASK_ROOM * (npusim::whole(shape.GetShapeSize(), 256) / 256));                       \
  }
NPUSIM_BYTE_MASK_SIZES(Select, const TensorShape&, const uint32_t, const TensorShape&, const uint32_t, const bool)
NPUSIM_BYTE_MASK_SIZES(SelectWithBytesMask, const TensorShape&, const uint32_t, const TensorShape&, const uint32_t,
                       const bool)
NPUSIM_BYTE_MASK_SIZES(DropOut, const uint32_t, const bool)
#undef NPUSIM_BYTE_MASK_SIZES

// False for formats between which TransData does not lead, for elements of other sizes and for shapes of other tensors.
inline bool GetTransDataMaxMinTmpSize(const platform_ascendc::PlatformAscendC&, const TensorShape& from,
                                      const TensorShape& to, const TensorDataType type, const TransDataConfig& config,
                                      uint32_t& most, uint32_t& least) {
  bool to_blocks = config.srcFormat == DataFormat::NCDHW;
  DataFormat other = to_blocks ? config.dstFormat : config.srcFormat;
  if (!to_blocks && config.dstFormat != DataFormat::NCDHW) return false;
  if (npusim::bytes_of(type) != 2) return false;
  const std::vector<int64_t>& p = (to_blocks ? from : to).GetDims();
  if (p.size() != 5) return false;
  int64_t c1 = npusim::whole(p[1], 16) / 16, n1 = npusim::whole(p[0], 16) / 16;
  std::vector<int64_t> blocks;
  if (other == DataFormat::NDC1HWC0) blocks = {p[0], p[2], c1, p[3], p[4], 16};
  else if (other == DataFormat::FRACTAL_Z_3D) blocks = {p[2], c1, p[3], p[4], n1, 16, 16};
  else return false;
  if ((to_blocks ? to : from).GetDims() != blocks) return false;
  most = least = uint32_t(npusim::TRANS_DATA_ROOM);
  return true;
}

inline void GetPadMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, uint32_t& most, uint32_t& least) {
  most = least = uint32_t(2 * npusim::pad_bytes(shape.GetDim(1), type_size));
}
inline void PadTilingFunc(const TensorShape& shape, const TensorShape& original, const uint32_t room, const uint32_t,
                          ::PadTiling& tiling) {
  tiling = {uint32_t(shape.GetDim(0)), uint32_t(shape.GetDim(1)), uint32_t(original.GetDim(1)), room};
}
// UnPad needs none: a size that hosts can make a buffer of.
inline void GetUnPadMaxMinTmpSize(const platform_ascendc::PlatformAscendC&, const TensorShape&, const uint32_t,
                                  uint32_t& most, uint32_t& least) {
  most = least = npusim::LEAST_TEMPORARY;
}
inline void UnPadTilingFunc(const TensorShape& shape, const uint32_t room, const uint32_t, ::UnPadTiling& tiling) {
  tiling = {uint32_t(shape.GetDim(0)), uint32_t(shape.GetDim(1)), room};
}

inline bool GetTopKMaxMinTmpSize(const platform_ascendc::PlatformAscendC&, const int32_t inner, const int32_t rows,
                                 const bool, const bool, TopKMode mode, const bool, const uint32_t type_size,
                                 uint32_t& most, uint32_t& least) {
  most = least = uint32_t(npusim::topk_bytes(inner, rows, type_size, mode == TopKMode::TOPK_NSMALL));
  return true;
}
inline bool GetTopKMaxMinTmpSize(const int32_t inner, const int32_t rows, const int32_t, const bool, const bool,
                                 TopKMode mode, const bool, TensorDataType type, const TopKConfig& config,
                                 uint32_t& most, uint32_t& least) {
  most = least = uint32_t(npusim::topk_bytes(inner, rows, npusim::bytes_of(type), mode == TopKMode::TOPK_NSMALL));
  return config.algo == TopKAlgo::MERGE_SORT;
}
inline bool TopKTilingFunc(const platform_ascendc::PlatformAscendC&, const int32_t inner, const int32_t rows,
                           const int32_t k, const uint32_t type_size, const bool, TopKMode mode, const bool,
                           ::TopkTiling& tiling) {
  tiling = {};
  bool is_small = mode == TopKMode::TOPK_NSMALL;
  tiling.tmpLocalSize = int32_t(npusim::topk_bytes(inner, rows, type_size, is_small));
  tiling.allDataSize = inner * rows, tiling.innerDataSize = inner, tiling.sortRepeat = uint32_t(inner) / 32;
  tiling.kAlignFourBytes = (k + 7) / 8 * 8, tiling.kAlignTwoBytes = (k + 15) / 16 * 16;
  return true;
}
// Sort merges lists from a copy of its pairs of 8 bytes, Concat works where its source is.
inline uint32_t GetSortTmpSize(const platform_ascendc::PlatformAscendC&, const uint32_t count, const uint32_t) {
  return uint32_t(npusim::whole(count, 32) * 8);
}
inline uint32_t GetConcatTmpSize(const platform_ascendc::PlatformAscendC&, const uint32_t, const uint32_t) {
  return npusim::LEAST_TEMPORARY;
}
// Of Sort without pairs, which kernels here do not have: what sorting by pairs takes, twice 8 bytes of each element.
inline void GetSortMaxMinTmpSize(const TensorShape& shape, TensorDataType, TensorDataType, bool, const SortConfig&,
                                 uint32_t& most, uint32_t& least) {
  most = least = uint32_t(npusim::whole(shape.GetShapeSize(), 32) * 16);
}

#define NPUSIM_TRANSPOSE_SIZES(Name)                                                                                  \
  inline void Get##Name##MaxMinTmpSize(const TensorShape&, const uint32_t, const uint32_t, uint32_t& most,            \
                                       uint32_t& least) {                                                             \
    most = least = npusim::LEAST_TEMPORARY;                                                                           \
  }                                                                                                                   \
  inline void Get##Name##TilingInfo(const TensorShape& shape, const uint32_t room, const uint32_t,                    \
                                    const uint32_t type, ::ConfusionTransposeTiling& tiling) {                        \
    bool is_matrix = type == uint32_t(TransposeType::TRANSPOSE_ND2ND_ONLY);                                           \
    auto size = [&](size_t axis) { return uint32_t(shape.GetDim(axis)); };                                            \
    tiling = is_matrix ? ::ConfusionTransposeTiling{1, 1, size(0), size(1), type, room}                               \
                       : ::ConfusionTransposeTiling{size(0), size(1), size(2), size(3), type, room};                  \
  }
NPUSIM_TRANSPOSE_SIZES(Transpose)
NPUSIM_TRANSPOSE_SIZES(ConfusionTranspose)
#undef NPUSIM_TRANSPOSE_SIZES
inline void GetConfusionTransposeOnlyTilingInfo(const TensorShape& shape, const uint32_t room, const uint32_t type_size,
                                                ::ConfusionTransposeTiling& tiling) {
  GetTransposeTilingInfo(shape, room, type_size, uint32_t(TransposeType::TRANSPOSE_ND2ND_ONLY), tiling);
}
}  // namespace AscendC
