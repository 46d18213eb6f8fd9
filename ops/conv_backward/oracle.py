"""All gradients of a convolution by their definition, float64 or integers; of the transposed one too.

y[n, co, o] = sum over c, k of x[n, c, o s - p + k d] w[co, c, k]; the transposed convolution is the map that scatters
what the convolution gathers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ops.conv3d_backprop_filter.oracle import weight_gradient
from ops.conv3d_backprop_input.oracle import forward as convolution
from ops.conv3d_backprop_input.oracle import input_gradient


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


def output_extent(extent: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int) -> int:
    """Return the extent of y along one axis."""
    return (extent + sum(pads) - dilation * (kernel - 1) - 1) // stride + 1


def _keywords(attributes: Attributes, dtype: np.dtype) -> dict[str, Any]:
    flat = tuple(pad for pair in attributes.pads for pad in pair)
    return {
        "stride": attributes.stride,
        "padding": flat,
        "dilation": attributes.dilation,
        "groups": attributes.groups,
        "dtype": dtype,
    }


def data_gradient(y: np.ndarray, w: np.ndarray, x_shape: tuple[int, ...], attributes: Attributes) -> np.ndarray:
    """Return the gradient with respect to x of sum(y * conv(x, w)): scatters y through the windows."""
    return input_gradient(y, w, x_shape, **_keywords(attributes, y.dtype))


def forward(x: np.ndarray, w: np.ndarray, attributes: Attributes) -> np.ndarray:
    """Y = conv(x, w)."""
    axes = zip(x.shape[2:], w.shape[2:], attributes.stride, attributes.pads, attributes.dilation, strict=True)
    out = tuple(output_extent(*axis) for axis in axes)
    return convolution(x, w, (x.shape[0], w.shape[0], *out), **_keywords(attributes, x.dtype))


def kernel_gradient(x: np.ndarray, y: np.ndarray, w_shape: tuple[int, ...], attributes: Attributes) -> np.ndarray:
    """Return the gradient with respect to w of sum(y * conv(x, w))."""
    return weight_gradient(x, y, w_shape, **_keywords(attributes, x.dtype))


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
    bias = grad_output.sum(axis=(0, *range(2, grad_output.ndim)))
    if attributes.transposed:
        # the transposed convolution scatters: its input is the y and its output the x of the convolution
        return (
            forward(grad_output, weight, attributes),
            kernel_gradient(grad_output, tensor, weight.shape, attributes),
            bias,
        )
    return (
        data_gradient(grad_output, weight, tensor.shape, attributes),
        kernel_gradient(tensor, grad_output, weight.shape, attributes),
        bias,
    )
