"""Mul: products of two vectors."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import ARITHMETIC


@jit
def _function(x, y):
    return x * y


INSTRUCTION = elementwise(
    "Mul",
    23,
    "src0 src1",
    "dst[i] = src0[i] * src1[i] in UB.",
    floats=_function,
    integers=_function,
    reference=np.multiply,
    dtypes=ARITHMETIC,
    call="vector_add_cycles",
    accumulates=True,
    common=True,
)
