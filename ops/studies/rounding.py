"""What the Cube multiplies, in plain NumPy: the inputs of the "rounded" golden.

This is an oracle's view on purpose: it shares no code with the emulator's own conversions.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from npu_sim.dtypes.formats import DTYPES
from npu_sim.report.precision import OUTPUT_FORMATS, Overflow

STORAGE = {name: DTYPES[name].storage for name in ("fp16", "bf16", "fp32")}
"""NumPy dtype of a tensor by format name."""


def cast(values: np.ndarray, name: str, *, overflow: Overflow = "inf_nan") -> np.ndarray:
    """Cast a tensor, to nearest with ties to even.

    Parameters
    ----------
    values : float32, float16 or bfloat16 array
        Tensor.
    name : {"fp16", "bf16", "fp32"}
        Target format. A tensor that already has it is returned unchanged.
    overflow : {"inf_nan", "saturate"}
        What becomes of values beyond the target's largest number: infinity, or that number; ``"saturate"`` also turns
        infinities into it and NaN into 0.

    Returns
    -------
    array
        Tensor of the target format, same shape.
    """
    target = STORAGE[name]
    if values.dtype == target:
        return values
    wide = values.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        result = wide.astype(target)
    if overflow == "saturate" and name != "fp32":
        largest = OUTPUT_FORMATS[name].largest
        limited = np.clip(np.where(np.isnan(wide), np.float32(0), wide), -largest, largest)
        result = np.where(np.isfinite(result.astype(np.float32)), result, limited.astype(target))
    return result


def round_to_hf32(
    values: npt.NDArray[np.float32], *, mantissa_bits: int, ties: Literal["even", "away", "toward_zero"] = "even"
) -> npt.NDArray[np.float32]:
    """Round float32 words to HF32: nearest of ``mantissa_bits`` stored mantissa bits; Inf and NaN stay.

    Parameters
    ----------
    values : float32 array
        Operand.
    mantissa_bits : int
        Stored bits that remain, 1..22.
    ties : {"even", "away", "toward_zero"}
        Where a value half way between two neighbours goes.

    Returns
    -------
    float32 array
        Rounded values, same shape.
    """
    words = np.ascontiguousarray(values).view(np.uint32).astype(np.int64)
    magnitude = words & 0x7FFFFFFF
    step = 1 << (23 - mantissa_bits)
    kept, rest = magnitude // step, magnitude % step
    if ties == "even":
        at_half = kept & 1
    else:
        at_half = np.full_like(kept, int(ties == "away"))
    kept = kept + np.where(2 * rest == step, at_half, 2 * rest > step)
    rounded = np.where(magnitude >= 0x7F800000, magnitude, kept * step) | (words & 0x80000000)
    return rounded.astype(np.uint32).view(np.float32)


def multiplied(values: np.ndarray, compute_dtype: str, product: Any) -> np.ndarray:
    """Return what the Cube of ``product`` multiplies of a tensor.

    Parameters
    ----------
    values : float32, float16 or bfloat16 array
        Tensor.
    compute_dtype : {"fp16", "bf16", "fp32", "hf32"}
        What the call multiplies in.
    product : Product
        Its overflow mode and HF32 decide what is beyond the format and between two numbers of it.

    Returns
    -------
    array
        Same shape; HF32 numbers as float32.
    """
    if compute_dtype == "hf32":
        return round_to_hf32(cast(values, "fp32"), mantissa_bits=product.hf32_mantissa_bits, ties=product.hf32_ties)
    return cast(values, compute_dtype, overflow=product.overflow_mode)


def count_underflow(original: np.ndarray, operand: np.ndarray) -> int:
    """Count elements that are not 0 before and 0 on the Cube."""
    return int(np.count_nonzero((original != 0) & (operand == 0) & ~np.isnan(original)))


def count_overflow(original: np.ndarray, operand: np.ndarray, compute_dtype: str) -> int:
    """Count what is beyond the format; a saturating cast leaves a finite number, which the threshold tells apart."""
    wide = original.astype(np.float64)
    lost = ~np.isfinite(operand)
    if compute_dtype != "hf32":
        lost = lost | (np.abs(wide) >= OUTPUT_FORMATS[compute_dtype].overflow_threshold)
    return int(np.count_nonzero(np.isfinite(wide) & lost))
