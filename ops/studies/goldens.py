"""The float64 gradients a computed one is compared with, and what the casts did to the inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.dtypes.formats import dtype_name
from npu_sim.report.precision import Overflow
from ops.studies.capture import Layer
from ops.studies.rounding import cast, count_overflow, count_underflow, multiplied


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """The gradient of the tensors that the Cube multiplied.

    Attributes
    ----------
    golden : float64 array
        That gradient.
    input_underflow : int
        Elements of x and dy that are not 0 in the file and 0 on the Cube.
    input_overflow : int
        Elements of x and dy that are finite in the file and beyond the format on the Cube: Inf, or the largest number
        on a product that saturates.
    input_specials_lost : int
        Elements of x and dy that are NaN or Inf in the file and a number on the Cube: a cast that saturates makes 0 and
        the largest number of them.
    lost_tensors : tuple of str
        Those of "x" and "dy" that are not all 0 in the file and all 0 on the Cube.
    """

    golden: npt.NDArray[np.float64]
    input_underflow: int
    input_overflow: int
    input_specials_lost: int
    lost_tensors: tuple[str, ...]


class Goldens:
    """The float64 gradients of one layer, each computed once.

    Parameters
    ----------
    layer : Layer
        Tensors of the file.
    dtype : str or None
        Format the tensors are cast to before the call.
    oracle : callable
        ``ops.common.definition.weight_gradient``.
    """

    def __init__(self, layer: Layer, dtype: str | None, oracle: Callable[..., npt.NDArray[np.float64]]) -> None:
        self._layer = layer
        self._oracle = oracle
        self._rounded: dict[tuple[object, ...], Rounded] = {}
        name = dtype or dtype_name(layer.x.dtype)
        self.x = cast(layer.x, name)
        self.dy = cast(layer.dy, name)
        self.original = self._gradient(layer.x, layer.dy)

    def rounded(self, compute_dtype: str, product: Any) -> Rounded:
        """Return the golden of what the Cube of ``product`` multiplies in ``compute_dtype``."""
        overflow: Overflow = product.overflow_mode
        mantissa_bits, ties = product.hf32_mantissa_bits, product.hf32_ties
        key = (compute_dtype, mantissa_bits, ties) if compute_dtype == "hf32" else (compute_dtype, overflow)
        if key not in self._rounded:
            operands = [multiplied(tensor, compute_dtype, product) for tensor in (self.x, self.dy)]
            pairs = list(zip((self._layer.x, self._layer.dy), operands, strict=True))
            self._rounded[key] = Rounded(
                golden=self._gradient(*operands),
                input_underflow=sum(count_underflow(original, operand) for original, operand in pairs),
                input_overflow=sum(count_overflow(original, operand, compute_dtype) for original, operand in pairs),
                input_specials_lost=sum(_specials_lost(original, operand) for original, operand in pairs),
                lost_tensors=tuple(
                    name
                    for name, (original, operand) in zip(("x", "dy"), pairs, strict=True)
                    if original.any() and not operand.any()
                ),
            )
        return self._rounded[key]

    def _gradient(self, x: np.ndarray, dy: np.ndarray) -> npt.NDArray[np.float64]:
        layer = self._layer
        # three float64 copies of the operands while it is computed, and a product of one tap beside the result
        elems = 3 * (x.size + dy.size) + 2 * prod(layer.weight_shape)
        reserve(f"Golden of {layer.name} in float64", elems * 8)
        with np.errstate(all="ignore"):
            return self._oracle(
                x.astype(np.float64),
                dy.astype(np.float64),
                layer.weight_shape,
                stride=layer.stride,
                padding=layer.padding,
                dilation=layer.dilation,
                groups=layer.groups,
            )


def _specials_lost(original: np.ndarray, operand: np.ndarray) -> int:
    return int(np.count_nonzero(~np.isfinite(original) & np.isfinite(operand)))
