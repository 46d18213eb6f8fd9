"""Emitter of input gradients and forward convolutions on unified cores (dav-c100, dav-m200): the TBE-style schedule.

M = pixels of the result, N = its channels in one merged group, K = (channel block, window row, window column, channel)
of the source. Each core has a part of each of the loops group, N block, batch item and M block, in this order; a block
is accumulated over all of its K in L0C and leaves through UB, rounded once to fp16, behind the loads of the next
block's first windows. Weights that L1 holds whole stay there while group and N block do not change.
L1 holds some channel blocks of each operand at a time, or a part of one where its taps are too many.

Sources: CANN 8.1 ``tbe/dsl/static_schedule/conv2d_backprop_input_general_schedule.py`` for the data flow and the loops
bound to cores; the tiling is our own (`tiling_unified`).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_duplicate,
    emit_l0c_to_ub,
    emit_mmad,
    emit_pipe_barrier,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Mode, Pipe, Space
from ops.common.kernel_parts import (
    BLOCK,
    MAX_BLOCK_COUNT,
    MAX_FIELD,
    MMAD_BARRIER_ELEMS,
    ceil_div,
    core_share,
    free_flag,
)
from ops.conv3d_backprop_input import kernel_dx_unified as dx
from ops.conv3d_backprop_input import kernel_forward_unified as forward
from ops.conv3d_backprop_input.kernel_windows_unified import (
    A_HALF,
    B_HALF,
    B_KEY,
    B_PLANES,
    B_TAP,
    B_TAPS,
    BATCH,
    BATCH_COUNT,
    BATCH_FIRST,
    C_PART,
    DILATED,
    DONE_BATCH,
    DONE_GROUP,
    DONE_ITEM,
    DONE_M0,
    DONE_M_LEN,
    DONE_N_BLOCKS,
    DONE_N_INDEX,
    DONE_PART,
    DONE_PENDING,
    DRAIN,
    EPILOGUE,
    GATHERED,
    GROUP,
    GROUP_COUNT,
    GROUP_FIRST,
    ITEM,
    ITEM_END,
    K_PLANES,
    L0_HALF,
    LOAD_B,
    LOAD_L0A,
    LOAD_L0B,
    M0,
    M_COUNT,
    M_FIRST,
    M_LEN,
    MMAD,
    N_BLOCKS,
    N_COUNT,
    N_FIRST,
    N_INDEX,
    PASS,
    PROLOGUE,
    SITES,
    SLICE,
    STAGE,
    STORE,
    UB_OUT,
    K,
    begin_step,
    begin_windows,
    end_windows,
    fill_pass,
    filler,
    in_step,
    is_void,
    load_l0a,
    passes,
    taps_of,
)

__all__ = ["SITES", "emit"]

START, NEXT_ITEM, FILL, STEP, LEAVE, FINISH, DONE = range(7)
ZERO_EVENT = 2


@jit
def _set_core(p, s):
    """Divide the four loops among the cores, the batch outermost."""
    core = s[0]
    s[N_FIRST], end = core_share(p["n_count"], p["n_dim"], core % p["n_dim"])
    s[N_COUNT] = end - s[N_FIRST]
    core //= p["n_dim"]
    s[GROUP_FIRST], end = core_share(p["groups"], p["group_dim"], core % p["group_dim"])
    s[GROUP_COUNT] = end - s[GROUP_FIRST]
    core //= p["group_dim"]
    s[M_FIRST], end = core_share(p["m_count"], p["m_dim"], core % p["m_dim"])
    s[M_COUNT] = end - s[M_FIRST]
    s[BATCH_FIRST], end = core_share(p["batch"], p["batch_dim"], core // p["m_dim"])
    s[BATCH_COUNT] = end - s[BATCH_FIRST]
    s[ITEM] = -1
    s[ITEM_END] = s[GROUP_COUNT] * s[N_COUNT] * s[BATCH_COUNT] * s[M_COUNT]


@jit
def _set_item(p, s):
    """Fill the state of item s[ITEM]; return False if its N block lies behind the last channel."""
    item = s[ITEM]
    m_block = s[M_FIRST] + item % s[M_COUNT]
    item //= s[M_COUNT]
    s[BATCH] = s[BATCH_FIRST] + item % s[BATCH_COUNT]
    item //= s[BATCH_COUNT]
    s[N_INDEX] = s[N_FIRST] + item % s[N_COUNT]
    s[GROUP] = s[GROUP_FIRST] + item // s[N_COUNT]
    first = s[N_INDEX] * (p["base_n"] // 16)
    planes = min(p["n_c1"], p["dst_c1"] - s[GROUP] * p["n_c1"])
    s[N_BLOCKS] = min(p["base_n"] // 16, planes - first)
    s[K_PLANES] = min(p["k_c1"], p["src_c1"] - s[GROUP] * p["k_c1"])
    if p["by_row"]:
        column = m_block % p["m_per_row"] * p["base_m"]
        s[M0] = m_block // p["m_per_row"] * p["out_w"] + column
        s[M_LEN] = min(p["base_m"], p["out_w"] - column)
    else:
        s[M0] = m_block * p["base_m"]
        s[M_LEN] = min(p["base_m"], p["m_total"] - s[M0])
    return s[N_BLOCKS] > 0


@jit
def _flags(rows, n, p, drain, site):
    """Prime (``drain`` 0) or drain (1) the flags that say "this buffer is free"."""
    for half in range(p["al1"]):
        n = free_flag(rows, n, Pipe.MTE1, filler(p), half, drain, site)
    for half in range(p["bl1"]):
        n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + half, drain, site)
    for half in range(2):
        n = free_flag(rows, n, Pipe.M, Pipe.MTE1, half, drain, site)
        n = free_flag(rows, n, Pipe.MTE3, Pipe.V, half, drain, site)
        if p["source"] == DILATED:
            n = free_flag(rows, n, Pipe.V, Pipe.MTE2, half, drain, site)
            n = free_flag(rows, n, Pipe.MTE3, Pipe.V, 2 + half, drain, site)
    for part in range(p["cl0"]):
        n = free_flag(rows, n, Pipe.V, Pipe.M, part, drain, site)
    return n


@jit
def _prologue(rows, n, p):
    """Prime the flags and make the zeros that gathered windows start from."""
    n = _flags(rows, n, p, 0, PROLOGUE)
    if p["source"] == GATHERED:
        n = emit_duplicate(rows, n, 0, Data.FP16, p["ub_part"] // 2, 0, PROLOGUE, -1)
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, ZERO_EVENT, PROLOGUE, -1)
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, ZERO_EVENT, PROLOGUE, -1)
    return n


@jit
def _load_weights(rows, n, p, s):
    """Fill an L1 buffer of weights, unless it stays from the item before."""
    tile = s[ITEM]
    if p["b_resident"]:
        key = 1 + s[GROUP] * p["n_count"] + s[N_INDEX]
        if s[B_KEY] == key:
            return n
        if s[B_KEY] != 0:
            n = _leave_weights(rows, n, p, s)
        s[B_KEY] = key
    plane = s[K] * p["base_k"] // (p["window"] * 16)
    s[B_PLANES] = min(max(p["step_kb"] * p["base_k"] // (p["window"] * 16), 1), s[K_PLANES] - plane)
    s[B_TAP], s[B_TAPS] = taps_of(p, s[K], p["step_kb"])
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + s[B_HALF], LOAD_B, tile)
    if p["transposed"]:
        src, pieces, blocks, length = dx.weight_address(p, s, plane)
    else:
        src, pieces, blocks, length = forward.weight_address(p, s, plane)
    gap = p["weight_rows"] - length
    most = np.int64(MAX_BLOCK_COUNT if gap <= MAX_FIELD else 1)
    dst = p["b1"] + s[B_HALF] * p["b1_bytes"]
    for piece in range(pieces):
        done = np.int64(0)
        while done < blocks:
            count = min(most, blocks - done)
            n = emit_data_copy(
                rows,
                n,
                Space.L1,
                dst + (piece * blocks + done) * length * BLOCK,
                Space.GM,
                src + (piece * p["window"] + done) * p["weight_rows"] * BLOCK,
                count,
                length,
                gap if count > 1 else 0,
                0,
                Data.FP16,
                p["weight_tensor"],
                LOAD_B,
                tile,
            )
            done += count
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + s[B_HALF], LOAD_B, tile)
    return emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + s[B_HALF], LOAD_L0B, tile)


@jit
def _leave_weights(rows, n, p, s):
    """Give the L1 buffer of weights back."""
    n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + s[B_HALF], LOAD_L0B, s[ITEM])
    s[B_HALF] = (s[B_HALF] + 1) % p["bl1"]
    return n


@jit
def _fill(rows, n, p, s):
    """Emit the start or one pass of an L1 step of windows; behind the last, an item that is done may leave L0C."""
    dst = p["a1"] + s[A_HALF] * p["a1_bytes"]
    if s[PASS] < 0:
        begin_step(p, s)
        s[PASS] = 0
        if is_void(p, s):
            s[STAGE] = LEAVE
            return n
        return begin_windows(rows, n, p, s, dst)
    n = fill_pass(rows, n, p, s, dst)
    s[PASS] += 1
    if s[PASS] == passes(p, s):
        n = end_windows(rows, n, p, s)
        s[STAGE] = LEAVE
    return n


@jit
def _k_step(rows, n, p, s):
    """Emit one L0 step; return the rows. The item is over when s[K] reaches its number of steps."""
    tile = s[ITEM]
    if in_step(p, s[K], p["step_kb"]) == 0:
        n = _load_weights(rows, n, p, s)
    k_total = s[K_PLANES] * p["window"] * 16
    k_use = min(p["base_k"], k_total - s[K] * p["base_k"])
    last = s[K] * p["base_k"] + k_use == k_total
    l0 = s[L0_HALF]
    a_dst, b_dst = l0 * p["l0a_half"], l0 * p["l0b_half"]
    a_src = p["a1"] + s[A_HALF] * p["a1_bytes"]
    b_src = p["b1"] + s[B_HALF] * p["b1_bytes"]
    a_fractal = in_step(p, s[K], p["step_ka"]) * (p["base_k"] // 16)
    b_fractal = in_step(p, s[K], p["step_kb"]) * (p["base_k"] // 16)
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, l0, LOAD_L0A, tile)
    n = load_l0a(rows, n, p, s, a_dst, a_src, a_fractal, k_use)
    if p["transposed"]:
        n = dx.load_l0b(rows, n, p, s, b_dst, b_src, b_fractal, k_use)
    else:
        n = forward.load_l0b(rows, n, p, s, b_dst, b_src, b_fractal, k_use)
    if (last or in_step(p, s[K] + 1, p["step_ka"]) == 0) and not is_void(p, s):
        n = emit_set_flag(rows, n, Pipe.MTE1, filler(p), s[A_HALF], LOAD_L0A, tile)
        s[A_HALF] = (s[A_HALF] + 1) % p["al1"]
    if (last or in_step(p, s[K] + 1, p["step_kb"]) == 0) and not p["b_resident"]:
        n = _leave_weights(rows, n, p, s)
    n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, l0, LOAD_L0B, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, l0, MMAD, tile)
    if s[K] == 0:
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.M, s[C_PART], MMAD, tile)
    m_use, n_use = ceil_div(s[M_LEN], 16) * 16, s[N_BLOCKS] * 16
    mode = Mode.INIT if s[K] == 0 else 0
    n = emit_mmad(rows, n, s[C_PART] * p["l0c_part"], a_dst, b_dst, Data.FP16, m_use, n_use, k_use, mode, MMAD, tile)
    if m_use * n_use < MMAD_BARRIER_ELEMS:
        n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
    n = emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, l0, MMAD, tile)
    s[L0_HALF] = 1 - l0
    s[K] += 1
    if last:
        _note_done(s)
        s[C_PART] = (s[C_PART] + 1) % p["cl0"]
        s[STAGE] = NEXT_ITEM
    elif in_step(p, s[K], p["step_ka"]) == 0:
        s[STAGE] = FILL
        s[PASS] = -1
    return n


@jit
def _note_done(s):
    """Keep what `_leave` needs of an item: the windows of the next one are loaded before this one leaves."""
    s[DONE_PENDING] = 1
    s[DONE_ITEM] = s[ITEM]
    s[DONE_BATCH] = s[BATCH]
    s[DONE_GROUP] = s[GROUP]
    s[DONE_N_INDEX] = s[N_INDEX]
    s[DONE_N_BLOCKS] = s[N_BLOCKS]
    s[DONE_M0] = s[M0]
    s[DONE_M_LEN] = s[M_LEN]
    s[DONE_PART] = s[C_PART]
    s[SLICE] = 0


@jit
def _leave(rows, n, p, s):
    """Emit one slice of a finished block's way L0C to UB to GM."""
    tile, part = s[DONE_ITEM], s[DONE_PART]
    if s[SLICE] == 0:
        n = emit_set_flag(rows, n, Pipe.M, Pipe.V, part, DRAIN, tile)
        n = emit_wait_flag(rows, n, Pipe.M, Pipe.V, part, DRAIN, tile)
    strips = ceil_div(s[DONE_M_LEN], p["slice_m"])
    first = s[SLICE] % strips * p["slice_m"]
    block = s[SLICE] // strips * p["slice_n"]
    count, planes = min(p["slice_m"], s[DONE_M_LEN] - first), min(p["slice_n"], s[DONE_N_BLOCKS] - block)
    padded, m1 = ceil_div(count, 16) * 16, ceil_div(s[DONE_M_LEN], 16)
    half = s[UB_OUT]
    ub = p["ub_out"] + half * p["ub_out_half"]
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, half, DRAIN, tile)
    src = part * p["l0c_part"] + (block * m1 * 16 + first) * 64
    n = emit_l0c_to_ub(rows, n, ub, src, Data.FP16, planes, padded // 16, m1 - padded // 16, 0, DRAIN, tile)
    result = ub
    if p["spread"]:
        result = ub + planes * padded * BLOCK
        n = dx.spread(rows, n, p, result, ub, s[DONE_M0] + first, count, planes, tile)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, half, DRAIN, tile)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, half, STORE, tile)
    n = _store(rows, n, p, s, result, s[DONE_M0] + first, count, block, planes)
    n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)
    s[UB_OUT] = 1 - half
    s[SLICE] += 1
    if s[SLICE] == strips * ceil_div(s[DONE_N_BLOCKS], p["slice_n"]):
        n = emit_set_flag(rows, n, Pipe.V, Pipe.M, part, DRAIN, tile)
        s[DONE_PENDING] = 0
    return n


