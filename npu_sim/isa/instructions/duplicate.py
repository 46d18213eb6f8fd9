"""Duplicate: one value into elements of UB."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C100, C220, M200
from npu_sim.isa.cost_vector import whole_vector
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, UB, WRITE, line
from npu_sim.isa.instruction import B16, B32, COUNT, DEVKIT, UNIFIED_B16, Instruction
from npu_sim.isa.masked import masked_cost, masked_form
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.vector_values import is_arithmetic
from npu_sim.reinterpret import reinterpret

OP = 16


emit_duplicate = vector_emitter(
    "duplicate",
    OP,
    "dst dtype count value_bits=value",
    "Duplicate: ``count`` elements of UB get the bit pattern ``value_bits``.",
)


@jit
def footprint(row, out):
    """Consecutive elements, written."""
    length = np.int64(row["count"]) * item_bytes(row["dtype"])
    return line(out, NONE, UB, WRITE, np.int64(row["dst"]), length, ONCE, NONE)


@jit
def run(row, ub):
    """Write the pattern again and again."""
    if not is_arithmetic(row["dtype"]):
        return False
    item = item_bytes(row["dtype"])
    at = np.int64(row["dst"])
    count = np.int64(row["count"])
    value = np.int64(row["value"])
    if item == 4:
        words = reinterpret(ub[at : at + 4 * count], np.uint32)
        words[:] = np.uint32(value & 0xFFFFFFFF)
    else:
        halves = reinterpret(ub[at : at + 2 * count], np.uint16)
        halves[:] = np.uint16(value & 0xFFFF)
    return True


@jit
def cost(row, cost):
    """Repeats at the step of the unit."""
    size = np.int64(item_bytes(row["dtype"]))
    count = np.int64(row["count"])
    return whole_vector(
        count, size, cost["vector_step_millicycles"], cost["vector_duplicate_cycles"], count * size, cost
    )


@jit
def _call(cost):
    return cost["vector_duplicate_cycles"]


@jit
def _step(cost):
    return cost["vector_step_millicycles"]


_DTYPES = {C100: UNIFIED_B16 | B32, M200: UNIFIED_B16 | B32, C220: B16 | B32}

INSTRUCTION = Instruction(
    api="Duplicate",
    emit=emit_duplicate,
    source=DEVKIT + "Duplicate, count style",
    ranges=COUNT,
    dtypes=_DTYPES,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    any_value=True,
    defaults={"value_bits": 0},
    masked=masked_form(
        "Duplicate",
        OP,
        0,
        "elements of UB get the bit pattern ``value_bits``.",
        dtypes=_DTYPES,
        cost=masked_cost(_call, _step, 0),
        tail="value_bits=value",
        any_value=True,
        defaults={"value_bits": 0},
    ),
)
