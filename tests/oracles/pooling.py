"""2D average pooling and its gradient by their definitions: windows walked one position at a time, float64.

Written from the meaning of average pooling alone: a window's mean is the sum of the elements of the input under it,
divided by a number of positions, and the gradient gives every element under a window its share. All numbers of
positions are counted, none is computed by a formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npu_sim.fenv import default_fenv


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """What an average pooling is besides its tensors.

    Attributes
    ----------
    kernel, stride, pad : tuple of int
        (h, w).
    ceil_mode : bool
        A last window may reach over the end of the padded input if it starts inside the input or before it.
    count_include_pad : bool
        Positions in the padding count for the mean.
    divisor_override : int
        What sums are divided by instead of a number of positions; 0: no override.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int] = (0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int = 0


def output_extent(extent: int, kernel: int, stride: int, pad: int, ceil_mode: bool) -> int:
    """Return how many windows there are along one axis, placed one after the other.

    With ``ceil_mode`` one more, also a first one, where less than a stride is missing and it starts before the end.
    """
    windows, start, end = 0, -pad, extent + pad
    while start + kernel <= end or (ceil_mode and start - stride + kernel < end and start < extent):
        windows += 1
        start += stride
    return windows


def positions(window: int, extent: int, axis: int, pooling: Pooling) -> tuple[list[int], int]:
    """Return the positions of the input under a window, and how many lie in the padded input."""
    start, pad = window * pooling.stride[axis] - pooling.pad[axis], pooling.pad[axis]
    under = [start + tap for tap in range(pooling.kernel[axis])]
    inside = [place for place in under if 0 <= place < extent]
    return inside, sum(-pad <= place < extent + pad for place in under)


def divisor_of(rows: list[int], padded_rows: int, columns: list[int], padded_columns: int, pooling: Pooling) -> int:
    """Return what the sum of a window is divided by, from its `positions` on both axes."""
    if pooling.divisor_override:
        return pooling.divisor_override
    return padded_rows * padded_columns if pooling.count_include_pad else len(rows) * len(columns)


@default_fenv
def forward(x: np.ndarray, pooling: Pooling) -> np.ndarray:
    """Return the means of windows of ``x``, (..., H, W), in float64; 0 of a window without any element under it."""
    counts = [
        output_extent(*axis, pooling.ceil_mode)
        for axis in zip(x.shape[-2:], pooling.kernel, pooling.stride, pooling.pad, strict=True)
    ]
    out = np.zeros((*x.shape[:-2], *counts), np.float64)
    for oh in range(counts[0]):
        rows, padded_rows = positions(oh, x.shape[-2], 0, pooling)
        for ow in range(counts[1]):
            columns, padded_columns = positions(ow, x.shape[-1], 1, pooling)
            divisor = divisor_of(rows, padded_rows, columns, padded_columns, pooling)
            for row in rows:
                for column in columns:
                    out[..., oh, ow] += np.float64(x[..., row, column]) / divisor
    return out


@default_fenv
def input_gradient(grad_output: np.ndarray, extents: tuple[int, int], pooling: Pooling) -> np.ndarray:
    """Return the gradient of the input.

    Parameters
    ----------
    grad_output : array, (..., Ho, Wo)
        Anything that converts to float64.
    extents : tuple of int
        Height and width of the input.
    pooling : Pooling
        The pooling.

    Returns
    -------
    array, (..., H, W)
        float64. A window without any element of the input under it adds nothing.
    """
    out = np.zeros((*grad_output.shape[:-2], *extents), np.float64)
    for oh in range(grad_output.shape[-2]):
        rows, padded_rows = positions(oh, extents[0], 0, pooling)
        for ow in range(grad_output.shape[-1]):
            columns, padded_columns = positions(ow, extents[1], 1, pooling)
            divisor = divisor_of(rows, padded_rows, columns, padded_columns, pooling)
            for row in rows:
                for column in columns:
                    out[..., row, column] += np.float64(grad_output[..., oh, ow]) / divisor
    return out
