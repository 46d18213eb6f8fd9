"""Kernel of Cast: tiles of consecutive elements through UB, double-buffered, one or two conversions each.

Cores take ranges of a multiple of 128 elements and tiles are multiples of 256: only a core's last tile is shorter, and
only the last one of the tensor ragged.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_cast, emit_pipe_barrier
from npu_sim.isa.op import Data, Pipe
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, OUT, load_bytes, store_bytes

LOAD, CONVERT, STORE, SYNC = range(4)
SITES = {LOAD: "LOAD", CONVERT: "CONVERT", STORE: "STORE", SYNC: "SYNC"}
STEP_ROWS = 20
"""Rows of a tile, and of closing the queues behind the last one."""


@jit
def _tile(rows, n, p, at, count, tile):
    """Convert ``count`` elements from element ``at`` on."""
    half = tile & 1
    # on cores without byte copies whole blocks of results; what lies behind the last element is only carried along
    lanes = count if p.pads else ceil_div(count, BLOCK // p.dst_item) * (BLOCK // p.dst_item)
    source = half * p.tile * p.src_item
    middle = p.middle + half * p.tile * 4
    target = p.target + half * p.tile * p.dst_item

    n = alloc(rows, n, IN, half, LOAD, tile)
    gm, length = p.src + at * p.src_item, lanes * p.src_item
    n = load_bytes(rows, n, p.pads, source, gm, length, p.src_data, p.src_tensor, LOAD, tile)
    n = enque(rows, n, IN, half, LOAD, tile)

    n = deque(rows, n, IN, half, CONVERT, tile)
    n = alloc(rows, n, OUT, half, CONVERT, tile)
    if p.through_fp32:
        n = emit_cast(
            rows, n, dst=middle, src=source, src_dtype=p.src_data, dst_dtype=Data.FP32, round_mode=p.widen_mode,
            count=lanes, site=CONVERT, tile=tile,
        )  # fmt: skip
        # the second conversion reads what the first one writes
        n = emit_pipe_barrier(rows, n, Pipe.V, CONVERT, tile)
        n = emit_cast(
            rows, n, dst=target, src=middle, src_dtype=Data.FP32, dst_dtype=p.dst_data, round_mode=p.round_mode,
            count=lanes, site=CONVERT, tile=tile,
        )  # fmt: skip
    else:
        n = emit_cast(
            rows, n, dst=target, src=source, src_dtype=p.src_data, dst_dtype=p.dst_data, round_mode=p.round_mode,
            count=lanes, site=CONVERT, tile=tile,
        )  # fmt: skip
    n = free(rows, n, IN, half, CONVERT, tile)
    n = enque(rows, n, OUT, half, CONVERT, tile)

    n = deque(rows, n, OUT, half, STORE, tile)
    gm, length = p.dst + at * p.dst_item, lanes * p.dst_item
    n = store_bytes(rows, n, p.pads, gm, target, length, p.dst_data, p.dst_tensor, STORE, tile)
    return free(rows, n, OUT, half, STORE, tile)


@jit
def cast(rows, params, core, phase):
    """Convert the range of ``core``, tile by tile; see `npu_sim.program.launch.Launch`.

    ``params``: `cast.CAST_PARAMS`[1].
    """
    p = params[0]
    first, last = core_share(ceil_div(p.count, p.unit), p.cores, core)
    start, end = first * p.unit, min(last * p.unit, p.count)
    if start >= end:
        return
    n = open_queues(rows, 0, (IN, OUT), 2, SYNC)
    for tile, at in enumerate(range(start, end, p.tile)):
        if n + STEP_ROWS > len(rows):
            yield n
            n = 0
        n = _tile(rows, n, p, at, min(p.tile, end - at), tile)
    yield close_queues(rows, n, (IN, OUT), 2, SYNC)
