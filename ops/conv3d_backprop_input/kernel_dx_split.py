"""Loads of the input-gradient kernel of dav-c220: the dilated gradient, its windows, and the transposed weight.

M = input pixels, N = input channels, K = (c1 of dy, reversed window, c0). The gradient gets its inserted zeros in L1:
the image is cleared, then rows or pixels are copied apart. Over it the image-to-column load walks with stride 1. The
weight lies in L1 as in global memory; its fractals are transposed, and the taps reversed, on the way to L0B.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_kernel/arch22`` (conv_bp_sub_func: LoadToA1, LoadToB1, LoadToB2). What
differs, with equal results: only the part of the L1 buffer that a load uses is cleared; an output that pads crop on the
left or right (which the source does not handle) drops columns of the gradient when it is copied.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_fill,
    emit_load_2d,
    emit_load_3d,
    emit_pipe_barrier,
    set_feature_map,
    set_window,
)
from npu_sim.isa.op import Mode, Pipe, Space
from ops.common.kernel_parts import BLOCK, MAX_BLOCK_COUNT, ceil_div, copy_planes
from ops.conv3d_backprop_input.kernel_split_state import (
    A_BLOCKS,
    A_ROW,
    A_ROWS,
    B_ROWS,
    GROUP,
    IMAGE_ROWS,
    IMAGE_SKIP,
    IMAGE_TOP,
    ITEM,
    LOAD_A1,
    LOAD_B1,
    LOAD_L0A,
    LOAD_L0B,
    M1,
    N1,
    N_START,
    K,
)

BOTTOM_PAD = 255
"""Rows behind the image read as zero: the load gets the largest pad, so that it never runs out of windows."""


@jit
def set_image(p, s, first):
    """Fill the state with the rows of L1's image when row 0 of the block's first window is image row ``first``.

    Returns
    -------
    bool
        Whether any row of activations is among them.
    """
    top = max(-first, 0)
    row = max(first, 0)
    s[IMAGE_TOP] = top
    s[IMAGE_ROWS] = max(min(p["base_rows"] - top, p["image_rows"] - row), 0)
    s[IMAGE_SKIP] = (p["insert_h"] - row % p["insert_h"]) % p["insert_h"]
    s[A_ROW] = (row + s[IMAGE_SKIP]) // p["insert_h"]
    s[A_ROWS] = max(ceil_div(s[IMAGE_ROWS] - s[IMAGE_SKIP], p["insert_h"]), 0) if s[IMAGE_ROWS] > 0 else 0
    return s[A_ROWS] > 0


@jit
def _copy_runs(rows, n, dst, src, count, length, src_gap, dst_gap, p, tile):
    """DataCopy of any number of blocks: one row for every `MAX_BLOCK_COUNT` of them."""
    done = 0
    while done < count:
        part = min(count - done, MAX_BLOCK_COUNT)
        at_dst = dst + done * (length + dst_gap) * BLOCK
        at_src = src + done * (length + src_gap) * BLOCK
        n = emit_data_copy(
            rows,
            n,
            Space.L1,
            at_dst,
            Space.GM,
            at_src,
            part,
            length,
            src_gap if part > 1 else 0,
            dst_gap if part > 1 else 0,
            p["data"],
            p["a_tensor"],
            LOAD_A1,
            tile,
        )
        done += part
    return n


@jit
def load_a1(rows, n, p, s, plane, block0, blocks, dst):
    """Copy ``blocks`` channel planes of the activations from GM to the image in L1, [C1][rows][image_w][C0].

    ``plane`` is the GM address of channel block 0 of the group.
    """
    tile = s[ITEM]
    height, width = s[IMAGE_ROWS], p["image_w"]
    hw = p["a_h"] * p["a_w"]
    src = plane + (block0 * hw + s[A_ROW] * p["a_w"] + p["first_column"]) * BLOCK
    spread = p["insert_h"] > 1 or p["insert_w"] > 1
    s[A_BLOCKS] = blocks
    if spread:
        n = emit_fill(rows, n, Space.L1, dst, p["data"], 1, blocks * height * width, 0, 0, LOAD_A1, tile)
        n = emit_pipe_barrier(rows, n, Pipe.MTE2, LOAD_A1, tile)
    elif p["columns"] == p["a_w"]:
        length = height * width
        return copy_planes(rows, n, dst, src, blocks, length, length, hw, p["data"], p["a_tensor"], LOAD_A1, tile)
    if p["columns"] == 0:
        return n
    for c in range(blocks):
        at_dst = dst + ((c * height + s[IMAGE_SKIP]) * width + p["column_at"]) * BLOCK
        at_src = src + c * hw * BLOCK
        if p["insert_w"] > 1:
            for j in range(s[A_ROWS]):
                row_dst = at_dst + j * p["insert_h"] * width * BLOCK
                row_src = at_src + j * p["a_w"] * BLOCK
                n = _copy_runs(rows, n, row_dst, row_src, p["columns"], 1, 0, p["insert_w"] - 1, p, tile)
        else:
            # the image is as wide as what is kept of a row, so rows follow each other without a rest
            apart = (p["insert_h"] - 1) * width + width - p["columns"]
            behind = p["a_w"] - p["columns"]
            n = _copy_runs(rows, n, at_dst, at_src, s[A_ROWS], p["columns"], behind, apart, p, tile)
    return n


@jit
def load_l0a(rows, n, p, s, src, dst, k_use, m_use):
    """Image to L0A: windows as rows, K in the order (c1, tap, c0)."""
    set_feature_map(rows, n, s[IMAGE_ROWS], p["image_w"], p["image_left"], p["image_right"], s[IMAGE_TOP], BOTTOM_PAD)
    set_window(rows, n, p["window_step_w"], p["window_step_h"], p["kw"], p["kh"], p["dilation_w"], p["dilation_h"])
    return emit_load_3d(
        rows,
        n,
        Space.L0A,
        dst,
        src,
        p["data"],
        s[A_BLOCKS] * p["c0"],
        k_use,
        ceil_div(m_use, 16) * 16,
        s[K] % p["step_ka"] * p["base_k"],
        s[M1] * p["base_m"] % p["out_w"],
        0,
        LOAD_L0A,
        s[ITEM],
    )


@jit
def load_b1(rows, n, p, s, tap, block0, blocks, n_use, dst):
    """Copy ``blocks`` channel blocks of output channels of the weight to L1, [cin1][kh * kw][rows][C0].

    fp32: rows come in whole fractals of 16, so a run may begin with half a fractal that it does not need.
    """
    khw = p["kh"] * p["kw"]
    first = block0 * p["c0"] // 16 * 16
    s[B_ROWS] = ceil_div((block0 + blocks) * p["c0"], 16) * 16 - first
    planes = n_use // p["c0"] * khw
    cin0 = s[N_START] + s[N1] * (p["base_n"] // p["c0"])
    depth = (s[GROUP] * p["kd"] + tap) * p["cin1_g"] + cin0
    src = p["weight"] + (depth * khw * p["cout_g"] + first) * BLOCK
    return copy_planes(
        rows,
        n,
        dst,
        src,
        planes,
        s[B_ROWS],
        s[B_ROWS],
        p["cout_g"],
        p["data"],
        p["weight_tensor"],
        LOAD_B1,
        s[ITEM],
    )


@jit
def load_l0b(rows, n, p, s, src, dst, k_use, n_use):
    """Weight to L0B: for every (c1, tap) of the step the fractals of all N, transposed, tap counted from the end."""
    c0 = p["c0"]
    khw = p["kh"] * p["kw"]
    n1 = ceil_div(n_use, 16)
    first = s[K] % p["step_kb"] * p["base_k"] // c0
    k_blocks = k_use // c0
    # rows of the run's first fractal that lie before its first channel block
    before = (s[K] - s[K] % p["step_kb"]) * p["base_k"] // (khw * c0) * c0 % 16
    j = 0
    while j < k_blocks:
        q = first + j
        row = before + q // khw * c0
        tap = khw - 1 - q % khw
        at = dst + j * n1 * 512
        if c0 == 16:
            n = emit_load_2d(
                rows,
                n,
                Space.L0B,
                at,
                Space.L1,
                src + (tap * s[B_ROWS] + row) * BLOCK,
                p["data"],
                0,
                n1,
                khw * s[B_ROWS] // 16,
                0,
                Mode.TRANSPOSE,
                -1,
                LOAD_L0B,
                s[ITEM],
            )
            j += 1
            continue
        # 32-bit data: an image-to-column load transposes 16 rows, of which a larger window uses only the first 8
        start = tap * s[B_ROWS] + row
        points = min(16, khw * s[B_ROWS] - start)
        if khw == 1:
            points = min(points, (k_blocks - j) * 8)
        set_feature_map(rows, n, 1, khw * s[B_ROWS], 0, 0, 0, 0)
        set_window(rows, n, 1, 1, 1, 1, 1, 1)
        n = emit_load_3d(rows, n, Space.L0B, at, src, p["data"], n_use, n_use, points, 0, start, 0, LOAD_L0B, s[ITEM])
        j += points // 8 if khw == 1 else 1
    return n


@jit
def depth_plane(p, d, tap):
    """Return the plane of dy that depth tap ``tap`` of plane ``d`` of dx reads, -1 if there is none."""
    t = d + p["pad_front"] - tap * p["dilation_d"]
    if t < 0 or t % p["stride_d"] != 0 or t >= p["a_d"] * p["stride_d"]:
        return -1
    return t // p["stride_d"]
