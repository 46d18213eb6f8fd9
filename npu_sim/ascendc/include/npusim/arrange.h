// Vector instructions that move elements to other places: broadcast, gather, sort, transpose, indices.
#pragma once
#include "npusim/vector.h"

namespace AscendC {

struct BrcbRepeatParams {
  uint32_t blockNumber = DEFAULT_BLK_NUM;
  uint16_t dstBlkStride = 1, dstRepStride = 8;
  BrcbRepeatParams() = default;
  BrcbRepeatParams(uint16_t block, uint16_t repeat) : dstBlkStride(block), dstRepStride(repeat) {}
};
using GatherRepeatParams = BrcbRepeatParams;

#ifdef NPUSIM_HAS_BRCB
template <class T>
inline void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t repeats, const BrcbRepeatParams& p,
                 Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_brcb(here, npusim::in_ub(here, dst, "Brcb"), npusim::in_ub(here, src, "Brcb"), npusim::moved<T>(),
                    repeats, p.dstBlkStride, p.dstRepStride);
}
#endif

#ifdef NPUSIM_HAS_GATHER
template <class T>
inline void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,
                   const uint32_t base, const uint32_t count, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_gather(here, npusim::in_ub(here, dst, "Gather"), npusim::in_ub(here, src, "Gather") + base,
                      npusim::in_ub(here, offset, "Gather"), int64_t(src.bytes) - base, npusim::moved<T>(), count);
}
#endif
#ifdef NPUSIM_HAS_GATHER_MASKED
#define NPUSIM_GATHER_UNDER(Mask)                                                                                    \
  template <class T>                                                                                                 \
  inline void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,      \
                     const uint32_t base, Mask mask, const uint8_t repeats, const uint16_t step,                     \
                     Here here = Here::now()) {                                                                      \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, true, mask);                                                                            \
    npusim::emit_gather_masked(here, npusim::in_ub(here, dst, "Gather"), npusim::in_ub(here, src, "Gather") + base,  \
                               npusim::in_ub(here, offset, "Gather"), int64_t(src.bytes) - base,                     \
                               npusim::moved<T>(), repeats, step);                                                   \
  }
NPUSIM_GATHER_UNDER(uint64_t)
NPUSIM_GATHER_UNDER(const uint64_t*)
#endif

struct CopyRepeatParams {
  uint16_t dstStride = 0, srcStride = 0, dstRepeatSize = 8, srcRepeatSize = 8;
  CopyRepeatParams() = default;
  CopyRepeatParams(uint16_t dst_block, uint16_t src_block, uint16_t dst_repeat, uint16_t src_repeat)
      : dstStride(dst_block), srcStride(src_block), dstRepeatSize(dst_repeat), srcRepeatSize(src_repeat) {}
};
#ifdef NPUSIM_HAS_COPY
#define NPUSIM_COPY_UNDER(Name, Mask)                                                                                \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, const uint8_t repeats,           \
                   const CopyRepeatParams& p, Here here = Here::now()) {                                             \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_copy(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::moved<T>(),    \
                      repeats, p.dstStride, p.srcStride, p.dstRepeatSize, p.srcRepeatSize);                          \
  }
NPUSIM_COPY_UNDER(Copy, uint64_t)
NPUSIM_COPY_UNDER(Copy, const uint64_t*)
#endif

#ifdef NPUSIM_HAS_GATHERB
template <class T>
inline void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,
                    const uint8_t repeats, const GatherRepeatParams& p, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_gatherb(here, npusim::in_ub(here, dst, "Gatherb"), npusim::in_ub(here, src, "Gatherb"),
                       npusim::in_ub(here, offset, "Gatherb"), src.bytes, npusim::moved<T>(), repeats, p.dstBlkStride,
                       p.dstRepStride);
}
#endif
#ifdef NPUSIM_HAS_SCATTER
template <class T>
inline void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset,
                    const uint32_t base, const uint32_t count, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_scatter(here, npusim::in_ub(here, dst, "Scatter") + base, npusim::in_ub(here, src, "Scatter"),
                       npusim::in_ub(here, offset, "Scatter"), int64_t(dst.bytes) - base, npusim::moved<T>(), count);
}
#endif

