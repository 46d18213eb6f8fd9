// Memory as the rows so far leave it, for whoever looks at it: the scalar unit, and what prints.
//
// The emulator's answer costs as much as hundreds of rows, so what the program can tell by itself is not asked for. It has
// a copy of the pages of UB that it was shown, and knows what the scalar unit has done since: it stores to the copy, and to
// global memory, what SetValue stores, as long as the emulator is certain to do the same when it comes to those rows. Behind
// any other row it asks again.
#pragma once
#include "npusim/types.h"

namespace npusim {

// Of control->window.
struct Window {
  int64_t owner = -1, answer = 0;  // the core whose UB it shows, and `answers` since when
  uint64_t shown = 0;              // its pages that are there
  uint64_t wanted = 0, wanted_before = 0;  // those that were looked at, since then and the time before
};
inline Window window;

inline uint64_t pages_of(int64_t address, int64_t size) {
  if (size <= 0) return 0;
  int64_t first = address / PAGE_BYTES, more = (address + size - 1) / PAGE_BYTES - first;
  return ((2ull << more) - 1) << first;
}

// What a core asks for is not there: nothing is computed in this call, or nothing any more.
[[noreturn]] inline void refuse_read(Here here, const char* call) {
  if (control->has_stopped) refuse(here, "cannot read a value (%s) behind what could not be computed", call);
  refuse(here, "%s must come in a call that computes, not in one that is only recorded", call);
}

// Global memory as the rows so far leave it: they are handed over if one of them stores there.
inline void settle_gm(Here here) {
  if (control->reads && knows_all()) return;
  for (; scanned < control->count; scanned++)
    if (rows[scanned].bytes[DST_SPACE_AT] == space::GM) break;
  bool stores = scanned < control->count;
  if (stores && !control->reads) refuse_read(here, "GetValue");
  if (stores || (is_ahead && control->reads)) hand_over(Status::SETTLE);
}

// Bytes of UB of the core. Where it is asked for other pages than before, those come too that were looked at the last time:
// loops look at the same tensors again and again.
inline const uint8_t* settled_ub(Here here, int64_t address, int64_t size) {
  if (address < 0 || address + size > std::min(control->ub_bytes, WINDOW_BYTES))
    refuse(here, "contents of UB must be looked at inside it, not at %lld", (long long)address);
  if (window.owner != self->index || window.answer != answers || !knows_all()) {
    window.owner = self->index;
    window.wanted_before = window.wanted;
    window.wanted = window.shown = 0;
  }
  uint64_t pages = pages_of(address, size);
  window.wanted |= pages;
  if (pages & ~window.shown) {
    control->space = space::UB;
    control->pages = (pages | window.wanted_before) & ~window.shown;
    hand_over(Status::READ);
    window.shown |= control->pages;
    window.answer = answers;
  }
  return control->window + address;
}

// Bytes of a buffer of the core.
inline const uint8_t* settled(Here here, int64_t in_space, int64_t address, int64_t size) {
  if (!control->reads) refuse_read(here, "GetValue");
  if (in_space == space::UB) return settled_ub(here, address, size);
  control->space = in_space;
  control->address = address;
  control->size = size;
  hand_over(Status::READ);
  window.owner = -1;
  return control->window;
}

// Whether no row can be wrong that touches an element there.
inline bool is_element(int64_t in_space, int64_t address, int64_t size, int64_t tensor) {
  if (address % size) return false;
  int64_t begin = 0, end = control->ub_bytes;
  if (in_space == space::GM) {
    if (tensor < 0 || tensor >= control->tensor_count) return false;
    begin = control->tensors[tensor].address;
    end = begin + control->tensors[tensor].size;
  }
  return begin <= address && address + size <= end;
}

#ifdef NPUSIM_HAS_SCALAR_LOAD
template <class T>
inline void load_element(Here here, int64_t in_space, int64_t address, int64_t tensor, bool past_cache = false) {
  bool is_right = is_element(in_space, address, sizeof(T), tensor), in_ub = in_space == space::UB;
  ends_here = ends_here || (in_ub && !is_right);
  Known load(is_right || in_ub);
  if (past_cache) emit_scalar_look(here, address, moved<T>(), tensor);
  else emit_scalar_load(here, in_space, address, moved<T>(), tensor);
}
#endif

#ifdef NPUSIM_HAS_SCALAR_STORE
template <class T> inline void store_element(Here here, int64_t in_space, int64_t address, int64_t tensor, T value) {
  bool is_known = control->reads && knows_all() && !ends_here && is_element(in_space, address, sizeof(T), tensor);
  emit_scalar_store(here, in_space, address, moved<T>(), bits_of(value), tensor);
  if (!is_known || is_ahead) return;  // else the emulator could come to a store before it, and take this one back
  rows_known = rows_made;
  if (in_space == space::GM) memcpy(stored_gm + address, (const void*)&value, sizeof value);
  else if (window.owner == self->index) memcpy(control->window + address, (const void*)&value, sizeof value);
}
#endif
}  // namespace npusim
