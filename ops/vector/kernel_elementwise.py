"""Emitters of Mul (planes times one matrix) and Div (one value a plane, divided and spread over it)."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_div,
    emit_duplicate,
    emit_mul,
    emit_pipe_barrier,
    emit_scalar_copy,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, core_share, free_flag
from ops.vector.kernel_frame import (
    NO_END,
    hand_to_store,
    hand_to_vector,
    load_bytes,
    load_rows,
    prime_halves,
    store_bytes,
    store_rows,
)

LOAD, COMPUTE, SPREAD, STORE, TAIL, SYNC = range(6)
SITES = {LOAD: "LOAD", COMPUTE: "COMPUTE", SPREAD: "SPREAD", STORE: "STORE", TAIL: "TAIL", SYNC: "SYNC"}
STAGE, AT, END, TILE, LOADED, PLACE, FLIP = range(2, 9)
START, WORK, SPREADING, DONE = range(4)
MATRIX_EVENT = 2
"""Event of the matrix buffer; 0 and 1 are the halves of the data."""


@jit
def _load_matrix(rows, n, p, piece, length, is_first, tile):
    """Bring a piece of the matrix into UB, once the vector pipe is done with the one before."""
    if not is_first:
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, MATRIX_EVENT, LOAD, tile)
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, MATRIX_EVENT, LOAD, tile)
    gm = p["matrix"] + piece * p["piece"]
    # the flag of the data that follow on the same pipe says that the matrix is there too
    return load_bytes(rows, n, p["exact"], 0, gm, length, p["data"], p["matrix_tensor"], LOAD, tile)


@jit
def _store_range_end(rows, n, p, target, gm_end, planes, length, pitch, half, tile):
    """Store the last 32 bytes of a core's range, put together from the results of its last rows."""
    item = p["item"]
    slot = p["slot"]
    lanes = BLOCK // item
    n = emit_set_flag(rows, n, Pipe.V, Pipe.S, half, TAIL, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.S, half, TAIL, tile)
    per_plane = length // item
    for i in range(lanes):
        flat = planes * per_plane - lanes + i
        source = target + flat // per_plane * pitch + flat % per_plane * item
        n = emit_scalar_copy(rows, n, Space.UB, slot + i * item, Space.UB, source, p["data"], -1, TAIL, tile)
    n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE3, half, TAIL, tile)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE3, half, TAIL, tile)
    return store_bytes(rows, n, 0, gm_end - BLOCK, slot, BLOCK, p["data"], p["dst_tensor"], TAIL, tile)


