"""MulAddRelu: Relu of the result times a vector plus a vector (FusedMulAddRelu); half and float.

ASSUMED: the product is rounded to the type before it is added (documented is that it overflows by itself).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS
from npu_sim.isa.sums import RECTIFIED_SUM


@jit
def _product(x, y):
    return x * y


INSTRUCTION = elementwise(
    "MulAddRelu",
    95,
    "src0 dst src1",
    "dst[i] = max(src0[i] * dst[i] + src1[i], 0) in UB.",
    floats=_product,
    reference=np.multiply,
    then=RECTIFIED_SUM,
    dtypes=dict.fromkeys((M200, C220), FLOATS),
    archs=frozenset({M200, C220}),
    call=30,
    step=6000,
)
