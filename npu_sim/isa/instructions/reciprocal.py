"""Reciprocal: 1 / x of half or float; of a zero it is an infinity with its sign.

ASSUMED: correctly rounded. The hardware looks its values up in a table; the page advises Div where 1e-3 matters.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS


@jit
def _floats(x):
    return np.float32(1) / x


INSTRUCTION = elementwise(
    "Reciprocal",
    83,
    "src",
    "dst[i] = 1 / src[i] in UB; half and float.",
    floats=_floats,
    reference=np.reciprocal,
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    call=24,
)
