"""MulAddRelu: Relu of the result times a vector plus a vector (FusedMulAddRelu); half and float."""

from __future__ import annotations

from npu_sim.isa.sums import RECTIFIED_SUM, sum_with_product

INSTRUCTION = sum_with_product(
    "MulAddRelu", 95, "src0 dst src1", "dst[i] = max(src0[i] * dst[i] + src1[i], 0) in UB.", RECTIFIED_SUM
)
