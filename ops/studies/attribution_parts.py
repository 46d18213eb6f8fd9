"""An error taken apart: each cause is the difference of two results that have all but it in common.

A result goes through stages: the golden of the tensors as they are, of the tensors as they are multiplied, the sums
within cores, over cores, the rounded gradient. The differences of neighbours add up to the error, element by element:
their square norms add up to that of the error but for the cross terms, twice the inner product of each pair.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from npu_sim.fenv import default_fenv
from npu_sim.report.sums import total
from ops.studies.attribution_report import CAUSES, MOST_CROSS, Cause, CrossTerm, ErrorPart, ErrorParts

Float64 = npt.NDArray[np.float64]


@default_fenv
def split_error(golden: Float64, stages: Sequence[tuple[Cause, Float64]], clamped: Float64 | None = None) -> ErrorParts:
    """Take the error of the last stage against ``golden`` apart.

    Parameters
    ----------
    golden : float64 array
        The gradient without error.
    stages : sequence of (cause, float64 array of that shape)
        What the gradient is after each cause in turn, the result last.
    clamped : float64 array or None
        What the result would be in a format without end; where it differs from the last stage, the difference is
        saturation of the result and not the last cause.

    Returns
    -------
    ErrorParts
        Causes that occur twice are added.
    """
    flat = [golden.ravel(), *(np.asarray(stage, np.float64).ravel() for _, stage in stages)]
    if clamped is not None:
        flat.insert(-1, clamped.ravel())
    causes: list[Cause] = [cause for cause, _ in stages]
    if clamped is not None:
        causes.append("output saturation")
    finite = np.logical_and.reduce([np.isfinite(stage) for stage in flat])
    kept = [stage[finite] for stage in flat]
    vectors: dict[Cause, Float64] = {}
    for cause, before, after in zip(causes, kept[:-1], kept[1:], strict=True):
        vectors[cause] = vectors.get(cause, 0.0) + (after - before)
    vectors = {cause: vectors[cause] for cause in CAUSES if cause in vectors}
    error, norm = _square(kept[-1] - kept[0]), _square(kept[0])
    squares = {cause: _square(vector) for cause, vector in vectors.items()}
    scale = error or math.fsum(squares.values())
    cross = (error - math.fsum(squares.values())) / scale if scale else 0.0
    return ErrorParts(
        count=int(np.count_nonzero(finite)),
        lost=int(np.count_nonzero(~finite)),
        lost_by=_lost_by(causes, flat),
        relative_l2=_relative(error, norm),
        parts=tuple(
            ErrorPart(cause=cause, share=square / scale if scale else 0.0, relative_l2=_relative(square, norm))
            for cause, square in squares.items()
        ),
        cross=cross,
        crossing=_largest(vectors, squares, scale) if abs(cross) > MOST_CROSS else None,
    )


def _lost_by(causes: Sequence[Cause], stages: Sequence[Float64]) -> dict[Cause, int]:
    """Return of how many elements each cause is the first that makes a number of NaN or Inf, or the other way round."""
    golden = stages[0]
    left = np.ones(golden.shape, bool)
    found: dict[Cause, int] = {}
    for cause, stage in zip(causes, stages[1:], strict=True):
        stays = (np.isfinite(golden) & np.isfinite(stage)) | (np.isnan(golden) & np.isnan(stage)) | (golden == stage)
        gone = left & ~stays
        if gone.any():
            found[cause] = found.get(cause, 0) + int(np.count_nonzero(gone))
        left &= ~gone
    return found


def relative_error(values: np.ndarray, golden: Float64) -> float | None:
    """Return the norm of the error over that of ``golden``, where both are finite; None where the golden is 0."""
    wide = values.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(golden)
    return _relative(_square(wide[finite] - golden[finite]), _square(golden[finite]))


def _square(values: Float64) -> float:
    return total(values * values)


def _relative(square: float, norm: float) -> float | None:
    return math.sqrt(square / norm) if norm else None


def _largest(vectors: Mapping[Cause, Float64], squares: Mapping[Cause, float], scale: float) -> CrossTerm | None:
    """Return the pair with the largest cross term."""
    pairs = [pair for pair in itertools.combinations(vectors, 2) if all(squares[cause] for cause in pair)]
    products = {pair: vectors[pair[0]] * vectors[pair[1]] for pair in pairs}
    inner = {pair: total(product) for pair, product in products.items()}
    if not inner:
        return None
    pair = max(inner, key=lambda each: abs(inner[each]))
    deviation = math.sqrt(_square(products[pair]))
    return CrossTerm(
        causes=pair,
        share=2 * inner[pair] / scale,
        cosine=inner[pair] / math.sqrt(squares[pair[0]] * squares[pair[1]]),
        deviations=inner[pair] / deviation if deviation else 0.0,
    )
