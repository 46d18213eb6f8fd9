"""The second look that the double benchmark gives a failed case: a confidence interval of the median ratio.

The case is run again with N other inputs (1,000 advised); each run gives the ratios of
`npu_sim.report.standards.double_benchmark.error_ratios`. From each kind of ratio 2,000 samples of N are drawn with
replacement; the medians of these, in ascending order, give the 95 % interval. The case fails where the interval lies
above 1, and outright if N is below 200. Source: hicann/opbase docs/zh/ops_precision_standard/commercial_standard.md at
6049643, sections 4.5.2 and 5.3.4. Its example takes the 25th and the 976th of 1,000 medians for the bounds; of 2,000
these are the 50th and the 1951st.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from npu_sim.errors import ShapeError
from npu_sim.report.standards.double_benchmark import DOUBLE_BENCHMARKS
from npu_sim.report.standards.verdict import Check, Verdict

MIN_RUNS = 200
RESAMPLES = 2000
_LOWER = RESAMPLES * 25 // 1000
_UPPER = RESAMPLES - _LOWER + 1
_SAMPLED_AT_ONCE = 1 << 20
"""Ratios drawn in one step: 8 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """What runs with other inputs say of a failed case.

    Attributes
    ----------
    outcome : {"pass", "fail"}
        "fail" with too few runs, or where the interval lies above 1.
    runs : int
        How many.
    median : float
        Of the ratios.
    lower, upper : float
        95 % interval of the median; NaN with too few runs.
    """

    outcome: Literal["pass", "fail"]
    runs: int
    median: float
    lower: float
    upper: float


def recheck(ratios: Sequence[float] | np.ndarray, *, seed: int = 0) -> Recheck:
    """Judge one kind of ratio of a failed case.

    Parameters
    ----------
    ratios : float[N]
        One ratio of each run; infinities count as large.
    seed : int
        Of the samples; the same seed gives the same interval.

    Returns
    -------
    Recheck

    Raises
    ------
    ShapeError
        There is no ratio, or one is NaN.
    """
    values = np.asarray(ratios, np.float64)
    if values.ndim != 1 or not values.size or np.isnan(values).any():
        raise ShapeError(f"The ratios must be a sequence of numbers, not {_described(values)}")
    median = _median(values[None])[0]
    if values.size < MIN_RUNS:
        return Recheck(outcome="fail", runs=values.size, median=median, lower=np.nan, upper=np.nan)
    rng = np.random.default_rng(seed)
    at_once = max(1, _SAMPLED_AT_ONCE // values.size)
    parts = [min(at_once, RESAMPLES - done) for done in range(0, RESAMPLES, at_once)]
    draws = (rng.integers(0, values.size, (part, values.size)) for part in parts)
    medians = np.sort(np.concatenate([_median(values[draw]) for draw in draws]))
    lower, upper = float(medians[_LOWER - 1]), float(medians[_UPPER - 1])
    return Recheck(outcome="fail" if lower > 1.0 else "pass", runs=values.size, median=median, lower=lower, upper=upper)


def may_be_rechecked(verdict: Verdict) -> bool:
    """Return whether a verdict is a failure of a double benchmark by nothing but its ratios."""
    ratios = {"MARE ratio", "MERE ratio", "RMSE ratio"}
    failed = {check.name for check in verdict.checks if not check.holds}
    return verdict.standard in {one.name for one in DOUBLE_BENCHMARKS} and bool(failed) and failed <= ratios


def rechecked(verdict: Verdict, ratios: Mapping[str, Sequence[float]], *, seed: int = 0) -> Verdict:
    """Return the verdict on a failed case after a second look, with the figures of both.

    Parameters
    ----------
    verdict : Verdict
        One that `may_be_rechecked`.
    ratios : mapping of str to float[N]
        "MARE", "MERE" and "RMSE" of the runs; a run without a large element has none.
    seed : int
        As of `recheck`.
    """
    runs = min((len(values) for values in ratios.values()), default=0)
    checks = [Check(name="runs of the second look", label="runs", value=runs, relation=">=", threshold=MIN_RUNS)]
    if runs >= MIN_RUNS:
        checks += [
            Check(
                name=f"lower bound of the median {name} ratio", label="recheck",
                value=recheck(values, seed=seed).lower, relation="<=", threshold=1.0,
            )
            for name, values in ratios.items()
        ]  # fmt: skip
    wrong = next((check for check in checks if not check.holds), None)
    deciding = wrong or max(checks[1:], key=lambda check: check.value)
    return replace(
        verdict,
        outcome="fail" if wrong else "pass",
        deciding=deciding.text,
        label=deciding.label,
        remark="" if wrong else "recheck",
        checks=(*verdict.checks, *checks),
    )


def _median(samples: np.ndarray) -> np.ndarray:
    """Return the median of each row: the middle, or half the sum of the middle two."""
    middle, is_even = samples.shape[1] // 2, samples.shape[1] % 2 == 0
    places = [middle - 1, middle] if is_even else [middle]
    ordered = np.partition(samples, places, axis=1)
    return (ordered[:, middle - 1] + ordered[:, middle]) / 2 if is_even else ordered[:, middle]


def _described(values: np.ndarray) -> str:
    return f"of shape {values.shape}" if values.ndim != 1 or not values.size else "with NaN"
