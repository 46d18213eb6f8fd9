// What reductions leave in registers of the scalar unit, and numbers that casts scale by.
#pragma once
#include "npusim/operators.h"

namespace npusim {

// The elements that a Cast to half scales go through float in the part of UB that calls may use for themselves.
constexpr int64_t SCALED_AT_ONCE = (TEMPORARY_BYTES - 256) / int64_t(sizeof(float));  // whole repeats
}  // namespace npusim

#ifdef NPUSIM_HAS_REDUCE_REPEAT_MASKED
// To no place: the sums of the repeats are added, in their order, in the register that GetAccVal reads. ASSUMED that it
// begins at 0 with each call, and that the sums go through the part of UB that calls may use for themselves.
template <class T, class = std::enable_if_t<sizeof(T) == 2 || sizeof(T) == 4>>
inline void vcadd(std::nullptr_t, T* src, int32_t repeats, int32_t, int32_t src_block, int32_t src_step,
                  bool accumulates, npusim::Here here = npusim::Here::now()) {
  if (!npusim::has_vector() || repeats <= 0) return;
  if (!accumulates) npusim::refuse(here, "vcadd that does not accumulate must be given a place for its sums");
  AscendC::LocalTensor<T> sums(AscendC::TPosition::VECCALC, uint32_t(npusim::temporary_area(here)), uint32_t(repeats));
  vcadd((T*)sums.address, src, repeats, 1, src_block, src_step, false, here);
  T values[npusim::MAX_PARTS];
  npusim::look(here, sums, repeats, values);
  T sum = values[0];
  for (int32_t i = 1; i < repeats; i++) sum = T(float(sum) + float(values[i]));
  npusim::self->sum = 0;
  memcpy(&npusim::self->sum, (const void*)&sum, sizeof sum);
  npusim::let_go(here);
}
#endif

namespace AscendC {

// The sum of the last ReduceSum of a number of elements, by the bits of its type.
inline uint64_t GetAccVal(Here = Here::now()) { return npusim::self->sum; }
template <class T> inline T GetAccVal(Here = Here::now()) {
  T value;
  memcpy((void*)&value, &npusim::self->sum, sizeof value);
  return value;
}
template <class T> inline T GetReduceRepeatSumSpr(Here here = Here::now()) { return GetAccVal<T>(here); }

// The extreme of all repeats of the last WholeReduceMax or WholeReduceMin, the first of equal ones, and where it is among
// the elements of repeats that lie side by side. Taken from where the results of the repeats are, which must not be
// overwritten before: ASSUMED that nobody asks so late, since a device has it in a register.
template <class T> inline void GetReduceRepeatMaxMinSpr(T& value, T& index, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  const auto& last = npusim::self->extreme;
  if (last.address < 0)
    npusim::refuse(here, "GetReduceRepeatMaxMinSpr must come behind a WholeReduceMax or WholeReduceMin that writes values "
                         "and indices");
  npusim::hand_flag(here, npusim::pipe::V, npusim::pipe::S);
  using Index = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  Index place = 0, own;
  for (int64_t i = 0; i < last.repeats; i++) {
    T pair[2];
    int64_t at = last.address + i * last.step;
    memcpy((void*)pair, npusim::settled(here, npusim::space::UB, at, sizeof pair), sizeof pair);
    T one = pair[last.index_first];
    memcpy(&own, (const void*)&pair[!last.index_first], sizeof own);
    if (i && !(last.is_least ? float(one) < float(value) : float(one) > float(value))) continue;
    value = one;
    place = Index(i * (256 / int64_t(sizeof(T))) + own);
  }
  memcpy((void*)&index, &place, sizeof place);
}
template <class T> inline void GetReduceRepeatMaxMinSpr(T& value, Here here = Here::now()) {
  T index;
  GetReduceRepeatMaxMinSpr<T>(value, index, here);
}
template <class T> inline void GetReduceMaxMinCount(T& value, T& index, Here here = Here::now()) {
  GetReduceRepeatMaxMinSpr<T>(value, index, here);
}
template <class T> inline void GetReduceMaxMinCount(T& value, Here here = Here::now()) {
  GetReduceRepeatMaxMinSpr<T>(value, here);
}

inline void SetDeqScale(half scale, Here = Here::now()) { npusim::self->scale = float(scale); }

template <class T, TPosition P> inline bool PopStackBuffer(LocalTensor<T>& tensor, Here here = Here::now()) {
  TPipe* pipe = GetTPipePtr();
  if (!pipe) npusim::refuse(here, "PopStackBuffer must come behind a TPipe");
  return pipe->PopStackBuffer<T, P>(tensor);
}
inline bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }
template <class T> inline uint64_t GetScalarBitcodeValue(T value) {
  uint64_t bits = 0;
  memcpy(&bits, (const void*)&value, sizeof value);
  return bits;
}

// dst += src * scalar of half into float: the product is exact. ASSUMED: it takes the time of a cast and an Axpy in float.
template <class T, class U, class = std::enable_if_t<std::is_same_v<T, float> && std::is_same_v<U, half>>>
inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const std::common_type_t<U>& scalar,
                 const int32_t& count, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  int64_t area = npusim::temporary_area(here), all = count;
  for (int64_t at = 0; at < all; at += npusim::SCALED_AT_ONCE) {
    int32_t some = int32_t(all - at < npusim::SCALED_AT_ONCE ? all - at : npusim::SCALED_AT_ONCE);
    LocalTensor<float> wide(TPosition::VECCALC, uint32_t(area), uint32_t(some));
    Cast(wide, src[uint32_t(at)], RoundMode::CAST_NONE, uint32_t(some), here);
    npusim::barrier(here, npusim::pipe::V);
    Axpy(dst[uint32_t(at)], wide, float(scalar), some, here);
    npusim::barrier(here, npusim::pipe::V);
  }
}
// The form of the library, whose buffer is not needed.
template <class T, class U, bool reuse = false>
inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const std::common_type_t<U> scalar,
                 const LocalTensor<uint8_t>&, const uint32_t count, Here here = Here::now()) {
  Axpy<T, U>(dst, src, scalar, int32_t(count), here);
}
}  // namespace AscendC
