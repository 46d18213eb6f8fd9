"""Compare: a bit for each pair of elements of two vectors."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.comparisons import (
    NE,
    TYPES,
    bit_boxes,
    check_integers,
    compare_lanes,
    occupancy,
    source_boxes,
)
from npu_sim.isa.cost_vector import add_step_millicycles
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE
from npu_sim.isa.instruction import BYTE, DEVKIT, Instruction

OP = 96
_PARTIAL = 5
"""Cycles of results that end within a block (MK points of vcmpv)."""


emit_compare = vector_emitter(
    "compare",
    OP,
    "dst src0 src1 dtype comparison repeat src0_blk_stride=src_blk_stride src1_blk_stride "
    "src0_rep_stride=src_rep_stride src1_rep_stride",
    """Compare: bit i of ``dst`` says whether elements i of ``src0`` and ``src1`` compare so.

``comparison``: 0 LT, 1 GT, 2 EQ, 3 LE, 4 GE, 5 NE; with a NaN none holds. ``repeat`` times 256 bytes, whatever the
mask; strides in 32-byte blocks. The bits of repeats lie one behind the other.""",
)


@jit
def footprint(row, out):
    """All blocks of both vectors, and the bits."""
    count = source_boxes(out, NONE, row["src0"], row["src_blk_stride"], row["src_rep_stride"], row)
    count = source_boxes(out, count, row["src1"], row["src1_blk_stride"], row["src1_rep_stride"], row)
    return bit_boxes(out, count, row)


@jit
def run(row, ub):
    """Compare with the elements of the second vector."""
    return compare_lanes(row, ub, ub, np.int64(row["src1"]), row["src1_blk_stride"], row["src1_rep_stride"])


@jit
def cost(row, cost):
    """Repeats as those of a sum of two vectors (MK points: 2 cycles each in one bank group)."""
    step = add_step_millicycles(row["dst"], row["src0"], row["src1"], cost)
    return occupancy(row, step, np.int64(_PARTIAL), cost["vector_add_cycles"], cost)


INSTRUCTION = Instruction(
    api="Compare",
    emit=emit_compare,
    source=DEVKIT + "Compare, results in memory",
    ranges=(
        ("comparison", 0, NE),
        ("repeat", 0, BYTE),
        ("src_blk_stride", 0, BYTE),
        ("src1_blk_stride", 0, BYTE),
        ("src_rep_stride", 0, BYTE),
        ("src1_rep_stride", 0, BYTE),
    ),
    dtypes=TYPES,
    own_types=("dst",),
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check_integers,
    defaults={"repeat": 1, "src_blk_stride": 1, "src1_blk_stride": 1, "src_rep_stride": 8, "src1_rep_stride": 8},
)
