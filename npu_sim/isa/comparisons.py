"""Comparisons of elements: a bit for each, eight in a byte, the first the lowest.

A repeat compares all 256 bytes of each vector, whatever the mask, and its bits lie behind those of the repeat before
(asc-devkit ``docs/zh/api/SIMD-API``, Compare and CompareScalar). With a NaN nothing holds, NE neither (boundary table).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.dtypes.bulk_jit import decode_fp16
from npu_sim.isa.codes import C100, C220, M200, Data
from npu_sim.isa.cost_rates import divide_up
from npu_sim.isa.footprint_boxes import NO_FOOTPRINT, NONE, ONCE, READ, UB, WRITE, box, line
from npu_sim.isa.instruction import FLOATS, Index, Rows
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mask import take
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

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
def _bits_of(comparison: Int, x: np.ndarray, y: np.ndarray, found: np.ndarray) -> None:
    """Compare two arrays, eight elements a byte."""
    for at in range(len(x) // 8):
        bits = np.int64(0)
        for bit in range(8):
            bits |= np.int64(holds(comparison, x[8 * at + bit], y[8 * at + bit])) << bit
        found[at] = bits


@jit
def compare_lanes(row: Any, ub: np.ndarray, other: np.ndarray, base: Int, blk: Int, rep: Int) -> Flag:
    """Compare ``src0`` with the operand at ``base`` of ``other``, a byte of bits after the other.

    Those of a repeat are written when all of it was read.
    """
    if not is_compared(row):
        return False
    dtype, comparison = row["dtype"], row["comparison"]
    item = np.int64(item_bytes(dtype))
    lanes, length = REPEAT_BYTES // item, bytes_of_bits(item)
    found = np.empty(16, np.uint8)
    x, y = np.empty(REPEAT_BYTES, np.uint8), np.empty(REPEAT_BYTES, np.uint8)
    words, others = np.empty(lanes, np.uint32), np.empty(lanes, np.uint32)
    everywhere = np.int64(-1)
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    for _ in range(np.int64(row["repeat"])):
        take(ub, src, item, lanes, np.int64(row["src_blk_stride"]), everywhere, everywhere, x)
        take(other, base, item, lanes, np.int64(blk), everywhere, everywhere, y)
        if dtype == Data.FP32:
            _bits_of(comparison, reinterpret(x, np.float32), reinterpret(y, np.float32), found)
        elif dtype == Data.INT32:
            _bits_of(comparison, reinterpret(x, np.int32), reinterpret(y, np.int32), found)
        else:
            decode_fp16(reinterpret(x, np.uint16), words)
            decode_fp16(reinterpret(y, np.uint16), others)
            _bits_of(comparison, reinterpret(words, np.float32), reinterpret(others, np.float32), found)
        copy_bytes(ub, dst, found, 0, length)
        src, dst, base = src + np.int64(row["src_rep_stride"]) * BLOCK, dst + length, base + np.int64(rep) * BLOCK
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
