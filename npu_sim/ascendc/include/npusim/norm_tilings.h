// What hosts ask of functions that normalise rows: how large their buffers are, and their tilings.
//
// A tiling has the extents, and its buffer as it was given: rows are taken one at a time, whatever room there is.
#pragma once
#include "npusim/rooms.h"
#include "npusim/temporary_sizes.h"

namespace npusim {

// {B, S, stored H, H}, the last of which may be left out.
template <class Tiling> inline void set_extents(Tiling& tiling, const AscendC::TensorShape& shape, int64_t original) {
  tiling = {};
  tiling.bLength = uint32_t(shape.GetDim(0));
  tiling.sLength = uint32_t(shape.GetDim(1));
  tiling.hLength = uint32_t(shape.GetDim(2));
  tiling.originalHLength = original ? uint32_t(original) : tiling.hLength;
}
}  // namespace npusim

namespace AscendC {

namespace tiling {
using ::DeepNormTiling;
using ::GroupNormTiling;
using ::LayerNormGradBetaTiling;
using ::LayerNormGradTiling;
using ::LayerNormSeparateTiling;
using ::LayerNormTiling;
using ::RmsNormTiling;
}  // namespace tiling

inline void GetLayerNormMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, uint32_t& most,
                                      uint32_t& least) {
  most = least = uint32_t(npusim::layer_norm_bytes(shape.GetDim(2)));
}
inline void GetLayerNormMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, const bool, const bool,
                                      uint32_t& most, uint32_t& least) {
  most = least = uint32_t(npusim::layer_norm_bytes(shape.GetDim(1)));
}
inline void GetLayerNormNDTilingInfo(const TensorShape& shape, const uint32_t room, const uint32_t, const bool,
                                     ::LayerNormTiling& tiling) {
  npusim::set_extents(tiling, shape, shape.GetDim(3));
  tiling.inputXSize = tiling.bLength * tiling.sLength * tiling.hLength;
  tiling.meanVarSize = tiling.bLength * tiling.sLength;
  tiling.tmpBufSize = room / uint32_t(sizeof(float));
  tiling.lastDimValueBack = 1.0f / float(tiling.originalHLength);
}
inline void GetLayerNormNDTillingInfo(const TensorShape& shape, const uint32_t room, const uint32_t type_size,
                                      const bool reuses, ::LayerNormTiling& tiling) {
  GetLayerNormNDTilingInfo(shape, room, type_size, reuses, tiling);
}
inline void GetLayerNormNDTilingInfo(const TensorShape& shape, const uint32_t room, const uint32_t, const bool,
                                     const bool, ::LayerNormSeparateTiling& tiling) {
  tiling = {};
  tiling.aLength = uint32_t(shape.GetDim(0));
  tiling.rLength = uint32_t(shape.GetDim(1));
  tiling.inputXSize = tiling.aLength * tiling.rLength;
  tiling.meanVarSize = tiling.aLength;
  tiling.tmpBufSize = room / uint32_t(sizeof(float));
  tiling.rValueBack = 1.0f / float(tiling.rLength);
}

inline void GetNormalizeMaxMinTmpSize(const TensorShape& shape, const uint32_t, const uint32_t, const bool, const bool,
                                      const bool, uint32_t& most, uint32_t& least) {
  most = least = uint32_t(npusim::normalize_bytes(shape.GetDim(1)));
}

inline bool GetDeepNormMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, const bool, uint32_t& most,
                                     uint32_t& least) {
  most = least = uint32_t(npusim::layer_norm_bytes(shape.GetDim(2)));
  return true;
}
inline bool GetDeepNormTilingInfo(const TensorShape& shape, const TensorShape& original, const uint32_t room,
                                  const uint32_t type_size, const bool reuses, const bool, ::DeepNormTiling& tiling) {
  GetLayerNormNDTilingInfo({{shape.GetDim(0), shape.GetDim(1), shape.GetDim(2), original.GetDim(2)}}, room, type_size,
                           reuses, tiling);
  return true;
}

