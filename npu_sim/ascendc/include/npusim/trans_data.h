// TransData of the library: elements of 16 bits in UB between NCDHW and NDC1HWC0 or FRACTAL_Z_3D.
//
// Squares of 16 channels and 16 pixels are turned by TransDataTo5HD. Where there are fewer, they are copied into a square
// of zeros before, or out of a free one behind. Planes of NCDHW (H x W) begin at blocks of 32 bytes. ASSUMED of the
// elements behind the end of a plane: zeros, as channels and images that only the other format has.
#pragma once
#include "npusim/layout.h"
#include "npusim/row_steps.h"

namespace AscendC {

template <class T, class U> struct TransDataParams {
  T srcLayout;
  U dstLayout;
};
}  // namespace AscendC

namespace npusim {

struct ImageSizes {
  int64_t n, c, d, h, w;
};

// The sizes that both shapes tell; they must tell the same.
template <class Planar, class Blocked>
inline ImageSizes sizes_of(Here here, const Planar& planar, const Blocked& blocked) {
  constexpr bool is_fractal = std::tuple_size_v<Blocked> == 7;
  ImageSizes s{std::get<0>(planar), std::get<1>(planar), std::get<2>(planar), std::get<3>(planar),
               std::get<4>(planar)};
  int64_t c1 = whole(s.c, 16) / 16, n1 = whole(s.n, 16) / 16;
  bool agree;
  if constexpr (is_fractal) {
    auto [d, c_1, h, w, n_1, n_0, c_0] = blocked;
    agree = d == s.d && c_1 == c1 && h == s.h && w == s.w && n_1 == n1 && n_0 == 16 && c_0 == 16;
  } else {
    auto [n, d, c_1, h, w, c_0] = blocked;
    agree = n == s.n && d == s.d && c_1 == c1 && h == s.h && w == s.w && c_0 == 16;
  }
  if (s.n <= 0 || s.c <= 0 || s.d <= 0 || s.h <= 0 || s.w <= 0 || !agree)
    refuse(here, "TransData must be given layouts of one tensor, with C0 (and N0) 16, not of another than (%lld, %lld, "
           "%lld, %lld, %lld)", (long long)s.n, (long long)s.c, (long long)s.d, (long long)s.h, (long long)s.w);
  return s;
}

template <bool is_fractal, bool to_blocks>
inline void trans_data(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<uint16_t>& dst,
                       const LocalTensor<uint16_t>& src, const ImageSizes& s) {
  int64_t pixels = s.h * s.w, plane = whole(pixels * 2, 32), c1 = whole(s.c, 16) / 16;
  int64_t images = is_fractal ? whole(s.n, 16) : 1;  // blocks between pixels
  int64_t planar_bytes = s.n * s.c * s.d * plane, blocked_bytes = (is_fractal ? images : s.n) * s.d * c1 * pixels * 32;
  int64_t to = in_ub(here, dst, "TransData"), from = in_ub(here, src, "TransData");
  if (to < from + (to_blocks ? planar_bytes : blocked_bytes) && from < to + (to_blocks ? blocked_bytes : planar_bytes))
    refuse(here, "TransData must have dst and src apart, not at %lld and %lld", (long long)to, (long long)from);
  Temporary room(here, "TransData", given);
  take_room(here, "TransData", room, TRANS_DATA_ROOM);
  LocalTensor<uint16_t> some_in = room.part<uint16_t>(0, 512), all_out = room.part<uint16_t>(512, 512);
  AscendC::Duplicate<uint16_t>(some_in, 0, 256, here);
  if (to_blocks && is_fractal && images != s.n) AscendC::Duplicate<uint16_t>(dst, 0, int32_t(blocked_bytes / 2), here);
  barrier(here, pipe::V);
  int64_t between_rows = s.d * plane, between_pixels = images * 32;
  auto square = [&](int64_t n, int64_t d, int64_t c, int64_t first) {  // how many squares it was
    int64_t channels = s.c - c * 16 < 16 ? s.c - c * 16 : 16, some = pixels - first < 16 ? pixels - first : 16;
    int64_t turns = channels < 16 || some < 16 ? 1 : (pixels - first) / 16;  // UB has not room for as many as 255
    int64_t row = ((n * s.c + c * 16) * s.d + d) * plane + first * 2;
    int64_t pixel = is_fractal ? (((d * c1 + c) * pixels + first) * images + n) * 32
                               : (((n * s.d + d) * c1 + c) * pixels + first) * 32;
    int64_t in = to_blocks ? row : pixel, out = to_blocks ? pixel : row;
    int64_t in_step = to_blocks ? between_rows : between_pixels, out_step = to_blocks ? between_pixels : between_rows;
    int64_t in_count = to_blocks ? channels : some, out_count = to_blocks ? some : channels;
    LocalTensor<uint16_t> there = dst[uint32_t(out / 2)];
    if (in_count < 16) {  // behind them stay zeros
      AscendC::DataCopy(some_in, src[uint32_t(in / 2)],
                        AscendC::DataCopyParams(uint16_t(in_count), 1, uint16_t(in_step / 32 - 1), 0), here);
      barrier(here, pipe::V);
    }
    uint64_t to_list[16], from_list[16];
    for (int64_t i = 0; i < 16; i++) {
      from_list[i] = uint64_t(in_count < 16 ? some_in.address + i * 32 : src.address + in + i * in_step);
      to_list[i] = uint64_t(out_count < 16 ? all_out.address + i * 32 : dst.address + out + i * out_step);
    }
    uint16_t row_step = turns > 1 ? 1 : 0, pixel_step = uint16_t(turns > 1 ? 16 * images : 0);
    AscendC::TransDataTo5HD<uint16_t>(to_list, from_list,
                                      AscendC::TransDataTo5HDParams(false, false, uint8_t(turns),
                                                                    to_blocks ? pixel_step : row_step,
                                                                    to_blocks ? row_step : pixel_step),
                                      here);
    if (in_count < 16 || out_count < 16) barrier(here, pipe::V);
    if (out_count < 16) {
      AscendC::DataCopy(there, all_out,
                        AscendC::DataCopyParams(uint16_t(out_count), 1, 0, uint16_t(out_step / 32 - 1)), here);
      barrier(here, pipe::V);
    }
    return turns;
  };
  for (int64_t n = 0; n < s.n; n++)
    for (int64_t d = 0; d < s.d; d++)
      for (int64_t c = 0; c < c1; c++)
        for (int64_t first = 0; first < pixels;) first += 16 * square(n, d, c, first);
  barrier(here, pipe::V);
}

template <const AscendC::TransDataConfig& config, class T, class P>
inline void trans_data_as(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                          const LocalTensor<T>& src, const P& params) {
  using AscendC::DataFormat;
  constexpr bool to_blocks = config.srcFormat == DataFormat::NCDHW;
  constexpr DataFormat other = to_blocks ? config.dstFormat : config.srcFormat;
  constexpr bool is_fractal = other == DataFormat::FRACTAL_Z_3D;
  static_assert((to_blocks || config.dstFormat == DataFormat::NCDHW) && (is_fractal || other == DataFormat::NDC1HWC0),
                "TransData is between NCDHW and NDC1HWC0 or FRACTAL_Z_3D");
  static_assert(sizeof(T) == 2, "TransData is of int16_t, uint16_t, half and bfloat16_t");
  using Source = std::decay_t<decltype(params.srcLayout.GetShape())>;
  using Target = std::decay_t<decltype(params.dstLayout.GetShape())>;
  constexpr size_t axes = is_fractal ? 7 : 6;
  static_assert(std::tuple_size_v<Source> == (to_blocks ? 5 : axes) &&
                    std::tuple_size_v<Target> == (to_blocks ? axes : 5),
                "TransData must be given layouts of as many axes as their formats have");
  if (!has_vector()) return;
  if (!is_split) refuse(here, "TransData must run on A2 or A3");
  const auto &in = params.srcLayout.GetShape(), &out = params.dstLayout.GetShape();
  ImageSizes sizes;
  if constexpr (to_blocks) sizes = sizes_of(here, in, out);
  else sizes = sizes_of(here, out, in);
  trans_data<is_fractal, to_blocks>(here, given, dst.template ReinterpretCast<uint16_t>(),
                                    src.template ReinterpretCast<uint16_t>(), sizes);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_TRANS_DATA(Name, PARAMETER, given)                                                                    \
  template <const TransDataConfig& config, class T, class U, class S>                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, PARAMETER const TransDataParams<U, S>& p,   \
                   Here here = Here::now()) {                                                                        \
    npusim::trans_data_as<config>(here, given, dst, src, p);                                                         \
  }
NPUSIM_TRANS_DATA(TransData, NPUSIM_GIVEN, &temporary)
NPUSIM_TRANS_DATA(TransData, , nullptr)
}  // namespace AscendC
