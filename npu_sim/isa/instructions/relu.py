"""Relu: negative elements of half, float or int32 become +0; so does -0, and a NaN stays one."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C100, C220, M200, Data
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS, HALF, Elementwise


@jit
def _floats(x):
    return x if x > 0 or x != x else np.float32(0)


@jit
def _integers(x):
    return max(x, np.int64(0))


def _rectified(x):
    return np.where(np.isnan(x) | (x > 0), x, 0).astype(x.dtype)


RELU = Elementwise(floats=_floats, integers=_integers, reference=_rectified)

INSTRUCTION = elementwise(
    "Relu",
    31,
    "src",
    "dst[i] = max(src[i], 0) in UB.",
    floats=_floats,
    integers=_integers,
    reference=_rectified,
    dtypes={C100: HALF, M200: FLOATS | {Data.INT32}, C220: FLOATS | {Data.INT32}},
    call="vector_duplicate_cycles",
    common=True,
)
