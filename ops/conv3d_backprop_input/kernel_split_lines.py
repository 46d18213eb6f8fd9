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


class Lines(NamedTuple):
    """What an L1 buffer has of each channel block: ``lines`` of ``columns`` pixels, ``needs_zeros`` among them or not.

    They are lines from ``first`` on of what the kernel walks over: ``kernel_h`` lines from ``begin`` on, of which
    ``top``, ``left`` and ``right`` (and those below) are padding that the load adds. The block's first window begins in
    ``row`` of the map, and its lines in L1 in ``column``, both of which may lie in the padding.
    """

    begin: int
    kernel_h: int
    first: int
    lines: int
    row: int
    column: int
    columns: int
    top: int
    left: int
    right: int
    needs_zeros: bool


@jit
def _row_of(p, block):
    return block.m // p.out_w * p.window_step_h - p.image_up


@jit
def _column_of(p, block):
    return block.m % p.out_w * p.window_step_w - p.image_left


@jit
def reads_data(p, block):
    """Return whether the windows of ``block`` span any data, not only padding and inserted zeros."""
    width = (block.m_len - 1) * p.window_step_w + (p.kw - 1) * p.dilation_w + 1
    return _has_data(_row_of(p, block), (p.kh - 1) * p.dilation_h + 1, p.image_rows, p.insert_h) and _has_data(
        _column_of(p, block), width, p.image_w, p.insert_w
    )


@jit
def _has_data(first, count, end, step):
    """Return whether [first, first + count) has a multiple of ``step`` within [0, end)."""
    low = max(first, 0)
    return low + -low % step < min(first + count, end)


@jit
def _lines_of(p, block, part):
    """Return the lines of ``part`` of K."""
    begin = part.tap // p.line_taps
    kernel_h = (part.tap + part.taps - 1) // p.line_taps - begin + 1
    width = (block.m_len - 1) * p.load_step_w + (p.line_taps - 1) * p.load_dilation_w + 1
    first, lines, row, column, columns = begin, kernel_h, _row_of(p, block), _column_of(p, block), width
    reach_w = (block.m_len - 1) * p.window_step_w + (p.kw - 1) * p.dilation_w + 1
    inside = row >= 0 and row + (p.kh - 1) * p.dilation_h < p.image_rows and column >= 0
    needs_zeros = not inside or column + reach_w > p.image_w or p.insert_h > 1 or p.insert_w > 1
    top = left = right = 0
    if needs_zeros and p.pads_lines:
        at = row + begin * p.dilation_h
        above = min(ceil_div(max(-at, 0), p.dilation_h), kernel_h)
        held = min(ceil_div(max(p.image_rows - at, 0), p.dilation_h), kernel_h) - above
        before, behind = max(-column, 0), max(column + width - p.image_w, 0)
        # fractals have 16 windows, so that a row of the map has one at least
        below = kernel_h - above - held + 16
        if held > 0 and before + behind < width and max(above, below, before, behind) <= PAD_MAX:
            needs_zeros, first, lines = False, begin + above, held
            column, columns = column + before, width - before - behind
            top, left, right = above, before, behind
    return Lines(
        begin=begin, kernel_h=kernel_h, first=first, lines=lines, row=row, column=column, columns=columns, top=top,
        left=left, right=right, needs_zeros=needs_zeros,
    )  # fmt: skip


@jit
def load_lines(rows, n, p, item, block, part, plane, dst, tile):
    """Fill an L1 buffer with the lines of ``part`` of K of plane ``plane``."""
    lines = _lines_of(p, block, part)
    if lines.needs_zeros:
        n = emit_fill(
            rows, n, dst_space=Space.L1, dst=dst, dtype=p.data, repeat=1,
            block_num=part.blocks * lines.lines * lines.columns, dst_gap=0, value_bits=0, site=LOAD_A1, tile=tile,
        )  # fmt: skip
        # the copies overwrite some of the zeros, on the same pipe: they wait until the fill has written
        n = emit_pipe_barrier(rows, n, Pipe.MTE2, LOAD_A1, tile)
    hw = p.a_h * p.a_w
    plane_at = ((item.batch * p.a_d + plane) * p.a_c1 + item.group * p.k1_g + part.first) * hw
    dst_plane = lines.lines * lines.columns
    for number in range(lines.lines):
        line = lines.first + number
        row = lines.row + line // p.row_lines * p.dilation_h
        column = lines.column + line % p.row_lines * p.dilation_w
        if row < 0 or row >= p.image_rows or row % p.insert_h != 0:
            continue
        first = ceil_div(max(-column, 0), p.line_step)
        # zeros are inserted only where the columns of a line are neighbours
        first += -(column + first * p.line_step) % p.insert_w
        end = min(lines.columns, ceil_div(max(p.image_w - column, 0), p.line_step))
        if first >= end:
            continue
        count = ceil_div(end - first, p.insert_w)
        at = plane_at + row // p.insert_h * p.a_w + (column + first * p.line_step) // p.insert_w
        src, to = p.a + at * BLOCK, dst + (number * lines.columns + first) * BLOCK
        if p.line_step == 1 and p.insert_w == 1:
            n = copy_planes(rows, n, to, src, part.blocks, count, dst_plane, hw, p.data, p.a_tensor, LOAD_A1, tile)
            continue
        for c in range(part.blocks):
            n = copy_runs(
                rows, n, Space.L1, to + c * dst_plane * BLOCK, Space.GM, src + c * hw * BLOCK, count=count, length=1,
                src_step=p.line_step, dst_step=p.insert_w, data=p.data, tensor=p.a_tensor, site=LOAD_A1, tile=tile,
            )  # fmt: skip
    return n


@jit
def load_l0a_lines(rows, n, p, block, part, src, k_start, k_len, dst, tile):
    """Lines to L0A: windows as rows, K in the order (c1, tap, c0), from ``k_start`` of ``part`` on."""
    lines = _lines_of(p, block, part)
    set_feature_map(rows, n, lines.lines, lines.columns, lines.left, lines.right, lines.top, PAD_MAX)
    set_window(rows, n, p.load_step_w, 1, p.line_taps, lines.kernel_h, p.load_dilation_w, 1)
    return emit_load_3d(
        rows, n, dst_space=Space.L0A, dst=dst, src=src, dtype=p.data, channel_size=part.blocks * p.c0, k_ext=k_len,
        m_ext=ceil_div(block.m_len, 16) * 16, k_start=k_start + (part.tap - lines.begin * p.line_taps) * p.c0,
        m_start=0, mode=0, site=LOAD_L0A, tile=tile,
    )  # fmt: skip
