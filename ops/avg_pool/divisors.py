"""What the sums of windows are divided by, or multiplied with, on each route."""

from __future__ import annotations

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from ops.avg_pool.call import AvgPoolCall, PoolAxis, covered_counts, divisors
from ops.avg_pool.route import MAX_HALF_COUNT, Route


def kernel_value(call: AvgPoolCall, route: Route) -> float:
    """Return what every element of the constant weight is, before it is rounded to float32 or float16."""
    if route.name == "cube+mul":
        return 1.0
    h, w = call.axes
    return 1.0 / (call.divisor_override or h.kernel * w.kernel)


def kernel_divisor(call: AvgPoolCall) -> int:
    """Return the divisorOverride that reaches the vector kernel: the library passes 32 bits."""
    return (call.divisor_override + 2**31) % 2**32 - 2**31 if call.quirks else call.divisor_override


def mean_matrix(call: AvgPoolCall, route: Route, dtype: str) -> np.ndarray:
    """Return the matrix gradOutput is multiplied by, [Ho, Wo] of ``dtype``: reciprocals of the divisors.

    With A2 on, an ignored divisorOverride is none; with A3 on, counts stop at 2048.
    """
    axes: tuple[PoolAxis, ...] = call.axes
    if route.ignores_override:
        count = covered_counts(axes)
    else:
        count = divisors(call, axes)
    if route.counts_in_half:
        count = np.minimum(count, MAX_HALF_COUNT)
    reciprocal = np.zeros(count.shape, np.float32)
    np.divide(np.float32(1.0), count.astype(np.float32), out=reciprocal, where=count != 0)
    return reciprocal.astype(DTYPES[dtype].storage)
