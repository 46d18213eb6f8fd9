// Mathematical functions of a half in host code, for sources that include them for other numbers; a kernel may have the name
// of one elsewhere. ASSUMED: they give what they give of a float, which a half becomes for a function that takes none.
#pragma once
#include <cmath>

#include "npusim/half_text.h"

namespace npusim {
template <class A, class B, class... None>
using IfOneHalf = std::enable_if_t<(std::is_same_v<A, half> || std::is_same_v<B, half>)&&!sizeof...(None)>;
template <class T> using OrFloat = std::conditional_t<std::is_same_v<T, half>, float, T>;
}  // namespace npusim

#define NPUSIM_OF_HALF(name)                                                              \
  template <class T, class... None, class = ::npusim::IfHalf<T, None...>>                 \
  inline auto name(T x, None...) {                                                        \
    return ::std::name(float(x));                                                         \
  }
#define NPUSIM_OF_TWO(name)                                                               \
  template <class A, class B, class... None, class = ::npusim::IfOneHalf<A, B, None...>>  \
  inline auto name(A x, B y, None...) {                                                   \
    return ::std::name(::npusim::OrFloat<A>(x), ::npusim::OrFloat<B>(y));                 \
  }
#define NPUSIM_OF_HALVES                                                                                             \
  NPUSIM_OF_HALF(abs) NPUSIM_OF_HALF(fabs) NPUSIM_OF_HALF(sqrt) NPUSIM_OF_HALF(cbrt) NPUSIM_OF_HALF(exp)             \
  NPUSIM_OF_HALF(exp2) NPUSIM_OF_HALF(expm1) NPUSIM_OF_HALF(log) NPUSIM_OF_HALF(log2) NPUSIM_OF_HALF(log10)          \
  NPUSIM_OF_HALF(log1p) NPUSIM_OF_HALF(sin) NPUSIM_OF_HALF(cos) NPUSIM_OF_HALF(tan) NPUSIM_OF_HALF(asin)             \
  NPUSIM_OF_HALF(acos) NPUSIM_OF_HALF(atan) NPUSIM_OF_HALF(sinh) NPUSIM_OF_HALF(cosh) NPUSIM_OF_HALF(tanh)           \
  NPUSIM_OF_HALF(asinh) NPUSIM_OF_HALF(acosh) NPUSIM_OF_HALF(atanh) NPUSIM_OF_HALF(erf) NPUSIM_OF_HALF(erfc)         \
  NPUSIM_OF_HALF(floor) NPUSIM_OF_HALF(ceil) NPUSIM_OF_HALF(round) NPUSIM_OF_HALF(trunc) NPUSIM_OF_HALF(rint)        \
  NPUSIM_OF_HALF(nearbyint) NPUSIM_OF_HALF(lround) NPUSIM_OF_HALF(lrint) NPUSIM_OF_HALF(isnan) NPUSIM_OF_HALF(isinf) \
  NPUSIM_OF_HALF(isfinite) NPUSIM_OF_HALF(signbit)                                                                   \
  NPUSIM_OF_TWO(pow) NPUSIM_OF_TWO(fmod) NPUSIM_OF_TWO(fmax) NPUSIM_OF_TWO(fmin) NPUSIM_OF_TWO(atan2) NPUSIM_OF_TWO(hypot)

NPUSIM_OF_HALVES
namespace std {
NPUSIM_OF_HALVES
}  // namespace std
#undef NPUSIM_OF_HALVES
#undef NPUSIM_OF_TWO
#undef NPUSIM_OF_HALF
