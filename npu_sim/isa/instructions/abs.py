"""Abs: magnitudes of half, float or (not on dav-c100) int16; a NaN keeps its payload."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C100, C220, M200, Data
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS


@jit
def _floats(x):
    # clears the sign, of a NaN too (edge cases of the Abs page)
    return np.uint32(np.float32(x).view(np.uint32) & np.uint32(0x7FFFFFFF)).view(np.float32)


@jit
def _integers(x):
    return abs(x)


INSTRUCTION = elementwise(
    "Abs",
    30,
    "src",
    "dst[i] = |src[i]| in UB.",
    floats=_floats,
    integers=_integers,
    reference=np.abs,
    dtypes={C100: FLOATS, M200: FLOATS | {Data.INT16}, C220: FLOATS | {Data.INT16}},
    call="vector_duplicate_cycles",
    common=True,
)
