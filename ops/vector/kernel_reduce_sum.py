"""Emitter of ReduceSum over axes 0 and 2 of [n][c][r].

A core owns units of 32 bytes of output channels. Per group of channels (a whole unit, or one channel where UB is too
short): accumulators of ``width`` float32 lanes, to which the tiles of all n are added in order, then halved to 64; per
unit one ReduceRepeat over the 64 lanes of every channel, one rounding, one store.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.emit import (
    emit_add,
    emit_cast,
    emit_data_copy,
    emit_data_copy_pad,
    emit_duplicate,
    emit_pipe_barrier,
    emit_reduce_repeat,
    emit_set_flag,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Pipe, Space
from ops.common.kernel_parts import BLOCK, core_share
from ops.vector.kernel_frame import prime_halves, store_bytes

LOAD, SUM, FOLD, STORE, SYNC = range(5)
SITES = {LOAD: "LOAD", SUM: "SUM", FOLD: "FOLD", STORE: "STORE", SYNC: "SYNC"}
STAGE, UNIT, END, CHANNEL, TILE, FLIP, UNITS_DONE = range(2, 9)
START, BEGIN_GROUP, TILES, END_GROUP, END_UNIT, DONE = range(6)
STEP_ROWS = 160
LANES = 64
"""Lanes that one repeat of ReduceRepeat adds up."""


@jit
def _load(rows, n, p, channel, channels, tile, target):
    """Load tile ``tile`` (batch item and piece of the row) of some channels, one row of ``width`` elements each."""
    batch, piece = tile // p["tiles"], tile % p["tiles"]
    item = p["item"]
    length = min(p["width"], p["r"] - piece * p["width"]) * item
    pitch, stride = p["width"] * item, p["r"] * item
    source = p["src"] + ((batch * p["c"] + channel) * p["r"] + piece * p["width"]) * item
    blocks = np.int64((length + BLOCK - 1) // BLOCK)
    if p["pads"]:
        gap = np.int64(pitch // BLOCK - blocks)
        return emit_data_copy_pad(
            rows,
            n,
            Space.UB,
            target,
            Space.GM,
            source,
            channels,
            length,
            stride - length if channels > 1 else 0,
            gap if channels > 1 else 0,
            0,
            0,
            0,
            0,
            p["data"],
            p["src_tensor"],
            LOAD,
            channel,
        )
    for i in range(channels):
        n = emit_data_copy(
            rows,
            n,
            Space.UB,
            target + i * pitch,
            Space.GM,
            source + i * stride,
            1,
            blocks,
            0,
            0,
            p["data"],
            p["src_tensor"],
            LOAD,
            channel,
        )
    return n


@jit
def _tile(rows, n, p, channel, channels, tile, half):
    """Load one tile of a group and add it to the accumulators."""
    piece = tile % p["tiles"]
    length = np.int64(min(p["width"], p["r"] - piece * p["width"]))
    source = p["input"] + half * p["input_half"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, LOAD, channel)
    n = _load(rows, n, p, channel, channels, tile, source)
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.V, half, LOAD, channel)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.V, half, SUM, channel)
    # full rows lie side by side, so one instruction takes them all
    runs, count = channels, length
    if length == p["width"]:
        runs, count = np.int64(1), np.int64(channels * length)
    addend = source
    if p["item"] != 4:
        addend = p["wide"]
        for i in range(runs):
            n = emit_cast(
                rows,
                n,
                addend + i * p["width"] * 4,
                source + i * p["width"] * p["item"],
                p["data"],
                Data.FP32,
                RoundMode.NONE,
                count,
                SUM,
                channel,
            )
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, half, SUM, channel)
        n = emit_pipe_barrier(rows, n, Pipe.V, SUM, channel)
    for i in range(runs):
        acc = i * p["width"] * 4
        n = emit_add(rows, n, acc, acc, addend + i * p["width"] * 4, Data.FP32, count, SUM, channel)
    if p["item"] == 4:
        n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE2, half, SUM, channel)
    return emit_pipe_barrier(rows, n, Pipe.V, SUM, channel)


@jit
def _fold(rows, n, p, channel, channels, place):
    """Halve the accumulators of a group to 64 lanes; the last step moves them to their ``place`` in the unit."""
    width = p["width"]
    while width > LANES:
        width //= 2
        for i in range(channels):
            acc = i * p["width"] * 4
            target = acc if width > LANES else p["fold"] + (place + i) * LANES * 4
            n = emit_add(rows, n, target, acc, acc + width * 4, Data.FP32, width, FOLD, channel)
        n = emit_pipe_barrier(rows, n, Pipe.V, FOLD, channel)
    return n


@jit
def _finish_unit(rows, n, p, channel, channels, half):
    """Add up the 64 lanes of each channel of a unit, round and store."""
    sums, out = p["sums"] + half * p["unit"] * 4, p["out"] + half * BLOCK
    lanes = np.int64(channels)
    n = emit_wait_flag(rows, n, Pipe.MTE3, Pipe.V, half, FOLD, channel)
    if not p["pads"] and channels < p["unit"]:
        # the store takes a whole block
        lanes = np.int64(p["unit"])
        n = emit_duplicate(rows, n, sums, Data.FP32, lanes, 0, FOLD, channel)
        n = emit_pipe_barrier(rows, n, Pipe.V, FOLD, channel)
    n = emit_reduce_repeat(rows, n, sums, p["fold"], Data.FP32, LANES, channels, 1, 1, 8, FOLD, channel)
    n = emit_pipe_barrier(rows, n, Pipe.V, FOLD, channel)
    if p["item"] != 4:
        n = emit_cast(rows, n, out, sums, Data.FP32, p["data"], p["round_mode"], lanes, FOLD, channel)
    else:
        out = sums
    n = emit_set_flag(rows, n, Pipe.V, Pipe.MTE3, half, FOLD, channel)
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE3, half, STORE, channel)
    n = store_bytes(
        rows,
        n,
        p["pads"],
        p["dst"] + channel * p["item"],
        out,
        channels * p["item"],
        p["data"],
        p["dst_tensor"],
        STORE,
        channel,
    )
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, channel)


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]``.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `reduce_sum.REDUCE_SUM_PARAMS`[1]
        Extents and places.
    state : int64[STATE_LENGTH]
        2 stage, 3 unit, 4 last unit + 1, 5 first channel of the group in its unit, 6 tile of the group, 7 tiles loaded,
        8 units stored.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        units = (p["c"] + p["unit"] - 1) // p["unit"]
        s[UNIT], s[END] = core_share(units, p["cores"], s[0])
        s[STAGE] = BEGIN_GROUP if s[UNIT] < s[END] else DONE
        if s[STAGE] != DONE:
            n = prime_halves(rows, n, 0, SYNC)
    while s[STAGE] != DONE and n + STEP_ROWS <= len(rows):
        unit_channels = np.int64(min(p["unit"], p["c"] - s[UNIT] * p["unit"]))
        channel = np.int64(s[UNIT] * p["unit"] + s[CHANNEL])
        channels = np.int64(min(p["group"], unit_channels - s[CHANNEL]))
        if s[UNIT] == s[END]:
            n = prime_halves(rows, n, 1, SYNC)
            s[STAGE] = DONE
        elif s[STAGE] == BEGIN_GROUP:
            n = emit_duplicate(rows, n, 0, Data.FP32, channels * p["width"], 0, SUM, channel)
            n = emit_pipe_barrier(rows, n, Pipe.V, SUM, channel)
            s[TILE] = 0
            s[STAGE] = TILES
        elif s[STAGE] == TILES and s[TILE] < p["n"] * p["tiles"]:
            n = _tile(rows, n, p, channel, channels, s[TILE], s[FLIP] & 1)
            s[TILE] += 1
            s[FLIP] += 1
        elif s[STAGE] == TILES:
            n = _fold(rows, n, p, channel, channels, s[CHANNEL])
            s[CHANNEL] += channels
            s[STAGE] = BEGIN_GROUP if s[CHANNEL] < unit_channels else END_UNIT
        else:
            n = _finish_unit(rows, n, p, s[UNIT] * p["unit"], unit_channels, s[UNITS_DONE] & 1)
            s[UNIT] += 1
            s[UNITS_DONE] += 1
            s[CHANNEL] = 0
            s[STAGE] = BEGIN_GROUP
    return n
