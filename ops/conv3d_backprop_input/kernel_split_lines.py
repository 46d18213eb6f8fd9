"""The windows' way from global memory into L0A on dav-c220 where whole rows, or all taps, are too many for L1.

A base block lies in one row of the result. L1 holds lines, [C1][line][column][C0]: of the map (dy with its inserted
zeros, or x with none) the columns that the block's windows read under one row of the kernel, or under one tap.
Image-to-column walks over lines as if they were the rows of a map, with a kernel of as many rows. It adds the padding
where all lines have the same; else padding and inserted zeros are zeros in L1.
"""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_fill, emit_load_3d, emit_pipe_barrier, set_feature_map, set_window
from npu_sim.isa.op import Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, copy_planes, copy_runs
from ops.conv3d_backprop_input.kernel_split_work import LOAD_A1, LOAD_L0A

PAD_MAX = 255
"""Largest pad of a load. Below the last line it always is one: for windows that fill up the last fractal, which go
nowhere."""


class Corner(NamedTuple):
    """Where the first window of a base block begins on the map, and whether its windows read data, or nothing else."""

    row: int
    column: int
    has_data: bool
    is_data: bool


class Lines(NamedTuple):
    """What an L1 buffer has of each channel block: ``lines`` of ``columns`` pixels, ``needs_zeros`` among them or not.

    They are lines from ``first`` on and columns from ``column`` on of what the kernel walks over: ``kernel_h`` lines
    from ``begin`` on, of which ``top``, ``left`` and ``right`` (and those below) are padding that the load adds.
    """

    begin: int
    kernel_h: int
    first: int
    lines: int
    column: int
    columns: int
    top: int
    left: int
    right: int
    needs_zeros: bool


@jit
def corner_of(p, block):
    """Return where ``block`` reads."""
    row = block.m // p.out_w * p.window_step_h - p.image_up
    column = block.m % p.out_w * p.window_step_w - p.image_left
    height = (p.kh - 1) * p.dilation_h + 1
    width = (block.m_len - 1) * p.window_step_w + (p.kw - 1) * p.dilation_w + 1
    inside = row >= 0 and row + height <= p.image_rows and column >= 0 and column + width <= p.image_w
    return Corner(
        row=row, column=column,
        has_data=_has_data(row, height, p.image_rows, p.insert_h) and _has_data(column, width, p.image_w, p.insert_w),
        is_data=inside and p.insert_h == 1 and p.insert_w == 1,
    )  # fmt: skip


@jit
def _has_data(first, count, end, step):
    """Return whether [first, first + count) has a multiple of ``step`` within [0, end)."""
    low = max(first, 0)
    return low + -low % step < min(first + count, end)


@jit
def lines_of(p, block, corner, part):
    """Return the lines of ``part`` of K."""
    begin = part.tap // p.line_taps
    kernel_h = (part.tap + part.taps - 1) // p.line_taps - begin + 1
    width = (block.m_len - 1) * p.load_step_w + (p.line_taps - 1) * p.load_dilation_w + 1
    if p.pads_lines and not corner.is_data:
        row = corner.row + begin * p.dilation_h
        top = min(ceil_div(max(-row, 0), p.dilation_h), kernel_h)
        lines = min(ceil_div(max(p.image_rows - row, 0), p.dilation_h), kernel_h) - top
        left, right = max(-corner.column, 0), max(corner.column + width - p.image_w, 0)
        # fractals have 16 windows, so that a row of the map has one at least
        below = kernel_h - top - lines + 16
        if lines > 0 and left + right < width and max(top, below, left, right) <= PAD_MAX:
            return Lines(
                begin=begin, kernel_h=kernel_h, first=begin + top, lines=lines, column=left,
                columns=width - left - right, top=top, left=left, right=right, needs_zeros=False,
            )  # fmt: skip
    return Lines(
        begin=begin, kernel_h=kernel_h, first=begin, lines=kernel_h, column=0, columns=width, top=0, left=0, right=0,
        needs_zeros=not corner.is_data,
    )  # fmt: skip


@jit
def clear_lines(rows, n, p, lines, part, dst, tile):
    """Clear the L1 buffer if not all of it is data."""
    if not lines.needs_zeros:
        return n
    n = emit_fill(
        rows, n, dst_space=Space.L1, dst=dst, dtype=p.data, repeat=1,
        block_num=part.blocks * lines.lines * lines.columns, dst_gap=0, value_bits=0, site=LOAD_A1, tile=tile,
    )  # fmt: skip
    # the copies overwrite some of the zeros, on the same pipe: they wait until the fill has written
    return emit_pipe_barrier(rows, n, Pipe.MTE2, LOAD_A1, tile)


@jit
def load_line(rows, n, p, item, corner, lines, part, plane, number, dst, tile):
    """Copy line ``number`` of the channel blocks of ``part`` of plane ``plane`` to L1."""
    line = lines.first + number
    row = corner.row + line // p.row_lines * p.dilation_h
    column = corner.column + line % p.row_lines * p.dilation_w + lines.column
    if row < 0 or row >= p.image_rows or row % p.insert_h != 0:
        return n
    first = ceil_div(max(-column, 0), p.line_step)
    # zeros are inserted only where the columns of a line are neighbours
    first += -(column + first * p.line_step) % p.insert_w
    end = min(lines.columns, ceil_div(max(p.image_w - column, 0), p.line_step))
    if first >= end:
        return n
    count = ceil_div(end - first, p.insert_w)
    hw = p.a_h * p.a_w
    at = ((item.batch * p.a_d + plane) * p.a_c1 + item.group * p.k1_g + part.first) * hw
    at += row // p.insert_h * p.a_w + (column + first * p.line_step) // p.insert_w
    src, to = p.a + at * BLOCK, dst + (number * lines.columns + first) * BLOCK
    dst_plane = lines.lines * lines.columns
    if p.line_step == 1 and p.insert_w == 1:
        return copy_planes(rows, n, to, src, part.blocks, count, dst_plane, hw, p.data, p.a_tensor, LOAD_A1, tile)
    for c in range(part.blocks):
        n = copy_runs(
            rows, n, Space.L1, to + c * dst_plane * BLOCK, Space.GM, src + c * hw * BLOCK, count=count, length=1,
            src_step=p.line_step, dst_step=p.insert_w, data=p.data, tensor=p.a_tensor, site=LOAD_A1, tile=tile,
        )  # fmt: skip
    return n


@jit
def load_l0a_lines(rows, n, p, block, lines, part, src, k_start, k_len, dst, tile):
    """Lines to L0A: windows as rows, K in the order (c1, tap, c0), from ``k_start`` of ``part`` on."""
    set_feature_map(rows, n, lines.lines, lines.columns, lines.left, lines.right, lines.top, PAD_MAX)
    set_window(rows, n, p.load_step_w, 1, p.line_taps, lines.kernel_h, p.load_dilation_w, 1)
    return emit_load_3d(
        rows, n, dst_space=Space.L0A, dst=dst, src=src, dtype=p.data, channel_size=part.blocks * p.c0, k_ext=k_len,
        m_ext=ceil_div(block.m_len, 16) * 16, k_start=k_start + (part.tap - lines.begin * p.line_taps) * p.c0,
        m_start=0, mode=0, site=LOAD_L0A, tile=tile,
    )  # fmt: skip
