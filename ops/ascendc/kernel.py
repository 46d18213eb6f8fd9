"""What each call of the Conv3DBackpropFilter object emits, made of the pieces of the operator's kernel."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_set_hf32
from ops.conv3d_backprop_filter.walk_split import (
    EPILOGUE,
    PROLOGUE,
    block_rows,
    buffer_flags,
    next_block,
    set_single_shape,
    store_rows,
)


@jit
def init_rows(rows, params, s):
    """Init: HF32 mode, and the flags that say that every buffer is free."""
    n = emit_set_hf32(rows, 0, params[0]["hf32"], PROLOGUE, -1)
    return buffer_flags(rows, n, params[0], s, 0, PROLOGUE)


@jit
def start_walk(params, s):
    """Start the walk of the single shape in the state at its first base block."""
    set_single_shape(params[0], s)


@jit
def advance_walk(params, s):
    """Go on to the next base block; return whether there is one."""
    return next_block(params[0], s)


@jit
def iterate_rows(rows, params, s):
    """Iterate: K steps of the current base block, as many as there is room for; s[K] tells how far it is."""
    return block_rows(rows, 0, params[0], s)


@jit
def tensor_rows(rows, params, s, atomic, sequential):
    """GetTensorC: the finished block leaves L0C."""
    return store_rows(rows, 0, params[0], s, atomic, sequential)


@jit
def end_rows(rows, params, s):
    """End: wait until every buffer is free, and switch HF32 off."""
    n = buffer_flags(rows, 0, params[0], s, 1, EPILOGUE)
    if params[0]["hf32"]:
        n = emit_set_hf32(rows, n, 0, EPILOGUE, -1)
    return n
