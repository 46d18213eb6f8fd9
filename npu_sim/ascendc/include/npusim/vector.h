// Instructions of the vector unit, element by element; the families are generated from the table.
#pragma once
#include "npusim/mask.h"

namespace npusim {

// The machine's codes put RINT first.
inline int64_t rounding(AscendC::RoundMode mode) { return mode == AscendC::RoundMode::CAST_NONE ? 6 : int64_t(mode) - 1; }

// int32_t to half is a cast with the scale of SetDeqScale.
template <class T, class U>
inline constexpr bool takes_scale = std::is_same_v<T, half> && std::is_same_v<U, int32_t>;
inline int64_t deq_scale(Here here) {
  if (self->deq != Registers::Deq::HALF) refuse(here, "Cast of int32_t to half must come behind SetDeqScale of a half");
  return bits_of(half(self->scale)) & 0xFFFF;
}

template <class T, class U>
inline constexpr bool mixes = std::is_same_v<T, float> && std::is_same_v<U, half>;

#ifdef NPUSIM_HAS_CAST_TO_INT4
template <class T, class U>
inline void cast_int4(Here here, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& src,
                      AscendC::RoundMode mode, int64_t repeats, const AscendC::UnaryRepeatParams& p) {
  static_assert(std::is_same_v<T, half> || std::is_same_v<U, half>, "Cast of int4b_t is from half or to it");
  auto emit = is_int4<T> ? emit_cast_to_int4 : emit_cast_from_int4;
  emit(here, in_ub(here, dst, "Cast"), in_ub(here, src, "Cast"), rounding(mode), repeats, p.dstBlkStride, p.srcBlkStride,
       p.dstRepStride, p.srcRepStride);
}
#endif
}  // namespace npusim

#include "npusim_vector.h"

namespace AscendC {

template <class T, bool set_mask = true>
inline void Duplicate(const LocalTensor<T>& dst, const std::common_type_t<T>& value, const int32_t& count,
                      Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  npusim::emit_duplicate(here, npusim::in_ub(here, dst, "Duplicate"), npusim::moved<T>(), count, npusim::bits_of(value));
}

template <class T, class U>
inline void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& mode, const uint32_t count,
                 Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  if constexpr (npusim::is_int4<T> || npusim::is_int4<U>)
    npusim::counted(here, count, [&] {
      npusim::cast_int4(here, dst, src, mode, 1,
                        {1, 1, uint8_t(npusim::is_int4<T> ? 2 : 8), uint8_t(npusim::is_int4<T> ? 8 : 2)});
    });
  else if constexpr (npusim::takes_scale<T, U>)
    npusim::emit_cast_deq(here, npusim::in_ub(here, dst, "Cast"), npusim::in_ub(here, src, "Cast"),
                          npusim::number<U>(), npusim::number<T>(), count, npusim::deq_scale(here));
  else
    npusim::emit_cast(here, npusim::in_ub(here, dst, "Cast"), npusim::in_ub(here, src, "Cast"), npusim::number<U>(),
                      npusim::number<T>(), npusim::rounding(mode), count);
}

// Forms that name the type of the operands, too: of half into float they are instructions of their own.
#define NPUSIM_MIXED class = std::enable_if_t<std::is_same_v<T, U> || npusim::mixes<T, U>>
template <class T, class U, bool set_mask = true, NPUSIM_MIXED>
inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const std::common_type_t<U>& scalar,
                 const int32_t& count, Here here = Here::now()) {
  if constexpr (std::is_same_v<T, U>)
    Axpy<T, set_mask>(dst, src, scalar, count, here);
  else if (npusim::has_vector())
    npusim::emit_axpy_mixed(here, npusim::in_ub(here, dst, "Axpy"), npusim::in_ub(here, src, "Axpy"),
                            npusim::number<U>(), npusim::number<T>(), count, npusim::bits_of(U(scalar)));
}
// The form of the library, whose buffer is not needed.
template <class T, class U, bool reuse = false, NPUSIM_MIXED>
inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const std::common_type_t<U> scalar,
                 const LocalTensor<uint8_t>&, const uint32_t count, Here here = Here::now()) {
  Axpy<T, U>(dst, src, scalar, int32_t(count), here);
}
template <class T, class U, bool set_mask = true, NPUSIM_MIXED>
inline void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,
                      const int32_t& count, Here here = Here::now()) {
  if constexpr (std::is_same_v<T, U>)
    MulAddDst<T, set_mask>(dst, src0, src1, count, here);
  else if (npusim::has_vector())
    npusim::emit_mul_add_dst_mixed(here, npusim::in_ub(here, dst, "MulAddDst"), npusim::in_ub(here, src0, "MulAddDst"),
                                   npusim::in_ub(here, src1, "MulAddDst"), npusim::number<U>(), npusim::number<T>(),
                                   count);
}
#define NPUSIM_MIXED_UNDER(Mask)                                                                                     \
  template <class T, class U, bool set_mask = true, NPUSIM_MIXED>                                                    \
  inline void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const std::common_type_t<U>& scalar,        \
                   Mask mask, const uint8_t repeats, const UnaryRepeatParams& p, Here here = Here::now()) {          \
    if constexpr (std::is_same_v<T, U>) {                                                                            \
      Axpy<T, set_mask>(dst, src, scalar, mask, repeats, p, here);                                                   \
    } else if (npusim::has_vector()) {                                                                               \
      npusim::bring_mask(here, set_mask, mask);                                                                      \
      npusim::emit_axpy_mixed_masked(here, npusim::in_ub(here, dst, "Axpy"), npusim::in_ub(here, src, "Axpy"),       \
                                     npusim::number<U>(), npusim::number<T>(), repeats, p.dstBlkStride,              \
                                     p.srcBlkStride, p.dstRepStride, p.srcRepStride, npusim::bits_of(U(scalar)));    \
    }                                                                                                                \
  }                                                                                                                  \
  template <class T, class U, bool set_mask = true, NPUSIM_MIXED>                                                    \
  inline void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,           \
                        Mask mask, const uint8_t repeats, const BinaryRepeatParams& p, Here here = Here::now()) {    \
    if constexpr (std::is_same_v<T, U>) {                                                                            \
      MulAddDst<T, set_mask>(dst, src0, src1, mask, repeats, p, here);                                               \
    } else if (npusim::has_vector()) {                                                                               \
      npusim::bring_mask(here, set_mask, mask);                                                                      \
      npusim::emit_mul_add_dst_mixed_masked(                                                                         \
          here, npusim::in_ub(here, dst, "MulAddDst"), npusim::in_ub(here, src0, "MulAddDst"),                       \
          npusim::in_ub(here, src1, "MulAddDst"), npusim::number<U>(), npusim::number<T>(), repeats, p.dstBlkStride, \
          p.src0BlkStride, p.src1BlkStride, p.dstRepStride, p.src0RepStride, p.src1RepStride);                       \
    }                                                                                                                \
  }
