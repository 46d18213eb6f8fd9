"""Kernels of TransData for weights: NCHW and NCDHW to FRACTAL_Z and FRACTAL_Z_3D with merged groups, and back.

A task is 16 rows (output channels) of a merged group and a chunk of its input channels. A *line* holds the plain data
of one row: for every small group a window with its channels of the chunk, at a whole block. Pass 1 turns 16 lines into
*element blocks*, 16 lanes (rows) of one element each; pass 2 gathers the blocks of C0 channels into a fractal. The way
back runs the same two passes the other way round. Fractals go through a ring of two halves.

Where the instruction has no 32-bit form, an element is two half words: pass 1 gives two blocks to an element, and pass
2 picks the parts of 8 channels in turn.

Sources: asc-devkit ``docs/zh/api/SIMD-API``, TransDataTo5HD page; ops-nn ``conv3d_backprop_filter_v2/tests/assets/
golden.py`` (merged groups). ASSUMED: chunks and task order; the library's kernel is not published in full.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_duplicate, emit_pipe_barrier, emit_set_flag, emit_wait_flag
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, NO_END, OUT, load_rows, store_gathered_block, store_rows, unit_share
from ops.vector.kernel_trans_data_lines import (
    CLEAR,
    EPILOGUE,
    GATHER,
    LINES,
    LOAD,
    PROLOGUE,
    STORE,
    TAIL,
    blocks_to_lines,
    fractal_address,
    gather,
    has_gaps,
    lines_to_blocks,
    load_lines,
    new_chunk,
    scatter,
    store_lines,
)

STEP_ROWS = 320
"""Rows that one step (a batch of fractals, 16 lines, the end of a core) takes at most."""


@jit
def _shared_chunk(p, task, step):
    """Return chunk ``step`` of a task: some channel blocks of all its small groups, or some taps of one."""
    number = task % p.task_chunks + step
    channel, tap = number // p.tap_chunks * p.chunk_channels, number % p.tap_chunks * p.chunk_taps
    channel_end = min(channel + p.chunk_channels, p.mag * p.cin_g)
    tap_end = min(tap + p.chunk_taps, p.taps)
    if p.whole_blocks and p.tap_chunks > 1 and tap_end - tap < p.chunk_taps:
        # the last taps once more with some before them, so that every piece is whole blocks
        tap = tap_end - p.chunk_taps
    block = task // p.task_chunks
    return new_chunk(
        p, task, group=block // p.row_blocks, row=block % p.row_blocks * 16, member=0, member_end=p.mag,
        channel=channel, channel_end=channel_end, tap=tap, tap_end=tap_end,
    )  # fmt: skip


@jit
def _own_chunk(p, task, step):
    """Return chunk ``step`` of a task that is stored small group by small group, last channels first.

    Every piece of a row but its last is then whole blocks, and the last one spills only into what is stored later.
    """
    block = task // p.task_chunks
    row = block % p.row_blocks * 16
    member = row // p.cout_g + step // p.own_chunks
    channel = member * p.cin_g + (p.own_chunks - 1 - step % p.own_chunks) * p.chunk_channels
    channel_end = min(channel + p.chunk_channels, (member + 1) * p.cin_g)
    return new_chunk(
        p, task, group=block // p.row_blocks, row=row, member=member, member_end=member + 1, channel=channel,
        channel_end=channel_end, tap=0, tap_end=p.taps,
    )  # fmt: skip


@jit
def _chunk_of(p, task, step):
    """Return chunk ``step`` of a task."""
    return _own_chunk(p, task, step) if p.own_chunks else _shared_chunk(p, task, step)


@jit
def _steps(p, task):
    """Return how many chunks a task has."""
    if not p.own_chunks:
        return p.steps
    row = task // p.task_chunks % p.row_blocks * 16
    first = row // p.cout_g
    last = min((min(row + 16, p.mag * p.cout_g) - 1) // p.cout_g, p.mag - 1)
    return (last - first + 1) * p.own_chunks


@jit
def _lines_in(rows, n, p, k):
    """Clear and load the lines of the chunk, and turn them into element blocks."""
    n = emit_duplicate(rows, n, p.lines_at, Data.FP32, 16 * k.line * p.item // 4, value_bits=0, site=CLEAR, tile=k.task)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, 0, CLEAR, k.task)

    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, 0, LOAD, k.task)
    n = load_lines(rows, n, p, k)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, 0, LOAD, k.task)

    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, 0, LINES, k.task)
    n = lines_to_blocks(rows, n, p, k)
    # the fractals are gathered from the blocks
    return emit_pipe_barrier(rows, n, Pipe.V, LINES, k.task)


@jit
def _fractals_out(rows, n, p, k, depth, c1, tap, count, half):
    """Gather a batch of fractals, neighbouring taps of one depth and channel block, and store them."""
    ring, fractal = p.ring_at + half * p.ring_bytes, 16 * p.c0 * p.item

    n = alloc(rows, n, OUT, half, GATHER, k.task)
    for i in range(count):
        n = gather(rows, n, p, k, ring + i * fractal, c1 * p.c0, depth * p.khw + tap + i)
    n = enque(rows, n, OUT, half, GATHER, k.task)

    n = deque(rows, n, OUT, half, STORE, k.task)
    n = store_rows(
        rows, n, gm=fractal_address(p, k, p.dst, depth, c1, tap), ub=ring, count=count, length=fractal,
        gm_step=p.cout_rows * p.c0 * p.item, ub_step=fractal, end=NO_END, exact=0, dtype=p.data, tensor=p.dst_tensor,
        site=STORE, tile=k.task,
    )  # fmt: skip
    return free(rows, n, OUT, half, STORE, k.task)


@jit
def to_fractal(rows, params, core, phase):
    """Move the tasks of ``core`` from the plain to the fractal tensor; see `npu_sim.program.launch.Launch`.

    ``params``: `trans_data_plan.WEIGHT_PARAMS`[1].
    """
    p = params[0]
    start, end = unit_share(p, core)
    if start == end:
        return
    n = open_queues(rows, 0, (OUT,), 2, PROLOGUE)
    # what a channel that does not exist is gathered from
    n = emit_duplicate(rows, n, p.spare_at, Data.FP32, 16, value_bits=0, site=CLEAR, tile=-1)
    half = 0
    for task in range(start, end):
        for step in range(_steps(p, task)):
            k = _chunk_of(p, task, step)
            if n + STEP_ROWS > len(rows):
                yield n
                n = 0
            n = _lines_in(rows, n, p, k)
            for depth in range(k.tap // p.khw, ceil_div(k.tap_end, p.khw)):
                first, last = max(k.tap - depth * p.khw, 0), min(p.khw, k.tap_end - depth * p.khw)
                for c1 in range(k.channel // p.c0, ceil_div(k.channel_end, p.c0)):
                    for tap in range(first, last, p.ring):
                        if n + STEP_ROWS > len(rows):
                            yield n
                            n = 0
                        n = _fractals_out(rows, n, p, k, depth, c1, tap, min(p.ring, last - tap), half)
                        half = 1 - half
    yield close_queues(rows, n, (OUT,), 2, EPILOGUE)


@jit
def _fractals_in(rows, n, p, k, depth, c1, tap, count, half):
    """Load a batch of fractals and scatter their columns to element blocks."""
    ring, fractal = p.ring_at + half * p.ring_bytes, 16 * p.c0 * p.item

    n = alloc(rows, n, IN, half, LOAD, k.task)
    n = load_rows(
        rows, n, ub=ring, gm=fractal_address(p, k, p.src, depth, c1, tap), count=count, length=fractal,
        ub_step=fractal, gm_step=p.cout_rows * p.c0 * p.item, exact=0, dtype=p.data, tensor=p.src_tensor, site=LOAD,
        tile=k.task,
    )  # fmt: skip
    n = enque(rows, n, IN, half, LOAD, k.task)

    n = deque(rows, n, IN, half, GATHER, k.task)
    for i in range(count):
        n = scatter(rows, n, p, k, ring + i * fractal, c1 * p.c0, depth * p.khw + tap + i)
    return free(rows, n, IN, half, GATHER, k.task)


@jit
def _lines_out(rows, n, p, k, range_end):
    """Turn element blocks into lines and store the rows."""
    # all columns are scattered
    n = emit_pipe_barrier(rows, n, Pipe.V, LINES, k.task)
    n = alloc(rows, n, OUT, 0, LINES, k.task)
    n = blocks_to_lines(rows, n, p, k)
    # the next chunk is scattered into the blocks that are read here
    n = emit_pipe_barrier(rows, n, Pipe.V, LINES, k.task)
    n = enque(rows, n, OUT, 0, LINES, k.task)

    n = deque(rows, n, OUT, 0, STORE, k.task)
    n = store_lines(rows, n, p, k, range_end)
    return free(rows, n, OUT, 0, STORE, k.task)


@jit
def _has_rows(p, task):
    """Return whether the task's first row exists; the blocks behind the last group are padding."""
    block = task // p.task_chunks
    member = block % p.row_blocks * 16 // p.cout_g
    return member < p.mag and block // p.row_blocks * p.mag + member < p.groups


