"""A finished block's way from L0C through UB to global memory on unified cores, slice by slice."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_data_copy, emit_duplicate, emit_l0c_to_ub, emit_pipe_barrier
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, copy_runs
from ops.common.queues import Queue, alloc, deque, enque, free
from ops.conv3d_backprop_input.kernel_unified_windows import strew
from ops.conv3d_backprop_input.kernel_unified_work import DRAIN, STORE

L0C = Queue(producer=Pipe.M.value, consumer=Pipe.V.value)
"""A block of the result."""
OUT = Queue(producer=Pipe.V.value, consumer=Pipe.MTE3.value)
"""A slice of it in UB, in fp16."""


@jit
def slices_of(p, item):
    """Return how many slices a block leaves in: strips of pixels, then of channel blocks."""
    return ceil_div(item.m_len, p.slice_m) * ceil_div(item.n_blocks, p.slice_n)


@jit
def leave(rows, n, p, item, number, l0c_part, half):
    """Move slice ``number`` of the block in ``l0c_part`` of L0C through half ``half`` of UB."""
    tile = item.tile
    strips, m1 = ceil_div(item.m_len, p.slice_m), ceil_div(item.m_len, 16)
    first, block = number % strips * p.slice_m, number // strips * p.slice_n
    count, planes = min(p.slice_m, item.m_len - first), min(p.slice_n, item.n_blocks - block)
    padded = ceil_div(count, 16) * 16
    ub = p.ub_out + half * p.ub_out_half

    if number == 0:
        n = enque(rows, n, L0C, l0c_part, DRAIN, tile)
        n = deque(rows, n, L0C, l0c_part, DRAIN, tile)
    n = alloc(rows, n, OUT, half, DRAIN, tile)
    n = emit_l0c_to_ub(
        rows, n, dst=ub, src=l0c_part * p.l0c_part + (block * m1 * 16 + first) * 64, dst_dtype=Data.FP16,
        block_count=planes, block_len=padded // 16, src_gap=m1 - padded // 16, dst_gap=0, site=DRAIN, tile=tile,
    )  # fmt: skip
    pixel, length, held, result = item.m + first, count, padded, ub
    if p.spread:
        result = ub + planes * padded * BLOCK
        n = _spread(rows, n, p, result, ub, item.m + first, count, planes, tile)
        pixel, length = _spread_extent(p, pixel, count)
        held = length
    n = enque(rows, n, OUT, half, DRAIN, tile)

    n = deque(rows, n, OUT, half, STORE, tile)
    channel = item.group * p.n_c1 + item.n_index * (p.base_n // 16) + block
    plane = p.dst + (item.batch * p.dst_c1 + channel) * p.out_hw * BLOCK
    if p.two_column:
        # every second window is computed only to have two in a row
        for i in range(planes):
            n = emit_data_copy(
                rows, n, dst_space=Space.GM, dst=plane + (i * p.out_hw + pixel // 2) * BLOCK, src_space=Space.UB,
                src=result + i * padded * BLOCK, block_count=count // 2, block_len=1, src_gap=1, dst_gap=0,
                dtype=Data.FP16, tensor=p.dst_tensor, site=STORE, tile=tile,
            )  # fmt: skip
    else:
        n = copy_runs(
            rows, n, Space.GM, plane + pixel * BLOCK, Space.UB, result, count=planes, length=length, src_step=held,
            dst_step=p.out_hw, data=Data.FP16, tensor=p.dst_tensor, site=STORE, tile=tile,
        )  # fmt: skip
    n = free(rows, n, OUT, half, STORE, tile)
    if number == slices_of(p, item) - 1:
        n = free(rows, n, L0C, l0c_part, DRAIN, tile)
    return n


@jit
def _result_pixel(p, pixel):
    """Return the pixel of the result where source pixel ``pixel`` stands; behind the last one that is its end."""
    if pixel == p.src_hw:
        return p.out_hw
    return pixel // p.src_w * p.expand_h * p.out_w + pixel % p.src_w * p.expand_w


@jit
def _spread_extent(p, begin, count):
    """Return the first pixel of the result that ``count`` source pixels from ``begin`` on own, and how many they own.

    A pixel owns everything up to the next one, the first one also what stands before it (nothing).
    """
    at = _result_pixel(p, begin)
    return at, _result_pixel(p, begin + count) - at


@jit
def _spread(rows, n, p, dst, src, begin, count, planes, tile):
    """Insert the zeros around ``count`` pixels of ``planes`` channel blocks that came from L0C to UB."""
    padded = ceil_div(count, 16) * 16
    at, span = _spread_extent(p, begin, count)
    n = emit_duplicate(rows, n, dst, Data.FP16, planes * span * 16, 0, DRAIN, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V.value, DRAIN, tile)
    for plane in range(planes):
        done = 0
        while done < count:
            pixel = begin + done
            length = min(count - done, p.src_w - pixel % p.src_w)
            line_dst = dst + (plane * span + _result_pixel(p, pixel) - at) * BLOCK
            n = strew(rows, n, line_dst, src + (plane * padded + done) * BLOCK, length, p.expand_w, DRAIN, tile)
            done += length
    return n
