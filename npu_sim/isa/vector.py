"""Semantics of the vector instructions (count style, operands in UB).

Half and bf16 arithmetic is rounded to its type once per instruction, float32 arithmetic is IEEE 754 with subnormals,
integers wrap around in INF_NAN mode and clamp in saturation mode (asc-devkit, boundary values of vector computation).
Cast modes: the Cast page and its precision conversion table.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import bf16_to_fp32, cast_scalar, fp16_to_fp32, fp32_to_bf16, fp32_to_fp16
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Data


@jit
def duplicate(ub, row):
    """Duplicate: ``count`` elements of ``dtype`` get the bit pattern ``value``."""
    item = item_bytes(row["dtype"])
    at = np.int64(row["dst"])
    count = np.int64(row["count"])
    value = np.int64(row["value"])
    if item == 4:
        words = ub[at : at + 4 * count].view(np.uint32)
        words[:] = np.uint32(value & 0xFFFFFFFF)
    else:
        halves = ub[at : at + 2 * count].view(np.uint16)
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
def add(ub, row, saturate):
    """Add: dst[i] = src0[i] + src1[i].

    Rounding the sum of two halves to float32 first does not show in the result (Figueroa 1995).
    """
    dtype = row["dtype"]
    count = np.int64(row["count"])
    length = count * item_bytes(dtype)
    d, a, b = np.int64(row["dst"]), np.int64(row["src0"]), np.int64(row["src1"])
    if dtype == Data.FP32:
        dst, x, y = (
            ub[d : d + length].view(np.float32),
            ub[a : a + length].view(np.float32),
            ub[b : b + length].view(np.float32),
        )
        for i in range(count):
            dst[i] = x[i] + y[i]
    elif dtype == Data.INT32:
        idst, ix, iy = (
            ub[d : d + length].view(np.int32),
            ub[a : a + length].view(np.int32),
            ub[b : b + length].view(np.int32),
        )
        for i in range(count):
            idst[i] = fit_integer(np.int64(ix[i]) + np.int64(iy[i]), 32, saturate)
    elif dtype == Data.INT16:
        sdst, sx, sy = (
            ub[d : d + length].view(np.int16),
            ub[a : a + length].view(np.int16),
            ub[b : b + length].view(np.int16),
        )
        for i in range(count):
            sdst[i] = fit_integer(np.int64(sx[i]) + np.int64(sy[i]), 16, saturate)
    else:
        hdst, hx, hy = (
            ub[d : d + length].view(np.uint16),
            ub[a : a + length].view(np.uint16),
            ub[b : b + length].view(np.uint16),
        )
        for i in range(count):
            hdst[i] = narrow(widen(hx[i], dtype) + widen(hy[i], dtype), dtype, saturate)


@jit
def muls(ub, row, saturate):
    """Muls: dst[i] = src[i] * value, the scalar a bit pattern of ``dtype``; products of halves are exact in float32."""
    dtype = row["dtype"]
    count = np.int64(row["count"])
    length = count * item_bytes(dtype)
    d, a = np.int64(row["dst"]), np.int64(row["src0"])
    if dtype == Data.FP32:
        scalar = np.uint32(np.int64(row["value"]) & 0xFFFFFFFF).view(np.float32)
        dst, x = ub[d : d + length].view(np.float32), ub[a : a + length].view(np.float32)
        for i in range(count):
            dst[i] = x[i] * scalar
    elif dtype == Data.INT32:
        integer = np.int64(row["value"])
        idst, ix = ub[d : d + length].view(np.int32), ub[a : a + length].view(np.int32)
        for i in range(count):
            idst[i] = fit_integer(np.int64(ix[i]) * integer, 32, saturate)
    elif dtype == Data.INT16:
        integer = fit_integer(np.int64(row["value"]), 16, 0)
        sdst, sx = ub[d : d + length].view(np.int16), ub[a : a + length].view(np.int16)
        for i in range(count):
            sdst[i] = fit_integer(np.int64(sx[i]) * integer, 16, saturate)
    else:
        factor = widen(np.uint16(np.int64(row["value"]) & 0xFFFF), dtype)
        hdst, hx = ub[d : d + length].view(np.uint16), ub[a : a + length].view(np.uint16)
        for i in range(count):
            hdst[i] = narrow(widen(hx[i], dtype) * factor, dtype, saturate)


@jit
def _read(ub, at, dtype):
    """Return one element: the pattern of a float (unsigned), the value of an integer."""
    if dtype == Data.FP32:
        return np.int64(ub[at : at + 4].view(np.uint32)[0])
    if dtype == Data.INT32:
        return np.int64(ub[at : at + 4].view(np.int32)[0])
    if dtype == Data.INT64:
        return ub[at : at + 8].view(np.int64)[0]
    if dtype == Data.INT16:
        return np.int64(ub[at : at + 2].view(np.int16)[0])
    if dtype == Data.INT8:
        return np.int64(ub[at : at + 1].view(np.int8)[0])
    if dtype == Data.UINT8:
        return np.int64(ub[at])
    return np.int64(ub[at : at + 2].view(np.uint16)[0])


@jit
def _write(ub, at, dtype, value):
    """Store one element as little-endian bytes."""
    for i in range(item_bytes(dtype)):
        ub[at + i] = (value >> (8 * i)) & 0xFF


@jit
def cast(ub, row, saturate):
    """Cast: ``count`` elements from ``dtype`` to ``dst_dtype`` with ``round_mode``."""
    src, dst = row["dtype"], row["dst_dtype"]
    src_item, dst_item = item_bytes(src), item_bytes(dst)
    d, a = np.int64(row["dst"]), np.int64(row["src0"])
    for i in range(np.int64(row["count"])):
        bits = _read(ub, a + i * src_item, src)
        _write(ub, d + i * dst_item, dst, cast_scalar(bits, src, dst, row["round_mode"], saturate))
