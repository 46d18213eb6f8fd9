"""Rsqrt: 1 / sqrt of half or float; of +0 inf, of -0 -inf, of less NaN.

ASSUMED: correctly rounded. The hardware looks its values up in a table; the page advises Sqrt and Div where 1e-3
matters. float64 is precise enough: one root alone lies within 8 units of float64 of a middle, and comes out right.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS
from npu_sim.isa.transcendental import to_odd


@jit
def _exactly(x):
    return 1.0 / np.sqrt(np.float64(x))


@jit
def _floats(x):
    return np.float32(_exactly(x))


@jit
def _halves(x):
    return to_odd(_exactly(x))


def _reference(x):
    return 1 / np.sqrt(x.astype(np.float64))


INSTRUCTION = elementwise(
    "Rsqrt",
    82,
    "src",
    "dst[i] = 1 / square root of src[i] in UB; half and float.",
    floats=_floats,
    halves=_halves,
    reference=_reference,
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    call=24,
)
