// The program of a mixed kernel whose source asks the compiler for which kind of core it compiles.
//
// A device has code for each kind, so here each kind has a library: the same names stand for different code in them. Of
// the runtime there is one, this program's, which exports it.
#pragma once
#include <dlfcn.h>

#include "npusim/mask.h"

namespace npusim {
using Side = void (*)();
inline Side of_cube, of_vector;

inline Side side(const std::string& program, const char* name) {
  std::string path = program.substr(0, program.rfind('/') + 1) + name;
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);  // host code beside kernels calls what is not here
  void* found = library ? dlsym(library, "npusim_side") : nullptr;
  if (!found) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(3);
  }
  return (Side)found;
}
}  // namespace npusim

static void npusim_entry() { (::npusim::self->is_cube ? ::npusim::of_cube : ::npusim::of_vector)(); }
int main(int argc, char** argv) {
  ::npusim::of_cube = ::npusim::side(argv[0], "cube.so");
  ::npusim::of_vector = ::npusim::side(argv[0], "vector.so");
  return ::npusim::serve(argc, argv, npusim_entry);
}
