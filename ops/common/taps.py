"""The kernel taps of a convolution as slices, for the definitions of its gradients.

    y[n, co, o...] = sum over ci, k...  of  x[n, ci, o * stride - pad + k * dilation] * w[co, ci, k...]

Plain NumPy, with its own reading of the arguments: no kernel or geometry of the emulator is used here. No padding is
written anywhere: a tap that falls into it has no slice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

Axes = tuple[int, ...]
Tap = tuple[Axes, tuple[slice, ...], tuple[slice, ...]]


def check_channels(x_shape: Axes, y_shape: Axes, w_shape: Axes, groups: int, y_name: str = "y") -> None:
    """Refuse ranks, batches and channels that are not those of one convolution.

    Raises
    ------
    ValueError
        With ``y_name`` for y.
    """
    rank = len(x_shape)
    if rank not in (3, 4, 5) or len(y_shape) != rank or len(w_shape) != rank:
        raise ValueError(f"ranks must be equal and 3, 4 or 5, not {rank}, {len(y_shape)} and {len(w_shape)}")
    cout, cin_group = w_shape[:2]
    if y_shape[0] != x_shape[0] or x_shape[1] != cin_group * groups or y_shape[1] != cout or cout % groups:
        shapes = f"x {x_shape}, {y_name} {y_shape}, weight {w_shape}"
        raise ValueError(f"channels must fit together, not {shapes}, groups {groups}")


def taps(
    x_shape: Axes,
    y_shape: Axes,
    w_shape: Axes,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    y_name: str = "output",
) -> Iterator[Tap]:
    """Yield each tap that reads anything, with what it reads.

    Parameters
    ----------
    x_shape, y_shape, w_shape : tuple of int
        (n, cin, spatial...), (n, cout, out spatial...), (cout, cin / groups, kernel spatial...).
    stride, dilation : int or sequence of int
        For all axes, or one for each.
    padding : int or sequence of int
        For all axes, one for each axis, or (before, after) of each axis in one flat sequence.
    y_name : str
        y, for messages.

    Yields
    ------
    tap : tuple of int
        Place in the kernel.
    read, served : tuple of slice
        Positions of x and the outputs they belong to, in step with each other, one slice an axis.

    Raises
    ------
    ValueError
        If the extents do not fit together.
    """
    spatial = len(x_shape) - 2
    strides, dilations = _axes(stride, spatial), _axes(dilation, spatial)
    before, after = _pads(padding, spatial)
    for axis in range(spatial):
        reach = x_shape[2 + axis] + before[axis] + after[axis] - dilations[axis] * (w_shape[2 + axis] - 1) - 1
        if y_shape[2 + axis] != reach // strides[axis] + 1:
            raise ValueError(f"{y_name} extent {axis} must be {reach // strides[axis] + 1}, not {y_shape[2 + axis]}")
    for tap in itertools.product(*(range(extent) for extent in w_shape[2:])):
        ranges = [
            _range(x_shape[2 + axis], y_shape[2 + axis], strides[axis], place * dilations[axis] - before[axis])
            for axis, place in enumerate(tap)
        ]
        if all(served.stop > served.start for _, served in ranges):
            yield tap, tuple(read for read, _ in ranges), tuple(served for _, served in ranges)


def _range(in_extent: int, out_extent: int, stride: int, shift: int) -> tuple[slice, slice]:
    """Return the outputs o with 0 <= o * stride + shift < in_extent, behind the inputs they read."""
    first = max(0, -(shift // stride)) if shift < 0 else 0
    last = min(out_extent - 1, (in_extent - 1 - shift) // stride)
    start = first * stride + shift
    return slice(start, last * stride + shift + 1, stride), slice(first, last + 1)


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
