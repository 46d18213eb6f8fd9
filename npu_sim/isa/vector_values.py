"""Elements of the vector unit: types, rounding to them, integers that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.dtypes.convert_jit import bf16_to_fp32, fp16_to_fp32, fp32_to_nearest_bf16, fp32_to_nearest_fp16
from npu_sim.isa.codes import Data
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.reinterpret import reinterpret


@jit
def is_arithmetic(dtype: Int) -> Flag:
    """Return whether the vector unit and atomic adds compute with ``dtype`` here."""
    return dtype >= Data.FP16 and dtype <= Data.INT16


@jit
def widen(bits: Int, dtype: Int) -> np.float32:
    """Return a 16-bit float pattern as float32."""
    if dtype == Data.FP16:
        return np.uint32(fp16_to_fp32(bits)).view(np.float32)
    return np.uint32(bf16_to_fp32(bits)).view(np.float32)


@jit
def narrow(value: Any, dtype: Int, saturate: Int) -> Int:
    """Round a float32 to a 16-bit float pattern, ties to even."""
    word = np.float32(value).view(np.uint32)
    if dtype == Data.FP16:
        return fp32_to_nearest_fp16(word, saturate)
    return fp32_to_nearest_bf16(word, saturate)


@jit
def fit_integer(value: Any, bits: Int, saturate: Int) -> Int:
    """Return an int64 as a signed integer of ``bits`` bits: clamped in saturation mode, else its low bits."""
    half = np.int64(1) << np.int64(bits - 1)
    if saturate:
        return min(max(value, -half), half - 1)
    return ((value + half) & (2 * half - 1)) - half


@jit
def without_sign(value: Any, bits: Int) -> Int:
    """Return what the ``bits`` bits of a signed integer are without a sign."""
    return value & ((np.int64(1) << np.int64(bits)) - 1)


@jit
def with_sign_of(other: Any, value: Any, bits: Int) -> Int:
    """Return a signed integer of ``bits`` bits with the sign bit of ``other`` and the bits of ``value`` below."""
    half = np.int64(1) << np.int64(bits - 1)
    return (value & (half - 1)) | (other & -half)


@jit
def read_element(ub: np.ndarray, at: Int, dtype: Int) -> Int:
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
def write_element(ub: np.ndarray, at: Int, dtype: Int, value: Any) -> None:
    """Store one element as little-endian bytes."""
    for i in range(item_bytes(dtype)):
        ub[at + i] = (value >> (8 * i)) & 0xFF


PIECE = 512
"""Elements that are cast at a time: as int64 they stay in the first cache."""


@jit
def _read(values: np.ndarray, there: np.ndarray) -> None:
    for i in range(values.size):
        values[i] = there[i]


@jit
def read_elements(ub: np.ndarray, at: Int, dtype: Int, values: np.ndarray) -> None:
    """Fill int64 ``values`` with adjacent elements, each as of `read_element`."""
    there = ub[at : at + values.size * item_bytes(dtype)]
    if dtype == Data.FP32:
        _read(values, reinterpret(there, np.uint32))
    elif dtype == Data.INT32:
        _read(values, reinterpret(there, np.int32))
    elif dtype == Data.INT64:
        _read(values, reinterpret(there, np.int64))
    elif dtype == Data.INT16:
        _read(values, reinterpret(there, np.int16))
    elif dtype == Data.INT8:
        _read(values, reinterpret(there, np.int8))
    elif dtype == Data.UINT8:
        _read(values, there)
    else:
        _read(values, reinterpret(there, np.uint16))


@jit
def write_elements(ub: np.ndarray, at: Int, dtype: Int, values: np.ndarray) -> None:
    """Store adjacent elements, each as `write_element` does."""
    item = item_bytes(dtype)
    there = ub[at : at + values.size * item]
    if item == 4:
        _write(reinterpret(there, np.uint32), values)
    elif item == 8:
        _write(reinterpret(there, np.uint64), values)
    elif item == 2:
        _write(reinterpret(there, np.uint16), values)
    else:
        _write(there, values)


@jit
def _write(there: np.ndarray, values: np.ndarray) -> None:
    for i in range(values.size):
        # the low bits
        there[i] = values[i]


@jit
def block_of(bits: Int, dtype: Int) -> np.ndarray:
    """Return uint8[32]: an element of that bit pattern over and over."""
    block = np.zeros(BLOCK, np.uint8)
    for at in range(0, BLOCK, max(item_bytes(dtype), 1)):
        write_element(block, at, dtype, bits)
    return block