struct GatherMaskParams {
  uint8_t src0BlockStride = 1;
  uint16_t repeatTimes = 0, src0RepeatStride = 8;
  uint8_t src1RepeatStride = 8;
  GatherMaskParams() = default;
  GatherMaskParams(uint8_t block, uint16_t repeats, uint16_t repeat, uint8_t bits)
      : src0BlockStride(block), repeatTimes(repeats), src0RepeatStride(repeat), src1RepeatStride(bits) {}
};

#ifdef NPUSIM_HAS_GATHER_MASK
// A fixed pattern keeps every second element (1 even, 2 odd), one of four (3 to 6), or all (7).
template <class T>
inline void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t pattern, const bool by_mask,
                       const uint32_t mask, const GatherMaskParams& p, uint64_t& kept, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  uint64_t elements = by_mask ? mask : 256 / sizeof(T), each = 0;
  for (uint64_t i = 0; i < elements; i++)
    each += pattern == 7 || (pattern <= 2 ? i % 2 == pattern - 1u : i % 4 == pattern - 3u);
  npusim::emit_gather_mask(here, npusim::in_ub(here, dst, "GatherMask"), npusim::in_ub(here, src, "GatherMask"),
                           npusim::in_ub(here, src, "GatherMask"), npusim::moved<T>(), pattern, by_mask ? mask : 0,
                           p.repeatTimes, p.src0BlockStride, p.src0RepeatStride, p.src1RepeatStride, 0);
  npusim::self->kept = kept = each * p.repeatTimes;
}
// The bits of a tensor mark what is kept: how many there are is read from it.
template <class T, class U>
inline void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<U>& bits,
                       const bool by_mask, const uint32_t mask, const GatherMaskParams& p, uint64_t& kept,
                       Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  static_assert(sizeof(U) == sizeof(T), "GatherMask must be given bits in words of the size of an element");
  uint64_t elements = by_mask ? mask : 256 / sizeof(T);
  const uint8_t* words = npusim::settled(here, npusim::space::UB, npusim::in_ub(here, bits, "GatherMask"), 32);
  kept = 0;
  for (uint64_t r = 0; r < p.repeatTimes; r++)
    for (uint64_t i = 0; i < elements; i++) kept += words[32 * r * p.src1RepeatStride + i / 8] >> i % 8 & 1;
  npusim::self->kept = kept;
  npusim::emit_gather_mask(here, npusim::in_ub(here, dst, "GatherMask"), npusim::in_ub(here, src, "GatherMask"),
                           bits.address, npusim::moved<T>(), 0, by_mask ? mask : 0, p.repeatTimes, p.src0BlockStride,
                           p.src0RepeatStride, p.src1RepeatStride, kept ? int64_t(kept * sizeof(T)) : 1);
}
#endif

#ifdef NPUSIM_HAS_SORT32
template <class T>
inline void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& scores, const LocalTensor<uint32_t>& indices,
                   const int32_t repeats, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_sort32(here, npusim::in_ub(here, dst, "Sort32"), npusim::in_ub(here, scores, "Sort32"),
                      npusim::in_ub(here, indices, "Sort32"), npusim::number<T>(), repeats);
}
#endif

struct MrgSort4Info {
  uint16_t elementLengths[4] = {};
  bool ifExhaustedSuspension = false;
  uint16_t validBit = 0, repeatTimes = 1;
  MrgSort4Info() = default;
  MrgSort4Info(const uint16_t lengths[4], bool suspends, uint16_t valid, uint16_t repeats)
      : ifExhaustedSuspension(suspends), validBit(valid), repeatTimes(repeats) {
    memcpy(elementLengths, lengths, sizeof elementLengths);
  }
};
template <class T> struct MrgSortSrcList {
  LocalTensor<T> src1, src2, src3, src4;
  MrgSortSrcList() = default;
  MrgSortSrcList(const LocalTensor<T>& a, const LocalTensor<T>& b, const LocalTensor<T>& c, const LocalTensor<T>& d)
      : src1(a), src2(b), src3(c), src4(d) {}
};
#ifdef NPUSIM_HAS_MRG_SORT
}  // namespace AscendC

