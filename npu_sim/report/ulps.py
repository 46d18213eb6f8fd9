"""How the errors of a result are distributed: over powers of two of a ULP, and over the places of the tensor.

Both forms are bounded, whatever the tensor, so that a report can hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npu_sim.fenv import default_fenv
from npu_sim.report.precision import ElementErrors

LOWEST_EXPONENT, HIGHEST_EXPONENT = -16, 47
"""Errors below 2^-16 ULP count in the first bin, finite ones from 2^48 on in the last."""
MAP_ROWS, MAP_COLUMNS = 8, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class UlpHistogram:
    """How many elements have which error, in ULPs of the result's format at the golden.

    Attributes
    ----------
    exact : int
        Elements without an error beside a finite golden.
    lowest_exponent : int
        Where the bins begin: the first holds errors from 2^lowest_exponent to below twice that.
    counts : tuple of int
        Elements of each bin, at most 64; first and last are not 0. A bin at either end of the range (-16, 47) takes
        what is beyond, too.
    infinite : int
        Elements whose NaN/Inf state differs from the golden's.
    special : int
        Elements without an error whose golden is NaN or Inf, as given or in the format.
    """

    exact: int
    lowest_exponent: int
    counts: tuple[int, ...]
    infinite: int
    special: int

    @classmethod
    @default_fenv
    def of(cls, errors: ElementErrors) -> UlpHistogram:
        """Return the histogram of all elements."""
        ulps = errors.ulps
        without = ulps == 0
        special = int(np.count_nonzero(without & errors.is_special))
        finite = ulps[np.isfinite(ulps) & (ulps > 0)]
        exponents = np.clip(np.frexp(finite)[1] - 1, LOWEST_EXPONENT, HIGHEST_EXPONENT)
        lowest = int(exponents.min()) if exponents.size else 0
        return cls(
            exact=int(np.count_nonzero(without)) - special,
            lowest_exponent=lowest,
            counts=tuple(np.bincount(exponents - lowest).tolist()) if exponents.size else (),
            infinite=int(np.count_nonzero(np.isinf(ulps))),
            special=special,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UlpMap:
    """Where in a tensor the errors are: the tensor as a matrix, cut into at most 8 x 16 cells.

    Attributes
    ----------
    shape : tuple of int
        Of the tensor.
    row_axes : int
        Leading axes that make the rows of the matrix; the others make its columns.
    max_ulp : tuple of tuple of float
        Largest error of each cell, in ULPs. Of R rows in r cells, cell i has those from i * R // r on; columns alike.
    """

    shape: tuple[int, ...]
    row_axes: int
    max_ulp: tuple[tuple[float, ...], ...]

    @classmethod
    @default_fenv
    def of(cls, errors: ElementErrors, shape: Sequence[int], row_axes: int) -> UlpMap:
        """Return the map of the errors of a tensor of that shape; of one without elements it has no cells."""
        rows, columns = prod(shape[:row_axes]), prod(shape[row_axes:])
        ulps = errors.ulps.reshape(rows, columns)
        if ulps.size:
            ulps = np.maximum.reduceat(ulps, _starts(rows, MAP_ROWS), axis=0)
            ulps = np.maximum.reduceat(ulps, _starts(columns, MAP_COLUMNS), axis=1)
        else:
            ulps = ulps[:0]
        return cls(shape=tuple(shape), row_axes=row_axes, max_ulp=tuple(map(tuple, ulps.tolist())))


def _starts(extent: int, most: int) -> list[int]:
    """Return where each cell of an axis begins."""
    cells = min(extent, most)
    return [cell * extent // cells for cell in range(cells)]
