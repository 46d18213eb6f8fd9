"""Axpy of half into float. ASSUMED: in the time of Axpy."""

from __future__ import annotations

from npu_sim.isa.codes import ARCHS
from npu_sim.isa.converting import converting
from npu_sim.isa.products_to_float import HALF_TO_FLOAT, add_product

INSTRUCTION = converting(
    "axpy_mixed",
    46,
    "src value dst",
    "dst[i] = value * src[i] + dst[i] in UB; ``value_bits`` is a pattern of half, as the source; the result is float.",
    api="Axpy",
    element=add_product,
    pairs=dict.fromkeys(ARCHS, HALF_TO_FLOAT),
    call="vector_add_cycles",
)
