"""Jitted pieces of the frame of vector kernels (`frame`): rows of bytes between GM and UB, with and without tails."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_data_copy, emit_data_copy_pad
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, MAX_BLOCK_COUNT, MAX_FIELD, free_flag

NO_END = np.int64(1) << np.int64(62)
"""End of a range that no store can pass."""

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
def _way(count, length, gm_step, exact):
    """Return how rows are copied: whole blocks in one instruction, exact bytes in one, or each by itself."""
    gap = gm_step - length
    fits = count <= 1 or (gap >= 0 and gap % BLOCK == 0 and gap // BLOCK <= MAX_FIELD and count <= MAX_BLOCK_COUNT)
    if length % BLOCK == 0 and fits:
        return _COPY
    if exact and (count <= 1 or (0 <= gap <= _MAX_PAD_GAP and count <= MAX_BLOCK_COUNT)):
        return _PAD
    return _EACH


@jit
def _move(
    rows, n, dst_space, dst, src_space, src, pad, count, length, src_gap, dst_gap, dtype, tensor, site, tile
):  # fmt: skip
    """One DataCopy (all lengths become blocks) or, with ``pad``, one DataCopyPad (UB gaps become blocks)."""
    if count <= 1:
        src_gap = np.int64(0)
        dst_gap = np.int64(0)
    if pad:
        if dst_space == Space.UB:
            dst_gap //= BLOCK
        else:
            src_gap //= BLOCK
        return emit_data_copy_pad(
            rows, n, dst_space, dst, src_space, src, count, length, src_gap, dst_gap, 0, 0, 0, 0, dtype, tensor,
            site, tile,
        )  # fmt: skip
    return emit_data_copy(
        rows, n, dst_space, dst, src_space, src, count, length // BLOCK, src_gap // BLOCK, dst_gap // BLOCK, dtype,
        tensor, site, tile,
    )  # fmt: skip


@jit
def load_rows(rows, n, ub, gm, count, length, ub_step, gm_step, exact, dtype, tensor, site, tile):
    """Load ``count`` rows of ``length`` bytes, ``gm_step`` bytes apart in GM and ``ub_step`` (whole blocks) in UB.

    ``exact``: DataCopyPad exists. Without it a row that is not whole blocks is read up to 31 bytes further. At most
    ``count`` rows are emitted.
    """
    way = _way(count, length, gm_step, exact)
    padded = (length + BLOCK - 1) // BLOCK * BLOCK
    if way != _EACH:
        return _move(
            rows, n, Space.UB, ub, Space.GM, gm, np.int64(way == _PAD), count, length, gm_step - length,
            ub_step - padded, dtype, tensor, site, tile,
        )  # fmt: skip
    pad = np.int64(exact != 0 and length != padded)
    for i in range(count):
        n = _move(
            rows, n, Space.UB, ub + i * ub_step, Space.GM, gm + i * gm_step, pad, np.int64(1),
            length if pad else padded, np.int64(0), np.int64(0), dtype, tensor, site, tile,
        )  # fmt: skip
    return n


@jit
def store_rows(rows, n, gm, ub, count, length, gm_step, ub_step, end, exact, dtype, tensor, site, tile):
    """Store ``count`` rows of ``length`` bytes, ``gm_step`` bytes apart in GM and ``ub_step`` (whole blocks) in UB.

    Without ``exact`` (DataCopyPad) a row that is not whole blocks is written up to 31 bytes further; where that would
    pass the GM address ``end``, the row is cut to whole blocks instead, and the caller stores the rest. At most
    ``count`` rows are emitted.
    """
    way = _way(count, length, gm_step, exact)
    padded = (length + BLOCK - 1) // BLOCK * BLOCK
    if way != _EACH:
        return _move(
            rows, n, Space.GM, gm, Space.UB, ub, np.int64(way == _PAD), count, length, ub_step - padded,
            gm_step - length, dtype, tensor, site, tile,
        )  # fmt: skip
    pad = np.int64(exact != 0 and length != padded)
    for i in range(count):
        piece = length if pad else padded
        if not pad and gm + i * gm_step + padded > end:
            piece = length // BLOCK * BLOCK
        if piece > 0:
            n = _move(
                rows, n, Space.GM, gm + i * gm_step, Space.UB, ub + i * ub_step, pad, np.int64(1), piece, np.int64(0),
                np.int64(0), dtype, tensor, site, tile,
            )  # fmt: skip
    return n
