"""ShiftLeft of uint16_t and uint32_t, by a scalar; what leaves the type is dropped.

A row names the signed type of the size, as elements without a sign have no type of their own here.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data
from npu_sim.isa.elementwise import elementwise


@jit
def _integers(x, y):
    # the amount is at most the width of the type
    return x << min(max(y, np.int64(0)), np.int64(32))


def _reference(x, y):
    return x * 2 ** np.clip(y, 0, 32)


INSTRUCTION = elementwise(
    "ShiftLeftLogical",
    109,
    "src value",
    "dst[i] = src[i] << value in UB, filled with zeros (ShiftLeft of unsigned types); ``value_bits`` is the amount, 0 "
    "to the bits of ``dtype``.",
    integers=_integers,
    reference=_reference,
    dtypes={C220: frozenset({Data.INT16, Data.INT32})},
    is_amount=True,
    is_unsigned=True,
    call="vector_muls_cycles",
)
