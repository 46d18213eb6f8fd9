"""Results of the vector kernels by their definitions: one element, one addition at a time.

Nothing here comes from `npu_sim` or `ops`: conversions round exact values by looking up neighbours
(`tests.oracles.rounding`), sums are NumPy float32 scalars in the stated order, copies walk index tuples.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np

from tests.oracles import rounding

FORMATS = {"fp16": rounding.FP16, "bf16": rounding.BF16}
STORAGE = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}
QUIET_NAN = {"fp16": 0x7E00, "bf16": 0x7FC0}


def widened(codes, dtype):
    """The exact float64 values of 16- or 32-bit patterns."""
    with np.errstate(invalid="ignore"):
        return np.asarray(codes).view(STORAGE[dtype]).astype(np.float64)


def narrowed(values, dtype, saturate):
    """uint16 patterns of float64 values rounded once to ``dtype``, ties to even."""
    fmt = FORMATS[dtype]
    code = rounding.round_values(values, fmt, "RINT", saturate)
    signed = np.where(np.signbit(values), code | fmt.sign, code)
    signed = np.where(np.isnan(values), 0 if saturate else QUIET_NAN[dtype], signed)
    return signed.astype(np.uint16)


def cast(codes, src, dst, saturate):
    """Patterns of type ``src`` as patterns of another type ``dst``."""
    if dst == "fp32":
        with np.errstate(invalid="ignore"):
            return widened(codes, src).astype(np.float32).view(np.uint32)
    return narrowed(widened(codes, src), dst, saturate)


def lanes(r):
    """Accumulator lanes of a channel of ``r`` values."""
    width = 64
    while width < 2048 and width < r:
        width *= 2
    return width


def reduce_sum(codes, n, c, r, dtype, saturate):
    """Patterns of the sums over axes 0 and 2 of [n][c][r], every float32 addition in its place."""
    with np.errstate(all="ignore"):
        x = np.asarray(codes).view(STORAGE[dtype]).astype(np.float32).reshape(n, c, r)
        width = lanes(r)
        sums = np.zeros(c, np.float32)
        for channel in range(c):
            acc = [np.float32(0.0)] * width
            for batch in range(n):
                for i in range(r):
                    acc[i % width] = acc[i % width] + x[batch, channel, i]
            while len(acc) > 64:
                half = len(acc) // 2
                acc = [acc[i] + acc[half + i] for i in range(half)]
            while len(acc) > 1:
                acc = [acc[i] + acc[i + 1] for i in range(0, len(acc), 2)]
            sums[channel] = acc[0]
    if dtype == "fp32":
        return sums.view(np.uint32)
    return narrowed(sums.astype(np.float64), dtype, saturate)


def strided_copy(src, src_view, dst, dst_view):
    """Copy of ``dst`` (1-D array) with the elements of one view of ``src`` put into another; views as
    (shape, strides, offset) in elements.
    """
    out = dst.copy()
    (shape, src_strides, src_offset), (_, dst_strides, dst_offset) = src_view, dst_view
    for index in itertools.product(*(range(extent) for extent in shape)):
        a = src_offset + sum(i * s for i, s in zip(index, src_strides, strict=True))
        b = dst_offset + sum(i * s for i, s in zip(index, dst_strides, strict=True))
        out[b] = src[a]
    return out


def _stored(values, dtype, saturate):
    """Patterns of exact (or correctly rounded float64) results of one operation."""
    if dtype == "fp32":
        with np.errstate(all="ignore"):
            return values.astype(np.float32).view(np.uint32)
    return narrowed(values, dtype, saturate)


def mul_planes(x, matrix, dtype, saturate):
    """Patterns of [planes][elems] times [elems]; a product of two floats of either type is exact in float64."""
    elems = len(matrix)
    with np.errstate(all="ignore"):
        product = widened(x, dtype).reshape(-1, elems) * widened(matrix, dtype)
    return _stored(product.reshape(-1), dtype, saturate)


def add_planes(x, matrix, dtype, saturate):
    """Patterns of [planes][elems] plus [elems]; a float64 sum rounded again is the right one (Figueroa 1995)."""
    with np.errstate(all="ignore"):
        total = widened(x, dtype).reshape(-1, len(matrix)) + widened(matrix, dtype)
    return _stored(total.reshape(-1), dtype, saturate)


def div_planes(x, plane_elems, divisor, dtype, saturate):
    """Patterns of every element of the planes divided by itself.

    A float64 quotient rounded again is the correctly rounded one: 53 >= 2 * 24 + 2 (Figueroa 1995).
    """
    with np.errstate(all="ignore"):
        quotient = np.repeat(widened(x, dtype), plane_elems) / divisor
    return _stored(quotient, dtype, saturate)
