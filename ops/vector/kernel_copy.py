"""Kernels of the strided copies: rows through UB, and single elements through the scalar unit.

`copy_rows`: a task is a group of equal rows, or a piece of one row. Split cores move exact bytes; unified cores whole
blocks, with the tails of `ops.vector.frame`. `copy_elements` and `copy_staged`: unified cores and runs of less than 32
bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_scalar_copy, emit_set_flag, emit_wait_flag
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import Queue, alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import NO_END, load_rows, store_bytes, store_rows

LOAD, STORE, TAIL, SYNC, ELEMENT = range(5)
SITES = {LOAD: "LOAD", STORE: "STORE", TAIL: "TAIL", SYNC: "SYNC", ELEMENT: "ELEMENT"}

THROUGH = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE3.value)
"""The halves of the rows: loaded, then stored."""
STAGED = Queue(producer=Pipe.S.value, consumer=Pipe.MTE3.value)
"""The halves of what the scalar unit puts together: ends of rows, or elements."""


@jit
def _addresses(p, index):
    """Return the byte addresses of an outer index in source and destination, last axis fastest."""
    src, dst = p.src, p.dst
    for axis in range(p.rank - 1, -1, -1):
        at = index % p.extents[axis]
        src, dst = src + at * p.src_strides[axis], dst + at * p.dst_strides[axis]
        index //= p.extents[axis]
    return src, dst


class _Rows(NamedTuple):
    """Rows of a task, places and lengths in bytes; those from ``first_cut`` on end in a block of their own."""

    src: int
    dst: int
    ub: int
    slots: int
    count: int
    length: int
    pitch: int
    first_cut: int


@jit
def _rows_of(p, task, is_last_of_core, half):
    """Return the rows of a task in a half of UB."""
    piece, group = task % p.pieces, task // p.pieces % p.groups
    first = group * p.group
    count = min(p.group, p.rows - first)
    length = p.run - piece * p.piece if piece == p.pieces - 1 else p.piece
    src, dst = _addresses(p, task // p.pieces // p.groups)
    src, dst = src + first * p.row_src + piece * p.piece, dst + first * p.row_dst + piece * p.piece
    first_cut = count
    if not p.pads and length % BLOCK != 0:
        # what may not spill: all rows of a view inside something bigger, else the last one of the core's range
        if not p.dense:
            first_cut = 0
        elif is_last_of_core and not (p.may_spill and task == p.tasks - 1):
            first_cut = count - 1
    slots = p.slots + half * p.slots_per_half * BLOCK
    return _Rows(src, dst, half * p.half, slots, count, length, ceil_div(length, BLOCK) * BLOCK, first_cut)


@jit
def _assemble(rows, n, p, r, tile):
    """Copy the last 32 bytes of the rows that are cut into blocks of their own."""
    for i in range(r.first_cut, r.count):
        source, target = r.ub + i * r.pitch + r.length - BLOCK, r.slots + (i - r.first_cut) * BLOCK
        for at in range(0, BLOCK, p.scalar):
            n = emit_scalar_copy(
                rows, n, Space.UB, target + at, Space.UB, source + at, p.data, tensor=-1, site=TAIL, tile=tile
            )
    return n


@jit
def _store(rows, n, p, r, tile):
    """Store rows; those that are cut as whole blocks and then their last 32 bytes."""
    if r.first_cut == r.count:
        return store_rows(
            rows, n, r.dst, r.ub, r.count, r.length, p.row_dst, r.pitch, NO_END, p.pads, p.data, p.dst_tensor, STORE,
            tile,
        )  # fmt: skip
    for i in range(r.count):
        target = r.dst + i * p.row_dst
        whole = r.length if i < r.first_cut else r.length // BLOCK * BLOCK
        n = store_bytes(rows, n, p.pads, target, r.ub + i * r.pitch, whole, p.data, p.dst_tensor, STORE, tile)
        if i >= r.first_cut:
            end, slot = target + r.length, r.slots + (i - r.first_cut) * BLOCK
            n = store_bytes(rows, n, p.pads, end - BLOCK, slot, BLOCK, p.data, p.dst_tensor, TAIL, tile)
    return n


@jit
def _task(rows, n, p, task, is_last_of_core, tile):
    """Copy one task through half ``tile & 1``."""
    half = tile & 1
    r = _rows_of(p, task, is_last_of_core, half)
    cuts = r.first_cut < r.count
    # only the last task of a core cuts a single row, so nobody fills that slot again
    reuses_slots = cuts and p.slots_per_half > 1

    n = alloc(rows, n, THROUGH, half, LOAD, tile)
    n = load_rows(rows, n, r.ub, r.src, r.count, r.length, r.pitch, p.row_src, p.pads, p.data, p.src_tensor, LOAD, tile)
    n = enque(rows, n, THROUGH, half, LOAD, tile)

    if cuts:
        # the scalar unit reads the loaded rows too
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.S, half, LOAD, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.S, half, TAIL, tile)
        if reuses_slots:
            n = alloc(rows, n, STAGED, half, TAIL, tile)
        n = _assemble(rows, n, p, r, tile)
        n = enque(rows, n, STAGED, half, TAIL, tile)

    n = deque(rows, n, THROUGH, half, STORE, tile)
    if cuts:
        n = deque(rows, n, STAGED, half, STORE, tile)
    n = _store(rows, n, p, r, tile)
    if reuses_slots:
        n = free(rows, n, STAGED, half, STORE, tile)
    return free(rows, n, THROUGH, half, STORE, tile)


@jit
def copy_rows(rows, params, core, phase):
    """Copy the tasks of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `copy.COPY_PARAMS`[1], places, lengths and strides in bytes.
    """
    p = params[0]
    first, end = core_share(p.tasks, p.cores, core)
    if first == end:
        return
    if p.slots_per_half > 1:
        n = open_queues(rows, 0, (THROUGH, STAGED), 2, SYNC)
    else:
        n = open_queues(rows, 0, (THROUGH,), 2, SYNC)
    for tile in range(end - first):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        task = first + tile
        n = _task(rows, n, p, task, task + 1 == end, tile)
    if p.slots_per_half > 1:
        yield close_queues(rows, n, (THROUGH, STAGED), 2, SYNC)
    else:
        yield close_queues(rows, n, (THROUGH,), 2, SYNC)


@jit
def _element_share(p, core):
    """Return the elements [start, end) of a core: whole units, the last core has the rest too."""
    units = max(p.tasks // p.unit, 1)
    first, last = core_share(units, p.cores, core)
    return first * p.unit, last * p.unit if last < units else p.tasks


@jit
def _fetch(rows, n, p, element, ub, tile):
    """Copy one element from GM into UB."""
    source, _ = _addresses(p, element)
    for at in range(0, p.item, p.scalar):
        n = emit_scalar_copy(
            rows, n, Space.UB, ub + at, Space.GM, source + at, p.data, p.src_tensor, site=ELEMENT, tile=tile
        )
    return n


@jit
def copy_elements(rows, params, core, phase):
    """Copy the elements of ``core`` one by one; see `npu_sim.program.launch.Launch`.

    ``params``: `copy.COPY_PARAMS`[1], places and strides in bytes.
    """
    p = params[0]
    start, end = _element_share(p, core)
    n = 0
    for element in range(start, end):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        # the scalar unit works in order, so one place in UB serves all elements
        n = _fetch(rows, n, p, element, ub=0, tile=0)
        _, target = _addresses(p, element)
        for at in range(0, p.item, p.scalar):
            n = emit_scalar_copy(rows, n, Space.GM, target + at, Space.UB, at, p.data, p.dst_tensor, site=STORE, tile=0)
    yield n


@jit
def _store_staged(rows, n, p, first, count, tile):
    """Store ``count`` staged elements; the end of the view is not passed where something lies behind it."""
    half = tile & 1
    ub, slot = half * p.half, p.slots + half * BLOCK
    gm, length = p.dst + first * p.item, count * p.item
    tail, per_block = length % BLOCK, BLOCK // p.item
    cut = tail != 0 and not p.may_spill
    whole = length - tail if cut else length

    if cut:
        # a core owns 32 bytes at least: `copy` sends shorter views through single elements
        for i in range(per_block):
            n = _fetch(rows, n, p, first + count - per_block + i, slot + i * p.item, tile)
    elif tail != 0:
        for i in range(per_block - tail // p.item):
            n = _fetch(rows, n, p, first + count - 1, ub + length + i * p.item, tile)
    n = enque(rows, n, STAGED, half, ELEMENT, tile)

    n = deque(rows, n, STAGED, half, STORE, tile)
    if whole > 0:
        n = store_bytes(rows, n, 0, gm, ub, whole, p.data, p.dst_tensor, STORE, tile)
    if cut:
        n = store_bytes(rows, n, 0, gm + length - BLOCK, slot, BLOCK, p.data, p.dst_tensor, TAIL, tile)
    return free(rows, n, STAGED, half, STORE, tile)


@jit
def copy_staged(rows, params, core, phase):
    """Gather the elements of ``core`` in UB, ``group`` at a time, and store them in blocks: into a dense view.

    ``params``: `copy.COPY_PARAMS`[1], places and strides in bytes. See `npu_sim.program.launch.Launch`.
    """
    p = params[0]
    start, end = _element_share(p, core)
    if start == end:
        return
    n = open_queues(rows, 0, (STAGED,), 2, SYNC)
    for tile, at in enumerate(range(start, end, p.group)):
        half, count = tile & 1, min(p.group, end - at)
        n = alloc(rows, n, STAGED, half, ELEMENT, tile)
        for i in range(count):
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            n = _fetch(rows, n, p, at + i, half * p.half + i * p.item, tile)
        n = _store_staged(rows, n, p, at, count, tile)
    yield close_queues(rows, n, (STAGED,), 2, SYNC)
