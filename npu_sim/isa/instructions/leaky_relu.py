"""LeakyRelu: elements with a sign bit, -0 too, times a scalar; half and float."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import FLOATS


@jit
def _floats(x, y):
    # by the sign, as the edge cases of the page: -0 times -1 is +0, and +inf stays whatever the scalar is
    return x * y if np.float32(x).view(np.int32) < 0 else x


def _reference(x, y):
    return np.where(np.signbit(x), x * y, x)


INSTRUCTION = elementwise(
    "LeakyRelu",
    87,
    "src value",
    "dst[i] = src[i], times the scalar where it is negative, in UB; ``value_bits`` is its bit pattern in ``dtype``.",
    floats=_floats,
    reference=_reference,
    dtypes=dict.fromkeys((M200, C220), FLOATS),
    call=26,
)
