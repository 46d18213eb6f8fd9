"""ShiftLeft of uint16_t and uint32_t, by a scalar; what leaves the type is dropped.

A row names the signed type of the size, as elements without a sign have no type of their own here.
"""

from __future__ import annotations

from npu_sim.isa.codes import C220, Data
from npu_sim.isa.elementwise import elementwise
from npu_sim.isa.instructions.shift_left import shifted_left, shifted_left_of

INSTRUCTION = elementwise(
    "ShiftLeftLogical",
    109,
    "src value",
    "dst[i] = src[i] << value in UB, filled with zeros (ShiftLeft of unsigned types); ``value_bits`` is the amount, 0 "
    "to the bits of ``dtype``.",
    integers=shifted_left,
    reference=shifted_left_of,
    dtypes={C220: frozenset({Data.INT16, Data.INT32})},
    is_amount=True,
    is_unsigned=True,
    call="vector_muls_cycles",
)
