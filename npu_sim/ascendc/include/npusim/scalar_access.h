// Elements that the scalar unit reads and writes: GetValue and SetValue.
#pragma once
#include "npusim/signals.h"

namespace npusim {

template <class T> inline T read_gm(Here here, const T* pointer, int64_t tensor, bool past_cache = false) {
  int64_t at = gm_offset(pointer);
  if (at < 0 || at + int64_t(sizeof(T)) > control->gm_bytes)
    refuse(here, "GetValue must read inside a tensor, not at %p", (const void*)pointer);
  past_cache = past_cache || is_past_cache(at);
  Looking looking;
  see(here, at);
#ifdef NPUSIM_HAS_SCALAR_LOAD
  if constexpr (Element<T>::known) {
    before_scalar(here, true, false);
    load_element<T>(here, space::GM, at, tensor, past_cache);
  }
#endif
  settle_gm(here);
  T value;
  memcpy((void*)&value, (const void*)pointer, sizeof value);
  uint64_t bits = 0;
  memcpy(&bits, (const void*)pointer, std::min(sizeof value, sizeof bits));
  if (control->reads && looks_in_vain(at, bits)) give_way("GetValue");
  return value;
}

template <class T> inline T read_local(Here here, int64_t in_space, int64_t address) {
  if (in_space != space::UB || address < 0 || address + int64_t(sizeof(T)) > control->ub_bytes)
    refuse(here, "GetValue must read inside UB, not %s[%lld]", space_name(in_space), (long long)address);
  if (!self->is_vector) return T(0);  // a Cube core sees nothing of UB
  before_scalar(here, false, false);
  T value;
  memcpy((void*)&value, settled(here, in_space, address, sizeof value), sizeof value);
#ifdef NPUSIM_HAS_SCALAR_LOAD
  load_element<T>(here, space::UB, address, -1);
#endif
  return value;
}

template <class T> inline void store_scalar(Here here, int64_t in_space, int64_t address, int64_t tensor, T value) {
  if (in_space != space::UB && in_space != space::GM)
    refuse(here, "SetValue must write UB or global memory, not %s", space_name(in_space));
  if (in_space == space::UB && !self->is_vector) return;
#ifdef NPUSIM_HAS_SCALAR_STORE
  if (in_space == space::GM) keep_in_cache(address);
  before_scalar(here, in_space == space::GM, true);
  if constexpr (sizeof(T) == 8) {
    int32_t words[2];
    memcpy(words, &value, 8);
    for (int i = 0; i < 2; i++) store_element(here, in_space, address + 4 * i, tensor, words[i]);
  } else {
    store_element(here, in_space, address, tensor, value);
  }
#else
  refuse(here, "SetValue is not modelled");
#endif
}
}  // namespace npusim
