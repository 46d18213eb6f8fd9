"""Muls: a vector times a scalar."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import WITH_SCALAR


@jit
def _function(x, y):
    return x * y


INSTRUCTION = elementwise(
    "Muls",
    18,
    "src value",
    "dst[i] = src[i] * value in UB; ``value_bits`` is the scalar's bit pattern in ``dtype``.",
    floats=_function,
    integers=_function,
    reference=np.multiply,
    dtypes=WITH_SCALAR,
    call="vector_muls_cycles",
    common=True,
)
