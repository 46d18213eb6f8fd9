// Which cores a kernel is for, for a tiling key or by default, as far as the compiler keeps what says so: task_type.py.
#pragma once

#ifdef NPUSIM_SAYS_TASK_TYPES
#include <cstdio>
// Text in a section of the program, which is there only if code would be at this place. A key that is no constant is
// where it would be found.
#define NPUSIM_TASK_TYPE(line, key, type, ...)                                                                         \
  __asm__ volatile(".pushsection npusim_task_types,\"a\"\n.ascii \"" #line " " key " " #type "\\n\"\n.popsection" : : \
                   __VA_ARGS__)
#define NPUSIM_TASK_TYPE_IN(...) NPUSIM_TASK_TYPE(__VA_ARGS__)
#define KERNEL_TASK_TYPE_DEFAULT(type) NPUSIM_TASK_TYPE_IN(__LINE__, "default", type, "i"(0))
#define KERNEL_TASK_TYPE(key, type) NPUSIM_TASK_TYPE_IN(__LINE__, "%0", type, "X"(key))
extern const char npusim_task_types_begin[] __asm__("__start_npusim_task_types") __attribute__((weak));
extern const char npusim_task_types_end[] __asm__("__stop_npusim_task_types") __attribute__((weak));
#else
#define KERNEL_TASK_TYPE_DEFAULT(...)
#define KERNEL_TASK_TYPE(...)
#endif
