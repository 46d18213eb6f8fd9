// Whole numbers rounded up and down, as host libraries of operators name it.
#pragma once
#include <cstdint>

namespace Ops {
namespace Base {
template <class A, class B> inline A CeilDiv(A value, B by) { return by == 0 ? value : A((value + by - 1) / by); }
template <class A, class B> inline A CeilAlign(A value, B by) { return by == 0 ? value : A((value + by - 1) / by * by); }
template <class A, class B> inline A FloorDiv(A value, B by) { return by == 0 ? value : A(value / by); }
template <class A, class B> inline A FloorAlign(A value, B by) { return by == 0 ? value : A(value / by * by); }
// Bytes of a block of UB.
template <class T> inline uint32_t GetUbBlockSize(const T*) { return 32; }
// Bytes of a vector register and of a line of the cache, of every chip as documented.
template <class T> inline uint32_t GetVRegSize(const T*) { return 256; }
template <class T> inline uint32_t GetCacheLineSize(const T*) { return 256; }
}  // namespace Base
}  // namespace Ops
