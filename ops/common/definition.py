"""The convolution and its gradients by their definitions, in float64, int64 or float32.

These are the goldens of precision studies and what everything else is tested against, so they share no code with it:
plain NumPy over the slices of `ops.common.taps` (a tap that falls into the padding adds nothing).

    y[n, co, o...]   = sum over ci, k...      of  x[n, ci, o * stride - pad + k * dilation] * w[co, ci, k...]
    dw[co, ci, k...] = sum over n, o...       of  dy[n, co, o...] * x[n, ci, o * stride - pad + k * dilation]
    dx[n, ci, i...]  = sum over co, k..., o.. of  dy[n, co, o...] * w[co, ci, k...], i = o * stride - pad + k * dilation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.fenv import default_fenv
from ops.common.taps import check_channels, taps

_CHAINED_AT_ONCE = 1 << 20
"""Products in float32 that are made in one step: 4 MiB."""


@default_fenv
def weight_gradient(
    x: npt.ArrayLike,
    dy: npt.ArrayLike,
    weight_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    dtype: npt.DTypeLike = np.float64,
) -> np.ndarray:
    """Return the gradient of the weight.

    Parameters
    ----------
    x : array (n, cin, spatial...)
        Forward input; rank 3, 4 or 5, any real dtype.
    dy : array (n, cout, out spatial...)
        Gradient of the output.
    weight_shape : sequence of int
        (cout, cin / groups, kernel spatial...).
    stride, dilation : int or sequence of int
        For all axes, or one for each.
    padding : int or sequence of int
        For all axes, one for each axis, or (before, after) of each axis in one flat sequence.
    groups : int
        Groups.
    dtype : dtype
        float64, int64 for integer-valued tensors of any size, or float32 for the sums of `inner_products`.

    Returns
    -------
    array of ``dtype``, shape ``weight_shape``
        In float64 exact while every partial sum is an integer below 2**53. A tap that reads only padding adds nothing,
        also when ``dy`` is not finite. PyTorch's CPU gradient does so in float32 for some shapes; for others, and in
        float64, it has NaN there, as the Cube, which multiplies the zeros of the padding.

    Raises
    ------
    ValueError
        If the extents do not fit together.
    """
    fmap, grad = np.asarray(x).astype(dtype), np.asarray(dy).astype(dtype)
    shape = tuple(int(extent) for extent in weight_shape)
    check_channels(fmap.shape, grad.shape, shape, groups, "dy")
    # Channels lead and the batch follows, so that one tap is one matrix product over (n, output pixels).
    x_lead = np.ascontiguousarray(np.moveaxis(fmap, 1, 0))
    dy_lead = np.ascontiguousarray(np.moveaxis(grad, 1, 0))
    result = np.zeros(shape, dtype)
    if result.size == 0:
        return result
    cout_group, cin_group = shape[0] // groups, shape[1]
    for tap, read, served in taps(fmap.shape, grad.shape, shape, stride, padding, dilation, "dy"):
        dy_part, x_part = dy_lead[(slice(None), slice(None), *served)], x_lead[(slice(None), slice(None), *read)]
        for group in range(groups):
            rows = slice(group * cout_group, (group + 1) * cout_group)
            columns = slice(group * cin_group, (group + 1) * cin_group)
            left, right = dy_part[rows].reshape(cout_group, -1), x_part[columns].reshape(cin_group, -1)
            place: tuple[Any, ...] = (rows, slice(None), *tap)
            result[place] = inner_products(left, right)
    return result


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
    stride, padding, dilation, groups, dtype
        As of `weight_gradient`.

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
            part = _over_channels(grad[(slice(None), rows, *served)], kernel[place].T)
            result[(slice(None), columns, *read)] += part
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
            part = _over_channels(fmap[(slice(None), columns, *read)], kernel[place])
            result[(slice(None), rows, *served)] += part
    return result


def _over_channels(tensor: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return (n, m, spatial...) of a tensor (n, k, spatial...) and a matrix (m, k)."""
    last = np.moveaxis(tensor, 1, -1)
    products = inner_products(last.reshape(-1, last.shape[-1]), matrix)
    return np.moveaxis(products.reshape(*last.shape[:-1], len(matrix)), -1, 1)


def inner_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``left @ right.T``.

    Parameters
    ----------
    left, right : array (m, k), (n, k)
        Of one dtype.

    Returns
    -------
    array (m, n) of that dtype
        In float32 each product and each addition is rounded, in ascending k: what a loop on a CPU makes, and the same
        on every host. In float64 the order is that of the host's library.
    """
    if left.dtype != np.float32:
        return np.asarray(left @ right.T)
    sums = np.zeros((len(left), len(right)), np.float32)
    step = max(1, _CHAINED_AT_ONCE // max(1, sums.size))
    for start in range(0, left.shape[1], step):
        part = slice(start, start + step)
        products = left.T[part, :, None] * right.T[part, None, :]
        products[0] += sums
        sums = np.add.accumulate(products, axis=0)[-1]
    return sums
