"""CastDequant of int16: numbers times a scale plus an offset, in 8 bits, to one half of each block of the result.

There is no count form: CastDequant of a number of elements sets COUNTER mode around it, as it does on a device. The 16
results of block k of the source go to bytes 0 to 15 or 16 to 31 of block k of the result, whose other half stays. A
scale has 10 bits of the mantissa, an offset 9 bits (asc-devkit, SetDeqScale). ASSUMED: x * scale + offset is rounded
once, to the nearest even integer, and NaN gives 0, as Fixpipe does it; of a block only what the mask says is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import C220, M200, Data
from npu_sim.isa.cost_rates import fits
from npu_sim.isa.cost_vector import block_conflicts
from npu_sim.isa.footprint_boxes import BLOCK, NO_FOOTPRINT, NONE, ONCE, READ, UB, WRITE, box
from npu_sim.isa.instruction import B8, BYTE, DEVKIT, WORD, Index, Range, Rows
from npu_sim.isa.instructions.fixpipe_quant import quantised
from npu_sim.isa.mask import block_bits, elements_of, is_counter, leading, mask_of_repeat, masked_boxes, repeats_of
from npu_sim.isa.masked import masked_occupancy
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.vector_values import read_element
from npu_sim.units import REPEAT_BYTES

TYPES = "src_dtype=dtype dst_dtype"
STEPS = "half_block=repeat_mode repeat dst_blk_stride src_blk_stride dst_rep_stride src_rep_stride"
RANGES: tuple[Range, ...] = (
    ("repeat_mode", 0, 1), ("repeat", 0, BYTE), ("dst_blk_stride", 0, WORD), ("src_blk_stride", 0, WORD),
    ("dst_rep_stride", 0, BYTE), ("src_rep_stride", 0, BYTE),
)  # fmt: skip
DEFAULTS = {"repeat": 1, "dst_blk_stride": 1, "src_blk_stride": 1, "dst_rep_stride": 8, "src_rep_stride": 8}
ARCHS = (M200, C220)
DTYPES = dict.fromkeys(ARCHS, frozenset({Data.INT16}))
DST_DTYPES = dict.fromkeys(ARCHS, B8)
SOURCE = f"{DEVKIT}CastDequant and SetDeqScale; 910 has none"
PER_BLOCK = 16
"""Results of a block, and words of a vector of scales."""
_ITEM = 2
_LANES = REPEAT_BYTES // _ITEM


@jit
def dequantised(value: Int, scale: Any, offset: Int, is_signed: Flag) -> Int:
    """Return the 8 bits that an integer becomes."""
    low, high = (-128.0, 127.0) if is_signed else (0.0, 255.0)
    return quantised(np.float64(value), scale, np.float64(offset), False, low, high) & 0xFF


@jit
def take_lanes(ub: np.ndarray, row: Any, repeat: Int, values: np.ndarray) -> Any:
    """Fill ``values`` with the active lanes of a repeat, int64[128], and return its mask: it may be in place."""
    low, high = mask_of_repeat(row, repeat, _LANES)
    base = np.int64(row["src0"]) + BLOCK * repeat * np.int64(row["src_rep_stride"])
    for lane in range(_LANES):
        if block_bits(low, high, lane, 1) != 0:
            at = base + lane // PER_BLOCK * BLOCK * np.int64(row["src_blk_stride"]) + lane % PER_BLOCK * _ITEM
            values[lane] = read_element(ub, at, Data.INT16)
    return low, high


@jit
def _first_byte(row: Any) -> Int:
    return np.int64(PER_BLOCK if row["repeat_mode"] != 0 else 0)


@jit
def byte_of(row: Any, repeat: Int, lane: Int) -> Int:
    """Return the address of a result."""
    block = repeat * np.int64(row["dst_rep_stride"]) + lane // PER_BLOCK * np.int64(row["dst_blk_stride"])
    return np.int64(row["dst"]) + BLOCK * block + _first_byte(row) + lane % PER_BLOCK


@jit
def repeats_that_differ(row: Any) -> Int:
    """Return how many repeats there are; of billions of elements in one place the first does what all do."""
    repeats = repeats_of(row, _LANES)
    return repeats if row["dst_rep_stride"] | row["src_rep_stride"] != 0 else min(repeats, np.int64(1))


@jit
def _results(out: np.ndarray, count: Int, base: Int, between: Int, repeats: Int, step: Int, low: Int, high: Int) -> Int:
    """Note the results of repeats under one mask: the active lanes of each block, beside each other."""
    for block in range(_LANES // PER_BLOCK):
        bits = block_bits(low, high, block * PER_BLOCK, PER_BLOCK)
        lane = np.int64(0)
        while lane < PER_BLOCK:
            first = lane
            while lane < PER_BLOCK and (bits >> lane) & 1 != 0:
                lane += 1
            at = base + block * between + first
            count = box(out, count, UB, WRITE, at, lane - first, ONCE, NONE, repeats, step, ONCE, NONE)
            lane += 1
    return count


@jit
def read_lanes(row: Any, out: np.ndarray) -> Int:
    """Note the lanes of int16."""
    return masked_boxes(out, NONE, READ, row["src0"], _ITEM, _ITEM, row["src_blk_stride"], row["src_rep_stride"], row)


@jit
def written_lanes(row: Any, out: np.ndarray, count: Int) -> Int:
    """Note the lanes of the halves of blocks that are written."""
    if count < 0:
        return count
    if not fits(row["dst_blk_stride"] | row["dst_rep_stride"]):
        return NO_FOOTPRINT
    base = np.int64(row["dst"]) + _first_byte(row)
    between, step = np.int64(row["dst_blk_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    if not is_counter(row):
        repeats = np.int64(row["repeat"])
        return _results(out, count, base, between, repeats, step, row["mask_low"], row["mask_high"])
    full, tail = divmod(elements_of(row), _LANES)
    count = _results(out, count, base, between, full, step, np.int64(-1), np.int64(-1))
    return _results(out, count, base + full * step, between, ONCE, NONE, leading(tail), leading(tail - _LANES // 2))


@jit
def cost(row: Any, cost: Any) -> Any:
    """One step a repeat, as documented. ASSUMED: the rest as Cast of half to int8."""
    groups = cost["ub_bank_groups"]
    conflicts = max(block_conflicts(row["dst_blk_stride"], groups), block_conflicts(row["src_blk_stride"], groups))
    step = max(cost["vector_step_millicycles"], 1000 * conflicts)
    return masked_occupancy(row, _ITEM, ONCE, step, cost["vector_cast_cycles"], cost)


def check(chunk: Rows, index: Index) -> None:
    """Report strides and overlaps that are undefined: a result is where an element of two bytes would be."""
    check_strides(chunk, index, 1)
