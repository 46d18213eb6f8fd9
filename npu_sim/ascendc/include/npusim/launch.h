// Stands before a source that holds host code and kernels: launches, and the program's second life as a kernel.
//
// A launch hands the emulator addresses. It starts the same program anew to run the kernel, and that ends before main.
#pragma once
#include <climits>
#include <dlfcn.h>
#include <sys/auxv.h>
#include <typeinfo>
#include <vector>

#include "npusim/half_text.h"
#include "npusim/launched.h"
#include "npusim/runtime.h"

namespace npusim {

// What the text of a kernel says; the first stands for kernels that are not in the table.
struct Head {
  const char* name;
  int64_t kind, vectors;
  const char* parameters;
};

// A place in this source, by which its copy of this header is told from others.
static const char source_mark = 0;

struct Module {
  char path[PATH_MAX] = "";
  const char* base = nullptr;
};

// The file that an address of this program is in.
inline Module module_of(const void* address) {
  Module module;
  Dl_info own, program;
  if (!dladdr(address, &own)) return module;
  module.base = (const char*)own.dli_fbase;
  bool is_program = dladdr((const void*)getauxval(AT_ENTRY), &program) && program.dli_fbase == own.dli_fbase;
  if (!realpath(is_program ? "/proc/self/exe" : own.dli_fname, module.path)) module.path[0] = 0;
  return module;
}

template <class T> inline npu_sim_argument given(const T& value) {
  npu_sim_argument to{};
  if constexpr (std::is_null_pointer_v<T>) {
    to.word = 0;
  } else if constexpr (std::is_pointer_v<T>) {
    to.word = (int64_t)value;
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    to.kind = int64_t(ArgumentKind::INTEGER);
    to.word = int64_t(value);
  } else if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, half>) {
    to.kind = int64_t(ArgumentKind::FLOAT);
    double number = double(value);
    memcpy(&to.word, &number, 8);
  } else {
    static_assert(std::is_trivially_copyable_v<T>, "arguments of a kernel must be copied byte by byte");
    to.kind = int64_t(ArgumentKind::BYTES);
    to.word = sizeof value;
    to.bytes = &value;
  }
  return to;
}

template <class K> void run_blocks(K kernel);  // behind the source, see blocks.h

template <class... A> inline void enter(void* kernel) { run_blocks((void (*)(A...))kernel); }

template <class... A> struct Launch {
  npu_sim_kernel kernel;
  Here here;
  int64_t blocks;
  void* stream;

  int operator()(A... values) const {
    Module module = module_of(&source_mark);
    npu_sim_kernel own = kernel;
    own.module = module.path;
    own.source = &source_mark - module.base;
    own.enter = (const char*)(void*)&enter<A...> - module.base;
    own.function -= (int64_t)module.base;
    npu_sim_argument arguments[] = {given<std::remove_cv_t<A>>(values)..., npu_sim_argument{}};
    return npu_sim_launch(&own, here.file, here.line, blocks, stream, arguments, sizeof...(A));
  }
};

template <class... A> struct Kernel {
  npu_sim_kernel kernel;

  // The second number is for the L2 cache, which the emulator has no part of that kernels could set.
  Launch<A...> on(int64_t blocks, const void* l2, void* stream, Here here = Here::now()) const {
    return {kernel, here, blocks, stream};
  }
  Launch<A...> on(int64_t blocks, int64_t l2, void* stream, Here here = Here::now()) const {
    return on(blocks, nullptr, stream, here);
  }
  Launch<A...> on(int64_t blocks, int l2, void* stream, Here here = Here::now()) const {
    return on(blocks, nullptr, stream, here);
  }
  Launch<A...> on(int64_t blocks, int64_t l2 = 0, Here here = Here::now()) const {
    return on(blocks, nullptr, nullptr, here);
  }
};

template <size_t count> inline const Head& head_of(const Head (&heads)[count], const char* text) {
  const Head* found = heads;
  size_t end = strcspn(text, " <");
  for (const Head& one : heads) {
    size_t length = strlen(one.name);
    bool is_end = length && length <= end && !strncmp(text + end - length, one.name, length);
    if (is_end && (length == end || text[end - length - 1] == ':')) found = &one;
  }
  return *found;
}

template <size_t count, class... A>
inline Kernel<A...> kernel(const Head (&heads)[count], const char* text, void (*function)(A...)) {
  const Head& found = head_of(heads, text);
  return {{text, found.parameters, nullptr, 0, 0, (int64_t)function, __NPU_ARCH__, found.kind, found.vectors}};
}

#ifdef NPUSIM_SIDE
// A source with other code for each kind of core is compiled once for each, into libraries that the program carries. The
// launches are the same in both and in the program, each with a type of its own, by whose name they find each other.
struct Entry {
  const char* key;
  void (*run)();
};
inline std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

