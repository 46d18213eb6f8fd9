"""FusedMulAdd: the result times a vector plus a vector, in two roundings; half and float."""

from __future__ import annotations

from npu_sim.isa.sums import SUM, sum_with_product

INSTRUCTION = sum_with_product("FusedMulAdd", 94, "src0 dst src1", "dst[i] = src0[i] * dst[i] + src1[i] in UB.", SUM)
