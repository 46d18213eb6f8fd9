"""Random calls of the pooling gradient, and how far from the definition each route may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from npu_sim.products import get_product
from tests.oracles.pooling import Pooling, input_gradient, output_extent

DTYPES: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "hf32": 2.0**-11}
"""Relative error of one rounding to nearest; HF32 keeps 11 bits."""
SMALLEST = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}
"""Spacing of the smallest numbers."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call.

    Attributes
    ----------
    series, dtype : str
        Product and type of the tensors.
    leading, extents : tuple of int
        (N, C) or (C,), and (H, W).
    pooling : Pooling
        The pooling.
    cube_math_type : int
        Of the call.
    integers : bool
        gradOutput holds small integers instead of normal deviates.
    """

    series: str
    dtype: str
    leading: tuple[int, ...]
    extents: tuple[int, int]
    pooling: Pooling
    cube_math_type: int = 0
    integers: bool = False

    @property
    def out(self) -> tuple[int, int]:
        """Extents of gradOutput."""
        p = self.pooling
        every = zip(self.extents, p.kernel, p.stride, p.pad, strict=True)
        h, w = (output_extent(*axis, p.ceil_mode) for axis in every)
        return h, w

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `ops.avg_pool2d_backward`."""
        p = self.pooling
        return {
            "kernel_size": p.kernel, "stride": p.stride, "padding": p.pad, "ceil_mode": p.ceil_mode,
            "count_include_pad": p.count_include_pad, "divisor_override": p.divisor_override,
            "cube_math_type": self.cube_math_type, "product": self.series,
        }  # fmt: skip

    def gradient(self, seed: Any) -> np.ndarray:
        """Return a gradOutput."""
        rng = np.random.default_rng(seed)
        shape = (*self.leading, *self.out)
        values = rng.integers(-8, 9, shape) if self.integers else rng.standard_normal(shape)
        return values.astype(DTYPES[self.dtype])


def bound(case: Case, grad: np.ndarray, path: str, compute: str) -> np.ndarray:
    """Return how far a right result may be from the definition, element by element.

    With u the unit of the type that computes, every term passes at most: the cast of gradOutput, the rounding of the
    divisor's reciprocal (twice where it is made in float32), the product with it, and the Cube's rounding of both
    operands; then up to kH * kW - 1 additions in float32, of values at most the sum of the terms' sizes, and the
    roundings of the result to the type that computes and to the tensor's. Terms and results below the normal numbers
    are off by up to half a spacing each.
    """
    size = np.abs(input_gradient(np.abs(grad.astype(np.float64)), case.extents, case.pooling))
    taps = case.pooling.kernel[0] * case.pooling.kernel[1]
    unit = UNIT[compute]
    terms = {"global": 3, "cube": 4, "cube+mul": 5, "AvgPool3DGrad": 3}[path]
    relative = terms * unit + (taps + 2) * UNIT["fp32"] + unit + UNIT[case.dtype]
    tiny = SMALLEST["fp16" if compute == "fp16" else "fp32"] * (taps * 2 + 1) + SMALLEST[case.dtype]
    allowed: np.ndarray = 1.05 * relative * size + tiny
    return allowed


def expected(case: Case, grad: np.ndarray) -> np.ndarray:
    """Return the gradient by the definition, in float64."""
    return input_gradient(grad.astype(np.float64), case.extents, case.pooling)


def random_pooling(rng: np.random.Generator) -> Pooling:
    """Return a pooling with padding up to half the kernel and strides beyond it."""
    kernel = tuple(int(k) for k in rng.integers(1, 6, 2))
    return Pooling(
        kernel=(kernel[0], kernel[1]),
        stride=(int(rng.integers(1, 5)), int(rng.integers(1, 5))),
        pad=(int(rng.integers(0, kernel[0] // 2 + 1)), int(rng.integers(0, kernel[1] // 2 + 1))),
        ceil_mode=bool(rng.integers(0, 2)),
        count_include_pad=bool(rng.integers(0, 2)),
        divisor_override=int(rng.choice([0, 0, 0, 1, -3, 7, 100, -255, 255])),
    )


def random_case(rng: np.random.Generator, series: str) -> Case:
    """Return any pooling with a window: strips, clipped last windows, three and four axes, every type and mode."""
    split = get_product(series).core.is_split
    while True:
        pooling = random_pooling(rng)
        dtype = str(rng.choice(["fp32", "fp16", "bf16"] if split else ["fp32", "fp16"]))
        case = Case(
            series=series,
            dtype=dtype,
            leading=(2, int(rng.integers(1, 20))) if rng.random() < 0.7 else (int(rng.integers(1, 5)),),
            extents=(int(rng.integers(1, 14)), int(rng.integers(1, 14))),
            pooling=pooling,
            cube_math_type=int(rng.choice([1, 2] if not split and dtype == "fp32" else [0, 1, 2, 3])),
        )
        if min(case.out) > 0:
            return case


def as_integers(case: Case) -> Case:
    """Return the same with integers and a divisor that is a power of two: every step of every route is exact."""
    return replace(case, integers=True, pooling=replace(case.pooling, divisor_override=-16))
