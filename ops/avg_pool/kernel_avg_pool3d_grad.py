"""Kernels of AvgPool3DGrad: each gradient pixel's channels are scaled and added to every pixel under its window.

Phases: 0 `clear` the sums, 1 `scatter`, 2 (16-bit tensors with overlapping windows) `round_sums`. Tensors are
[pixel][lane]. In phase 1 a core takes its tasks, one gradient pixel and one piece of its lanes each, a few at a time.
Every task of a few has a UB line of its own, and is loaded, multiplied and stored when its turn comes: the load of one
waits for nothing of those before it. The lines are used anew when all of the few are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.emit import (
    emit_cast,
    emit_data_copy_pad,
    emit_duplicate,
    emit_muls,
    emit_pipe_barrier,
    emit_set_atomic,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, OUT

CLEAR, LOAD, SCALE, STORE, SYNC, CAST = range(6)
SITES = {CLEAR: "CLEAR", LOAD: "LOAD", SCALE: "SCALE", STORE: "STORE", SYNC: "SYNC", CAST: "CAST"}
STEP_ROWS = 16
"""Rows of one load, product, store or piece of sums, with the queues around it."""


@jit
def window(p, oh, ow):
    """Return the input pixels under a window, (first row, end row, first column, end column), and its divisor."""
    top, left = oh * p.sh - p.ph, ow * p.sw - p.pw
    bottom, right = min(top + p.kh, p.h + p.ph), min(left + p.kw, p.w + p.pw)
    divisor = (bottom - top) * (right - left)
    h0, w0 = max(top, 0), max(left, 0)
    h1, w1 = max(min(bottom, p.h), h0), max(min(right, p.w), w0)
    if p.divisor != 0:
        divisor = p.divisor
    elif p.include_pad == 0:
        divisor = (h1 - h0) * (w1 - w0)
    return h0, h1, w0, w1, divisor


@jit
def factor_of(divisor):
    """Return 1 / divisor in float32, as the scalar unit computes it; 0 for a window without a divisor."""
    return np.float32(1.0) / np.float32(divisor) if divisor != 0 else np.float32(0.0)


@jit
def task_range(p, core):
    """Return the tasks [first, end) of a core: equal shares, the last core takes the rest."""
    share = p.tasks // p.cores
    first = core * share
    return first, p.tasks if core == p.cores - 1 else first + share


@jit
def _copy(rows, n, dst_space, dst, src_space, src, length, data, tensor, site, tile):
    """Copy ``length`` bytes with DataCopyPad, which the library's kernel has for whole blocks too."""
    return emit_data_copy_pad(
        rows, n, dst_space, dst, src_space, src, block_count=1, block_len=length, src_gap=0, dst_gap=0,
        left_padding=0, right_padding=0, mode=0, value_bits=0, dtype=data, tensor=tensor, site=site, tile=tile,
    )  # fmt: skip


