"""Emitter of the weight-gradient kernel of the unified cores (dav-c100, dav-m200): the TBE-style schedule.

M = output channels of one merged group, N = (c1, kh, kw, c0), K = output pixels. A work item is one (group, depth tap,
M block, N block) and a contiguous part of the (batch, output depth) items; all of its K, over all of its batch items,
is accumulated in L0C, which then leaves through UB. dW is cleared by a MemSet launch before this one.

Sources: CANN 8.1 ``tbe/dsl/static_schedule/conv3d_backprop_filter_schedule.py`` for the loop order and the skipped
depth taps; the tiling is our own (``tiling_unified``). The hardware's img2col cannot make an output of width 1, so such
a case arrives here widened to 2 columns (``double_w``): dY's only column is read twice, and the second window of X lies
in the padding.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_fill,
    emit_l0c_to_ub,
    emit_load_2d,
    emit_load_3d,
    emit_load_3d_v1,
    emit_mmad,
    emit_pipe_barrier,
    emit_set_atomic,
    emit_set_flag,
    emit_wait_flag,
    set_feature_map,
    set_window,
)
from npu_sim.isa.op import Data, Mode, Pipe, Space
from ops.common.kernel_parts import (
    BLOCK,
    MAX_FIELD,
    MMAD_BARRIER_ELEMS,
    ceil_div,
    copy_planes,
    core_share,
    free_flag,
)

PROLOGUE, LOAD_DY, LOAD_X, LOAD_L0A, LOAD_L0B, MMAD, DRAIN, STORE, EPILOGUE = range(9)
SITES = {
    PROLOGUE: "PROLOGUE", LOAD_DY: "LOAD_DY", LOAD_X: "LOAD_X", LOAD_L0A: "LOAD_L0A", LOAD_L0B: "LOAD_L0B",
    MMAD: "MMAD", DRAIN: "DRAIN", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip

STAGE, ITEM, ITEM_END, BD, BD_END = 2, 3, 4, 5, 6
K1, K0 = 7, 8
A_HALF, L0_HALF, C_HALF, UB_HALF = 9, 10, 11, 12
M0, M_LEN, BLOCK0, N_BLOCKS = 13, 14, 15, 16
GROUP, TAP, STARTED = 17, 18, 19
B_ROWS, B_PAD_TOP, B_PLANE, B_HALF = 20, 21, 22, 23

START, NEXT_ITEM, NEXT_BATCH, WALK, LEAVE, FINISH, DONE = range(7)


@jit
def _depth(p, s):
    """Return the input depth of the current batch item and tap (outside [0, di): nothing to do)."""
    return (s[BD] % p["dout"]) * p["stride_d"] - p["pad_front"] + s[TAP] * p["dilation_d"]


@jit
def _set_item(p, s):
    """Fill the state of item s[ITEM]; return False if its block lies behind the last channel."""
    item = s[ITEM]
    tasks = p["groups"] * p["dk"] * p["m_count"] * p["n_count"]
    part, task = item // tasks, item % tasks
    n_idx = task % p["n_count"]
    m_idx = task // p["n_count"] % p["m_count"]
    outer = task // (p["n_count"] * p["m_count"])
    s[TAP] = outer % p["dk"]
    s[GROUP] = outer // p["dk"]
    s[M0] = m_idx * p["base_m"]
    s[M_LEN] = min(p["base_m"], min(p["cout_g"], p["c1_dy"] * 16 - s[GROUP] * p["cout_g"]) - s[M0])
    window = p["hk"] * p["wk"]
    s[BLOCK0] = n_idx * (p["base_n"] // 16)
    planes = min(p["cin1_g"], p["c1_x"] - s[GROUP] * p["cin1_g"])
    s[N_BLOCKS] = min(p["base_n"] // 16, planes * window - s[BLOCK0])
    total = p["n"] * p["dout"]
    first, s[BD_END] = core_share(total, p["parts"], part)
    s[BD] = first - 1
    s[STARTED] = 0
    return s[M_LEN] > 0 and s[N_BLOCKS] > 0


@jit
def _flags(rows, n, p, wait, site):
    """Prime (``wait`` 0) or drain (1) the flags that say "this buffer is free"."""
    for half in range(p["al1"]):
        n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, wait, site)
    for half in range(p["bl1"]):
        n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + half, wait, site)
    for half in range(2):
        n = free_flag(rows, n, Pipe.M, Pipe.MTE1, half, wait, site)
        n = free_flag(rows, n, Pipe.V, Pipe.M, half, wait, site)
        n = free_flag(rows, n, Pipe.MTE3, Pipe.V, half, wait, site)
    return n


@jit
def _load_dy(rows, n, p, s, pixel0, pixels, dst):
    """Load dY as [c1][pixels, padded to 16][16]; the padding lanes get any valid data (they are never multiplied)."""
    tile = s[ITEM]
    padded = ceil_div(pixels, 16) * 16
    blocks = s[M_LEN] // 16
    hw = p["dy_hw"]
    plane = s[BD] * p["c1_dy"] + (s[GROUP] * p["cout_g"] + s[M0]) // 16
    src = p["dy"] + plane * hw * BLOCK
    if p["double_w"]:
        for b in range(blocks):
            for column in range(2):
                n = emit_data_copy(
                    rows,
                    n,
                    Space.L1,
                    dst + (b * padded + column) * BLOCK,
                    Space.GM,
                    src + (b * hw + pixel0 // 2) * BLOCK,
                    pixels // 2,
                    1,
                    0,
                    1,
                    p["data"],
                    p["dy_tensor"],
                    LOAD_DY,
                    tile,
                )
    else:
        n = copy_planes(
            rows,
            n,
            dst,
            src + pixel0 * BLOCK,
            blocks,
            pixels,
            padded,
            hw,
            p["data"],
            p["dy_tensor"],
            LOAD_DY,
            tile,
        )
    filled = pixels
    while filled < padded:
        length = min(padded - filled, hw)
        n = copy_planes(
            rows,
            n,
            dst + filled * BLOCK,
            src,
            blocks,
            length,
            padded,
            hw,
            p["data"],
            p["dy_tensor"],
            LOAD_DY,
            tile,
        )
        filled += length
    return n


@jit
def _load_x(rows, n, p, s, pixel0, pixels, dst):
    """Load the rows of X that the windows of ``pixels`` touch, for the planes of this N block, as [c1][rows][W][16]."""
    tile = s[ITEM]
    first = (pixel0 // p["wo"]) * p["stride_h"] - p["pad_up"]
    last = ((pixel0 + pixels - 1) // p["wo"]) * p["stride_h"] - p["pad_up"] + (p["hk"] - 1) * p["dilation_h"]
    window = p["hk"] * p["wk"]
    s[B_PAD_TOP] = max(-first, 0)
    first = max(first, 0)
    s[B_ROWS] = max(min(last, p["hi"] - 1) - first + 1, 0)
    s[B_PLANE] = s[BLOCK0] // window
    if s[B_ROWS] == 0:
        return n
    channel_pixels = s[B_ROWS] * p["wi"]
    copies = 1
    if p["load_2d"]:
        # the one pixel fills a fractal, whose other rows are loaded too but never multiplied
        channel_pixels = 16
        copies = 16
    planes = (s[BLOCK0] + s[N_BLOCKS] - 1) // window - s[B_PLANE] + 1
    hw = p["hi"] * p["wi"]
    batch = s[BD] // p["dout"]
    plane = (batch * p["di"] + _depth(p, s)) * p["c1_x"] + s[GROUP] * p["cin1_g"] + s[B_PLANE]
    src = p["x"] + (plane * hw + first * p["wi"]) * BLOCK
    length = s[B_ROWS] * p["wi"]
    for i in range(copies):
        at = dst + i * BLOCK
        n = copy_planes(rows, n, at, src, planes, length, channel_pixels, hw, p["data"], p["x_tensor"], LOAD_X, tile)
    return n


@jit
def _load_l0a(rows, n, p, s, dst, src, pixel, k_use, padded):
    """L1 to L0A by transposing fractal loads: per 16 channels, the K fractals in a row."""
    fractals = ceil_div(k_use, 16)
    for m1 in range(s[M_LEN] // 16):
        n = emit_load_2d(
            rows,
            n,
            Space.L0A,
            dst + m1 * fractals * 512,
            Space.L1,
            src + (m1 * padded + pixel) * BLOCK,
            p["data"],
            0,
            fractals,
            1,
            0,
            Mode.TRANSPOSE,
            -1,
            LOAD_L0A,
            s[ITEM],
        )
    return n


@jit
def _window_row(rows, n, p, s):
    set_feature_map(rows, n, s[B_ROWS], p["wi"], p["pad_left"], p["pad_right"], s[B_PAD_TOP], p["pad_down"])
    set_window(rows, n, p["stride_w"], p["stride_h"], p["wk"], p["hk"], p["dilation_w"], p["dilation_h"])


@jit
def _load_l0b(rows, n, p, s, dst, src, m_start, k_use):
    """L1 to L0B by img2col: one load3d v2, or on cores that have only v1 one call per N fractal.

    Where all is one pixel, the planes are the N fractals, and one transposing fractal load brings them.
    """
    window = p["hk"] * p["wk"]
    block = s[BLOCK0] - s[B_PLANE] * window
    fractals = ceil_div(k_use, 16)
    if s[B_ROWS] == 0:
        # every window lies in the padding
        return emit_fill(rows, n, Space.L0B, dst, p["data"], fractals * s[N_BLOCKS], 1, 0, 0, LOAD_L0B, s[ITEM])
    if p["load_2d"]:
        return emit_load_2d(
            rows,
            n,
            Space.L0B,
            dst,
            Space.L1,
            src + block * 512,
            p["data"],
            0,
            s[N_BLOCKS],
            1,
            0,
            Mode.TRANSPOSE,
            -1,
            LOAD_L0B,
            s[ITEM],
        )
    if p["has_v2"]:
        _window_row(rows, n, p, s)
        channels = ceil_div(block + s[N_BLOCKS], window) * 16
        return emit_load_3d(
            rows,
            n,
            Space.L0B,
            dst,
            src,
            p["data"],
            channels,
            s[N_BLOCKS] * 16,
            fractals * 16,
            block * 16,
            m_start,
            0,
            LOAD_L0B,
            s[ITEM],
        )
    top = (m_start // p["wo"]) * p["stride_h"] - s[B_PAD_TOP]
    left = (m_start % p["wo"]) * p["stride_w"] - p["pad_left"]
    for i in range(s[N_BLOCKS]):
        tap = block + i
        _window_row(rows, n, p, s)
        n = emit_load_3d_v1(
            rows,
            n,
            Space.L0B,
            dst + i * 512,
            src,
            p["data"],
            tap // window,
            tap % p["wk"],
            tap // p["wk"] % p["hk"],
            left,
            top,
            s[N_BLOCKS],
            1,
            fractals,
            LOAD_L0B,
            s[ITEM],
        )
    return n


@jit
def _k_step(rows, n, p, s):
    """Emit one L0 step; the first of an L1 step loads both operands first."""
    tile = s[ITEM]
    k_l1, base_k = p["k_l1"], p["base_k"]
    pixels = min(k_l1, p["hw"] - s[K1] * k_l1)
    pixel0 = s[K1] * k_l1
    a_half, b_half = s[A_HALF], s[B_HALF]
    a_src = p["a1"] + a_half * p["a1_bytes"]
    b_src = p["b1"] + b_half * p["b1_bytes"]
    if s[K0] == 0:
        n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, a_half, LOAD_DY, tile)
        n = _load_dy(rows, n, p, s, pixel0, pixels, a_src)
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, a_half, LOAD_DY, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + b_half, LOAD_X, tile)
        n = _load_x(rows, n, p, s, pixel0, pixels, b_src)
        n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + b_half, LOAD_X, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, a_half, LOAD_L0A, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + b_half, LOAD_L0B, tile)
    offset = s[K0] * base_k
    k_use = min(base_k, pixels - offset)
    last = offset + k_use == pixels
    l0 = s[L0_HALF]
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, l0, LOAD_L0A, tile)
    n = _load_l0a(rows, n, p, s, l0 * p["l0a_half"], a_src, offset, k_use, ceil_div(pixels, 16) * 16)
    n = _load_l0b(rows, n, p, s, l0 * p["l0b_half"], b_src, pixel0 % p["wo"] + offset, k_use)
    if last:
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, a_half, LOAD_L0A, tile)
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + b_half, LOAD_L0B, tile)
    n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, l0, LOAD_L0B, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, l0, MMAD, tile)
    if not s[STARTED]:
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.M, s[C_HALF], MMAD, tile)
    n_use = s[N_BLOCKS] * 16
    n = emit_mmad(
        rows,
        n,
        s[C_HALF] * p["l0c_half"],
        l0 * p["l0a_half"],
        l0 * p["l0b_half"],
        p["data"],
        s[M_LEN],
        n_use,
        k_use,
        0 if s[STARTED] else Mode.INIT,
        MMAD,
        tile,
    )
    if s[M_LEN] * n_use < MMAD_BARRIER_ELEMS:
        n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
    n = emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, l0, MMAD, tile)
    s[STARTED] = 1
    s[L0_HALF] = 1 - l0
    s[K0] += 1
    if last:
        s[K0] = 0
        s[K1] += 1
        s[A_HALF] = (a_half + 1) % p["al1"]
        s[B_HALF] = (b_half + 1) % p["bl1"]
    return n


@jit
def _leave(rows, n, p, s):
    """L0C to UB to GM: slices of whole N columns, through two halves of UB."""
    tile = s[ITEM]
    c_half = s[C_HALF]
    m = s[M_LEN]
    per_slice = min(p["ub_half"] // (m * 64), s[N_BLOCKS])
    window = p["hk"] * p["wk"]
    column0 = (s[GROUP] * p["dk"] + s[TAP]) * p["cin1_g"] * window + s[BLOCK0]
    n = emit_set_flag(rows, n, Pipe.M, Pipe.V, c_half, DRAIN, tile)
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.V, c_half, DRAIN, tile)
    done = np.int64(0)
    while done < s[N_BLOCKS]:
        count = min(per_slice, s[N_BLOCKS] - done)
        half = s[UB_HALF]
        ub = half * p["ub_half"]
        n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, half, DRAIN, tile)
        n = emit_l0c_to_ub(
            rows, n, ub, c_half * p["l0c_half"] + done * m * 64, Data.FP32, count, m // 16, 0, 0, DRAIN, tile
        )
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, half, DRAIN, tile)
        n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, half, STORE, tile)
        dst = p["dw"] + ((column0 + done) * p["cout_g"] + s[M0]) * 64
        if p["parts"] > 1:
            n = emit_set_atomic(rows, n, Data.FP32, STORE, tile)
        n = _store_columns(rows, n, p, dst, ub, count, m, tile)
        if p["parts"] > 1:
            n = emit_set_atomic(rows, n, Data.NONE, STORE, tile)
        n = emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)
        s[UB_HALF] = 1 - half
        done += count
    n = emit_set_flag(rows, n, Pipe.V, Pipe.M, c_half, DRAIN, tile)
    s[C_HALF] = 1 - c_half
    return n


@jit
def _store_columns(rows, n, p, dst, ub, count, m, tile):
    gap = 2 * (p["cout_g"] - m)
    if gap > MAX_FIELD:
        for i in range(count):
            n = emit_data_copy(
                rows,
                n,
                Space.GM,
                dst + i * p["cout_g"] * 64,
                Space.UB,
                ub + i * m * 64,
                1,
                2 * m,
                0,
                0,
                Data.FP32,
                p["dw_tensor"],
                STORE,
                tile,
            )
        return n
    return emit_data_copy(
        rows, n, Space.GM, dst, Space.UB, ub, count, 2 * m, 0, gap, Data.FP32, p["dw_tensor"], STORE, tile
    )


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]``; see `npu_sim.program.launch.Launch`.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer of at least ``params["step_rows"]`` rows.
    params : `params.UNIFIED_PARAMS`[1]
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
    n = 0
    if s[STAGE] == START:
        first, s[ITEM_END] = core_share(p["items"], p["cores"], s[0])
        s[ITEM] = first - 1
        n = _flags(rows, n, p, 0, PROLOGUE)
        s[STAGE] = NEXT_ITEM
    room = len(rows) - p["step_rows"]
    while n <= room and s[STAGE] < FINISH:
        if s[STAGE] == NEXT_ITEM:
            s[ITEM] += 1
            if s[ITEM] == s[ITEM_END]:
                s[STAGE] = FINISH
            elif _set_item(p, s):
                s[STAGE] = NEXT_BATCH
        elif s[STAGE] == NEXT_BATCH:
            s[BD] += 1
            s[K1] = 0
            s[K0] = 0
            if s[BD] == s[BD_END]:
                s[STAGE] = LEAVE if s[STARTED] else NEXT_ITEM
            elif 0 <= _depth(p, s) < p["di"]:
                s[STAGE] = WALK
        elif s[STAGE] == WALK:
            n = _k_step(rows, n, p, s)
            if s[K1] * p["k_l1"] >= p["hw"]:
                s[STAGE] = NEXT_BATCH
        else:
            n = _leave(rows, n, p, s)
            s[STAGE] = NEXT_ITEM
    if s[STAGE] == FINISH and n <= room:
        n = _flags(rows, n, p, 1, EPILOGUE)
        s[STAGE] = DONE
    return n
