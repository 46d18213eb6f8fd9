"""BlockReduceMin: every block of 32 bytes becomes the smallest of its elements under the vector mask."""

from __future__ import annotations

from npu_sim.isa.reductions import reduction_of_blocks, run_of_block_extremes

INSTRUCTION = reduction_of_blocks("BlockReduceMin", 74, "the smallest", run_of_block_extremes(largest=False))
