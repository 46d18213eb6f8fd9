"""The definitions of `ops.common.definition` in float64 by few large matrix products: goldens of large layers.

A window's elements stand side by side, tap by tap, for as many images at a time as the caches hold; positions in the
padding are zeros there. Sums are those of the definition in another order: both are within (K + 1) 2^-53 of the exact
sum of K products, times the sum of their magnitudes. A zero times an infinity or a NaN would be one more term, so
operands that are not finite go to the definition itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.fenv import default_fenv
from ops.common import definition
from ops.common.taps import Tap, check_channels, taps

_AT_ONCE = 1 << 21
"""Elements that stand side by side at a time: 16 MiB."""

Float64 = npt.NDArray[np.float64]
Axes = int | Sequence[int]


@default_fenv
def weight_gradient(
    x: npt.ArrayLike,
    dy: npt.ArrayLike,
    weight_shape: Sequence[int],
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Float64:
    """Return the gradient of the weight; parameters and errors as of `ops.common.definition.weight_gradient`."""
    fmap, grad, shape = _wide(x), _wide(dy), tuple(int(extent) for extent in weight_shape)
    if not np.isfinite(grad).all():
        return definition.weight_gradient(fmap, grad, shape, stride, padding, dilation, groups)
    check_channels(fmap.shape, grad.shape, shape, groups, "dy")
    result = np.zeros(shape)
    every = list(taps(fmap.shape, grad.shape, shape, stride, padding, dilation, "dy"))
    for rows, columns in _groups(shape, groups):
        for images, some in _pieces(fmap.shape, grad.shape, shape[1], every):
            windows = _windows(fmap[images, columns], some, grad.shape[2:])
            left = grad[images, rows].reshape(windows.shape[0], rows.stop - rows.start, -1)
            # images, (channel, tap): the products of all images are added
            sums = np.tensordot(left, windows.reshape(windows.shape[0], -1, left.shape[-1]), ((0, 2), (0, 2)))
            sums = sums.reshape(len(sums), shape[1], len(some))
            for number, (tap, _, _) in enumerate(some):
                place: tuple[Any, ...] = (rows, slice(None), *tap)
                result[place] += sums[..., number]
    return result


@default_fenv
def forward(
    x: npt.ArrayLike,
    weight: npt.ArrayLike,
    output_shape: Sequence[int],
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Float64:
    """Return the convolution of ``x``; parameters and errors as of `ops.common.definition.forward`."""
    fmap, kernel, shape = _wide(x), _wide(weight), tuple(int(extent) for extent in output_shape)
    if not np.isfinite(kernel).all():
        return definition.forward(fmap, kernel, shape, stride, padding, dilation, groups)
    check_channels(fmap.shape, shape, kernel.shape, groups)
    result = np.zeros(shape)
    every = list(taps(fmap.shape, shape, kernel.shape, stride, padding, dilation))
    for rows, columns in _groups(kernel.shape, groups):
        for images, some in _pieces(fmap.shape, shape, kernel.shape[1], every):
            windows = _windows(fmap[images, columns], some, shape[2:])
            part = _matrix(kernel, rows, some) @ windows.reshape(len(windows), -1, windows[0, 0, 0].size)
            result[images, rows] += part.reshape(result[images, rows].shape)
    return result


@default_fenv
def input_gradient(
    dy: npt.ArrayLike,
    weight: npt.ArrayLike,
    input_shape: Sequence[int],
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Float64:
    """Return the gradient of the input; parameters and errors as of `ops.common.definition.input_gradient`."""
    grad, kernel, shape = _wide(dy), _wide(weight), tuple(int(extent) for extent in input_shape)
    check_channels(shape, grad.shape, kernel.shape, groups)
    result = np.zeros(shape)
    every = list(taps(shape, grad.shape, kernel.shape, stride, padding, dilation))
    for rows, columns in _groups(kernel.shape, groups):
        for images, some in _pieces(shape, grad.shape, kernel.shape[1], every):
            source = np.ascontiguousarray(grad[images, rows])
            flat = source.reshape(len(source), source.shape[1], -1)
            # (channel, tap): what each window adds to the elements under it
            shares = _matrix(kernel, rows, some).T @ flat
            shares = shares.reshape(len(source), kernel.shape[1], len(some), *grad.shape[2:])
            for number, (_, read, served) in enumerate(some):
                into: Any = (images, columns, *read)
                source_of: Any = (slice(None), slice(None), number, *served)
                result[into] += shares[source_of]
    return result


def _wide(values: npt.ArrayLike) -> Float64:
    return np.asarray(values).astype(np.float64)


def _groups(weight_shape: Sequence[int], groups: int) -> Iterator[tuple[slice, slice]]:
    """Yield the output and the input channels of each group; none where there is no channel."""
    rows, columns = weight_shape[0] // groups, weight_shape[1]
    for group in range(groups if rows and columns else 0):
        yield slice(group * rows, (group + 1) * rows), slice(group * columns, (group + 1) * columns)


def _pieces(
    x_shape: Sequence[int], y_shape: Sequence[int], channels: int, every: Sequence[Tap]
) -> Iterator[tuple[slice, Sequence[Tap]]]:
    """Yield images and taps that are taken at a time, in their order."""
    one = max(1, channels * int(np.prod(y_shape[2:])))
    count = max(1, min(len(every), _AT_ONCE // one))
    images = max(1, _AT_ONCE // (one * count))
    for first in range(0, x_shape[0] if every else 0, images):
        for start in range(0, len(every), count):
            yield slice(first, min(first + images, x_shape[0])), every[start : start + count]


def _windows(fmap: Float64, some: Sequence[Tap], extents: Sequence[int]) -> Float64:
    """Return (n, channels, taps, out spatial...): what each window reads; 0 in the padding."""
    found = np.zeros((*fmap.shape[:2], len(some), *extents))
    for number, (_, read, served) in enumerate(some):
        into: Any = (slice(None), slice(None), number, *served)
        read_from: Any = (slice(None), slice(None), *read)
        found[into] = fmap[read_from]
    return found


def _matrix(kernel: Float64, rows: slice, some: Sequence[Tap]) -> Float64:
    """Return (cout / groups, channels * taps)."""
    own = np.moveaxis(kernel[rows], (0, 1), (-2, -1))
    stacked = np.stack([own[tap] for tap, _, _ in some], axis=-1)
    return stacked.reshape(len(stacked), -1)
