"""Emitters of the strided copies: rows through UB, and single elements through the scalar unit.

`emit_rows`: a task is a group of equal rows, or a piece of one row. Split cores move exact bytes; unified cores whole
blocks, with the tails of `ops.vector.frame`. `emit_scalars`: unified cores and runs of less than 32 bytes.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_scalar_copy, emit_set_flag, emit_wait_flag
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, core_share, free_flag
from ops.vector.kernel_frame import NO_END, load_rows, store_bytes, store_rows

LOAD, STORE, TAIL, SYNC, ELEMENT = range(5)
SITES = {LOAD: "LOAD", STORE: "STORE", TAIL: "TAIL", SYNC: "SYNC", ELEMENT: "ELEMENT"}
STAGE, AT, END, TILE, PLACE = 2, 3, 4, 5, 6
START, WORK, DONE = range(3)
ELEMENTS_PER_STEP = 32


@jit
def _gm_address(p, base, strides, index):
    """Return the byte address of an outer index, last axis fastest."""
    for i in range(p["rank"]):
        axis = p["rank"] - 1 - i
        extent = p["extents"][axis]
        base += index % extent * strides[axis]
        index //= extent
    return base


@jit
def _store(rows, n, p, gm, ub, count, length, first_cut, slots, tile):
    """Store ``count`` rows of ``length`` bytes; rows from ``first_cut`` on end in a block assembled in ``slots``."""
    pitch = np.int64((length + BLOCK - 1) // BLOCK * BLOCK)
    if first_cut >= count:
        return store_rows(
            rows, n, gm, ub, count, length, p["row_dst"], pitch, NO_END, p["pads"], p["data"], p["dst_tensor"], STORE,
            tile,
        )  # fmt: skip
    for i in range(count):
        whole = length if i < first_cut else np.int64(length // BLOCK * BLOCK)
        here, there = ub + i * pitch, gm + i * p["row_dst"]
        n = store_bytes(rows, n, p["pads"], there, here, whole, p["data"], p["dst_tensor"], STORE, tile)
        if i >= first_cut:
            n = store_bytes(
                rows,
                n,
                p["pads"],
                there + length - BLOCK,
                slots + (i - first_cut) * BLOCK,
                BLOCK,
                p["data"],
                p["dst_tensor"],
                TAIL,
                tile,
            )
    return n


@jit
def _assemble(rows, n, p, ub, count, length, first_cut, slots, tile):
    """Copy the last 32 bytes of the rows from ``first_cut`` on into blocks of their own."""
    pitch = np.int64((length + BLOCK - 1) // BLOCK) * BLOCK
    for i in range(first_cut, count):
        source, target = ub + i * pitch + length - BLOCK, slots + (i - first_cut) * BLOCK
        for at in range(0, BLOCK, p["scalar"]):
            n = emit_scalar_copy(
                rows, n, Space.UB, target + at, Space.UB, source + at, p["scalar_data"], -1, TAIL, tile
            )
    return n


@jit
def _free_halves(rows, n, p, drain):
    """Prime or drain the flags of the free halves."""
    for half in range(2):
        n = free_flag(rows, n, Pipe.MTE3, Pipe.MTE2, half, drain, SYNC)
        if p["slots_per_half"] > 1:
            n = free_flag(rows, n, Pipe.MTE3, Pipe.S, half, drain, SYNC)
    return n


@jit
def _task(rows, n, p, task, is_last_of_core, tile):
    """Copy one task through half ``tile & 1``."""
    half = tile & 1
    piece, rest = task % p["pieces"], task // p["pieces"]
    group, outer = rest % p["groups"], rest // p["groups"]
    first = group * p["group"]
    count = np.int64(min(p["group"], p["rows"] - first))
    ends_row = piece == p["pieces"] - 1
    length = np.int64(p["run"] - piece * p["piece"]) if ends_row else np.int64(p["piece"])
    source = _gm_address(p, p["src"], p["src_strides"], outer) + first * p["row_src"] + piece * p["piece"]
    target = _gm_address(p, p["dst"], p["dst_strides"], outer) + first * p["row_dst"] + piece * p["piece"]
    ub, slots = half * p["half"], p["slots"] + half * p["slots_per_half"] * BLOCK
    # rows from here on may not spill: all of a view inside something bigger, else the last one of the core's range
    first_cut = count
    if not p["pads"] and length % BLOCK != 0:
        if not p["dense"]:
            first_cut = np.int64(0)
        elif is_last_of_core and not (p["may_spill"] and task == p["tasks"] - 1):
            first_cut = count - 1
    cuts = first_cut < count
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.MTE2, half, LOAD, tile)
    pitch = np.int64((length + BLOCK - 1) // BLOCK * BLOCK)
    n = load_rows(
        rows, n, ub, source, count, length, pitch, p["row_src"], p["pads"], p["data"], p["src_tensor"], LOAD, tile
    )
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE3, half, LOAD, tile)
    if cuts:
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.S, half, LOAD, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.S, half, TAIL, tile)
        if p["slots_per_half"] > 1:
            n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.S, half, TAIL, tile)
        n = _assemble(rows, n, p, ub, count, length, first_cut, slots, tile)
        n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE3, half, TAIL, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE3, half, STORE, tile)
    if cuts:
        n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE3, half, STORE, tile)
    n = _store(rows, n, p, target, ub, count, length, first_cut, slots, tile)
    if cuts and p["slots_per_half"] > 1:
        n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.S, half, STORE, tile)
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.MTE2, half, STORE, tile)


@jit
def emit_rows(rows, params, state):
    """Write the next rows of core ``state[0]``: its tasks, one after another.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `copy.COPY_PARAMS`[1]
        Places, extents and strides in bytes.
    state : int64[STATE_LENGTH]
        2 stage, 3 next task, 4 end, 5 tasks done.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        s[AT], s[END] = core_share(p["tasks"], p["cores"], s[0])
        s[STAGE] = WORK if s[AT] < s[END] else DONE
        if s[STAGE] == WORK:
            n = _free_halves(rows, n, p, 0)
    while s[STAGE] == WORK and n + p["step_rows"] <= len(rows):
        if s[AT] == s[END]:
            n = _free_halves(rows, n, p, 1)
            s[STAGE] = DONE
        else:
            n = _task(rows, n, p, s[AT], s[AT] + 1 == s[END], s[TILE])
            s[AT] += 1
            s[TILE] += 1
    return n


