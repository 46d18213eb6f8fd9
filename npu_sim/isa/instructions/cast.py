"""Cast: elements of UB from one type to another, with a rounding mode."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.bulk_jit import decode_bf16, decode_fp16, encode_bf16, encode_fp16
from npu_sim.dtypes.cast_jit import cast_in_place
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.codes import C100, C220, M200, Data
from npu_sim.isa.cost_vector import block_conflicts, whole_vector
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import COUNT, DEVKIT, Index, Instruction, Rows
from npu_sim.isa.mask import masked_boxes
from npu_sim.isa.masked import masked_form, masked_occupancy
from npu_sim.isa.masked_check import check_strides
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE, item_bytes
from npu_sim.isa.names import type_name
from npu_sim.isa.vector_values import PIECE, read_elements, write_elements
from npu_sim.reinterpret import reinterpret

OP = 19


emit_cast = vector_emitter(
    "cast",
    OP,
    "dst src=src0 src_dtype=dtype dst_dtype round_mode count",
    "Cast: ``count`` elements of UB from ``src_dtype`` to ``dst_dtype`` with a `dtypes.RoundMode`.",
)


@jit
def footprint(row, out):
    """Consecutive elements of two types."""
    count = np.int64(row["count"])
    src_bytes, dst_bytes = count * item_bytes(row["dtype"]), count * item_bytes(row["dst_dtype"])
    boxes = line(out, NONE, UB, READ, np.int64(row["src0"]), src_bytes, ONCE, NONE)
    return line(out, boxes, UB, WRITE, np.int64(row["dst"]), dst_bytes, ONCE, NONE)


@jit
def _convert(ub, row, staging, saturate):
    """Cast: ``count`` elements from ``dtype`` to ``dst_dtype`` with ``round_mode``."""
    src, dst = row["dtype"], row["dst_dtype"]
    mode = row["round_mode"]
    count = np.int64(row["count"])
    src_item, dst_item = item_bytes(src), item_bytes(dst)
    d, a = np.int64(row["dst"]), np.int64(row["src0"])
    source, target = ub[a : a + count * src_item], ub[d : d + count * dst_item]
    if src == Data.FP32 and dst == Data.FP16:
        encode_fp16(reinterpret(source, np.uint32), reinterpret(target, np.uint16), mode, saturate)
    elif src == Data.FP32 and dst == Data.BF16:
        encode_bf16(reinterpret(source, np.uint32), reinterpret(target, np.uint16), mode, saturate)
    elif src == Data.FP16 and dst == Data.FP32:
        decode_fp16(reinterpret(source, np.uint16), reinterpret(target, np.uint32))
    elif src == Data.BF16 and dst == Data.FP32:
        decode_bf16(reinterpret(source, np.uint16), reinterpret(target, np.uint32))
    else:
        integers = reinterpret(staging[: 2 * PIECE], np.int64)
        for first in range(0, count, PIECE):
            values = integers[: min(count - first, PIECE)]
            read_elements(ub, a + first * src_item, src, values)
            cast_in_place(values, src, dst, mode, saturate)
            write_elements(ub, d + first * dst_item, dst, values)


@jit
def run(row, ub, staging, config):
    """Convert; both types must be named."""
    if row["dtype"] == Data.NONE or row["dst_dtype"] == Data.NONE:
        return False
    _convert(ub, row, staging, config[3])
    return True


@jit
def footprint_masked(row, out):
    """Lanes of two types."""
    src, dst = item_bytes(row["dtype"]), item_bytes(row["dst_dtype"])
    wide = max(src, dst)
    boxes = masked_boxes(out, NONE, READ, row["src0"], src, wide, row["src_blk_stride"], row["src_rep_stride"], row)
    return masked_boxes(out, boxes, WRITE, row["dst"], dst, wide, row["dst_blk_stride"], row["dst_rep_stride"], row)


@jit
def cost_masked(row, cost):
    """Repeats of the wider type at the step of the unit."""
    src, dst = np.int64(item_bytes(row["dtype"])), np.int64(item_bytes(row["dst_dtype"]))
    groups = cost["ub_bank_groups"]
    conflicts = max(block_conflicts(row["dst_blk_stride"], groups), block_conflicts(row["src_blk_stride"], groups))
    step = max(cost["vector_step_millicycles"], 1000 * conflicts)
    return masked_occupancy(row, max(src, dst), dst, step, cost["vector_cast_cycles"], cost)


@jit
def cost(row, cost):
    """Repeats of the wider type at the step of the unit."""
    size, target = np.int64(item_bytes(row["dtype"])), np.int64(item_bytes(row["dst_dtype"]))
    count = np.int64(row["count"])
    step, call = cost["vector_step_millicycles"], cost["vector_cast_cycles"]
    return whole_vector(count, max(size, target), step, call, count * target, cost)


_NONE_ONLY = frozenset({RoundMode.NONE})
_DIRECTED = frozenset({RoundMode.FLOOR, RoundMode.CEIL, RoundMode.ROUND, RoundMode.TRUNC})
_NEAREST = _DIRECTED | {RoundMode.RINT}
_ALL_MODES = _NEAREST | {RoundMode.NONE, RoundMode.ODD}
_Conversions = dict[tuple[Data, Data], frozenset[RoundMode]]
_CASTS_C100: _Conversions = {
    (Data.FP16, Data.FP32): _NONE_ONLY,
    (Data.FP32, Data.FP16): _NONE_ONLY | {RoundMode.ODD},
    (Data.FP32, Data.INT32): _NEAREST,
    (Data.FP16, Data.INT32): _NEAREST,
    (Data.FP16, Data.INT8): _NONE_ONLY | _DIRECTED,
    (Data.FP16, Data.UINT8): _NONE_ONLY | _DIRECTED,
    (Data.INT8, Data.FP16): _NONE_ONLY,
    (Data.UINT8, Data.FP16): _NONE_ONLY,
    (Data.INT32, Data.FP32): _NONE_ONLY,
}
_CASTS_C220: _Conversions = {
    **_CASTS_C100,
    (Data.FP32, Data.FP16): _ALL_MODES,
    (Data.FP32, Data.BF16): _NEAREST,
    (Data.BF16, Data.FP32): _NONE_ONLY,
    (Data.FP32, Data.FP32): _NEAREST,
    (Data.FP16, Data.INT8): _NONE_ONLY | _NEAREST,
    (Data.FP16, Data.UINT8): _NONE_ONLY | _NEAREST,
    (Data.FP16, Data.INT16): _NEAREST,
    (Data.INT16, Data.FP16): _NONE_ONLY | _NEAREST,
    (Data.INT32, Data.FP32): _NONE_ONLY | _NEAREST,
    (Data.BF16, Data.INT32): _NEAREST,
    (Data.FP32, Data.INT16): _NEAREST,
    (Data.FP32, Data.INT64): _NEAREST,
    (Data.INT16, Data.FP32): _NONE_ONLY,
    (Data.INT32, Data.INT16): _NONE_ONLY,
    (Data.INT32, Data.INT64): _NONE_ONLY,
    (Data.INT64, Data.INT32): _NONE_ONLY,
    (Data.INT64, Data.FP32): _NEAREST,
}
CASTS: dict[str, _Conversions] = {
    C100: _CASTS_C100,
    M200: {
        **_CASTS_C100,
        (Data.FP16, Data.INT16): frozenset({RoundMode.RINT}),
        (Data.INT16, Data.FP16): _NONE_ONLY,
    },
    C220: _CASTS_C220,
}
"""Rounding modes of Cast by architecture and (source, destination) type; those of int4 are not here."""


def check(chunk: Rows, index: Index) -> None:
    src, dst = chunk.column(index, "dtype"), chunk.column(index, "dst_dtype")
    modes = chunk.column(index, "round_mode")
    allowed = [(s * 256 + d) * 256 + mode for (s, d), legal in CASTS[chunk.product.arch].items() for mode in legal]
    bad = ~np.isin((src * 256 + dst) * 256 + modes, allowed)

    def text(row: np.void) -> str:
        mode = int(row["round_mode"])
        name = RoundMode(mode).name if mode in RoundMode._value2member_map_ else str(mode)
        types = f"{type_name(int(row['dtype']))}->{type_name(int(row['dst_dtype']))}"
        return f"must be a conversion of {chunk.product.arch}, not {types} with {name}"

    chunk.unsupported(index, bad, text)


def check_masked(chunk: Rows, index: Index) -> None:
    check(chunk, index)
    check_strides(chunk, index, 1, dst_items=ITEM_BYTES_OF_CODE[chunk.column(index, "dst_dtype")])


INSTRUCTION = Instruction(
    api="Cast",
    emit=emit_cast,
    source=DEVKIT + "Cast, count style; dtype is the source type",
    ranges=COUNT,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"round_mode": RoundMode.NONE},
    masked=masked_form(
        "Cast",
        OP,
        1,
        "elements of UB from ``src_dtype`` to ``dst_dtype`` with a `dtypes.RoundMode`.",
        dtypes={},
        parameters="src_dtype=dtype dst_dtype round_mode repeat",
        footprint=footprint_masked,
        cost=cost_masked,
        check=check_masked,
        defaults={"round_mode": RoundMode.NONE},
    ),
)
