"""Cast of int4, two to a byte, to half."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import cast_scalar
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa import int4
from npu_sim.isa.codes import Data
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.instruction import Index, Instruction, Rows
from npu_sim.isa.mask import block_bits, mask_of_repeat
from npu_sim.isa.vector_values import write_element

OP = 245


emit_cast_from_int4 = masked_emitter(
    "cast_from_int4",
    OP,
    int4.OPERANDS,
    "Cast: elements of int4 under the mask, two to a byte, to half; ``round_mode`` NONE.",
)


@jit
def run(row, ub):
    """Every value is one of half."""
    for r in range(int4.repeats_that_differ(row)):
        low, high = mask_of_repeat(row, r, int4.LANES)
        for lane in range(int4.LANES):
            if block_bits(low, high, lane, 1) == 0:
                continue
            at = int4.byte_at(row["src0"], row["src_blk_stride"], row["src_rep_stride"], r, lane)
            value = (np.int64(ub[at]) >> np.int64(lane % 2 * 4)) & 15
            value -= 16 * (value >> 3)
            at = int4.half_at(row["dst"], row["dst_blk_stride"], row["dst_rep_stride"], r, lane)
            write_element(ub, at, Data.FP16, cast_scalar(value, Data.INT8, Data.FP16, RoundMode.NONE, 0))
    return True


def check(chunk: Rows, index: Index) -> None:
    int4.check(chunk, index)
    chunk.rule(index, chunk.column(index, "round_mode") != RoundMode.NONE, "round_mode", "NONE")


INSTRUCTION = Instruction(
    api="Cast",
    emit=emit_cast_from_int4,
    source=int4.SOURCE,
    archs=int4.ARCHS,
    ranges=int4.RANGES,
    unit="vector",
    footprint=int4.footprint_from,
    run=run,
    cost=int4.cost,
    check=check,
    defaults={"round_mode": RoundMode.NONE, **int4.STRIDES, "src_rep_stride": 2},
)