@jit
def _fetch(rows, n, p, element, ub, tile):
    """Copy one element from GM into UB."""
    source = _gm_address(p, p["src"], p["src_strides"], element)
    for at in range(0, p["item"], p["scalar"]):
        n = emit_scalar_copy(
            rows, n, Space.UB, ub + at, Space.GM, source + at, p["scalar_data"], p["src_tensor"], ELEMENT, tile
        )
    return n


@jit
def _free_staging(rows, n, drain):
    """Prime or drain the flags of the free halves of the staging buffer."""
    for half in range(2):
        n = free_flag(rows, n, Pipe.MTE3, Pipe.S, half, drain, SYNC)
    return n


@jit
def _store_staged(rows, n, p, first, count, tile):
    """Store ``count`` staged elements; the end of the view is not passed where something lies behind it."""
    half = tile & 1
    ub, gm, length = half * p["half"], p["dst"] + first * p["item"], np.int64(count * p["item"])
    slot = p["slots"] + half * BLOCK
    tail = length % BLOCK
    cut = tail != 0 and not p["may_spill"]
    if tail != 0 and not cut:
        for i in range((BLOCK - tail) // p["item"]):
            n = _fetch(rows, n, p, first + count - 1, ub + length + i * p["item"], tile)
    if cut:
        # a core owns 32 bytes at least: `copy` sends shorter views through single elements
        for i in range(BLOCK // p["item"]):
            n = _fetch(rows, n, p, first + count - BLOCK // p["item"] + i, slot + i * p["item"], tile)
    n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE3, half, ELEMENT, tile)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE3, half, STORE, tile)
    whole = np.int64(length - tail) if cut else length
    if whole > 0:
        n = store_bytes(rows, n, 0, gm, ub, whole, p["data"], p["dst_tensor"], STORE, tile)
    if cut:
        n = store_bytes(rows, n, 0, gm + length - BLOCK, slot, BLOCK, p["data"], p["dst_tensor"], TAIL, tile)
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.S, half, STORE, tile)


@jit
def emit_scalars(rows, params, state):
    """Write the next rows of core ``state[0]``: its elements, one after another.

    Into a dense view the elements are staged in UB and stored in blocks, else each is stored alone.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `copy.COPY_PARAMS`[1]
        ``group`` elements are staged at a time; a core owns a multiple of ``unit`` elements, the last one the rest too.
    state : int64[STATE_LENGTH]
        2 stage, 3 next element, 4 end, 5 buffers stored, 6 elements staged.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    dense = p["dense"]
    if s[STAGE] == START:
        units = max(p["tasks"] // p["unit"], 1)
        first, end = core_share(units, p["cores"], s[0])
        s[AT] = first * p["unit"]
        s[END] = end * p["unit"] if end < units else p["tasks"]
        s[STAGE] = WORK if s[AT] < s[END] else DONE
        if s[STAGE] == WORK and dense:
            n = _free_staging(rows, n, 0)
    while s[STAGE] == WORK and n + p["step_rows"] <= len(rows):
        if s[AT] == s[END]:
            if dense:
                n = _free_staging(rows, n, 1)
            s[STAGE] = DONE
        elif not dense:
            n = _fetch(rows, n, p, s[AT], 0, s[TILE])
            target = _gm_address(p, p["dst"], p["dst_strides"], s[AT])
            for at in range(0, p["item"], p["scalar"]):
                n = emit_scalar_copy(
                    rows, n, Space.GM, target + at, Space.UB, at, p["scalar_data"], p["dst_tensor"], STORE, s[TILE]
                )
            s[AT] += 1
        else:
            half = s[TILE] & 1
            count = min(p["group"], s[END] - s[AT])
            if s[PLACE] == 0:
                n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.S, half, ELEMENT, s[TILE])
            last = min(count, s[PLACE] + ELEMENTS_PER_STEP)
            for i in range(s[PLACE], last):
                n = _fetch(rows, n, p, s[AT] + i, half * p["half"] + i * p["item"], s[TILE])
            s[PLACE] = last
            if last == count:
                n = _store_staged(rows, n, p, s[AT], count, s[TILE])
                s[AT] += count
                s[TILE] += 1
                s[PLACE] = 0
    return n