NPUSIM_MIXED_UNDER(uint64_t)
NPUSIM_MIXED_UNDER(const uint64_t*)
#undef NPUSIM_MIXED_UNDER
#undef NPUSIM_MIXED

#ifdef NPUSIM_HAS_DUPLICATE_MASKED
#define NPUSIM_DUPLICATE_UNDER(Mask)                                                                                 \
  template <class T, bool set_mask = true>                                                                           \
  inline void Duplicate(const LocalTensor<T>& dst, const std::common_type_t<T>& value, Mask mask,                    \
                        const uint8_t repeats, const uint16_t block, const uint8_t step, Here here = Here::now()) {  \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_duplicate_masked(here, npusim::in_ub(here, dst, "Duplicate"), npusim::moved<T>(), repeats, block,   \
                                  step, npusim::bits_of(value));                                                     \
  }
NPUSIM_DUPLICATE_UNDER(uint64_t)
NPUSIM_DUPLICATE_UNDER(const uint64_t*)
#endif
#ifdef NPUSIM_HAS_CAST_MASKED
#define NPUSIM_CAST_UNDER(Mask)                                                                                      \
  template <class T, class U, bool set_mask = true>                                                                  \
  inline void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& mode, Mask mask,           \
                   const uint8_t repeats, const UnaryRepeatParams& p, Here here = Here::now()) {                     \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    if constexpr (npusim::is_int4<T> || npusim::is_int4<U>)                                                          \
      npusim::cast_int4(here, dst, src, mode, repeats, p);                                                           \
    else if constexpr (npusim::takes_scale<T, U>)                                                                    \
      npusim::emit_cast_deq_masked(here, npusim::in_ub(here, dst, "Cast"), npusim::in_ub(here, src, "Cast"),         \
                                   npusim::number<U>(), npusim::number<T>(), repeats, p.dstBlkStride,                \
                                   p.srcBlkStride, p.dstRepStride, p.srcRepStride, npusim::deq_scale(here));         \
    else                                                                                                             \
      npusim::emit_cast_masked(here, npusim::in_ub(here, dst, "Cast"), npusim::in_ub(here, src, "Cast"),             \
                               npusim::number<U>(), npusim::number<T>(), npusim::rounding(mode), repeats,            \
                               p.dstBlkStride, p.srcBlkStride, p.dstRepStride, p.srcRepStride);                      \
  }
NPUSIM_CAST_UNDER(uint64_t)
NPUSIM_CAST_UNDER(const uint64_t*)
#endif

struct TransDataTo5HDParams {
  bool dstHighHalf = false, srcHighHalf = false;
  uint8_t repeatTimes = 1;
  uint16_t dstRepStride = 0, srcRepStride = 0;
  TransDataTo5HDParams() = default;
  constexpr TransDataTo5HDParams(bool dst_high, bool src_high, uint8_t repeats, uint16_t dst_stride, uint16_t src_stride)
      : dstHighHalf(dst_high), srcHighHalf(src_high), repeatTimes(repeats), dstRepStride(dst_stride),
        srcRepStride(src_stride) {}
};
}  // namespace AscendC

