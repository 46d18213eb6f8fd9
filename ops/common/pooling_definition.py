"""The gradient of 2D average pooling by its definition, in float64 for the golden of precision studies, or float32.

Plain NumPy over the taps of a window; no kernel, plan or geometry of the emulator is used here.

    dx[i] = sum over windows o that cover i  of  share[o],  share[o] = dy[o] / divisor[o]
"""

from __future__ import annotations

import itertools
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
    for tap in itertools.product(*map(range, kernel)):
        reads, served = [], []
        for axis, place in enumerate(tap):
            positions = np.arange(shares.shape[axis - 2]) * stride[axis] - pad[axis] + place
            inside = np.flatnonzero((positions >= 0) & (positions < extents[axis]))
            reads.append(positions[inside])
            served.append(inside)
        # no two windows of one tap meet in an element, so that a plain addition is enough
        rows, columns = np.ix_(*reads)
        result[..., rows, columns] += shares[..., np.ix_(*served)[0], np.ix_(*served)[1]]
    return result
