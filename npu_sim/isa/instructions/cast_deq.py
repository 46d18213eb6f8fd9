"""Cast of int32 to half with the scale of SetDeqScale. ASSUMED: in the time of the other casts."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C100, C220, M200, Data
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.instruction import COUNT, DEVKIT, Index, Instruction, Rows
from npu_sim.isa.instructions.cast import cost, cost_masked, footprint, footprint_masked
from npu_sim.isa.masked import masked_form
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE
from npu_sim.isa.names import type_name
from npu_sim.isa.vector_values import narrow, read_element, widen, write_element

OP = 45
_WIDE, _NARROW = 4, 2
_DTYPES = dict.fromkeys((C100, M200, C220), frozenset({Data.INT32}))
_DST_DTYPES = dict.fromkeys(_DTYPES, frozenset({Data.FP16}))
_DOES = (
    "elements of int32 times ``value_bits``, a pattern of half, to half: the integer and the product round to float."
)


emit_cast_deq = vector_emitter(
    "cast_deq",
    OP,
    "dst src=src0 src_dtype=dtype dst_dtype count value_bits=value",
    f"Cast: ``count`` {_DOES}",
)


@jit
def run(row, ub, config):
    """ASSUMED: float in between, as the general description of dequantisation has it."""
    if row["dtype"] != Data.INT32 or row["dst_dtype"] != Data.FP16:
        return False
    scale, a, d = widen(row["value"] & 0xFFFF, Data.FP16), np.int64(row["src0"]), np.int64(row["dst"])
    for i in range(np.int64(row["count"])):
        value = np.float32(read_element(ub, a + i * _WIDE, Data.INT32)) * scale
        write_element(ub, d + i * _NARROW, Data.FP16, narrow(value, Data.FP16, config[3]))
    return True


def check_masked(chunk: Rows, index: Index) -> None:
    bad = chunk.column(index, "dst_dtype") != Data.FP16
    chunk.unsupported(index, bad, lambda row: f"dst_dtype must be half, not {type_name(int(row['dst_dtype']))}")
    index = index[~bad]
    check_strides(chunk, index, 1, dst_items=ITEM_BYTES_OF_CODE[chunk.column(index, "dst_dtype")])


INSTRUCTION = Instruction(
    api="Cast",
    emit=emit_cast_deq,
    source=DEVKIT + "Cast, int32_t to half behind SetDeqScale, count style",
    ranges=COUNT,
    dtypes=_DTYPES,
    dst_dtypes=_DST_DTYPES,
    scalar_type=Data.FP16,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    masked=masked_form(
        "CastDeq",
        OP,
        1,
        _DOES,
        dtypes=_DTYPES,
        parameters="src_dtype=dtype dst_dtype repeat",
        tail="value_bits=value",
        footprint=footprint_masked,
        cost=cost_masked,
        check=check_masked,
    ),
)
