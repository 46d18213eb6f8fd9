"""AddRelu: Relu of sums of two vectors; half, float and int16, rounded or fitted to the type first."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200, Data
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS
from npu_sim.isa.instructions.relu import RELU


@jit
def _function(x, y):
    return x + y


INSTRUCTION = elementwise(
    "AddRelu",
    90,
    "src0 src1",
    "dst[i] = max(src0[i] + src1[i], 0) in UB.",
    floats=_function,
    integers=_function,
    reference=np.add,
    then=RELU,
    dtypes=dict.fromkeys((M200, C220), FLOATS | {Data.INT16}),
    call="vector_add_cycles",
    accumulates=True,
)
