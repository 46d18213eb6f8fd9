"""Gradients of a convolution by their definition: a loop over kernel taps, whole-array products, float64 or integers.

Written from the mathematics alone: y[n, co, o] = sum over c, k of x[n, c, o s - p + k d] w[co, c, k], and the
transposed convolution as the map that scatters what the convolution gathers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every

import numpy as np


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


def _padded(x: np.ndarray, attributes: Attributes) -> np.ndarray:
    return np.pad(x, [(0, 0), (0, 0), *attributes.pads])


def _windows(padded: np.ndarray, tap: tuple[int, ...], out: tuple[int, ...], attributes: Attributes) -> np.ndarray:
    """Return the view of the padded map under one kernel tap: [n, c, *out]."""
    index = tuple(
        slice(k * d, k * d + (o - 1) * s + 1, s)
        for k, d, o, s in zip(tap, attributes.dilation, out, attributes.stride, strict=True)
    )
    return padded[(slice(None), slice(None), *index)]


def _grouped(array: np.ndarray, groups: int, axis: int) -> np.ndarray:
    """Split ``axis`` into (groups, channels of a group)."""
    shape = list(array.shape)
    return array.reshape([*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]])


def data_gradient(y: np.ndarray, w: np.ndarray, x_shape: tuple[int, ...], attributes: Attributes) -> np.ndarray:
    """Return the gradient with respect to x of sum(y * conv(x, w)): scatters y through the windows."""
    spatial = len(attributes.stride)
    extents = [e + sum(p) for e, p in zip(x_shape[2:], attributes.pads, strict=True)]
    padded = np.zeros((x_shape[0], x_shape[1], *extents), y.dtype)
    gy = _grouped(y, attributes.groups, 1).reshape(y.shape[0], attributes.groups, -1, int(np.prod(y.shape[2:])))
    gw = _grouped(w, attributes.groups, 0)
    for tap in every(*(range(k) for k in w.shape[2:])):
        part = np.einsum("ngop,goc->ngcp", gy, gw[(slice(None),) * 3 + tap])
        window = _windows(padded, tap, y.shape[2:], attributes)
        window += part.reshape(window.shape)
    inner = tuple(slice(p[0], p[0] + e) for p, e in zip(attributes.pads, x_shape[2:], strict=True))
    assert len(inner) == spatial
    return padded[(slice(None), slice(None), *inner)]


def forward(x: np.ndarray, w: np.ndarray, attributes: Attributes) -> np.ndarray:
    """Y = conv(x, w)."""
    padded = _padded(x, attributes)
    out = tuple(
        output_extent(e, k, s, p, d)
        for e, k, s, p, d in zip(
            x.shape[2:], w.shape[2:], attributes.stride, attributes.pads, attributes.dilation, strict=True
        )
    )
    gw = _grouped(w, attributes.groups, 0)
    total = np.zeros((x.shape[0], attributes.groups, gw.shape[1], int(np.prod(out))), x.dtype)
    for tap in every(*(range(k) for k in w.shape[2:])):
        window = _windows(padded, tap, out, attributes)
        gx = _grouped(window, attributes.groups, 1).reshape(x.shape[0], attributes.groups, -1, int(np.prod(out)))
        total += np.einsum("ngcp,goc->ngop", gx, gw[(slice(None),) * 3 + tap])
    return total.reshape(x.shape[0], w.shape[0], *out)


def kernel_gradient(x: np.ndarray, y: np.ndarray, w_shape: tuple[int, ...], attributes: Attributes) -> np.ndarray:
    """Return the gradient with respect to w of sum(y * conv(x, w))."""
    padded = _padded(x, attributes)
    out = y.shape[2:]
    count = int(np.prod(out))
    gy = _grouped(y, attributes.groups, 1).reshape(y.shape[0], attributes.groups, -1, count)
    result = np.zeros(w_shape, x.dtype)
    gw = _grouped(result, attributes.groups, 0)
    for tap in every(*(range(k) for k in w_shape[2:])):
        window = _windows(padded, tap, out, attributes)
        gx = _grouped(window, attributes.groups, 1).reshape(x.shape[0], attributes.groups, -1, count)
        gw[(slice(None),) * 3 + tap] = np.einsum("ngop,ngcp->goc", gy, gx)
    return result


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
