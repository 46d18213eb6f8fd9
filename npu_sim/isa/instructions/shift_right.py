"""ShiftRight: int16 or int32 shifted right by a scalar; the sign fills.

Unsigned types are `shift_right_logical`; rounding (roundEn) is not here.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data
from npu_sim.isa.elementwise import elementwise


@jit
def shifted_right(x, y):
    """Return an integer shifted right by an amount."""
    # the amount is at most the width of the type, which leaves the sign alone
    return x >> min(max(y, np.int64(0)), np.int64(63))


def shifted_right_of(x, y):
    """Return int64 shifted right by amounts."""
    return np.floor_divide(x, 2 ** np.clip(y, 0, 62))


INSTRUCTION = elementwise(
    "ShiftRight",
    88,
    "src value",
    "dst[i] = src[i] >> value in UB; ``value_bits`` is the amount, 0 to the bits of ``dtype``.",
    integers=shifted_right,
    reference=shifted_right_of,
    dtypes={C220: frozenset({Data.INT16, Data.INT32})},
    is_amount=True,
    call="vector_muls_cycles",
)
