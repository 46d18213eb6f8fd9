"""Jitted pieces of TransData for weights: where elements lie in lines and element blocks, and the two passes.

The state words of the emitters in `kernel_trans_data_weight` are named here: the task (merged group, first row) and its
chunk (small groups, channels of the merged group, taps).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_trans_data_to_5hd,
    set_dst_address,
    set_dst_addresses,
    set_src_address,
    set_src_addresses,
)
from npu_sim.isa.op import Data
from ops.common.kernel_parts import ceil_div
from ops.vector.kernel_frame import load_rows, store_rows

PROLOGUE, CLEAR, LOAD, LINES, GATHER, STORE, TAIL, EPILOGUE = range(8)
SITES = {
    PROLOGUE: "PROLOGUE", CLEAR: "CLEAR", LOAD: "LOAD", LINES: "LINES", GATHER: "GATHER", STORE: "STORE", TAIL: "TAIL",
    EPILOGUE: "EPILOGUE",
}  # fmt: skip
STAGE, TASK, TASK_END, RANGE_END, HALF, GROUP, ROW0 = 2, 3, 4, 5, 6, 7, 8
MEMBER0, MEMBER_END, CHANNEL0, CHANNEL_END, TAP0, TAP_END, PITCH, LINE = 9, 10, 11, 12, 13, 14, 15, 16
DEPTH, C1, TAP, STEP, STEP_COUNT = 17, 18, 19, 20, 21
MISSING = -1


@jit
def _first_member(p, s):
    """Return the first small group that has a window in the chunk."""
    return max(s[MEMBER0], s[CHANNEL0] // p["cin_g"])


@jit
def _last_member(p, s):
    """Return the last small group that has a window in the chunk."""
    return min(s[MEMBER_END], ceil_div(s[CHANNEL_END], p["cin_g"])) - 1


@jit
def _window(p, s, member):
    """Return first and end channel of the window of small group ``member``, and its position in a line (elements)."""
    low = max(member * p["cin_g"], s[CHANNEL0])
    high = min((member + 1) * p["cin_g"], s[CHANNEL_END])
    first = _first_member(p, s)
    if member == first:
        return low, high, np.int64(0)
    block = p["block"]
    head = ((first + 1) * p["cin_g"] - max(first * p["cin_g"], s[CHANNEL0])) * s[PITCH]
    full = p["cin_g"] * s[PITCH]
    return low, high, ceil_div(head, block) * block + (member - first - 1) * (ceil_div(full, block) * block)


@jit
def set_lines(p, s):
    """Work out the pitches of channels and lines of the chunk in the state; return whether lines have gaps."""
    taps = s[TAP_END] - s[TAP0]
    cut = taps < p["taps"]
    s[PITCH] = ceil_div(taps, p["block"]) * p["block"] if cut else taps
    low, high, at = _window(p, s, _last_member(p, s))
    s[LINE] = at + ceil_div((high - low) * s[PITCH], p["block"]) * p["block"]
    low, _, _ = _window(p, s, _first_member(p, s))
    return s[LINE] != (high - low) * taps


@jit
def _element(p, s, channel, tap):
    """Return the position of an element in a line, `MISSING` for a channel outside the chunk."""
    if channel < s[CHANNEL0] or channel >= s[CHANNEL_END]:
        return np.int64(MISSING)
    low, _, at = _window(p, s, channel // p["cin_g"])
    return at + (channel - low) * s[PITCH] + tap - s[TAP0]


@jit
def fractal_address(p, s, base, depth, c1, tap):
    """Return the address of the 16 rows of the task in the fractals of one tap."""
    column = ((s[GROUP] * p["kd"] + depth) * p["cin1_g"] + c1) * p["khw"] + tap
    return base + (column * p["cout_rows"] + s[ROW0]) * p["c0"] * p["item"]


@jit
def _call(rows, n, dtype, repeat, dst_step, src_step, site, tile):
    """TransDataTo5HD with the address lists already set; a single repeat has no strides."""
    if repeat == 1:
        dst_step = np.int64(0)
        src_step = np.int64(0)
    return emit_trans_data_to_5hd(rows, n, dtype, repeat, dst_step, src_step, site, tile)


@jit
def lines_to_blocks(rows, n, p, s):
    """Pass 1 forward."""
    set_src_addresses(rows, n, p["lines_at"], 16, s[LINE] * p["item"], 0)
    set_dst_addresses(rows, n, p["blocks_at"], 16, 32, 0)
    return _call(rows, n, p["word"], s[LINE] * p["item"] // 32, 16, 1, LINES, s[TASK])


@jit
def blocks_to_lines(rows, n, p, s):
    """Pass 1 backward."""
    line = s[LINE] * p["item"]
    if p["word"] == Data.FP16:
        set_src_addresses(rows, n, p["blocks_at"], 16, 32, 0)
        set_dst_addresses(rows, n, p["lines_at"], 16, line, 0)
    else:
        set_src_addresses(rows, n, p["blocks_at"], 8, 64, 32)
        set_dst_addresses(rows, n, p["lines_at"], 2, 8 * line, line)
    return _call(rows, n, p["word"], line // 32, 1, 16, LINES, s[TASK])


@jit
def _block_address(p, s, channel, tap, missing):
    """Return the UB address of the element block of a channel, ``missing`` if the chunk has no such channel."""
    element = _element(p, s, channel, tap)
    if element < 0:
        return missing
    return p["blocks_at"] + element * 16 * p["item"]


@jit
def gather(rows, n, p, s, fractal, channel, tap):
    """Pass 2 forward: the fractal of the C0 channels from ``channel`` on, for one tap."""
    c0, zero, tile = p["c0"], p["spare_at"], s[TASK]
    if p["item"] == 2:
        for i in range(16):
            set_src_address(rows, n, i, _block_address(p, s, channel + i, tap, zero))
        set_dst_addresses(rows, n, fractal, 16, 32, 0)
        return _call(rows, n, Data.FP16, 1, 0, 0, GATHER, tile)
    for part in range(c0 // 8):
        first = channel + 8 * part
        if p["word"] == Data.FP16:
            for i in range(16):
                set_src_address(rows, n, i, _block_address(p, s, first + i // 2, tap, zero) + i % 2 * 32)
            set_dst_addresses(rows, n, fractal + 32 * part, 16, 4 * c0, 0)
        else:
            for i in range(16):
                set_src_address(rows, n, i, _block_address(p, s, first + i % 8, tap, zero) + i // 8 * 32)
            set_dst_addresses(rows, n, fractal + 32 * part, 2, 32 * c0, 4 * c0)
        n = _call(rows, n, p["word"], 1, 0, 0, GATHER, tile)
    return n


@jit
def scatter(rows, n, p, s, fractal, channel, tap):
    """Pass 2 backward: the columns of a fractal to their element blocks; columns without a channel go to spare ones."""
    c0, spare, tile = p["c0"], p["spare_at"], s[TASK]
    if p["item"] == 2:
        set_src_addresses(rows, n, fractal, 16, 32, 0)
        for i in range(16):
            set_dst_address(rows, n, i, _block_address(p, s, channel + i, tap, spare + 32 * i))
        return _call(rows, n, Data.FP16, 1, 0, 0, GATHER, tile)
    for part in range(c0 // 8):
        set_src_addresses(rows, n, fractal + 32 * part, 16, 4 * c0, 0)
        for i in range(16):
            block = _block_address(p, s, channel + 8 * part + i // 2, tap, spare + 64 * (i // 2))
            set_dst_address(rows, n, i, block + i % 2 * 32)
        n = _call(rows, n, p["word"], 1, 0, 0, GATHER, tile)
    return n


@jit
def move_lines(rows, n, p, s, outwards):
    """Load the 16 lines of the chunk from the plain tensor, or store them to it (``outwards``)."""
    item, tile = p["item"], s[TASK]
    taps = s[TAP_END] - s[TAP0]
    cut = taps < p["taps"]
    first, last = _first_member(p, s), _last_member(p, s)
    for row in range(16):
        member = (s[ROW0] + row) // p["cout_g"]
        group = s[GROUP] * p["mag"] + member
        if member < first or member > last or group >= p["groups"]:
            continue
        low, high, at = _window(p, s, member)
        channel = (group * p["cout_g"] + (s[ROW0] + row) % p["cout_g"]) * p["cin_g"] + low - member * p["cin_g"]
        plain = (channel * p["taps"] + s[TAP0]) * item
        line = p["lines_at"] + (row * s[LINE] + at) * item
        count, length = (high - low, taps * item) if cut else (np.int64(1), (high - low) * taps * item)
        if outwards:
            n = store_rows(
                rows, n, p["dst"] + plain, line, count, length, p["taps"] * item, s[PITCH] * item, s[RANGE_END],
                p["exact"], p["data"], p["dst_tensor"], STORE, tile,
            )  # fmt: skip
        else:
            n = load_rows(
                rows, n, line, p["src"] + plain, count, length, s[PITCH] * item, p["taps"] * item, p["exact"],
                p["data"], p["src_tensor"], LOAD, tile,
            )  # fmt: skip
    return n


@jit
def first_batch(p, s):
    """Point the state at the first batch of fractals of the chunk."""
    s[DEPTH] = s[TAP0] // p["khw"]
    s[C1] = s[CHANNEL0] // p["c0"]
    s[TAP] = s[TAP0] % p["khw"]


@jit
def batch_length(p, s):
    """Return the fractals of the batch in the state: neighbouring taps of one depth and channel block."""
    end = min(p["khw"], s[TAP_END] - s[DEPTH] * p["khw"])
    return min(p["ring"], end - s[TAP])


@jit
def next_batch(p, s, count):
    """Step to the next batch; return whether there is one."""
    s[HALF] = 1 - s[HALF]
    s[TAP] += count
    if s[TAP] < min(p["khw"], s[TAP_END] - s[DEPTH] * p["khw"]):
        return True
    s[C1] += 1
    if s[C1] * p["c0"] >= s[CHANNEL_END]:
        s[C1] = s[CHANNEL0] // p["c0"]
        s[DEPTH] += 1
        if s[DEPTH] * p["khw"] >= s[TAP_END]:
            return False
    s[TAP] = max(s[TAP0] - s[DEPTH] * p["khw"], 0)
    return True
