"""Emitter of the input gradient, and of the forward convolution, on dav-c220 (A2, A3).

A core walks its items (merged group, M rows, batch, planes, N block); in an item planes, then N, then M in base blocks;
in a block the depth taps, ascending, and K. All taps of a block add up in L0C, which one Fixpipe rounds and stores:
NDC1HWC0, 16 columns (fp32: 8) at a time, which is the order L0C has. Nothing is added in memory. Phase 0, where some
results are under no window, clears everything first.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_kernel/arch22`` (drivers, clearing, Iterate and Compute).
Left out: results in NCDHW by the vector cores, and the two network shapes whose kernel is split by its stride.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_fill,
    emit_fixpipe,
    emit_mmad,
    emit_pipe_barrier,
    emit_set_flag,
    emit_set_hf32,
    emit_wait_flag,
)
from npu_sim.isa.op import Mode, Pipe, Space
from ops.common.kernel_parts import BLOCK, MMAD_BARRIER_ELEMS, ceil_div, core_share, free_flag
from ops.conv3d_backprop_input import kernel_dx_split, kernel_forward_split
from ops.conv3d_backprop_input.kernel_dx_split import load_a1, load_l0a, set_image
from ops.conv3d_backprop_input.kernel_split_state import (
    B_HELD,
    BATCH,
    BLOCK_START,
    C_HALF,
    CLEAR,
    CLEARED,
    D_END,
    DONE,
    EPILOGUE,
    FINISH,
    GROUP,
    IS_FIRST,
    ITEM,
    ITEM_DONE,
    ITEM_END,
    K_ITER,
    K_LEN,
    L0_HALF,
    LOAD_A1,
    LOAD_B1,
    LOAD_L0A,
    LOAD_L0B,
    M1,
    M_ITER,
    M_LEN,
    M_START,
    MMAD,
    N1,
    N_ITER,
    N_LEN,
    N_START,
    NEXT_ITEM,
    PROLOGUE,
    STAGE,
    START,
    STORE,
    TAP,
    WALK,
    D,
    K,
)

dx_load_b1 = kernel_dx_split.load_b1
dx_load_l0b = kernel_dx_split.load_l0b
dx_depth_plane = kernel_dx_split.depth_plane
forward_load_b1 = kernel_forward_split.load_b1
forward_load_l0b = kernel_forward_split.load_l0b
forward_depth_plane = kernel_forward_split.depth_plane


@jit
def _plane(p, d, tap):
    if p["forward"]:
        return forward_depth_plane(p, d, tap)
    return dx_depth_plane(p, d, tap)


@jit
def _next_tap(p, s, tap):
    """Return the first depth tap from ``tap`` on that plane s[D] uses; kd if there is none."""
    while tap < p["kd"] and _plane(p, s[D], tap) < 0:
        tap += 1
    return tap


@jit
def _item_range(p, s):
    """Return the items [first, end) of core s[0]: a share of all, or the batch items of the core's part of the grid."""
    if not p["grid"]:
        return core_share(p["items"], p["cores"], s[0])
    batch0 = s[0] // (p["n_dim"] * p["m_dim"]) % p["batch_dim"] * p["single_batch"]
    return batch0, max(min(batch0 + p["single_batch"], p["batch"]), batch0)


