"""The windows' way from global memory into L0A on unified cores.

See `tiling_unified.Source` for the four ways. Image-to-column gets the padding of the very block that is loaded, so the
maps it sees have exactly the windows of the block's rows.
"""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_duplicate,
    emit_fill,
    emit_load_2d,
    emit_load_3d,
    emit_load_3d_v1,
    emit_pipe_barrier,
    set_feature_map,
    set_window,
)
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, copy_planes, copy_runs
from ops.common.queues import Queue, alloc, deque, enque, free
from ops.conv3d_backprop_input.kernel_unified_work import DILATE, LOAD_A, LOAD_L0A

MAP, DILATED, GATHERED, PIXELS = range(4)

RAW = Queue(producer=Pipe.MTE2.value, consumer=Pipe.V.value)
"""Pixels of the source in UB, to be set apart."""
CELLS = Queue(producer=Pipe.V.value, consumer=Pipe.MTE3.value, first_event=2)
"""A part of the dilated map in UB."""
ZEROED = Queue(producer=Pipe.MTE3.value, consumer=Pipe.MTE2.value)
"""L1 buffers of gathered windows, between their zeros and their pixels."""


class MapPart(NamedTuple):
    """The part of the map that the windows of a block read, and the padding around it; in pixels.

    ``lines`` of the kernel from ``line`` on are read. A row has ``windows``, of which the block's first is ``start``.
    """

    line: int
    lines: int
    row: int
    rows: int
    top: int
    bottom: int
    column: int
    columns: int
    left: int
    right: int
    windows: int
    start: int


@jit
def map_of(p, item, part):
    """Return what the windows of ``item`` read of the map for ``part`` of K; nothing of it matters without a map."""
    line = part.tap // p.kw
    lines = (part.tap + part.taps - 1) // p.kw - line + 1
    if p.by_row:
        output_row, output_rows = item.m // p.out_w, 1
        windows, start = item.m_len, 0
        first = item.m % p.out_w * p.stride_w - p.lead_w
        need = (item.m_len - 1) * p.stride_w + p.ke_w
        left, column = max(-first, 0), max(first, 0)
        columns = max(min(first + need, p.map_w) - column, 0)
        right = need - left - columns
    else:
        output_row = item.m // p.load_w
        output_rows = (item.m + item.m_len - 1) // p.load_w - output_row + 1
        windows, start = p.load_w, item.m % p.load_w
        left, column, columns, right = p.pad_left, p.col0, p.cols, p.pad_right
    first = output_row * p.stride_h + line * p.dil_h - p.lead_h
    need = (output_rows - 1) * p.stride_h + (lines - 1) * p.dil_h + 1
    top, row = max(-first, 0), max(first, 0)
    height = max(min(first + need, p.map_h) - row, 0)
    return MapPart(
        line=line, lines=lines, row=row, rows=height, top=top, bottom=need - top - height, column=column,
        columns=columns, left=left, right=right, windows=windows, start=start,
    )  # fmt: skip


@jit
def is_void(p, view):
    """Return whether all that the L1 step has of the windows lies in the padding."""
    return p.source <= DILATED and (view.rows == 0 or view.columns == 0)


@jit
def a1_queues(p):
    """Return the queues of the windows' L1 buffers: one to `alloc` and `free` them, one to `enque` and `deque` them.

    Where two pipes fill a buffer, the first must know that it is free, and the second knows that it is full.
    """
    first = Pipe.MTE3.value if p.source == DILATED or p.source == GATHERED else Pipe.MTE2.value
    last = Pipe.MTE3.value if p.source == DILATED else Pipe.MTE2.value
    return Queue(first, Pipe.MTE1.value, 0), Queue(last, Pipe.MTE1.value, 0)


