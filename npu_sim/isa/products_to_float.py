"""Products of two halves added to floats: the product is exact, the sum is rounded once."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Data
from npu_sim.isa.vector_values import widen

HALF_TO_FLOAT = frozenset({(Data.FP16, Data.FP32)})


@jit
def add_product(x, y, z, src, dst, saturate):  # type: ignore[no-untyped-def]
    """Return z + x * y."""
    total = widen(x, Data.FP16) * widen(y & 0xFFFF, Data.FP16) + np.uint32(z).view(np.float32)
    return np.int64(np.float32(total).view(np.uint32))
