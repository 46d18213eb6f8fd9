"""Div: quotients of two vectors of half or float."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS


@jit
def _floats(x, y):
    return x / y


INSTRUCTION = elementwise(
    "Div",
    24,
    "src0 src1",
    "dst[i] = src0[i] / src1[i] in UB; half and float.",
    floats=_floats,
    reference=np.divide,
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    call="vector_div_cycles",
    step="vector_div_step_millicycles",
    common=True,
)
