"""The weight-gradient kernel of the unified cores (dav-c100, dav-m200): the TBE-style schedule.

M = output channels of one merged group, N = (c1, kh, kw, c0), K = output pixels. A work item is one (group, depth tap,
M block, N block) and a contiguous share of the (batch, output depth) items; all of its K, over all of its batch items,
is accumulated in L0C, which then leaves through UB. dW is cleared by a MemSet launch before this one. Where L1 does not
hold whole rows of X, batch items are (batch, output depth, part of the columns); where img2col cannot do the window,
its taps are separate like those of the depth (`parts`).

Sources: CANN 8.1 ``tbe/dsl/static_schedule/conv3d_backprop_filter_schedule.py`` for the loop order and the skipped
depth taps; the tiling is our own (``tiling_unified``). The hardware's img2col cannot make an output of width 1, so such
a case arrives here widened to 2 columns (``double_w``): dY's only column is read twice, and the second window of X lies
in the padding.
"""

from __future__ import annotations

from typing import NamedTuple

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
)
from npu_sim.isa.op import Data, Mode, Pipe, Space
from npu_sim.program.limits import MMAD_BARRIER_ELEMS
from ops.common.kernel_parts import (
    BLOCK,
    MAX_FIELD,
    ceil_div,
    copy_pixels,
    copy_planes,
    core_share,
)
from ops.common.queues import Queue, alloc, close_queue, close_queues, deque, enque, free, open_queue, open_queues
from ops.conv3d_backprop_filter.parts import part_of, set_img2col

PROLOGUE, LOAD_DY, LOAD_X, LOAD_L0A, LOAD_L0B, MMAD, DRAIN, STORE, EPILOGUE = range(9)
SITES = {
    PROLOGUE: "PROLOGUE", LOAD_DY: "LOAD_DY", LOAD_X: "LOAD_X", LOAD_L0A: "LOAD_L0A", LOAD_L0B: "LOAD_L0B",
    MMAD: "MMAD", DRAIN: "DRAIN", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip

A1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value, first_event=0)
"""dY in L1."""
B1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value, first_event=2)
"""X in L1."""
L0 = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value)
"""L0A and L0B."""
L0C = Queue(producer=Pipe.M.value, consumer=Pipe.V.value)
"""Sums of a block of dW."""
OUT = Queue(producer=Pipe.V.value, consumer=Pipe.MTE3.value)
"""Slices of that block in UB."""


class Item(NamedTuple):
    """A work item: ``m`` output channels from ``m0`` on, ``blocks`` columns (c1, kh, kw) of N from ``block0`` on.

    ``c1`` is the group's channel block that holds ``block0``; it sums the (batch, output depth) items [first, end).
    ``tap`` is that of the depth, ``position`` that of the window where its taps are separate.
    """

    group: int
    tap: int
    position: int
    m0: int
    m: int
    block0: int
    blocks: int
    c1: int
    first: int
    end: int


class Stretch(NamedTuple):
    """The output pixels of one part of a (batch, output depth) item that L1 holds, and the rows of X under them.

    ``x_first`` is the first of the ``x_rows`` in the part, below ``pad_top`` rows of padding; ``a1 b1`` are the halves.
    """

    bd: int
    depth: int
    pixel0: int
    pixels: int
    x_first: int
    x_rows: int
    pad_top: int
    a1: int
    b1: int


