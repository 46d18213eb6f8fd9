"""How far values are from those they should be, in units of the last place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim.dtypes.formats import DType

_BUDGETS = {2: 2.0, 4: 64.0}
"""By bytes of a float: one rounding and what comes before it; sums of some thousand products in float32."""


def default_budget(kind: DType) -> float:
    """Return the units of the last place that a result may be off where nobody says: 2 in 16 bits, 64 in 32, else 0."""
    return _BUDGETS.get(kind.item_bytes, 0.0) if kind.is_float else 0.0


def root_mean_square(golden: npt.NDArray[np.float64]) -> float:
    """Return that of the finite elements, 0 without any."""
    finite = golden[np.isfinite(golden)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def distances(actual: np.ndarray, golden: np.ndarray, kind: DType, floor: float = 0.0) -> npt.NDArray[np.float64]:
    """Return |actual - golden| in units of the last place of ``kind``, float64[n]; for integers the difference.

    Parameters
    ----------
    actual : array of ``kind``
    golden : array
        Of the same number of elements, of any type.
    kind : DType
    floor : float
        The unit is that of the golden, or of this where the golden is smaller: sums that cancel are as exact as their
        terms.

    Notes
    -----
    0 where both are NaN or the same infinity, Inf where only one is NaN or infinite. A golden that ``kind`` cannot hold
    counts as the infinity.
    """
    have, want = actual.reshape(-1).astype(np.float64), golden.reshape(-1).astype(np.float64)
    if not kind.is_float:
        return np.asarray(np.abs(have - want))
    with np.errstate(all="ignore"):
        want = np.where(np.abs(want) > kind.max_finite, np.where(np.isinf(have), have, want), want)
        exponent = np.frexp(np.where(np.isfinite(want), np.maximum(np.abs(want), floor), 1.0))[1] - 1
        unit = np.ldexp(1.0, np.maximum(exponent, 1 - kind.bias) - kind.mantissa_bits)
        far = np.abs(have - want) / unit
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    return np.asarray(np.where(same, 0.0, np.where(np.isfinite(have) & np.isfinite(want), far, np.inf)))
