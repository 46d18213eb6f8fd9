"""The walk of the weight-gradient kernel of dav-c220 over one single shape: base block by base block.

M = output channels, N = (c1, kh, kw, c0) of the feature map, K = output pixels; A = dY, B = im2col(X), C in L0C. A
*single shape* is what a core computes from one batch item, depth pair and block of M, N and K: `set_single_shape`
starts its walk, `block_rows` emits the K steps of the base block the walk is at, `store_rows` its way out of L0C, and
`next_block` goes on to the next. The operator's kernel (`kernel_split`) and the Ascend C object (`ops.ascendc`) both
drive these pieces.

Sources: asc-devkit ``impl/adv_api/detail/conv_backprop/conv3d_backprop_filter`` (walk, loads).

Three places differ from the published code. An L0A load addresses the pixels of a K step through mStartPt instead of a
shifted base, with equal results, so that it never touches bytes behind the loaded pixels. A B step whose rows all lie
in the padding fills L0B with zeros, where the published code leaves stale data. And an L0A load takes the number of
pixels of the A1 buffer it reads, where the published code takes that of the last load: with K resident in two buffers,
the second one shorter, and stepM above 1, its second M block then reads the wrong rows of the first buffer.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_fill,
    emit_fixpipe,
    emit_load_3d,
    emit_mmad,
    emit_pipe_barrier,
    emit_set_atomic,
    emit_set_flag,
    emit_wait_flag,
    set_feature_map,
    set_window,
)
from npu_sim.isa.op import Data, Mode, Pipe, Space
from ops.common.kernel_parts import BLOCK, MMAD_BARRIER_ELEMS, ceil_div, copy_planes, free_flag

# sites
CLEAR, PROLOGUE, LOAD_DY, LOAD_X, LOAD_L0A, LOAD_L0B, MMAD, STORE, EPILOGUE = range(9)
SITES = {
    CLEAR: "CLEAR", PROLOGUE: "PROLOGUE", LOAD_DY: "LOAD_DY", LOAD_X: "LOAD_X", LOAD_L0A: "LOAD_L0A",
    LOAD_L0B: "LOAD_L0B", MMAD: "MMAD", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip

# words of the emitter's state behind core (0), phase (1) and those of the driver (2 to 4)
ITEM = 3
K = 5
M1, N1, CUR_M, CUR_N = 6, 7, 8, 9
LOAD_A, LOAD_B, L0_HALF, C_HALF = 10, 11, 12, 13
M_LEN, N_LEN, K_LEN, HO_START = 14, 15, 16, 17
X_BASE, DY_BASE, DW_BASE, Q_LEN = 18, 19, 20, 21
M_ITER, N_ITER, K_ITER = 22, 23, 24
A_PIXELS, B_ROWS, B_PAD_TOP, B_FIRST_PLANE = 25, 26, 27, 28
NEXT_M1, NEXT_N1, NEXT_M, NEXT_N, NEXT_A, NEXT_B, HAS_NEXT = 30, 31, 32, 33, 34, 35, 36
HELD, A_LOADS, B_LOADS, B_BYTES, PADDED_STEPS = 37, 38, 39, 40, 41

# bits of HELD: buffers in use, whose "free" flag is clear; the events of A1 and B1 (0 to 3), then the halves of L0C
HELD_L0C = 4


@jit
def covered_rows(pixels, wo):
    """Return how many output rows a run of ``pixels`` may touch (the published rule, which may be one too many)."""
    if pixels == wo or (pixels < wo and wo % pixels == 0):
        return np.int64(1)
    if pixels < wo:
        return np.int64(2)
    rows = ceil_div(pixels, wo)
    if pixels == rows * wo or (2 * pixels) % wo == 0:
        return rows
    return rows + 1


@jit
def plane_copies(n_blocks, window):
    """Return how many C1 planes of X a stretch of ``n_blocks`` (window, c0) blocks may touch."""
    copies = np.int64(1) if window > n_blocks else ceil_div(n_blocks, window)
    if window > n_blocks:
        if window % n_blocks != 0:
            copies += 1
    elif (2 * n_blocks) % window != 0:
        copies += 1
    return copies


@jit
def _look_ahead(p, s):
    """Compute the next base block into s[NEXT_M1..HAS_NEXT]: position, which operands to reload, whether it exists."""
    m1, n1, m, n = s[M1], s[N1], s[CUR_M], s[CUR_N]
    step_m, step_n = p["step_m"], p["step_n"]
    m_end = min(m1 + step_m, s[M_ITER])
    n_end = min(n1 + step_n, s[N_ITER])
    s[NEXT_A] = 0
    s[NEXT_B] = 0
    s[HAS_NEXT] = 1
    if p["order_n"]:
        m += 1
        if m == m_end:
            m = m1
            n += 1
            s[NEXT_A] = 1
            if n == n_end:
                m1 += step_m
                if m1 >= s[M_ITER]:
                    m1 = np.int64(0)
                    n1 += step_n
                    s[NEXT_B] = 1
                    if n1 >= s[N_ITER]:
                        s[HAS_NEXT] = 0
                m = m1
                n = n1
    else:
        n += 1
        if n == n_end:
            n = n1
            m += 1
            s[NEXT_B] = 1
            if m == m_end:
                n1 += step_n
                if n1 >= s[N_ITER]:
                    n1 = np.int64(0)
                    m1 += step_m
                    s[NEXT_A] = 1
                    if m1 >= s[M_ITER]:
                        s[HAS_NEXT] = 0
                m = m1
                n = n1
    s[NEXT_M1] = m1
    s[NEXT_N1] = n1
    s[NEXT_M] = m
    s[NEXT_N] = n


@jit
def buffer_flags(rows, n, p, s, drain, site):
    """Prime (``drain`` 0) or drain (1) the flags that say "this buffer is free"; those of held buffers are clear."""
    for half in range(p["al1"]):
        if s[HELD] >> half & 1 == 0:
            n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, drain, site)
    for half in range(p["bl1"]):
        if s[HELD] >> (2 + half) & 1 == 0:
            n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + half, drain, site)
    for half in range(p["l0_buffers"]):
        n = free_flag(rows, n, Pipe.M, Pipe.MTE1, half, drain, site)
    for half in range(p["cl0"]):
        if s[HELD] >> (HELD_L0C + half) & 1 == 0:
            n = free_flag(rows, n, Pipe.FIX, Pipe.M, half, drain, site)
    return n


@jit
def _load_dy(rows, n, p, s, step, half):
    """LoadToA1: K step ``step`` of dY, all m of the L1 block, as [C1][pixels][C0]; remembers the pixel count."""
    tile = s[ITEM]
    kal1 = p["step_ka"] * p["base_k"]
    pixels = min(kal1, s[K_LEN] - step * kal1)
    s[A_PIXELS] = pixels
    m0 = s[M1] * p["base_m"]
    m_len = min(p["step_m"] * p["base_m"], s[M_LEN] - m0)
    blocks = m_len // p["c0"]
    hw = p["ho"] * p["wo"]
    src = s[DY_BASE] + (m0 // p["c0"] * hw + step * kal1) * BLOCK
    dst = p["a1"] + half * p["a1_bytes"]
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, LOAD_DY, tile)
    s[HELD] |= 1 << half
    s[A_LOADS] += 1
    n = copy_planes(rows, n, dst, src, blocks, pixels, pixels, hw, p["data"], p["dy_tensor"], LOAD_DY, tile)
    if p["c0"] == 8 and blocks % 2 == 1:
        n = emit_fill(rows, n, Space.L1, dst + blocks * pixels * BLOCK, p["data"], 1, pixels, 0, 0, LOAD_DY, tile)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, LOAD_DY, tile)
    return emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, LOAD_DY, tile)


@jit
def _x_window(p, s, step):
    """Fill the state with the rows and planes of X that K step ``step`` holds; return its first row in the map."""
    kbl1 = p["step_kb"] * p["base_k"]
    first_pixel = step * kbl1
    hi_abs = (first_pixel // p["wo"] + s[HO_START]) * p["stride_h"] - p["pad_up"]
    span = (p["hk"] - 1) * p["dilation_h"] + 1 - p["stride_h"]
    count = covered_rows(min(kbl1, s[K_LEN] - first_pixel), p["wo"]) * p["stride_h"] + span
    # not past the map, nor past what this single shape needs
    row_in = max(hi_abs, 0) - max(s[HO_START] * p["stride_h"] - p["pad_up"], 0)
    needed = min(p["hi"], (s[K_LEN] // p["wo"]) * p["stride_h"] + span)
    s[B_PAD_TOP] = max(-hi_abs, 0)
    count = min(count - s[B_PAD_TOP], p["hi"] - max(hi_abs, 0))
    s[B_ROWS] = max(min(count, needed - row_in), 0)
    s[B_FIRST_PLANE] = s[N1] * p["base_n"] // p["c0"] // (p["hk"] * p["wk"])
    return max(hi_abs, 0)


@jit
def _load_x(rows, n, p, s, step, half):
    """LoadToB1: the rows of X under K step ``step``, all planes of the N block, as [C1][rows][wi][C0]."""
    tile = s[ITEM]
    first_row = _x_window(p, s, step)
    n_blocks = min(p["step_n"] * p["base_n"], s[N_LEN] - s[N1] * p["base_n"]) // p["c0"]
    copies = min(plane_copies(n_blocks, p["hk"] * p["wk"]), s[Q_LEN] - s[B_FIRST_PLANE])
    hw = p["hi"] * p["wi"]
    src = s[X_BASE] + (s[B_FIRST_PLANE] * hw + first_row * p["wi"]) * BLOCK
    dst = p["b1"] + half * p["b1_bytes"]
    length = s[B_ROWS] * p["wi"]
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + half, LOAD_X, tile)
    s[HELD] |= 4 << half
    s[B_LOADS] += 1
    s[B_BYTES] = max(s[B_BYTES], copies * length * BLOCK)
    if length > 0:
        n = copy_planes(rows, n, dst, src, copies, length, length, hw, p["data"], p["x_tensor"], LOAD_X, tile)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + half, LOAD_X, tile)
    return emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, 2 + half, LOAD_X, tile)


@jit
def _load_l0b(rows, n, p, s, l0_half, b_half, k_use, n_use):
    """L1 to L0B: img2col of K step s[K], columns of the current N block."""
    tile = s[ITEM]
    kb = s[K] % p["step_kb"]
    per_plane = p["hk"] * p["wk"]
    dst = l0_half * p["l0b_half"]
    m_ext = ceil_div(k_use, p["c0"]) * p["c0"]
    if s[B_ROWS] == 0:
        s[PADDED_STEPS] += 1
        fractals = ceil_div(k_use, p["c0"]) * ceil_div(n_use, 16)
        return emit_fill(rows, n, Space.L0B, dst, p["data"], 1, fractals, 0, 0, LOAD_L0B, tile)
    k_start = s[CUR_N] * (p["base_n"] // p["c0"]) - s[B_FIRST_PLANE] * per_plane
    channels = ceil_div(k_start + n_use // p["c0"], per_plane) * p["c0"]
    m_start = ((s[K] - kb) * p["base_k"]) % p["wo"] + kb * p["base_k"]
    set_feature_map(rows, n, s[B_ROWS], p["wi"], p["pad_left"], p["pad_right"], s[B_PAD_TOP], p["pad_down"])
    set_window(rows, n, p["stride_w"], p["stride_h"], p["wk"], p["hk"], p["dilation_w"], p["dilation_h"])
    return emit_load_3d(
        rows,
        n,
        Space.L0B,
        dst,
        p["b1"] + b_half * p["b1_bytes"],
        p["data"],
        channels,
        n_use,
        m_ext,
        k_start * p["c0"],
        m_start,
        0,
        LOAD_L0B,
        tile,
    )


@jit
def _load_l0a(rows, n, p, s, l0_half, a_half, k_use, m_use):
    """L1 to L0A: channels become M, pixels K (transposing load3d with a 1x1 window)."""
    channels = ceil_div(m_use, 16) * 16
    src = p["a1"] + a_half * p["a1_bytes"]
    src += (s[CUR_M] - s[M1]) * (p["base_m"] // p["c0"]) * s[A_PIXELS] * BLOCK
    set_feature_map(rows, n, 1, s[A_PIXELS], 0, 0, 0, 0)
    set_window(rows, n, 1, 1, 1, 1, 1, 1)
    return emit_load_3d(
        rows,
        n,
        Space.L0A,
        l0_half * p["l0a_half"],
        src,
        p["data"],
        channels,
        channels,
        ceil_div(k_use, p["c0"]) * p["c0"],
        0,
        s[K] % p["step_ka"] * p["base_k"],
        Mode.TRANSPOSE,
        LOAD_L0A,
        s[ITEM],
    )


@jit
def _k_step(rows, n, p, s):
    """Emit one K step of the current base block."""
    release_a = s[NEXT_A] or not s[HAS_NEXT]
    release_b = s[NEXT_B] or not s[HAS_NEXT]
    tile = s[ITEM]
    k = s[K]
    ka, kb = k % p["step_ka"], k % p["step_kb"]
    a_step, b_step = k // p["step_ka"], k // p["step_kb"]
    a_round, b_round = ceil_div(s[K_ITER], p["step_ka"]), ceil_div(s[K_ITER], p["step_kb"])
    a_half = (a_round * (s[M1] // p["step_m"]) + a_step) % p["al1"]
    b_half = (b_round * (s[N1] // p["step_n"]) + b_step) % p["bl1"]
    last = k == s[K_ITER] - 1
    k_use = s[K_LEN] - k * p["base_k"] if last else p["base_k"]
    m_use = min(p["base_m"], s[M_LEN] - s[CUR_M] * p["base_m"])
    n_use = min(p["base_n"], s[N_LEN] - s[CUR_N] * p["base_n"])
    a_stream = s[K_ITER] > p["step_ka"] * p["al1"]
    b_stream = s[K_ITER] > p["step_kb"] * p["bl1"]
    if kb == 0:
        if s[LOAD_B] or b_stream:
            n = _load_x(rows, n, p, s, b_step, b_half)
        else:
            _x_window(p, s, b_step)
    if ka == 0:
        if s[LOAD_A] or a_stream:
            n = _load_dy(rows, n, p, s, a_step, a_half)
        else:
            s[A_PIXELS] = min(p["step_ka"] * p["base_k"], s[K_LEN] - k * p["base_k"])
    half = s[L0_HALF]
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, half, LOAD_L0B, tile)
    n = _load_l0b(rows, n, p, s, half, b_half, k_use, n_use)
    n = _load_l0a(rows, n, p, s, half, a_half, k_use, m_use)
    if (b_stream or release_b) and (last or kb == p["step_kb"] - 1):
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, 2 + b_half, LOAD_L0B, tile)
        s[HELD] &= ~(np.int64(4) << b_half)
    if (a_stream or release_a) and (last or ka == p["step_ka"] - 1):
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, a_half, LOAD_L0A, tile)
        s[HELD] &= ~(np.int64(1) << a_half)
    n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, half, LOAD_L0A, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, half, MMAD, tile)
    if k == 0:
        n = emit_wait_flag(rows, n, Pipe.FIX, Pipe.M, s[C_HALF], MMAD, tile)
        s[HELD] |= np.int64(1) << (HELD_L0C + s[C_HALF])
    mode = (Mode.INIT if k == 0 else 0) | (Mode.K_ALIGN if p["c0"] == 8 else 0)
    n = emit_mmad(
        rows,
        n,
        s[C_HALF] * p["l0c_half"],
        half * p["l0a_half"],
        half * p["l0b_half"],
        p["data"],
        m_use,
        n_use,
        k_use,
        mode,
        MMAD,
        tile,
    )
    if m_use * n_use < MMAD_BARRIER_ELEMS:
        n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
    n = emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, half, MMAD, tile)
    if p["l0_buffers"] == 2:
        s[L0_HALF] = 1 - half
    return n


@jit
def store_rows(rows, n, p, s, atomic, sequential):
    """GetTensorC: the finished block of L0C goes to dW, which already has the order L0C leaves in.

    ``atomic``: it is added to dW. ``sequential``: it goes to the first bytes of the output, its columns of C0 channels
    base_m rows apart, instead of to its place in dW.
    """
    tile = s[ITEM]
    half = s[C_HALF]
    m_use = min(p["base_m"], s[M_LEN] - s[CUR_M] * p["base_m"])
    n_use = min(p["base_n"], s[N_LEN] - s[CUR_N] * p["base_n"])
    dst, plane = s[DW_BASE], p["base_m"]
    if not sequential:
        dst += (s[CUR_N] * p["base_n"] * p["cout_g"] + s[CUR_M] * p["base_m"] * p["c0"]) * 4
        plane = p["cout_g"]
    mode = Mode.CHANNEL_SPLIT if p["c0"] == 8 else 0
    n = emit_set_flag(rows, n, Pipe.M, Pipe.FIX, half, STORE, tile)
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.FIX, half, STORE, tile)
    if atomic:
        n = emit_set_atomic(rows, n, Data.FP32, STORE, tile)
    n = emit_fixpipe(
        rows,
        n,
        Space.GM,
        dst,
        half * p["l0c_half"],
        Data.FP32,
        m_use,
        n_use,
        ceil_div(m_use, 16) * 16,
        plane * p["c0"] * 4 // BLOCK,
        1,
        0,
        0,
        mode,
        p["dw_tensor"],
        STORE,
        tile,
    )
    if atomic:
        n = emit_set_atomic(rows, n, Data.NONE, STORE, tile)
    n = emit_set_flag(rows, n, Pipe.FIX, Pipe.M, half, STORE, tile)
    s[HELD] &= ~(np.int64(1) << (HELD_L0C + half))
    if p["cl0"] == 2:
        s[C_HALF] = 1 - half
    return n


@jit
def set_single_shape(p, s):
    """Start the walk of the single shape s[M_LEN], s[Q_LEN] (planes of C0 channels), s[K_LEN] at its first block."""
    s[N_LEN] = s[Q_LEN] * p["hk"] * p["wk"] * p["c0"]
    s[M_ITER] = ceil_div(s[M_LEN], p["base_m"])
    s[N_ITER] = ceil_div(s[N_LEN], p["base_n"])
    s[K_ITER] = ceil_div(s[K_LEN], p["base_k"])
    s[M1] = 0
    s[N1] = 0
    s[CUR_M] = 0
    s[CUR_N] = 0
    s[K] = 0
    s[LOAD_A] = 1
    s[LOAD_B] = 1
    _look_ahead(p, s)


@jit
def block_rows(rows, n, p, s):
    """Iterate: emit K steps of the current base block until it ends (s[K] is s[K_ITER]) or there is no room for one."""
    room = len(rows) - p["step_rows"]
    while s[K] < s[K_ITER] and n <= room:
        n = _k_step(rows, n, p, s)
        s[K] += 1
    return n


@jit
def next_block(p, s):
    """Go on to the next base block; return False if there is none."""
    s[K] = 0
    s[M1], s[N1], s[CUR_M], s[CUR_N] = s[NEXT_M1], s[NEXT_N1], s[NEXT_M], s[NEXT_N]
    s[LOAD_A], s[LOAD_B] = s[NEXT_A], s[NEXT_B]
    if not s[HAS_NEXT]:
        return False
    _look_ahead(p, s)
    return True
