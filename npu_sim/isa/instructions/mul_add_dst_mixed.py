"""MulAddDst of half into float. ASSUMED: in the time of MulAddDst."""

from __future__ import annotations

from npu_sim.isa.codes import C220, M200
from npu_sim.isa.converting import converting
from npu_sim.isa.products_to_float import HALF_TO_FLOAT, add_product
from npu_sim.isa.sums import CALL, STEP

INSTRUCTION = converting(
    "mul_add_dst_mixed",
    47,
    "src0 src1 dst",
    "dst[i] = src0[i] * src1[i] + dst[i] in UB; products of half, the result is float.",
    api="MulAddDst",
    element=add_product,
    pairs=dict.fromkeys((M200, C220), HALF_TO_FLOAT),
    call=CALL,
    step=STEP,
)
