// Reductions of A2 and A3 that are no sums or extremes: products, what holds of any or of all, sums of exclusive ors.
//
// ASSUMED of bits: products are folded lane by lane as sums are, the last 8 lanes by the scalar unit.
#pragma once
#include "npusim/angles.h"
#include "npusim/patterns.h"
#include "npusim/row_steps.h"

namespace npusim {

#define NPUSIM_OF_SPLIT(Name, T) static_assert(__NPU_ARCH__ == 2201 || npusim::never<T>, Name " is modelled on A2 and A3 alone")

// dst[i] = the product of the 64 lanes of row i.
inline void products_of(Here here, const LocalTensor<float>& dst, const LocalTensor<float>& folded, int32_t rows) {
  AscendC::BinaryRepeatParams steps(1, 1, 1, 8, 8, 8);
  for (uint32_t lanes : {32, 16, 8}) {
    AscendC::Mul(folded, folded, folded[lanes], uint64_t(lanes), uint8_t(rows), steps, here);
    barrier(here, pipe::V);
  }
  for (int32_t row = 0; row < rows; row++) {
    float v[8];
    look(here, folded[uint32_t(row * LANES<float>)], 8, v);
    for (int half : {4, 2, 1})
      for (int i = 0; i < half; i++) v[i] *= v[i + half];
    leave(here, dst, row, v[0]);
  }
  let_go(here);
}

template <class pattern>
inline void product(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<float>& dst,
                    const LocalTensor<float>& src, const uint32_t shape[], bool is_padded) {
  static_assert(is_pattern<pattern>, "the patterns AR and RA are modelled");
  auto combine = [&](const auto& into, const auto& part, int32_t count) { AscendC::Mul(into, into, part, count, here); };
  if constexpr (std::is_same_v<pattern, AscendC::Pattern::Reduce::AR>)
    reduce_rows<float>(here, "ReduceProd", given, dst, src, shape, is_padded, 1.0f, combine,
                       [&](const auto& to, const auto& folded, int32_t rows) { products_of(here, to, folded, rows); });
  else
    reduce_columns<float>(here, "ReduceProd", dst, src, shape, is_padded, combine);
}

// Of 0 and 1 what holds of any is the largest, what holds of all the smallest; so it is of other numbers (ASSUMED, the
// pages speak of true and false). Bytes go by way of half: a row and its
// repeat at a time, for a block of results or all of them; of columns as many as there is room for.
template <Reduced what, class pattern>
inline void reduce_bytes(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<uint8_t>& dst,
                         const LocalTensor<uint8_t>& src, const uint32_t shape[], bool is_padded) {
  static_assert(is_pattern<pattern>, "the patterns AR and RA are modelled");
  if (!has_vector()) return;
  using namespace AscendC;
  int64_t pitch = pitch_of<uint8_t>(here, call, shape, is_padded), rows = shape[0], width = shape[1];
  auto combine = [&](const LocalTensor<half>& into, const LocalTensor<half>& part, int32_t count) {
    if constexpr (what == Reduced::MAX) Max(into, into, part, count, here);
    else Min(into, into, part, count, here);
  };
  auto widen = [&](const LocalTensor<half>& to, int64_t at, int64_t count) {
    Cast(to, src[uint32_t(at)], RoundMode::CAST_NONE, uint32_t(count), here);
    barrier(here, pipe::V);
  };
  auto narrow = [&](const LocalTensor<half>& from, int64_t at, int64_t count) {
    Cast(dst[uint32_t(at)], from, RoundMode::CAST_NONE, uint32_t(count), here);
    barrier(here, pipe::V);
  };
  Temporary room(here, call, given);
  constexpr bool is_rows = std::is_same_v<pattern, Pattern::Reduce::AR>;
  int64_t least = is_rows ? logical_row_bytes(rows, width) : LOGICAL_COLUMN_BYTES;
  if (room.bytes() < least)
    refuse(here, "%s must be given a temporary buffer of at least %lld bytes, not %lld", call, (long long)least,
           (long long)room.bytes());
  if constexpr (is_rows) {
    room.take(least);
    int64_t row_room = up(2 * width, 32), group = rows < 32 ? rows : 32;
    auto wide = room.part<half>(0, row_room), folded = room.part<half>(row_room, group * 256);
    auto results = room.part<half>(row_room + group * 256, 64);
    for (int64_t row = 0; row < rows; row += group) {
      int64_t height = rows - row < group ? rows - row : group;
      for (int64_t i = 0; i < height; i++) {
        widen(wide, (row + i) * pitch, width);
        fold(here, folded[uint32_t(i * LANES<half>)], wide, width, half(what == Reduced::MAX ? 0 : 255), combine);
      }
      if constexpr (what == Reduced::MAX)
        WholeReduceMax(results, folded, int32_t(LANES<half>), int32_t(height), 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE, here);
      else
        WholeReduceMin(results, folded, int32_t(LANES<half>), int32_t(height), 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE, here);
      barrier(here, pipe::V);
      narrow(results, row, height);
    }
    ResetMask(here);
  } else {
    int64_t chunk = room.bytes() / LOGICAL_COLUMN_BYTES * 32;
    chunk = chunk < up(width, 32) ? chunk : up(width, 32);
    room.take(chunk * 4);
    auto all = room.part<half>(0, chunk * 2), part = room.part<half>(chunk * 2, chunk * 2);
    for (int64_t at = 0; at < width; at += chunk) {
      int64_t count = width - at < chunk ? width - at : chunk;
      widen(all, at, count);
      for (int64_t row = 1; row < rows; row++) {
        widen(part, row * pitch + at, count);
        combine(all, part, int32_t(count));
        barrier(here, pipe::V);
      }
      narrow(all, at, count);
    }
  }
}
template <Reduced what, class T, class pattern>
inline void logical(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                    const LocalTensor<T>& src, const uint32_t shape[], bool is_padded) {
  if constexpr (std::is_same_v<T, uint8_t>) reduce_bytes<what, pattern>(here, call, given, dst, src, shape, is_padded);
  else reduce<what, T, pattern>(here, call, given, dst, src, shape, is_padded);
}

// The sum in float of (a | b) & ~(a & b), clamped as Cast does.
inline void sum_of_exclusive(Here here, const LocalTensor<uint8_t>* given, const LocalTensor<int16_t>& dst,
                             const LocalTensor<int16_t>& a, const LocalTensor<int16_t>& b, int64_t count) {
  if (!has_vector() || count <= 0) return;
  Temporary room(here, "ReduceXorSum", given);
  if (room.bytes() < XOR_SUM_BYTES)
    refuse(here, "ReduceXorSum must be given a temporary buffer of at least %lld bytes, not %lld",
           (long long)XOR_SUM_BYTES, (long long)room.bytes());
  int64_t chunk = (room.bytes() - 256) / 1024 * 128;
  chunk = chunk < up(count, 128) ? chunk : up(count, 128);
  room.take(256 + chunk * 8);
  auto sum = room.part<float>(0, 256), wide = room.part<float>(256 + chunk * 4, chunk * 4);
  auto either = room.part<int16_t>(256, chunk * 2), both = room.part<int16_t>(256 + chunk * 2, chunk * 2);
  AscendC::Duplicate<float>(sum, 0.0f, 64, here);
  for (int64_t at = 0; at < count; at += chunk) {
    int32_t some = int32_t(count - at < chunk ? count - at : chunk);
    exclusive_of(here, either, both, a[uint32_t(at)], b[uint32_t(at)], some);
    AscendC::Cast(wide, either, AscendC::RoundMode::CAST_NONE, uint32_t(some), here);
    for (int32_t lane = 0; lane < some; lane += 64) {
      barrier(here, pipe::V);
      AscendC::Add(sum, sum, wide[uint32_t(lane)], some - lane < 64 ? some - lane : 64, here);
    }
    barrier(here, pipe::V);
  }
  sums_of(here, sum, sum, 1);
  AscendC::Cast(dst, sum, AscendC::RoundMode::CAST_RINT, 1u, here);
  barrier(here, pipe::V);
  AscendC::ResetMask(here);
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_ANY(Name, what, PARAMETER, given)                                                                     \
  template <class T, class pattern, bool reuse = false>                                                              \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, PARAMETER const uint32_t shape[],           \
                   bool is_padded, Here here = Here::now()) {                                                        \
    NPUSIM_OF_SPLIT(#Name, T);                                                                                       \
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, uint8_t>, #Name " is of float and uint8_t");         \
    npusim::logical<npusim::Reduced::what, T, pattern>(here, #Name, given, dst, src, shape, is_padded);              \
  }
#define NPUSIM_PRODUCT(Name, PARAMETER, given)                                                                       \
  template <class T, class pattern, bool reuse = false>                                                              \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, PARAMETER const uint32_t shape[],           \
                   bool is_padded, Here here = Here::now()) {                                                        \
    NPUSIM_OF_SPLIT(#Name, T);                                                                                       \
    static_assert(std::is_same_v<T, float>, #Name " is of float");                                                   \
    npusim::product<pattern>(here, given, dst, src, shape, is_padded);                                               \
  }
#define NPUSIM_XOR_SUM(Name, PARAMETER, given)                                                                       \
  template <class T, bool reuse = false>                                                                             \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                \
                   PARAMETER const uint32_t count, Here here = Here::now()) {                                        \
    NPUSIM_OF_SPLIT(#Name, T);                                                                                       \
    static_assert(std::is_same_v<T, int16_t>, #Name " is of int16_t");                                               \
    npusim::sum_of_exclusive(here, given, dst, src0, src1, count);                                                   \
  }
NPUSIM_ANY(ReduceAny, MAX, NPUSIM_GIVEN, &temporary)
NPUSIM_ANY(ReduceAny, MAX, , nullptr)
NPUSIM_ANY(ReduceAll, MIN, NPUSIM_GIVEN, &temporary)
NPUSIM_ANY(ReduceAll, MIN, , nullptr)
NPUSIM_PRODUCT(ReduceProd, NPUSIM_GIVEN, &temporary)
NPUSIM_PRODUCT(ReduceProd, , nullptr)
NPUSIM_XOR_SUM(ReduceXorSum, NPUSIM_GIVEN, &temporary)
NPUSIM_XOR_SUM(ReduceXorSum, , nullptr)
#undef NPUSIM_XOR_SUM
#undef NPUSIM_PRODUCT
#undef NPUSIM_ANY
#undef NPUSIM_OF_SPLIT
}  // namespace AscendC
