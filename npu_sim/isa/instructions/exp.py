"""Exp: e to the power of half or float.

ASSUMED: correctly rounded. What silicon gives is published nowhere. A repeat of float takes two
cycles (measured), one of half four by the documented rate and is timed like one of float.
"""

from __future__ import annotations

import numpy as np

from npu_sim.isa.codes import ARCHS
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS
from npu_sim.isa.transcendental import exp32, exp_for_half

INSTRUCTION = elementwise(
    "Exp",
    35,
    "src",
    "dst[i] = e to the power of src[i] in UB; half and float.",
    floats=exp32,
    halves=exp_for_half,
    reference=lambda x: np.exp(x.astype(np.float64)),
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    call=32,
    step=2000,
    common=True,
)
