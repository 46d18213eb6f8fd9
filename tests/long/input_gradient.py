"""Thousands of random input gradients and forward convolutions of A2 and A3, bit for bit against the float64 oracle.

``python -m tests.long.input_gradient [--seconds 480] [--seed 0] [--json tests/long/results/input_gradient.json]``

Three in ten cases are over the whole range of the operator's page. Every case runs as planned and with random legal
tilings, with random threads, chunk sizes, orders of the rows and poisoning. Operands are integers whose sums are exact,
so there is one right answer.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import OperatorError
from tests.cases import input_gradient as cases
from tests.cases.page_range import page_geometry
from tests.long.recording import parser_of, publish
from tests.oracles.series import SPLIT

TILINGS_PER_CASE = 3
PAGE_SHARE = 0.3
HAZARDS_EVERY = 10


def check(seed: int, seconds: float, most_cases: int) -> tuple[Counter[str], list[str]]:
    """Check cases until the time is over; return what was run and the cases that differed."""
    rng = np.random.default_rng(seed)
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds and seen["cases"] < most_cases:
        large = bool(rng.integers(20) == 0)
        series = SPLIT[int(rng.integers(len(SPLIT)))]
        case = cases.random_case(rng, series=series, most_macs=100_000_000 if large else 3_000_000)
        if rng.random() < PAGE_SHARE:
            most_macs = 200_000_000 if large else 20_000_000
            case = replace(case, geometry=page_geometry(rng, most_macs=most_macs))
        seen["cases"] += 1
        try:
            setup = cases.setup_of(case)
        except OperatorError as error:
            seen[f"refused {error.status}"] += 1
            continue
        seen[f"{series} {case.kind} {case.compute_dtype}"] += 1
        seen[setup.plan.tiling.origin] += 1
        a, weight = cases.operands(case)
        want = cases.expected(case, a, weight)
        for number in range(1 + TILINGS_PER_CASE):
            tried = cases.random_split_tiling(rng, setup) if number else setup
            got = cases.run(tried, a, weight, cases.random_options(rng, tried))
            seen["runs"] += 1
            if not np.array_equal(got.astype(np.float64), want) or cases.padding_of(tried).astype(np.float64).any():
                wrong.append(f"{case} {tried.plan.tiling}")
            if seen["cases"] % HAZARDS_EVERY == 0 and run_hazards(tried.plan.launches, case.product):
                wrong.append(f"hazard: {case} {tried.plan.tiling}")
    return seen, wrong


def main() -> int:
    """Run, print and record; exit code 1 if anything differed."""
    parser = parser_of("tests.long.input_gradient", __doc__)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--cases", type=int, default=10**9)
    arguments = parser.parse_args()
    seen, wrong = check(arguments.seed, arguments.seconds, arguments.cases)
    found = {"counts": dict(sorted(seen.items())), "mismatches": wrong, "mismatch_count": len(wrong)}
    command = f"{parser.prog} --seed {arguments.seed} --cases {seen['cases']}"
    publish(command, found, arguments.json)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
