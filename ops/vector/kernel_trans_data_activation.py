"""Emitters of TransData for feature maps: NCHW and NCDHW to NC1HWC0 and NDC1HWC0, and back.

Unit of work: a tile of pixels of one plane (n, d, c1). Both halves of UB hold [C0 channel rows][pitch pixels] on the
plain side and [pitch pixels][C0] on the blocked side; TransDataTo5HD turns one into the other.

Sources: asc-devkit ``docs/zh/api/SIMD-API``, TransDataTo5HD page (address lists of NCHW to NC1HWC0), DataCopy and
DataCopyPad pages. ASSUMED: tile sizes and task order; the library's dynamic kernel is not published.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_duplicate,
    emit_pipe_barrier,
    emit_set_flag,
    emit_trans_data_to_5hd,
    emit_wait_flag,
    set_dst_addresses,
    set_src_addresses,
)
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, core_share
from ops.vector.kernel_frame import (
    NO_END,
    hand_to_store,
    hand_to_vector,
    load_rows,
    prime_halves,
    store_gathered_block,
    store_rows,
)

PROLOGUE, CLEAR, LOAD, TRANSPOSE, STORE, TAIL, EPILOGUE = range(7)
SITES = {
    PROLOGUE: "PROLOGUE", CLEAR: "CLEAR", LOAD: "LOAD", TRANSPOSE: "TRANSPOSE", STORE: "STORE", TAIL: "TAIL",
    EPILOGUE: "EPILOGUE",
}  # fmt: skip
STEP_ROWS = 96
"""Rows that one tile, or the end of a core, takes at most, where every plane lies in one piece."""

STAGE, TASK, TASK_END, SUB, COUNT, RANGE_END = 2, 3, 4, 5, 6, 7
START, WALK, FINISH, DONE = range(4)


@jit
def _call(rows, n, dtype, repeat, dst_step, src_step, tile):
    """TransDataTo5HD with the address lists already set; a single repeat has no strides."""
    if repeat == 1:
        dst_step = np.int64(0)
        src_step = np.int64(0)
    return emit_trans_data_to_5hd(rows, n, dtype, repeat, dst_step, src_step, TRANSPOSE, tile)


@jit
def _to_pixels(rows, n, p, dst, src, pitch, tile):
    """Channel rows of ``pitch`` pixels at ``src`` to [pitch][C0] at ``dst``."""
    row = pitch * p["item"]
    if p["item"] == 2:
        set_src_addresses(rows, n, src, 16, row, 0)
        set_dst_addresses(rows, n, dst, 16, 32, 0)
        return _call(rows, n, Data.FP16, pitch // 16, 16, 1, tile)
    if p["c0"] == 8:
        set_src_addresses(rows, n, src, 8, row, 32)
        set_dst_addresses(rows, n, dst, 2, 256, 32)
        return _call(rows, n, Data.FP32, pitch // 16, 16, 2, tile)
    if not p["half_words"]:
        set_src_addresses(rows, n, src, 16, row, 0)
        set_dst_addresses(rows, n, dst, 16, 32, 0)
        return _call(rows, n, Data.FP32, pitch // 8, 16, 1, tile)
    # Half words: to lanes of channels, each part to lanes of pixels, then back with the parts side by side.
    set_src_addresses(rows, n, src, 16, row, 0)
    set_dst_addresses(rows, n, dst, 16, 32, 0)
    n = _call(rows, n, Data.FP16, pitch // 8, 16, 1, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    for part in range(2):
        set_src_addresses(rows, n, dst + 32 * part, 16, 64, 0)
        set_dst_addresses(rows, n, src + 32 * part, 16, 64, 0)
        n = _call(rows, n, Data.FP16, pitch // 16, 32, 32, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    for half in range(2):
        set_src_addresses(rows, n, src + 512 * half, 16, 32, 0)
        set_dst_addresses(rows, n, dst + 32 * half, 16, 64, 0)
        n = _call(rows, n, Data.FP16, pitch // 16, 32, 32, tile)
    return n


@jit
def _to_rows(rows, n, p, dst, src, pitch, tile):
    """[pitch][C0] at ``src`` to channel rows of ``pitch`` pixels at ``dst``: the reverse of `_to_pixels`."""
    row = pitch * p["item"]
    if p["item"] == 2:
        set_src_addresses(rows, n, src, 16, 32, 0)
        set_dst_addresses(rows, n, dst, 16, row, 0)
        return _call(rows, n, Data.FP16, pitch // 16, 1, 16, tile)
    if p["c0"] == 8:
        set_src_addresses(rows, n, src, 16, 32, 0)
        set_dst_addresses(rows, n, dst, 2, 32, row)
        return _call(rows, n, Data.FP32, pitch // 16, 2, 16, tile)
    if not p["half_words"]:
        for half in range(2):
            set_src_addresses(rows, n, src + 32 * half, 16, 64, 0)
            set_dst_addresses(rows, n, dst + 8 * half * row, 2, 32, row)
            n = _call(rows, n, Data.FP32, pitch // 16, 2, 32, tile)
        return n
    for half in range(2):
        set_src_addresses(rows, n, src + 32 * half, 16, 64, 0)
        set_dst_addresses(rows, n, dst + 512 * half, 16, 32, 0)
        n = _call(rows, n, Data.FP16, pitch // 16, 32, 32, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    for part in range(2):
        set_src_addresses(rows, n, dst + 32 * part, 16, 64, 0)
        set_dst_addresses(rows, n, src + 32 * part, 16, 64, 0)
        n = _call(rows, n, Data.FP16, pitch // 16, 32, 32, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    set_src_addresses(rows, n, src, 16, 32, 0)
    set_dst_addresses(rows, n, dst, 16, row, 0)
    return _call(rows, n, Data.FP16, pitch // 8, 1, 16, tile)


@jit
def _clear(rows, n, address, byte_count, tile):
    """Zero UB bytes; what TransDataTo5HD reads beyond the data must not be undefined."""
    return emit_duplicate(rows, n, address, Data.FP32, byte_count // 4, 0, CLEAR, tile)


@jit
def _plane(p, plane):
    """Return the batch, depth and channel block of plane number ``plane``."""
    c1 = plane % p["c1"]
    outer = plane // p["c1"]
    return outer // p["planes_d"], outer % p["planes_d"], c1


@jit
def _channels(p, c1):
    return min(p["c0"], p["c"] - c1 * p["c0"])


@jit
def _plain_address(p, base, batch, channel, depth, pixel):
    """Return the address of a pixel of the plain tensor; planes that merge the depths count pixels through them."""
    plane = ((batch * p["c"] + channel) * p["planes_d"] + depth) * p["pixels"]
    return base + (plane + pixel) * p["item"]


@jit
def _forward_tile(rows, n, p, s, batch, depth, c1, r0, length, half):
    """Load the channel rows of a tile, transpose them and store [pixels][C0]."""
    tile = s[TASK]
    item, c0 = p["item"], p["c0"]
    pitch = (length + 15) // 16 * 16
    valid = _channels(p, c1)
    filled = (length * item + 31) // 32 * 32
    load_at, store_at = p["load_at"] + half * p["half_bytes"], p["store_at"] + half * p["half_bytes"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, LOAD, tile)
    clears = valid < c0 or filled < pitch * item
    if clears:
        n = _clear(rows, n, load_at, c0 * pitch * item, tile)
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, 2 + half, CLEAR, tile)
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, 2 + half, LOAD, tile)
    source = _plain_address(p, p["src"], batch, c1 * c0, depth, r0)
    plane_step = p["planes_d"] * p["pixels"] * item
    n = load_rows(
        rows, n, load_at, source, valid, length * item, pitch * item, plane_step, p["exact"], p["data"],
        p["src_tensor"], LOAD, tile,
    )  # fmt: skip
    n = hand_to_vector(rows, n, half, LOAD, TRANSPOSE, tile)
    if clears:
        n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    n = _to_pixels(rows, n, p, store_at, load_at, pitch, tile)
    n = hand_to_store(rows, n, half, TRANSPOSE, STORE, tile)
    target = p["dst"] + (((batch * p["d"] + depth) * p["c1"] + c1) * p["pixels"] + r0) * c0 * item
    n = store_rows(
        rows, n, target, store_at, 1, length * c0 * item, 0, 0, NO_END, 0, p["data"], p["dst_tensor"], STORE, tile
    )
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)


@jit
def _load_pixels(rows, n, p, ub, batch, depth, c1, r0, length, tile):
    """Load ``length`` pixels of a plane of the blocked tensor; a plane that merges depths lies in one piece each."""
    pixel = p["c0"] * p["item"]
    segment = p["segment"]
    step = p["c1"] * segment * pixel
    done = np.int64(0)
    while done < length:
        at = r0 + done
        inside = at % segment
        run = min(segment - inside, length - done)
        count = max((length - done) // segment, 1) if run == segment else np.int64(1)
        source = p["src"] + (((batch * p["d"] + depth + at // segment) * p["c1"] + c1) * segment + inside) * pixel
        n = load_rows(
            rows, n, ub + done * pixel, source, count, run * pixel, run * pixel, step, 0, p["data"], p["src_tensor"],
            LOAD, tile,
        )  # fmt: skip
        done += run * count
    return n


@jit
def _backward_tile(rows, n, p, s, batch, depth, c1, r0, length, half):
    """Load [pixels][C0], transpose it and store the rows of the channels that exist."""
    tile = s[TASK]
    item, c0 = p["item"], p["c0"]
    pitch = (length + 15) // 16 * 16
    load_at, store_at = p["load_at"] + half * p["half_bytes"], p["store_at"] + half * p["half_bytes"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, LOAD, tile)
    n = _load_pixels(rows, n, p, load_at, batch, depth, c1, r0, length, tile)
    n = hand_to_vector(rows, n, half, LOAD, TRANSPOSE, tile)
    if length < pitch:
        n = _clear(rows, n, load_at + length * c0 * item, (pitch - length) * c0 * item, tile)
        n = emit_pipe_barrier(rows, n, Pipe.V, TRANSPOSE, tile)
    n = _to_rows(rows, n, p, store_at, load_at, pitch, tile)
    n = hand_to_store(rows, n, half, TRANSPOSE, STORE, tile)
    target = _plain_address(p, p["dst"], batch, c1 * c0, depth, r0)
    plane_step = p["planes_d"] * p["pixels"] * item
    n = store_rows(
        rows, n, target, store_at, _channels(p, c1), length * item, plane_step, pitch * item, s[RANGE_END], p["exact"],
        p["data"], p["dst_tensor"], STORE, tile,
    )  # fmt: skip
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)


@jit
def _place_of(p, element):
    """Return where element number ``element`` of the plain tensor lies in the blocked one: its pixel, and its lane."""
    pixel = element % p["pixels"]
    channel = element // p["pixels"] % p["c"]
    batch = element // (p["pixels"] * p["c"])
    segment = p["segment"]
    plane = (batch * p["d"] + pixel // segment) * p["c1"] + channel // p["c0"]
    return (plane * segment + pixel % segment) * p["c0"] * p["item"], channel % p["c0"] * p["item"]


@jit
def _last_block(rows, n, p, s):
    """Fetch the last 32 bytes of the core's range again and store them behind all other stores."""
    count = BLOCK // p["item"]
    first = (s[RANGE_END] - p["dst"]) // p["item"] - count
    pieces, lanes = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        place, lanes[i] = _place_of(p, first + i)
        pieces[i] = p["src"] + place
    return store_gathered_block(
        rows, n, s[RANGE_END] - BLOCK, pieces, lanes, p["c0"] * p["item"], p["load_at"], p["data"], p["src_tensor"],
        p["dst_tensor"], TAIL,
    )  # fmt: skip


