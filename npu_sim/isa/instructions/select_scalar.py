"""Select between a vector and a scalar, as bits say."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.footprint_boxes import NONE, READ, WRITE
from npu_sim.isa.instruction import BYTE, DEVKIT, FLOATS, WORD, Index, Instruction, Rows
from npu_sim.isa.mask import masked_boxes
from npu_sim.isa.masked import masked_cost
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.selections import bits_read, check_bits, select_lanes
from npu_sim.isa.vector_values import block_of

OP = 77


emit_select_scalar = masked_emitter(
    "select_scalar",
    OP,
    "dst src=src0 src2 dtype repeat dst_blk_stride src_blk_stride dst_rep_stride src_rep_stride value_bits=value",
    """Select, VSEL_TENSOR_SCALAR_MODE: lanes under the mask are those of ``src`` where ``src2`` has a 1, else a scalar.

``value_bits`` is the scalar's bit pattern in ``dtype``; bits and strides as of `emit_select`.""",
    src2_rep_stride=1,
)


@jit
def footprint(row, out):
    """Lanes of the vector and of the result, and the bits."""
    item = item_bytes(row["dtype"])
    count = masked_boxes(out, NONE, READ, row["src0"], item, item, row["src_blk_stride"], row["src_rep_stride"], row)
    count = bits_read(row, out, count)
    return masked_boxes(out, count, WRITE, row["dst"], item, item, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def run(row, ub):
    """Take the scalar where bits are 0: a block of its elements, without strides."""
    block = block_of(np.int64(row["value"]), row["dtype"])
    return select_lanes(row, ub, block, np.int64(0), 0, 0)


@jit
def _call(cost):
    return cost["vector_add_cycles"]


@jit
def _step(cost):
    return cost["vector_step_millicycles"]


def check(chunk: Rows, index: Index) -> None:
    check_bits(chunk, index, 1)


_ARCHS = (M200, C220)

INSTRUCTION = Instruction(
    api="Select",
    emit=emit_select_scalar,
    source=DEVKIT
    + "Select, mode 1; 910 has none. ASSUMED: the cycles of a selection of two vectors in two bank groups",
    ranges=(
        ("repeat", 0, BYTE),
        ("dst_blk_stride", 0, WORD),
        ("src_blk_stride", 0, WORD),
        ("dst_rep_stride", 0, BYTE),
        ("src_rep_stride", 0, BYTE),
        ("src2_rep_stride", 0, 1),
    ),
    dtypes=dict.fromkeys(_ARCHS, FLOATS),
    any_value=True,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=masked_cost(_call, _step, 1),
    check=check,
    defaults={"repeat": 1, "dst_blk_stride": 1, "src_blk_stride": 1, "dst_rep_stride": 8, "src_rep_stride": 8},
)