@jit
def _set_item(p, s):
    """Fill the state of item s[ITEM]; return False if it has no pixel or channel."""
    item = s[ITEM]
    if p["grid"]:
        rest = s[0]
        n_idx, rest = rest % p["n_dim"], rest // p["n_dim"]
        m_idx, rest = rest % p["m_dim"], rest // p["m_dim"]
        rest //= p["batch_dim"]
        s[GROUP] = 0
        s[BATCH] = item
        s[D] = rest % p["d_dim"] * p["single_d"]
        s[D_END] = min(s[D] + p["single_d"], p["out_d"])
    else:
        n_idx, rest = item % p["n_count"], item // p["n_count"]
        plane, rest = rest % (p["batch"] * p["out_d"]), rest // (p["batch"] * p["out_d"])
        m_idx = rest % p["m_count"]
        s[GROUP] = rest // p["m_count"]
        s[BATCH] = plane // p["out_d"]
        s[D] = plane % p["out_d"]
        s[D_END] = s[D] + 1
    s[M_START] = m_idx * p["single_m"]
    s[M_LEN] = min(p["single_m"], p["out_h"] * p["out_w"] - s[M_START])
    s[N_START] = n_idx * p["single_n"] // p["c0"]
    n1 = min(p["n1_g"], p["out_c1"] - s[GROUP] * p["n1_g"])
    s[N_LEN] = min(p["single_n"], (n1 - s[N_START]) * p["c0"])
    k1 = min(p["k1_g"], p["a_c1"] - s[GROUP] * p["k1_g"])
    s[K_LEN] = k1 * p["kh"] * p["kw"] * p["c0"]
    if s[M_LEN] <= 0 or s[N_LEN] <= 0 or s[D] >= s[D_END]:
        return False
    s[M_ITER] = ceil_div(s[M_LEN], p["base_m"])
    s[N_ITER] = ceil_div(s[N_LEN], p["base_n"])
    s[K_ITER] = ceil_div(s[K_LEN], p["base_k"])
    s[M1] = 0
    s[N1] = 0
    return True


@jit
def _next_block(p, s):
    """Step to the next base block of the item; after the last one the item is done."""
    s[STAGE] = BLOCK_START
    s[M1] += 1
    if s[M1] < s[M_ITER]:
        return
    s[M1] = 0
    s[N1] += 1
    if s[N1] < s[N_ITER]:
        return
    s[N1] = 0
    s[D] += 1
    if s[D] == s[D_END]:
        s[STAGE] = ITEM_DONE


@jit
def _start_block(p, s):
    """Prepare the current block; step on if it reads nothing (then its result is zero, and cleared)."""
    first = (s[M_START] + s[M1] * p["base_m"]) // p["out_w"] * p["window_step_h"] - p["image_up"]
    s[TAP] = _next_tap(p, s, np.int64(0))
    if s[TAP] == p["kd"] or not set_image(p, s, first):
        _next_block(p, s)
        return
    s[K] = 0
    s[IS_FIRST] = 1
    s[STAGE] = WALK


@jit
def _flags(rows, n, p, wait, site):
    """Prime (``wait`` 0) or drain (1) the flags that say "this buffer is free"."""
    for half in range(p["al1"]):
        n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, wait, site)
    for half in range(p["bl1"]):
        n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + half, wait, site)
    for half in range(2):
        n = free_flag(rows, n, Pipe.M, Pipe.MTE1, half, wait, site)
    for half in range(p["cl0"]):
        n = free_flag(rows, n, Pipe.FIX, Pipe.M, half, wait, site)
    return n


@jit
def _fill_a1(rows, n, p, s, half):
    """LoadToA1: the channel blocks of the K steps from s[K] on."""
    window = p["kh"] * p["kw"] * p["c0"]
    start = s[K] * p["base_k"]
    blocks = min(p["step_ka"] * p["base_k"], s[K_LEN] - start) // window
    plane = (s[BATCH] * p["a_d"] + _plane(p, s[D], s[TAP])) * p["a_c1"] + s[GROUP] * p["k1_g"]
    address = p["a"] + plane * p["a_h"] * p["a_w"] * BLOCK
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, LOAD_A1, s[ITEM])
    n = load_a1(rows, n, p, s, address, start // window, blocks, p["a1"] + half * p["a1_bytes"])
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, LOAD_A1, s[ITEM])
    return emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, LOAD_A1, s[ITEM])


