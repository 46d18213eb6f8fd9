"""Sums of float64 figures with one rounding, so that they do not depend on the host or on the order of the elements."""

from __future__ import annotations

import math

import numpy as np


def total(values: np.ndarray) -> float:
    """Return the sum, rounded once."""
    return math.fsum(values.tolist())


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