@jit
def _mul_task(rows, n, p, task, is_last_of_core, loaded, tile):
    """Multiply a group of planes, or a piece of one plane."""
    half, item = tile & 1, p["item"]
    piece, group = task % p["pieces"], task // p["pieces"]
    first = group * p["group"]
    planes = np.int64(min(p["group"], p["planes"] - first))
    last_piece = piece == p["pieces"] - 1
    length = np.int64(p["plane"] - piece * p["piece"]) if last_piece else np.int64(p["piece"])
    pitch = np.int64((length + BLOCK - 1) // BLOCK * BLOCK)
    count = np.int64(length // item) if p["exact"] else np.int64(pitch // item)
    at = first * p["plane"] + piece * p["piece"]
    source, target = p["input"] + half * p["half"], p["output"] + half * p["half"]
    factor = np.int64(piece * p["piece"])
    if p["resident"]:
        if loaded < 0:
            n = _load_matrix(rows, n, p, 0, np.int64(p["plane"]), True, tile)
    else:
        factor = np.int64(0)
        if loaded != piece:
            n = _load_matrix(rows, n, p, piece, length, loaded < 0, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, LOAD, tile)
    n = load_rows(
        rows, n, source, p["src"] + at, planes, length, pitch, np.int64(p["plane"]), p["exact"], p["data"],
        p["src_tensor"], LOAD, tile,
    )  # fmt: skip
    n = hand_to_vector(rows, n, half, LOAD, COMPUTE, tile)
    for i in range(planes):
        n = emit_mul(rows, n, target + i * pitch, source + i * pitch, factor, p["data"], count, COMPUTE, tile)
    n = hand_to_store(rows, n, half, COMPUTE, STORE, tile)
    gm_end = p["dst"] + at + (planes - 1) * p["plane"] + length
    ends_range = is_last_of_core and task != p["tasks"] - 1 and not p["exact"] and length % BLOCK != 0
    n = store_rows(
        rows, n, p["dst"] + at, target, planes, length, np.int64(p["plane"]), pitch,
        gm_end if ends_range else NO_END, p["exact"], p["data"], p["dst_tensor"], STORE, tile,
    )  # fmt: skip
    if ends_range:
        n = _store_range_end(rows, n, p, target, gm_end, planes, length, pitch, half, tile)
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)


@jit
def emit_mul_planes(rows, params, state):
    """Write the next rows of core ``state[0]``: its groups of planes times the matrix.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `elementwise.MUL_PARAMS`[1]
        Places and lengths in bytes.
    state : int64[STATE_LENGTH]
        2 stage, 3 next task, 4 end, 5 tasks done, 6 piece of the matrix in UB.

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
        s[LOADED] = -1
        s[STAGE] = WORK if s[AT] < s[END] else DONE
        if s[STAGE] == WORK:
            n = prime_halves(rows, n, 0, SYNC)
    while s[STAGE] == WORK and n + p["step_rows"] <= len(rows):
        if s[AT] == s[END]:
            n = prime_halves(rows, n, 1, SYNC)
            s[STAGE] = DONE
        else:
            n = _mul_task(rows, n, p, s[AT], s[AT] + 1 == s[END], s[LOADED], s[TILE])
            s[LOADED] = s[AT] % p["pieces"]
            s[AT] += 1
            s[TILE] += 1
    return n


@jit
def _divide_unit(rows, n, p, first, channels, tile):
    """Quotients of a unit of channels, one block; lanes behind the last channel are quotients of anything."""
    lanes = np.int64(channels) if p["exact"] else np.int64(p["unit"])
    quotients = p["quotients"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, 0, LOAD, tile)
    n = load_bytes(
        rows, n, p["exact"], p["input"], p["src"] + first * p["item"], lanes * p["item"], p["data"], p["src_tensor"],
        LOAD, tile,
    )  # fmt: skip
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, 0, LOAD, tile)
    n = emit_duplicate(rows, n, p["divisors"], p["data"], lanes, p["divisor"], COMPUTE, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, COMPUTE, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, 0, COMPUTE, tile)
    n = emit_div(rows, n, quotients, p["input"], p["divisors"], p["data"], lanes, COMPUTE, tile)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, 0, COMPUTE, tile)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.S, 2, COMPUTE, tile)
    return emit_wait_flag(rows, n, Pipe.V, Pipe.S, 2, SPREAD, tile)


@jit
def _fill_lanes(rows, n, p, source, target, lanes, tile):
    """Copy one element to ``lanes`` lanes with the scalar unit."""
    for i in range(lanes):
        at = target + i * p["item"]
        n = emit_scalar_copy(rows, n, Space.UB, at, Space.UB, source, p["data"], -1, SPREAD, tile)
    return n


@jit
def _spread_plane(rows, n, p, channel, lane, ends_range, flip, tile):
    """Store one quotient over its whole plane of at least a block."""
    half = flip & 1
    buffer = p["output"] + half * p["half"]
    filled = np.int64(min(p["half"], (p["plane"] + BLOCK - 1) // BLOCK * BLOCK))
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.S, half, SPREAD, tile)
    source = p["quotients"] + lane * p["item"]
    n = _fill_lanes(rows, n, p, source, buffer, BLOCK // p["item"], tile)
    n = emit_set_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, tile)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, tile)
    done = np.int64(BLOCK)
    while done < filled:
        length = min(done, filled - done)
        n = emit_data_copy(
            rows, n, Space.UB, buffer + done, Space.UB, buffer, 1, length // BLOCK, 0, 0, p["data"], -1, SPREAD, tile
        )
        n = emit_pipe_barrier(rows, n, Pipe.V, SPREAD, tile)
        done += length
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, half, SPREAD, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, half, STORE, tile)
    gm, end = p["dst"] + channel * p["plane"], p["dst"] + (channel + 1) * p["plane"]
    cut = ends_range and not p["exact"] and p["plane"] % BLOCK != 0
    whole_end = end - p["plane"] % BLOCK if cut else end
    while gm < whole_end:
        length = np.int64(min(filled, whole_end - gm))
        n = store_bytes(rows, n, p["exact"], gm, buffer, length, p["data"], p["dst_tensor"], STORE, tile)
        gm += length
    if cut:
        # every lane of the buffer holds the quotient, so any block of it is the last one
        n = store_bytes(rows, n, 0, end - BLOCK, buffer, BLOCK, p["data"], p["dst_tensor"], TAIL, tile)
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.S, half, STORE, tile)


@jit
def _spread_short_planes(rows, n, p, first, channels, flip, tile):
    """Store a unit of planes of less than a block each, packed by the scalar unit."""
    half = flip & 1
    buffer = p["output"] + half * p["half"]
    per_plane = p["plane"] // p["item"]
    # the store takes whole blocks: planes that are missing in the last unit repeat the last one
    planes = channels if p["exact"] else p["unit"]
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.S, half, SPREAD, tile)
    for i in range(planes):
        source = p["quotients"] + min(i, channels - 1) * p["item"]
        n = _fill_lanes(rows, n, p, source, buffer + i * p["plane"], per_plane, tile)
    # the next unit's quotients overwrite the ones read here
    n = emit_set_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, tile)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.V, half, SPREAD, tile)
    n = emit_set_flag(rows, n, Pipe.S, Pipe.MTE3, half, SPREAD, tile)
    n = emit_wait_flag(rows, n, Pipe.S, Pipe.MTE3, half, STORE, tile)
    n = store_bytes(
        rows, n, p["exact"], p["dst"] + first * p["plane"], buffer, np.int64(channels * p["plane"]), p["data"],
        p["dst_tensor"], STORE, tile,
    )  # fmt: skip
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.S, half, STORE, tile)


@jit
def _div_flags(rows, n, drain):
    """Prime or drain the flags of the input block and of the halves of the output."""
    n = free_flag(rows, n, Pipe.V, Pipe.MTE2, 0, drain, SYNC)
    for half in range(2):
        n = free_flag(rows, n, Pipe.MTE3, Pipe.S, half, drain, SYNC)
    return n


@jit
def emit_div_planes(rows, params, state):
    """Write the next rows of core ``state[0]``: its units of channels, each quotient spread over its plane.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `elementwise.DIV_PARAMS`[1]
        Places and lengths in bytes, ``unit`` in channels.
    state : int64[STATE_LENGTH]
        2 stage, 3 next unit, 4 end, 7 next channel of the unit, 8 buffers stored.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    units = (p["planes"] + p["unit"] - 1) // p["unit"]
    if s[STAGE] == START:
        s[AT], s[END] = core_share(units, p["cores"], s[0])
        s[STAGE] = WORK if s[AT] < s[END] else DONE
        if s[STAGE] == WORK:
            n = _div_flags(rows, n, 0)
    while s[STAGE] != DONE and n + p["step_rows"] <= len(rows):
        first = np.int64(s[AT] * p["unit"])
        channels = np.int64(min(p["unit"], p["planes"] - first))
        if s[AT] == s[END]:
            n = _div_flags(rows, n, 1)
            s[STAGE] = DONE
        elif s[STAGE] == WORK:
            n = _divide_unit(rows, n, p, first, channels, s[AT])
            s[PLACE] = 0
            s[STAGE] = SPREADING
        elif p["plane"] < BLOCK:
            n = _spread_short_planes(rows, n, p, first, channels, s[FLIP], s[AT])
            s[FLIP] += 1
            s[AT] += 1
            s[STAGE] = WORK
        else:
            is_end = s[AT] + 1 == s[END] and s[AT] + 1 < units and s[PLACE] + 1 == channels
            n = _spread_plane(rows, n, p, first + s[PLACE], s[PLACE], is_end, s[FLIP], s[AT])
            s[FLIP] += 1
            s[PLACE] += 1
            if s[PLACE] == channels:
                s[AT] += 1
                s[STAGE] = WORK
    return n
