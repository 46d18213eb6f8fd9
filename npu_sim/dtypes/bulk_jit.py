"""The conversions of `convert_jit` over arrays: 1-D, contiguous, of the length of ``dst``.

The encoders have one loop per mode: with the mode a literal the loop compiles to vector code (some 2 G elements/s
instead of 0.2), with the mode a variable it does not. Rounding to nearest even stands alone: nearly all need no other
mode, and compile a quarter of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.dtypes.convert_jit import (
    bf16_to_fp32,
    cast_scalar,
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
    int_limits,
    int_to_bf16,
    int_to_fp16,
    int_to_fp32,
)
from npu_sim.dtypes.element_types import ElementType
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


@jit
def _clamped(value: Any, low: Any, high: Any) -> Int:
    """Return an integral float64, NaN as 0, clamped to [low, high]."""
    return np.int64(min(max(value if value == value else 0.0, low), high))


@jit
def _wide(word: Any) -> Any:
    return np.float64(np.uint32(word).view(np.float32))


@jit
def _narrow_integers(values: np.ndarray, low: Any, high: Any, mode: Int) -> None:
    """fp32 words (int64) to integers of at most 32 bits: all of them, and twice as many, are float64 too."""
    if mode == RoundMode.FLOOR:
        for i in range(values.size):
            values[i] = _clamped(np.floor(_wide(values[i])), low, high)
    elif mode == RoundMode.CEIL:
        for i in range(values.size):
            values[i] = _clamped(np.ceil(_wide(values[i])), low, high)
    elif mode == RoundMode.TRUNC:
        for i in range(values.size):
            values[i] = _clamped(np.trunc(_wide(values[i])), low, high)
    elif mode == RoundMode.ROUND:
        for i in range(values.size):
            value = _wide(values[i])
            values[i] = _clamped(np.trunc(value + np.copysign(0.5, value)), low, high)
    else:
        for i in range(values.size):
            values[i] = _clamped(np.rint(_wide(values[i])), low, high)


@jit
def cast_in_place(values: np.ndarray, src: Int, dst: Int, mode: Int, saturate: Int) -> None:
    """Convert int64 elements as `cast_scalar` does."""
    is_nearest = mode == RoundMode.RINT or mode == RoundMode.NONE
    if src <= ElementType.FP32 and dst > ElementType.FP32 and dst != ElementType.INT64 and mode != RoundMode.ODD:
        if src == ElementType.FP16:
            for i in range(values.size):
                values[i] = fp16_to_fp32(np.uint16(values[i]))
        elif src == ElementType.BF16:
            for i in range(values.size):
                values[i] = bf16_to_fp32(np.uint16(values[i]))
        low, high = int_limits(dst)
        _narrow_integers(values, np.float64(low), np.float64(high), mode)
    elif src > ElementType.FP32 and dst == ElementType.FP32 and is_nearest:
        for i in range(values.size):
            values[i] = np.float32(values[i]).view(np.uint32)
    elif src >= ElementType.INT16 and src <= ElementType.UINT8 and dst == ElementType.FP16 and is_nearest:
        # float32 holds integers of 16 bits
        for i in range(values.size):
            values[i] = fp32_to_nearest_fp16(np.float32(values[i]).view(np.uint32), saturate)
    else:
        for i in range(values.size):
            values[i] = cast_scalar(values[i], src, dst, mode, saturate)
