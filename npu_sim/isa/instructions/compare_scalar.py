"""CompareScalar: a bit for each element of a vector."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200
from npu_sim.isa.comparisons import (
    NE,
    TYPES,
    bit_boxes,
    check_integers,
    compare_lanes,
    occupancy,
    source_boxes,
)
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE
from npu_sim.isa.instruction import BYTE, DEVKIT, Instruction
from npu_sim.isa.vector_values import block_of

OP = 97
_PARTIAL = 6
"""Cycles of results that end within a block (MK points of vcmpvs)."""


emit_compare_scalar = vector_emitter(
    "compare_scalar",
    OP,
    "dst src=src0 dtype comparison repeat src_blk_stride src_rep_stride value_bits=value",
    """CompareScalar: bit i of ``dst`` says whether element i of ``src`` compares so with a scalar.

``comparison``, repeats and strides as of `emit_compare`; ``value_bits`` is the scalar's bit pattern in ``dtype``.""",
)


@jit
def footprint(row, out):
    """All blocks of the vector, and the bits."""
    count = source_boxes(out, NONE, row["src0"], row["src_blk_stride"], row["src_rep_stride"], row)
    return bit_boxes(out, count, row)


@jit
def run(row, ub):
    """Compare with the scalar: a block of its elements, without strides."""
    return compare_lanes(row, ub, block_of(np.int64(row["value"]), row["dtype"]), np.int64(0), 0, 0)


@jit
def cost(row, cost):
    """A cycle a repeat (MK points)."""
    return occupancy(row, cost["vector_step_millicycles"], np.int64(_PARTIAL), cost["vector_muls_cycles"], cost)


_ARCHS = (M200, C220)

INSTRUCTION = Instruction(
    api="CompareScalar",
    emit=emit_compare_scalar,
    source=DEVKIT + "CompareScalar; 910 has none",
    ranges=(("comparison", 0, NE), ("repeat", 0, BYTE), ("src_blk_stride", 0, BYTE), ("src_rep_stride", 0, BYTE)),
    dtypes={arch: TYPES[arch] for arch in _ARCHS},
    own_types=("dst",),
    any_value=True,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check_integers,
    defaults={"repeat": 1, "src_blk_stride": 1, "src_rep_stride": 8},
)
