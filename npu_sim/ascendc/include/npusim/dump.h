// asc_dump_gm, .. : what lies at an address, printed.
//
// ASCENDC_DUMP 0 leaves them out; ASSUMED without it: they print, where a device's build waits for a 1.
#pragma once
#include "npusim/system.h"

namespace npusim {

template <class T>
inline void dump_at(Here here, const char* call, int64_t in, const T* pointer, uint32_t tag, uint32_t count) {
#if !defined ASCENDC_DUMP || ASCENDC_DUMP
  if (!is_split) refuse(here, "%s is there on A2 and A3", call);
  if (in == space::UB ? !self->is_vector : in != space::GM && !self->is_cube) return;  // of the other kind of core
  bool is_gm = in == space::GM;
  int64_t address = is_gm ? gm_offset(pointer) : int64_t(pointer), bytes = int64_t(count) * int64_t(sizeof(T));
  int64_t room = is_gm ? control->gm_bytes : capacity_of(in);
  if (address < 0 || address + bytes > room)
    refuse(here, "%s must read inside the %lld bytes of %s, not [%lld, %lld)", call, (long long)room, space_name(in),
           (long long)address, (long long)(address + bytes));
  if (is_gm) settle_gm(here);
  const T* values = is_gm ? pointer : (const T*)settled(here, in, address, bytes);
  AscendC::dump(here, space_name(in), address, tag, count, values);
#endif
}
}  // namespace npusim

#define NPUSIM_DUMP(Name, Space)                                                                                     \
  template <class T>                                                                                                 \
  inline void Name(T* input, uint32_t desc, uint32_t count, ::npusim::Here here = ::npusim::Here::now()) {           \
    ::npusim::dump_at<T>(here, #Name, ::npusim::space::Space, input, desc, count);                                   \
  }
NPUSIM_DUMP(asc_dump_gm, GM)
NPUSIM_DUMP(asc_dump_ubuf, UB)
NPUSIM_DUMP(asc_dump_l1buf, L1)
NPUSIM_DUMP(asc_dump_cbuf, L0C)
