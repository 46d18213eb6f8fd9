"""Copy: elements of UB under the vector mask, with strides for both operands."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Mode
from npu_sim.isa.cost_rates import divide_up, fits
from npu_sim.isa.cost_vector import block_conflicts
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.footprint_boxes import NO_FOOTPRINT, NONE, ONCE, READ, UB, WRITE, box
from npu_sim.isa.instruction import B16, B32, BYTE, DEVKIT, WORD, Index, Instruction, Rows
from npu_sim.isa.mask import elements_of, is_counter, lanes_of, mask_of_repeat, masked_boxes, put, take
from npu_sim.isa.masked import masked_occupancy, occupancy
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

OP = 78
_LONGEST_STEP = 4095
_STEP, _START = 1000, 19
"""Thousandths of a cycle of a repeat, cycles until it is complete (MK streams; CA execution stage)."""


emit_copy = masked_emitter(
    "copy",
    OP,
    "dst src=src0 dtype repeat dst_blk_stride src_blk_stride dst_rep_stride src_rep_stride",
    """Copy: the lanes under the mask (SetVectorMask) of ``repeat`` repeats, elements of 16 or 32 bits.

Strides in 32-byte blocks, between the blocks of a repeat and between repeats. In COUNTER mode the mask is the number of
elements of each repeat, which may have more than 256 bytes then.""",
)


@jit
def _boxes(row, out, count, access, base, blk, rep):
    """Note the bytes of one operand: blocks, and in COUNTER mode what is left of one, of every repeat."""
    item = np.int64(item_bytes(row["dtype"]))
    if not is_counter(row):
        return masked_boxes(out, count, access, base, item, item, blk, rep, row)
    if count < 0 or not fits(blk | rep):
        return NO_FOOTPRINT if count >= 0 else count
    between, step, repeats = np.int64(blk) * BLOCK, np.int64(rep) * BLOCK, np.int64(row["repeat"])
    blocks, rest = divmod(elements_of(row) * item, BLOCK)
    base = np.int64(base)
    count = box(out, count, UB, access, base, BLOCK, blocks, between, repeats, step, ONCE, NONE)
    return box(out, count, UB, access, base + blocks * between, rest, ONCE, NONE, repeats, step, ONCE, NONE)


@jit
def footprint(row, out):
    """Lanes of the source and of the result."""
    count = _boxes(row, out, NONE, READ, row["src0"], row["src_blk_stride"], row["src_rep_stride"])
    return _boxes(row, out, count, WRITE, row["dst"], row["dst_blk_stride"], row["dst_rep_stride"])


@jit
def _parts_of(row, lanes):
    """Return how many parts of 256 bytes a repeat has."""
    return divide_up(elements_of(row), lanes) if is_counter(row) else ONCE


@jit
def run(row, ub, staging):
    """Move the lanes of every repeat, 256 bytes at a time; ``staging``: float32 scratch, for as many."""
    item = item_bytes(row["dtype"])
    if item != 2 and item != 4:
        return False
    lanes, data = lanes_of(item), reinterpret(staging[: REPEAT_BYTES // 4], np.uint8)
    from_stride, to_stride = np.int64(row["src_blk_stride"]), np.int64(row["dst_blk_stride"])
    parts, blocks = _parts_of(row, lanes), REPEAT_BYTES // BLOCK
    for r in range(np.int64(row["repeat"])):
        source = np.int64(row["src0"]) + r * np.int64(row["src_rep_stride"]) * BLOCK
        target = np.int64(row["dst"]) + r * np.int64(row["dst_rep_stride"]) * BLOCK
        for part in range(parts):
            low, high = mask_of_repeat(row, part, lanes)
            take(ub, source + part * blocks * from_stride * BLOCK, item, lanes, from_stride, low, high, data)
            put(ub, target + part * blocks * to_stride * BLOCK, item, lanes, to_stride, low, high, data)
    return True


@jit
def cost(row, cost):
    """Repeats at a cycle each, or as its blocks meet in bank groups; ASSUMED: 256 bytes of a longer one as a repeat."""
    size, groups = np.int64(item_bytes(row["dtype"])), cost["ub_bank_groups"]
    conflicts = max(block_conflicts(row["dst_blk_stride"], groups), block_conflicts(row["src_blk_stride"], groups))
    step = max(np.int64(_STEP), 1000 * conflicts)
    if not is_counter(row):
        return masked_occupancy(row, size, size, step, np.int64(_START), cost)
    lanes = lanes_of(size)
    repeats, elements = np.int64(row["repeat"]) * _parts_of(row, lanes), elements_of(row) * np.int64(row["repeat"])
    return occupancy(row, repeats, elements, lanes, size, step, np.int64(_START), cost)


def check(chunk: Rows, index: Index) -> None:
    counters = chunk.column(index, "mode") & Mode.COUNTER != 0
    check_strides(chunk, index[~counters], 1)
    index = index[counters]
    several = (chunk.column(index, "mask_low") & 0xFFFFFFFF) * chunk.item_bytes(index) > BLOCK
    stays = several & (chunk.column(index, "dst_blk_stride") == 0) & (chunk.column(index, "repeat") > 0)
    chunk.rule(index, stays, "dst_blk_stride", "at least 1 where a repeat has several blocks")


INSTRUCTION = Instruction(
    api="Copy",
    emit=emit_copy,
    source=DEVKIT + "Copy with CopyRepeatParams; only A2 and A3 have it",
    ranges=(
        ("repeat", 0, BYTE),
        ("dst_blk_stride", 0, WORD),
        ("src_blk_stride", 0, WORD),
        ("dst_rep_stride", 0, _LONGEST_STEP),
        ("src_rep_stride", 0, _LONGEST_STEP),
    ),
    dtypes={C220: B16 | B32},
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"repeat": 1, "dst_blk_stride": 1, "src_blk_stride": 1, "dst_rep_stride": 8, "src_rep_stride": 8},
)
