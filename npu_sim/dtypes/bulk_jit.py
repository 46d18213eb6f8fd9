"""The conversions of `convert_jit` over arrays: 1-D, contiguous, of the length of ``dst``.

The encoders have one loop per mode: with the mode a literal the loop compiles to vector code (some 2 G elements/s
instead of 0.2), with the mode a variable it does not. Rounding to nearest even stands alone: nearly all need no other
mode, and compile a quarter of it.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.dtypes.convert_jit import (
    bf16_to_fp32,
    fp16_to_fp32,
    fp32_to_bf16,
    fp32_to_fp16,
    fp32_to_hf32,
    fp32_to_int,
    fp32_to_integral,
    fp32_to_nearest_bf16,
    fp32_to_nearest_fp16,
    fp64_to_bf16,
    fp64_to_fp16,
    fp64_to_fp32,
    fp64_to_int,
    int_to_bf16,
    int_to_fp16,
    int_to_fp32,
)
from npu_sim.dtypes.formats import RoundMode, TieRule


@jit
def decode_fp16(src: np.ndarray, dst: np.ndarray) -> None:
    """fp16 patterns (uint16) to fp32 words (uint32); exact."""
    for i in range(dst.size):
        dst[i] = fp16_to_fp32(src[i])


@jit
def decode_bf16(src: np.ndarray, dst: np.ndarray) -> None:
    """bf16 patterns (uint16) to fp32 words (uint32); exact."""
    for i in range(dst.size):
        dst[i] = bf16_to_fp32(src[i])


@jit
def nearest_fp16(src: np.ndarray, dst: np.ndarray, saturate: Int) -> None:
    """fp32 words (uint32) to fp16 patterns (uint16), ties to even; ``saturate`` is 0 or 1."""
    if saturate:
        for i in range(dst.size):
            dst[i] = fp32_to_nearest_fp16(src[i], 1)
    else:
        for i in range(dst.size):
            dst[i] = fp32_to_nearest_fp16(src[i], 0)


@jit
def encode_fp16(src: np.ndarray, dst: np.ndarray, mode: Int, saturate: Int) -> None:
    """fp32 words (uint32) to fp16 patterns (uint16) in a `RoundMode`; ``saturate`` is 0 or 1."""
    if mode == RoundMode.FLOOR:
        for i in range(dst.size):
            dst[i] = fp32_to_fp16(src[i], RoundMode.FLOOR, saturate)
    elif mode == RoundMode.CEIL:
        for i in range(dst.size):
            dst[i] = fp32_to_fp16(src[i], RoundMode.CEIL, saturate)
    elif mode == RoundMode.ROUND:
        for i in range(dst.size):
            dst[i] = fp32_to_fp16(src[i], RoundMode.ROUND, saturate)
    elif mode == RoundMode.TRUNC:
        for i in range(dst.size):
            dst[i] = fp32_to_fp16(src[i], RoundMode.TRUNC, saturate)
    elif mode == RoundMode.ODD:
        for i in range(dst.size):
            dst[i] = fp32_to_fp16(src[i], RoundMode.ODD, saturate)
    else:
        nearest_fp16(src, dst, saturate)


@jit
def nearest_bf16(src: np.ndarray, dst: np.ndarray, saturate: Int) -> None:
    """fp32 words (uint32) to bf16 patterns (uint16), ties to even; ``saturate`` is 0 or 1."""
    if saturate:
        for i in range(dst.size):
            dst[i] = fp32_to_nearest_bf16(src[i], 1)
    else:
        for i in range(dst.size):
            dst[i] = fp32_to_nearest_bf16(src[i], 0)


@jit
def encode_bf16(src: np.ndarray, dst: np.ndarray, mode: Int, saturate: Int) -> None:
    """fp32 words (uint32) to bf16 patterns (uint16) in a `RoundMode`; ``saturate`` is 0 or 1."""
    if mode == RoundMode.FLOOR:
        for i in range(dst.size):
            dst[i] = fp32_to_bf16(src[i], RoundMode.FLOOR, saturate)
    elif mode == RoundMode.CEIL:
        for i in range(dst.size):
            dst[i] = fp32_to_bf16(src[i], RoundMode.CEIL, saturate)
    elif mode == RoundMode.ROUND:
        for i in range(dst.size):
            dst[i] = fp32_to_bf16(src[i], RoundMode.ROUND, saturate)
    elif mode == RoundMode.TRUNC:
        for i in range(dst.size):
            dst[i] = fp32_to_bf16(src[i], RoundMode.TRUNC, saturate)
    elif mode == RoundMode.ODD:
        for i in range(dst.size):
            dst[i] = fp32_to_bf16(src[i], RoundMode.ODD, saturate)
    else:
        nearest_bf16(src, dst, saturate)


@jit
def encode_hf32(src: np.ndarray, dst: np.ndarray, drop: Int, ties: Int) -> None:
    """fp32 words (uint32) to HF32 words (uint32): ``drop`` low bits cleared, a `TieRule`."""
    if ties == TieRule.EVEN:
        for i in range(dst.size):
            dst[i] = fp32_to_hf32(src[i], drop, TieRule.EVEN)
    elif ties == TieRule.AWAY:
        for i in range(dst.size):
            dst[i] = fp32_to_hf32(src[i], drop, TieRule.AWAY)
    else:
        for i in range(dst.size):
            dst[i] = fp32_to_hf32(src[i], drop, TieRule.TOWARD_ZERO)


@jit
def encode_integral(src: np.ndarray, dst: np.ndarray, mode: Int) -> None:
    """fp32 words (uint32) to fp32 words of integral values: the Cast from float to float."""
    for i in range(dst.size):
        dst[i] = fp32_to_integral(src[i], mode)


@jit
def encode_int_of_fp32(src: np.ndarray, dst: np.ndarray, low: Int, high: Int, mode: Int) -> None:
    """fp32 words (uint32) to integers (int64) in [low, high]."""
    for i in range(dst.size):
        dst[i] = fp32_to_int(src[i], low, high, mode)


@jit
def encode_int_of_fp64(src: np.ndarray, dst: np.ndarray, low: Int, high: Int, mode: Int) -> None:
    """float64 patterns (uint64) to integers (int64) in [low, high]."""
    for i in range(dst.size):
        dst[i] = fp64_to_int(src[i], low, high, mode)


@jit
def encode_fp16_of_fp64(src: np.ndarray, dst: np.ndarray, mode: Int, saturate: Int) -> None:
    """float64 patterns (uint64) to fp16 patterns (uint16)."""
    for i in range(dst.size):
        dst[i] = fp64_to_fp16(src[i], mode, saturate)


@jit
def encode_bf16_of_fp64(src: np.ndarray, dst: np.ndarray, mode: Int, saturate: Int) -> None:
    """float64 patterns (uint64) to bf16 patterns (uint16)."""
    for i in range(dst.size):
        dst[i] = fp64_to_bf16(src[i], mode, saturate)


@jit
def encode_fp32_of_fp64(src: np.ndarray, dst: np.ndarray, mode: Int) -> None:
    """float64 patterns (uint64) to fp32 words (uint32)."""
    for i in range(dst.size):
        dst[i] = fp64_to_fp32(src[i], mode)


@jit
def encode_fp16_of_int(src: np.ndarray, dst: np.ndarray, mode: Int, saturate: Int) -> None:
    """Integers (int64) to fp16 patterns (uint16)."""
    for i in range(dst.size):
        dst[i] = int_to_fp16(src[i], mode, saturate)


@jit
def encode_bf16_of_int(src: np.ndarray, dst: np.ndarray, mode: Int, saturate: Int) -> None:
    """Integers (int64) to bf16 patterns (uint16)."""
    for i in range(dst.size):
        dst[i] = int_to_bf16(src[i], mode, saturate)


@jit
def encode_fp32_of_int(src: np.ndarray, dst: np.ndarray, mode: Int) -> None:
    """Integers (int64) to fp32 words (uint32)."""
    for i in range(dst.size):
        dst[i] = int_to_fp32(src[i], mode)
