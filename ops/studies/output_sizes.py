"""Extents of the outputs of convolutions and poolings, as their attributes give them, whatever the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def convolution_output(
    extents: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    *,
    transposed: bool = False,
    output_padding: Sequence[int] = (),
) -> tuple[int, ...]:
    """Return the spatial extents of the output.

    Parameters
    ----------
    extents : sequence of int
        Spatial extents of the input.
    kernel, stride, dilation : sequence of int
        One entry per axis.
    padding : sequence of int
        One entry per axis, in 2D also up, down, left, right.
    transposed : bool
        It is a transposed convolution.
    output_padding : sequence of int
        One entry per axis; () is none.
    """
    pairs = [(pad, pad) for pad in padding]
    if len(padding) == 2 * len(extents):
        pairs = list(zip(padding[::2], padding[1::2], strict=True))
    found = []
    for axis, (extent, (before, after)) in enumerate(zip(extents, pairs, strict=True)):
        reach, step = dilation[axis] * (kernel[axis] - 1) + 1, stride[axis]
        if transposed:
            more = output_padding[axis] if output_padding else 0
            found.append((extent - 1) * step - before - after + reach + more)
        else:
            room = extent + before + after - reach
            found.append(room // step + 1 if room >= 0 else 0)
    return tuple(found)


def pooling_output(
    extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], *, ceil_mode: bool
) -> tuple[int, ...]:
    """Return the windows of a pooling along each axis.

    With ``ceil_mode`` a last one may begin inside the input and reach over its end.
    """
    return tuple(_windows(*axis, ceil_mode) for axis in zip(extents, kernel, stride, padding, strict=True))


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """Return a number for each axis, of one number or a list of one for all of them."""
    values = tuple(map(int, value)) if isinstance(value, list | tuple) else (int(value),)
    return values * axes if len(values) == 1 else values


def _windows(extent: int, kernel: int, step: int, pad: int, ceil_mode: bool) -> int:
    room = extent + 2 * pad - kernel
    if not ceil_mode:
        return room // step + 1 if room >= 0 else 0
    windows = max(-(-room // step) + 1, 0)
    return windows - (windows > 0 and (windows - 1) * step >= extent + pad)
