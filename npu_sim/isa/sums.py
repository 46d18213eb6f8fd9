"""What composite vector instructions make of a product: a sum with a third operand, and its Relu."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.instruction import Elementwise


@jit
def _sum(x, y):  # type: ignore[no-untyped-def]
    return x + y


@jit
def _rectified_sum(x, y):  # type: ignore[no-untyped-def]
    total = x + y
    return total if total > 0 or total != total else np.float32(0)


def _rectified(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    total = x + y
    return np.where(np.isnan(total) | (total > 0), total, 0)


SUM = Elementwise(floats=_sum, reference=np.add)
RECTIFIED_SUM = Elementwise(floats=_rectified_sum, reference=_rectified)
