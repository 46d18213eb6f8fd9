"""Thousands of random pooling gradients on all series against the definition: exact on integers, bounded on reals.

``python -m tests.long.avg_pool [--seconds 120] [--seed 0] [--json FILE]``

Every call runs twice, once on integers whose sums every type holds and once on normal deviates, and a fifth of them
once more by its instructions instead of the bulk shortcuts, poisoned, in a random legal order.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

import ops
from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.products import get_product
from ops.avg_pool.api import AvgPool2dBackward
from tests.cases.avg_pool import DTYPES, Case, as_integers, bound, expected, random_case
from tests.long.recording import parser_of, publish
from tests.oracles.series import SERIES

ROWS_SHARE = 0.2


def _call(case: Case, grad: np.ndarray) -> AvgPool2dBackward:
    x = np.zeros((*case.leading, *case.extents), DTYPES[case.dtype])
    return ops.avg_pool2d_backward(grad, x, **case.arguments, threads=1)


def _rows_agree(result: AvgPool2dBackward, grad: np.ndarray, order: int) -> bool:
    """Return whether the instructions, poisoned and in another legal order, leave the bits of the call."""
    again = np.zeros_like(result.grad_input)
    model = default_accumulation(result.product, result.plan.resolved.cube_dtype)
    options = ExecuteOptions(accumulation=model, poison=True, order=order, threads=1 + order % 3)
    result.plan.run({"grad_output": grad.reshape(-1), "grad_input": again.reshape(-1)}, options)
    return again.tobytes() == result.grad_input.tobytes()


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Check calls until the time is over."""
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    different: list[dict[str, Any]] = []
    largest, calls, by_rows = 0.0, 0, 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        case = random_case(rng, str(rng.choice(SERIES)))
        exact = as_integers(case)
        grad = exact.gradient(calls)
        if not np.array_equal(_call(exact, grad).grad_input.astype(np.float64), expected(exact, grad)):
            different.append({"what": "integers", **asdict(exact)})
        grad = case.gradient(calls)
        result = _call(case, grad)
        error = np.abs(result.grad_input.astype(np.float64) - expected(case, grad))
        share = float((error / bound(case, grad, result.path, result.compute_dtype)).max())
        largest = max(largest, share)
        if share > 1.0:
            different.append({"what": "reals", **asdict(case)})
        if rng.random() < ROWS_SHARE:
            by_rows += 1
            if not _rows_agree(result, grad, int(rng.integers(1, 1000))):
                different.append({"what": "rows", **asdict(case)})
        counts[f"{case.series} {result.path} {case.dtype} in {result.compute_dtype}"] += 1
        calls += 1
    return {
        "calls": calls,
        "by_rows": by_rows,
        "largest_share_of_a_bound": round(largest, 3),
        "calls_by_route": dict(sorted(counts.items())),
        "different": different,
    }


def main() -> int:
    """Run, print and record; exit code 1 if anything differed."""
    parser = parser_of("tests.long.avg_pool", __doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    arguments = parser.parse_args()
    found = run(arguments.seed, arguments.seconds)
    found["series"] = {series: get_product(series).name for series in SERIES}
    publish(f"{parser.prog} --seed {arguments.seed}", found, arguments.json)
    return 1 if found["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
