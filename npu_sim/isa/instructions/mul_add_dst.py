"""MulAddDst: products added to the result; half and float."""

from __future__ import annotations

from npu_sim.isa.sums import SUM, sum_with_product

INSTRUCTION = sum_with_product("MulAddDst", 93, "src0 src1 dst", "dst[i] = src0[i] * src1[i] + dst[i] in UB.", SUM)
