"""Kernel of ReduceSum over the first axis of [n][c]: the sums of channels that have one value per batch item.

Lanes are channels: a core owns a range of them and adds the rows of all n in ascending order, which gives every channel
the additions of the definition, and none of zeros that `kernel_reduce_sum` would fold.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.emit import emit_add, emit_cast, emit_duplicate, emit_pipe_barrier
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, OUT, load_rows, store_bytes

LOAD, SUM, STORE, SYNC = range(4)
SITES = {LOAD: "LOAD", SUM: "SUM", STORE: "STORE", SYNC: "SYNC"}
MOST_ROWS = 16
"""Rows that are loaded at a time."""
STEP_ROWS = 32 + 5 * MOST_ROWS
"""Rows of a load and its additions, or of the end of a piece and of the core."""


@jit
def _add_rows(rows, n, p, first, lanes, batch, half):
    """Load some rows and add them, one after the other."""
    count, pitch = min(p.batch, p.n - batch), p.piece * p.item
    source = p.input + half * p.input_half
    # on cores without byte copies whole blocks: what lies behind the last channel is only carried along
    n = alloc(rows, n, IN, half, LOAD, first)
    n = load_rows(
        rows, n, ub=source, gm=p.src + (batch * p.c + first) * p.item, count=count, length=lanes * p.item,
        ub_step=pitch, gm_step=p.c * p.item, exact=p.pads, dtype=p.data, tensor=p.src_tensor, site=LOAD, tile=first,
    )  # fmt: skip
    n = enque(rows, n, IN, half, LOAD, first)

    n = deque(rows, n, IN, half, SUM, first)
    for i in range(count):
        addend = source + i * pitch
        if p.item != 4:
            n = emit_cast(
                rows, n, dst=p.wide, src=addend, src_dtype=p.data, dst_dtype=Data.FP32, round_mode=RoundMode.NONE,
                count=lanes, site=SUM, tile=first,
            )  # fmt: skip
            n = emit_pipe_barrier(rows, n, Pipe.V, SUM, first)
            addend = p.wide
        n = emit_add(rows, n, dst=0, src0=0, src1=addend, dtype=Data.FP32, count=lanes, site=SUM, tile=first)
        # the next row is added to these sums, and converted into the same lanes
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, first)
    return free(rows, n, IN, half, SUM, first)


@jit
def _store_sums(rows, n, p, first, width, lanes):
    """Round and store the sums of a piece."""
    n = alloc(rows, n, OUT, 0, SUM, first)
    if p.item != 4:
        n = emit_cast(
            rows, n, dst=p.out, src=0, src_dtype=Data.FP32, dst_dtype=p.data, round_mode=p.round_mode, count=lanes,
            site=SUM, tile=first,
        )  # fmt: skip
    else:
        # the accumulators are cleared for the next piece while these are stored
        n = emit_duplicate(rows, n, p.out, Data.FP32, lanes, value_bits=0, site=SUM, tile=first)
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, first)
        n = emit_add(rows, n, dst=p.out, src0=0, src1=p.out, dtype=Data.FP32, count=lanes, site=SUM, tile=first)
    n = emit_pipe_barrier(rows, n, Pipe.V, SUM, first)
    n = enque(rows, n, OUT, 0, SUM, first)

    n = deque(rows, n, OUT, 0, STORE, first)
    n = store_bytes(rows, n, p.pads, p.dst + first * p.item, p.out, width * p.item, p.data, p.dst_tensor, STORE, first)
    return free(rows, n, OUT, 0, STORE, first)


@jit
def reduce_rows(rows, params, core, phase):
    """Sum the channels of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `reduce_sum.REDUCE_ROWS_PARAMS`[1], extents in elements, places in bytes; the sums are at 0.
    """
    p = params[0]
    start, end = core * p.share, min((core + 1) * p.share, p.c)
    if start >= end:
        return
    block = BLOCK // p.item
    n = open_queues(rows, 0, (IN,), 2, SYNC)
    n = open_queues(rows, n, (OUT,), 1, SYNC)
    half = 0
    for first in range(start, end, p.piece):
        width = min(p.piece, end - first)
        lanes = width if p.pads else ceil_div(width, block) * block
        n = emit_duplicate(rows, n, 0, Data.FP32, lanes, value_bits=0, site=SUM, tile=first)
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, first)
        for batch in range(0, p.n, p.batch):
            if n + STEP_ROWS > len(rows):
                yield n
                n = 0
            n = _add_rows(rows, n, p, first, lanes, batch, half)
            half = 1 - half
        if n + STEP_ROWS > len(rows):
            yield n
            n = 0
        n = _store_sums(rows, n, p, first, width, lanes)
    n = close_queues(rows, n, (IN,), 2, SYNC)
    yield close_queues(rows, n, (OUT,), 1, SYNC)
