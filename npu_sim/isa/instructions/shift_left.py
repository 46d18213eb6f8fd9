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
def _integers(x, y):
    # the amount is at most the width of the type
    return x << min(max(y, np.int64(0)), np.int64(32))


def _reference(x, y):
    return x * 2 ** np.clip(y, 0, 32)


INSTRUCTION = elementwise(
    "ShiftLeft",
    89,
    "src value",
    "dst[i] = src[i] << value below the sign bit, which stays, in UB; ``value_bits`` is the amount, 0 to the bits of "
    "``dtype``.",
    integers=_integers,
    reference=_reference,
    dtypes={C220: frozenset({Data.INT16, Data.INT32})},
    is_amount=True,
    keeps_sign=True,
    call="vector_muls_cycles",
)
