"""Jitted pieces of the frame of vector kernels (`frame`): the queues of its buffers, and moves between GM and UB.

On cores without DataCopyPad every copy is a multiple of 32 bytes: a load reads up to 31 bytes more, and whoever stores
takes care of the surplus.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_data_copy_pad,
    emit_scalar_copy,
    emit_set_flag,
    emit_trans_data_to_5hd,
    emit_wait_flag,
    set_dst_addresses,
    set_src_addresses,
)
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, MAX_BLOCK_COUNT, MAX_FIELD, ceil_div, core_share
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
def unit_share(p, core):
    """Return the tasks [start, end) of a core: whole units of ``p.unit`` tasks, the last unit has what is left over."""
    first, last = core_share(p.units, p.cores, core)
    return first * p.unit, p.tasks if last == p.units else last * p.unit


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


class Places(NamedTuple):
    """UB addresses of the 16 sources or destinations of a TransDataTo5HD, and the blocks from one repeat to the next.

    Address i is ``base + i % inner * step + i // inner * outer``, in bytes.
    """

    base: int
    inner: int
    step: int
    outer: int
    repeat_step: int


@jit
def turn(rows, n, dtype, repeat, dst_step, src_step, site, tile):
    """TransDataTo5HD with the address lists already set; a single repeat has no strides."""
    if repeat == 1:
        dst_step, src_step = 0, 0
    return emit_trans_data_to_5hd(rows, n, dtype, repeat, dst_step, src_step, site, tile)


@jit
def turn_places(rows, n, dtype, repeat, dst, src, site, tile):
    """TransDataTo5HD from some `Places` to others."""
    set_dst_addresses(rows, n, dst.base, dst.inner, dst.step, dst.outer)
    set_src_addresses(rows, n, src.base, src.inner, src.step, src.outer)
    return turn(rows, n, dtype, repeat, dst.repeat_step, src.repeat_step, site, tile)


@jit
def store_gathered_block(rows, n, p, end, places, slots, site):
    """Fetch the elements of the last block before GM address ``end`` again and store them behind all other stores.

    ``places``, ``int64[elements][2]``: where the C0 elements around each begin in the source, and its place among them,
    in bytes. ``slots`` is a UB address, the block is put together `SLOTS_BYTES` behind.
    """
    piece = p.c0 * p.item
    for i in range(len(places)):
        n = load_bytes(rows, n, 0, slots + i * piece, p.src + places[i, 0], piece, p.data, p.src_tensor, site, -1)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.S, 0, site, -1)

    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.S, 0, site, -1)
    block = slots + SLOTS_BYTES
    for i in range(len(places)):
        element = slots + i * piece + places[i, 1]
        n = emit_scalar_copy(
            rows, n, Space.UB, block + i * p.item, Space.UB, element, p.data, tensor=-1, site=site, tile=-1
        )
    n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE3, 0, site, -1)

    n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE3, 0, site, -1)
    return store_bytes(rows, n, 0, end - BLOCK, block, BLOCK, p.data, p.dst_tensor, site, -1)