@jit
def _item(p, number):
    """Return work item ``number``; its ``m`` or ``blocks`` is not positive if it lies behind the last channel."""
    rest, n_block = divmod(number, p.n_count)
    rest, m_block = divmod(rest, p.m_count)
    rest, tap = divmod(rest, p.dk * p.taps)
    share, group = divmod(rest, p.groups)
    tap, position = divmod(tap, p.taps)
    window = p.hk * p.wk
    m0 = m_block * p.base_m
    m = min(p.base_m, min(p.cout_g, p.c1_dy * 16 - group * p.cout_g) - m0)
    block0 = n_block * (p.base_n // 16)
    planes = min(p.cin1_g, p.c1_x - group * p.cin1_g)
    blocks = min(p.base_n // 16, planes * window - block0)
    first, end = core_share(p.n * p.dout * p.w_parts, p.parts, share)
    return Item(group, tap, position, m0, m, block0, blocks, block0 // window, first, end)


@jit
def _stretch(p, part, bd, depth, pixel0, turn):
    """Return the stretch of pixels from ``pixel0`` of the part on; ``turn`` counts them."""
    pixels = min(p.k_l1, part.pixels - pixel0)
    first = (pixel0 // part.wo) * p.stride_h - p.pad_up
    last = ((pixel0 + pixels - 1) // part.wo) * p.stride_h - p.pad_up + (p.hk - 1) * p.dilation_h
    inside = max(first, 0)
    x_rows = max(min(last, part.hi - 1) - inside + 1, 0)
    return Stretch(bd, depth, pixel0, pixels, inside, x_rows, max(-first, 0), turn % p.al1, turn % p.bl1)


@jit
def _load_dy(rows, n, p, item, part, s, tile):
    """Load dY as [c1][pixels, padded to 16][16]; the padding lanes get any valid data (they are never multiplied)."""
    padded = ceil_div(s.pixels, 16) * 16
    blocks = item.m // 16
    hw = p.dy_hw
    src = p.dy + (s.bd * p.c1_dy + (item.group * p.cout_g + item.m0) // 16) * hw * BLOCK
    dst = p.a1 + s.a1 * p.a1_bytes

    n = alloc(rows, n, A1, s.a1, LOAD_DY, tile)
    if p.double_w:
        for b in range(blocks):
            for column in range(2):
                n = emit_data_copy(
                    rows, n, dst_space=Space.L1, dst=dst + (b * padded + column) * BLOCK, src_space=Space.GM,
                    src=src + (b * hw + s.pixel0 // 2) * BLOCK, block_count=s.pixels // 2, block_len=1, src_gap=0,
                    dst_gap=1, dtype=p.data, tensor=p.dy_tensor, site=LOAD_DY, tile=tile,
                )  # fmt: skip
    else:
        n = copy_pixels(
            rows, n, dst=dst, src=src + part.dy_first * BLOCK, planes=blocks, first=s.pixel0, count=s.pixels,
            columns=part.dy_columns, row_step=part.dy_row, column_step=1, dst_plane=padded, src_plane=hw, data=p.data,
            tensor=p.dy_tensor, site=LOAD_DY, tile=tile,
        )  # fmt: skip
    for filled in range(s.pixels, padded, hw):
        n = copy_planes(
            rows, n, dst=dst + filled * BLOCK, src=src, planes=blocks, length=min(padded - filled, hw),
            dst_plane=padded, src_plane=hw, data=p.data, tensor=p.dy_tensor, site=LOAD_DY, tile=tile,
        )  # fmt: skip
    return enque(rows, n, A1, s.a1, LOAD_DY, tile)


@jit
def _load_x(rows, n, p, item, part, s, tile):
    """Load the rows of X under the pixels, for the planes of this N block, as [c1][rows][columns of the part][16]."""
    hw = p.hi * p.wi
    length = s.x_rows * part.wi
    plane = (s.bd // p.dout * p.di + s.depth) * p.c1_x + item.group * p.cin1_g + item.c1
    planes = (item.block0 + item.blocks - 1) // (p.hk * p.wk) - item.c1 + 1
    # load_2d: the one pixel fills a fractal, whose other rows are loaded too but never multiplied
    copies, dst_plane = (16, 16) if p.load_2d else (1, length)

    n = alloc(rows, n, B1, s.b1, LOAD_X, tile)
    for i in range(copies if s.x_rows else 0):
        n = copy_pixels(
            rows, n, dst=p.b1 + s.b1 * p.b1_bytes + i * BLOCK, src=p.x + (plane * hw + part.x_first) * BLOCK,
            planes=planes, first=s.x_first * part.wi, count=length, columns=part.x_columns, row_step=part.x_row,
            column_step=part.x_column, dst_plane=dst_plane, src_plane=hw, data=p.data, tensor=p.x_tensor, site=LOAD_X,
            tile=tile,
        )  # fmt: skip
    return enque(rows, n, B1, s.b1, LOAD_X, tile)


@jit
def _load_l0a(rows, n, p, item, s, dst, k, k_use, tile):
    """L1 to L0A by transposing fractal loads: per 16 channels, the K fractals in a row."""
    fractals = ceil_div(k_use, 16)
    src = p.a1 + s.a1 * p.a1_bytes + k * BLOCK
    padded = ceil_div(s.pixels, 16) * 16
    for m1 in range(item.m // 16):
        n = emit_load_2d(
            rows, n, dst_space=Space.L0A, dst=dst + m1 * fractals * 512, src_space=Space.L1,
            src=src + m1 * padded * BLOCK, dtype=p.data, start_index=0, repeat=fractals, src_stride=1, dst_gap=0,
            mode=Mode.TRANSPOSE, tensor=-1, site=LOAD_L0A, tile=tile,
        )  # fmt: skip
    return n


@jit
def _load_l0b(rows, n, p, item, part, s, dst, k, k_use, tile):
    """L1 to L0B by img2col: one load3d v2, or on cores that have only v1 one call per N fractal.

    Where all is one pixel, the planes are the N fractals, and one transposing fractal load brings them.
    """
    src = p.b1 + s.b1 * p.b1_bytes
    window = p.hk * p.wk
    block = item.block0 - item.c1 * window
    fractals = ceil_div(k_use, 16)
    if s.x_rows == 0:
        # every window lies in the padding
        return emit_fill(
            rows, n, dst_space=Space.L0B, dst=dst, dtype=p.data, repeat=fractals * item.blocks, block_num=1, dst_gap=0,
            value_bits=0, site=LOAD_L0B, tile=tile,
        )  # fmt: skip
    if p.load_2d:
        return emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst, src_space=Space.L1, src=src + block * 512, dtype=p.data,
            start_index=0, repeat=item.blocks, src_stride=1, dst_gap=0, mode=Mode.TRANSPOSE, tensor=-1, site=LOAD_L0B,
            tile=tile,
        )  # fmt: skip
    wo = s.pixels if p.tap_by_tap else part.wo
    m_start = s.pixel0 % part.wo + k
    if p.has_v2:
        set_img2col(rows, n, p, part, s.x_rows, s.pad_top)
        return emit_load_3d(
            rows, n, dst_space=Space.L0B, dst=dst, src=src, dtype=p.data,
            channel_size=ceil_div(block + item.blocks, window) * 16, k_ext=item.blocks * 16, m_ext=fractals * 16,
            k_start=block * 16, m_start=m_start, mode=0, site=LOAD_L0B, tile=tile,
        )  # fmt: skip
    top = (m_start // wo) * p.stride_h - s.pad_top
    left = (m_start % wo) * p.stride_w - part.pad_left
    for i in range(item.blocks):
        tap = block + i
        set_img2col(rows, n, p, part, s.x_rows, s.pad_top)
        n = emit_load_3d_v1(
            rows, n, dst_space=Space.L0B, dst=dst + i * 512, src=src, dtype=p.data, c1_index=tap // window,
            fetch_filter_w=tap % p.wk, fetch_filter_h=tap // p.wk % p.hk, left_top_w=left, left_top_h=top,
            jump_stride=item.blocks, repeat_mode=1, repeat=fractals, site=LOAD_L0B, tile=tile,
        )  # fmt: skip
    return n


@jit
def _k_step(rows, n, p, item, part, s, k, half, c_half, starts, tile):
    """Multiply the pixels from ``k`` of the stretch on; ``starts``: nothing of the item has been multiplied before."""
    k_use = min(p.base_k, s.pixels - k)
    l0a, l0b = half * p.l0a_half, half * p.l0b_half

    n = alloc(rows, n, L0, half, LOAD_L0A, tile)
    n = _load_l0a(rows, n, p, item, s, l0a, k, k_use, tile)
    n = _load_l0b(rows, n, p, item, part, s, l0b, k, k_use, tile)
    if k + k_use == s.pixels:
        n = free(rows, n, A1, s.a1, LOAD_L0A, tile)
        n = free(rows, n, B1, s.b1, LOAD_L0B, tile)
    n = enque(rows, n, L0, half, LOAD_L0B, tile)

    n = deque(rows, n, L0, half, MMAD, tile)
    if starts:
        n = alloc(rows, n, L0C, c_half, MMAD, tile)
    n = emit_mmad(
        rows, n, dst=c_half * p.l0c_half, src_a=l0a, src_b=l0b, dtype=p.data, m=item.m, n_elems=item.blocks * 16,
        k=k_use, mode=Mode.INIT if starts else 0, site=MMAD, tile=tile,
    )  # fmt: skip
    if item.m * item.blocks * 16 < MMAD_BARRIER_ELEMS:
        # nothing else keeps the next product from reading these accumulators before so small a one wrote them
        n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
    return free(rows, n, L0, half, MMAD, tile)


@jit
def _store_columns(rows, n, p, item, done, count, ub, tile):
    """UB to dW: ``count`` N columns of this block from column ``done`` on, one by one where the gap is too wide."""
    column = (item.group * p.dk + item.tap) * p.cin1_g * p.hk * p.wk + item.block0 + done
    dst = p.dw + ((column * p.taps + item.position) * p.cout_g + item.m0) * 64
    step = p.taps * p.cout_g
    gap = 2 * (step - item.m)
    calls = 1 if gap <= MAX_FIELD else count
    for i in range(calls):
        n = emit_data_copy(
            rows, n, dst_space=Space.GM, dst=dst + i * step * 64, src_space=Space.UB, src=ub + i * item.m * 64,
            block_count=count // calls, block_len=2 * item.m, src_gap=0, dst_gap=gap if gap <= MAX_FIELD else 0,
            dtype=Data.FP32, tensor=p.dw_tensor, site=STORE, tile=tile,
        )  # fmt: skip
    return n


@jit
def _store_block(rows, n, p, item, c_half, ub_half, tile):
    """L0C to dW in slices of whole N columns; return the rows, and the half of UB that is next."""
    column_bytes = item.m * 64
    per_slice = p.ub_half // column_bytes
    n = enque(rows, n, L0C, c_half, DRAIN, tile)
    n = deque(rows, n, L0C, c_half, DRAIN, tile)
    for done in range(0, item.blocks, per_slice):
        count = min(per_slice, item.blocks - done)
        ub = ub_half * p.ub_half
        n = alloc(rows, n, OUT, ub_half, DRAIN, tile)
        n = emit_l0c_to_ub(
            rows, n, dst=ub, src=c_half * p.l0c_half + done * column_bytes, dst_dtype=Data.FP32, block_count=count,
            block_len=item.m // 16, src_gap=0, dst_gap=0, site=DRAIN, tile=tile,
        )  # fmt: skip
        n = enque(rows, n, OUT, ub_half, DRAIN, tile)

        n = deque(rows, n, OUT, ub_half, STORE, tile)
        if p.parts > 1:
            # other cores add their batch items to the same place
            n = emit_set_atomic(rows, n, Data.FP32, STORE, tile)
        n = _store_columns(rows, n, p, item, done, count, ub, tile)
        if p.parts > 1:
            n = emit_set_atomic(rows, n, Data.NONE, STORE, tile)
        n = free(rows, n, OUT, ub_half, STORE, tile)
        ub_half = 1 - ub_half
    return free(rows, n, L0C, c_half, DRAIN, tile), ub_half


@jit
def weight_gradient(rows, params, core, phase):
    """Compute the work items of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `params.UNIFIED_PARAMS`[1].
    """
    p = params[0]
    n = open_queue(rows, 0, A1, p.al1, PROLOGUE)
    n = open_queue(rows, n, B1, p.bl1, PROLOGUE)
    n = open_queues(rows, n, (L0, L0C, OUT), 2, PROLOGUE)
    l1_turn, l0_half, c_half, ub_half = 0, 0, 0, 0
    first, end = core_share(p.items, p.cores, core)
    for tile in range(first, end):
        item = _item(p, tile)
        if item.m <= 0 or item.blocks <= 0:
            continue
        if p.w_parts == 1 and part_of(p, 0, item.position).pixels <= 0:
            # the tap lies in the padding, and the batch may have thousands of depths
            continue

        starts, loaded = True, 0
        # the loads of a stretch come before the products of the one before it, where there are two buffers
        ahead = p.al1 > 1 and p.bl1 > 1
        for number in range(item.first, item.end + ahead):
            is_last = number == item.end
            bd, w_part = divmod(min(number, item.end - 1), p.w_parts)
            depth = bd % p.dout * p.stride_d - p.pad_front + item.tap * p.dilation_d
            if not is_last and not 0 <= depth < p.di:
                # the tap lies in the padding
                continue
            part = part_of(p, w_part, item.position)
            for pixel0 in range(0, p.k_l1 if is_last else part.pixels, p.k_l1):
                if n + p.step_rows > len(rows):
                    yield n
                    n = 0
                stretch = _stretch(p, part, bd, depth, pixel0, l1_turn)
                if not is_last:
                    l1_turn += 1
                    n = _load_dy(rows, n, p, item, part, stretch, tile)
                    n = _load_x(rows, n, p, item, part, stretch, tile)
                    loaded += 1
                if loaded == 0:
                    continue
                if not ahead:
                    held, held_part = stretch, part
                elif loaded == 1 and not is_last:
                    held, held_part = stretch, part
                    continue
                n = deque(rows, n, A1, held.a1, LOAD_L0A, tile)
                n = deque(rows, n, B1, held.b1, LOAD_L0B, tile)
                for k in range(0, held.pixels, p.base_k):
                    if n + p.step_rows > len(rows):
                        yield n
                        n = 0
                    n = _k_step(rows, n, p, item, held_part, held, k, l0_half, c_half, starts, tile)
                    l0_half = 1 - l0_half
                    starts = False
                held, held_part = stretch, part

        if not starts:
            n, ub_half = _store_block(rows, n, p, item, c_half, ub_half, tile)
            c_half = 1 - c_half

    n = close_queue(rows, n, A1, p.al1, EPILOGUE)
    n = close_queue(rows, n, B1, p.bl1, EPILOGUE)
    n = close_queues(rows, n, (L0, L0C, OUT), 2, EPILOGUE)
    yield n
