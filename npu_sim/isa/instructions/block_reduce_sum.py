"""BlockReduceSum: every block of 32 bytes becomes the sum of its elements under the vector mask."""

from __future__ import annotations

from npu_sim.isa.reductions import reduction_of_blocks, run_of_unit_sums

INSTRUCTION = reduction_of_blocks("BlockReduceSum", 72, "the sum", run_of_unit_sums(pairs=False))
