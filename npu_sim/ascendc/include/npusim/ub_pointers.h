// Elements behind pointers into UB (`__ubuf__ T*`), which ub_pointers.py puts for what a source reads and writes so: what
// GetValue and SetValue do at those places. A pointer is the address in UB, as on a device.
#pragma once
#include "npusim/lower_names.h"

namespace npusim {

// A name may stand for pointers into other memory elsewhere in a source; no memory of this machine has UB's addresses.
template <class T> struct Pointed {
  using PrimType = std::remove_cv_t<T>;
  T* pointer;
  PrimType* plain(uint64_t offset) const { return const_cast<PrimType*>(pointer + int64_t(offset)); }
  bool is_in_ub(uint64_t offset) const { return uint64_t(plain(offset)) < uint64_t(control->ub_bytes); }
  PrimType GetValue(uint64_t offset, Here here) const {
    return is_in_ub(offset) ? at_pointer(plain(offset)).GetValue(0, here) : *plain(offset);
  }
  void SetValue(uint64_t offset, PrimType value, Here here) const {
    static_assert(!std::is_const_v<T>, "what a pointer to const points to cannot be written");
    if (is_in_ub(offset)) at_pointer(plain(offset)).SetValue(0, value, here);
    else *plain(offset) = value;
  }
};

template <class T> struct UbPointer {
  T* pointer;
  Here here;
  AscendC::ScalarElement<Pointed<T>> operator[](int64_t offset) const { return {{pointer}, uint64_t(offset), here}; }
  AscendC::ScalarElement<Pointed<T>> operator*() const { return (*this)[0]; }
};

// All that is no pointer to numbers stays what it is.
template <class P> constexpr decltype(auto) at_ub(P&& what, Here here = Here::now()) {
  using T = std::remove_pointer_t<std::remove_cv_t<std::remove_reference_t<P>>>;
  using Number = std::remove_cv_t<T>;
  constexpr bool is_number = std::is_arithmetic_v<Number> || std::is_same_v<Number, half> || std::is_same_v<Number, bfloat16_t>;
  if constexpr (std::is_pointer_v<std::remove_reference_t<P>> && is_number) return UbPointer<T>{what, here};
  else return static_cast<P&&>(what);
}
}  // namespace npusim