@jit
def passes(p, part, view):
    """Return the passes that fill one L1 buffer of windows."""
    if p.source == MAP:
        return 1 if view.columns == p.src_w else part.planes
    if p.source == DILATED:
        return part.planes * ceil_div(view.rows, p.ub_rows) * ceil_div(view.columns, p.ub_cols)
    if p.source == GATHERED:
        return part.planes * part.taps
    return 1


@jit
def _plane_address(p, item, plane):
    """Return the address of channel block ``plane`` of the item's K."""
    return p.src + (item.batch * p.src_c1 + item.group * p.k_c1 + plane) * p.src_hw * BLOCK


@jit
def begin_windows(rows, n, p, item, part, half, dst):
    """Let gathered windows start from zeros, which the vector unit made once in UB."""
    if p.source != GATHERED:
        return n
    blocks, most = part.planes * part.taps * ceil_div(item.m_len, 16) * 16, p.ub_part // BLOCK
    for done in range(0, blocks, most):
        n = emit_data_copy(
            rows, n, dst_space=Space.L1, dst=dst + done * BLOCK, src_space=Space.UB, src=0, block_count=1,
            block_len=min(most, blocks - done), src_gap=0, dst_gap=0, dtype=Data.FP16, tensor=-1, site=LOAD_A,
            tile=item.tile,
        )  # fmt: skip
    n = enque(rows, n, ZEROED, half, LOAD_A, item.tile)
    return deque(rows, n, ZEROED, half, LOAD_A, item.tile)


@jit
def fill_pass(rows, n, p, item, part, view, number, ub_half, dst):
    """Emit pass ``number`` of filling the L1 buffer at ``dst``."""
    if p.source == MAP:
        return _copy_map(rows, n, p, item, part, view, number, dst)
    if p.source == DILATED:
        return _dilate(rows, n, p, item, part, view, number, ub_half, dst)
    if p.source == GATHERED:
        return _gather(rows, n, p, item, part, number, dst)
    return _copy_pixels(rows, n, p, item, part, dst)


@jit
def _copy_map(rows, n, p, item, part, view, number, dst):
    """Copy the rows as they are: all planes at once if the rows are whole, else plane ``number``."""
    src = _plane_address(p, item, part.plane) + (view.row * p.src_w + view.column) * BLOCK
    length = view.rows * view.columns
    if view.columns == p.src_w:
        return copy_planes(
            rows, n, dst, src, part.planes, length, dst_plane=length, src_plane=p.src_hw, data=Data.FP16,
            tensor=p.src_tensor, site=LOAD_A, tile=item.tile,
        )  # fmt: skip
    return copy_runs(
        rows, n, Space.L1, dst + number * length * BLOCK, Space.GM, src + number * p.src_hw * BLOCK, count=view.rows,
        length=view.columns, src_step=p.src_w, dst_step=view.columns, data=Data.FP16, tensor=p.src_tensor, site=LOAD_A,
        tile=item.tile,
    )  # fmt: skip


