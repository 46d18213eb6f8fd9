"""Jitted pieces of the frame of vector kernels (`frame`): the queues of its buffers, and moves between GM and UB.

On cores without DataCopyPad every copy is a multiple of 32 bytes: a load reads up to 31 bytes more, and whoever stores
takes care of the surplus.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_data_copy_pad,
    emit_scalar_copy,
    emit_set_flag,
    emit_trans_data_to_5hd,
    emit_wait_flag,
)
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, MAX_BLOCK_COUNT, MAX_FIELD, ceil_div, free_flag
from ops.common.queues import Queue

NO_END = np.int64(1) << np.int64(62)
"""End of a range that no store can pass."""

SLOTS_BYTES = 512
"""UB bytes of the pieces that a block is gathered from: 16 of 32 or 8 of 64 bytes at most."""

IN = Queue(producer=Pipe.MTE2.value, consumer=Pipe.V.value)
"""The halves of the input buffer: loaded, then computed on."""
OUT = Queue(producer=Pipe.V.value, consumer=Pipe.MTE3.value)
"""The halves of the output buffer: computed, then stored."""

_COPY, _PAD, _EACH = range(3)
_MAX_PAD_GAP = 2**31 - 1


@jit
def prime_halves(rows, n, drain, site):
    """Set (``drain`` 0) or wait for (1) the flags that say "this half is free" of the two halves of both buffers."""
    for half in range(2):
        n = free_flag(rows, n, Pipe.V, Pipe.MTE2, half, drain, site)
        n = free_flag(rows, n, Pipe.MTE3, Pipe.V, half, drain, site)
    return n


@jit
def hand_to_vector(rows, n, half, load, compute, tile):
    """Let the vector pipe compute on a half that was loaded, into one whose last results have left."""
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, half, load, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, half, compute, tile)
    return emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, half, compute, tile)


@jit
def hand_to_store(rows, n, half, compute, store, tile):
    """Let the next load into a half begin that the vector pipe is done with, and the store of its results."""
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, half, compute, tile)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, half, compute, tile)
    return emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, half, store, tile)


@jit
def _move(rows, n, dst_space, dst, src_space, src, count, length, src_gap, dst_gap, pad, dtype, tensor, site, tile):
    """Copy ``count`` pieces of ``length`` bytes: to the byte with ``pad``, else rounded up to blocks; gaps in bytes."""
    if pad:
        # DataCopyPad counts gaps in UB in blocks
        src_gap, dst_gap = (src_gap, dst_gap // BLOCK) if dst_space == Space.UB else (src_gap // BLOCK, dst_gap)
        return emit_data_copy_pad(
            rows, n, dst_space, dst, src_space, src, block_count=count, block_len=length, src_gap=src_gap,
            dst_gap=dst_gap, left_padding=0, right_padding=0, mode=0, value_bits=0, dtype=dtype, tensor=tensor,
            site=site, tile=tile,
        )  # fmt: skip
    return emit_data_copy(
        rows, n, dst_space, dst, src_space, src, block_count=count, block_len=ceil_div(length, BLOCK),
        src_gap=src_gap // BLOCK, dst_gap=dst_gap // BLOCK, dtype=dtype, tensor=tensor, site=site, tile=tile,
    )  # fmt: skip


@jit
def load_bytes(rows, n, exact, ub, gm, length, dtype, tensor, site, tile):
    """Load ``length`` bytes from GM: exactly these with ``exact`` (DataCopyPad exists), else rounded up to blocks."""
    pad = exact != 0 and length % BLOCK != 0
    return _move(rows, n, Space.UB, ub, Space.GM, gm, 1, length, 0, 0, pad, dtype, tensor, site, tile)


@jit
def store_bytes(rows, n, exact, gm, ub, length, dtype, tensor, site, tile):
    """Store ``length`` bytes to GM: exactly these with ``exact`` (DataCopyPad exists), else rounded up to blocks."""
    pad = exact != 0 and length % BLOCK != 0
    return _move(rows, n, Space.GM, gm, Space.UB, ub, 1, length, 0, 0, pad, dtype, tensor, site, tile)


@jit
def _way(count, length, gm_gap, exact):
    """Return how rows are copied: whole blocks in one instruction, exact bytes in one, or each by itself."""
    fits = gm_gap >= 0 and gm_gap % BLOCK == 0 and gm_gap // BLOCK <= MAX_FIELD and count <= MAX_BLOCK_COUNT
    if length % BLOCK == 0 and (count <= 1 or fits):
        return _COPY
    if exact and (count <= 1 or (0 <= gm_gap <= _MAX_PAD_GAP and count <= MAX_BLOCK_COUNT)):
        return _PAD
    return _EACH


@jit
def load_rows(rows, n, ub, gm, count, length, ub_step, gm_step, exact, dtype, tensor, site, tile):
    """Load ``count`` rows of ``length`` bytes, ``gm_step`` bytes apart in GM and ``ub_step`` (whole blocks) in UB.

    ``exact``: DataCopyPad exists. Without it a row that is not whole blocks is read up to 31 bytes further. At most
    ``count`` rows are emitted.
    """
    gm_gap, ub_gap = gm_step - length, ub_step - ceil_div(length, BLOCK) * BLOCK
    if count <= 1:
        gm_gap, ub_gap = 0, 0
    way = _way(count, length, gm_gap, exact)
    if way != _EACH:
        return _move(
            rows, n, Space.UB, ub, Space.GM, gm, count, length, src_gap=gm_gap, dst_gap=ub_gap, pad=way == _PAD,
            dtype=dtype, tensor=tensor, site=site, tile=tile,
        )  # fmt: skip
    for i in range(count):
        n = load_bytes(rows, n, exact, ub + i * ub_step, gm + i * gm_step, length, dtype, tensor, site, tile)
    return n


@jit
def store_rows(rows, n, gm, ub, count, length, gm_step, ub_step, end, exact, dtype, tensor, site, tile):
    """Store ``count`` rows of ``length`` bytes, ``gm_step`` bytes apart in GM and ``ub_step`` (whole blocks) in UB.

    Without ``exact`` (DataCopyPad) a row that is not whole blocks is written up to 31 bytes further; where that would
    pass the GM address ``end``, the row is cut to whole blocks instead, and the caller stores the rest. At most
    ``count`` rows are emitted.
    """
    padded = ceil_div(length, BLOCK) * BLOCK
    gm_gap, ub_gap = gm_step - length, ub_step - padded
    if count <= 1:
        gm_gap, ub_gap = 0, 0
    way = _way(count, length, gm_gap, exact)
    if way != _EACH:
        return _move(
            rows, n, Space.GM, gm, Space.UB, ub, count, length, src_gap=ub_gap, dst_gap=gm_gap, pad=way == _PAD,
            dtype=dtype, tensor=tensor, site=site, tile=tile,
        )  # fmt: skip
    for i in range(count):
        target = gm + i * gm_step
        piece = length if exact or target + padded <= end else length // BLOCK * BLOCK
        if piece > 0:
            n = store_bytes(rows, n, exact, target, ub + i * ub_step, piece, dtype, tensor, site, tile)
    return n


@jit
def turn(rows, n, dtype, repeat, dst_step, src_step, site, tile):
    """TransDataTo5HD with the address lists already set; a single repeat has no strides."""
    if repeat == 1:
        dst_step, src_step = 0, 0
    return emit_trans_data_to_5hd(rows, n, dtype, repeat, dst_step, src_step, site, tile)


@jit
def store_gathered_block(rows, n, target, pieces, lanes, step, slots, dtype, src_tensor, dst_tensor, site):
    """Fetch the elements of one block again, one by one, and store them behind all other stores.

    ``pieces`` are the GM addresses of the ``step`` bytes around each element, ``lanes`` the elements' places in them
    (int64 arrays, an entry an element); ``slots`` is a UB address, the block is put together `SLOTS_BYTES` behind.
    """
    count = len(pieces)
    item = BLOCK // count
    for i in range(count):
        n = load_rows(rows, n, slots + i * step, pieces[i], 1, step, 0, 0, 0, dtype, src_tensor, site, -1)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.S, 0, site, -1)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.S, 0, site, -1)
    block = slots + SLOTS_BYTES
    for i in range(count):
        source = slots + i * step + lanes[i]
        n = emit_scalar_copy(rows, n, Space.UB, block + i * item, Space.UB, source, dtype, -1, site, -1)
    n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE3, 0, site, -1)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE3, 0, site, -1)
    return store_rows(rows, n, target, block, 1, BLOCK, 0, 0, NO_END, 0, dtype, dst_tensor, site, -1)
