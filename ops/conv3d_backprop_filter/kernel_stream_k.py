"""The weight-gradient kernel of dav-c220 (A2, A3) whose additions have one order: tiling key 4, stream-K.

A core owns whole blocks of M and N of one merged group and depth tap, and adds all their batch items to dW, one after
the other: nobody else adds there. The blocks of the last, incomplete round may be shared instead, each by ``sharers``
cores: core ``i`` of them has a stretch of the batch items, or of the rows of dY, whose sum it keeps in a slot of its
own, a block in the order of dW. When all are finished, the vector cores add slot 0, 1, 2 ... of each shared block and
store the sum in dW (`sum_slots`).

Source: ops-nn ``conv/conv3d_backprop_filter_v2/op_kernel/arch22/conv3d_dw_v2_basic_block_split_mn_streamk.h``.
ASSUMED: what the emulator does in other places than that kernel takes as long. A cube core clears its slot, where its
two vector cores do; and the sums are a launch of their own, where the vector cores of one launch wait for the cubes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_add, emit_data_copy
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, core_share
from ops.common.queues import Queue, alloc, close_queues, deque, enque, free, open_queues
from ops.conv3d_backprop_filter.kernel_split import dw_place, start_item
from ops.conv3d_backprop_filter.walk_split import WALK, close_buffers, k_step, open_buffers, start_block, store_block

LOAD, ADD, STORE_SUM, SYNC = range(4)
SUM_SITES = {LOAD: "LOAD", ADD: "ADD", STORE_SUM: "STORE", SYNC: "SYNC"}

SUM = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE3.value)
"""The sum in UB: begun with a piece of slot 0, stored."""
PART = Queue(producer=Pipe.MTE2.value, consumer=Pipe.V.value)
"""The same piece of another slot."""
ADDED = Queue(producer=Pipe.V.value, consumer=Pipe.MTE3.value)
"""The sum when all slots are added."""
_SUM_STEP_ROWS = 16


@jit
def _block(p, number):
    """Return the numbers of a block along M and N, its merged group and its tap."""
    rest, n = divmod(number, p.n_count)
    rest, m = divmod(rest, p.m_count)
    tap, group = divmod(rest, p.group)
    return m, n, group, tap


@jit
def _rows_of_block(p, m):
    """Return the rows of M that a block has."""
    return min(p.single_m, p.cout_g - m * p.single_m)


@jit
def compute(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Add the blocks of ``core`` to dW, and its part of a shared one to its slot; see `npu_sim.program.launch.Launch`.

    ``params``: `params.SPLIT_PARAMS`[1].
    """
    p = params[0]
    owned = p.items - p.tail
    first, end = core_share(owned, p.cores, core)
    shares = core < p.tail * p.sharers
    if first == end and not shares:
        return
    walk = np.zeros(1, WALK)
    n = open_buffers(rows, 0, p)
    for turn in range(end - first + (1 if shares else 0)):
        in_slot = turn == end - first
        number = owned + core // p.sharers if in_slot else first + turn
        m, n_block, group, tap = _block(p, number)
        bd_first, bd_end = np.int64(0), p.n * p.dout * p.w_parts
        row_first, row_count = np.int64(0), p.single_ho
        if in_slot:
            begin = core % p.sharers * p.share
            if p.by_rows:
                row_first, row_count = begin, p.share
            else:
                bd_first, bd_end = begin, min(begin + p.share, bd_end)
        adds = not in_slot
        for bd in range(bd_first, bd_end):
            if not start_item(p, walk, number, m, n_block, bd, group, tap, row_first, row_count):
                continue
            if in_slot:
                w = walk[0]
                w.dw, w.dw_tensor, w.dw_plane = p.slots + core * p.slot_bytes, p.slots_tensor, _rows_of_block(p, m)
            for block in range(walk[0].blocks):
                start_block(p, walk, block)
                for k in range(walk[0].k_steps):
                    if n + p.step_rows > len(rows):
                        yield n
                        n = 0
                    n = k_step(rows, n, p, walk, k)
                n = store_block(rows, n, p, walk, adds, False)
            adds = True
    yield close_buffers(rows, n, p, walk)


@jit
def _copy(rows, n, dst_space, dst, src_space, src, length, tensor, site, tile):
    """Copy ``length`` bytes, whole blocks, between a slot or dW and UB."""
    return emit_data_copy(
        rows, n, dst_space=dst_space, dst=dst, src_space=src_space, src=src, block_count=1, block_len=length // BLOCK,
        src_gap=0, dst_gap=0, dtype=Data.FP32, tensor=tensor, site=site, tile=tile,
    )  # fmt: skip


@jit
def sum_slots(rows, params, core, phase):
    """Store the sums of the slots of some columns of a shared block; see `npu_sim.program.launch.Launch`.

    ``params``: `params.SPLIT_PARAMS`[1], ``cores`` being the vector cores, equally many for each of the blocks.
    """
    p = params[0]
    tail, worker = divmod(core, p.cores // p.tail)
    number = p.items - p.tail + tail
    m, n_block, group, tap = _block(p, number)
    tap, position = divmod(tap, p.taps)
    window = p.hk * p.wk
    block_rows = _rows_of_block(p, m)
    column_bytes = block_rows * p.c0 * 4
    step = p.taps * p.cout_g * p.c0 * 4
    plane = n_block * p.single_n // (window * p.c0)
    columns = min(p.single_n // p.c0, (p.cin1_g - plane) * window)
    first, end = core_share(columns, p.cores // p.tail, worker)
    if first == end:
        return
    target = dw_place(p, group, tap, position, plane, m * p.single_m) + first * step
    source = p.slots + tail * p.sharers * p.slot_bytes + first * column_bytes
    # columns that lie dense in dW are summed together
    runs, run_bytes = end - first, column_bytes
    if step == column_bytes:
        runs, run_bytes = np.int64(1), run_bytes * runs
    n = open_queues(rows, 0, (SUM, PART), 1, SYNC)
    for run in range(runs):
        for at in range(0, run_bytes, p.sum_bytes):
            length = min(p.sum_bytes, run_bytes - at)
            gm = source + run * run_bytes + at
            for slot in range(p.sharers):
                if n + _SUM_STEP_ROWS > len(rows):
                    yield n
                    n = 0
                if slot == 0:
                    n = alloc(rows, n, SUM, 0, LOAD, number)
                    n = _copy(rows, n, Space.UB, 0, Space.GM, gm, length, p.slots_tensor, LOAD, number)
                    continue
                n = alloc(rows, n, PART, 0, LOAD, number)
                part = gm + slot * p.slot_bytes
                n = _copy(rows, n, Space.UB, p.sum_bytes, Space.GM, part, length, p.slots_tensor, LOAD, number)
                n = enque(rows, n, PART, 0, LOAD, number)

                # slot 0 came before in the same pipe, so it is there too; and as there is one PART, its load has waited
                # for the addition before, which needs no barrier then
                n = deque(rows, n, PART, 0, ADD, number)
                n = emit_add(
                    rows, n, dst=0, src0=0, src1=p.sum_bytes, dtype=Data.FP32, count=length // 4, site=ADD, tile=number
                )
                n = free(rows, n, PART, 0, ADD, number)
            n = enque(rows, n, ADDED, 0, ADD, number)

            n = deque(rows, n, ADDED, 0, STORE_SUM, number)
            dst = target + run * step + at
            n = _copy(rows, n, Space.GM, dst, Space.UB, 0, length, p.dw_tensor, STORE_SUM, number)
            n = free(rows, n, SUM, 0, STORE_SUM, number)
    yield close_queues(rows, n, (SUM, PART), 1, SYNC)