@jit
def clear(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Store zeros from one UB buffer to the part of the sums of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `avg_pool3d_grad.AVG_POOL_PARAMS`[1], extents in elements, places in bytes.
    """
    p = params[0]
    first, last = core_share(p.h * p.w * p.lanes, p.cores, core)
    start, end = first * p.sum_item, last * p.sum_item
    if start == end:
        return

    blocks = ceil_div(min(p.clear_bytes, end - start), BLOCK)
    n = emit_duplicate(rows, 0, dst=0, dtype=Data.FP32, count=blocks * 8, value_bits=0, site=CLEAR, tile=-1)
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, 0, CLEAR, -1)

    # the zeros stay as they are, so all stores wait for them once
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, 0, CLEAR, -1)
    for at in range(start, end, p.clear_bytes):
        if n + STEP_ROWS > len(rows):
            yield n
            n = 0
        n = _copy(
            rows,
            n,
            Space.GM,
            p.sum + at,
            Space.UB,
            0,
            min(p.clear_bytes, end - at),
            p.sum_data,
            p.sum_tensor,
            CLEAR,
            -1,
        )
    yield n


class _Task(NamedTuple):
    """Some lanes of a gradient pixel: ``lanes`` from ``lane`` on, in the UB line that begins with element ``place``."""

    number: int
    pixel: int
    lane: int
    lanes: int
    place: int


@jit
def _task_of(p, number, line):
    """Return task ``number``, which goes through UB line ``line``."""
    pixel, piece = number // p.pieces, number % p.pieces
    return _Task(number, pixel, piece * p.count, p.tail if piece == p.pieces - 1 else p.count, line * p.pitch)


@jit
def _load(rows, n, p, t):
    """Load the lanes of a task."""
    source, length = p.src + (t.pixel * p.lanes + t.lane) * p.item, t.lanes * p.item
    target = t.place * p.item
    return _copy(rows, n, Space.UB, target, Space.GM, source, length, p.data, p.src_tensor, LOAD, t.number)


@jit
def _scale(rows, n, p, t):
    """Multiply the lanes of a task by the reciprocal divisor in float32."""
    _, _, _, _, divisor = window(p, t.pixel // p.ow, t.pixel % p.ow)
    bits = np.int64(np.float32(factor_of(divisor)).view(np.int32))
    source, calc, out = t.place * p.item, p.calc + t.place * 4, p.out + t.place * p.item
    if p.item == 4:
        return emit_muls(rows, n, calc, source, Data.FP32, t.lanes, value_bits=bits, site=SCALE, tile=t.number)
    n = emit_cast(
        rows, n, dst=calc, src=source, src_dtype=p.data, dst_dtype=Data.FP32, round_mode=RoundMode.NONE, count=t.lanes,
        site=SCALE, tile=t.number,
    )  # fmt: skip
    # each instruction reads what the one before writes
    n = emit_pipe_barrier(rows, n, Pipe.V, SCALE, t.number)
    n = emit_muls(rows, n, calc, calc, Data.FP32, t.lanes, value_bits=bits, site=SCALE, tile=t.number)
    if not p.overlap:
        n = emit_pipe_barrier(rows, n, Pipe.V, SCALE, t.number)
        n = emit_cast(
            rows, n, dst=out, src=calc, src_dtype=Data.FP32, dst_dtype=p.data, round_mode=RoundMode.RINT,
            count=t.lanes, site=SCALE, tile=t.number,
        )  # fmt: skip
    return n


@jit
def _store(rows, n, p, t, h, w):
    """Store the lanes of a task to one pixel under its window; where windows overlap the sums are float32."""
    source = p.out + t.place * p.item if p.item == 2 and not p.overlap else p.calc + t.place * 4
    target, length = p.sum + ((h * p.w + w) * p.lanes + t.lane) * p.sum_item, t.lanes * p.sum_item
    return _copy(rows, n, Space.GM, target, Space.UB, source, length, p.sum_data, p.sum_tensor, STORE, t.number)


@jit
def scatter(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Add the scaled lanes of the tasks of ``core`` to the sums; see `npu_sim.program.launch.Launch`.

    ``params``: `avg_pool3d_grad.AVG_POOL_PARAMS`[1], extents in elements, places in bytes.
    """
    p = params[0]
    start, end = task_range(p, core)
    if start == end:
        return
    n = open_queues(rows, 0, (IN, OUT), 1, SYNC)
    if p.overlap:
        n = emit_set_atomic(rows, n, Data.FP32, STORE, -1)
    for at in range(start, end, p.group):
        # the lines of a group are used anew when all of them have been read and stored
        n = alloc(rows, n, IN, 0, LOAD, at)
        n = alloc(rows, n, OUT, 0, SCALE, at)
        for line in range(min(p.group, end - at)):
            if n + STEP_ROWS > len(rows):
                yield n
                n = 0
            t = _task_of(p, at + line, line)
            n = _load(rows, n, p, t)
            n = enque(rows, n, IN, 0, LOAD, t.number)

            n = deque(rows, n, IN, 0, SCALE, t.number)
            n = _scale(rows, n, p, t)
            n = enque(rows, n, OUT, 0, SCALE, t.number)

            n = deque(rows, n, OUT, 0, STORE, t.number)
            h0, h1, w0, w1, _ = window(p, t.pixel // p.ow, t.pixel % p.ow)
            for h in range(h0, h1):
                for w in range(w0, w1):
                    if n + STEP_ROWS > len(rows):
                        yield n
                        n = 0
                    n = _store(rows, n, p, t, h, w)
            if p.deterministic:
                if n + STEP_ROWS > len(rows):
                    yield n
                    n = 0
                # sums that two tasks share are added in the order of the tasks
                n = emit_pipe_barrier(rows, n, Pipe.MTE3, STORE, t.number)
        if n + STEP_ROWS > len(rows):
            yield n
            n = 0
        n = free(rows, n, IN, 0, SCALE, at)
        n = free(rows, n, OUT, 0, STORE, at)
    if p.overlap:
        n = emit_set_atomic(rows, n, Data.NONE, STORE, -1)
    yield close_queues(rows, n, (IN, OUT), 1, SYNC)


@jit
def _round_piece(rows, n, p, at, count):
    """Round ``count`` sums from element ``at`` on to the tensors' type."""
    n = alloc(rows, n, IN, 0, CAST, at)
    n = _copy(rows, n, Space.UB, 0, Space.GM, p.sum + at * 4, count * 4, Data.FP32, p.sum_tensor, CAST, at)
    n = enque(rows, n, IN, 0, CAST, at)

    n = deque(rows, n, IN, 0, CAST, at)
    n = alloc(rows, n, OUT, 0, CAST, at)
    n = emit_cast(
        rows, n, dst=p.cast_out, src=0, src_dtype=Data.FP32, dst_dtype=p.data, round_mode=RoundMode.RINT, count=count,
        site=CAST, tile=at,
    )  # fmt: skip
    n = free(rows, n, IN, 0, CAST, at)
    n = enque(rows, n, OUT, 0, CAST, at)

    n = deque(rows, n, OUT, 0, CAST, at)
    gm, length = p.dst + at * p.item, count * p.item
    n = _copy(rows, n, Space.GM, gm, Space.UB, p.cast_out, length, p.data, p.dst_tensor, CAST, at)
    return free(rows, n, OUT, 0, CAST, at)


@jit
def round_sums(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Round the part of the sums of ``core`` in equal pieces; see `npu_sim.program.launch.Launch`.

    ``params``: `avg_pool3d_grad.AVG_POOL_PARAMS`[1], extents in elements, places in bytes.
    """
    p = params[0]
    start, end = core_share(p.h * p.w * p.lanes, p.cores, core)
    if start == end:
        return
    piece = ceil_div(end - start, ceil_div(end - start, p.cast_elems))
    n = open_queues(rows, 0, (IN, OUT), 1, SYNC)
    for at in range(start, end, piece):
        if n + STEP_ROWS > len(rows):
            yield n
            n = 0
        n = _round_piece(rows, n, p, at, min(piece, end - at))
    yield close_queues(rows, n, (IN, OUT), 1, SYNC)
