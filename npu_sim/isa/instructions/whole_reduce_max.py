"""WholeReduceMax, the value alone: every repeat of 256 bytes becomes its largest element under a mask."""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.codes import C220
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.instruction import DEVKIT, FLOATS, ITEM, Instruction
from npu_sim.isa.instructions.reduce_repeat import DEFAULTS, RANGES, check_mask, cost, fold_leading, footprint
from npu_sim.isa.reductions import extreme_of_repeats

OP = 38


emit_whole_reduce_max = vector_emitter(
    "whole_reduce_max",
    OP,
    "dst src=src0 dtype mask repeat dst_rep_stride src_blk_stride src_rep_stride",
    """WholeReduceMax, ONLY_VALUE: each repeat of 256 bytes becomes one element, the largest of its first ``mask``.

``dst_rep_stride`` in elements, ``src_blk_stride`` (between the 8 blocks of a repeat) and ``src_rep_stride`` in
32-byte blocks. A NaN wins; +0 is above -0.""",
)


@jit
def run(row, ub, staging, config):
    """Compare floats."""
    return fold_leading(row, ub, staging, config, True)


_MASKED = extreme_of_repeats("WholeReduceMax", 166, "whole_reduce_max_masked", largest=True)

INSTRUCTION = Instruction(
    api="WholeReduceMax",
    emit=emit_whole_reduce_max,
    source=DEVKIT + "WholeReduceMax with ORDER_ONLY_VALUE (A2 and A3), mask of leading elements",
    ranges=RANGES,
    dtypes={C220: FLOATS},
    alignment={"dst": ITEM},
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check_mask,
    masked=_MASKED,
    defaults=DEFAULTS,
)
