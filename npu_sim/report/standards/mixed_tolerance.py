"""CANN's current standard for contributed operators, the mixed absolute and relative tolerance, and its draft.

Source of the numbers: hicann/opbase, docs/zh/ops_precision_standard/experimental_standard.md at commit aa3cd74
(2026-07-22), and mixed_tolerance_standard.md there at 233ee24. The first is also what the operator test kit applies for
``--compare mixed``.

An element matches when |actual - golden| <= atol + rtol * |golden|. A result passes when at least 99 % of its elements
match and no error is beyond the limit. NaN equals NaN, an infinity equals itself; any other difference of NaN or Inf is
an unbounded error and fails.

The document gives each limit as a constant *or* 32 ULP. Only the constant exists in the test kit's code; the ULP clause
is read here as "each element is within the constant or within 32 units of the last place of the row's format at its
golden", and a verdict that needed it says so (remark ``"ULP"``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from npu_sim.report.precision import OUTPUT_FORMATS, ElementErrors
from npu_sim.report.standards.standard import DTYPES, Evidence, Standard
from npu_sim.report.standards.verdict import MATCHED, Check, Finding, all_of, number_text

REQUIRED_RATIO = 0.99
LIMIT_ULPS = 32.0


@dataclass(frozen=True, slots=True)
class ToleranceRow:
    """One dtype of the standard: its tolerances and the largest error of a single element."""

    rtol: float
    atol: float
    limit: float


Table = Mapping[str, ToleranceRow]
_CURRENT: Table = {
    "fp16": ToleranceRow(2.0**-9, 2.0**-9, 1e-1),
    "bf16": ToleranceRow(2.0**-6, 2.0**-6, 1.0),
    "fp32": ToleranceRow(2.0**-10, 2.0**-16, 1e-2),
    "hf32": ToleranceRow(2.0**-9, 2.0**-10, 1e-1),
}
_DRAFT: Table = {
    "fp16": ToleranceRow(2.0**-10, 2.0**-10, 1e-1),
    "bf16": ToleranceRow(2.0**-7, 2.0**-7, 1e-1),
    "fp32": ToleranceRow(2.0**-13, 2.0**-13, 1e-2),
    "hf32": ToleranceRow(2.0**-10, 2.0**-10, 1e-1),
}


def _find(evidence: Evidence, table: Table) -> Finding:
    errors, tolerance = evidence.errors, table[evidence.row]
    bound = tolerance.atol + tolerance.rtol * np.abs(errors.golden)
    # An infinite error is never within an infinite bound; a shared NaN has error 0 and a NaN bound.
    matches = np.isfinite(errors.error) & ((errors.error == 0.0) | (errors.error <= bound))
    count = errors.error.size
    above_constant = errors.error > tolerance.limit
    beyond = above_constant
    if above_constant.any():
        beyond = above_constant & ~(errors.in_ulps(OUTPUT_FORMATS[evidence.row]) <= LIMIT_ULPS)
    found = all_of(
        errors.special_mismatches,
        Check(
            name=MATCHED,
            label="matched",
            value=int(np.count_nonzero(matches)) / count if count else 1.0,
            relation=">=",
            threshold=REQUIRED_RATIO,
        ),
        Check(
            name="elements beyond the limit and 32 ULP",
            label="limit",
            value=int(np.count_nonzero(beyond)),
            relation="<=",
            threshold=0,
        ),
        remark="ULP" if np.any(above_constant) else "",
    )
    return replace(found, scale=_scale(errors, beyond, tolerance)) if found.deciding.label == "limit" else found


def _scale(errors: ElementErrors, beyond: np.ndarray, tolerance: ToleranceRow) -> int | None:
    """Return the exponent of two that takes all errors to the limit; None where they are none of rounding.

    What rounding makes of large terms is small beside the largest element, also where the terms of an element cancel.
    """
    largest = errors.error[beyond].max()
    if largest > tolerance.rtol * np.abs(errors.golden[np.isfinite(errors.golden)]).max():
        return None
    return -math.ceil(math.log2(largest / tolerance.limit))


def _thresholds(row: str, table: Table) -> str:
    tolerance = table[row]
    return f"rtol {number_text(tolerance.rtol)}, atol {number_text(tolerance.atol)}, limit {tolerance.limit:g}"


_FOLDER = "hicann/opbase docs/zh/ops_precision_standard"
_RULE = (
    "at least 99 % of the elements are within atol + rtol |golden|, and none is beyond both the limit and 32 ULP, a "
    "clause that the document has and CANN's test kit has not"
)
MIXED_TOLERANCE = Standard(
    name="mixed-tolerance",
    title="CANN mixed tolerance",
    version="current, 2026-07-22",
    source=f"{_FOLDER}/experimental_standard.md",
    commit="aa3cd74",
    rule=_RULE,
    rows=DTYPES,
    thresholds=lambda row: _thresholds(row, _CURRENT),
    find=lambda evidence: _find(evidence, _CURRENT),
)
DRAFT = Standard(
    name="mixed-tolerance-draft",
    title="CANN mixed tolerance, draft",
    version="interim draft, before 2026-07-22",
    source=f"{_FOLDER}/mixed_tolerance_standard.md",
    commit="233ee24",
    rule=_RULE,
    rows=DTYPES,
    thresholds=lambda row: _thresholds(row, _DRAFT),
    find=lambda evidence: _find(evidence, _DRAFT),
)
