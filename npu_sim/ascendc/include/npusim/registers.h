// What reductions leave in registers of the scalar unit, and numbers that casts scale by.
#pragma once
#include "npusim/dequant.h"
#include "npusim/operators.h"

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

namespace npusim {
inline float number_of_scale(Here here) {
  if (self->deq != Registers::Deq::HALF) refuse(here, "AddDeqRelu must come behind SetDeqScale of a half");
  return self->scale;
}
}  // namespace npusim

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

template <class T, TPosition P> inline bool PopStackBuffer(LocalTensor<T>& tensor, Here here = Here::now()) {
  TPipe* pipe = GetTPipePtr();
  if (!pipe) npusim::refuse(here, "PopStackBuffer must come behind a TPipe");
  if (!pipe->PopStackBuffer<T, P>(tensor)) return false;
  pipe->lend(here, tensor.space(), P, tensor.address, tensor.bytes);
  return true;
}
inline bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }
template <class T> inline uint64_t GetScalarBitcodeValue(T value) {
  uint64_t bits = 0;
  memcpy(&bits, (const void*)&value, sizeof value);
  return bits;
}

// max(0, (src0 + src1) scale) in half: what src0 and src1 held is lost, as documented.
template <class T, class U>
inline void AddDeqRelu(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,
                       const int32_t& count, Here here = Here::now()) {
  static_assert(std::is_same_v<T, half> && std::is_same_v<U, int32_t>, "AddDeqRelu is of int32_t to half");
  if (!npusim::has_vector()) return;
  constexpr float room = 131072;  // keeps sums inside half before they are scaled
  float scale = npusim::number_of_scale(here);
  LocalTensor<float> sums = src0.template ReinterpretCast<float>();
  LocalTensor<half> halves = src1.template ReinterpretCast<half>();
  auto then = [&] { npusim::barrier(here, npusim::pipe::V); };
  Add(src0, src0, src1, count, here), then();
  Cast(sums, src0, RoundMode::CAST_NONE, uint32_t(count), here), then();
  for (float factor : {1 / room, scale, room}) Muls(sums, sums, factor, count, here), then();
  Cast(halves, sums, RoundMode::CAST_NONE, uint32_t(count), here), then();
  Duplicate(dst, half(0), count, here), then();
  Max(dst, dst, halves, count, here);
}
#ifdef NPUSIM_HAS_DUPLICATE_MASKED
// The same under a mask, whose halves lie in src1 as they will in dst.
template <class T, class U, bool set_mask = true, class Mask,
          class = std::enable_if_t<std::is_integral_v<Mask> || std::is_pointer_v<Mask>>>
inline void AddDeqRelu(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, Mask given,
                       const uint8_t repeats, const BinaryRepeatParams& p, Here here = Here::now()) {
  static_assert(std::is_same_v<T, half> && std::is_same_v<U, int32_t>, "AddDeqRelu is of int32_t to half");
  if (!npusim::has_vector()) return;
  constexpr float room = 131072;
  float scale = npusim::number_of_scale(here);
  std::conditional_t<std::is_pointer_v<Mask>, const uint64_t*, uint64_t> mask = given;
  LocalTensor<float> sums = src0.template ReinterpretCast<float>();
  LocalTensor<half> halves = src1.template ReinterpretCast<half>();
  UnaryRepeatParams own(p.src0BlkStride, p.src0BlkStride, p.src0RepStride, p.src0RepStride);
  auto then = [&] { npusim::barrier(here, npusim::pipe::V); };
  Add<U, set_mask>(src0, src0, src1, mask, repeats,
                   {p.src0BlkStride, p.src0BlkStride, p.src1BlkStride, p.src0RepStride, p.src0RepStride, p.src1RepStride},
                   here), then();
  Cast<float, U, set_mask>(sums, src0, RoundMode::CAST_NONE, mask, repeats, own, here), then();
  for (float factor : {1 / room, scale, room}) Muls<float, set_mask>(sums, sums, factor, mask, repeats, own, here), then();
  Cast<half, float, set_mask>(halves, sums, RoundMode::CAST_NONE, mask, repeats,
                              {p.dstBlkStride, p.src0BlkStride, p.dstRepStride, p.src0RepStride}, here), then();
  Maxs<half, set_mask>(dst, halves, half(0), mask, repeats,
                       {p.dstBlkStride, p.dstBlkStride, p.dstRepStride, p.dstRepStride}, here);
}
#endif
}  // namespace AscendC
