"""Selections: of two operands what the bits of a third say, lane by lane under the vector mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, line
from npu_sim.isa.instruction import Index, Rows
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mask import block_bits, is_counter, lanes_of, mask_of_repeat, repeats_of
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.units import BLOCK_BYTES

_ELEMENTS = np.int64(0xFFFFFFFF)


@jit
def step_of_bits(row: Any, lanes: Int) -> Int:
    """Return the bytes from the bits of a repeat to those of the next."""
    return np.int64(row["src2_rep_stride"]) * (lanes // 8)


@jit
def lane_address(base: Int, blk: Int, rep: Int, repeat: Int, lane: Int, item: Int) -> Any:
    """Return where a lane of an operand is; strides in blocks of 32 bytes."""
    per_block = BLOCK // item
    return (
        np.int64(base) + BLOCK * (repeat * np.int64(rep) + lane // per_block * np.int64(blk)) + lane % per_block * item
    )


@jit
def bit_of(ub: np.ndarray, at: Int, lane: Int) -> Any:
    """Return the bit of a lane in the bits from ``at`` on."""
    return (ub[at + lane // 8] >> (lane % 8)) & 1


@jit
def select_lanes(row: Any, ub: np.ndarray, other: np.ndarray, base: Int, blk: Int, rep: Int) -> Flag:
    """Copy lane after lane, of ``src0`` where a bit is 1, else of the operand at ``base`` of ``other``.

    Patterns of NaN stay (ASSUMED).
    """
    item = np.int64(item_bytes(row["dtype"]))
    if item != 2 and item != 4:
        return False
    lanes = lanes_of(item)
    step = step_of_bits(row, lanes)
    for r in range(repeats_of(row, lanes)):
        low, high = mask_of_repeat(row, r, lanes)
        for lane in range(lanes):
            if block_bits(low, high, lane, 1) == 0:
                continue
            dst = lane_address(row["dst"], row["dst_blk_stride"], row["dst_rep_stride"], r, lane, item)
            if bit_of(ub, np.int64(row["src2"]) + r * step, lane) != 0:
                src = lane_address(row["src0"], row["src_blk_stride"], row["src_rep_stride"], r, lane, item)
                copy_bytes(ub, dst, ub, src, item)
            else:
                copy_bytes(ub, dst, other, lane_address(base, blk, rep, r, lane, item), item)
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
