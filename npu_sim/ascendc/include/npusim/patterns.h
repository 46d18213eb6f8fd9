// Reductions of matrices in UB along an axis that a pattern names: A is kept, R is reduced.
//
// ASSUMED of bits: rows are folded lane by lane as by Sum; columns are added from the first row to the last.
#pragma once
#include "npusim/library.h"

namespace AscendC {
namespace Pattern {
namespace Reduce {
struct AR {};
struct RA {};
}  // namespace Reduce
}  // namespace Pattern
}  // namespace AscendC

namespace npusim {

// Rows of a matrix: they begin a whole number of blocks apart.
template <class T>
inline int64_t pitch_of(Here here, const char* call, const uint32_t shape[], bool is_padded) {
  int64_t width = shape[1] * int64_t(sizeof(T));
  if (!shape[0] || !shape[1] || (!is_padded && width % 32))
    refuse(here, "%s must be of rows of whole blocks (srcInnerPad), not %u x %u elements", call, shape[0], shape[1]);
  return up(width, 32) / int64_t(sizeof(T));
}

// dst[i] = all elements of row i; `finish` makes of folded rows, a repeat each, their values.
template <class T, class F, class G>
inline void reduce_rows(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                        const LocalTensor<T>& src, const uint32_t shape[], bool is_padded, T neutral, F combine, G finish) {
  if (!has_vector()) return;
  int64_t pitch = pitch_of<T>(here, call, shape, is_padded), rows = shape[0];
  Temporary room(here, call, given);
  if (room.bytes() < 256)
    refuse(here, "%s must be given a temporary buffer of at least 256 bytes, not %lld", call, (long long)room.bytes());
  // as many rows at a time as there is room for, in whole blocks of results
  constexpr int64_t in_block = 32 / int64_t(sizeof(T));
  int64_t group = room.bytes() / 256 < 255 ? room.bytes() / 256 : 255;
  group = group >= rows ? rows : group > in_block ? group / in_block * in_block : group;
  room.take(group * 256);
  LocalTensor<T> folded = room.template part<T>(0, group * 256);
  for (int64_t row = 0; row < rows; row += group) {
    int64_t height = rows - row < group ? rows - row : group;
    for (int64_t i = 0; i < height; i++)
      fold(here, folded[uint32_t(i * LANES<T>)], src[uint32_t((row + i) * pitch)], int64_t(shape[1]), neutral, combine);
    finish(dst[uint32_t(row)], folded, int32_t(height));
    barrier(here, pipe::V);
  }
  AscendC::ResetMask(here);
}

// dst[j] = column j of all rows.
template <class T, class F>
inline void reduce_columns(Here here, const char* call, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                           const uint32_t shape[], bool is_padded, F combine) {
  if (!has_vector()) return;
  int64_t pitch = pitch_of<T>(here, call, shape, is_padded);
  Adds(dst, src, T(0), int32_t(shape[1]), here);
  for (uint32_t row = 1; row < shape[0]; row++) {
    barrier(here, pipe::V);
    combine(dst, src[uint32_t(row * pitch)], int32_t(shape[1]));
  }
  barrier(here, pipe::V);
}

template <class pattern>
inline constexpr bool is_pattern =
    std::is_same_v<pattern, AscendC::Pattern::Reduce::AR> || std::is_same_v<pattern, AscendC::Pattern::Reduce::RA>;
enum class Reduced { SUM, MEAN, MAX, MIN };

template <Reduced what, class T, class pattern>
inline void reduce(Here here, const char* call, const LocalTensor<uint8_t>* given, const LocalTensor<T>& dst,
                   const LocalTensor<T>& src, const uint32_t shape[], bool is_padded) {
  using namespace AscendC;
  static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "reductions by a pattern are of half and float here");
  constexpr bool is_rows = std::is_same_v<pattern, Pattern::Reduce::AR>;
  static_assert(is_pattern<pattern>, "the patterns AR and RA are modelled");
  auto combine = [&](const LocalTensor<T>& into, const LocalTensor<T>& part, int32_t count) {
    if constexpr (what == Reduced::MAX) Max(into, into, part, count, here);
    else if constexpr (what == Reduced::MIN) Min(into, into, part, count, here);
    else Add(into, into, part, count, here);
  };
  if constexpr (is_rows) {
    constexpr float infinity = __builtin_inff();
    T neutral = what == Reduced::MAX ? T(-infinity) : what == Reduced::MIN ? T(infinity) : T(0);
    reduce_rows<T>(here, call, given, dst, src, shape, is_padded, neutral, combine,
                   [&](const LocalTensor<T>& to, const LocalTensor<T>& folded, int32_t rows) {
                     constexpr int32_t lanes = int32_t(LANES<T>);
                     if constexpr (what == Reduced::MAX)
                       WholeReduceMax(to, folded, lanes, rows, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE, here);
                     else if constexpr (what == Reduced::MIN)
                       WholeReduceMin(to, folded, lanes, rows, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE, here);
                     else
                       WholeReduceSum(to, folded, lanes, rows, 1, 1, 8, here);
                   });
  } else {
    reduce_columns<T>(here, call, dst, src, shape, is_padded, combine);
  }
  if constexpr (what == Reduced::MEAN) {
    if (!has_vector()) return;
    Muls(dst, dst, T(1.0f / float(shape[is_rows ? 1 : 0])), int32_t(shape[is_rows ? 0 : 1]), here);
    barrier(here, pipe::V);
  }
}
}  // namespace npusim

namespace AscendC {

#define NPUSIM_PATTERN(Name, what)                                                                                     \
  template <class T, class pattern, bool reuse = false>                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& temporary,        \
                   const uint32_t shape[], bool is_padded, Here here = Here::now()) {                                  \
    npusim::reduce<npusim::Reduced::what, T, pattern>(here, #Name, &temporary, dst, src, shape, is_padded);            \
  }                                                                                                                    \
  template <class T, class pattern, bool reuse = false>                                                                \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t shape[], bool is_padded,       \
                   Here here = Here::now()) {                                                                          \
    npusim::reduce<npusim::Reduced::what, T, pattern>(here, #Name, nullptr, dst, src, shape, is_padded);               \
  }
NPUSIM_PATTERN(ReduceSum, SUM)
NPUSIM_PATTERN(ReduceMean, MEAN)
NPUSIM_PATTERN(ReduceMax, MAX)
NPUSIM_PATTERN(ReduceMin, MIN)
}  // namespace AscendC