@jit
def _range_end(p, task):
    """Return the GM address that stores of the tasks before ``task`` must not pass, `NO_END` if there is none."""
    group, block = task // p.row_blocks, task % p.row_blocks
    rows = min(group * p.mag * p.cout_g + min(16 * block, p.mag * p.cout_g), p.groups * p.cout_g)
    if not p.tails or rows == p.groups * p.cout_g:
        return NO_END
    return p.dst + rows * p.cin_g * p.taps * p.item


@jit
def _place_of(p, element):
    """Return where element number ``element`` of the plain tensor lies in the fractals: its row of C0, and its lane."""
    tap = element % p.taps
    channel = element // p.taps % p.cin_g
    cout = element // (p.taps * p.cin_g)
    group = cout // p.cout_g
    member = group % p.mag
    channel += member * p.cin_g
    row = member * p.cout_g + cout % p.cout_g
    depth = group // p.mag * p.kd + tap // p.khw
    column = (depth * p.cin1_g + channel // p.c0) * p.khw + tap % p.khw
    return (column * p.cout_rows + row) * p.c0 * p.item, channel % p.c0 * p.item


@jit
def _last_places(p, range_end):
    """Return `_place_of` each element of the last 32 bytes before an address of the plain tensor, int64[count][2]."""
    places = np.empty((BLOCK // p.item, 2), np.int64)
    for i in range(len(places)):
        places[i, 0], places[i, 1] = _place_of(p, (range_end - p.dst) // p.item - len(places) + i)
    return places


@jit
def from_fractal(rows, params, core, phase):
    """Move the tasks of ``core`` from the fractal to the plain tensor; see `npu_sim.program.launch.Launch`.

    ``params``: `trans_data_plan.WEIGHT_PARAMS`[1].
    """
    p = params[0]
    start, end = unit_share(p, core)
    if start == end:
        return
    range_end = _range_end(p, end)
    n = open_queues(rows, 0, (IN,), 2, PROLOGUE)
    n = open_queues(rows, n, (OUT,), 1, PROLOGUE)
    half = 0
    for task in range(start, end):
        for step in range(_steps(p, task) if _has_rows(p, task) else 0):
            k = _chunk_of(p, task, step)
            if n + STEP_ROWS > len(rows):
                yield n
                n = 0
            if has_gaps(p, k):
                # pass 1 turns the gaps between windows too
                words = 16 * k.line * p.item // 4
                n = emit_duplicate(rows, n, p.blocks_at, Data.FP32, words, value_bits=0, site=CLEAR, tile=task)
                n = emit_pipe_barrier(rows, n, Pipe.V, GATHER, task)
            for depth in range(k.tap // p.khw, ceil_div(k.tap_end, p.khw)):
                first, last = max(k.tap - depth * p.khw, 0), min(p.khw, k.tap_end - depth * p.khw)
                for c1 in range(k.channel // p.c0, ceil_div(k.channel_end, p.c0)):
                    for tap in range(first, last, p.ring):
                        if n + STEP_ROWS > len(rows):
                            yield n
                            n = 0
                        n = _fractals_in(rows, n, p, k, depth, c1, tap, min(p.ring, last - tap), half)
                        half = 1 - half
            if n + STEP_ROWS > len(rows):
                yield n
                n = 0
            n = _lines_out(rows, n, p, k, range_end)
    if n + STEP_ROWS > len(rows):
        yield n
        n = 0
    n = close_queues(rows, n, (IN,), 2, EPILOGUE)
    n = close_queues(rows, n, (OUT,), 1, EPILOGUE)
    if range_end != NO_END:
        n = store_gathered_block(rows, n, p, range_end, _last_places(p, range_end), p.ring_at, TAIL)
    yield n
