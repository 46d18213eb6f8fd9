"""The walk of the weight-gradient kernel of dav-c220 over one single shape: base block by base block.

M = output channels, N = (c1, kh, kw, c0) of the feature map, K = output pixels; A = dY, B = im2col(X), C in L0C. A
*single shape* is what a core computes from one batch item, depth pair and block of M, N and K, and from all of the two
images or a part of them (`parts`). The operator's kernel (`kernel_split`) and the Ascend C object (`ops.ascendc`) both
walk it with these pieces:

    start_single_shape(p, walk, part)
    for block in range(walk[0].blocks):
        start_block(p, walk, block)
        for k in range(walk[0].k_steps):
            n = k_step(rows, n, p, walk, k)
        n = store_block(rows, n, p, walk, ...)

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
    emit_set_hf32,
    set_feature_map,
    set_window,
)
from npu_sim.isa.op import Data, Mode, Pipe, Space
from npu_sim.program.limits import MMAD_BARRIER_ELEMS
from ops.common.kernel_parts import BLOCK, ceil_div, copy_pixels
from ops.common.queues import Queue, alloc, deque, enque, free, open_queue
from ops.conv3d_backprop_filter.parts import set_img2col

# sites
CLEAR, PROLOGUE, LOAD_DY, LOAD_X, LOAD_L0A, LOAD_L0B, MMAD, STORE, EPILOGUE = range(9)
SITES = {
    CLEAR: "CLEAR", PROLOGUE: "PROLOGUE", LOAD_DY: "LOAD_DY", LOAD_X: "LOAD_X", LOAD_L0A: "LOAD_L0A",
    LOAD_L0B: "LOAD_L0B", MMAD: "MMAD", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip

A1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value, first_event=0)
"""dY in L1."""
B1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value, first_event=2)
"""X in L1."""
L0 = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value)
"""L0A and L0B."""
L0C = Queue(producer=Pipe.M.value, consumer=Pipe.FIX.value)
"""Sums of a base block."""

_FIELDS = (
    # the single shape, given by whoever starts it: its number, extents in elements (of N: channel blocks), first row of
    # dY in the whole image, addresses, and of where the sums go rows of M from a column of C0 channels to the next
    "tile", "m_len", "planes", "k_len", "first_row", "x", "dy", "dw", "dw_tensor", "dw_plane",
    # dY's first pixel of K; of the part of the images what `parts.Part` says
    "k0", "wo", "hi", "wi", "pad_left", "pad_right", "dy_columns", "dy_row", "x_columns", "x_row", "x_column",
    # what follows from it
    "n_len", "m_blocks", "n_blocks", "blocks", "k_steps",
    # the base block: first one in L1, its own place and size, L1 buffers used before it, whether it loads, frees them
    "m1", "n1", "m", "n", "m_use", "n_use", "a_turn", "b_turn", "load_a", "load_b", "free_a", "free_b",
    # buffers: the halves in turn, what A1 and B1 hold, a bit for each one in use
    "l0_half", "l0c_half", "a_pixels", "x_rows", "x_pad_top", "x_plane", "held_a1", "held_b1", "held_l0c",
    # L0C holds sums of single shapes before this one, to which it adds
    "resumes",
    # counts since the first single shape; the most bytes that a load of X took
    "a_loads", "b_loads", "padded_steps", "b_bytes",
)  # fmt: skip
WALK = np.dtype([(name, "i8") for name in _FIELDS])
"""Where a walk is. Functions take it as an array of one, because a record does not keep the memory of its array."""


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
def start_single_shape(p, walk, part):
    """Count the base blocks and K steps of the single shape that ``walk`` has been given, and that reads ``part``."""
    w = walk[0]
    w.wo, w.hi, w.wi, w.pad_left, w.pad_right = part.wo, part.hi, part.wi, part.pad_left, part.pad_right
    w.dy_columns, w.dy_row = part.dy_columns, part.dy_row
    w.x_columns, w.x_row, w.x_column = part.x_columns, part.x_row, part.x_column
    w.n_len = w.planes * p.hk * p.wk * p.c0
    w.m_blocks = ceil_div(w.m_len, p.base_m)
    w.n_blocks = ceil_div(w.n_len, p.base_n)
    w.blocks = w.m_blocks * w.n_blocks
    w.k_steps = ceil_div(w.k_len, p.base_k)


@jit
def start_block(p, walk, block):
    """Go to base block ``block`` of the single shape: its place, which operands it loads to L1 and which it frees.

    With order_n, stepN blocks of B stay in L1 while all blocks of A pass them, stepM at a time, M innermost; otherwise
    stepM blocks of A stay, and N is innermost. An operand whose K steps do not all fit its buffers stays for no block.
    """
    w = walk[0]
    if p.order_n:
        outer_count, outer_step, inner_count, inner_step = w.n_blocks, p.step_n, w.m_blocks, p.step_m
    else:
        outer_count, outer_step, inner_count, inner_step = w.m_blocks, p.step_m, w.n_blocks, p.step_n
    outer1 = block // (outer_step * inner_count) * outer_step
    height = min(outer_step, outer_count - outer1)
    seen = block - outer1 * inner_count
    inner1 = seen // (height * inner_step) * inner_step
    width = min(inner_step, inner_count - inner1)
    outer = outer1 + (seen - inner1 * height) // width
    inner = inner1 + (seen - inner1 * height) % width
    first_of_outer, last_of_outer = seen == 0, seen == height * inner_count - 1
    first_of_inner, last_of_inner = inner == inner1, inner == inner1 + width - 1

    a_streams = w.k_steps > p.step_ka * p.al1
    b_streams = w.k_steps > p.step_kb * p.bl1
    if p.order_n:
        w.n1, w.n, w.m1, w.m = outer1, outer, inner1, inner
        w.load_b, w.free_b = first_of_outer or b_streams, last_of_outer or b_streams
        w.load_a, w.free_a = first_of_inner or a_streams, last_of_inner or a_streams
    else:
        w.m1, w.m, w.n1, w.n = outer1, outer, inner1, inner
        w.load_a, w.free_a = first_of_outer or a_streams, last_of_outer or a_streams
        w.load_b, w.free_b = first_of_inner or b_streams, last_of_inner or b_streams
    w.m_use = min(p.base_m, w.m_len - w.m * p.base_m)
    w.n_use = min(p.base_n, w.n_len - w.n * p.base_n)
    w.a_turn = ceil_div(w.k_steps, p.step_ka) * (w.m1 // p.step_m)
    w.b_turn = ceil_div(w.k_steps, p.step_kb) * (w.n1 // p.step_n)


@jit
def open_buffers(rows, n, p):
    """Switch HF32 on where the Cube multiplies it, and say once that every buffer is free."""
    if p.hf32:
        n = emit_set_hf32(rows, n, 1, PROLOGUE, -1)
    n = open_queue(rows, n, A1, p.al1, PROLOGUE)
    n = open_queue(rows, n, B1, p.bl1, PROLOGUE)
    n = open_queue(rows, n, L0, p.l0_buffers, PROLOGUE)
    return open_queue(rows, n, L0C, p.cl0, PROLOGUE)


@jit
def _close(rows, n, queue, halves, held):
    for half in range(halves):
        if held >> half & 1 == 0:
            n = alloc(rows, n, queue, half, EPILOGUE, -1)
    return n


@jit
def close_buffers(rows, n, p, walk):
    """Wait until every buffer is free, but for those in use, whose flags nobody would set any more; HF32 goes off."""
    w = walk[0]
    n = _close(rows, n, A1, p.al1, w.held_a1)
    n = _close(rows, n, B1, p.bl1, w.held_b1)
    n = _close(rows, n, L0, p.l0_buffers, 0)
    n = _close(rows, n, L0C, p.cl0, w.held_l0c)
    if p.hf32:
        n = emit_set_hf32(rows, n, 0, EPILOGUE, -1)
    return n


@jit
def _load_dy(rows, n, p, w, k, half):
    """LoadToA1: the pixels from K step ``k`` on, all m of the L1 block, as [C1][pixels][C0]."""
    m0 = w.m1 * p.base_m
    blocks = min(p.step_m * p.base_m, w.m_len - m0) // p.c0
    hw = p.ho * p.wo
    dst = p.a1 + half * p.a1_bytes
    w.held_a1 |= 1 << half
    w.a_loads += 1

    n = alloc(rows, n, A1, half, LOAD_DY, w.tile)
    n = copy_pixels(
        rows, n, dst=dst, src=w.dy + m0 // p.c0 * hw * BLOCK, planes=blocks, first=w.k0 + k * p.base_k,
        count=w.a_pixels, columns=w.dy_columns, row_step=w.dy_row, column_step=1, dst_plane=w.a_pixels, src_plane=hw,
        data=p.data, tensor=p.dy_tensor, site=LOAD_DY, tile=w.tile,
    )  # fmt: skip
    if p.c0 == 8 and blocks % 2 == 1:
        # L0A takes channels by 16
        n = emit_fill(
            rows, n, dst_space=Space.L1, dst=dst + blocks * w.a_pixels * BLOCK, dtype=p.data, repeat=1,
            block_num=w.a_pixels, dst_gap=0, value_bits=0, site=LOAD_DY, tile=w.tile,
        )  # fmt: skip
    n = enque(rows, n, A1, half, LOAD_DY, w.tile)
    # the one wait of MTE1 for this load: K steps and blocks that find the buffer filled go on without
    return deque(rows, n, A1, half, LOAD_DY, w.tile)


@jit
def _x_window(p, w, k):
    """Note which rows and planes of X the B1 buffer from K step ``k`` on holds; return its first row in the map."""
    first_pixel = k * p.base_k
    hi_abs = (first_pixel // w.wo + w.first_row) * p.stride_h - p.pad_up
    span = (p.hk - 1) * p.dilation_h + 1 - p.stride_h
    count = covered_rows(min(p.step_kb * p.base_k, w.k_len - first_pixel), w.wo) * p.stride_h + span
    # not past the map, nor past what this single shape needs
    row_in = max(hi_abs, 0) - max(w.first_row * p.stride_h - p.pad_up, 0)
    needed = min(w.hi, (w.k_len // w.wo) * p.stride_h + span)
    w.x_pad_top = max(-hi_abs, 0)
    count = min(count - w.x_pad_top, w.hi - max(hi_abs, 0))
    w.x_rows = max(min(count, needed - row_in), 0)
    w.x_plane = w.n1 * p.base_n // p.c0 // (p.hk * p.wk)
    return max(hi_abs, 0)


@jit
def _load_x(rows, n, p, w, first_row, half):
    """LoadToB1: the rows of X from ``first_row`` on, all planes of the N block, as [C1][rows][w.wi][C0]."""
    n_blocks = min(p.step_n * p.base_n, w.n_len - w.n1 * p.base_n) // p.c0
    copies = min(plane_copies(n_blocks, p.hk * p.wk), w.planes - w.x_plane)
    hw = p.hi * p.wi
    length = w.x_rows * w.wi
    w.held_b1 |= 1 << half
    w.b_loads += 1
    w.b_bytes = max(w.b_bytes, copies * length * BLOCK)

    n = alloc(rows, n, B1, half, LOAD_X, w.tile)
    if length > 0:
        n = copy_pixels(
            rows, n, dst=p.b1 + half * p.b1_bytes, src=w.x + w.x_plane * hw * BLOCK, planes=copies,
            first=first_row * w.wi, count=length, columns=w.x_columns, row_step=w.x_row, column_step=w.x_column,
            dst_plane=length, src_plane=hw, data=p.data, tensor=p.x_tensor, site=LOAD_X, tile=w.tile,
        )  # fmt: skip
    n = enque(rows, n, B1, half, LOAD_X, w.tile)
    # as in `_load_dy`; it waits also where every row is padding, as the buffer is given back either way
    return deque(rows, n, B1, half, LOAD_X, w.tile)


@jit
def _load_l0b(rows, n, p, w, k, half, src, k_use):
    """L1 to L0B: img2col of K step ``k``, columns of the current N block."""
    dst = half * p.l0b_half
    k_blocks = ceil_div(k_use, p.c0)
    if w.x_rows == 0:
        w.padded_steps += 1
        return emit_fill(
            rows, n, dst_space=Space.L0B, dst=dst, dtype=p.data, repeat=1, block_num=k_blocks * ceil_div(w.n_use, 16),
            dst_gap=0, value_bits=0, site=LOAD_L0B, tile=w.tile,
        )  # fmt: skip
    per_plane = p.hk * p.wk
    k_start = w.n * (p.base_n // p.c0) - w.x_plane * per_plane
    kb = k % p.step_kb
    set_img2col(rows, n, p, w, w.x_rows, w.x_pad_top)
    return emit_load_3d(
        rows, n, dst_space=Space.L0B, dst=dst, src=src, dtype=p.data,
        channel_size=ceil_div(k_start + w.n_use // p.c0, per_plane) * p.c0, k_ext=w.n_use, m_ext=k_blocks * p.c0,
        k_start=k_start * p.c0, m_start=((k - kb) * p.base_k) % w.wo + kb * p.base_k, mode=0, site=LOAD_L0B,
        tile=w.tile,
    )  # fmt: skip


@jit
def _load_l0a(rows, n, p, w, k, half, src, k_use):
    """L1 to L0A: channels become M, pixels K (transposing load3d with a 1x1 window)."""
    channels = ceil_div(w.m_use, 16) * 16
    set_feature_map(rows, n, l1_h=1, l1_w=w.a_pixels, pad_left=0, pad_right=0, pad_top=0, pad_bottom=0)
    set_window(rows, n, stride_w=1, stride_h=1, filter_w=1, filter_h=1, dilation_w=1, dilation_h=1)
    return emit_load_3d(
        rows, n, dst_space=Space.L0A, dst=half * p.l0a_half,
        src=src + (w.m - w.m1) * (p.base_m // p.c0) * w.a_pixels * BLOCK, dtype=p.data, channel_size=channels,
        k_ext=channels, m_ext=ceil_div(k_use, p.c0) * p.c0, k_start=0, m_start=k % p.step_ka * p.base_k,
        mode=Mode.TRANSPOSE, site=LOAD_L0A, tile=w.tile,
    )  # fmt: skip


@jit
def k_step(rows, n, p, walk, k):
    """Emit K step ``k`` of the current base block; ``step_rows`` has room for it and `store_block`."""
    w = walk[0]
    tile = w.tile
    ka, kb = k % p.step_ka, k % p.step_kb
    a_half = (w.a_turn + k // p.step_ka) % p.al1
    b_half = (w.b_turn + k // p.step_kb) % p.bl1
    half = w.l0_half
    last = k == w.k_steps - 1
    k_use = w.k_len - k * p.base_k if last else p.base_k

    if kb == 0:
        first_row = _x_window(p, w, k)
        if w.load_b:
            n = _load_x(rows, n, p, w, first_row, b_half)
    if ka == 0:
        w.a_pixels = min(p.step_ka * p.base_k, w.k_len - k * p.base_k)
        if w.load_a:
            n = _load_dy(rows, n, p, w, k, a_half)

    n = alloc(rows, n, L0, half, LOAD_L0B, tile)
    n = _load_l0b(rows, n, p, w, k, half, p.b1 + b_half * p.b1_bytes, k_use)
    n = _load_l0a(rows, n, p, w, k, half, p.a1 + a_half * p.a1_bytes, k_use)
    if w.free_b and (last or kb == p.step_kb - 1):
        n = free(rows, n, B1, b_half, LOAD_L0B, tile)
        w.held_b1 &= ~(1 << b_half)
    if w.free_a and (last or ka == p.step_ka - 1):
        n = free(rows, n, A1, a_half, LOAD_L0A, tile)
        w.held_a1 &= ~(1 << a_half)
    n = enque(rows, n, L0, half, LOAD_L0A, tile)

    n = deque(rows, n, L0, half, MMAD, tile)
    starts = k == 0 and not w.resumes
    if starts:
        n = alloc(rows, n, L0C, w.l0c_half, MMAD, tile)
        w.held_l0c |= 1 << w.l0c_half
    n = emit_mmad(
        rows, n, dst=w.l0c_half * p.l0c_half, src_a=half * p.l0a_half, src_b=half * p.l0b_half, dtype=p.data, m=w.m_use,
        n_elems=w.n_use, k=k_use, mode=(Mode.INIT if starts else 0) | (Mode.K_ALIGN if p.c0 == 8 else 0), site=MMAD,
        tile=tile,
    )  # fmt: skip
    if w.m_use * w.n_use < MMAD_BARRIER_ELEMS:
        # the next Mmad would read these sums before so small a one wrote them
        n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
    n = free(rows, n, L0, half, MMAD, tile)
    w.l0_half = (half + 1) % p.l0_buffers
    return n


@jit
def store_block(rows, n, p, walk, atomic, sequential):
    """GetTensorC: the finished block of L0C goes to dW (or a slot like it), which has the order L0C leaves in.

    ``atomic``: it is added to dW. ``sequential``: it goes to the first bytes of the output, its columns of C0 channels
    base_m rows apart, instead of to its place in dW.
    """
    w = walk[0]
    tile = w.tile
    half = w.l0c_half
    dst, plane = w.dw, p.base_m
    if not sequential:
        dst += (w.n * p.base_n * w.dw_plane + w.m * p.base_m * p.c0) * 4
        plane = w.dw_plane
    mode = Mode.CHANNEL_SPLIT if p.c0 == 8 else 0

    n = enque(rows, n, L0C, half, STORE, tile)
    n = deque(rows, n, L0C, half, STORE, tile)
    if atomic:
        n = emit_set_atomic(rows, n, Data.FP32, STORE, tile)
    n = emit_fixpipe(
        rows, n, dst_space=Space.GM, dst=dst, src=half * p.l0c_half, dst_dtype=Data.FP32, m_size=w.m_use,
        n_size=w.n_use, src_stride=ceil_div(w.m_use, 16) * 16, dst_stride=plane * p.c0 * 4 // BLOCK, nd_num=1,
        src_nd_stride=0, dst_nd_stride=0, mode=mode, tensor=w.dw_tensor, site=STORE, tile=tile,
    )  # fmt: skip
    if atomic:
        n = emit_set_atomic(rows, n, Data.NONE, STORE, tile)
    n = free(rows, n, L0C, half, STORE, tile)
    w.held_l0c &= ~(1 << half)
    w.l0c_half = (half + 1) % p.cl0
    return n
