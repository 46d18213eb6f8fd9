"""How far a low-precision result is from a float64 golden: metrics over all elements.

Everything is computed in float64, element by element, and summed with one rounding (`npu_sim.report.sums`), so the
figures do not depend on the host or on the order of the elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from npu_sim.errors import DTypeError, ShapeError
from npu_sim.fenv import default_fenv
from npu_sim.report.record import to_json_text
from npu_sim.report.sums import cosine, largest, mean, total

Overflow = Literal["inf_nan", "saturate"]

RELATIVE_FLOOR = 1e-7
"""Added to |golden| in relative errors (hicann/opbase docs/zh/ops_precision_standard, MERE and MARE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """What the metrics need to know of the format of a result.

    Attributes
    ----------
    name : str
        ``"fp16"``, ``"bf16"`` or ``"fp32"``, and ``"hf32"`` for the standards' own row.
    mantissa_bits : int
        Stored mantissa bits m.
    min_exponent : int
        Exponent of the smallest normal number; below it the ULP no longer shrinks.
    small_value : float
        The commercial standard counts elements with |golden| below this apart.
    small_value_error : float
        Absolute error that such an element may have.

    Notes
    -----
    m and the minimum exponent are those of msprobe 26.2.0's ULP method for fp16, bf16 and fp32; HF32 has 11 stored bits
    on Atlas A2/A3 (hicann/ops-nn conv/conv3d_backprop_filter_v2/tests/assets/golden.py drops 12 bits of a float32
    word there). Small values: hicann/opbase docs/zh/ops_precision_standard/commercial_standard.md at 6049643.
    """

    name: str
    mantissa_bits: int
    min_exponent: int
    small_value: float
    small_value_error: float

    @property
    def overflow_threshold(self) -> float:
        """Smallest magnitude that rounds (to nearest, ties to even) to infinity."""
        return math.ldexp(2.0 - math.ldexp(1.0, -self.mantissa_bits - 1), 1 - self.min_exponent)

    @property
    def largest(self) -> float:
        """Largest finite number of the format."""
        return math.ldexp(2.0 - math.ldexp(1.0, -self.mantissa_bits), 1 - self.min_exponent)


_FLOAT64_BITS, _FLOAT64_BIAS = 52, 1023
"""Of a mantissa as it is stored, and of an exponent."""
OUTPUT_FORMATS = {
    "fp16": OutputFormat(
        name="fp16", mantissa_bits=10, min_exponent=-14, small_value=2.0**-11, small_value_error=2.0**-16
    ),
    "bf16": OutputFormat(
        name="bf16", mantissa_bits=7, min_exponent=-126, small_value=2.0**-8, small_value_error=2.0**-16
    ),
    "fp32": OutputFormat(
        name="fp32", mantissa_bits=23, min_exponent=-126, small_value=2.0**-14, small_value_error=2.0**-30
    ),
    "hf32": OutputFormat(
        name="hf32", mantissa_bits=11, min_exponent=-126, small_value=2.0**-12, small_value_error=2.0**-28
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ElementErrors:
    """A result beside its golden, element by element.

    Attributes
    ----------
    format : OutputFormat
        Format of the result.
    actual, golden : float64[n]
        Both flattened; a golden that the format cannot hold is +-Inf (or clamped, see `element_errors`).
    error : float64[n]
        |actual - golden|; 0 where both are NaN or the same infinity, Inf where only their NaN/Inf state differs.
    special_mismatches : int
        Elements of the last kind.
    is_special : bool[n]
        Which elements have a golden that is NaN or Inf, as given or in the format.
    overflow : {"inf_nan", "saturate"}
        What became of a golden that the format cannot hold.
    """

    format: OutputFormat
    actual: npt.NDArray[np.float64]
    golden: npt.NDArray[np.float64]
    error: npt.NDArray[np.float64]
    special_mismatches: int
    is_special: npt.NDArray[np.bool_]
    overflow: Overflow

    @property
    def golden_specials(self) -> int:
        """How many elements have such a golden."""
        return int(np.count_nonzero(self.is_special))

    def in_ulps(self, output_format: OutputFormat) -> npt.NDArray[np.float64]:
        """Return the errors in units of the last place of ``output_format`` at the golden.

        error * 2^(m - e) with e = max(floor(log2 |golden|), minimum exponent), the definition of msprobe's ULP method.
        """
        finite = np.where(np.isfinite(self.golden), self.golden, 1.0)
        exponent = ((finite.view(np.int64) >> _FLOAT64_BITS) & _FLOAT64_BIAS * 2 + 1) - _FLOAT64_BIAS
        exponent = np.maximum(exponent, output_format.min_exponent)
        # a normal number, and the product has one rounding at most, as ldexp has
        scale = (output_format.mantissa_bits - exponent + _FLOAT64_BIAS) << _FLOAT64_BITS
        return np.asarray(self.error * scale.view(np.float64))

    @cached_property
    def ulps(self) -> npt.NDArray[np.float64]:
        """The errors in units of the last place of the result's own format."""
        return self.in_ulps(self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMetrics:
    """Error of a result against a golden.

    An element whose NaN/Inf state differs from the golden's has an infinite error, so one of them makes the maxima and
    the means infinite; ``special_mismatches`` says how many there are. Where every golden is NaN or Inf and the result
    shares that, there is nothing to measure, and all figures are None.

    Attributes
    ----------
    dtype : str
        Format of the result, which is also the format of the ULPs.
    count, special_mismatches : int
        Elements, and those of them whose NaN/Inf state differs from the golden's.
    golden_specials : int
        Elements whose golden is NaN or Inf, as computed or in the format of the result.
    golden_max_abs : float
        Largest finite |golden|, the scale to read ``max_abs`` against.
    max_abs, rmse : float
        Largest and root-mean-square absolute error.
    relative_l2 : float
        Norm of the error over the norm of the golden (0 when both are 0).
    mean_rel, max_rel : float
        MERE and MARE: mean and maximum of error / (|golden| + 1e-7).
    mean_ulp, max_ulp : float
        Error in units of the last place of ``dtype`` at the golden.
    share_above_1_ulp, share_above_32_ulp : float
        Share of elements with a larger error than that.
    cosine : float
        Cosine of the angle between result and golden over the pairs that are finite; 1 when both are 0, 0 when only one
        is.
    error_balance : float
        |elements above the golden - elements below it| / count.
    small_values, small_value_errors : int
        Elements with |golden| below the format's small value, and those of them with too large an absolute error.
    """

    dtype: str
    count: int
    special_mismatches: int
    golden_specials: int
    golden_max_abs: float | None
    max_abs: float | None
    rmse: float | None
    relative_l2: float | None
    mean_rel: float | None
    max_rel: float | None
    mean_ulp: float | None
    max_ulp: float | None
    share_above_1_ulp: float | None
    share_above_32_ulp: float | None
    cosine: float | None
    error_balance: float | None
    small_values: int
    small_value_errors: int

    def to_json(self) -> str:
        """Return the record as JSON text; infinities and NaN are strings."""
        return to_json_text(self)


def format_of(array: np.ndarray) -> OutputFormat:
    """Return the format of an array by its dtype.

    Raises
    ------
    DTypeError
        The dtype is not float16, bfloat16 or float32.
    """
    names = {
        np.dtype(np.float16): "fp16",
        np.dtype(ml_dtypes.bfloat16): "bf16",
        np.dtype(np.float32): "fp32",
    }
    if array.dtype not in names:
        raise DTypeError(f"The dtype of a result must be float16, bfloat16 or float32, not {array.dtype}")
    return OUTPUT_FORMATS[names[array.dtype]]


@default_fenv
def element_errors(actual: np.ndarray, golden: np.ndarray, *, overflow: Overflow = "inf_nan") -> ElementErrors:
    """Put a result beside its golden.

    Parameters
    ----------
    actual : float16, bfloat16 or float32 array
        Result under test, any shape.
    golden : float64 array of the same shape
        Reference.
    overflow : {"inf_nan", "saturate"}
        How the format of the result treats a golden it cannot hold: ``"inf_nan"`` as infinity, ``"saturate"`` as the
        largest finite number, with NaN as 0 (the two modes of the devices; the golden has to follow the mode or every
        correct saturated value would count as wrong).

    Returns
    -------
    ElementErrors

    Raises
    ------
    ShapeError
        The shapes differ.
    DTypeError
        The dtype of one of the arrays is not allowed.
    """
    if actual.shape != golden.shape:
        raise ShapeError(f"The shape of the golden must be that of the result {actual.shape}, not {golden.shape}")
    if golden.dtype != np.float64:
        raise DTypeError(f"The dtype of the golden must be float64, not {golden.dtype}")
    output_format = format_of(actual)
    a = actual.astype(np.float64).ravel()
    g = golden.ravel()
    if overflow == "saturate":
        g = np.clip(np.where(np.isnan(g), 0.0, g), -output_format.largest, output_format.largest)
    else:
        g = np.where(np.abs(g) >= output_format.overflow_threshold, np.copysign(np.inf, g), g)
    both_finite = np.isfinite(a) & np.isfinite(g)
    same_special = (np.isnan(a) & np.isnan(g)) | (np.isinf(a) & (a == g))
    error = np.full(a.shape, np.inf)
    np.subtract(a, g, out=error, where=both_finite)
    np.abs(error, out=error)
    error[same_special] = 0.0
    return ElementErrors(
        format=output_format,
        actual=a,
        golden=g,
        error=error,
        special_mismatches=int(np.count_nonzero(~(both_finite | same_special))),
        is_special=~(np.isfinite(g) & np.isfinite(golden.ravel())),
        overflow=overflow,
    )


@default_fenv
def measure(errors: ElementErrors) -> ErrorMetrics:
    """Compute all metrics.

    Parameters
    ----------
    errors : ElementErrors
        From `element_errors`.

    Returns
    -------
    ErrorMetrics
        Of an empty array: no errors, cosine 1.

    Notes
    -----
    Definitions: MERE, MARE, RMSE and small values as in hicann/opbase docs/zh/ops_precision_standard (revisions 3e62966
    and 6049643); ULP and error balance as in msprobe 26.2.0.
    """
    count = errors.error.size
    finite = np.isfinite(errors.actual) & np.isfinite(errors.golden)
    a, g = errors.actual[finite], errors.golden[finite]
    magnitude = np.abs(g)
    # NaN and Inf goldens that the result shares have error 0; dividing it by NaN must not spoil the mean.
    scale = np.where(np.isfinite(errors.golden), np.abs(errors.golden), 0.0) + RELATIVE_FLOOR
    relative = errors.error / scale
    ulps = errors.ulps
    golden_norm = math.sqrt(total(g * g))
    error_norm = math.sqrt(total(errors.error * errors.error))
    above, below = int(np.count_nonzero(a > g)), int(np.count_nonzero(a < g))
    small = finite & (np.abs(errors.golden) < errors.format.small_value)
    figures: dict[str, float] = dict(
        golden_max_abs=largest(magnitude),
        max_abs=largest(errors.error),
        rmse=math.sqrt(mean(errors.error * errors.error)),
        relative_l2=_ratio(error_norm, golden_norm),
        mean_rel=mean(relative),
        max_rel=largest(relative),
        mean_ulp=mean(ulps),
        max_ulp=largest(ulps),
        share_above_1_ulp=mean(ulps > 1.0),
        share_above_32_ulp=mean(ulps > 32.0),
        cosine=cosine(a, g),
        error_balance=abs(above - below) / count if count else 0.0,
    )
    measured = count == 0 or errors.golden_specials < count or errors.special_mismatches > 0
    return ErrorMetrics(
        dtype=errors.format.name,
        count=count,
        special_mismatches=errors.special_mismatches,
        golden_specials=errors.golden_specials,
        **{name: value if measured else None for name, value in figures.items()},
        small_values=int(np.count_nonzero(small)),
        small_value_errors=int(np.count_nonzero(small & (errors.error > errors.format.small_value_error))),
    )


def _ratio(numerator: float, denominator: float) -> float:
    if numerator == 0.0:
        return 0.0
    return numerator / denominator if denominator else math.inf
