"""CastDequant of int16 by one scale and offset."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import dequantising
from npu_sim.isa.codes import Data
from npu_sim.isa.emitter import masked_emitter
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.instructions.fixpipe_quant import scale_in
from npu_sim.isa.mask import block_bits

OP = 246


emit_cast_dequant = masked_emitter(
    "cast_dequant",
    OP,
    f"dst src=src0 {dequantising.TYPES} {dequantising.STEPS} value_bits=value offset",
    """CastDequant: lanes of int16 under the mask times a scale plus ``offset``, in 8 bits, which clamp.

``value_bits`` is the float scale, of which 10 bits of the mantissa count, ``offset`` has 9 bits; ``dst_dtype`` int8 is
signMode true, uint8 false. The results of a block go to the low half of one of ``dst``, or to the high half where
``half_block`` is 1; the other half stays. ASSUMED: one rounding, to the nearest even integer; NaN gives 0.""",
)


@jit
def footprint(row, out):
    """Lanes of both operands."""
    return dequantising.written_lanes(row, out, dequantising.read_lanes(row, out))


@jit
def run(row, ub):
    """Read all lanes of a repeat before any result is written."""
    values = np.zeros(128, np.int64)
    scale, is_signed = scale_in(np.int64(row["value"])), row["dst_dtype"] == Data.INT8
    for r in range(dequantising.repeats_that_differ(row)):
        low, high = dequantising.take_lanes(ub, row, r, values)
        for lane in range(len(values)):
            if block_bits(low, high, lane, 1) != 0:
                ub[dequantising.byte_of(row, r, lane)] = dequantising.dequantised(
                    values[lane], scale, np.int64(row["offset"]), is_signed
                )
    return True


INSTRUCTION = Instruction(
    api="CastDequant",
    emit=emit_cast_dequant,
    source=dequantising.SOURCE,
    ranges=(*dequantising.RANGES, ("offset", -256, 255)),
    dtypes=dequantising.DTYPES,
    dst_dtypes=dequantising.DST_DTYPES,
    scalar_type=Data.FP32,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=dequantising.cost,
    check=dequantising.check,
    defaults={**dequantising.DEFAULTS, "half_block": 0, "offset": 0},
)
