// Tables of a kernel in global memory are data of its program. That lies in a tensor, stretch by stretch: tables.py.
#pragma once
#include <cstdint>
#include <cstring>
#include <link.h>

namespace npusim {

struct Image {
  const uint8_t* begin;
  const uint8_t* end;
  int64_t to;
};
inline Image images[16];
inline int image_count = 0;
inline int register_images(dl_phdr_info* info, size_t, void* place) {
  const char* name = strrchr(info->dlpi_name, '/');
  bool is_own = !*info->dlpi_name || (name && (!strcmp(name, "/cube.so") || !strcmp(name, "/vector.so")));
  for (int i = 0; is_own && i < info->dlpi_phnum && image_count < int(sizeof images / sizeof *images); i++) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    auto begin = (const uint8_t*)(info->dlpi_addr + part.p_vaddr);
    images[image_count++] = {begin, begin + part.p_memsz, *(int64_t*)place};
    *(int64_t*)place += (int64_t(part.p_memsz) + 511) / 512 * 512;
  }
  return 0;
}
}  // namespace npusim