@jit
def _start(rows, n, p, s):
    """Find the core's tasks and the end of what it may write."""
    first, end = core_share(p["units"], p["cores"], s[0])
    s[TASK] = first * p["unit"]
    s[TASK_END] = p["tasks"] if end == p["units"] else end * p["unit"]
    s[SUB] = 0
    s[COUNT] = 0
    s[RANGE_END] = NO_END
    if p["tails"] and s[TASK_END] < p["tasks"]:
        batch, c1 = s[TASK_END] // p["c1"], s[TASK_END] % p["c1"]
        s[RANGE_END] = p["dst"] + (batch * p["c"] + c1 * p["c0"]) * p["pixels"] * p["item"]
    s[STAGE] = WALK if s[TASK] < s[TASK_END] else DONE
    return prime_halves(rows, n, 0, PROLOGUE) if s[STAGE] == WALK else n


@jit
def _next_tile(p, s):
    """Return plane, first pixel and length of the tile in the state, and step to the next one.

    Where rows are ragged the last task of a plane has two tiles, the second moved back to end with the plane.
    """
    per_plane = p["tiles"]
    plane, at = s[TASK] // per_plane, s[TASK] % per_plane
    r0 = at * p["tile_pixels"] if s[SUB] == 0 else p["pixels"] - p["tile_pixels"]
    length = min(p["tile_pixels"], p["pixels"] - r0)
    if p["overlaps"] and s[SUB] == 0 and at == per_plane - 1:
        s[SUB] = 1
    else:
        s[SUB] = 0
    return plane, r0, length