namespace npusim {
// Falls with the score of these bits, as the machine sorts: NaN before all numbers.
template <class T> inline int64_t rank_of(T score) {
  std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t> bits;
  memcpy(&bits, (const void*)&score, sizeof bits);
  int64_t sign = sizeof(T) == 2 ? 0x8000 : 0x80000000, infinity = sizeof(T) == 2 ? 0x7C00 : 0x7F800000;
  int64_t size = bits & (sign - 1);
  return size > infinity ? int64_t(1) << 40 : bits & sign ? -size : size;
}

// How many pairs of each list are merged when the first of them has no more: what lies in the lists says it.
template <class T>
inline void until_one_ends(Here here, const AscendC::MrgSortSrcList<T>& lists, const AscendC::MrgSort4Info& p,
                           int64_t taken[4]) {
  const LocalTensor<T>* all[] = {&lists.src1, &lists.src2, &lists.src3, &lists.src4};
  T* scores[4] = {};
  hand_flag(here, pipe::V, pipe::S);
  for (int i = 0; i < 4; i++) {
    taken[i] = 0;
    if (!(p.validBit >> i & 1)) continue;
    scores[i] = new T[p.elementLengths[i] + 1];
    const uint8_t* pairs = settled(here, space::UB, all[i]->address, 8 * int64_t(p.elementLengths[i]));
    for (int64_t j = 0; j < p.elementLengths[i]; j++) memcpy((void*)&scores[i][j], pairs + 8 * j, sizeof(T));
  }
  auto is_over = [&] {
    for (int i = 0; i < 4; i++)
      if (scores[i] && taken[i] == p.elementLengths[i]) return true;
    return false;
  };
  while (!is_over()) {
    int first = -1;
    for (int i = 0; i < 4; i++)
      if (scores[i] && (first < 0 || rank_of(scores[i][taken[i]]) > rank_of(scores[first][taken[first]]))) first = i;
    if (first < 0) break;
    taken[first]++;
  }
  for (T* list : scores) delete[] list;
}
}  // namespace npusim

namespace AscendC {
template <class T>
inline void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& lists, const MrgSort4Info& p,
                    Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  int64_t length[4];
  if (p.ifExhaustedSuspension) npusim::until_one_ends(here, lists, p, length);
  else for (int i = 0; i < 4; i++) length[i] = p.validBit >> i & 1 ? p.elementLengths[i] : 0;
  for (int i = 0; i < 4; i++) npusim::self->merged[i] = uint16_t(length[i]);
  npusim::emit_mrg_sort(here, npusim::in_ub(here, dst, "MrgSort"), lists.src1.address, lists.src2.address,
                        npusim::number<T>(), length[0], length[1], lists.src3.address, length[2], lists.src4.address,
                        length[3], p.ifExhaustedSuspension ? 1 : p.repeatTimes);
}
inline void GetMrgSortResult(uint16_t& first, uint16_t& second, uint16_t& third, uint16_t& fourth, Here = Here::now()) {
  const uint16_t* merged = npusim::self->merged;
  first = merged[0], second = merged[1], third = merged[2], fourth = merged[3];
}
#endif

#ifdef NPUSIM_HAS_TRANSPOSE
template <class T> inline void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_transpose(here, npusim::in_ub(here, dst, "Transpose"), npusim::in_ub(here, src, "Transpose"),
                         npusim::moved<T>());
}
#endif

#ifdef NPUSIM_HAS_SCALAR_STORE
}  // namespace AscendC

namespace npusim {

// first, first + step, ..: a block by the scalar unit, then each block and each repeat from the one before.
template <class T>
inline void progression(Here here, const char* call, const LocalTensor<T>& dst, T first, T step, uint32_t count) {
  if (!has_vector()) return;
  in_ub(here, dst, call);
  constexpr uint32_t block = 32 / sizeof(T), lanes = 256 / sizeof(T);
  auto times = [&](uint32_t n) { return std::is_integral_v<T> ? T(step * T(n)) : T(float(step) * float(n)); };
  before_scalar(here, false, true);
  for (uint32_t i = 0; i < block && i < count; i++) {
    T value = std::is_integral_v<T> ? T(first + times(i)) : T(float(first) + float(step) * float(i));
    emit_scalar_store(here, space::UB, dst.address + int64_t(i * sizeof(T)), moved<T>(), bits_of(value), -1);
  }
  hand_flag(here, pipe::S, pipe::V);
  for (uint32_t at = block; at < count && at < lanes; at += block) {
    Adds(dst[at], dst[at - block], times(block), int32_t(count - at < block ? count - at : block), here);
    barrier(here, pipe::V);
  }
  for (uint32_t at = lanes; at < count; at += lanes) {
    Adds(dst[at], dst[at - lanes], times(lanes), int32_t(count - at < lanes ? count - at : lanes), here);
    barrier(here, pipe::V);
  }
}
}  // namespace npusim

