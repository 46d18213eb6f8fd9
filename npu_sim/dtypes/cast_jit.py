"""Cast over arrays of any two types, one element after the other as `convert_jit.cast_scalar` does it.

Elements are int64: unsigned patterns of floats, values of integers. What most programs cast has a loop per mode that
becomes vector code; other pairs and modes call the function of one element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.dtypes.convert_jit import bf16_to_fp32, cast_scalar, fp16_to_fp32, fp32_to_nearest_fp16, int_limits
from npu_sim.dtypes.element_types import ElementType
from npu_sim.dtypes.formats import RoundMode


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
