"""The windows' way from global memory into L0A on dav-c220: activations in L1 as an image, windows as rows of M.

Input gradient: the gradient gets its inserted zeros in L1: the image is cleared, then rows or pixels are copied apart.
Over it the image-to-column load walks with stride 1. Forward: it walks over the rows of x with the real strides.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_kernel/arch22`` (conv_bp_sub_func: LoadToA1). What differs, with equal
results: only the part of the L1 buffer that a load uses is cleared; an output that pads crop on the left or right
(which the source does not handle) drops columns of the gradient when it is copied.
"""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_fill, emit_load_3d, emit_pipe_barrier, set_feature_map, set_window
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, copy_planes, copy_runs
from ops.conv3d_backprop_input.kernel_split_work import LOAD_A1, LOAD_L0A

BOTTOM_PAD = 255
"""Rows behind the image read as zero: the load gets the largest pad, so that it never runs out of windows."""


class Image(NamedTuple):
    """Rows of the activations that a base block reads, as they lie in L1.

    ``top`` rows of padding, then ``rows`` rows of the image, inserted zeros included. Row ``skip`` of these is row
    ``a_row`` of the activations; ``a_rows`` of them follow, it included, ``insert_h`` rows apart.
    """

    top: int
    rows: int
    skip: int
    a_row: int
    a_rows: int


@jit
def image_of(p, block):
    """Return what ``block`` reads."""
    first = block.m // p.out_w * p.window_step_h - p.image_up
    top, row = max(-first, 0), max(first, 0)
    height = max(min(p.base_rows - top, p.image_rows - row), 0)
    skip = (p.insert_h - row % p.insert_h) % p.insert_h
    a_rows = ceil_div(max(height - skip, 0), p.insert_h)
    return Image(top=top, rows=height, skip=skip, a_row=(row + skip) // p.insert_h, a_rows=a_rows)


@jit
def load_a1(rows, n, p, item, image, plane, part, dst, tile):
    """Copy the channel blocks of ``part`` of plane ``plane`` to the image in L1, [C1][rows][width][C0]."""
    height, width, blocks = image.rows, p.image_w, part.blocks
    hw = p.a_h * p.a_w
    at = ((item.batch * p.a_d + plane) * p.a_c1 + item.group * p.k1_g + part.first) * hw
    src = p.a + (at + image.a_row * p.a_w + p.first_column) * BLOCK
    if p.insert_h > 1 or p.insert_w > 1:
        n = emit_fill(
            rows, n, dst_space=Space.L1, dst=dst, dtype=p.data, repeat=1, block_num=blocks * height * width, dst_gap=0,
            value_bits=0, site=LOAD_A1, tile=tile,
        )  # fmt: skip
        # the copies overwrite some of the zeros, on the same pipe: they wait until the fill has written
        n = emit_pipe_barrier(rows, n, Pipe.MTE2, LOAD_A1, tile)
    elif p.columns == p.a_w:
        length = height * width
        return copy_planes(rows, n, dst, src, blocks, length, length, hw, p.data, p.a_tensor, LOAD_A1, tile)
    if p.columns == 0:
        # no column of the gradient is left, only zeros between them, which the fill wrote
        return n
    for c in range(blocks):
        at_dst = dst + ((c * height + image.skip) * width + p.column_at) * BLOCK
        at_src = src + c * hw * BLOCK
        if p.insert_w > 1:
            for j in range(image.a_rows):
                row_dst, row_src = at_dst + j * p.insert_h * width * BLOCK, at_src + j * p.a_w * BLOCK
                n = copy_runs(
                    rows, n, Space.L1, row_dst, Space.GM, row_src, count=p.columns, length=1, src_step=1,
                    dst_step=p.insert_w, data=p.data, tensor=p.a_tensor, site=LOAD_A1, tile=tile,
                )  # fmt: skip
        else:
            n = copy_runs(
                rows, n, Space.L1, at_dst, Space.GM, at_src, count=image.a_rows, length=p.columns, src_step=p.a_w,
                dst_step=p.insert_h * width, data=p.data, tensor=p.a_tensor, site=LOAD_A1, tile=tile,
            )  # fmt: skip
    return n


@jit
def load_l0a(rows, n, p, block, image, src, part, k_start, k_len, dst, tile):
    """Image of the channels of ``part`` to L0A: windows as rows, K in the order (c1, tap, c0), from ``k_start`` on."""
    set_feature_map(rows, n, image.rows, p.image_w, p.image_left, p.image_right, image.top, BOTTOM_PAD)
    set_window(rows, n, p.window_step_w, p.window_step_h, p.kw, p.kh, p.dilation_w, p.dilation_h)
    return emit_load_3d(
        rows, n, dst_space=Space.L0A, dst=dst, src=src, dtype=p.data, channel_size=part.blocks * p.c0, k_ext=k_len,
        m_ext=ceil_div(block.m_len, 16) * 16, k_start=k_start, m_start=block.m % p.out_w, mode=0, site=LOAD_L0A,
        tile=tile,
    )  # fmt: skip
