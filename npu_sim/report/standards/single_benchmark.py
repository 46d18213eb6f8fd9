"""CANN's previous standard for contributed operators: mean and maximum relative error against one golden.

Source: hicann/opbase docs/zh/ops_precision_standard/experimental_standard.md at commit 3e62966 (2026-04-10); the
operator test kit applies it for ``--compare stat_rel_err``. The relative error of an element is |actual - golden| /
(|golden| + 1e-7). Elements that are finite on both sides count; any difference of NaN or Inf fails.
"""

from __future__ import annotations

import numpy as np

from npu_sim.report.precision import RELATIVE_FLOOR
from npu_sim.report.standards.standard import DTYPES, Evidence, Standard
from npu_sim.report.standards.verdict import Check, Finding, all_of, number_text
from npu_sim.report.sums import largest, mean

_THRESHOLD = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-13, "hf32": 2.0**-11}
_MAXIMUM = 10
"""The maximum may be this many times the threshold of the mean."""


def _find(evidence: Evidence) -> Finding:
    errors, threshold = evidence.errors, _THRESHOLD[evidence.row]
    finite = np.isfinite(errors.actual) & np.isfinite(errors.golden)
    relative = errors.error[finite] / (np.abs(errors.golden[finite]) + RELATIVE_FLOOR)
    return all_of(
        errors.special_mismatches,
        Check(name="MERE", label="MERE", value=mean(relative), relation="<", threshold=threshold),
        Check(name="MARE", label="MARE", value=largest(relative), relation="<", threshold=_MAXIMUM * threshold),
    )


def _thresholds(row: str) -> str:
    return f"MERE {number_text(_THRESHOLD[row])}, MARE {_MAXIMUM} * {number_text(_THRESHOLD[row])}"


SINGLE_BENCHMARK = Standard(
    name="single-benchmark",
    title="CANN single benchmark",
    version="previous, 2026-04-10",
    source="hicann/opbase docs/zh/ops_precision_standard/experimental_standard.md",
    commit="3e62966",
    rule="the mean relative error (MERE) and the largest (MARE) are below their thresholds",
    rows=DTYPES,
    thresholds=_thresholds,
    find=_find,
)
