"""Selections: of two operands what the bits of a third say, lane by lane under the vector mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, line
from npu_sim.isa.instruction import Index, Rows
from npu_sim.isa.mask import block_bits, is_counter, lanes_of, lanes_reached, mask_of_repeat, put, repeats_of, take
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.reinterpret import reinterpret
from npu_sim.units import BLOCK_BYTES, REPEAT_BYTES

_ELEMENTS = np.int64(0xFFFFFFFF)


@jit
def step_of_bits(row: Any, lanes: Int) -> Int:
    """Return the bytes from the bits of a repeat to those of the next."""
    return np.int64(row["src2_rep_stride"]) * (lanes // 8)


@jit
def _choose(ub: np.ndarray, bits_at: Int, active: Int, x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> None:
    """Take the first elements, of ``x`` where the bit of the lane, from ``bits_at`` on, is 1, else of ``y``."""
    for lane in range(active):
        chosen[lane] = x[lane] if (ub[bits_at + lane // 8] >> (lane % 8)) & 1 != 0 else y[lane]


@jit
def select_lanes(row: Any, ub: np.ndarray, other: np.ndarray, base: Int, blk: Int, rep: Int) -> Flag:
    """Copy repeat after repeat, of ``src0`` where a bit is 1, else of the operand at ``base`` of ``other``.

    ASSUMED: patterns of NaN stay, and a repeat is read before it is written.
    """
    item = np.int64(item_bytes(row["dtype"]))
    if item != 2 and item != 4:
        return False
    lanes = lanes_of(item)
    x, y = np.empty(REPEAT_BYTES, np.uint8), np.empty(REPEAT_BYTES, np.uint8)
    chosen = np.empty(REPEAT_BYTES, np.uint8)
    dst, src, bits = np.int64(row["dst"]), np.int64(row["src0"]), np.int64(row["src2"])
    for r in range(repeats_of(row, lanes)):
        low, high = mask_of_repeat(row, r, lanes)
        take(ub, src, item, lanes, np.int64(row["src_blk_stride"]), low, high, x)
        take(other, base, item, lanes, np.int64(blk), low, high, y)
        active = lanes_reached(low, high, lanes)
        if item == 4:
            _choose(
                ub, bits, active, reinterpret(x, np.uint32), reinterpret(y, np.uint32), reinterpret(chosen, np.uint32)
            )
        else:
            _choose(
                ub, bits, active, reinterpret(x, np.uint16), reinterpret(y, np.uint16), reinterpret(chosen, np.uint16)
            )
        put(ub, dst, item, lanes, np.int64(row["dst_blk_stride"]), low, high, chosen)
        dst, src = dst + np.int64(row["dst_rep_stride"]) * BLOCK, src + np.int64(row["src_rep_stride"]) * BLOCK
        bits, base = bits + step_of_bits(row, lanes), base + np.int64(rep) * BLOCK
    return True


@jit
def bits_read(row: Any, out: Any, count: Int) -> Int:
    """Note the bytes with bits of active lanes."""
    if count < 0:
        return count
    lanes = lanes_of(item_bytes(row["dtype"]))
    base, step = np.int64(row["src2"]), step_of_bits(row, lanes)
    if is_counter(row):
        elements = row["mask_low"] & _ELEMENTS
        full, tail = elements // lanes, elements % lanes
        count = line(out, count, UB, READ, base, lanes // 8, full, step)
        return line(out, count, UB, READ, base + full * step, (tail + 7) // 8, ONCE, NONE)
    at = np.int64(0)
    while at < lanes // 8:
        first = at
        while at < lanes // 8 and block_bits(row["mask_low"], row["mask_high"], 8 * at, 8) != 0:
            at += 1
        count = line(out, count, UB, READ, base + first, at - first, np.int64(row["repeat"]), step)
        at += 1
    return count


def check_bits(chunk: Rows, index: Index, sources: int) -> None:
    """Report what operands of a selection must not do."""
    at, step = chunk.column(index, "src2"), chunk.column(index, "src2_rep_stride")
    half = BLOCK_BYTES // 2
    chunk.misaligned(index, (at % BLOCK_BYTES != 0) & (step != 0), "src2", f"a multiple of {BLOCK_BYTES}")
    chunk.misaligned(index, (at % half != 0) & (step == 0), "src2", f"a multiple of {half}")
    check_strides(chunk, index, sources)
