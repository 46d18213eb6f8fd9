"""ShiftRight: int16 or int32 shifted right by a scalar; the sign fills.

Unsigned types are `shift_right_logical`; rounding (roundEn) is not here.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data
from npu_sim.isa.elementwise import elementwise


@jit
def _integers(x, y):
    # the amount is at most the width of the type, which leaves the sign alone
    return x >> min(max(y, np.int64(0)), np.int64(63))


def _reference(x, y):
    return np.floor_divide(x, 2 ** np.clip(y, 0, 62))


INSTRUCTION = elementwise(
    "ShiftRight",
    88,
    "src value",
    "dst[i] = src[i] >> value in UB; ``value_bits`` is the amount, 0 to the bits of ``dtype``.",
    integers=_integers,
    reference=_reference,
    dtypes={C220: frozenset({Data.INT16, Data.INT32})},
    is_amount=True,
    call="vector_muls_cycles",
)
