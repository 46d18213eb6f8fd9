// A half as text, in host code beside kernels: printed as the float that it is. Functions for numbers are all as good for it
// as each other.
#pragma once
#include <iosfwd>
#include <string>

#include "npusim/row.h"

namespace npusim {
// A pack that is always empty makes functions of the user's own the better ones.
template <class T, class... None> using IfHalf = std::enable_if_t<std::is_same_v<T, half> && !sizeof...(None)>;
}  // namespace npusim

// Where the arguments lead.
namespace std {
template <class T, class... None, class = ::npusim::IfHalf<T, None...>> inline string to_string(T x, None...) {
  return to_string(float(x));
}
template <class C, class R, class T, class = ::npusim::IfHalf<T>>
inline basic_ostream<C, R>& operator<<(basic_ostream<C, R>& out, T x) {
  return out << float(x);
}
}  // namespace std
