// BilinearInterpolation: blocks that are gathered, weighted and added up, 8 at a time. On A2 and A3 it is no instruction
// of its own but Gatherb, Brcb, Mul, Add and Adds, as documented.
//
// ASSUMED: each product and each sum is rounded to half, sums in the order of the horizontal iterations; the mask is of
// the sums and of the result alone.
#pragma once
#include "npusim/row_steps.h"

namespace npusim {

inline void check_interpolation(Here here, int64_t horizontal, int64_t vertical, int64_t offset, int64_t values,
                                int64_t needed) {
  if (!is_split) refuse(here, "BilinearInterpolation is modelled on A2 and A3");
  if (!horizontal || !vertical || horizontal * vertical > 255)
    refuse(here, "BilinearInterpolation must be of hRepeat x vRepeat in [1, 255], not %lld x %lld",
           (long long)horizontal, (long long)vertical);
  if (offset < 128 || offset % 16)
    refuse(here, "BilinearInterpolation vROffset must be a multiple of 16 in [128, 65535), not %lld",
           (long long)offset);
  if (values < needed)
    refuse(here, "BilinearInterpolation must be given %lld values in src1, not %lld", (long long)needed,
           (long long)values);
}

template <class Mask>
inline void interpolate(Here here, const LocalTensor<half>& dst, const LocalTensor<half>& src0,
                        const LocalTensor<uint32_t>& offsets, const LocalTensor<half>& src1, Mask mask,
                        int64_t horizontal, bool by_blocks, int64_t block_stride, int64_t vertical_offset,
                        int64_t vertical, const LocalTensor<uint8_t>& temporary) {
  using namespace AscendC;
  if (!has_vector()) return;
  int64_t repeats = horizontal * vertical, values = by_blocks ? repeats * 8 : repeats, eights = whole(values, 8) / 8;
  check_interpolation(here, horizontal, vertical, vertical_offset, src1.GetSize(), values);
  int64_t needed = (repeats + eights) * 256;
  if (temporary.bytes < needed)
    refuse(here, "BilinearInterpolation must be given a temporary buffer of at least %lld bytes, not %lld",
           (long long)needed, (long long)temporary.bytes);
  LocalTensor<half> gathered = temporary.template ReinterpretCast<half>(), factors = gathered[uint32_t(repeats * 128)];
  Gatherb(gathered.template ReinterpretCast<uint16_t>(), src0.template ReinterpretCast<uint16_t>(), offsets,
          uint8_t(repeats), GatherRepeatParams(1, 8), here);
  for (int64_t at = 0; at < eights; at += 255)
    Brcb(factors[uint32_t(at * 128)], src1[uint32_t(at * 8)], uint8_t(eights - at < 255 ? eights - at : 255),
         BrcbRepeatParams(1, 8), here);
  barrier(here, pipe::V);
  BinaryRepeatParams blocks(1, 1, 1, 8, 8, 8), one_value(1, 0, 1, 8, 1, 8), same_place(1, 1, 1, 0, 8, 0);
  Mul(gathered, factors, gathered, uint64_t(128), uint8_t(repeats), by_blocks ? blocks : one_value, here);
  barrier(here, pipe::V);
  for (int64_t i = 0; i < vertical; i++) {
    LocalTensor<half> sum = gathered[uint32_t(i * horizontal * 128)];
    if (horizontal > 1) {
      Add(sum, sum[128], sum, mask, uint8_t(horizontal - 1), same_place, here);
      barrier(here, pipe::V);
    }
    Adds(dst[uint32_t(i * vertical_offset)], sum, half(0), mask, uint8_t(1),
         UnaryRepeatParams(uint16_t(block_stride), 1, 8, 8), here);
  }
  barrier(here, pipe::V);
  ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_BILINEAR(Name, Mask)                                                                                  \
  template <class T>                                                                                                 \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& offsets,      \
                   const LocalTensor<T>& src1, Mask mask, uint8_t horizontal, bool by_blocks, uint16_t block_stride, \
                   uint16_t vertical_offset, uint8_t vertical, const LocalTensor<uint8_t>& temporary,                \
                   Here here = Here::now()) {                                                                        \
    static_assert(std::is_same_v<T, half>, #Name " must be of half");                                                \
    npusim::interpolate<Mask>(here, dst, src0, offsets, src1, mask, horizontal, by_blocks, block_stride,             \
                              vertical_offset, vertical, temporary);                                                 \
  }
NPUSIM_BILINEAR(BilinearInterpolation, uint64_t)
NPUSIM_BILINEAR(BilinearInterpolation, const uint64_t*)
}  // namespace AscendC
