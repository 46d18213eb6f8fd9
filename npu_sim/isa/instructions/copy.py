"""Copy: elements of UB under the vector mask, with strides for both operands."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Mode
from npu_sim.isa.cost_vector import block_conflicts
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.footprint_boxes import NONE, READ, WRITE
from npu_sim.isa.instruction import B16, B32, BYTE, DEVKIT, WORD, Index, Instruction, Rows
from npu_sim.isa.mask import lanes_of, mask_of_repeat, masked_boxes, put, repeats_of, take
from npu_sim.isa.masked import masked_occupancy
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

Strides in 32-byte blocks, between the blocks of a repeat and between repeats. Not in COUNTER mode, which means elements
of each repeat here.""",
)


@jit
def footprint(row, out):
    """Lanes of the source and of the result."""
    item = item_bytes(row["dtype"])
    count = masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def run(row, ub, staging):
    """Move the lanes of every repeat; ``staging``: float32 scratch, for a repeat."""
    item = item_bytes(row["dtype"])
    if (item != 2 and item != 4) or row["mode"] & Mode.COUNTER != 0:
        return False
    lanes, data = lanes_of(item), reinterpret(staging[: REPEAT_BYTES // 4], np.uint8)
    for r in range(repeats_of(row, lanes)):
        low, high = mask_of_repeat(row, r, lanes)
        at = np.int64(row["src0"]) + r * np.int64(row["src_rep_stride"]) * BLOCK
        take(ub, at, item, lanes, np.int64(row["src_blk_stride"]), low, high, data)
        at = np.int64(row["dst"]) + r * np.int64(row["dst_rep_stride"]) * BLOCK
        put(ub, at, item, lanes, np.int64(row["dst_blk_stride"]), low, high, data)
    return True


@jit
def cost(row, cost):
    """Repeats at a cycle each, or as its blocks meet in bank groups."""
    size, groups = np.int64(item_bytes(row["dtype"])), cost["ub_bank_groups"]
    conflicts = max(block_conflicts(row["dst_blk_stride"], groups), block_conflicts(row["src_blk_stride"], groups))
    return masked_occupancy(row, size, size, max(np.int64(_STEP), 1000 * conflicts), np.int64(_START), cost)


def check(chunk: Rows, index: Index) -> None:
    counters = chunk.column(index, "mode") & Mode.COUNTER != 0
    chunk.unsupported(index, counters, lambda row: "must come in NORMAL mode: COUNTER mode is not modelled")
    check_strides(chunk, index[~counters], 1)


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
