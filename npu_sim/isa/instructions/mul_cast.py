"""MulCast: products of half as integers of 8 bits, rounded to half first. ASSUMED: in the time of Mul."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import cast_scalar
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.codes import C220, M200, Data
from npu_sim.isa.converting import converting
from npu_sim.isa.vector_values import narrow, widen


@jit
def _element(x, y, z, src, dst, saturate):
    half = narrow(widen(x, Data.FP16) * widen(y, Data.FP16), Data.FP16, saturate)
    return cast_scalar(np.int64(half), src, dst, RoundMode.RINT, saturate)


INSTRUCTION = converting(
    "mul_cast",
    50,
    "src0 src1",
    "dst[i] = src0[i] * src1[i] in UB, from half to int8 or uint8: to the nearest, ties to even, or the extreme.",
    api="MulCast",
    element=_element,
    pairs=dict.fromkeys((M200, C220), frozenset({(Data.FP16, Data.INT8), (Data.FP16, Data.UINT8)})),
    call="vector_add_cycles",
)
