"""Thousands of random weight gradients on all series, bit for bit against the float64 oracle.

``python -m tests.long.weight_gradient [--seconds 480] [--seed 0] [--json tests/long/results/weight_gradient.json]``

Every case runs through the public call and through a few random legal tilings, with random threads, chunk sizes, orders
of the rows and poisoning; one in three is drawn from the whole range of the page and has its own tiling only. Operands
are integers whose sums are exact, so there is one right answer.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from npu_sim.errors import OperatorError
from npu_sim.products import get_product
from tests.cases import weight_gradient as dw
from tests.long.recording import parser_of, publish
from tests.oracles.series import SERIES

TILINGS_PER_CASE = 4


@dataclass(slots=True)
class Tally:
    """What was run."""

    cases: int = 0
    runs: int = 0
    mismatches: list[dict[str, Any]] = field(default_factory=list)
    cases_by_series_and_compute_dtype: dict[str, int] = field(default_factory=dict)
    runs_by_tiling_origin: dict[str, int] = field(default_factory=dict)
    refusals_by_status: dict[str, int] = field(default_factory=dict)

    def record(self, case: dw.Case, what: str, equal: bool) -> None:
        """Count one run."""
        self.runs += 1
        if not equal:
            self.mismatches.append({"what": what, **asdict(case)})


def _count(counts: dict[str, int], key: str, more: int = 1) -> None:
    counts[key] = counts.get(key, 0) + more


def check_call(case: dw.Case, x: np.ndarray, dy: np.ndarray, want: np.ndarray) -> bool:
    """Return whether the public call gives ``want`` in the dtype of the inputs and leaves its inputs alone."""
    before = x.copy(), dy.copy()
    result = dw.gradient_of(
        x, dy, case.weight_shape, product=case.series, cube_math_type=case.cube_math_type, **case.attributes
    )
    assert result.grad_weight is not None
    untouched = np.array_equal(x, before[0]) and np.array_equal(dy, before[1])
    # The exact sum is rounded once: float32 holds it, and NumPy rounds float32 to the 16-bit types to nearest even.
    rounded = want.astype(np.float32).astype(dw.DTYPES[case.dtype])
    same = result.grad_weight.dtype == rounded.dtype and np.array_equal(result.grad_weight, rounded)
    return bool(untouched and same)


def run(seed: int, seconds: float, most_cases: int) -> Tally:
    """Check cases until the time is over."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds and tally.cases < most_cases:
        large = bool(rng.integers(20) == 0)
        far = bool(rng.integers(3) == 0)
        case = dw.far_case(rng) if far else dw.random_case(rng, most_macs=200_000_000 if large else 4_000_000)
        tally.cases += 1
        try:
            plan = dw.plan_of(case)
        except OperatorError as error:
            _count(tally.refusals_by_status, str(error.status))
            continue
        _count(tally.cases_by_series_and_compute_dtype, f"{case.series} {plan.compute_dtype}")
        x, dy = dw.operands(case)
        want = dw.expected(case, x, dy)
        tally.record(case, "call", check_call(case, x, dy, want))
        if far:
            got = dw.run_plan(plan, x, dy, dw.random_options(rng, plan)).reshape(case.weight_shape)
            tally.record(case, "kernel", np.array_equal(got, want))
        for _ in range(0 if far else TILINGS_PER_CASE):
            changed = dw.random_tiling(rng, plan, cut=True)
            got = dw.run_plan(changed, x, dy, dw.random_options(rng, changed)).reshape(case.weight_shape)
            tally.record(case, repr(changed.tiling), np.array_equal(got, want))
        _count(tally.runs_by_tiling_origin, plan.tiling.origin, 2 if far else 1)
        _count(tally.runs_by_tiling_origin, "random", 0 if far else TILINGS_PER_CASE)
    return tally


def main() -> int:
    """Run, print and record; exit code 1 if anything differed."""
    parser = parser_of("tests.long.weight_gradient", __doc__)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--cases", type=int, default=10**9)
    arguments = parser.parse_args()
    tally = run(arguments.seed, arguments.seconds, arguments.cases)
    found = {
        "series": {series: get_product(series).name for series in SERIES},
        **asdict(tally),
        "mismatch_count": len(tally.mismatches),
    }
    publish(f"{parser.prog} --seed {arguments.seed} --cases {tally.cases}", found, arguments.json)
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
