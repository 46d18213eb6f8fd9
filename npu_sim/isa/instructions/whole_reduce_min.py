"""WholeReduceMin: every repeat of 256 bytes becomes its smallest element under the vector mask."""

from __future__ import annotations

from npu_sim.isa.reductions import extreme_of_repeats

INSTRUCTION = extreme_of_repeats("WholeReduceMin", 71, "whole_reduce_min", largest=False)
