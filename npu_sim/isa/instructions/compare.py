"""Compare: a bit for each pair of elements of two vectors."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.comparisons import (
    NE,
    TYPES,
    bit_boxes,
    bits_hold,
    bytes_of_bits,
    check_integers,
    element,
    is_compared,
    occupancy,
    source_boxes,
)
from npu_sim.isa.cost_vector import add_step_millicycles
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE
from npu_sim.isa.instruction import BYTE, DEVKIT, Instruction
from npu_sim.isa.mte import item_bytes

OP = 96
_PARTIAL = 5
"""Cycles of results that end within a block (MK points of vcmpv)."""


emit_compare = emitter(
    "compare",
    OP,
    Pipe.V,
    "dst src0 src1 dtype comparison repeat src0_blk_stride=src_blk_stride src1_blk_stride "
    "src0_rep_stride=src_rep_stride src1_rep_stride",
    """Compare: bit i of ``dst`` says whether elements i of ``src0`` and ``src1`` compare so.

``comparison``: 0 LT, 1 GT, 2 EQ, 3 LE, 4 GE, 5 NE; with a NaN none holds. ``repeat`` times 256 bytes, whatever the
mask; strides in 32-byte blocks. The bits of repeats lie one behind the other.""",
    dst_space=Space.UB,
    src0_space=Space.UB,
    src1_space=Space.UB,
)


@jit
def footprint(row, out):
    """All blocks of both vectors, and the bits."""
    count = source_boxes(out, NONE, row["src0"], row["src_blk_stride"], row["src_rep_stride"], row)
    count = source_boxes(out, count, row["src1"], row["src1_blk_stride"], row["src1_rep_stride"], row)
    return bit_boxes(out, count, row)


@jit
def run(row, ub):
    """Compare a byte of bits after the other; those of a repeat are written when all of it was read."""
    if not is_compared(row):
        return False
    dtype, comparison = row["dtype"], row["comparison"]
    length = bytes_of_bits(item_bytes(dtype))
    found = np.zeros(16, np.uint8)
    a, a_blk, a_rep = np.int64(row["src0"]), np.int64(row["src_blk_stride"]), np.int64(row["src_rep_stride"])
    b, b_blk, b_rep = np.int64(row["src1"]), np.int64(row["src1_blk_stride"]), np.int64(row["src1_rep_stride"])
    for r in range(np.int64(row["repeat"])):
        for at in range(length):
            bits = 0
            for bit in range(8):
                x = element(row, ub, a, a_blk, a_rep, r, 8 * at + bit)
                y = element(row, ub, b, b_blk, b_rep, r, 8 * at + bit)
                bits |= np.int64(bits_hold(comparison, dtype, x, y)) << bit
            found[at] = bits
        for at in range(length):
            ub[np.int64(row["dst"]) + r * length + at] = found[at]
    return True


@jit
def cost(row, cost):
    """Repeats as those of a sum of two vectors (MK points: 2 cycles each in one bank group)."""
    step = add_step_millicycles(row["dst"], row["src0"], row["src1"], cost)
    return occupancy(row, step, np.int64(_PARTIAL), cost["vector_add_cycles"], cost)


INSTRUCTION = Instruction(
    op=OP,
    api="Compare",
    emit=emit_compare,
    source=DEVKIT + "Compare, results in memory",
    routes={(Space.UB, Space.UB): Pipe.V},
    spaces={"dst": Space.UB, "src0": Space.UB, "src1": Space.UB},
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
    apart=True,
    cost=cost,
    check=check_integers,
    defaults={"repeat": 1, "src_blk_stride": 1, "src1_blk_stride": 1, "src_rep_stride": 8, "src1_rep_stride": 8},
)
