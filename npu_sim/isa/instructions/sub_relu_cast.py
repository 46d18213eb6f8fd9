"""SubReluCast: Relu of differences of two vectors, in a narrower type. ASSUMED: in the time of Sub."""

from __future__ import annotations

from npu_sim.isa.casts_of_results import relu_cast

INSTRUCTION = relu_cast("sub_relu_cast", 49, "-", "SubReluCast")
