"""Kernel of AvgPool3D: the pixels under a window are added up in float32, one after the other, and scaled.

Tensors are [pixel][lane]. A task is one pixel of the result and one piece of its lanes. Rows of the window come in
pieces of a few pixels through two halves of UB; sums and results have two halves as well, so that loads, sums and
stores of neighbouring tasks overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.emit import emit_add, emit_cast, emit_duplicate, emit_muls, emit_pipe_barrier
from npu_sim.isa.op import Data, Pipe
from ops.avg_pool.kernel_avg_pool3d_grad import factor_of, window
from ops.common.kernel_parts import core_share
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, OUT, load_rows, store_bytes

LOAD, SUM, SCALE, STORE, SYNC = range(5)
SITES = {LOAD: "LOAD", SUM: "SUM", SCALE: "SCALE", STORE: "STORE", SYNC: "SYNC"}


@jit
def _add_pixels(rows, n, p, source, total, count, lanes, tile):
    """Add ``count`` pixels in UB to the sums."""
    for i in range(count):
        term = source + i * p.pitch * p.item
        if p.item == 2:
            n = emit_cast(
                rows, n, dst=p.wide, src=term, src_dtype=p.data, dst_dtype=Data.FP32, round_mode=RoundMode.NONE,
                count=lanes, site=SUM, tile=tile,
            )  # fmt: skip
            n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
            term = p.wide
        n = emit_add(rows, n, dst=total, src0=total, src1=term, dtype=Data.FP32, count=lanes, site=SUM, tile=tile)
        # the next instruction reads or overwrites what this one touches
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
    return n


@jit
def _finish(rows, n, p, total, divisor, lanes, half, tile):
    """Scale the sums by the reciprocal divisor, round them, and hand them to the store."""
    bits = np.int64(np.float32(factor_of(divisor)).view(np.int32))
    n = emit_muls(rows, n, total, total, Data.FP32, lanes, value_bits=bits, site=SCALE, tile=tile)
    if p.item == 2:
        n = emit_pipe_barrier(rows, n, Pipe.V, SCALE, tile)
        n = emit_cast(
            rows, n, dst=p.out + half * p.out_half, src=total, src_dtype=Data.FP32, dst_dtype=p.data,
            round_mode=RoundMode.RINT, count=lanes, site=SCALE, tile=tile,
        )  # fmt: skip
    return enque(rows, n, OUT, half, SCALE, tile)


@jit
def average(rows: Any, params: Any, core: int, phase: int) -> Iterator[int]:
    """Compute the tasks of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `avg_pool3d.AVG_POOL3D_PARAMS`[1], extents in elements, places in bytes.
    """
    p = params[0]
    first, end = core_share(p.tasks, p.cores, core)
    if first == end:
        return
    n = open_queues(rows, 0, (IN, OUT), 2, SYNC)
    half_in = 0
    for tile in range(first, end):
        half, pixel, piece = tile & 1, tile // p.pieces, tile % p.pieces
        lane = piece * p.count
        lanes = p.tail if piece == p.pieces - 1 else p.count
        h0, h1, w0, w1, divisor = window(p, pixel // p.ow, pixel % p.ow)
        total = p.sums + half * p.sums_half
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        # a half of OUT is sums and result: float32 is stored from where it was added up
        n = alloc(rows, n, OUT, half, SUM, tile)
        n = emit_duplicate(rows, n, dst=total, dtype=Data.FP32, count=lanes, value_bits=0, site=SUM, tile=tile)
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, tile)
        for h in range(h0, h1):
            for w in range(w0, w1, p.pixels):
                if n + p.step_rows > len(rows):
                    yield n
                    n = 0
                count, source = min(p.pixels, w1 - w), half_in * p.in_half
                gm = p.src + ((h * p.w + w) * p.lanes + lane) * p.item
                n = alloc(rows, n, IN, half_in, LOAD, tile)
                n = load_rows(
                    rows, n, ub=source, gm=gm, count=count, length=lanes * p.item, ub_step=p.pitch * p.item,
                    gm_step=p.lanes * p.item, exact=1, dtype=p.data, tensor=p.src_tensor, site=LOAD, tile=tile,
                )  # fmt: skip
                n = enque(rows, n, IN, half_in, LOAD, tile)
                n = deque(rows, n, IN, half_in, SUM, tile)
                n = _add_pixels(rows, n, p, source, total, count, lanes, tile)
                n = free(rows, n, IN, half_in, SUM, tile)
                half_in = 1 - half_in
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        n = _finish(rows, n, p, total, divisor, lanes, half, tile)
        n = deque(rows, n, OUT, half, STORE, tile)
        made = total if p.item == 4 else p.out + half * p.out_half
        target = p.dst + (pixel * p.lanes + lane) * p.item
        n = store_bytes(rows, n, 1, target, made, lanes * p.item, p.data, p.dst_tensor, STORE, tile)
        n = free(rows, n, OUT, half, STORE, tile)
    yield close_queues(rows, n, (IN, OUT), 2, SYNC)
