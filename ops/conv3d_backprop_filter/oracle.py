"""The weight gradient by its definition, in float64 or int64.

This module is the reference everything else is measured against, so it shares no code with it: plain NumPy, its own
reading of the arguments, no padding written anywhere (a tap that falls into the padding adds nothing).

    dw[co, ci, k...] = sum over n, o...  of  dy[n, co, o...] * x[n, ci, o * stride - pad + k * dilation]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Axes = tuple[int, ...]


def weight_gradient(
    x: npt.ArrayLike,
    dy: npt.ArrayLike,
    weight_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> npt.NDArray[np.float64]:
    """Return the gradient of the weight, computed in float64.

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

    Returns
    -------
    float64[weight_shape]
        Exact while every partial sum is an integer below 2**53. A tap that reads only padding adds nothing, also when
        ``dy`` is not finite.

    Raises
    ------
    ValueError
        If the extents do not fit together.
    """
    return _by_taps(_as(x, np.float64), _as(dy, np.float64), weight_shape, stride, padding, dilation, groups)


def weight_gradient_exact(
    x: npt.ArrayLike,
    dy: npt.ArrayLike,
    weight_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> npt.NDArray[np.int64]:
    """Return the gradient of the weight of integer-valued tensors, computed in int64. Slow: for small shapes.

    Parameters are those of `weight_gradient`; ``x`` and ``dy`` may be of a floating dtype if their values are integers.

    Raises
    ------
    ValueError
        If a value is not an integer, or the extents do not fit together.
    """
    operands = []
    for name, values in (("x", x), ("dy", dy)):
        with np.errstate(invalid="ignore"):
            exact = _as(values, np.int64)
        if not np.array_equal(exact, np.asarray(values)):
            raise ValueError(f"{name} must hold integers, not fractions")
        operands.append(exact)
    return _by_taps(operands[0], operands[1], weight_shape, stride, padding, dilation, groups)


def _as(values: npt.ArrayLike, dtype: type[Any]) -> np.ndarray:
    return np.asarray(values).astype(dtype)


def _by_taps(
    x: np.ndarray,
    dy: np.ndarray,
    weight_shape: Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
) -> np.ndarray:
    spatial = x.ndim - 2
    shape = tuple(int(extent) for extent in weight_shape)
    if spatial not in (1, 2, 3) or dy.ndim != x.ndim or len(shape) != x.ndim:
        raise ValueError(f"ranks must be equal and 3, 4 or 5, not {x.ndim}, {dy.ndim} and {len(shape)}")
    strides, dilations = _axes(stride, spatial), _axes(dilation, spatial)
    before, after = _pads(padding, spatial)
    cout, cin_group, *kernel = shape
    if x.shape[0] != dy.shape[0] or x.shape[1] != cin_group * groups or dy.shape[1] != cout or cout % groups:
        raise ValueError(f"channels must fit together, not x {x.shape}, dy {dy.shape}, weight {shape}, groups {groups}")
    for axis in range(spatial):
        reach = x.shape[2 + axis] + before[axis] + after[axis] - dilations[axis] * (kernel[axis] - 1) - 1
        if dy.shape[2 + axis] != reach // strides[axis] + 1:
            raise ValueError(f"dy extent {axis} must be {reach // strides[axis] + 1}, not {dy.shape[2 + axis]}")
    # Channels lead and the batch follows, so that one tap is one matrix product over (n, output pixels).
    x_lead = np.ascontiguousarray(np.moveaxis(x, 1, 0))
    dy_lead = np.ascontiguousarray(np.moveaxis(dy, 1, 0))
    result = np.zeros(shape, x.dtype)
    cout_group = cout // groups
    for tap in itertools.product(*(range(extent) for extent in kernel)):
        ranges = [
            _tap_range(x.shape[2 + axis], dy.shape[2 + axis], strides[axis], tap[axis] * dilations[axis] - before[axis])
            for axis in range(spatial)
        ]
        if any(out.stop <= out.start for out, _ in ranges):
            continue
        dy_part = dy_lead[(slice(None), slice(None), *(out for out, _ in ranges))]
        x_part = x_lead[(slice(None), slice(None), *(read for _, read in ranges))]
        for group in range(groups):
            rows = slice(group * cout_group, (group + 1) * cout_group)
            columns = slice(group * cin_group, (group + 1) * cin_group)
            left = dy_part[rows].reshape(cout_group, -1)
            right = x_part[columns].reshape(cin_group, -1)
            place: tuple[Any, ...] = (rows, slice(None), *tap)
            result[place] = left @ right.T
    return result


def _tap_range(in_extent: int, out_extent: int, stride: int, shift: int) -> tuple[slice, slice]:
    """Return the outputs o with 0 <= o * stride + shift < in_extent, and the inputs they read."""
    first = max(0, -(shift // stride)) if shift < 0 else 0
    last = min(out_extent - 1, (in_extent - 1 - shift) // stride)
    start = first * stride + shift
    return slice(first, last + 1), slice(start, last * stride + shift + 1, stride)


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
