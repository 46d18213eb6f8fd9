"""The weight-gradient kernel of dav-c220 (A2, A3).

A core owns a contiguous range of work items (K block or M/N block, batch x depth item, block; outermost group and depth
tap when those are separate; with the base tiling one block of M, N and K, and a share of groups, items and taps) and
walks each in base blocks (`walk_split`), as the published kernel does. Phase 0 clears dW, phase 1 computes. Cores add
to the same elements as they finish; `kernel_stream_k` does without.

What our own tilings add: parts of dY's columns are batch items (``w_parts``), and the taps of a window that the
image-to-column load cannot encode are separate like those of the depth (``tap_by_tap``, ``taps`` of them; `parts`).

Source: ops-nn ``conv/conv3d_backprop_filter_v2/op_kernel/arch22`` (drivers of tiling keys 0-3, clearing of the output).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_data_copy, emit_fill
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, core_share
from ops.common.queues import Queue, deque, enque
from ops.conv3d_backprop_filter import walk_split
from ops.conv3d_backprop_filter.parts import part_of

ZEROS = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE3.value)
"""A stretch of L1 that is filled once and copied out again and again."""


@jit
def _digits(p, item):
    """Return a work item's block numbers along M, N and K, batch x depth x part number, group and tap."""
    bd_count = p.n * p.dout * p.w_parts
    # fastest first: (m, n, bd, k), (n, m, bd, k) or (n, k, bd, m), then group and tap; with the base tiling
    # (tap, bd, group) within the share of a core and (k, n, m, bd, tap, group) of the shares
    if p.key == 0:
        core, rest = divmod(item, p.per_core)
        rest, tap = divmod(rest, p.core_dk)
        group, bd = divmod(rest, p.core_batch)
        rest, k = divmod(core, p.k_count)
        rest, n = divmod(rest, p.n_count)
        rest, m = divmod(rest, p.m_count)
        rest, share = divmod(rest, p.batch_dim)
        bd += share * p.core_batch
        rest, share = divmod(rest, p.dk_dim)
        return m, n, k, bd, group + rest * p.core_group, tap + share * p.core_dk
    if p.key == 3:
        rest, n = divmod(item, p.n_count)
        rest, k = divmod(rest, p.k_count)
        rest, bd = divmod(rest, bd_count)
        rest, m = divmod(rest, p.m_count)
    else:
        if p.key == 1:
            rest, m = divmod(item, p.m_count)
            rest, n = divmod(rest, p.n_count)
        else:
            rest, n = divmod(item, p.n_count)
            rest, m = divmod(rest, p.m_count)
        rest, bd = divmod(rest, bd_count)
        rest, k = divmod(rest, p.k_count)
    tap, group = divmod(rest, p.group)
    return m, n, k, bd, group, tap


