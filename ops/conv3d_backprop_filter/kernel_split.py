"""Emitter of the weight-gradient kernel of dav-c220 (A2, A3).

A core owns a contiguous range of work items (K block or M/N block, batch x depth item, block; outermost group and depth
tap when those are separate) and walks each in base blocks (`walk_split`), as the published kernel does. Phase 0 clears
dW, phase 1 computes.

Source: ops-nn ``conv/conv3d_backprop_filter_v2/op_kernel/arch22`` (drivers of tiling keys 1-3, clearing of the output).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_data_copy, emit_fill, emit_set_flag, emit_set_hf32, emit_wait_flag
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, core_share
from ops.conv3d_backprop_filter.walk_split import (
    CLEAR,
    DW_BASE,
    DY_BASE,
    EPILOGUE,
    HO_START,
    ITEM,
    K_ITER,
    K_LEN,
    LOAD_DY,
    LOAD_L0A,
    LOAD_L0B,
    LOAD_X,
    M_LEN,
    MMAD,
    PROLOGUE,
    Q_LEN,
    SITES,
    STORE,
    X_BASE,
    K,
    block_rows,
    buffer_flags,
    next_block,
    set_single_shape,
    store_rows,
)

__all__ = [
    "CLEAR", "EPILOGUE", "LOAD_DY", "LOAD_L0A", "LOAD_L0B", "LOAD_X", "MMAD", "PROLOGUE", "SITES", "STORE", "emit",
]  # fmt: skip

# words of the state that only this driver uses; the others are those of `walk_split`
STAGE, ITEM_END, CLEARED = 2, 4, 29

# stages
START, NEXT_ITEM, WALK, FINISH, DONE = range(5)


@jit
def _locate_item(p, s):
    """Fill in the single shape of work item s[ITEM]; return False if no tap of it meets the feature map."""
    item = s[ITEM]
    bd_count = p["n"] * p["dout"]
    # digits of the item, fastest first: (m, n, bd, k), (n, m, bd, k) or (n, k, bd, m), then group and tap; with the
    # base tiling (bd within a share, k, n, m, share), so that every core has one block and one share
    if p["key"] == 0:
        bd, rest = item % p["per_core"], item // p["per_core"]
        k_idx, rest = rest % p["k_count"], rest // p["k_count"]
        n_idx, rest = rest % p["n_count"], rest // p["n_count"]
        m_idx, rest = rest % p["m_count"], rest // p["m_count"]
        bd += rest * p["per_core"]
        rest = np.int64(0)
        if bd >= bd_count:
            return False
    elif p["key"] == 3:
        n_idx, rest = item % p["n_count"], item // p["n_count"]
        k_idx, rest = rest % p["k_count"], rest // p["k_count"]
        bd, rest = rest % bd_count, rest // bd_count
        m_idx, rest = rest % p["m_count"], rest // p["m_count"]
    else:
        if p["key"] == 1:
            m_idx, rest = item % p["m_count"], item // p["m_count"]
            n_idx, rest = rest % p["n_count"], rest // p["n_count"]
        else:
            n_idx, rest = item % p["n_count"], item // p["n_count"]
            m_idx, rest = rest % p["m_count"], rest // p["m_count"]
        bd, rest = rest % bd_count, rest // bd_count
        k_idx, rest = rest % p["k_count"], rest // p["k_count"]
    group, tap = rest % p["group"], rest // p["group"]
    depth = (bd % p["dout"]) * p["stride_d"] - p["pad_front"] + tap * p["dilation_d"]
    window_c0 = p["hk"] * p["wk"] * p["c0"]
    planes = min(p["cin1_g"], p["c1_x"] - group * p["cin1_g"])
    if p["merge_dk"]:
        # N starts at the first tap inside the depth range; dW moves with it (dilation is 1 here)
        tap = max(-depth, 0)
        depth += tap
        planes *= max(min(p["dk"] - tap, p["di"] - depth), 0)
    if depth < 0 or depth >= p["di"]:
        return False
    plane0 = n_idx * p["single_n"] // window_c0
    plane1 = min(plane0 + p["single_n"] // window_c0, planes)
    m0 = m_idx * p["single_m"]
    s[M_LEN] = min(p["single_m"], min(p["cout_g"], p["c1_dy"] * p["c0"] - group * p["cout_g"]) - m0)
    k0 = k_idx * p["single_k"]
    s[K_LEN] = min(p["single_k"], p["ho"] * p["wo"] - k0)
    s[Q_LEN] = plane1 - plane0
    if s[Q_LEN] <= 0 or s[M_LEN] <= 0 or s[K_LEN] <= 0:
        return False
    s[HO_START] = k0 // p["wo"]
    batch = bd // p["dout"]
    plane = (batch * p["di"] + depth) * p["c1_x"] + group * p["cin1_g"] + plane0
    s[X_BASE] = p["x"] + plane * p["hi"] * p["wi"] * BLOCK
    row = (batch * p["dout"] + bd % p["dout"]) * p["c1_dy"] + (group * p["cout_g"] + m0) // p["c0"]
    s[DY_BASE] = p["dy"] + (row * p["ho"] * p["wo"] + k0) * BLOCK
    tap_planes = (group * p["dk"] + tap) * p["cin1_g"] + plane0
    s[DW_BASE] = p["dw"] + (tap_planes * window_c0 * p["cout_g"] + m0 * p["c0"]) * 4
    return True


@jit
def _clear(rows, p, s):
    """Zero this core's share of dW: L1 is filled once, then copied out as often as needed."""
    n = 0
    start = s[0] * p["clear_share"]
    end = min(start + p["clear_share"], p["dw_bytes"])
    buffer = min(p["clear_buffer"], end - start)
    if s[CLEARED] == 0 and start < end:
        n = emit_fill(rows, n, Space.L1, 0, Data.FP32, 1, buffer // BLOCK, 0, 0, CLEAR, -1)
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE3, 0, CLEAR, -1)
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE3, 0, CLEAR, -1)
    while start + s[CLEARED] < end and n < len(rows):
        at = start + s[CLEARED]
        length = min(buffer, end - at)
        n = emit_data_copy(
            rows, n, Space.GM, p["dw"] + at, Space.L1, 0, 1, length // BLOCK, 0, 0, Data.FP32, p["dw_tensor"], CLEAR, -1
        )
        s[CLEARED] += length
    return n


