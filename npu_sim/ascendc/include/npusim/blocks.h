// Stands behind a source with kernels: what a core does of a launch.
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
