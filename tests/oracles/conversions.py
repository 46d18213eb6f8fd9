"""Vector instructions whose results are of another type than their sources, by their definition in NumPy."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.op import Data, Op, Space
from tests.oracles.masked import ITEM, reads_result
from tests.oracles.packing import pack
from tests.oracles.rounding import FP16

_REDUCED = ((Data.FP32, Data.FP16), (Data.FP16, Data.INT8), (Data.INT16, Data.INT8))
TYPES = {
    Op.CAST_DEQ: ((Data.INT32, Data.FP16),),
    Op.AXPY_MIXED: ((Data.FP16, Data.FP32),),
    Op.MUL_ADD_DST_MIXED: ((Data.FP16, Data.FP32),),
    Op.ADD_RELU_CAST: _REDUCED,
    Op.SUB_RELU_CAST: _REDUCED,
    Op.MUL_CAST: ((Data.FP16, Data.INT8), (Data.FP16, Data.UINT8)),
}
"""Types of sources and result of the count forms."""
_NUMPY = {
    Data.FP16: np.float16, Data.FP32: np.float32, Data.INT8: np.int8, Data.UINT8: np.uint8, Data.INT16: np.int16,
    Data.INT32: np.int32,
}  # fmt: skip


def types_of(op):
    """Return the pairs of a count form or of its general form, or None for other instructions."""
    return TYPES.get(op, TYPES.get(op - 128))


def _to_integer(values, dst):
    limits = np.iinfo(_NUMPY[dst])
    return np.clip(np.rint(np.nan_to_num(values, nan=0, posinf=1e9, neginf=-1e9)), limits.min, limits.max)


def _as_half(values, saturate):
    return pack(values, FP16, "RINT", saturate)


def _sum_or_difference(op, x, y, src, dst, saturate):
    if src == Data.INT16:
        total = np.clip(x + y if op == Op.ADD_RELU_CAST else x - y, -(2**15), 2**15 - 1)
        return np.clip(total, 0, 127).astype(np.int8).view(np.uint8)
    if src == Data.FP32:
        x, y = x.astype(np.float32), y.astype(np.float32)
    total = (x + y if op == Op.ADD_RELU_CAST else x - y).astype(np.float64)
    if src == Data.FP32:
        return _as_half(np.where(total > 0, total, 0), saturate)
    half = _as_half(total, saturate).view(np.float16).astype(np.float64)
    return np.maximum(_to_integer(half, dst), 0).astype(np.int8).view(np.uint8)


@np.errstate(all="ignore")
def run(row, machine, saturate):
    """Carry out a count form."""
    op, src, dst, count = Op(row["op"]), Data(row["dtype"]), Data(row["dst_dtype"]), int(row["count"])
    load = lambda name, kind: machine.load(Space.UB, int(row[name]), count * ITEM[kind]).view(_NUMPY[kind])  # noqa: E731
    wide = np.float64 if src in (Data.FP16, Data.FP32) else np.int64
    x = load("src0", src).astype(wide)
    scalar = np.array([int(row["value"]) % 2**16], np.uint16).view(np.float16).astype(np.float64)
    y = load("src1", src).astype(wide) if op not in (Op.CAST_DEQ, Op.AXPY_MIXED) else scalar
    if op == Op.CAST_DEQ:  # 24 bits times 11 are exact in double
        products = (x.astype(np.float32).astype(np.float64) * y).astype(np.float32)
        result = _as_half(products.astype(np.float64), saturate)
    elif reads_result(row):  # 22 bits plus 24 may be more than double has: the exact product is a float
        result = ((x * y).astype(np.float32) + load("dst", dst)).view(np.uint8)
    elif op == Op.MUL_CAST:
        half = _as_half(x * y, saturate).view(np.float16).astype(np.float64)
        result = _to_integer(half, dst).astype(_NUMPY[dst]).view(np.uint8)
    else:
        result = _sum_or_difference(op, x, y, src, dst, saturate)
    machine.store(Space.UB, int(row["dst"]), result)
