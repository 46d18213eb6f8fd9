"""Comparisons of elements: a bit for each, eight in a byte, the first the lowest.

A repeat compares all 256 bytes of each vector, whatever the mask, and its bits lie behind those of the repeat before
(asc-devkit ``docs/zh/api/SIMD-API``, Compare and CompareScalar). With a NaN nothing holds, NE neither (boundary table).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import C100, C220, M200, Data
from npu_sim.isa.cost_rates import divide_up
from npu_sim.isa.footprint_boxes import NO_FOOTPRINT, NONE, ONCE, READ, UB, WRITE, box, line
from npu_sim.isa.instruction import FLOATS, Index, Rows
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.isa.selections import lane_address
from npu_sim.isa.vector_values import read_element, widen

LT, GT, EQ, LE, GE, NE = range(6)
"""CMPMODE."""
TYPES = {C100: FLOATS, M200: FLOATS, C220: FLOATS | {Data.INT32}}
_BLOCKS = 8


@jit
def holds(comparison: Int, x: Any, y: Any) -> Flag:
    """Return whether two numbers compare so."""
    if comparison == LT:
        return x < y
    if comparison == GT:
        return x > y
    if comparison == EQ:
        return x == y
    if comparison == LE:
        return x <= y
    if comparison == GE:
        return x >= y
    return x < y or x > y


@jit
def bits_hold(comparison: Int, dtype: Int, x: Int, y: Int) -> Flag:
    """Return whether two elements compare so, as `read_element` gives them."""
    if dtype == Data.INT32:
        return holds(comparison, x, y)
    if dtype == Data.FP16:
        return holds(comparison, widen(x, dtype), widen(y, dtype))
    return holds(comparison, np.uint32(x).view(np.float32), np.uint32(y).view(np.float32))


@jit
def is_compared(row: Any) -> Flag:
    """Return whether the machine compares elements of the type in this way."""
    dtype, comparison = row["dtype"], row["comparison"]
    has_type = dtype == Data.FP16 or dtype == Data.FP32 or dtype == Data.INT32
    return has_type and comparison >= LT and comparison <= NE


@jit
def bytes_of_bits(item: Int) -> Int:
    """Return the bytes that hold the bits of a repeat."""
    return BLOCK // max(np.int64(item), np.int64(1))


@jit
def _element(row: Any, ub: np.ndarray, base: Int, blk: Int, rep: Int, repeat: Int, lane: Int) -> Int:
    """Return one element of a vector; strides in blocks of 32 bytes."""
    at = lane_address(base, blk, rep, repeat, lane, np.int64(item_bytes(row["dtype"])))
    return read_element(ub, at, row["dtype"])


@jit
def compare_lanes(row: Any, ub: np.ndarray, other: np.ndarray, base: Int, blk: Int, rep: Int) -> Flag:
    """Compare ``src0`` with the operand at ``base`` of ``other``, a byte of bits after the other.

    Those of a repeat are written when all of it was read.
    """
    if not is_compared(row):
        return False
    dtype, comparison = row["dtype"], row["comparison"]
    length = bytes_of_bits(item_bytes(dtype))
    found = np.zeros(16, np.uint8)
    for r in range(np.int64(row["repeat"])):
        for at in range(length):
            bits = np.int64(0)
            for bit in range(8):
                x = _element(row, ub, row["src0"], row["src_blk_stride"], row["src_rep_stride"], r, 8 * at + bit)
                y = _element(row, other, base, blk, rep, r, 8 * at + bit)
                bits |= np.int64(bits_hold(comparison, dtype, x, y)) << bit
            found[at] = bits
        for at in range(length):
            ub[np.int64(row["dst"]) + r * length + at] = found[at]
    return True


@jit
def source_boxes(out: Any, count: Int, base: Int, blk: Int, rep: Int, row: Any) -> Int:
    """Note all 8 blocks of every repeat of a vector."""
    if count < 0:
        return NO_FOOTPRINT
    eight, repeats = np.int64(_BLOCKS), np.int64(row["repeat"])
    between, step = np.int64(blk) * BLOCK, np.int64(rep) * BLOCK
    return box(out, count, UB, READ, np.int64(base), BLOCK, eight, between, repeats, step, ONCE, NONE)


@jit
def bit_boxes(out: Any, count: Int, row: Any) -> Int:
    """Note the bits that are written."""
    if count < 0:
        return NO_FOOTPRINT
    length = np.int64(row["repeat"]) * bytes_of_bits(item_bytes(row["dtype"]))
    return line(out, count, UB, WRITE, np.int64(row["dst"]), length, ONCE, NONE)


@jit
def occupancy(row: Any, step: Int, partial: Int, start: Int, cost: Any) -> Any:
    """Return (occupancy, latency, bytes): ``step`` thousandths of a cycle a repeat, ``partial`` for a part of a block.

    MK vcmpv and vcmpvs: results that end within a block of 32 bytes take longer.
    """
    repeats = np.int64(row["repeat"])
    if repeats <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    written = repeats * bytes_of_bits(item_bytes(row["dtype"]))
    cycles = divide_up(repeats * step, 1000)
    if written % BLOCK != 0:
        cycles += partial
    return max(cycles, cost["vector_minimum_cycles"]), start, written


def check_integers(chunk: Rows, index: Index) -> None:
    """Report integers that are compared for anything but equality."""
    other = (chunk.column(index, "dtype") == Data.INT32) & (chunk.column(index, "comparison") != EQ)
    chunk.unsupported(index, other, lambda row: "of int32 must be EQ: nothing else is compared of integers")
