"""Min: the smaller of two elements; a NaN goes through, and -0 is below +0."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instruction import ARITHMETIC


@jit
def smaller_float(x, y):
    """Return the smaller of two float32; NaN if one is, -0 below +0."""
    # equal numbers differ in the sign of zero alone
    same = np.uint32(np.float32(x).view(np.uint32) | np.float32(y).view(np.uint32)).view(np.float32)
    smaller = x if x < y else y
    smaller = same if x == y else smaller
    return smaller if x == x and y == y else x + y


@jit
def _integers(x, y):
    return min(x, y)


def smaller_of(x, y):
    """Return the minimum as IEEE 754-2019 defines it: NaN if one is, -0 below +0."""
    smaller = np.minimum(x, y)
    if smaller.dtype.kind == "f":
        smaller = np.where((x == 0) & (y == 0), -(-x - y), smaller)  # +0 only of two +0
    return smaller


INSTRUCTION = elementwise(
    "Min",
    26,
    "src0 src1",
    "dst[i] = the smaller of src0[i] and src1[i] in UB.",
    floats=smaller_float,
    integers=_integers,
    reference=smaller_of,
    dtypes=ARITHMETIC,
    call="vector_add_cycles",
    accumulates=True,
    common=True,
)
