// What the members of a family of vector instructions have in common; the generated header names the members.
#pragma once
#include "npusim/mask.h"

namespace npusim {

// The element type of a shift; of types without a sign, which are another instruction.
struct Unsigned {
  int64_t data;
};
template <class T> constexpr auto shifted() {
  if constexpr (std::is_same_v<T, uint16_t> || std::is_same_v<T, uint32_t>) return Unsigned{moved<T>()};
  else return number<T>();
}
// Counts of bitwise calls are of 16 bits, whatever the type of the tensors.
template <class T> constexpr int64_t halves() { return data::INT16; }
#define NPUSIM_LOGICAL(name)                                                                                         \
  inline void emit_##name(Here here, int64_t dst, int64_t src, Unsigned type, int64_t count, int64_t amount) {       \
    emit_##name##_logical(here, dst, src, type.data, count, amount);                                                 \
  }                                                                                                                  \
  template <class... Steps>                                                                                          \
  inline void emit_##name##_masked(Here here, int64_t dst, int64_t src, Unsigned type, Steps... steps) {             \
    emit_##name##_logical_masked(here, dst, src, type.data, steps...);                                               \
  }
#ifdef NPUSIM_HAS_SHIFT_LEFT_LOGICAL
NPUSIM_LOGICAL(shift_left)
NPUSIM_LOGICAL(shift_right)
#endif
#undef NPUSIM_LOGICAL
}  // namespace npusim

// Kernels take the address of a function as well, for a type without the place of the call. What they get differs from
// the function in a type of its own for one operand, so that a call prefers the function; its rows have the place of the
// call before.
#define NPUSIM_SAME(T, U) class = std::enable_if_t<std::is_same_v<T, U>>

// Of two tensors: a number of elements.
#define NPUSIM_TWO(Name, name, type)                                                                                 \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                \
                   const int32_t& count, Here here = Here::now()) {                                                  \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src0, #Name),                     \
                        npusim::in_ub(here, src1, #Name), npusim::type<T>(), count);                                 \
  }                                                                                                                  \
  template <class T, bool set_mask = true, class U, NPUSIM_SAME(T, U)>                                               \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<T>& src1,                \
                   const int32_t& count) {                                                                           \
    Name<T, set_mask>(dst, src0, src1, count, npusim::last_call());                                                  \
  }

// Of one tensor.
#define NPUSIM_ONE(Name, name, type)                                                                                 \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,                       \
                   Here here = Here::now()) {                                                                        \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::type<T>(),   \
                        count);                                                                                      \
  }                                                                                                                  \
  template <class T, bool set_mask = true, class U, NPUSIM_SAME(T, U)>                                               \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, const int32_t& count) {                     \
    Name<T, set_mask>(dst, src, count, npusim::last_call());                                                         \
  }

// Of a tensor and a scalar.
#define NPUSIM_SCALAR(Name, name, type)                                                                              \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const std::common_type_t<T>& scalar,        \
                   const int32_t& count, Here here = Here::now()) {                                                  \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::type<T>(),   \
                        count, npusim::bits_of(T(scalar)));                                                          \
  }                                                                                                                  \
  template <class T, bool set_mask = true, class U, NPUSIM_SAME(T, U)>                                               \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src, const std::common_type_t<T>& scalar,        \
                   const int32_t& count) {                                                                           \
    Name<T, set_mask>(dst, src, scalar, count, npusim::last_call());                                                 \
  }

// The same under a mask, which comes as a number of leading lanes or as words of bits.
#define NPUSIM_TWO_UNDER(Mask, Name, name, type)                                                                     \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, Mask mask,     \
                   const uint8_t repeats, const BinaryRepeatParams& p, Here here = Here::now()) {                    \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src0, #Name),            \
                                 npusim::in_ub(here, src1, #Name), npusim::type<T>(), repeats, p.dstBlkStride,       \
                                 p.src0BlkStride, p.src1BlkStride, p.dstRepStride, p.src0RepStride,                  \
                                 p.src1RepStride);                                                                   \
  }                                                                                                                  \
  template <class T, bool set_mask = true, class U, NPUSIM_SAME(T, U)>                                               \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<T>& src1, Mask mask,     \
                   const uint8_t repeats, const BinaryRepeatParams& p) {                                             \
    Name<T, set_mask>(dst, src0, src1, mask, repeats, p, npusim::last_call());                                       \
  }
