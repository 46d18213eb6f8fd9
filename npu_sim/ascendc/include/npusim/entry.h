// Stands behind the kernel's source: the program's start.
#pragma once
#include "npusim/runtime.h"

namespace npusim {
template <class... A> void call(void (*kernel)(A...)) { call(kernel, std::index_sequence_for<A...>{}); }
}  // namespace npusim

#define NPUSIM_ENTRY(...)                                                          \
  static void npusim_entry() { ::npusim::call(&__VA_ARGS__); }                     \
  int main(int argc, char** argv) { return ::npusim::serve(argc, argv, npusim_entry); }