namespace npusim {

// Numbers of blocks; what is no block is one that no buffer has, which every check reports.
inline uint16_t block_number(uint64_t address) { return address % 32 || address >> 21 ? 0xFFFF : uint16_t(address / 32); }

template <class T, class D, class S>
inline void trans_data(Here here, const D& dst, const S& src, const AscendC::TransDataTo5HDParams& p) {
  if (!has_vector()) return;
  // halves are of blocks of bytes; with other types a device does not look at them
  Row& row = sizeof(T) == 1 ? emit_trans_data_bytes(here, moved<T>(), p.repeatTimes, p.dstRepStride, p.srcRepStride,
                                                    p.dstHighHalf + 2 * p.srcHighHalf)
                            : emit_trans_data_to_5hd(here, moved<T>(), p.repeatTimes, p.dstRepStride, p.srcRepStride);
  for (int i = 0; i < 16; i++) {
    set_dst_list(row, i, block_number(dst(i)));
    set_src_list(row, i, block_number(src(i)));
  }
}
}  // namespace npusim

namespace AscendC {

template <class T>
inline void TransDataTo5HD(const LocalTensor<T> (&dst)[16], const LocalTensor<T> (&src)[16],
                           const TransDataTo5HDParams& p, Here here = Here::now()) {
  npusim::trans_data<T>(
      here, [&](int i) { return uint64_t(dst[i].address); }, [&](int i) { return uint64_t(src[i].address); }, p);
}
template <class T>
inline void TransDataTo5HD(uint64_t dst[16], uint64_t src[16], const TransDataTo5HDParams& p, Here here = Here::now()) {
  npusim::trans_data<T>(here, [&](int i) { return dst[i]; }, [&](int i) { return src[i]; }, p);
}
// Addresses that lie in UB.
template <class T>
inline void TransDataTo5HD(const LocalTensor<uint64_t>& dst, const LocalTensor<uint64_t>& src,
                           const TransDataTo5HDParams& p, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  uint64_t to[16], from[16];
  for (int i = 0; i < 16; i++) to[i] = dst.GetValue(i, here), from[i] = src.GetValue(i, here);
  TransDataTo5HD<T>(to, from, p, here);
}

// Rounding is of shifts that keep what they shift out, which no document defines.
template <class T, bool set_mask = true, class Mask,
          class = std::enable_if_t<std::is_integral_v<Mask> || std::is_pointer_v<Mask>>>
inline void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const std::common_type_t<T>& scalar,
                       Mask given, const uint8_t repeats, const UnaryRepeatParams& p, bool rounds,
                       Here here = Here::now()) {
  if (rounds) npusim::refuse(here, "ShiftRight must not round, which is not modelled");
  std::conditional_t<std::is_pointer_v<Mask>, const uint64_t*, uint64_t> mask = given;
  ShiftRight<T, set_mask>(dst, src, scalar, mask, repeats, p, here);
}

// Global memory becomes one value, through the free part of UB.
template <class T>
inline void InitGlobalMemory(GlobalTensor<T>& target, const uint64_t size, const T value, Here here = Here::now()) {
  if (!npusim::has_vector()) return;
  LocalTensor<T> scratch;
  TPipe* owner = GetTPipePtr();
  if (!owner) npusim::refuse(here, "InitGlobalMemory must come behind a TPipe");
  owner->PopStackBuffer<T, TPosition::VECCALC>(scratch);
  uint64_t room = scratch.bytes / 32 * 32 / sizeof(T);
  if (!room && size) npusim::refuse(here, "InitGlobalMemory must find free bytes in UB");
  if (room > 32768 / sizeof(T)) room = 32768 / sizeof(T);
  npusim::borrow(here, scratch.space(), scratch.address, int64_t(room * sizeof(T)));
  Duplicate(scratch, value, int32_t(size < room ? size : room), here);
  int event = owner->FetchEventID(HardEvent::V_MTE3);
  npusim::set_flag(here, HardEvent::V_MTE3, event);
  npusim::wait_flag(here, HardEvent::V_MTE3, event);
  for (uint64_t at = 0; at < size; at += room) {
    uint64_t part = size - at < room ? size - at : room;
    DataCopyPad(target[at], scratch, DataCopyExtParams(1, uint32_t(part * sizeof(T)), 0, 0, 0), here);
  }
  event = owner->FetchEventID(HardEvent::MTE3_V);
  npusim::set_flag(here, HardEvent::MTE3_V, event);
  npusim::wait_flag(here, HardEvent::MTE3_V, event);
  npusim::give_back(here, scratch.space(), scratch.address, int64_t(room * sizeof(T)));
}
template <class T>
inline void Fill(GlobalTensor<T>& target, const uint64_t size, const std::common_type_t<T> value,
                 Here here = Here::now()) {
  InitGlobalMemory<T>(target, size, value, here);
}
template <class T>
inline void InitOutput(GlobalTensor<T> target, uint32_t size, T value = 0, Here here = Here::now()) {
  InitGlobalMemory(target, size, value, here);
}
}  // namespace AscendC
