"""Kernels of TransData between FRACTAL_Z as of one group, and FRACTAL_Z with merged groups.

The library turns a plain weight of several groups into FRACTAL_Z as if it had one, and moves the rows of each small
group to their place in its merged group with a kernel of its own; a gradient goes the other way round. The channels of
a small group begin anywhere in a block of C0, so its rows are turned, moved by whole columns, and turned back. What no
row fills must be zero before: the library clears the destination with a MemSet.

Everything is counted in half words, so that types do not matter.

Source: CANN 8.1 ``tbe/impl/dynamic/trans_data_groups.py``: one buffer of each kind, a task by itself, lines of an odd
count of 16 rows. ASSUMED: how tasks are shared out, whose tiling is not published.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.emit import emit_data_copy, emit_duplicate, emit_pipe_barrier
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.common.queues import Queue, alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, NO_END, OUT, Places, load_rows, store_rows, turn_places

PROLOGUE, CLEAR, LOAD, TURN, JOIN, STORE, EPILOGUE = range(7)
SITES = {
    PROLOGUE: "PROLOGUE", CLEAR: "CLEAR", LOAD: "LOAD", TURN: "TURN", JOIN: "JOIN", STORE: "STORE", EPILOGUE: "EPILOGUE"
}  # fmt: skip
STEP_ROWS = 64
"""Rows that one piece of a task, or the end of a core, takes at most."""
LANES = 16
"""Half words of a block, and lines of a transposition."""
_MOVED = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE3.value)
"""The buffer of rows that stay as they are."""
_QUEUES = (IN, OUT, _MOVED)


@jit
def odd_lines(count: Int) -> Int:
    """Return the lines of ``count`` rows: whole transpositions, and an odd count of them, against bank conflicts."""
    return (ceil_div(count, LANES) | 1) * LANES


@jit
def _tasks(p: Any, core: Int) -> Any:
    """Return the tasks [start, end) of a core: a share of one axis, and all axes inside it."""
    outer, part = core // p.shares, core % p.shares
    return (outer * p.axis + part * p.share) * p.inner, (outer * p.axis + min((part + 1) * p.share, p.axis)) * p.inner


@jit
def _whole_row(p: Any, depth: Int, block: Int, tap: Int, row: Int) -> Int:
    """Return the byte of a row in FRACTAL_Z as of one group."""
    return (((depth * p.blocks + block) * p.taps + tap) * p.rows + row) * p.row


@jit
def _merged_row(p: Any, group: Int, depth: Int, block: Int, tap: Int, row: Int) -> Int:
    """Return the byte of a row of small group ``group`` in its merged group."""
    column = ((group // p.mag * p.kd + depth) * p.merged_blocks + block) * p.taps + tap
    return (column * p.merged_rows + group % p.mag * p.count + row) * p.row


@jit
def _move(
    rows: np.ndarray,
    n: Int,
    p: Any,
    source: Int,
    target: Int,
    pieces: Int,
    length: Int,
    source_step: Int,
    target_step: Int,
    task: Int,
) -> Int:
    """Copy pieces of rows that stay as they are."""
    n = alloc(rows, n, _MOVED, 0, LOAD, task)
    n = load_rows(
        rows, n, p.moved, p.src + source, pieces, length, length, source_step, 0, p.data, p.src_tensor, LOAD, task
    )
    n = enque(rows, n, _MOVED, 0, LOAD, task)

    n = deque(rows, n, _MOVED, 0, STORE, task)
    n = store_rows(
        rows, n, p.dst + target, p.moved, pieces, length, target_step, length, NO_END, 0, p.data, p.dst_tensor, STORE,
        task,
    )  # fmt: skip
    return free(rows, n, _MOVED, 0, STORE, task)


@jit
def _columns(
    rows: np.ndarray,
    n: Int,
    p: Any,
    columns: Int,
    lines_at: Int,
    lines: Int,
    forward: bool,
    task: Int,
) -> Int:
    """Turn rows at ``lines_at`` into columns of ``lines`` half words at ``columns``, or back."""
    column = lines * 2
    for part in range(p.row // BLOCK):
        a = Places(columns + part * LANES * column, LANES, column, 0, 1)
        b = Places(lines_at + part * BLOCK, LANES, p.row, 0, LANES * p.row // BLOCK)
        if forward:
            n = turn_places(rows, n, Data.FP16, lines // LANES, a, b, TURN, task)
        else:
            n = turn_places(rows, n, Data.FP16, lines // LANES, b, a, TURN, task)
    return n


@jit
def _copy_or_clear(rows: np.ndarray, n: Int, source: Int, target: Int, blocks: Int, task: Int) -> Int:
    """Copy blocks inside UB, or clear them where there is no source."""
    if source < 0:
        return emit_duplicate(rows, n, target, Data.FP16, blocks * LANES, value_bits=0, site=JOIN, tile=task)
    return emit_data_copy(
        rows, n, Space.UB, target, Space.UB, source, block_count=1, block_len=blocks, src_gap=0, dst_gap=0,
        dtype=Data.FP16, tensor=-1, site=JOIN, tile=task,
    )  # fmt: skip


@jit
def _joined_rows(
    rows: np.ndarray,
    n: Int,
    p: Any,
    before: Int,
    behind: Int,
    target: Int,
    gap: Int,
    count: Int,
    task: Int,
) -> Int:
    """Store rows: the last ``gap`` half words of the rows at ``before``, then the first others of those at ``behind``.

    -1: zeros instead.
    """
    lines, length, halves = odd_lines(count), count * p.row, p.row // 2
    blocks = lines // LANES
    n = alloc(rows, n, IN, 0, LOAD, task)
    if before >= 0:
        n = load_rows(rows, n, p.first_in, p.src + before, 1, length, 0, 0, 0, p.data, p.src_tensor, LOAD, task)
    if behind >= 0:
        n = load_rows(rows, n, p.second_in, p.src + behind, 1, length, 0, 0, 0, p.data, p.src_tensor, LOAD, task)
    n = enque(rows, n, IN, 0, LOAD, task)

    n = deque(rows, n, IN, 0, TURN, task)
    if before >= 0:
        n = _columns(rows, n, p, p.first_turned, p.first_in, lines, True, task)
    if behind >= 0:
        n = _columns(rows, n, p, p.second_turned, p.second_in, lines, True, task)
    n = free(rows, n, IN, 0, TURN, task)
    n = emit_pipe_barrier(rows, n, Pipe.V, JOIN, task)
    tail = p.first_turned + (halves - gap) * blocks * BLOCK if before >= 0 else -1
    n = _copy_or_clear(rows, n, tail, p.joined, gap * blocks, task)
    head = p.second_turned if behind >= 0 else -1
    n = _copy_or_clear(rows, n, head, p.joined + gap * blocks * BLOCK, (halves - gap) * blocks, task)
    n = emit_pipe_barrier(rows, n, Pipe.V, JOIN, task)
    n = alloc(rows, n, OUT, 0, TURN, task)
    n = _columns(rows, n, p, p.joined, p.out, lines, False, task)
    n = enque(rows, n, OUT, 0, TURN, task)

    n = deque(rows, n, OUT, 0, STORE, task)
    n = store_rows(
        rows, n, p.dst + target, p.out, 1, length, 0, 0, NO_END, 0, p.data, p.dst_tensor, STORE, task
    )  # fmt: skip
    return free(rows, n, OUT, 0, STORE, task)


@jit
def to_groups(rows: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[Any]:
    """Move the rows of the tasks of ``core`` to merged groups; see `npu_sim.program.launch.Launch`.

    A task is a block of channels of a small group at one tap. ``params``: `trans_data_groups.PARAMS`[1].
    """
    p = params[0]
    start, end = _tasks(p, core)
    # all pieces have as many rows, so what is turned with them stays zero
    n = emit_duplicate(rows, 0, p.first_in, Data.FP16, p.cleared // 2, value_bits=0, site=CLEAR, tile=-1)
    n = open_queues(rows, n, _QUEUES, 1, PROLOGUE)
    for task in range(start, end):
        tap, block, depth = task % p.taps, task // p.taps % p.blocks, task // (p.taps * p.blocks) % p.kd
        group = task // (p.taps * p.blocks * p.kd)
        first = group % p.mag * p.c
        gap, at = first % p.c0 * p.item // 2, first // p.c0
        for first_row in range(0, p.count, p.piece):
            # the last piece once more with rows before it
            row, count = min(first_row, p.count - p.piece), p.piece
            whole = group * p.count + row
            source = _whole_row(p, depth, block, tap, whole)
            target = _merged_row(p, group, depth, at + block, tap, row)
            if n + 2 * STEP_ROWS > len(rows):
                yield n
                n = 0
            if gap == 0:
                n = _move(rows, n, p, source, target, 1, count * p.row, 0, 0, task)
                continue
            before = _whole_row(p, depth, block - 1, tap, whole) if block > 0 else -1
            n = _joined_rows(rows, n, p, before, source, target, gap, count, task)
            if block == p.blocks - 1 and at + p.blocks < p.merged_blocks:
                target = _merged_row(p, group, depth, at + p.blocks, tap, row)
                n = _joined_rows(rows, n, p, source, -1, target, gap, count, task)
    yield close_queues(rows, n, _QUEUES, 1, EPILOGUE)


@jit
def _shifted_taps(
    rows: np.ndarray,
    n: Int,
    p: Any,
    source: Int,
    target: Int,
    taps: int,
    gap: Int,
    count: Int,
    parts: Int,
    task: Int,
) -> Int:
    """Store rows of ``taps`` taps that begin ``gap`` half words inside the rows at ``source``.

    What is behind the end of these rows is in the next block of channels (``parts`` is 2) or zero. Lines are taps, so
    that a half word of all of them is a block.
    """
    halves, length = p.row // 2, count * p.row
    line, step = parts * length, p.taps * p.merged_rows * p.row
    n = alloc(rows, n, IN, 0, LOAD, task)
    for part in range(parts):
        n = load_rows(
            rows, n, p.first_in + part * length, p.src + source + part * step, taps, length, line,
            p.merged_rows * p.row, 0, p.data, p.src_tensor, LOAD, task,
        )  # fmt: skip
    n = enque(rows, n, IN, 0, LOAD, task)

    n = deque(rows, n, IN, 0, TURN, task)
    # where there are fewer taps than lines, these are turned more than once
    blocks, lines = Places(p.first_turned, LANES, BLOCK, 0, LANES), Places(p.first_in, taps, line, 0, 1)
    n = turn_places(rows, n, Data.FP16, line // BLOCK, blocks, lines, TURN, task)
    n = free(rows, n, IN, 0, TURN, task)
    if parts == 1:
        n = _copy_or_clear(rows, n, -1, p.joined, count * halves, task)
    n = emit_pipe_barrier(rows, n, Pipe.V, JOIN, task)
    n = emit_data_copy(
        rows, n, Space.UB, p.joined, Space.UB, p.first_turned + gap * BLOCK, block_count=count,
        block_len=halves - gap, src_gap=gap, dst_gap=gap, dtype=Data.FP16, tensor=-1, site=JOIN, tile=task,
    )  # fmt: skip
    if parts == 2:
        n = emit_data_copy(
            rows, n, Space.UB, p.joined + (halves - gap) * BLOCK, Space.UB, p.first_turned + count * halves * BLOCK,
            block_count=count, block_len=gap, src_gap=halves - gap, dst_gap=halves - gap, dtype=Data.FP16, tensor=-1,
            site=JOIN, tile=task,
        )  # fmt: skip
    n = emit_pipe_barrier(rows, n, Pipe.V, JOIN, task)
    n = alloc(rows, n, OUT, 0, TURN, task)
    lines, blocks = Places(p.out, LANES, length, 0, 1), Places(p.joined, LANES, BLOCK, 0, LANES)
    n = turn_places(rows, n, Data.FP16, length // BLOCK, lines, blocks, TURN, task)
    n = enque(rows, n, OUT, 0, TURN, task)

    n = deque(rows, n, OUT, 0, STORE, task)
    n = store_rows(
        rows, n, p.dst + target, p.out, taps, length, p.rows * p.row, length, NO_END, 0, p.data, p.dst_tensor, STORE,
        task,
    )  # fmt: skip
    return free(rows, n, OUT, 0, STORE, task)


@jit
def from_groups(rows: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[Any]:
    """Move the rows of the tasks of ``core`` from merged groups back; see `npu_sim.program.launch.Launch`.

    A task is a block of channels of a small group, at all taps of a depth. ``params``: `trans_data_groups.PARAMS`[1].
    """
    p = params[0]
    start, end = _tasks(p, core)
    n = open_queues(rows, 0, _QUEUES, 1, PROLOGUE)
    for task in range(start, end):
        block, depth, group = task % p.blocks, task // p.blocks % p.kd, task // (p.blocks * p.kd)
        first = group % p.mag * p.c
        gap, at = first % p.c0 * p.item // 2, first // p.c0
        here = min(p.c - block * p.c0, p.c0)
        parts = 2 if first % p.c0 + here > p.c0 else 1
        for tap in range(0, p.taps, LANES):
            taps = min(LANES, p.taps - tap)
            for first_row in range(0, p.count, p.piece):
                row, count = min(first_row, p.count - p.piece), p.piece
                source = _merged_row(p, group, depth, at + block, tap, row)
                target = _whole_row(p, depth, block, tap, group * p.count + row)
                if n + 2 * STEP_ROWS > len(rows):
                    yield n
                    n = 0
                if gap == 0:
                    steps = (p.merged_rows * p.row, p.rows * p.row)
                    n = _move(rows, n, p, source, target, taps, count * p.row, steps[0], steps[1], task)
                    continue
                n = _shifted_taps(rows, n, p, source, target, taps, gap, count, parts, task)
    yield close_queues(rows, n, _QUEUES, 1, EPILOGUE)
