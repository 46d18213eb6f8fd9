"""The input gradient and the forward convolution by their definitions, in float64 or int64.

This module is the reference everything else is measured against, so it shares no code with it: plain NumPy, its own
reading of the arguments, no padding and no inserted zero written anywhere (a tap outside the input adds nothing).

    y[n, co, o...]  = sum over ci, k...      of  x[n, ci, o * stride - pad + k * dilation] * w[co, ci, k...]
    dx[n, ci, i...] = sum over co, k..., o.. of  dy[n, co, o...] * w[co, ci, k...]  where i = o * stride - pad + k * dil
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Axes = tuple[int, ...]
Taps = Iterator[tuple[Axes, tuple[slice, ...], tuple[slice, ...]]]


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
    _check(shape, grad.shape, kernel.shape, groups)
    result = np.zeros(shape, dtype)
    cin_group, cout_group = kernel.shape[1], kernel.shape[0] // groups
    for tap, read, out in _taps(shape, grad.shape, kernel.shape, stride, padding, dilation):
        for group in range(groups):
            rows = slice(group * cout_group, (group + 1) * cout_group)
            columns = slice(group * cin_group, (group + 1) * cin_group)
            place: tuple[Any, ...] = (rows, slice(None), *tap)
            part = np.tensordot(grad[(slice(None), rows, *out)], kernel[place], axes=(1, 0))
            result[(slice(None), columns, *read)] += np.moveaxis(part, -1, 1)
    return result


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
    _check(fmap.shape, shape, kernel.shape, groups)
    result = np.zeros(shape, dtype)
    cin_group, cout_group = kernel.shape[1], kernel.shape[0] // groups
    for tap, read, out in _taps(fmap.shape, shape, kernel.shape, stride, padding, dilation):
        for group in range(groups):
            rows = slice(group * cout_group, (group + 1) * cout_group)
            columns = slice(group * cin_group, (group + 1) * cin_group)
            place: tuple[Any, ...] = (rows, slice(None), *tap)
            part = np.tensordot(fmap[(slice(None), columns, *read)], kernel[place], axes=(1, 1))
            result[(slice(None), rows, *out)] += np.moveaxis(part, -1, 1)
    return result


def _check(x_shape: Axes, y_shape: Axes, w_shape: Axes, groups: int) -> None:
    rank = len(x_shape)
    if rank not in (3, 4, 5) or len(y_shape) != rank or len(w_shape) != rank:
        raise ValueError(f"ranks must be equal and 3, 4 or 5, not {rank}, {len(y_shape)} and {len(w_shape)}")
    cout, cin_group = w_shape[:2]
    if y_shape[0] != x_shape[0] or x_shape[1] != cin_group * groups or y_shape[1] != cout or cout % groups:
        raise ValueError(f"channels must fit together, not x {x_shape}, y {y_shape}, weight {w_shape}, groups {groups}")


def _taps(
    x_shape: Axes,
    y_shape: Axes,
    w_shape: Axes,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
) -> Taps:
    """Yield each tap with the positions of x it reads and the outputs it serves, in step with each other."""
    spatial = len(x_shape) - 2
    strides, dilations = _axes(stride, spatial), _axes(dilation, spatial)
    before, after = _pads(padding, spatial)
    for axis in range(spatial):
        reach = x_shape[2 + axis] + before[axis] + after[axis] - dilations[axis] * (w_shape[2 + axis] - 1) - 1
        if reach < 0 or y_shape[2 + axis] != reach // strides[axis] + 1:
            raise ValueError(f"output extent {axis} must be {reach // strides[axis] + 1}, not {y_shape[2 + axis]}")
    for tap in itertools.product(*(range(extent) for extent in w_shape[2:])):
        read: list[Any] = []
        out: list[Any] = []
        for axis, k in enumerate(tap):
            shift = k * dilations[axis] - before[axis]
            step = strides[axis]
            served = [o for o in range(y_shape[2 + axis]) if 0 <= o * step + shift < x_shape[2 + axis]]
            if not served:
                break
            out.append(slice(served[0], served[-1] + 1))
            read.append(slice(served[0] * step + shift, served[-1] * step + shift + 1, step))
        else:
            yield tap, tuple(read), tuple(out)


def _axes(value: int | Sequence[int], spatial: int) -> Axes:
    values = (value,) * spatial if isinstance(value, int) else tuple(int(item) for item in value)
    if len(values) != spatial or min(values) < 1:
        raise ValueError(f"strides and dilations must be {spatial} positive ints, not {values}")
    return values


def _pads(value: int | Sequence[int], spatial: int) -> tuple[Axes, Axes]:
    values = (value,) * spatial if isinstance(value, int) else tuple(int(item) for item in value)
    if len(values) == 2 * spatial:
        return values[0::2], values[1::2]
    if len(values) != spatial:
        raise ValueError(f"padding must be 1, {spatial} or {2 * spatial} ints, not {values}")
    return values, values