@jit
def _walk(rows, n, p, s):
    """Emit K steps and stores of the current item until it ends or the buffer has no room for a step."""
    room = len(rows) - p["step_rows"]
    while n <= room:
        n = block_rows(rows, n, p, s)
        if s[K] < s[K_ITER]:
            break
        # step_rows has room for the store behind the last K step
        n = store_rows(rows, n, p, s, 1, 0)
        if not next_block(p, s):
            s[STAGE] = NEXT_ITEM
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
        See the constants of this module.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    if s[1] == 0:
        return _clear(rows, p, s)
    n = 0
    if s[STAGE] == START:
        first, s[ITEM_END] = core_share(p["items"], p["cores"], s[0])
        s[ITEM] = first - 1
        if s[ITEM] + 1 >= s[ITEM_END]:
            s[STAGE] = DONE
            return n
        if p["hf32"]:
            n = emit_set_hf32(rows, n, 1, PROLOGUE, -1)
        n = buffer_flags(rows, n, p, s, 0, PROLOGUE)
        s[STAGE] = NEXT_ITEM
    room = len(rows) - p["step_rows"]
    while n <= room and s[STAGE] < FINISH:
        if s[STAGE] == NEXT_ITEM:
            s[ITEM] += 1
            if s[ITEM] == s[ITEM_END]:
                s[STAGE] = FINISH
            elif _locate_item(p, s):
                set_single_shape(p, s)
                s[STAGE] = WALK
        else:
            n = _walk(rows, n, p, s)
    if s[STAGE] == FINISH and n <= room:
        n = buffer_flags(rows, n, p, s, 1, EPILOGUE)
        if p["hf32"]:
            n = emit_set_hf32(rows, n, 0, EPILOGUE, -1)
        s[STAGE] = DONE
    return n
