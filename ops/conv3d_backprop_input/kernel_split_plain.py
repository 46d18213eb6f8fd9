"""Kernel of the vector cores of an input gradient on dav-c220 whose result is plain, NCDHW.

The vector core of a block walks the same items and base blocks as its Cube core (`kernel_split`). Of each it waits for
the slot, copies it to UB, says that the slot is free, turns 16 channels at a time over and stores those that exist: all
in one DataCopyPad, or one by one where the pixels are no whole blocks.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_kernel/arch22/conv3d_backprop_input_v2_aiv.h``. There what UB has
behind the pixels of a last fractal is whatever was there before; here the slot has whole fractals.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_cross_core_set_flag, emit_cross_core_wait_flag, emit_data_copy
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.conv3d_backprop_input.kernel_split_windows import image_of
from ops.conv3d_backprop_input.kernel_split_work import (
    COPY_IN,
    COPY_OUT,
    EPILOGUE,
    PROLOGUE,
    SLOT_FREE,
    SLOT_FULL,
    TURN,
    block_of,
    item_of,
    items_of,
    source_plane,
)
from ops.vector.kernel_frame import IN, OUT, Places, store_rows, turn_places

STEP_ROWS = 320
"""Room for a block: at most 256 channels that are stored one by one."""


@jit
def _is_stored(p, block):
    """Return whether the Cube core has anything to add up for a block; what it leaves out is zero, and cleared."""
    taps = 0
    for tap in range(p.kd if image_of(p, block).a_rows > 0 else 0):
        taps += source_plane(p, block.d, tap) >= 0
    return taps > 0


@jit
def _write_block(rows, n, p, block_index, item, block, tile):
    """Write a base block from the slot of ``block_index`` to where its channels begin."""
    pixels, blocks = ceil_div(block.m_len, 16) * 16, block.n_len // 16
    row = pixels * 2
    n = emit_cross_core_wait_flag(rows, n, SLOT_FULL, COPY_IN, tile)
    n = alloc(rows, n, IN, 0, COPY_IN, tile)
    n = emit_data_copy(
        rows, n, dst_space=Space.UB, dst=0, src_space=Space.GM, src=p.slots + block_index * p.slot_bytes,
        block_count=blocks, block_len=pixels, src_gap=0, dst_gap=0, dtype=p.out_data, tensor=p.slots_tensor,
        site=COPY_IN, tile=tile,
    )  # fmt: skip
    n = enque(rows, n, IN, 0, COPY_IN, tile)
    n = emit_cross_core_set_flag(rows, n, 2, Pipe.MTE2, SLOT_FREE, COPY_IN, tile)

    n = deque(rows, n, IN, 0, TURN, tile)
    n = alloc(rows, n, OUT, 0, TURN, tile)
    for i in range(blocks):
        lanes = Places(i * pixels * BLOCK, 16, BLOCK, 0, 16)
        channels = Places(p.ub_out + 16 * i * row, 16, row, 0, 1)
        n = turn_places(rows, n, Data.FP16, pixels // 16, channels, lanes, TURN, tile)
    n = free(rows, n, IN, 0, TURN, tile)
    n = enque(rows, n, OUT, 0, TURN, tile)

    n = deque(rows, n, OUT, 0, COPY_OUT, tile)
    channel = (item.group * p.n1_g + block.n_block) * 16
    count, plane = min(block.n_len, p.out_c - channel), p.out_d * p.out_h * p.out_w * 2
    gm = p.out + (item.batch * p.out_c + channel) * plane + (block.d * p.out_h * p.out_w + block.m) * 2
    # pixels that are no whole blocks: one DataCopyPad a channel
    together = count if block.m_len % 16 == 0 else 1
    for i in range(0, count, together):
        n = store_rows(
            rows, n, gm=gm + i * plane, ub=p.ub_out + i * row, count=together, length=block.m_len * 2, gm_step=plane,
            ub_step=row, end=0, exact=1, dtype=p.out_data, tensor=p.out_tensor, site=COPY_OUT, tile=tile,
        )  # fmt: skip
    return free(rows, n, OUT, 0, COPY_OUT, tile)


@jit
def write(rows, params, core, phase):
    """Write the blocks of the Cube core of block ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `params.SPLIT_PARAMS`[1], ``plain``.
    """
    p = params[0]
    if phase < p.clear:
        return
    first, end = items_of(p, core)
    if first == end:
        return
    n = open_queues(rows, 0, (IN, OUT), 1, PROLOGUE)
    for tile in range(first, end):
        item = item_of(p, core, tile)
        for number in range(item.blocks):
            block = block_of(p, item, number)
            if not _is_stored(p, block):
                continue
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            n = _write_block(rows, n, p, core, item, block, tile)
    if n + p.step_rows > len(rows):
        yield n
        n = 0
    yield close_queues(rows, n, (IN, OUT), 1, EPILOGUE)
