"""Semantics of the vector instructions (count style, operands in UB).

Half and bf16 arithmetic is rounded to its type once per instruction, float32 arithmetic is IEEE 754 with subnormals,
integers wrap around in INF_NAN mode and clamp in saturation mode (asc-devkit, boundary values of vector computation).
Cast modes: the Cast page and its precision conversion table.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.bulk_jit import decode_bf16, decode_fp16, encode_bf16, encode_fp16
from npu_sim.dtypes.convert_jit import bf16_to_fp32, cast_scalar, fp16_to_fp32, fp32_to_bf16, fp32_to_fp16
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Data, Op
from npu_sim.reinterpret import reinterpret

_PIECE = 1024
"""Elements that are decoded at a time; three pieces of float32 stay in the first cache."""


@jit
def duplicate(ub, row):
    """Duplicate: ``count`` elements of ``dtype`` get the bit pattern ``value``."""
    item = item_bytes(row["dtype"])
    at = np.int64(row["dst"])
    count = np.int64(row["count"])
    value = np.int64(row["value"])
    if item == 4:
        words = reinterpret(ub[at : at + 4 * count], np.uint32)
        words[:] = np.uint32(value & 0xFFFFFFFF)
    else:
        halves = reinterpret(ub[at : at + 2 * count], np.uint16)
        halves[:] = np.uint16(value & 0xFFFF)


@jit
def widen(bits, dtype):
    """Return a 16-bit float pattern as float32."""
    if dtype == Data.FP16:
        return np.uint32(fp16_to_fp32(bits)).view(np.float32)
    return np.uint32(bf16_to_fp32(bits)).view(np.float32)


@jit
def narrow(value, dtype, saturate):
    """Round a float32 to a 16-bit float pattern, ties to even."""
    word = np.float32(value).view(np.uint32)
    if dtype == Data.FP16:
        return fp32_to_fp16(word, 0, saturate)
    return fp32_to_bf16(word, 0, saturate)


@jit
def fit_integer(value, bits, saturate):
    """Return an int64 as a signed integer of ``bits`` bits: clamped in saturation mode, else its low bits."""
    half = np.int64(1) << np.int64(bits - 1)
    if saturate:
        return min(max(value, -half), half - 1)
    return ((value + half) & (2 * half - 1)) - half


@jit
def _combine_floats(op, dst, x, y):
    """Write ``x op y`` of float32 arrays to ``dst``; a NaN goes through Max and Min, and +0 is above -0 there."""
    if op == Op.ADD:
        for i in range(len(dst)):
            dst[i] = x[i] + y[i]
    elif op == Op.SUB:
        for i in range(len(dst)):
            dst[i] = x[i] - y[i]
    elif op == Op.MUL:
        for i in range(len(dst)):
            dst[i] = x[i] * y[i]
    elif op == Op.DIV:
        for i in range(len(dst)):
            dst[i] = x[i] / y[i]
    elif op == Op.MAX:
        for i in range(len(dst)):
            a, b = x[i], y[i]
            same = np.uint32(np.float32(a).view(np.uint32) & np.float32(b).view(np.uint32)).view(np.float32)
            larger = a if a > b else b
            larger = same if a == b else larger
            dst[i] = larger if a == a and b == b else a + b
    else:
        for i in range(len(dst)):
            a, b = x[i], y[i]
            same = np.uint32(np.float32(a).view(np.uint32) | np.float32(b).view(np.uint32)).view(np.float32)
            smaller = a if a < b else b
            smaller = same if a == b else smaller
            dst[i] = smaller if a == a and b == b else a + b


@jit
def _combine_integer(op, x, y, bits, saturate):
    """Return ``x op y`` of int64 as a signed integer of ``bits`` bits."""
    if op == Op.MAX:
        return max(x, y)
    if op == Op.MIN:
        return min(x, y)
    if op == Op.ADD:
        return fit_integer(x + y, bits, saturate)
    if op == Op.SUB:
        return fit_integer(x - y, bits, saturate)
    return fit_integer(x * y, bits, saturate)


@jit
def _widen_all(dst, src, dtype):
    """Decode 16-bit patterns into float32."""
    words = reinterpret(dst, np.uint32)
    if dtype == Data.FP16:
        decode_fp16(src, words)
    else:
        decode_bf16(src, words)


@jit
def _narrow_all(dst, src, dtype, saturate):
    """Round float32 to 16-bit patterns, ties to even."""
    words = reinterpret(src, np.uint32)
    if dtype == Data.FP16:
        encode_fp16(words, dst, RoundMode.RINT, saturate)
    else:
        encode_bf16(words, dst, RoundMode.RINT, saturate)


@jit
def combine(ub, row, staging, saturate):
    """Add, Sub, Mul, Div, Max and Min of two vectors: dst[i] = src0[i] op src1[i].

    Rounding to float32 before rounding to half or bf16 does not show in the result (Figueroa 1995). ``staging``:
    float32 scratch, at least 3072.
    """
    op, dtype = row["op"], row["dtype"]
    count = np.int64(row["count"])
    length = count * item_bytes(dtype)
    d, a, b = np.int64(row["dst"]), np.int64(row["src0"]), np.int64(row["src1"])
    dst, x, y = ub[d : d + length], ub[a : a + length], ub[b : b + length]
    if dtype == Data.FP32:
        _combine_floats(op, reinterpret(dst, np.float32), reinterpret(x, np.float32), reinterpret(y, np.float32))
    elif dtype == Data.INT32:
        idst, ix, iy = reinterpret(dst, np.int32), reinterpret(x, np.int32), reinterpret(y, np.int32)
        for i in range(count):
            idst[i] = _combine_integer(op, np.int64(ix[i]), np.int64(iy[i]), 32, saturate)
    elif dtype == Data.INT16:
        sdst, sx, sy = reinterpret(dst, np.int16), reinterpret(x, np.int16), reinterpret(y, np.int16)
        for i in range(count):
            sdst[i] = _combine_integer(op, np.int64(sx[i]), np.int64(sy[i]), 16, saturate)
    else:
        hdst, hx, hy = reinterpret(dst, np.uint16), reinterpret(x, np.uint16), reinterpret(y, np.uint16)
        for first in range(0, count, _PIECE):
            last = min(first + _PIECE, count)
            left, right = staging[: last - first], staging[_PIECE : _PIECE + last - first]
            # a result of its own: loops whose arrays overlap are not vectorised
            result = staging[2 * _PIECE : 2 * _PIECE + last - first]
            _widen_all(left, hx[first:last], dtype)
            _widen_all(right, hy[first:last], dtype)
            _combine_floats(op, result, left, right)
            _narrow_all(hdst[first:last], result, dtype, saturate)


@jit
def _float_scalar(op, dst, x, scalar):
    if op == Op.MULS:
        for i in range(len(dst)):
            dst[i] = x[i] * scalar
    else:
        for i in range(len(dst)):
            dst[i] = x[i] + scalar


@jit
def combine_scalar(ub, row, staging, saturate):
    """Muls and Adds: dst[i] = src[i] op value, the scalar a bit pattern of ``dtype``.

    ``staging``: float32 scratch, at least 2048. Rounding as in `combine`.
    """
    dtype = row["dtype"]
    op = row["op"]
    count = np.int64(row["count"])
    length = count * item_bytes(dtype)
    d, a = np.int64(row["dst"]), np.int64(row["src0"])
    dst, x = ub[d : d + length], ub[a : a + length]
    plain = Op.MUL if op == Op.MULS else Op.ADD
    integer = np.int64(row["value"])
    if dtype == Data.FP32:
        scalar = np.uint32(integer & 0xFFFFFFFF).view(np.float32)
        _float_scalar(op, reinterpret(dst, np.float32), reinterpret(x, np.float32), scalar)
    elif dtype == Data.INT32:
        idst, ix = reinterpret(dst, np.int32), reinterpret(x, np.int32)
        for i in range(count):
            idst[i] = _combine_integer(plain, np.int64(ix[i]), integer, 32, saturate)
    elif dtype == Data.INT16:
        integer = fit_integer(integer, 16, 0)
        sdst, sx = reinterpret(dst, np.int16), reinterpret(x, np.int16)
        for i in range(count):
            sdst[i] = _combine_integer(plain, np.int64(sx[i]), integer, 16, saturate)
    else:
        factor = widen(np.uint16(integer & 0xFFFF), dtype)
        hdst, hx = reinterpret(dst, np.uint16), reinterpret(x, np.uint16)
        for first in range(0, count, _PIECE):
            last = min(first + _PIECE, count)
            values, result = staging[: last - first], staging[_PIECE : _PIECE + last - first]
            _widen_all(values, hx[first:last], dtype)
            _float_scalar(op, result, values, factor)
            _narrow_all(hdst[first:last], result, dtype, saturate)


@jit
def _read(ub, at, dtype):
    """Return one element: the pattern of a float (unsigned), the value of an integer."""
    if dtype == Data.FP32:
        return np.int64(reinterpret(ub[at : at + 4], np.uint32)[0])
    if dtype == Data.INT32:
        return np.int64(reinterpret(ub[at : at + 4], np.int32)[0])
    if dtype == Data.INT64:
        return reinterpret(ub[at : at + 8], np.int64)[0]
    if dtype == Data.INT16:
        return np.int64(reinterpret(ub[at : at + 2], np.int16)[0])
    if dtype == Data.INT8:
        return np.int64(reinterpret(ub[at : at + 1], np.int8)[0])
    if dtype == Data.UINT8:
        return np.int64(ub[at])
    return np.int64(reinterpret(ub[at : at + 2], np.uint16)[0])


@jit
def _write(ub, at, dtype, value):
    """Store one element as little-endian bytes."""
    for i in range(item_bytes(dtype)):
        ub[at + i] = (value >> (8 * i)) & 0xFF


@jit
def cast(ub, row, saturate):
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
        for i in range(count):
            bits = _read(ub, a + i * src_item, src)
            _write(ub, d + i * dst_item, dst, cast_scalar(bits, src, dst, mode, saturate))
