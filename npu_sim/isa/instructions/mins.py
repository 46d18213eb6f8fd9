"""Mins: the smaller of an element and a scalar; a NaN goes through, and +0 is above -0."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import B32, UNIFIED_B16
from npu_sim.isa.instructions.min import smaller_float, smaller_of


@jit
def _integers(x, y):
    return min(x, y)


INSTRUCTION = elementwise(
    "Mins",
    81,
    "src value",
    "dst[i] = the smaller of src[i] and the scalar in UB; ``value_bits`` is its bit pattern in ``dtype``.",
    floats=smaller_float,
    integers=_integers,
    reference=smaller_of,
    dtypes=dict.fromkeys((M200, C220), UNIFIED_B16 | B32),
    call=23,
)
