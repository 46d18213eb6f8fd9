"""Composite vector instructions of a product: its sum with a third operand, and the Relu of that.

ASSUMED: the product is rounded to the type before it is added (documented is that it overflows by itself).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200
from npu_sim.isa.elementwise import Operands, elementwise
from npu_sim.isa.instruction import FLOATS, Elementwise, Instruction


@jit
def _product(x, y):  # type: ignore[no-untyped-def]
    return x * y


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


CALL, STEP = 30, 6000
"""Cycles of a call, and thousandths of them of a repeat."""
SUM = Elementwise(floats=_sum, reference=np.add)
RECTIFIED_SUM = Elementwise(floats=_rectified_sum, reference=_rectified)


def sum_with_product(name: str, op: int, operands: Operands, documentation: str, then: Elementwise) -> Instruction:
    """Return the instruction that makes ``then`` of the product of the first two operands and the third."""
    return elementwise(
        name,
        op,
        operands,
        documentation,
        floats=_product,
        reference=np.multiply,
        then=then,
        dtypes=dict.fromkeys((M200, C220), FLOATS),
        call=CALL,
        step=STEP,
    )
