"""What is cut where L1 does not hold whole rows of x, and into how many parts of the columns of y."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_search import Problem

_L1_SHARES = (8, 4, 2, 1)
"""Which part of L1 (one over this) the rows of x under a few rows of a part of y may take: the first that fits.

The kernels read all columns of a part for each step of K, so that parts of about one step are the fastest.
"""

MOST_COLUMNS = 512
"""As many as the largest step of K has pixels (4 base blocks of 128)."""

_LEAST_COLUMNS = 16
"""Narrower parts read more columns of x twice than a walk tap by tap reads pixels."""


def column_parts(geometry: ConvGeometry, l1_bytes: int, most: int = MOST_COLUMNS) -> Iterator[int]:
    """Yield numbers of parts to try, the best first; none where not even `_LEAST_COLUMNS` of y can be in a part.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution.
    l1_bytes : int
        Capacity of L1.
    most : int
        Columns of y that a part may have.
    """
    rows = min(geometry.kernel_height + geometry.stride[1], geometry.hi)
    for share in _L1_SHARES:
        x_columns = l1_bytes // (share * rows * BLOCK_BYTES)
        columns = min((x_columns - geometry.kernel_width) // geometry.stride[2] + 1, most)
        if _LEAST_COLUMNS <= columns < geometry.wo:
            yield ceil_div(geometry.wo, columns)


def part_columns(geometry: ConvGeometry, parts: int) -> tuple[int, int, int]:
    """Return the columns of y of the widest and of the narrowest part, and the columns of x under the widest."""
    widest = ceil_div(geometry.wo, parts)
    x_columns = (widest - 1) * geometry.stride[2] + geometry.kernel_width
    return widest, geometry.wo // parts, min(x_columns, geometry.wi)


def part_problem(problem: Problem, geometry: ConvGeometry, parts: int) -> Problem:
    """Return the matrix products of the widest part of the columns."""
    wo, least_wo, wi = part_columns(geometry, parts)
    k = align_up(geometry.ho * wo, problem.c0)
    return replace(problem, k=k, items=problem.items * parts, wo=wo, least_wo=least_wo, wi=wi)


def tap_problem(problem: Problem, geometry: ConvGeometry) -> Problem:
    """Return the matrix products of single taps: as many pixels of x as of y, each a row of its own."""
    return replace(
        problem,
        n=problem.n // problem.khw,
        items=problem.items * problem.khw,
        ho=geometry.pixels,
        hi=geometry.pixels,
        **dict.fromkeys(("wo", "wi", "least_wo", "kh", "kw", "stride_h", "stride_w", "dilation_h"), 1),
    )