@jit
def start_item(p, walk, tile, m, n, bd, group, tap, first_row, row_count):
    """Start the single shape of work item ``tile``; return False if it is empty or no tap of it meets the feature map.

    ``m n bd group tap`` are the numbers that `_digits` has; ``row_count`` rows of dY from ``first_row`` on, at most.
    """
    w = walk[0]
    bd, number = divmod(bd, p.w_parts)
    batch, do = divmod(bd, p.dout)
    # shares of the base tiling may be larger than what is left
    if batch >= p.n or group >= p.group or tap >= p.dk * p.taps:
        return False
    tap, position = divmod(tap, p.taps)
    depth = do * p.stride_d - p.pad_front + tap * p.dilation_d
    window_c0 = p.hk * p.wk * p.c0
    planes = min(p.cin1_g, p.c1_x - group * p.cin1_g)
    if p.merge_dk:
        # N starts at the first tap inside the depth range; dW moves with it (dilation is 1 here)
        tap = max(-depth, 0)
        depth += tap
        planes *= max(min(p.dk - tap, p.di - depth), 0)
    if depth < 0 or depth >= p.di:
        return False
    plane0 = n * p.single_n // window_c0
    m0 = m * p.single_m
    part = part_of(p, number, position)
    w.tile = tile
    w.first_row = first_row
    w.k0 = first_row * part.wo
    w.m_len = min(p.single_m, min(p.cout_g, p.c1_dy * p.c0 - group * p.cout_g) - m0)
    w.planes = min(plane0 + p.single_n // window_c0, planes) - plane0
    w.k_len = min(row_count * part.wo, part.pixels - w.k0)
    if w.planes <= 0 or w.m_len <= 0 or w.k_len <= 0:
        return False
    x_plane = (batch * p.di + depth) * p.c1_x + group * p.cin1_g + plane0
    w.x = p.x + (x_plane * p.hi * p.wi + part.x_first) * BLOCK
    dy_plane = bd * p.c1_dy + (group * p.cout_g + m0) // p.c0
    w.dy = p.dy + (dy_plane * p.ho * p.wo + part.dy_first) * BLOCK
    w.dw = dw_place(p, group, tap, position, plane0, m0)
    w.dw_tensor, w.dw_plane = p.dw_tensor, p.taps * p.cout_g
    walk_split.start_single_shape(p, walk, part)
    return True


@jit
def dw_place(p, group, tap, position, plane, m):
    """Return where row ``m`` of channel block ``plane`` begins in dW, for a tap of the depth and one of the window."""
    dw_plane = (group * p.dk + tap) * p.cin1_g + plane
    return p.dw + ((dw_plane * p.taps * p.hk * p.wk + position) * p.cout_g + m) * p.c0 * 4


@jit
def clear(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Zero the core's share of dW, and its slot if it has one; see `npu_sim.program.launch.Launch`.

    The share is stored from zeros in L1, of which there are as many as the share or all of L1 needs; the slot is stored
    in pieces that half the UB of a vector core would hold.

    ``params``: `params.SPLIT_PARAMS`[1].
    """
    p = params[0]
    start = core * p.clear_share
    end = min(start + p.clear_share, p.dw_bytes)
    slot_bytes = p.slot_bytes if core < p.tail * p.sharers else np.int64(0)
    longest = max(end - start, min(slot_bytes, p.sum_bytes))
    if longest <= 0:
        return
    buffer = min(p.clear_buffer, longest)
    n = emit_fill(
        rows, 0, dst_space=Space.L1, dst=0, dtype=Data.FP32, repeat=1, block_num=buffer // BLOCK, dst_gap=0,
        value_bits=0, site=walk_split.CLEAR, tile=-1,
    )  # fmt: skip
    n = enque(rows, n, ZEROS, 0, walk_split.CLEAR, -1)
    n = deque(rows, n, ZEROS, 0, walk_split.CLEAR, -1)
    for in_slot in range(2):
        address, length, tensor = p.dw + start, end - start, p.dw_tensor
        if in_slot:
            address, length, tensor = p.slots + core * p.slot_bytes, slot_bytes, p.slots_tensor
        for at in range(0, length, buffer):
            if n == len(rows):
                yield n
                n = 0
            n = emit_data_copy(
                rows, n, dst_space=Space.GM, dst=address + at, src_space=Space.L1, src=0, block_count=1,
                block_len=min(buffer, length - at) // BLOCK, src_gap=0, dst_gap=0, dtype=Data.FP32, tensor=tensor,
                site=walk_split.CLEAR, tile=-1,
            )  # fmt: skip
    yield n


@jit
def compute(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Add the work items of ``core`` to dW; see `npu_sim.program.launch.Launch`.

    ``params``: `params.SPLIT_PARAMS`[1].
    """
    p = params[0]
    first, end = core_share(p.items, p.cores, core)
    if first == end:
        return
    walk = np.zeros(1, walk_split.WALK)
    n = walk_split.open_buffers(rows, 0, p)
    for item in range(first, end):
        m, n_block, k, bd, group, tap = _digits(p, item)
        if not start_item(p, walk, item, m, n_block, bd, group, tap, k * p.single_ho, p.single_ho):
            continue
        for block in range(walk[0].blocks):
            walk_split.start_block(p, walk, block)
            for k_number in range(walk[0].k_steps):
                if n + p.step_rows > len(rows):
                    yield n
                    n = 0
                n = walk_split.k_step(rows, n, p, walk, k_number)
            # K blocks and batch items of other cores go to the same place
            n = walk_split.store_block(rows, n, p, walk, atomic=True, sequential=False)
    yield walk_split.close_buffers(rows, n, p, walk)
