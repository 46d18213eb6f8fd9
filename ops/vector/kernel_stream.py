"""Kernel of element-wise operators on one tensor or two of the same shape: tiles of consecutive elements through UB.

Types that the vector unit does not compute with go through float32: each tile is widened, computed and rounded once.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_abs,
    emit_add,
    emit_adds,
    emit_cast,
    emit_div,
    emit_duplicate,
    emit_max,
    emit_min,
    emit_mul,
    emit_muls,
    emit_pipe_barrier,
    emit_relu,
    emit_sqrt,
    emit_sub,
)
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, OUT, load_bytes, store_bytes

LOAD, COMPUTE, STORE, SYNC = range(4)
SITES = {LOAD: "LOAD", COMPUTE: "COMPUTE", STORE: "STORE", SYNC: "SYNC"}
STEP_ROWS = 24
"""Rows of a tile, and of closing the queues behind the last one."""

ABS, ADD, ADDS, DIV, MAX, MIN, MUL, MULS, RELU, RELU_BY_MAX, SQRT, SUB = range(12)
"""What is computed of each element, or of two; Relu of types that only Max has, with zeros."""


@jit
def _compute(rows, n, p, dst, src0, src1, count, tile):
    """Compute ``count`` elements in the type that is computed with."""
    o, d = p.operation, p.work
    if o == ABS:
        n = emit_abs(rows, n, dst=dst, src=src0, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == RELU:
        n = emit_relu(rows, n, dst=dst, src=src0, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == SQRT:
        n = emit_sqrt(rows, n, dst=dst, src=src0, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == ADDS:
        n = emit_adds(
            rows, n, dst=dst, src=src0, dtype=d, count=count, value_bits=p.value_bits, site=COMPUTE, tile=tile
        )  # fmt: skip
    elif o == MULS:
        n = emit_muls(
            rows, n, dst=dst, src=src0, dtype=d, count=count, value_bits=p.value_bits, site=COMPUTE, tile=tile
        )  # fmt: skip
    elif o == ADD:
        n = emit_add(rows, n, dst=dst, src0=src0, src1=src1, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == SUB:
        n = emit_sub(rows, n, dst=dst, src0=src0, src1=src1, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == MUL:
        n = emit_mul(rows, n, dst=dst, src0=src0, src1=src1, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == DIV:
        n = emit_div(rows, n, dst=dst, src0=src0, src1=src1, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == RELU_BY_MAX:
        n = emit_max(rows, n, dst=dst, src0=src0, src1=p.wide, dtype=d, count=count, site=COMPUTE, tile=tile)
    elif o == MAX:
        n = emit_max(rows, n, dst=dst, src0=src0, src1=src1, dtype=d, count=count, site=COMPUTE, tile=tile)
    else:
        n = emit_min(rows, n, dst=dst, src0=src0, src1=src1, dtype=d, count=count, site=COMPUTE, tile=tile)
    return n


@jit
def _through_fp32(rows, n, p, target, source0, source1, half, count, tile):
    """Widen the operands, compute in float32, and round the result."""
    wide0 = p.wide + half * p.tile * 4 * (1 + p.has_second)
    wide1 = wide0 + p.tile * 4
    n = emit_cast(
        rows, n, dst=wide0, src=source0, src_dtype=p.data, dst_dtype=Data.FP32, round_mode=p.widen_mode, count=count,
        site=COMPUTE, tile=tile,
    )  # fmt: skip
    if p.has_second:
        n = emit_cast(
            rows, n, dst=wide1, src=source1, src_dtype=p.data, dst_dtype=Data.FP32, round_mode=p.widen_mode,
            count=count, site=COMPUTE, tile=tile,
        )  # fmt: skip
    n = emit_pipe_barrier(rows, n, Pipe.V, COMPUTE, tile)
    n = _compute(rows, n, p, wide0, wide0, wide1, count, tile)
    n = emit_pipe_barrier(rows, n, Pipe.V, COMPUTE, tile)
    return emit_cast(
        rows, n, dst=target, src=wide0, src_dtype=Data.FP32, dst_dtype=p.data, round_mode=p.round_mode, count=count,
        site=COMPUTE, tile=tile,
    )  # fmt: skip


@jit
def _tile(rows, n, p, at, count, tile):
    """Compute ``count`` elements from element ``at`` on."""
    half = tile & 1
    # on cores without byte copies whole blocks of results; what lies behind the last element is only carried along
    lanes = count if p.pads else ceil_div(count, BLOCK // p.item) * (BLOCK // p.item)
    length, gm = lanes * p.item, at * p.item
    source0 = half * p.tile * p.item
    source1 = p.second + half * p.tile * p.item
    target = p.target + half * p.tile * p.item

    n = alloc(rows, n, IN, half, LOAD, tile)
    n = load_bytes(rows, n, p.pads, source0, p.src0 + gm, length, p.data, p.src0_tensor, LOAD, tile)
    if p.has_second:
        n = load_bytes(rows, n, p.pads, source1, p.src1 + gm, length, p.data, p.src1_tensor, LOAD, tile)
    n = enque(rows, n, IN, half, LOAD, tile)

    n = deque(rows, n, IN, half, COMPUTE, tile)
    n = alloc(rows, n, OUT, half, COMPUTE, tile)
    if p.through_fp32:
        n = _through_fp32(rows, n, p, target, source0, source1, half, lanes, tile)
    else:
        n = _compute(rows, n, p, target, source0, source1, lanes, tile)
    n = free(rows, n, IN, half, COMPUTE, tile)
    n = enque(rows, n, OUT, half, COMPUTE, tile)

    n = deque(rows, n, OUT, half, STORE, tile)
    n = store_bytes(rows, n, p.pads, p.dst + gm, target, length, p.data, p.dst_tensor, STORE, tile)
    return free(rows, n, OUT, half, STORE, tile)


@jit
def stream(rows, params, core, phase):
    """Compute the range of ``core``, tile by tile; see `npu_sim.program.launch.Launch`.

    ``params``: `stream.STREAM_PARAMS`[1].
    """
    p = params[0]
    first, last = core_share(ceil_div(p.count, p.unit), p.cores, core)
    start, end = first * p.unit, min(last * p.unit, p.count)
    if start >= end:
        return
    n = open_queues(rows, 0, (IN, OUT), 2, SYNC)
    if p.operation == RELU_BY_MAX:
        n = emit_duplicate(rows, n, dst=p.wide, dtype=p.work, count=p.tile, value_bits=0, site=COMPUTE, tile=-1)
        n = emit_pipe_barrier(rows, n, Pipe.V, COMPUTE, -1)
    for tile, at in enumerate(range(start, end, p.tile)):
        if n + STEP_ROWS > len(rows):
            yield n
            n = 0
        n = _tile(rows, n, p, at, min(p.tile, end - at), tile)
    yield close_queues(rows, n, (IN, OUT), 2, SYNC)
