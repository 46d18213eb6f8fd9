// What the members of a family of vector instructions have in common; the generated header names the members.
#pragma once
#include "npusim/copy.h"

// Of two tensors.
#define NPUSIM_TWO(Name, name)                                                                                       \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,                \
                   const int32_t& count, Here here = Here::now()) {                                                  \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src0, #Name),                     \
                        npusim::in_ub(here, src1, #Name), npusim::number<T>(), count);                               \
  }

// Of one tensor.
#define NPUSIM_ONE(Name, name)                                                                                       \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,                       \
                   Here here = Here::now()) {                                                                        \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::number<T>(), \
                        count);                                                                                      \
  }

// Of a tensor and a scalar.
#define NPUSIM_SCALAR(Name, name)                                                                                    \
  template <class T, bool set_mask = true>                                                                           \
  inline void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const std::common_type_t<T>& scalar,        \
                   const int32_t& count, Here here = Here::now()) {                                                  \
    if (!npusim::has_vector()) return;                                                                               \
    npusim::emit_##name(here, npusim::in_ub(here, dst, #Name), npusim::in_ub(here, src, #Name), npusim::number<T>(), \
                        count, npusim::bits_of(T(scalar)));                                                          \
  }

// A name that Ascend C has and this machine lacks; functions of the user's with the name stay his.
#define NPUSIM_MISSING(Name)                                                                                         \
  template <class... T, class U, class... A> inline void Name(const LocalTensor<U>&, A&&...) {                       \
    static_assert(npusim::never<U, A...>, #Name " is not modelled by this emulator");                                \
  }
