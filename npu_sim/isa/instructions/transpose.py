"""Transpose: a square of 16 by 16 elements of 16 bits."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import FRACTAL, NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import DEVKIT, UNIFIED_B16, Instruction
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import item_bytes
from npu_sim.reinterpret import reinterpret

OP = 64
SIDE = 16
_STEP, _START = 21_000, 19
"""Thousandths of a cycle of a square, cycles until it is complete (MK: a constant of one square). ASSUMED: on 310P and
910 too."""


emit_transpose = vector_emitter(
    "transpose",
    OP,
    "dst src=src0 dtype",
    """Transpose: element (r, c) of 16 rows of 16 elements goes to (c, r); half, int16 and uint16.

512 bytes each; source and destination may be the same.""",
)


@jit
def footprint(row, out):
    """One square read, one written."""
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), FRACTAL, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), FRACTAL, ONCE, NONE)


@jit
def run(row, ub, staging):
    """Go by a copy, as the operands may be the same; ``staging``: float32 scratch, at least 128."""
    if item_bytes(row["dtype"]) != 2:
        return False
    copy_bytes(staging, 0, ub, np.int64(row["src0"]), FRACTAL)
    source, at = reinterpret(staging[:128], np.uint16), np.int64(row["dst"])
    target = reinterpret(ub[at : at + FRACTAL], np.uint16)
    for r in range(SIDE):
        for c in range(SIDE):
            target[c * SIDE + r] = source[r * SIDE + c]
    return True


@jit
def cost(row, cost):
    """One square."""
    return streamed(ONCE, np.int64(_STEP), np.int64(_START), FRACTAL, cost)


INSTRUCTION = Instruction(
    api="Transpose",
    emit=emit_transpose,
    source=DEVKIT + "Transpose of 16 x 16",
    dtypes=dict.fromkeys(ARCHS, UNIFIED_B16),
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
)
