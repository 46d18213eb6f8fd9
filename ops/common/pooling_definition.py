"""2D average pooling and its gradient by their definitions, in float64 for goldens of precision studies, or float32.

Plain NumPy over the taps of a window; no kernel, plan or geometry of the emulator is used here.

    y[o]  = sum of x[i] over elements i that window o covers  /  divisor[o]
    dx[i] = sum over windows o that cover i  of  share[o],  share[o] = dy[o] / divisor[o]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.fenv import default_fenv

Pair = tuple[int, int]


def window_divisors(
    extents: Pair, windows: Pair, kernel: Pair, stride: Pair, pad: Pair, *, count_include_pad: bool, override: int
) -> npt.NDArray[np.float64]:
    """Return what the sum of each window is divided by.

    Parameters
    ----------
    extents, windows : (int, int)
        Height and width of the input, and windows along each.
    kernel, stride, pad : (int, int)
        Of the pooling; ``pad`` on both sides.
    count_include_pad : bool
        Positions in the padding count; those behind the padding never do.
    override : int
        The divisor of every window; 0: none.

    Returns
    -------
    float64 array of shape ``windows``
        0 for a window without any position that counts.
    """
    if override:
        return np.full(windows, float(override))
    counts = []
    for extent, count, taps, step, before in zip(extents, windows, kernel, stride, pad, strict=True):
        starts = np.arange(count) * step - before
        low, high = (-before, extent + before) if count_include_pad else (0, extent)
        covered = np.minimum(starts + taps, high) - np.maximum(starts, low)
        counts.append(np.maximum(covered, 0).astype(np.float64))
    return np.multiply.outer(*counts)


@default_fenv
def spread_shares(
    shares: npt.NDArray[np.floating[Any]], extents: Pair, kernel: Pair, stride: Pair, pad: Pair
) -> npt.NDArray[np.floating[Any]]:
    """Return the sum of the shares of all windows over each element of the input.

    Parameters
    ----------
    shares : float64 or float32 array (..., Ho, Wo)
        What a window gives to every element under it.
    extents : (int, int)
        Height and width of the input.
    kernel, stride, pad : (int, int)
        Of the pooling; ``pad`` on both sides.

    Returns
    -------
    array (..., H, W) of the dtype of ``shares``
        0 under no window; the windows are added one by one in that dtype.
    """
    result = np.zeros((*shares.shape[:-2], *extents), shares.dtype)
    for elements, windows in _taps(extents, (shares.shape[-2], shares.shape[-1]), kernel, stride, pad):
        # no two windows of one tap meet in an element, so that a plain addition is enough
        result[..., *elements] += shares[..., *windows]
    return result


@default_fenv
def window_sums(
    values: npt.NDArray[np.floating[Any]], windows: Pair, kernel: Pair, stride: Pair, pad: Pair
) -> npt.NDArray[np.floating[Any]]:
    """Return the sum of the elements under each window.

    Parameters
    ----------
    values : float64 or float32 array (..., H, W)
        Input.
    windows : (int, int)
        Windows along each axis.
    kernel, stride, pad : (int, int)
        Of the pooling; ``pad`` on both sides.

    Returns
    -------
    array (..., Ho, Wo) of the dtype of ``values``
        0 of a window over nothing; the elements are added one by one in that dtype, row by row.
    """
    result = np.zeros((*values.shape[:-2], *windows), values.dtype)
    for elements, covering in _taps((values.shape[-2], values.shape[-1]), windows, kernel, stride, pad):
        result[..., *covering] += values[..., *elements]
    return result


def _taps(
    extents: Pair, windows: Pair, kernel: Pair, stride: Pair, pad: Pair
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Yield for each place in the kernel the elements that lie there, and the windows of which they do."""
    for tap in itertools.product(*map(range, kernel)):
        elements, covering = [], []
        for axis, place in enumerate(tap):
            positions = np.arange(windows[axis]) * stride[axis] - pad[axis] + place
            inside = np.flatnonzero((positions >= 0) & (positions < extents[axis]))
            elements.append(positions[inside])
            covering.append(inside)
        yield np.ix_(*elements), np.ix_(*covering)