#define NPUSIM_TWO_MASKED(Name, name, type)                                                                          \
  NPUSIM_TWO_UNDER(uint64_t, Name, name, type)                                                                       \
  NPUSIM_TWO_UNDER(const uint64_t*, Name, name, type)

#define NPUSIM_ONE_UNDER(Mask, Name, name, type)                                                                     \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, const uint8_t repeats,           \
                   const UnaryRepeatParams& p, Here here = Here::now()) {                                            \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name),             \
                                 npusim::type<T>(), repeats, p.dstBlkStride, p.srcBlkStride, p.dstRepStride,         \
                                 p.srcRepStride);                                                                    \
  }
#define NPUSIM_ONE_MASKED(Name, name, type)                                                                          \
  NPUSIM_ONE_UNDER(uint64_t, Name, name, type)                                                                       \
  NPUSIM_ONE_UNDER(const uint64_t*, Name, name, type)

#define NPUSIM_SCALAR_UNDER(Mask, Name, name, type)                                                                  \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const std::common_type_t<T>& scalar,        \
                   Mask mask, const uint8_t repeats, const UnaryRepeatParams& p, Here here = Here::now()) {          \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name),             \
                                 npusim::type<T>(), repeats, p.dstBlkStride, p.srcBlkStride, p.dstRepStride,         \
                                 p.srcRepStride, npusim::bits_of(T(scalar)));                                        \
  }
#define NPUSIM_SCALAR_MASKED(Name, name, type)                                                                       \
  NPUSIM_SCALAR_UNDER(uint64_t, Name, name, type)                                                                    \
  NPUSIM_SCALAR_UNDER(const uint64_t*, Name, name, type)

// Of two tensors to another type.
#define NPUSIM_CASTING(Name, name, type)                                                                             \
  template <class T, class U, bool set_mask = true>                                                                  \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,                \
                   const uint32_t count, Here here = Here::now()) {                                                  \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src0, #Name),                     \
                        npusim::in_ub(here, src1, #Name), npusim::type<U>(), npusim::type<T>(), count);              \
  }
#define NPUSIM_CASTING_UNDER(Mask, Name, name, type)                                                                 \
  template <class T, class U, bool set_mask = true>                                                                  \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, Mask mask,     \
                   const uint8_t repeats, const BinaryRepeatParams& p, Here here = Here::now()) {                    \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::bring_mask(here, set_mask, mask);                                                                        \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src0, #Name),                     \
                        npusim::in_ub(here, src1, #Name), npusim::type<U>(), npusim::type<T>(), repeats,             \
                        p.dstBlkStride, p.src0BlkStride, p.src1BlkStride, p.dstRepStride, p.src0RepStride,           \
                        p.src1RepStride);                                                                            \
  }
#define NPUSIM_CASTING_MASKED(Name, name, type)                                                                      \
  NPUSIM_CASTING_UNDER(uint64_t, Name, name, type)                                                                   \
  NPUSIM_CASTING_UNDER(const uint64_t*, Name, name, type)

// A name that Ascend C has and this machine lacks; functions of the user's with the name stay his.
#define NPUSIM_MISSING(Name)                                                                                         \
  template <class... T, class U, class... A> inline void Name(const LocalTensor<U>&, A&&...) {                       \
    static_assert(npusim::never<U, A...>, #Name " is not modelled by this emulator");                                \
  }                                                                                                                  \
  template <class T, auto flag, auto... flags, class U, class... A> inline void Name(const LocalTensor<U>&, A&&...) {\
    static_assert(npusim::never<T, U, A...>, #Name " is not modelled by this emulator");                             \
  }
// The same of functions that take no tensor, or one in global memory: anything the user has is called before it.
#define NPUSIM_ABSENT(Name)                                                                                          \
  template <class... T> inline int64_t Name(...) {                                                                   \
    static_assert(npusim::never<T...>, #Name " is not modelled by this emulator");                                   \
    return 0;                                                                                                        \
  }                                                                                                                  \
  template <class T, auto flag, auto... flags> inline int64_t Name(...) {                                            \
    static_assert(npusim::never<T>, #Name " is not modelled by this emulator");                                      \
    return 0;                                                                                                        \
  }                                                                                                                  \
  template <auto flag, auto... flags> inline int64_t Name(...) {                                                     \
    static_assert(npusim::never<std::integral_constant<decltype(flag), flag>>,                                       \
                  #Name " is not modelled by this emulator");                                                        \
    return 0;                                                                                                        \
  }