// A launch by an expression that takes arguments of these types, as they are there: `L` is a lambda without captures.
template <class L, class... A> struct Launched {
  static void invoke(A... values) {
    static const char none = 0;  // all there is of such a lambda
    ((const L&)none)(values...);
  }
  static void run() { run_blocks(&invoke); }
  static const char* key() { return typeid(Launched).name(); }
  static inline const bool is_noted = (entries().push_back({key(), &run}), true);
};

#if NPUSIM_SIDE
template <class L> struct SidedLaunch {
  template <class... A> int operator()(A...) const { return !Launched<L, A...>::is_noted; }
};
#else
extern const char cube_library[] __asm__("npusim_cube_library"), cube_end[] __asm__("npusim_cube_end");
extern const char vector_library[] __asm__("npusim_vector_library"), vector_end[] __asm__("npusim_vector_end");
extern const char loader[] __asm__("npusim_loader"), loader_end[] __asm__("npusim_loader_end");

template <class L> struct SidedLaunch {
  npu_sim_kernel kernel;
  Here here;
  int64_t blocks;
  void* stream;

  template <class... A> int operator()(A... values) const {
    Module module = module_of(&source_mark);
    npu_sim_kernel own = kernel;
    own.module = module.path;
    own.key = Launched<L, A...>::key();
    own.cube = cube_library, own.cube_bytes = cube_end - cube_library;
    own.vector = vector_library, own.vector_bytes = vector_end - vector_library;
    own.loader = loader, own.loader_bytes = loader_end - loader;
    npu_sim_argument arguments[] = {given<A>(values)..., npu_sim_argument{}};
    return npu_sim_launch(&own, here.file, here.line, blocks, stream, arguments, sizeof...(A));
  }
};
#endif

template <class L> struct SidedKernel {
  npu_sim_kernel kernel;
  SidedLaunch<L> on(int64_t blocks, const void*, void* stream, Here here = Here::now()) const {
#if NPUSIM_SIDE
    return {};
#else
    return {kernel, here, blocks, stream};
#endif
  }
  SidedLaunch<L> on(int64_t blocks, int64_t, void* stream, Here here = Here::now()) const {
    return on(blocks, nullptr, stream, here);
  }
  SidedLaunch<L> on(int64_t blocks, int, void* stream, Here here = Here::now()) const {
    return on(blocks, nullptr, stream, here);
  }
  SidedLaunch<L> on(int64_t blocks, int64_t l2 = 0, Here here = Here::now()) const {
    return on(blocks, nullptr, nullptr, here);
  }
};

template <size_t count, class L> inline SidedKernel<L> sided(const Head (&heads)[count], const char* text, L) {
  const Head& found = head_of(heads, text);
  return {{text, found.parameters, nullptr, 0, 0, 0, __NPU_ARCH__, found.kind, found.vectors}};
}
#endif

// Becomes a kernel's process if the emulator has started this program as one, of this source.
static void (*entered)(void*);
static void* entered_with;
static void serve_kernel() { entered(entered_with); }

#if defined(NPUSIM_SIDE) && NPUSIM_SIDE
// What the program that loads both libraries calls for each core.
extern "C" void npusim_side() {
  static const Entry* found = nullptr;
  const char* asked = getenv("NPU_SIM_KERNEL_KEY");
  if (!found)
    for (const Entry& one : entries())
      if (asked && !strcmp(one.key, asked)) found = &one;
  if (!found) refuse(Here{"", 0}, "this launch must be there for both kinds of cores: its types must not depend on them");
  found->run();
}
#else
__attribute__((constructor)) static void serve_if_asked(int argc, char** argv, char**) {
  const char* asked = getenv("NPU_SIM_KERNEL");
  if (asked == nullptr) return;
  long long source = 0, function = 0, thunk = 0;
  int length = 0;
  Module module = module_of(&source_mark);
  if (sscanf(asked, "%lld %lld %lld %n", &source, &thunk, &function, &length) != 3 || strcmp(asked + length, module.path) ||
      source != &source_mark - module.base)
    return;
  entered = (void (*)(void*))(module.base + thunk);
  entered_with = (void*)(module.base + function);
  _exit(serve(argc, argv, serve_kernel));
}
#endif

}  // namespace npusim

#define NPUSIM_TEXT(...) #__VA_ARGS__
#define NPUSIM_TEXT_OF(...) NPUSIM_TEXT(__VA_ARGS__)
#define NPUSIM_BARE(...) __VA_ARGS__
// A kernel, and the same in parentheses as it is written.
#ifdef NPUSIM_SIDE
#define NPUSIM_KERNEL_OF(written, ...)                                \
  ::npusim::sided(npusim_heads, NPUSIM_TEXT_OF(NPUSIM_BARE written), \
                  [](auto... npusim_values) { __VA_ARGS__(npusim_values...); })
#else
#define NPUSIM_KERNEL_OF(written, ...) \
  ::npusim::kernel(npusim_heads, NPUSIM_TEXT_OF(NPUSIM_BARE written), __VA_ARGS__)
#endif
#define NPUSIM_KERNEL(...) NPUSIM_KERNEL_OF((__VA_ARGS__), __VA_ARGS__)