@jit
def _fill_b1(rows, n, p, s, half, n_use):
    """LoadToB1: the channel blocks of the K steps from s[K] on, all columns of the block."""
    window = p["kh"] * p["kw"] * p["c0"]
    start = s[K] * p["base_k"]
    blocks = min(p["step_kb"] * p["base_k"], s[K_LEN] - start) // window
    dst = p["b1"] + half * p["b1_bytes"]
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + half, LOAD_B1, s[ITEM])
    if p["forward"]:
        n = forward_load_b1(rows, n, p, s, s[TAP], start // window, blocks, n_use, dst)
    else:
        n = dx_load_b1(rows, n, p, s, s[TAP], start // window, blocks, n_use, dst)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + half, LOAD_B1, s[ITEM])
    return emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + half, LOAD_B1, s[ITEM])


@jit
def _k_step(rows, n, p, s):
    """Emit K step s[K] of depth tap s[TAP] of the current block."""
    tile = s[ITEM]
    k = s[K]
    ka, kb = k % p["step_ka"], k % p["step_kb"]
    a_half = (s[M1] * ceil_div(s[K_ITER], p["step_ka"]) + k // p["step_ka"]) % p["al1"]
    b_half = (s[N1] * ceil_div(s[K_ITER], p["step_kb"]) + k // p["step_kb"]) % p["bl1"]
    last = k == s[K_ITER] - 1
    k_use = min(p["base_k"], s[K_LEN] - k * p["base_k"])
    m_use = min(p["base_m"], s[M_LEN] - s[M1] * p["base_m"])
    n_use = min(p["base_n"], s[N_LEN] - s[N1] * p["base_n"])
    if ka == 0:
        n = _fill_a1(rows, n, p, s, a_half)
    if kb == 0 and not s[B_HELD]:
        n = _fill_b1(rows, n, p, s, b_half, n_use)
        s[B_HELD] = p["b_full"]
    half = s[L0_HALF]
    l0a, l0b = half * p["l0a_half"], half * p["l0b_half"]
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, half, LOAD_L0A, tile)
    n = load_l0a(rows, n, p, s, p["a1"] + a_half * p["a1_bytes"], l0a, k_use, m_use)
    if p["forward"]:
        n = forward_load_l0b(rows, n, p, s, p["b1"] + b_half * p["b1_bytes"], l0b, k_use)
    else:
        n = dx_load_l0b(rows, n, p, s, p["b1"] + b_half * p["b1_bytes"], l0b, k_use, n_use)
    if last or ka == p["step_ka"] - 1:
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, a_half, LOAD_L0A, tile)
    if (last or kb == p["step_kb"] - 1) and not p["b_full"]:
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + b_half, LOAD_L0B, tile)
    n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, half, LOAD_L0B, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, half, MMAD, tile)
    if s[IS_FIRST]:
        n = emit_wait_flag(rows, n, Pipe.FIX, Pipe.M, s[C_HALF], MMAD, tile)
    mode = Mode.INIT if s[IS_FIRST] else 0
    m_full = ceil_div(m_use, 16) * 16
    n = emit_mmad(rows, n, s[C_HALF] * p["l0c_half"], l0a, l0b, p["data"], m_full, n_use, k_use, mode, MMAD, tile)
    if m_full * n_use <= MMAD_BARRIER_ELEMS:
        n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
    n = emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, half, MMAD, tile)
    s[L0_HALF] = 1 - half
    s[IS_FIRST] = 0
    return n


@jit
def _store(rows, n, p, s):
    """GetTensorC: the finished block leaves L0C, rounded once, as columns of C0."""
    tile, half = s[ITEM], s[C_HALF]
    hw = p["out_h"] * p["out_w"]
    m_use = min(p["base_m"], s[M_LEN] - s[M1] * p["base_m"])
    n_use = min(p["base_n"], s[N_LEN] - s[N1] * p["base_n"])
    block = (s[BATCH] * p["out_d"] + s[D]) * p["out_c1"] + s[GROUP] * p["n1_g"] + s[N_START]
    block += s[N1] * (p["base_n"] // p["c0"])
    dst = p["out"] + (block * hw + s[M_START] + s[M1] * p["base_m"]) * BLOCK
    mode = Mode.CHANNEL_SPLIT if p["c0"] == 8 else 0
    n = emit_set_flag(rows, n, Pipe.M, Pipe.FIX, half, STORE, tile)
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.FIX, half, STORE, tile)
    n = emit_fixpipe(
        rows,
        n,
        Space.GM,
        dst,
        half * p["l0c_half"],
        p["out_data"],
        m_use,
        n_use,
        ceil_div(m_use, 16) * 16,
        hw,
        1,
        0,
        0,
        mode,
        p["out_tensor"],
        STORE,
        tile,
    )
    n = emit_set_flag(rows, n, Pipe.FIX, Pipe.M, half, STORE, tile)
    if p["cl0"] == 2:
        s[C_HALF] = 1 - half
    return n


