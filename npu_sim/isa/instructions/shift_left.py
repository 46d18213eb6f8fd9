"""ShiftLeft: int16 or int32 shifted left by a scalar; the sign bit stays.

That it stays is what the page says with both of its examples (0xAAAA by 1 is 0xD554, by 3 0xD550). Unsigned types are
`shift_left_logical`.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data
from npu_sim.isa.elementwise import elementwise


@jit
def shifted_left(x, y):
    """Return an integer shifted left by an amount."""
    # the amount is at most the width of the type
    return x << min(max(y, np.int64(0)), np.int64(32))


def shifted_left_of(x, y):
    """Return int64 shifted left by amounts."""
    return x * 2 ** np.clip(y, 0, 32)


INSTRUCTION = elementwise(
    "ShiftLeft",
    89,
    "src value",
    "dst[i] = src[i] << value below the sign bit, which stays, in UB; ``value_bits`` is the amount, 0 to the bits of "
    "``dtype``.",
    integers=shifted_left,
    reference=shifted_left_of,
    dtypes={C220: frozenset({Data.INT16, Data.INT32})},
    is_amount=True,
    keeps_sign=True,
    call="vector_muls_cycles",
)