@jit
def _store(rows, n, p, s, src, pixel, count, block, planes):
    """Store ``planes`` channel blocks of ``count`` computed pixels from ``pixel`` on."""
    tile = s[DONE_ITEM]
    channel = s[DONE_GROUP] * p["n_c1"] + s[DONE_N_INDEX] * (p["base_n"] // 16) + block
    plane = p["dst"] + (s[DONE_BATCH] * p["dst_c1"] + channel) * p["out_hw"] * BLOCK
    padded = ceil_div(count, 16) * 16
    if p["two_column"]:
        for i in range(planes):
            n = emit_data_copy(
                rows,
                n,
                Space.GM,
                plane + (i * p["out_hw"] + pixel // 2) * BLOCK,
                Space.UB,
                src + i * padded * BLOCK,
                count // 2,
                1,
                1,
                0,
                Data.FP16,
                p["dst_tensor"],
                STORE,
                tile,
            )
        return n
    at, length, held = pixel, count, padded
    if p["spread"]:
        at, length = dx.spread_extent(p, pixel, count)
        held = length
    gap = p["out_hw"] - length
    most = planes if gap <= MAX_FIELD else np.int64(1)
    for i in range(0, planes, most):
        n = emit_data_copy(
            rows,
            n,
            Space.GM,
            plane + (i * p["out_hw"] + at) * BLOCK,
            Space.UB,
            src + i * held * BLOCK,
            most,
            length,
            held - length if most > 1 else 0,
            gap if most > 1 else 0,
            Data.FP16,
            p["dst_tensor"],
            STORE,
            tile,
        )
    return n


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]``; see `npu_sim.program.launch.Launch`.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer of at least ``params["step_rows"]`` rows.
    params : `params_unified.UNIFIED_PARAMS`[1]
        Tiling and addresses.
    state : int64[STATE_LENGTH]
        See the constants of `kernel_windows_unified`.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        _set_core(p, s)
        n = _prologue(rows, n, p)
        s[STAGE] = NEXT_ITEM
    room = len(rows) - p["step_rows"]
    while n <= room and s[STAGE] < FINISH:
        if s[STAGE] == NEXT_ITEM:
            s[ITEM] += 1
            if s[ITEM] == s[ITEM_END]:
                s[STAGE] = LEAVE
            elif _set_item(p, s):
                s[K] = 0
                s[PASS] = -1
                s[STAGE] = FILL
        elif s[STAGE] == FILL:
            n = _fill(rows, n, p, s)
        elif s[STAGE] == STEP:
            n = _k_step(rows, n, p, s)
        elif s[DONE_PENDING] != 0:
            n = _leave(rows, n, p, s)
        else:
            s[STAGE] = STEP if s[ITEM] < s[ITEM_END] else FINISH
    if s[STAGE] == FINISH and n <= room:
        if s[B_KEY] != 0:
            n = _leave_weights(rows, n, p, s)
        n = _flags(rows, n, p, 1, EPILOGUE)
        s[STAGE] = DONE
    return n