@jit
def _dilate(rows, n, p, item, part, view, number, half, dst):
    """Make some rows of one plane of the dilated map in UB and move them to L1."""
    tile = item.tile
    pieces, strips = ceil_div(view.columns, p.ub_cols), ceil_div(view.rows, p.ub_rows)
    x, y, plane = number % pieces * p.ub_cols, number // pieces % strips * p.ub_rows, number // (pieces * strips)
    lines, width = min(p.ub_rows, view.rows - y), min(p.ub_cols, view.columns - x)
    row, column = view.row + y, view.column + x
    first_h, first_w = ceil_div(row, p.expand_h), ceil_div(column, p.expand_w)
    count = ceil_div(row + lines, p.expand_h) - first_h
    length = ceil_div(column + width, p.expand_w) - first_w
    has_data = count > 0 and length > 0
    cells = half * p.ub_part
    raw = cells + p.ub_rows * p.ub_cols * BLOCK

    if has_data:
        src = _plane_address(p, item, part.plane + plane) + (first_h * p.src_w + first_w) * BLOCK
        n = alloc(rows, n, RAW, half, DILATE, tile)
        n = copy_runs(
            rows, n, Space.UB, raw, Space.GM, src, count, length, src_step=p.src_w, dst_step=length, data=Data.FP16,
            tensor=p.src_tensor, site=DILATE, tile=tile,
        )  # fmt: skip
        n = enque(rows, n, RAW, half, DILATE, tile)
        n = deque(rows, n, RAW, half, DILATE, tile)

    n = alloc(rows, n, CELLS, half, DILATE, tile)
    n = emit_duplicate(rows, n, cells, Data.FP16, lines * width * 16, 0, DILATE, tile)
    if has_data:
        n = emit_pipe_barrier(rows, n, Pipe.V.value, DILATE, tile)
        at = cells + ((first_h * p.expand_h - row) * width + first_w * p.expand_w - column) * BLOCK
        for line in range(count):
            line_dst, line_src = at + line * p.expand_h * width * BLOCK, raw + line * length * BLOCK
            n = strew(rows, n, line_dst, line_src, length, p.expand_w, DILATE, tile)
        n = free(rows, n, RAW, half, DILATE, tile)
    n = enque(rows, n, CELLS, half, DILATE, tile)

    n = deque(rows, n, CELLS, half, DILATE, tile)
    target = dst + ((plane * view.rows + y) * view.columns + x) * BLOCK
    n = emit_data_copy(
        rows, n, dst_space=Space.L1, dst=target, src_space=Space.UB, src=cells, block_count=lines, block_len=width,
        src_gap=0, dst_gap=view.columns - width, dtype=Data.FP16, tensor=-1, site=DILATE, tile=tile,
    )  # fmt: skip
    return free(rows, n, CELLS, half, DILATE, tile)


@jit
def strew(rows, n, dst, src, count, step, site, tile):
    """Copy ``count`` pixels within UB to every ``step``-th pixel."""
    runs, length = (1, count) if step == 1 or count == 1 else (count, 1)
    return emit_data_copy(
        rows, n, dst_space=Space.UB, dst=dst, src_space=Space.UB, src=src, block_count=runs, block_len=length,
        src_gap=0, dst_gap=step - 1 if runs > 1 else 0, dtype=Data.FP16, tensor=-1, site=site, tile=tile,
    )  # fmt: skip


