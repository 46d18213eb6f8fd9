"""What each call of the Conv3DBackpropFilter object emits, made of the pieces of the operator's kernel.

``walk`` is `walk_split.WALK`[1], ``params`` `params.SPLIT_PARAMS`[1].
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_set_hf32
from ops.conv3d_backprop_filter import walk_split
from ops.conv3d_backprop_filter.parts import whole_maps


@jit
def init_rows(rows, params):
    """Init: HF32 mode, and the flags that say that every buffer is free."""
    n = 0
    if not params[0].hf32:  # the class says the mode where it is off, too: a call before may have left it on
        n = emit_set_hf32(rows, n, 0, walk_split.PROLOGUE, -1)
    return walk_split.open_buffers(rows, n, params[0])


@jit
def start_walk(params, walk):
    """Begin the single shape that ``walk`` has been given."""
    walk[0].dw_plane = params[0].cout_g
    walk_split.start_single_shape(params[0], walk, whole_maps(params[0]))


@jit
def iterate_rows(rows, params, walk, block):
    """Iterate: go to base block ``block`` and emit all its K steps; yield how many rows, as a launch's kernel does."""
    p = params[0]
    walk_split.start_block(p, walk, block)
    n = 0
    for k in range(walk[0].k_steps):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        n = walk_split.k_step(rows, n, p, walk, k)
    yield n


@jit
def tensor_rows(rows, params, walk, atomic, sequential):
    """GetTensorC: the finished block leaves L0C."""
    return walk_split.store_block(rows, 0, params[0], walk, atomic, sequential)


@jit
def end_rows(rows, params, walk):
    """End: wait until every buffer is free, and switch HF32 off."""
    return walk_split.close_buffers(rows, 0, params[0], walk)
