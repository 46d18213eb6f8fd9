// Rows of whole blocks, from rows of any width and back: Pad, UnPad.
#pragma once
#include "npusim/row_steps.h"

namespace AscendC {

struct PadParams {
  uint16_t leftPad = 0, rightPad = 0;
  int32_t padValue = 0;
};
struct UnPadParams {
  uint16_t leftPad = 0, rightPad = 0;
};
}  // namespace AscendC

namespace npusim {

// Lanes of the block of a row in which they all are become `value`.
template <class T> inline void fill_lanes(Here here, const LocalTensor<T>& row, int64_t first, int64_t count, T value) {
  if (count <= 0) return;
  constexpr int64_t in_block = 32 / int64_t(sizeof(T));
  uint64_t lanes[2] = {((1ull << count) - 1) << first % in_block, 0};
  AscendC::Duplicate<T>(row[uint32_t(first / in_block * in_block)], value, lanes, 1, 1, 8, here);
  barrier(here, pipe::V);
}

// Rows that have whole blocks get other values behind their original width; all others are gathered element by element.
template <class T>
inline void pad(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                const AscendC::PadParams& p, const PadTiling& tiling) {
  using namespace AscendC;
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Pad is of 16-bit and 32-bit elements");
  if (!has_vector()) return;
  constexpr int64_t in_block = 32 / int64_t(sizeof(T));
  int64_t rows = tiling.srcHeight, width = tiling.srcWidth;
  bool is_whole = width % in_block == 0;
  int64_t kept = is_whole ? width - p.rightPad : width, left = p.leftPad, pitch = up(width, in_block);
  if (!rows || !width || left + kept + p.rightPad != pitch || (is_whole && (left || p.rightPad >= in_block)))
    refuse(here,
           "Pad must be of rows to the next whole block, in which it puts on %s, not of %lld elements and %u and %u",
           is_whole ? "the right" : "either side", (long long)width, unsigned(p.leftPad), unsigned(p.rightPad));
  T value = T(p.padValue);
  if (is_whole) {
    DataCopy(dst, src, uint32_t(rows * width), here);
    barrier(here, pipe::V);
  }
  Temporary room(here, "Pad", given);
  LocalTensor<int32_t> places, free;
  if (!is_whole) {
    int64_t bytes = pad_bytes(width, sizeof(T));
    take_room(here, "Pad", room, 2 * bytes);
    places = room.part<int32_t>(0, bytes), free = room.part<int32_t>(bytes, bytes);
    CreateVecIndex(places, int32_t(-left), uint32_t(pitch), here);
    barrier(here, pipe::V);
  }
  LocalTensor<T> all = src;
  all.SetSize(uint32_t(rows * width));
  for (int64_t row = 0; row < rows; row++) {
    const LocalTensor<T> to = dst[uint32_t(row * pitch)];
    if (!is_whole) {  // lanes beside the row get any element before they get the value
      int32_t count = int32_t(pitch);
      Adds(free, places, int32_t(row * width), count, here);
      barrier(here, pipe::V);
      Maxs(free, free, int32_t(0), count, here);
      barrier(here, pipe::V);
      Mins(free, free, int32_t(rows * width - 1), count, here);
      barrier(here, pipe::V);
      Muls(free, free, int32_t(sizeof(T)), count, here);
      barrier(here, pipe::V);
      Gather(to, all, free.template ReinterpretCast<uint32_t>(), 0, uint32_t(pitch), here);
      barrier(here, pipe::V);
    }
    fill_lanes<T>(here, to, 0, left, value);
    fill_lanes<T>(here, to, left + kept, p.rightPad, value);
  }
  ResetMask(here);
}

// The first elements of each row, one row behind the other.
template <class T>
inline void unpad(Here here, const LocalTensor<T>& dst, const LocalTensor<T>& src, const AscendC::UnPadParams& p,
                  const UnPadTiling& tiling) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4, "UnPad is of 16-bit and 32-bit elements");
  if (!has_vector()) return;
  constexpr uint32_t in_block = 32 / sizeof(T);
  if (!tiling.srcHeight || tiling.srcWidth % in_block || !p.rightPad || p.rightPad >= in_block || p.leftPad)
    refuse(here,
           "UnPad must take less than a block on the right from rows of whole blocks, not %u and %u of %u elements",
           unsigned(p.leftPad), unsigned(p.rightPad), tiling.srcWidth);
  uint64_t kept;
  AscendC::GatherMaskParams rows(1, uint16_t(tiling.srcHeight), uint16_t(tiling.srcWidth / in_block), 0);
  AscendC::GatherMask(dst, src, 7, true, tiling.srcWidth - p.rightPad, rows, kept, here);
  barrier(here, pipe::V);
}
}  // namespace npusim

namespace AscendC {

template <class T>
inline void Pad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const PadParams& p,
                const LocalTensor<uint8_t>& temporary, const PadTiling& tiling, Here here = Here::now()) {
  npusim::pad<T>(here, &temporary, dst, src, p, tiling);
}
template <class T>
inline void Pad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const PadParams& p, const PadTiling& tiling,
                Here here = Here::now()) {
  npusim::pad<T>(here, nullptr, dst, src, p, tiling);
}
template <class T>
inline void UnPad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const UnPadParams& p,
                  const LocalTensor<uint8_t>&, const UnPadTiling& tiling, Here here = Here::now()) {
  npusim::unpad<T>(here, dst, src, p, tiling);
}
template <class T>
inline void UnPad(const LocalTensor<T>& dst, const LocalTensor<T>& src, const UnPadParams& p, const UnPadTiling& tiling,
                  Here here = Here::now()) {
  npusim::unpad<T>(here, dst, src, p, tiling);
}
}  // namespace AscendC
