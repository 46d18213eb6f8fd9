// Stands behind the kernel's source: the program's start.
#pragma once
#include "npusim/blocks.h"

#ifdef NPUSIM_SIDE
// What cores of one kind run, in a library of its own: see sides.h.
#define NPUSIM_ENTRY(...) extern "C" void npusim_side() { ::npusim::run_blocks(&__VA_ARGS__); }
#elif defined(NPUSIM_SAYS_TASK_TYPES)
#define NPUSIM_ENTRY(...)                                                                                     \
  void npusim_entry() { ::npusim::run_blocks(&__VA_ARGS__); }                                                 \
  int main() {                                                                                                \
    fwrite(npusim_task_types_begin, 1, size_t(npusim_task_types_end - npusim_task_types_begin), stdout);      \
    return 0;                                                                                                 \
  }
#else
#define NPUSIM_ENTRY(...)                                                          \
  static void npusim_entry() { ::npusim::run_blocks(&__VA_ARGS__); }               \
  int main(int argc, char** argv) { return ::npusim::serve(argc, argv, npusim_entry); }
#endif