namespace AscendC {

template <class T>
inline void CreateVecIndex(const LocalTensor<T>& dst, const T& first, uint32_t count, Here here = Here::now()) {
  npusim::progression<T>(here, "CreateVecIndex", dst, first, T(1), count);
}
#ifdef NPUSIM_HAS_ADDS_MASKED
// Under a mask: lane l of repeat r is first + r * lanes + l; each repeat comes from the one before. The blocks of leading
// lanes do so too, lanes by bits are written by the scalar unit.
template <class T, class Mask, class = std::enable_if_t<std::is_integral_v<Mask> || std::is_pointer_v<Mask>>>
inline void CreateVecIndex(const LocalTensor<T>& dst, const T& first, Mask given, uint8_t repeats, uint16_t block,
                           uint8_t step, Here here = Here::now()) {
  static_assert(std::is_same_v<T, int16_t> || std::is_same_v<T, half> || std::is_same_v<T, int32_t> ||
                    std::is_same_v<T, float>,
                "CreateVecIndex under a mask is of int16_t, half, int32_t and float");
  if (!npusim::has_vector() || !repeats) return;
  if (npusim::self->counts) npusim::refuse(here, "CreateVecIndex under a mask must not come behind SetMaskCount");
  npusim::in_ub(here, dst, "CreateVecIndex");
  constexpr uint32_t in_block = 32 / sizeof(T), lanes = 256 / sizeof(T);
  std::conditional_t<std::is_pointer_v<Mask>, const uint64_t*, uint64_t> mask = given;
  npusim::Lanes bits;
  uint32_t by_hand = lanes;  // lanes that the scalar unit writes
  if constexpr (std::is_pointer_v<Mask>) bits = {mask[0], sizeof(T) == 2 ? mask[1] : 0};
  else bits = npusim::leading(int64_t(mask < lanes ? mask : lanes)), by_hand = in_block;
  if (!bits.low && !bits.high) return;
  auto is_active = [&](uint32_t lane) { return ((lane < 64 ? bits.low >> lane : bits.high >> (lane - 64)) & 1) != 0; };
  auto at = [&](uint32_t lane) { return lane / in_block * block * in_block + lane % in_block; };
  npusim::before_scalar(here, false, true);
  for (uint32_t lane = 0; lane < by_hand; lane++) {
    if (!is_active(lane)) continue;
    T value = std::is_integral_v<T> ? T(first + T(lane)) : T(float(first) + float(lane));
    npusim::emit_scalar_store(here, npusim::space::UB, dst.address + int64_t(at(lane) * sizeof(T)), npusim::moved<T>(),
                              npusim::bits_of(value), -1);
  }
  npusim::hand_flag(here, npusim::pipe::S, npusim::pipe::V);
  for (uint32_t lane = by_hand; lane < lanes && is_active(lane); lane += in_block) {
    uint32_t count = 1;
    while (count < in_block && is_active(lane + count)) count++;
    Adds(dst[at(lane)], dst[at(lane - in_block)], T(in_block), int32_t(count), here);
    npusim::barrier(here, npusim::pipe::V);
  }
  uint32_t ahead = step * in_block;
  for (uint32_t r = 1; r < repeats; r++) {
    Adds(dst[r * ahead], dst[(r - 1) * ahead], T(lanes), mask, uint8_t(1), UnaryRepeatParams(block, block, 8, 8), here);
    npusim::barrier(here, npusim::pipe::V);
  }
}
#endif
#define NPUSIM_PROGRESSION(Name)                                                                                     \
  template <class T>                                                                                                 \
  inline void Name(const LocalTensor<T>& dst, const std::common_type_t<T> first, const std::common_type_t<T> step,   \
                   const int32_t count, Here here = Here::now()) {                                                   \
    npusim::progression<T>(here, #Name, dst, first, step, count > 0 ? uint32_t(count) : 0);                          \
  }
NPUSIM_PROGRESSION(Arange)
NPUSIM_PROGRESSION(ArithProgression)
#endif
}  // namespace AscendC