@jit
def _clear(rows, p, s):
    """Zero this core's share of the result: one product of zeros fills L0C, which leaves as often as needed."""
    n = 0
    start = s[0] * p["clear_share"]
    end = min(start + p["clear_share"], p["out_blocks"])
    lines = p["l0c_rows"]
    if s[CLEARED] == 0 and start < end:
        n = emit_fill(rows, n, Space.L0A, 0, p["data"], 1, lines // 16, 0, 0, CLEAR, -1)
        n = emit_fill(rows, n, Space.L0B, 0, p["data"], 1, 1, 0, 0, CLEAR, -1)
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, 0, CLEAR, -1)
        n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, 0, CLEAR, -1)
        n = emit_mmad(rows, n, 0, 0, 0, p["data"], lines, 16, 1, Mode.INIT, CLEAR, -1)
        n = emit_set_flag(rows, n, Pipe.M, Pipe.FIX, 0, CLEAR, -1)
        n = emit_wait_flag(rows, n, Pipe.M, Pipe.FIX, 0, CLEAR, -1)
    mode = Mode.CHANNEL_SPLIT if p["c0"] == 8 else 0
    while start + s[CLEARED] < end and n < len(rows):
        at = start + s[CLEARED]
        length = min(lines, end - at)
        n = emit_fixpipe(
            rows,
            n,
            Space.GM,
            p["out"] + at * BLOCK,
            0,
            p["out_data"],
            length,
            p["c0"],
            lines,
            length,
            1,
            0,
            0,
            mode,
            p["out_tensor"],
            CLEAR,
            -1,
        )
        s[CLEARED] += length
    return n


@jit
def _walk(rows, n, p, s):
    """Emit K steps of the current block, and its store behind the last one, while the buffer has room for a step."""
    room = len(rows) - p["step_rows"]
    while n <= room:
        n = _k_step(rows, n, p, s)
        s[K] += 1
        if s[K] < s[K_ITER]:
            continue
        s[K] = 0
        s[TAP] = _next_tap(p, s, s[TAP] + 1)
        if s[TAP] == p["kd"]:
            n = _store(rows, n, p, s)
            _next_block(p, s)
            break
    return n


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]`` in phase ``state[1]``; see `npu_sim.program.launch.Launch`.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer of at least ``params["step_rows"]`` rows.
    params : `params.SPLIT_PARAMS`[1]
        Tiling and addresses.
    state : int64[STATE_LENGTH]
        See `kernel_split_state`.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    if s[1] < p["clear"]:
        return _clear(rows, p, s)
    n = 0
    if s[STAGE] == START:
        s[ITEM], s[ITEM_END] = _item_range(p, s)
        s[ITEM] -= 1
        if s[ITEM] + 1 >= s[ITEM_END]:
            s[STAGE] = DONE
            return n
        if p["hf32"]:
            n = emit_set_hf32(rows, n, 1, PROLOGUE, -1)
        n = _flags(rows, n, p, 0, PROLOGUE)
        s[STAGE] = NEXT_ITEM
    room = len(rows) - p["step_rows"]
    while n <= room and s[STAGE] < FINISH:
        if s[STAGE] == NEXT_ITEM:
            s[ITEM] += 1
            if s[ITEM] >= s[ITEM_END]:
                s[STAGE] = FINISH
            elif _set_item(p, s):
                s[STAGE] = BLOCK_START
        elif s[STAGE] == BLOCK_START:
            _start_block(p, s)
        elif s[STAGE] == WALK:
            n = _walk(rows, n, p, s)
        else:
            if s[B_HELD]:
                n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2, LOAD_L0B, s[ITEM])
                s[B_HELD] = 0
            s[STAGE] = NEXT_ITEM
    if s[STAGE] == FINISH and n <= room:
        n = _flags(rows, n, p, 1, EPILOGUE)
        if p["hf32"]:
            n = emit_set_hf32(rows, n, 0, EPILOGUE, -1)
        s[STAGE] = DONE
    return n
