"""Cast of half to int4, two to a byte."""

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
from npu_sim.isa.vector_values import read_element

OP = 244
_LEAST, _LARGEST = -8, 7
_MODES = tuple(int(mode) for mode in RoundMode if mode != RoundMode.ODD)


emit_cast_to_int4 = masked_emitter(
    "cast_to_int4",
    OP,
    int4.OPERANDS,
    "Cast: elements of half under the mask to int4, which clamps, two to a byte; ``round_mode`` as of Cast to int8.",
)


@jit
def run(row, ub, config):
    """Round as to int8, then clamp."""
    for r in range(int4.repeats_that_differ(row)):
        low, high = mask_of_repeat(row, r, int4.LANES)
        for lane in range(int4.LANES):
            if block_bits(low, high, lane, 1) == 0:
                continue
            at = int4.half_at(row["src0"], row["src_blk_stride"], row["src_rep_stride"], r, lane)
            bits = read_element(ub, at, Data.FP16)
            value = cast_scalar(bits, Data.FP16, Data.INT8, row["round_mode"], config[3])
            value = min(max(value, np.int64(_LEAST)), np.int64(_LARGEST)) & 15
            at = int4.byte_at(row["dst"], row["dst_blk_stride"], row["dst_rep_stride"], r, lane)
            shift = np.int64(lane % 2 * 4)
            ub[at] = (np.int64(ub[at]) & ~(np.int64(15) << shift)) | (value << shift)
    return True


def check(chunk: Rows, index: Index) -> None:
    int4.check(chunk, index)
    bad = ~np.isin(chunk.column(index, "round_mode"), _MODES)
    chunk.rule(index, bad, "round_mode", "RINT, FLOOR, CEIL, ROUND, TRUNC or NONE")


INSTRUCTION = Instruction(
    api="Cast",
    emit=emit_cast_to_int4,
    source=int4.SOURCE,
    archs=int4.ARCHS,
    ranges=int4.RANGES,
    unit="vector",
    footprint=int4.footprint_to,
    run=run,
    cost=int4.cost,
    check=check,
    defaults={"round_mode": RoundMode.NONE, **int4.STRIDES, "dst_rep_stride": 2},
)
