// Stands behind the kernel's source: the program's start.
#pragma once
#include "npusim/mask.h"

namespace npusim {

template <class... A> void call(void (*kernel)(A...)) { call(kernel, std::index_sequence_for<A...>{}); }

// The blocks of a core one after another. ASSUMED of more blocks than cores: each core takes those that lie a whole
// number of rounds behind its first, and begins one when all of the one before is done.
template <class K> void run_blocks(K kernel) {
  while (true) {
    call(kernel);
    Here here = last_call();
    settle_units(here);
    end_left_buffers(here);
    if (self->block + control->blocks_at_once >= control->blocks) return;
    here = {"", 0};
    if (self->at_end) self->at_end();
    emit_pipe_barrier(here, pipe::ALL);
    emit_set_atomic(here, data::NONE);
#ifdef NPUSIM_HAS_SET_VECTOR_MASK
    if (has_vector()) {
      emit_set_mask_norm(here);
      emit_reset_mask(here);
    }
#endif
    (Registers&)*self = Registers();
    self->block += control->blocks_at_once;
  }
}
}  // namespace npusim

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
