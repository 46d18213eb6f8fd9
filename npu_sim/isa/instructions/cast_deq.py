"""Cast of int32 to half with the scale of SetDeqScale. ASSUMED: in the time of the other casts, with float between."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, Data
from npu_sim.isa.converting import converting
from npu_sim.isa.vector_values import narrow, widen


@jit
def _element(x, y, z, src, dst, saturate):
    return narrow(np.float32(x) * widen(y & 0xFFFF, Data.FP16), Data.FP16, saturate)


INSTRUCTION = converting(
    "cast_deq",
    45,
    "src value",
    "elements of int32 times ``value_bits``, a pattern of half, to half: the integer and the product round to float.",
    api="Cast",
    element=_element,
    pairs=dict.fromkeys(ARCHS, frozenset({(Data.INT32, Data.FP16)})),
    call="vector_cast_cycles",
)
