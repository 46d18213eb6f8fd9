"""AddReluCast: Relu of sums of two vectors, in a narrower type. ASSUMED: in the time of Add."""

from __future__ import annotations

from npu_sim.isa.casts_of_results import relu_cast

INSTRUCTION = relu_cast("add_relu_cast", 48, "+", "AddReluCast")
