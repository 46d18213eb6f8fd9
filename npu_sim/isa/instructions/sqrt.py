"""Sqrt: square roots of half or float; of -0 it is -0, of less NaN.

ASSUMED: correctly rounded. The page prints 256.0 for 65504 of half and 1.8446744e19 for the largest float,
both one unit above.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS


@jit
def _floats(x):
    return np.sqrt(x)


INSTRUCTION = elementwise(
    "Sqrt",
    32,
    "src",
    "dst[i] = square root of src[i] in UB; half and float.",
    floats=_floats,
    reference=np.sqrt,
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    call=39,
    step=2000,
    common=True,
)
