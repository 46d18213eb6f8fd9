"""Max: the larger of two elements; a NaN goes through, and +0 is above -0."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import ARITHMETIC


@jit
def larger_float(x, y):
    """Return the larger of two float32; NaN if one is, +0 above -0."""
    # equal numbers differ in the sign of zero alone
    same = np.uint32(np.float32(x).view(np.uint32) & np.float32(y).view(np.uint32)).view(np.float32)
    larger = x if x > y else y
    larger = same if x == y else larger
    return larger if x == x and y == y else x + y


@jit
def _integers(x, y):
    return max(x, y)


def larger_of(x, y):
    """Return the maximum as IEEE 754-2019 defines it: NaN if one is, +0 above -0."""
    larger = np.maximum(x, y)
    if larger.dtype.kind == "f":
        larger = np.where((x == 0) & (y == 0), x + y, larger)  # -0 only of two -0
    return larger


INSTRUCTION = elementwise(
    "Max",
    25,
    "src0 src1",
    "dst[i] = the larger of src0[i] and src1[i] in UB.",
    floats=larger_float,
    integers=_integers,
    reference=larger_of,
    dtypes=ARITHMETIC,
    call="vector_add_cycles",
    accumulates=True,
    common=True,
)
