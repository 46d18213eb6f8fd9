"""Select: elements of one of two vectors, as bits say."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, C100
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.footprint_boxes import NONE, READ, WRITE
from npu_sim.isa.instruction import BYTE, DEVKIT, FLOATS, Index, Instruction, Rows
from npu_sim.isa.mask import masked_boxes
from npu_sim.isa.masked import masked_cost
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.selections import bits_read, check_bits, select_lanes

OP = 98


emit_select = masked_emitter(
    "select",
    OP,
    "dst src0 src1 src2 dtype repeat dst_blk_stride src0_blk_stride=src_blk_stride src1_blk_stride "
    "dst_rep_stride src0_rep_stride=src_rep_stride src1_rep_stride src2_rep_stride",
    """Select: lanes under the mask (SetVectorMask) are those of ``src0`` where ``src2`` has a 1, else of ``src1``.

The bits of a repeat lie one behind the other, the first the lowest; with ``src2_rep_stride`` 1 those of repeats do too
(VSEL_TENSOR_TENSOR_MODE), with 0 all repeats have the same (VSEL_CMPMASK_SPR). Other strides in 32-byte blocks.""",
)


@jit
def footprint(row, out):
    """Lanes of both vectors and of the result, and the bits."""
    item = item_bytes(row["dtype"])
    count = masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)
    count = masked_boxes(out, count, READ, row["src1"], item, item, row["src1_blk_stride"], row["src1_rep_stride"], row)
    count = bits_read(row, out, count)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def run(row, ub):
    """Take the lanes of the second vector where bits are 0."""
    return select_lanes(row, ub, ub, np.int64(row["src1"]), row["src1_blk_stride"], row["src1_rep_stride"])


@jit
def _call(cost):
    return cost["vector_add_cycles"]


def check(chunk: Rows, index: Index) -> None:
    if chunk.product.arch == C100:
        own = chunk.column(index, "src2_rep_stride") != 0
        chunk.rule(index, own, "src2_rep_stride", f"0 on {C100}: all repeats have the same bits")
    check_bits(chunk, index, 2)


INSTRUCTION = Instruction(
    api="Select",
    emit=emit_select,
    source=DEVKIT + "Select, modes 0 and 2; cycles: MK points of vsel, those of vadd",
    ranges=(
        ("repeat", 0, BYTE),
        ("dst_blk_stride", 0, BYTE),
        ("src_blk_stride", 0, BYTE),
        ("src1_blk_stride", 0, BYTE),
        ("dst_rep_stride", 0, BYTE),
        ("src_rep_stride", 0, BYTE),
        ("src1_rep_stride", 0, BYTE),
        ("src2_rep_stride", 0, 1),
    ),
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    unit="vector",
    footprint=footprint,
    run=run,
    cost=masked_cost(_call, None, 2),
    check=check,
    defaults={
        "repeat": 1, "dst_blk_stride": 1, "src_blk_stride": 1, "src1_blk_stride": 1, "dst_rep_stride": 8,
        "src_rep_stride": 8, "src1_rep_stride": 8, "src2_rep_stride": 1,
    },
)  # fmt: skip