@jit
def _gather(rows, n, p, item, part, number, dst):
    """Copy what one tap of one plane sees in the windows of the block: column (plane, tap) of the window matrix."""
    plane, tap = part.plane + number // part.taps, part.tap + number % part.taps
    target = dst + number * ceil_div(item.m_len, 16) * 16 * BLOCK
    end = item.m + item.m_len
    width, expand = p.out_w, p.expand_w
    offset = tap % p.kw * p.dil_w - p.lead_w
    step = p.stride_w if expand == 1 else 1
    for line in range(item.m // width, (end - 1) // width + 1):
        y = line * p.stride_h + tap // p.kw * p.dil_h - p.lead_h
        if y < 0 or y >= p.map_h or y % p.expand_h != 0:
            continue
        window = max(item.m - line * width, 0)
        if window * p.stride_w + offset < 0:
            window = ceil_div(-offset, p.stride_w)
        # with zeros between the pixels windows have stride 1, so the first one on a pixel is not far
        window += -(window * p.stride_w + offset) % expand
        last = min(end - line * width, width, ceil_div(max(p.map_w - offset, 0), p.stride_w))
        pixel = y // p.expand_h * p.src_w + (window * p.stride_w + offset) // expand
        n = copy_runs(
            rows, n, Space.L1, target + (line * width + window - item.m) * BLOCK, Space.GM,
            _plane_address(p, item, plane) + pixel * BLOCK, count=ceil_div(max(last - window, 0), expand), length=1,
            src_step=step, dst_step=expand, data=Data.FP16, tensor=p.src_tensor, site=LOAD_A, tile=item.tile,
        )  # fmt: skip
    return n


@jit
def _copy_pixels(rows, n, p, item, part, dst):
    """Copy the block's pixels of all planes; up to a whole fractal any valid data follows, its products go nowhere."""
    padded = ceil_div(item.m_len, 16) * 16
    first = _plane_address(p, item, part.plane)
    length, done, src = item.m_len, 0, first + item.m * BLOCK
    while done < padded:
        n = copy_planes(
            rows, n, dst + done * BLOCK, src, part.planes, length, dst_plane=padded, src_plane=p.src_hw,
            data=Data.FP16, tensor=p.src_tensor, site=LOAD_A, tile=item.tile,
        )  # fmt: skip
        done += length
        length, src = min(padded - done, p.src_hw), first
    return n


@jit
def load_l0a(rows, n, p, item, part, view, src, fractal, k_len, dst):
    """L1 to L0A: the windows of the block, columns from K fractal ``fractal`` of the L1 step on."""
    k1, m1 = k_len // 16, ceil_div(item.m_len, 16)
    if is_void(p, view):
        return emit_fill(
            rows, n, dst_space=Space.L0A, dst=dst, dtype=Data.FP16, repeat=k1 * m1, block_num=1, dst_gap=0,
            value_bits=0, site=LOAD_L0A, tile=item.tile,
        )  # fmt: skip
    if p.source >= GATHERED:
        for i in range(m1):
            n = emit_load_2d(
                rows, n, dst_space=Space.L0A, dst=dst + i * k1 * 512, src_space=Space.L1,
                src=src + (fractal * m1 + i) * 512, dtype=Data.FP16, start_index=0, repeat=k1, src_stride=m1,
                dst_gap=0, mode=0, tensor=-1, site=LOAD_L0A, tile=item.tile,
            )  # fmt: skip
        return n
    # the load sees a kernel of the lines that the step touches
    fractal += part.tap - view.line * p.kw
    if p.has_v2:
        _set_map(rows, n, p, view)
        return emit_load_3d(
            rows, n, dst_space=Space.L0A, dst=dst, src=src, dtype=Data.FP16, channel_size=part.planes * 16,
            k_ext=k_len, m_ext=m1 * 16, k_start=fractal * 16, m_start=view.start, mode=0, site=LOAD_L0A,
            tile=item.tile,
        )  # fmt: skip
    if m1 <= k1:
        for i in range(m1):
            at, start = dst + i * k1 * 512, view.start + i * 16
            n = _walk_windows(rows, n, p, view, src, fractal, start, at, 1, repeat_mode=0, repeat=k1, tile=item.tile)
        return n
    for j in range(k1):
        at, tap = dst + j * 512, fractal + j
        n = _walk_windows(rows, n, p, view, src, tap, view.start, at, k1, repeat_mode=1, repeat=m1, tile=item.tile)
    return n


@jit
def _set_map(rows, n, p, view):
    set_feature_map(rows, n, view.rows, view.columns, view.left, view.right, view.top, view.bottom)
    set_window(rows, n, p.stride_w, p.stride_h, p.kw, view.lines, p.dil_w, p.dil_h)


@jit
def _walk_windows(rows, n, p, view, src, tap, window, dst, jump_stride, repeat_mode, repeat, tile):
    """One load3d v1: ``repeat`` fractals over the taps (mode 0) or over the windows (mode 1)."""
    _set_map(rows, n, p, view)
    left = window % view.windows * p.stride_w - view.left
    top = window // view.windows * p.stride_h - view.top
    return emit_load_3d_v1(
        rows, n, Space.L0A, dst, src, Data.FP16, c1_index=tap // (view.lines * p.kw), fetch_filter_w=tap % p.kw,
        fetch_filter_h=tap // p.kw % view.lines, left_top_w=left, left_top_h=top, jump_stride=jump_stride,
        repeat_mode=repeat_mode, repeat=repeat, site=LOAD_L0A, tile=tile,
    )  # fmt: skip
