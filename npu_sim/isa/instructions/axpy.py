"""Axpy: scaled vector added to the result; half and float.

ASSUMED: the product is rounded to the type before it is added (documented is that it overflows by itself).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS
from npu_sim.isa.sums import SUM


@jit
def _product(x, y):
    return x * y


INSTRUCTION = elementwise(
    "Axpy",
    92,
    "src value dst",
    "dst[i] = value * src[i] + dst[i] in UB; ``value_bits`` is the scalar's bit pattern in ``dtype``.",
    floats=_product,
    reference=np.multiply,
    then=SUM,
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    call="vector_add_cycles",
)
