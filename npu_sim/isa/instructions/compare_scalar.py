"""CompareScalar: a bit for each element of a vector."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200, Data, Pipe, Space
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
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE
from npu_sim.isa.instruction import BYTE, DEVKIT, Instruction
from npu_sim.isa.mte import item_bytes

OP = 97
_PARTIAL = 6
"""Cycles of results that end within a block (MK points of vcmpvs)."""


emit_compare_scalar = emitter(
    "compare_scalar",
    OP,
    Pipe.V,
    "dst src=src0 dtype comparison repeat src_blk_stride src_rep_stride value_bits=value",
    """CompareScalar: bit i of ``dst`` says whether element i of ``src`` compares so with a scalar.

``comparison``, repeats and strides as of `emit_compare`; ``value_bits`` is the scalar's bit pattern in ``dtype``.""",
    dst_space=Space.UB,
    src0_space=Space.UB,
)


@jit
def footprint(row, out):
    """All blocks of the vector, and the bits."""
    count = source_boxes(out, NONE, row["src0"], row["src_blk_stride"], row["src_rep_stride"], row)
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
    y = np.int64(row["value"])
    if dtype != Data.INT32:
        y &= np.int64(0xFFFF) if dtype == Data.FP16 else np.int64(0xFFFFFFFF)
    for r in range(np.int64(row["repeat"])):
        for at in range(length):
            bits = 0
            for bit in range(8):
                x = element(row, ub, a, a_blk, a_rep, r, 8 * at + bit)
                bits |= np.int64(bits_hold(comparison, dtype, x, y)) << bit
            found[at] = bits
        for at in range(length):
            ub[np.int64(row["dst"]) + r * length + at] = found[at]
    return True


@jit
def cost(row, cost):
    """A cycle a repeat (MK points)."""
    return occupancy(row, cost["vector_step_millicycles"], np.int64(_PARTIAL), cost["vector_muls_cycles"], cost)


_ARCHS = (M200, C220)

INSTRUCTION = Instruction(
    op=OP,
    api="CompareScalar",
    emit=emit_compare_scalar,
    source=DEVKIT + "CompareScalar; 910 has none",
    archs=frozenset(_ARCHS),
    routes={(Space.UB, Space.UB): Pipe.V},
    spaces={"dst": Space.UB, "src0": Space.UB},
    ranges=(("comparison", 0, NE), ("repeat", 0, BYTE), ("src_blk_stride", 0, BYTE), ("src_rep_stride", 0, BYTE)),
    dtypes={arch: TYPES[arch] for arch in _ARCHS},
    own_types=("dst",),
    unit="vector",
    footprint=footprint,
    run=run,
    apart=True,
    cost=cost,
    check=check_integers,
    defaults={"repeat": 1, "src_blk_stride": 1, "src_rep_stride": 8},
)
