// Copies of host code that know how much room there is: Annex K of C11, which the C library here lacks.
#pragma once
#include <cstddef>
#include <cstring>

#ifndef EOK
#define EOK 0
#endif

using errno_t = int;

// What does not fit leaves zeros, as the standard has it, and is told by the result.
inline errno_t memcpy_s(void* to, size_t room, const void* from, size_t count) {
  if (to && from && count <= room) {
    memmove(to, from, count);
    return EOK;
  }
  if (to) memset(to, 0, room);
  return 34;  // ERANGE
}
inline errno_t memset_s(void* to, size_t room, int value, size_t count) {
  if (to) memset(to, value, count < room ? count : room);
  return to && count <= room ? EOK : 34;
}
