// Transpose between [N, C, H, W] and [N, H, W, C] in UB, of any C.
//
// Pixels are taken in tiles of 16 blocks, pixel (i, j) being element j of block i. Every channel of a tile is turned to
// rows of 16 pixels (., j); row j C + c is that of channel c. These rows, turned back block by block, are the tile with
// its channels behind each other. The other way is the same in reverse.
#pragma once
#include "npusim/host_types.h"
#include "npusim/math.h"

namespace AscendC {

struct TransposeParamsExt {
  uint16_t nSize = 0, cSize = 0, hSize = 0, wSize = 0;
  TransposeType transposeType = TransposeType::TRANSPOSE_ND2ND_B16;
  TransposeParamsExt() = default;
  TransposeParamsExt(uint16_t n, uint16_t c, uint16_t h, uint16_t w, TransposeType type)
      : nSize(n), cSize(c), hSize(h), wSize(w), transposeType(type) {}
};
}  // namespace AscendC

namespace npusim {

constexpr int64_t MOST_CHANNELS = 4095, MOST_PIXELS = 4095;

// What a device needs besides the operands. ASSUMED: a smaller buffer is refused, though less is used here.
constexpr int64_t layout_bytes(int64_t channels, int64_t type_size, bool to_nhwc) {
  return (to_nhwc ? channels + 2 : channels * 2 + 1) * (type_size == 1 ? 32 : 16) * 32;
}

// Squares of T: blocks x(i), i < 16, of elements that become rows of 16, whose blocks are y(element, which of them).
template <class T, class X, class Y> inline void to_columns(Here here, X x, Y y) {
  uint64_t to[16], from[16];
  for (int i = 0; i < 16; i++) from[i] = x(i), to[i] = sizeof(T) == 2 ? y(i, 0) : y(i / 2, i % 2);
  AscendC::TransDataTo5HD<T>(to, from, AscendC::TransDataTo5HDParams(false, false, 1, 0, 0), here);
}
template <class T, class X, class Y> inline void to_rows(Here here, X x, Y y) {
  uint64_t to[16], from[16];
  for (int i = 0; i < 16; i++) {
    to[i] = x(sizeof(T) == 2 ? i : i % 2 * 8 + i / 2);
    from[i] = sizeof(T) == 2 ? y(i, 0) : y(i % 8, i / 8);
  }
  AscendC::TransDataTo5HD<T>(to, from, AscendC::TransDataTo5HDParams(false, false, 1, 0, 0), here);
}

// A tile of `rows` blocks of every channel, `pitch` bytes apart, from or to pixels of `channels` elements.
template <class T>
inline void turn_tile(Here here, const Temporary& room, int64_t planes, int64_t pitch, int64_t pixels,
                      int64_t channels, int64_t rows, bool to_nhwc) {
  constexpr int64_t width = 32 / int64_t(sizeof(T)), in_row = 16 / width;
  int64_t turned = room.part<T>(0, 0).address, spare = turned + channels * 512;
  auto y = [&](int64_t row, int64_t part) { return uint64_t(turned + (row * in_row + part) * 32); };
  for (int half = 0; half < 2; half++) {
    bool is_read = half == 0, is_plane = is_read == to_nhwc;
    for (int64_t c = 0; c < channels; c++) {
      int64_t base = is_plane ? planes + c * pitch : pixels + c * 32, step = is_plane ? 32 : channels * 32;
      auto lines = [&](int64_t e, int64_t part) { return y(is_plane ? e * channels + c : c * width + e, part); };
      if (is_read) {  // for a row that is not there any other, as nobody takes it from the spare square
        to_columns<T>(here, [&](int64_t i) { return uint64_t(base + (i < rows ? i : 0) * step); }, lines);
        continue;
      }
      bool is_whole = rows == 16;
      to_rows<T>(here, [&](int64_t i) { return uint64_t(is_whole ? base + i * step : spare + i * 32); }, lines);
      if (is_whole) continue;
      barrier(here, pipe::V);
      AscendC::DataCopy(LocalTensor<T>(TPosition::VECCALC, uint32_t(base), uint32_t(rows * width)),
                        LocalTensor<T>(TPosition::VECCALC, uint32_t(spare), uint32_t(rows * width)),
                        AscendC::DataCopyParams(uint16_t(rows), 1, 0, uint16_t(step / 32 - 1)), here);
      barrier(here, pipe::V);
    }
    barrier(here, pipe::V);
  }
}

template <class T>
inline void turn_image(Here here, const Temporary& room, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                       int64_t channels, int64_t pixels, bool to_nhwc) {
  using namespace AscendC;
  constexpr bool is_byte = sizeof(T) == 1;
  constexpr int64_t size = sizeof(T), tile = is_byte ? 256 : 16 * 32 / size;
  using E = std::conditional_t<is_byte, half, T>;
  for (int64_t first = 0; first < pixels; first += tile) {
    int64_t some = pixels - first < tile ? pixels - first : tile;
    const LocalTensor<T>&planar = to_nhwc ? src : dst, &interleaved = to_nhwc ? dst : src;
    int64_t pixels_at = interleaved.address + first * channels * size;
    if constexpr (!is_byte) {
      turn_tile<E>(here, room, planar.address + first * size, pixels * size, pixels_at, channels, some * size / 32,
                   to_nhwc);
    } else {  // ASSUMED: as half, which has every byte; a device turns the halves of blocks
      // the tile comes and goes in the same place: all of it is turned before any is turned back
      const LocalTensor<half> halves = room.part<half>(channels * 512 + 512, channels * 512);
      auto plane = [&](int64_t c) { return halves[uint32_t(c * 256)]; };
      auto of_bytes = [&](int64_t c) { return planar[uint32_t(c * pixels + first)]; };
      const LocalTensor<T> mixed = interleaved[uint32_t(first * channels)];
      if (!to_nhwc) Cast(halves, mixed, RoundMode::CAST_NONE, uint32_t(some * channels), here);
      for (int64_t c = 0; to_nhwc && c < channels; c++)
        Cast(plane(c), of_bytes(c), RoundMode::CAST_NONE, uint32_t(some), here);
      barrier(here, pipe::V);
      turn_tile<E>(here, room, halves.address, 512, halves.address, channels, some / 16, to_nhwc);
      if (to_nhwc) Cast(mixed, halves, RoundMode::CAST_RINT, uint32_t(some * channels), here);
      for (int64_t c = 0; !to_nhwc && c < channels; c++)
        Cast(of_bytes(c), plane(c), RoundMode::CAST_RINT, uint32_t(some), here);
      barrier(here, pipe::V);
    }
  }
}
}  // namespace npusim