@jit
def emit_to_blocked(rows, params, state):
    """Write the next rows of core ``state[0]``: its tiles from the plain to the blocked tensor.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer of at least ``params["step_rows"]`` rows.
    params : `trans_data_plan.ACTIVATION_PARAMS`[1]
        Shapes, tiling and addresses.
    state : int64[STATE_LENGTH]
        See the constants of this module.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        n = _start(rows, n, p, s)
    room = len(rows) - p["step_rows"]
    while s[STAGE] == WALK and n <= room:
        plane, r0, length = _next_tile(p, s)
        batch, depth, c1 = _plane(p, plane)
        n = _forward_tile(rows, n, p, s, batch, depth, c1, r0, length, s[COUNT] & 1)
        s[COUNT] += 1
        s[TASK] += 1
        if s[TASK] == s[TASK_END]:
            s[STAGE] = FINISH
    if s[STAGE] == FINISH and n <= room:
        n = prime_halves(rows, n, 1, EPILOGUE)
        s[STAGE] = DONE
    return n


@jit
def emit_from_blocked(rows, params, state):
    """Write the next rows of core ``state[0]``: its tiles from the blocked to the plain tensor.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer of at least ``params["step_rows"]`` rows.
    params : `trans_data_plan.ACTIVATION_PARAMS`[1]
        Shapes, tiling and addresses.
    state : int64[STATE_LENGTH]
        See the constants of this module.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        n = _start(rows, n, p, s)
    room = len(rows) - p["step_rows"]
    while s[STAGE] == WALK and n <= room:
        plane, r0, length = _next_tile(p, s)
        batch, depth, c1 = _plane(p, plane)
        n = _backward_tile(rows, n, p, s, batch, depth, c1, r0, length, s[COUNT] & 1)
        s[COUNT] += 1
        if s[SUB] == 0:
            s[TASK] += 1
        if s[TASK] == s[TASK_END]:
            s[STAGE] = FINISH
    if s[STAGE] == FINISH and n <= room:
        n = prime_halves(rows, n, 1, EPILOGUE)
        if s[RANGE_END] != NO_END:
            n = _last_block(rows, n, p, s)
        s[STAGE] = DONE
    return n
