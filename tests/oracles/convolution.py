"""What a convolution is besides its tensors, and its gradients by `ops.common.definition` in the words of the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ops.common.definition import forward, input_gradient, weight_gradient


@dataclass(frozen=True, kw_only=True)
class Attributes:
    """What a convolution is besides its tensors.

    Attributes
    ----------
    stride, dilation : tuple of int
        Per spatial axis.
    pads : tuple of (int, int)
        Before and after, per spatial axis.
    groups : int
        Channel groups.
    transposed : bool
        The gradients are those of the transposed convolution.
    """

    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False

    def keywords(self, dtype: npt.DTypeLike) -> dict[str, Any]:
        """Return the attributes in the words of the definitions, to be computed in ``dtype``."""
        flat = tuple(pad for pair in self.pads for pad in pair)
        return {
            "stride": self.stride, "padding": flat, "dilation": self.dilation, "groups": self.groups, "dtype": dtype
        }  # fmt: skip


def output_extent(extent: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int) -> int:
    """Return the extent of y along one axis."""
    return (extent + sum(pads) - dilation * (kernel - 1) - 1) // stride + 1


def gradients(
    grad_output: np.ndarray, tensor: np.ndarray, weight: np.ndarray, attributes: Attributes
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of the input, of the weight and of the bias.

    Parameters
    ----------
    grad_output, tensor, weight : array
        float64 or integers, in the shapes of `ops.convolution_backward`; ``tensor`` is its input.
    attributes : Attributes
        Of the call.
    """
    keywords = attributes.keywords(grad_output.dtype)
    bias = grad_output.sum(axis=(0, *range(2, grad_output.ndim)))
    # the transposed convolution scatters: its input is the y and its output the x of the convolution
    x, y = (grad_output, tensor) if attributes.transposed else (tensor, grad_output)
    of_input = forward if attributes.transposed else input_gradient
    return (
        of_input(grad_output, weight, tensor.shape, **keywords),
        weight_gradient(x, y, weight.shape, **keywords),
        bias,
    )
