"""Ln: natural logarithms of half or float; -inf of zeros, NaN of what is less.

ASSUMED: correctly rounded. What silicon gives is published nowhere. A repeat of float takes two
cycles (measured), one of half four and is timed like one of float.
"""

from __future__ import annotations

import numpy as np

from npu_sim.isa.codes import ARCHS
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS
from npu_sim.isa.transcendental import ln32, ln_for_half

INSTRUCTION = elementwise(
    "Ln",
    36,
    "src",
    "dst[i] = natural logarithm of src[i] in UB; half and float.",
    floats=ln32,
    halves=ln_for_half,
    reference=lambda x: np.log(x.astype(np.float64)),
    dtypes=dict.fromkeys(ARCHS, FLOATS),
    call=32,
    step=2000,
    common=True,
)