inline bool GetRmsNormMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, uint32_t& most, uint32_t& least,
                                    const bool = false) {
  most = least = uint32_t(npusim::rms_norm_bytes(shape.GetDim(2), type_size));
  return true;
}
inline bool GetRmsNormTilingInfo(const TensorShape& shape, const TensorShape& original, const uint32_t room,
                                 const uint32_t type_size, ::RmsNormTiling& tiling, const bool = false) {
  npusim::set_extents(tiling, shape, original.GetDim(2));
  tiling.reciprocalOfHLength = 1.0f / float(tiling.originalHLength);
  return room >= npusim::rms_norm_bytes(tiling.hLength, type_size);
}

inline void GetLayerNormGradMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, uint32_t& most,
                                          uint32_t& least) {
  most = least = uint32_t(npusim::layer_norm_grad_bytes(shape.GetDim(2)));
}
inline void GetLayerNormGradNDTilingInfo(const TensorShape& shape, const uint32_t room, const uint32_t, const bool,
                                         ::LayerNormGradTiling& tiling) {
  npusim::set_extents(tiling, shape, shape.GetDim(3));
  tiling.stackBufferSize = room / uint32_t(sizeof(float));
}
inline void GetLayerNormGradBetaMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, uint32_t& most,
                                              uint32_t& least) {
  most = least = uint32_t(npusim::layer_norm_beta_bytes(shape.GetDim(2)));
}
inline void GetLayerNormGradBetaNDTilingInfo(const TensorShape& shape, const uint32_t room, const uint32_t, const bool,
                                             ::LayerNormGradBetaTiling& tiling) {
  npusim::set_extents(tiling, shape, shape.GetDim(3));
  tiling.stackBufferSize = room / uint32_t(sizeof(float));
  tiling.bsLength = tiling.bLength * tiling.sLength;
  tiling.bshLength = tiling.bsLength * tiling.hLength;
}
// {N, C, H, W}; H and W may be any sizes, whose planes begin at blocks.
inline void GetGroupNormMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, const uint32_t,
                                      uint32_t& most, uint32_t& least) {
  most = least = uint32_t(npusim::group_norm_bytes(shape.GetDim(2) * shape.GetDim(3)));
}
inline void GetGroupNormNDTilingInfo(const TensorShape& shape, const uint32_t room, const uint32_t type_size,
                                     const bool, const uint32_t groups, ::GroupNormTiling& tiling) {
  tiling = {};
  if (!groups) return;
  tiling.n = uint32_t(shape.GetDim(0)), tiling.c = uint32_t(shape.GetDim(1));
  tiling.hw = uint32_t(shape.GetDim(2) * shape.GetDim(3)), tiling.g = groups, tiling.d = tiling.c / groups;
  tiling.hwAlignSize = uint32_t(npusim::whole(tiling.hw * type_size, 32) / type_size);
  tiling.dhwAlignSize = tiling.d * tiling.hwAlignSize;
  tiling.inputXSize = tiling.n * tiling.c * tiling.hwAlignSize;
  tiling.meanVarSize = tiling.n * tiling.g;
  tiling.tmpBufSize = room / uint32_t(sizeof(float));
  tiling.factor = 1.0f / float(tiling.d * tiling.hw);
}
inline void GetWelfordUpdateMaxMinTmpSize(const TensorShape& shape, const uint32_t type_size, const uint32_t,
                                          const bool, const bool, uint32_t& most, uint32_t& least) {
  least = uint32_t(npusim::welford_update_bytes(type_size));
  most = least * uint32_t(npusim::whole(shape.GetDim(shape.GetDimNum() - 1), 64) / 64);
}
inline void GetWelfordFinalizeMaxMinTmpSize(const TensorShape& shape, const uint32_t, const bool, uint32_t& most,
                                            uint32_t& least) {
  most = least = uint32_t(npusim::welford_finalize_bytes(shape.GetDim(shape.GetDimNum() - 1)));
}
}  // namespace AscendC
