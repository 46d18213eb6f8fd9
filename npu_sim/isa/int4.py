"""Casts between half and int4, of which a byte holds two: the first in its low half (specification of the framework).

They have no count form: Cast with a number of elements sets COUNTER mode around them, as it does on a device. Lane l of
an operand of int4 is half of the byte that lane l / 2 of one of 8 bits would be; both lanes of a byte are active or
neither, as the page of Cast demands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import C220, Mode
from npu_sim.isa.cost_rates import fits
from npu_sim.isa.cost_vector import block_conflicts
from npu_sim.isa.footprint_boxes import BLOCK, NO_FOOTPRINT, NONE, ONCE, READ, WRITE
from npu_sim.isa.instruction import BYTE, DEVKIT, WORD, Index, Range, Rows
from npu_sim.isa.mask import boxes_of_mask, elements_of, is_counter, leading, masked_boxes, repeats_of
from npu_sim.isa.masked import masked_occupancy
from npu_sim.units import REPEAT_BYTES

OPERANDS = "dst src=src0 round_mode repeat dst_blk_stride src_blk_stride dst_rep_stride src_rep_stride"
RANGES: tuple[Range, ...] = (
    ("repeat", 0, BYTE), ("dst_blk_stride", 0, WORD), ("src_blk_stride", 0, WORD), ("dst_rep_stride", 0, BYTE),
    ("src_rep_stride", 0, BYTE),
)  # fmt: skip
STRIDES = {"repeat": 1, "dst_blk_stride": 1, "src_blk_stride": 1, "dst_rep_stride": 8, "src_rep_stride": 8}
"""Of elements one behind the other, but for that of int4 from repeat to repeat."""
ARCHS = frozenset({C220})
SOURCE = f"{DEVKIT}Cast, int4b_t"
HALF = 2
LANES = REPEAT_BYTES // HALF
_PAIRS = np.int64(0x5555555555555555)
_BYTES = LANES // 2


@jit
def _bytes_of(mask: Int) -> Int:
    """Return, of 64 bits for lanes of 4 bits, the 32 bits for the bytes that any active lane is in."""
    either = (mask | (mask >> np.int64(1))) & _PAIRS
    found = np.int64(0)
    for byte in range(32):
        found |= ((either >> np.int64(2 * byte)) & 1) << np.int64(byte)
    return found


@jit
def _boxes(row: Any, out: np.ndarray, count: Int, access: Int, base: Int, blk: Int, rep: Int) -> Int:
    """Note the bytes of the operand of int4."""
    if count < 0:
        return count
    if not fits(blk | rep):
        return NO_FOOTPRINT
    between, step, base = np.int64(blk) * BLOCK, np.int64(rep) * BLOCK, np.int64(base)
    if not is_counter(row):
        low = _bytes_of(row["mask_low"]) | (_bytes_of(row["mask_high"]) << np.int64(32))
        repeats = np.int64(row["repeat"])
        return boxes_of_mask(out, count, access, base, ONCE, _BYTES, between, step, repeats, low, NONE)
    full, rest = divmod(elements_of(row), LANES)
    count = boxes_of_mask(out, count, access, base, ONCE, _BYTES, between, step, full, np.int64(-1), NONE)
    tail = leading((rest + 1) // 2)
    return boxes_of_mask(out, count, access, base + full * step, ONCE, _BYTES, between, NONE, ONCE, tail, NONE)


@jit
def footprint_to(row: Any, out: np.ndarray) -> Int:
    """Lanes of half, and of the bytes that are written."""
    count = masked_boxes(out, NONE, READ, row["src0"], HALF, HALF, row["src_blk_stride"], row["src_rep_stride"], row)
    return _boxes(row, out, count, WRITE, row["dst"], row["dst_blk_stride"], row["dst_rep_stride"])


@jit
def footprint_from(row: Any, out: np.ndarray) -> Int:
    """Lanes of the bytes that are read, and of half."""
    count = _boxes(row, out, NONE, READ, row["src0"], row["src_blk_stride"], row["src_rep_stride"])
    return masked_boxes(out, count, WRITE, row["dst"], HALF, HALF, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def repeats_that_differ(row: Any) -> Int:
    """Return how many repeats there are; of billions of elements in one place the first does what all do."""
    repeats = repeats_of(row, LANES)
    return repeats if row["dst_rep_stride"] | row["src_rep_stride"] != 0 else min(repeats, np.int64(1))


@jit
def half_at(base: Int, blk: Int, rep: Int, repeat: Int, lane: Int) -> Int:
    """Return the address of an element of half."""
    per_block = BLOCK // HALF
    return (
        np.int64(base) + BLOCK * (repeat * np.int64(rep) + lane // per_block * np.int64(blk)) + lane % per_block * HALF
    )


@jit
def byte_at(base: Int, blk: Int, rep: Int, repeat: Int, lane: Int) -> Int:
    """Return the address of the byte that an element of int4 is in."""
    byte = lane // 2
    return np.int64(base) + BLOCK * (repeat * np.int64(rep) + byte // BLOCK * np.int64(blk)) + byte % BLOCK


@jit
def cost(row: Any, cost: Any) -> Any:
    """ASSUMED: as Cast between half and int8."""
    groups = cost["ub_bank_groups"]
    conflicts = max(block_conflicts(row["dst_blk_stride"], groups), block_conflicts(row["src_blk_stride"], groups))
    step = max(cost["vector_step_millicycles"], 1000 * conflicts)
    return masked_occupancy(row, HALF, ONCE, step, cost["vector_cast_cycles"], cost)


def check(chunk: Rows, index: Index) -> None:
    """Report masks that divide bytes."""
    low, high = chunk.column(index, "mask_low"), chunk.column(index, "mask_high")
    counters = chunk.column(index, "mode") & Mode.COUNTER != 0
    chunk.rule(index, counters & (low % 2 != 0), "mask_low", "an even number of elements")
    for name, bits in (("mask_low", low), ("mask_high", high)):
        divided = ~counters & ((bits ^ (bits >> 1)) & _PAIRS != 0)
        chunk.rule(index, divided, name, "equal in the two bits of each byte")
    runs = counters | (chunk.column(index, "repeat") > 0)
    chunk.rule(index, runs & (chunk.column(index, "dst_blk_stride") == 0), "dst_blk_stride", "at least 1")
