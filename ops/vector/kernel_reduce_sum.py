"""Kernel of ReduceSum over axes 0 and 2 of [n][c][r].

A core owns units of up to 32 bytes of output channels. Per group of channels (a whole unit, or one channel where UB is
too short): accumulators of ``width`` float32 lanes, to which the tiles of all n are added in order, then halved to 64;
per unit one ReduceRepeat over the 64 lanes of every channel, one rounding, one store.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.emit import (
    emit_add,
    emit_cast,
    emit_data_copy_pad,
    emit_duplicate,
    emit_pipe_barrier,
    emit_reduce_repeat,
)
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, OUT, load_bytes, store_bytes

LOAD, SUM, FOLD, STORE, SYNC = range(5)
SITES = {LOAD: "LOAD", SUM: "SUM", FOLD: "FOLD", STORE: "STORE", SYNC: "SYNC"}
STEP_ROWS = 160
"""Rows of a tile and of clearing the accumulators before it, or of the end of a group, of its unit and of the core."""
LANES = 64
"""Lanes that one repeat of ReduceRepeat adds up."""


@jit
def _load(rows, n, p, channel, channels, tile, half):
    """Load tile ``tile`` (batch item and piece of the row) of some channels, one row of ``width`` elements each."""
    batch, piece = tile // p.tiles, tile % p.tiles
    length = min(p.width, p.r - piece * p.width) * p.item
    pitch, stride = p.width * p.item, p.r * p.item
    source = p.src + ((batch * p.c + channel) * p.r + piece * p.width) * p.item
    target = p.input + half * p.input_half

    n = alloc(rows, n, IN, half, LOAD, channel)
    if p.pads:
        several = channels > 1
        n = emit_data_copy_pad(
            rows, n, Space.UB, target, Space.GM, source, block_count=channels, block_len=length,
            src_gap=stride - length if several else 0, dst_gap=(pitch - length) // BLOCK if several else 0,
            left_padding=0, right_padding=0, mode=0, value_bits=0, dtype=p.data, tensor=p.src_tensor, site=LOAD,
            tile=channel,
        )  # fmt: skip
    else:
        for i in range(channels):
            at = target + i * pitch
            n = load_bytes(rows, n, 0, at, source + i * stride, length, p.data, p.src_tensor, LOAD, channel)
    return enque(rows, n, IN, half, LOAD, channel)


@jit
def _add(rows, n, p, channel, channels, tile, half):
    """Add a tile that was loaded to the accumulators of its group."""
    length = min(p.width, p.r - tile % p.tiles * p.width)
    # full rows lie side by side, so one instruction takes them all
    runs, count = (1, channels * length) if length == p.width else (channels, length)
    source = p.input + half * p.input_half
    addend = source if p.item == 4 else p.wide

    n = deque(rows, n, IN, half, SUM, channel)
    if p.item != 4:
        for i in range(runs):
            n = emit_cast(
                rows, n, dst=addend + i * p.width * 4, src=source + i * p.width * p.item, src_dtype=p.data,
                dst_dtype=Data.FP32, round_mode=RoundMode.NONE, count=count, site=SUM, tile=channel,
            )  # fmt: skip
        n = free(rows, n, IN, half, SUM, channel)
        # the additions read what the conversion writes
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, channel)
    for i in range(runs):
        acc = i * p.width * 4
        n = emit_add(
            rows, n, dst=acc, src0=acc, src1=addend + acc, dtype=Data.FP32, count=count, site=SUM, tile=channel
        )
    if p.item == 4:
        n = free(rows, n, IN, half, SUM, channel)
    # the next tile is added to these sums, and converted into the same lanes
    return emit_pipe_barrier(rows, n, Pipe.V, SUM, channel)


@jit
def _fold(rows, n, p, channel, channels, place):
    """Halve the accumulators of a group to 64 lanes; the last step moves them to their ``place`` in the unit."""
    width = p.width
    while width > LANES:
        width //= 2
        for i in range(channels):
            acc = i * p.width * 4
            target = acc if width > LANES else p.fold + (place + i) * LANES * 4
            n = emit_add(
                rows, n, dst=target, src0=acc, src1=acc + width * 4, dtype=Data.FP32, count=width, site=FOLD,
                tile=channel,
            )  # fmt: skip
        n = emit_pipe_barrier(rows, n, Pipe.V, FOLD, channel)
    return n


@jit
def _finish_unit(rows, n, p, channel, channels, half):
    """Add up the 64 lanes of each channel of a unit, round and store."""
    sums, out, lanes = p.sums + half * ceil_div(p.unit * 4, BLOCK) * BLOCK, p.out + half * BLOCK, channels

    n = alloc(rows, n, OUT, half, FOLD, channel)
    if not p.pads and channels < p.unit:
        # the store takes a whole block
        lanes = p.unit
        n = emit_duplicate(rows, n, sums, Data.FP32, lanes, value_bits=0, site=FOLD, tile=channel)
        n = emit_pipe_barrier(rows, n, Pipe.V, FOLD, channel)
    n = emit_reduce_repeat(
        rows, n, dst=sums, src=p.fold, dtype=Data.FP32, mask=LANES, repeat=channels, dst_rep_stride=1,
        src_blk_stride=1, src_rep_stride=8, site=FOLD, tile=channel,
    )  # fmt: skip
    n = emit_pipe_barrier(rows, n, Pipe.V, FOLD, channel)
    if p.item != 4:
        n = emit_cast(
            rows, n, dst=out, src=sums, src_dtype=Data.FP32, dst_dtype=p.data, round_mode=p.round_mode, count=lanes,
            site=FOLD, tile=channel,
        )  # fmt: skip
    else:
        out = sums
    n = enque(rows, n, OUT, half, FOLD, channel)

    n = deque(rows, n, OUT, half, STORE, channel)
    gm, length = p.dst + channel * p.item, channels * p.item
    n = store_bytes(rows, n, p.pads, gm, out, length, p.data, p.dst_tensor, STORE, channel)
    return free(rows, n, OUT, half, STORE, channel)


@jit
def reduce_sum(rows, params, core, phase):
    """Sum the channels of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `reduce_sum.REDUCE_SUM_PARAMS`[1], extents in elements, places in bytes.
    """
    p = params[0]
    start, end = core_share(ceil_div(p.c, p.unit), p.cores, core)
    if start == end:
        return
    n = open_queues(rows, 0, (IN, OUT), 2, SYNC)
    half = 0
    for unit in range(start, end):
        first = unit * p.unit
        unit_channels = min(p.unit, p.c - first)
        for place in range(0, unit_channels, p.group):
            channel, channels = first + place, min(p.group, unit_channels - place)
            n = emit_duplicate(rows, n, 0, Data.FP32, channels * p.width, value_bits=0, site=SUM, tile=channel)
            n = emit_pipe_barrier(rows, n, Pipe.V, SUM, channel)
            for tile in range(p.n * p.tiles):
                if n + STEP_ROWS > len(rows):
                    yield n
                    n = 0
                n = _load(rows, n, p, channel, channels, tile, half)
                n = _add(rows, n, p, channel, channels, tile, half)
                half = 1 - half
            if n + STEP_ROWS > len(rows):
                yield n
                n = 0
            n = _fold(rows, n, p, channel, channels, place)
        n = _finish_unit(rows, n, p, first, unit_channels, (unit - start) & 1)
    yield close_queues(rows, n, (IN, OUT), 2, SYNC)
