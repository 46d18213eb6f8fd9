"""CastDequant of int16 by 16 scales and offsets, one for each element of a block (isVecDeq)."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import dequantising
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, line
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.instructions.fixpipe_quant import scale_in
from npu_sim.isa.mask import block_bits
from npu_sim.reinterpret import reinterpret

OP = 247
_WORD = 8
_OFFSET_AT, _SIGN_AT = 37, 46
"""First bits of offset and signMode in a word; its low half is the scale."""


emit_cast_dequant_vector = masked_emitter(
    "cast_dequant_vector",
    OP,
    f"dst src=src0 src1 {dequantising.TYPES} {dequantising.STEPS}",
    """CastDequant, isVecDeq: as `emit_cast_dequant`, element i of each block by word i of the 16 at ``src1``.

A word of 64 bits has the scale in bits 0 to 31, the offset in 37 to 45, signMode in 46. ASSUMED: where ``dst_dtype``
and signMode do not agree, signMode decides; all 16 words are read whatever the mask is.""",
)


@jit
def footprint(row, out):
    """Lanes, and the words."""
    count = dequantising.read_lanes(row, out)
    if count > 0:
        count = line(out, count, UB, READ, np.int64(row["src1"]), np.int64(dequantising.PER_BLOCK * _WORD), ONCE, NONE)
    return dequantising.written_lanes(row, out, count)


@jit
def run(row, ub):
    """Read words, and all lanes of a repeat, before any result is written."""
    values = np.zeros(128, np.int64)
    first = np.int64(row["src1"])
    repeats = dequantising.repeats_that_differ(row)
    words = reinterpret(ub[first : first + dequantising.PER_BLOCK * _WORD], np.int64).copy() if repeats > 0 else values
    for r in range(repeats):
        low, high = dequantising.take_lanes(ub, row, r, values)
        for lane in range(len(values)):
            if block_bits(low, high, lane, 1) == 0:
                continue
            word = words[lane % dequantising.PER_BLOCK]
            offset = (((word >> _OFFSET_AT) & 0x1FF) ^ 0x100) - 0x100
            is_signed = (word >> _SIGN_AT) & 1 != 0
            ub[dequantising.byte_of(row, r, lane)] = dequantising.dequantised(
                values[lane], scale_in(word & 0xFFFFFFFF), offset, is_signed
            )
    return True


INSTRUCTION = Instruction(
    api="CastDequant",
    emit=emit_cast_dequant_vector,
    source=dequantising.SOURCE,
    ranges=dequantising.RANGES,
    dtypes=dequantising.DTYPES,
    dst_dtypes=dequantising.DST_DTYPES,
    own_types=("src1",),
    unit="vector",
    footprint=footprint,
    run=run,
    cost=dequantising.cost,
    check=dequantising.check,
    defaults={**dequantising.DEFAULTS, "half_block": 0},
)
