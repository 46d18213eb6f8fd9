"""The convolution and its gradients by their definitions, in float64 or int64.

Plain NumPy over the slices of `ops.common.taps`, no padding and no inserted zero written anywhere (a tap outside the
input adds nothing). The weight gradient is that of `ops.common.definition`, which is the product's own golden.

    y[n, co, o...]  = sum over ci, k...      of  x[n, ci, o * stride - pad + k * dilation] * w[co, ci, k...]
    dx[n, ci, i...] = sum over co, k..., o.. of  dy[n, co, o...] * w[co, ci, k...]  where i = o * stride - pad + k * dil
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.fenv import default_fenv
from ops.common.definition import weight_gradient
from ops.common.taps import check_channels, taps


@default_fenv
def input_gradient(
    dy: npt.ArrayLike,
    weight: npt.ArrayLike,
    input_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    dtype: npt.DTypeLike = np.float64,
) -> np.ndarray:
    """Return the gradient of the convolution's input.

    Parameters
    ----------
    dy : array (n, cout, out spatial...)
        Gradient of the output; rank 3, 4 or 5, any real dtype.
    weight : array (cout, cin / groups, kernel spatial...)
        Weight.
    input_shape : sequence of int
        (n, cin, spatial...).
    stride, dilation : int or sequence of int
        For all axes, or one for each.
    padding : int or sequence of int
        For all axes, one for each axis, or (before, after) of each axis in one flat sequence.
    groups : int
        Groups.
    dtype : dtype
        float64, or int64 for integer-valued tensors of any size.

    Returns
    -------
    array of ``dtype``, shape ``input_shape``
        In float64 exact while every partial sum is an integer below 2**53. Elements no window reads are 0.

    Raises
    ------
    ValueError
        If the extents do not fit together.
    """
    grad, kernel = np.asarray(dy).astype(dtype), np.asarray(weight).astype(dtype)
    shape = tuple(int(extent) for extent in input_shape)
    check_channels(shape, grad.shape, kernel.shape, groups)
    result = np.zeros(shape, dtype)
    cin_group, cout_group = kernel.shape[1], kernel.shape[0] // groups
    for tap, read, served in taps(shape, grad.shape, kernel.shape, stride, padding, dilation):
        for group in range(groups):
            rows = slice(group * cout_group, (group + 1) * cout_group)
            columns = slice(group * cin_group, (group + 1) * cin_group)
            place: tuple[Any, ...] = (rows, slice(None), *tap)
            part = np.tensordot(grad[(slice(None), rows, *served)], kernel[place], axes=(1, 0))
            result[(slice(None), columns, *read)] += np.moveaxis(part, -1, 1)
    return result


@default_fenv
def forward(
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    output_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    dtype: npt.DTypeLike = np.float64,
) -> np.ndarray:
    """Return the convolution of ``x`` with ``weight``; parameters as of `input_gradient`.

    ``output_shape`` is (n, cout, out spatial...); each output extent must be the one the attributes give.

    Raises
    ------
    ValueError
        If the extents do not fit together.
    """
    fmap, kernel = np.asarray(x).astype(dtype), np.asarray(weight).astype(dtype)
    shape = tuple(int(extent) for extent in output_shape)
    check_channels(fmap.shape, shape, kernel.shape, groups)
    result = np.zeros(shape, dtype)
    cin_group, cout_group = kernel.shape[1], kernel.shape[0] // groups
    for tap, read, served in taps(fmap.shape, shape, kernel.shape, stride, padding, dilation):
        for group in range(groups):
            rows = slice(group * cout_group, (group + 1) * cout_group)
            columns = slice(group * cin_group, (group + 1) * cin_group)
            place: tuple[Any, ...] = (rows, slice(None), *tap)
            part = np.tensordot(fmap[(slice(None), columns, *read)], kernel[place], axes=(1, 1))
            result[(slice(None), rows, *served)] += np.moveaxis(part, -1, 1)
    return result


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
