"""Sort32: 32 scores at a time become pairs of score and index in falling order."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import BYTE, DEVKIT, FLOATS, Instruction
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.sorting import ELEMENT, rank_at

OP = 68
SCORES = 32
"""Scores of a repeat."""
_STEP, _START = 16_000, 20
"""Thousandths of a cycle of a repeat, cycles until it is complete (MK: a constant; documented: 2 elements a cycle)."""


emit_sort32 = vector_emitter(
    "sort32",
    OP,
    "dst src0 src1 dtype repeat",
    """Sort32: every 32 scores of ``src0`` with their indices of ``src1`` (uint32) become 32 pairs of 8 bytes.

Highest score first, of equal ones the first first. Operands of one repeat follow those of the one before. ASSUMED: 64
bytes of half scores a repeat (one table of the page has 128).""",
)


@jit
def footprint(row, out):
    """Scores and indices read, pairs written."""
    elements = np.int64(row["repeat"]) * SCORES
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), elements * item_bytes(row["dtype"]), ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["src1"]), elements * 4, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), elements * ELEMENT, ONCE, NONE)


@jit
def run(row, ub):
    """Sort places by insertion, which is stable."""
    dtype = row["dtype"]
    if dtype != Data.FP16 and dtype != Data.FP32:
        return False
    item = item_bytes(dtype)
    ranks, places = np.empty(SCORES, np.int64), np.empty(SCORES, np.int64)
    for r in range(np.int64(row["repeat"])):
        scores, indices = np.int64(row["src0"]) + r * SCORES * item, np.int64(row["src1"]) + r * SCORES * 4
        for i in range(SCORES):
            at, own = i, rank_at(ub, scores + i * item, dtype)
            while at > 0 and ranks[at - 1] < own:
                ranks[at], places[at] = ranks[at - 1], places[at - 1]
                at -= 1
            ranks[at], places[at] = own, i
        for i in range(SCORES):
            place, target = places[i], np.int64(row["dst"]) + (r * SCORES + i) * ELEMENT
            for byte in range(4):
                ub[target + byte] = ub[scores + place * item + byte] if byte < item else 0
                ub[target + 4 + byte] = ub[indices + place * 4 + byte]
    return True


@jit
def cost(row, cost):
    """A step a repeat."""
    repeats = np.int64(row["repeat"])
    return streamed(repeats, np.int64(_STEP), np.int64(_START), repeats * SCORES * ELEMENT, cost)


INSTRUCTION = Instruction(
    api="Sort32",
    emit=emit_sort32,
    source=DEVKIT + "Sort32; only A2 and A3 have it",
    ranges=(("repeat", 0, BYTE),),
    dtypes={C220: FLOATS},
    own_types=("dst", "src1"),
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    defaults={"repeat": 1},
)