namespace AscendC {

template <class T>
inline void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& shared,
                      const TransposeParamsExt& p, Here here = Here::now()) {
  using Type = TransposeType;
  if (!npusim::has_vector()) return;
  if (p.transposeType == Type::TRANSPOSE_ND2ND_B16) {
    if constexpr (std::is_same_v<T, uint16_t>) Transpose(dst, src, here);
    else npusim::refuse(here, "Transpose of TRANSPOSE_ND2ND_B16 must be of uint16_t");
    return;
  }
  static_assert(std::is_integral_v<T> ? sizeof(T) <= 4 : std::is_same_v<T, half> || std::is_same_v<T, float>,
                "Transpose of images is of integers of 8, 16 and 32 bits, half and float");
  bool to_nhwc = p.transposeType == Type::TRANSPOSE_NCHW2NHWC;
  if (!to_nhwc && p.transposeType != Type::TRANSPOSE_NHWC2NCHW)
    npusim::refuse(here, "Transpose with TransposeParamsExt must be of TRANSPOSE_ND2ND_B16, TRANSPOSE_NCHW2NHWC or "
                   "TRANSPOSE_NHWC2NCHW, not of type %d", int(p.transposeType));
  if (!npusim::is_split) npusim::refuse(here, "Transpose of images is modelled on A2 and A3");
  int64_t channels = p.cSize, pixels = int64_t(p.hSize) * p.wSize, image = channels * pixels;
  int64_t bytes = p.nSize * image * int64_t(sizeof(T));
  if (channels > npusim::MOST_CHANNELS || pixels > npusim::MOST_PIXELS)
    npusim::refuse(here, "Transpose must be of at most %lld channels (cSize) and %lld pixels (hSize x wSize), not %lld "
                   "and %lld", (long long)npusim::MOST_CHANNELS, (long long)npusim::MOST_PIXELS, (long long)channels,
                   (long long)pixels);
  if (pixels * int64_t(sizeof(T)) % 32)
    npusim::refuse(here, "Transpose must be of planes (hSize x wSize) of whole blocks of 32 bytes, not of %lld bytes",
                   (long long)(pixels * int64_t(sizeof(T))));
  int64_t to = npusim::in_ub(here, dst, "Transpose"), from = npusim::in_ub(here, src, "Transpose");
  if (to < from + bytes && from < to + bytes)
    npusim::refuse(here, "Transpose of images must have dst and src apart, not %lld bytes at %lld and %lld",
                   (long long)bytes, (long long)to, (long long)from);
  npusim::Temporary room(here, "Transpose", &shared);
  int64_t needed = npusim::layout_bytes(channels, sizeof(T), to_nhwc);
  if (room.bytes() < needed)
    npusim::refuse(here, "Transpose must be given a temporary buffer of at least %lld bytes, not %lld",
                   (long long)needed, (long long)room.bytes());
  for (int64_t n = 0; n < p.nSize; n++)
    npusim::turn_image<T>(here, room, dst[uint32_t(n * image)], src[uint32_t(n * image)], channels, pixels, to_nhwc);
  if constexpr (sizeof(T) == 1) ResetMask(here);
}
}  // namespace AscendC
