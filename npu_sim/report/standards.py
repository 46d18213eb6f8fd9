"""CANN's current precision standard for contributed operators: the mixed absolute and relative tolerance.

Source of every number: hicann/opbase, docs/zh/ops_precision_standard/experimental_standard.md at commit aa3cd74
(2026-07-22). It is also what the operator test kit applies for ``--compare mixed``.

An element matches when |actual - golden| <= atol + rtol * |golden|. A result passes when at least 99 % of its elements
match and no error is beyond the limit. NaN equals NaN, an infinity equals itself; any other difference of NaN or Inf is
an unbounded error and fails.

The document gives each limit as a constant *or* 32 ULP. Only the constant exists in the test kit's code; the ULP clause
is read here as "each element is within the constant or within 32 units of the last place of the row's format at its
golden", and a verdict that needed it says so (``ulp_clause_used``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from npu_sim.fenv import default_fenv
from npu_sim.report.precision import OUTPUT_FORMATS, ElementErrors
from npu_sim.report.record import to_json_text

STANDARD = "CANN mixed tolerance"
VERSION = "current, 2026-07-22"
SOURCE = "hicann/opbase docs/zh/ops_precision_standard/experimental_standard.md"
COMMIT = "aa3cd74"
REQUIRED_RATIO = 0.99
LIMIT_ULPS = 32.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRow:
    """One dtype of the standard: its tolerances and the largest error of a single element."""

    dtype: str
    rtol: float
    atol: float
    limit: float


MIXED_TOLERANCE = {
    "fp16": ToleranceRow(dtype="FLOAT16", rtol=2.0**-9, atol=2.0**-9, limit=1e-1),
    "bf16": ToleranceRow(dtype="BFLOAT16", rtol=2.0**-6, atol=2.0**-6, limit=1.0),
    "fp32": ToleranceRow(dtype="FLOAT32", rtol=2.0**-10, atol=2.0**-16, limit=1e-2),
    "hf32": ToleranceRow(dtype="HiFLOAT32", rtol=2.0**-9, atol=2.0**-10, limit=1e-1),
}
"""The rows of the formats that exist here; the document's FLOAT8 and HiFloat8 rows have no tensor to apply to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the standard says of one result.

    Attributes
    ----------
    meets_standard : bool
        The verdict. A NaN that meets a NaN, and a tolerance that zeros meet too, count as the document says.
    standard, version, source, commit : str
        The standard, and where it is written.
    row : str
        Its dtype row.
    golden : str
        Which golden the result was compared with.
    matched_ratio, required_ratio : float
        Share of elements within tolerance, and how much it must be.
    rtol, atol : float
        The row's relative and absolute tolerance.
    zero_match_ratio : float
        Share of elements that a gradient of nothing but zeros would match; near 1 the tolerance hardly tells right from
        wrong.
    zeros_meet_standard : bool
        The verdict on a gradient of nothing but zeros; where it is True the standard says nothing about this one.
    max_abs, limit : float
        Largest error, and the constant it may not exceed.
    beyond_limit : int
        Elements beyond the constant and beyond 32 ULP.
    ulp_clause_used : bool
        Some element exceeds the constant and is excused by 32 ULP only.
    special_mismatches : int
        Elements whose NaN/Inf state differs from the golden's.
    """

    meets_standard: bool
    standard: str
    version: str
    source: str
    commit: str
    row: str
    golden: str
    matched_ratio: float
    required_ratio: float
    rtol: float
    atol: float
    zero_match_ratio: float
    zeros_meet_standard: bool
    max_abs: float
    limit: float
    beyond_limit: int
    ulp_clause_used: bool
    special_mismatches: int

    def to_json(self) -> str:
        """Return the record as JSON text; infinities and NaN are strings."""
        return to_json_text(self)


@default_fenv
def mixed_tolerance(errors: ElementErrors, *, row: str, golden: str) -> Verdict:
    """Apply the mixed tolerance.

    Parameters
    ----------
    errors : ElementErrors
        Result beside golden, from `npu_sim.report.precision.element_errors`.
    row : {"fp16", "bf16", "fp32", "hf32"}
        Dtype row: the format of the result, or ``"hf32"`` for a float32 result that was multiplied in HF32.
    golden : str
        Name of the golden, for the record.

    Returns
    -------
    Verdict
        An empty result meets it.
    """
    tolerance = MIXED_TOLERANCE[row]
    judged, zeros = _judge(errors, tolerance, row), _judge(_zeros(errors), tolerance, row)
    return Verdict(
        meets_standard=judged.meets_standard,
        standard=STANDARD,
        version=VERSION,
        source=SOURCE,
        commit=COMMIT,
        row=tolerance.dtype,
        golden=golden,
        matched_ratio=judged.matched_ratio,
        required_ratio=REQUIRED_RATIO,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        zero_match_ratio=zeros.matched_ratio,
        zeros_meet_standard=zeros.meets_standard,
        max_abs=float(errors.error.max()) if errors.error.size else 0.0,
        limit=tolerance.limit,
        beyond_limit=judged.beyond_limit,
        ulp_clause_used=judged.ulp_clause_used,
        special_mismatches=errors.special_mismatches,
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """What the standard says, without its name."""

    meets_standard: bool
    matched_ratio: float
    beyond_limit: int
    ulp_clause_used: bool


def _judge(errors: ElementErrors, tolerance: ToleranceRow, row: str) -> _Judged:
    bound = tolerance.atol + tolerance.rtol * np.abs(errors.golden)
    # An infinite error is never within an infinite bound; a shared NaN has error 0 and a NaN bound.
    matches = np.isfinite(errors.error) & ((errors.error == 0.0) | (errors.error <= bound))
    count = errors.error.size
    ratio = int(np.count_nonzero(matches)) / count if count else 1.0
    above_constant = errors.error > tolerance.limit
    beyond = above_constant & ~(errors.in_ulps(OUTPUT_FORMATS[row]) <= LIMIT_ULPS)
    beyond_count = int(np.count_nonzero(beyond))
    return _Judged(
        meets_standard=ratio >= REQUIRED_RATIO and beyond_count == 0 and errors.special_mismatches == 0,
        matched_ratio=ratio,
        beyond_limit=beyond_count,
        ulp_clause_used=bool(np.any(above_constant & ~beyond)),
    )


def _zeros(errors: ElementErrors) -> ElementErrors:
    """Return the errors of a result of nothing but zeros beside the same golden."""
    is_finite = np.isfinite(errors.golden)
    return replace(
        errors,
        actual=np.zeros_like(errors.golden),
        error=np.where(is_finite, np.abs(errors.golden), np.inf),
        special_mismatches=int(np.count_nonzero(~is_finite)),
    )
