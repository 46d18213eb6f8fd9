"""Thousands of random backward calls on all series against the definition: exact on integers, bounded on reals.

``python -m tests.long.convolution_backward [--seconds 480] [--seed 0] [--json FILE]``

Three in ten calls are over the whole range of the operator's page. Every call runs twice through the public function,
once on integers whose sums every type holds and once on normal deviates, and a tenth of the calls once more by their
instructions instead of the bulk shortcuts, poisoned, in a random legal order.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import ops
from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.errors import OperatorError
from npu_sim.products import get_product
from ops.conv_backward.api import ConvolutionBackward
from tests.cases.convolution_backward import (
    OUTPUTS,
    Call,
    exact_gradients,
    is_exact,
    operands,
    page_call,
    random_call,
    share_of_bound,
)
from tests.long.recording import parser_of, publish
from tests.oracles.series import SERIES

ROWS_SHARE = 0.1
PAGE_SHARE = 0.3


@dataclass(slots=True)
class Tally:
    """What was run."""

    calls: int = 0
    runs: int = 0
    mismatches: list[dict[str, Any]] = field(default_factory=list)
    calls_by_series_and_compute_dtype: dict[str, int] = field(default_factory=dict)
    calls_by_route: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    largest_share_of_a_bound: float = 0.0

    def record(self, call: Call, what: str, right: bool) -> None:
        """Count one run."""
        self.runs += 1
        if not right:
            self.mismatches.append({"what": what, **call.record()})


def _count(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


def _rows_agree(call: Call, result: ConvolutionBackward, arrays: Any, order: int) -> bool:
    """Return whether the instructions, poisoned and in another legal order, leave the bits of the call."""
    tensors = dict(zip(("grad_output", "input", "weight"), (array.reshape(-1) for array in arrays), strict=True))
    wanted = {name: getattr(result, name) for name in OUTPUTS if getattr(result, name) is not None}
    again = {name: np.zeros(value.size, value.dtype) for name, value in wanted.items()}
    options = ExecuteOptions(accumulation=SERIAL, poison=True, order=order, threads=1 + order % 3)
    result.plan.run(tensors | again, options)
    return all(again[name].tobytes() == value.tobytes() for name, value in wanted.items())


def run(seed: int, seconds: float, most_calls: int) -> Tally:
    """Check calls until the time is over."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds and tally.calls < most_calls:
        call = page_call(rng) if rng.random() < PAGE_SHARE else random_call(rng)
        with_rows, order = rng.random() < ROWS_SHARE, int(rng.integers(1, 1000))
        tally.calls += 1
        arrays = operands(call, integers=True)
        try:
            result = ops.convolution_backward(*arrays, accumulation="serial", **call.keywords)
        except OperatorError as error:
            _count(tally.refusals, f"{error.status}: {str(error).split(' must ')[0]}")
            continue
        _count(tally.calls_by_series_and_compute_dtype, f"{call.series} {result.compute_dtype}")
        route = result.plan.route
        _count(tally.calls_by_route, f"{route.name}{', matrix product' if route.is_matmul else ''}")
        tally.record(call, "integers", is_exact(call, result, exact_gradients(call, arrays)))
        if with_rows:
            tally.record(call, "rows", _rows_agree(call, result, arrays, order))
        arrays = operands(call, integers=False)
        result = ops.convolution_backward(*arrays, **call.keywords)
        share = share_of_bound(call, result, arrays, exact_gradients(call, arrays))
        tally.largest_share_of_a_bound = max(tally.largest_share_of_a_bound, share)
        tally.record(call, "reals", share <= 1.0)
    return tally


def main() -> int:
    """Run, print and record; exit code 1 if anything differed."""
    parser = parser_of("tests.long.convolution_backward", __doc__)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--calls", type=int, default=10**9)
    arguments = parser.parse_args()
    tally = run(arguments.seed, arguments.seconds, arguments.calls)
    found = {
        "series": {series: get_product(series).name for series in SERIES},
        **asdict(tally),
        "mismatch_count": len(tally.mismatches),
    }
    publish(
        f"{parser.prog} --seed {arguments.seed} --calls {tally.calls}",
        found,
        arguments.json,
    )
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
