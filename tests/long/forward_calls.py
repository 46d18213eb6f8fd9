"""Thousands of random forward convolutions and poolings on all series: exact on integers, bounded on reals.

``python -m tests.long.forward_calls [--seconds 240] [--seed 0] [--json FILE]``

Every call runs twice through the public function, once on integers and once on normal deviates, and a tenth of the
convolutions once more by their instructions instead of the bulk shortcuts, poisoned, in a random legal order.
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
from ops.conv_forward.api import Convolution
from tests.cases import avg_pool_forward, convolution_forward
from tests.cases.avg_pool import as_integers
from tests.long.recording import parser_of, publish
from tests.oracles.pooling import forward
from tests.oracles.series import SERIES

ROWS_SHARE = 0.1


@dataclass(slots=True)
class Tally:
    """What was run."""

    calls: int = 0
    runs: int = 0
    mismatches: list[str] = field(default_factory=list)
    calls_by_way: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    largest_share_of_a_bound: float = 0.0

    def record(self, what: str, right: bool) -> None:
        """Count one run."""
        self.runs += 1
        if not right:
            self.mismatches.append(what)

    def share(self, what: str, got: np.ndarray, want: np.ndarray, allowed: np.ndarray) -> None:
        """Count one run whose errors have bounds."""
        share = float((np.abs(got.astype(np.float64) - want) / allowed).max(initial=0.0))
        self.largest_share_of_a_bound = max(self.largest_share_of_a_bound, share)
        self.record(what, share <= 1.0)


def _rows_agree(result: Convolution, arrays: Any, order: int) -> bool:
    """Return whether the instructions, poisoned and in another legal order, leave the bits of the call."""
    tensors = {
        name: array.reshape(-1)
        for name, array in zip(("input", "weight", "bias"), arrays, strict=True)
        if array is not None
    }
    again = np.zeros(result.output.size, result.output.dtype)
    options = ExecuteOptions(accumulation=SERIAL, poison=True, order=order, threads=1 + order % 3)
    result.plan.run(tensors | {"output": again}, options)
    return again.tobytes() == result.output.tobytes()


def _convolve(rng: np.random.Generator, series: str, tally: Tally) -> str:
    """Check one convolution; return its way."""
    call = convolution_forward.random_forward_call(rng, series)
    arrays = convolution_forward.operands(call, integers=True)
    given = [array for array in arrays if array is not None]
    with_rows, order = rng.random() < ROWS_SHARE, int(rng.integers(1, 1000))
    result = ops.convolution(*given, accumulation="serial", **call.keywords)
    exact = convolution_forward.exact_output(call, *arrays)
    tally.record(f"integers {call}", np.array_equal(result.output.astype(np.float64), exact))
    if with_rows:
        tally.record(f"rows {call}", _rows_agree(result, arrays, order))
    arrays = convolution_forward.operands(call, integers=False)
    result = ops.convolution(*(array for array in arrays if array is not None), **call.keywords)
    exact = convolution_forward.exact_output(call, *arrays)
    allowed = convolution_forward.bound_of(call, *arrays, exact, result.compute_dtype)
    tally.share(f"reals {call}", result.output, exact, allowed)
    bias = "" if not call.has_bias else ", bias added" if result.plan.route.adds_bias else ", bias"
    return f"{result.plan.route.kernel}{bias}"


def _pool(rng: np.random.Generator, series: str, tally: Tally) -> str:
    """Check one pooling; return its way."""
    case, seed = avg_pool_forward.random_forward_case(rng, series), int(rng.integers(2**31))
    x = avg_pool_forward.fmap(case, seed)
    result = ops.avg_pool2d(x, **case.arguments)
    want = forward(x.astype(np.float64), case.pooling)
    tally.share(f"reals {case}", result.output, want, avg_pool_forward.bound(case, x, result))
    whole = as_integers(case)
    x = avg_pool_forward.fmap(whole, seed)
    want = forward(x.astype(np.float64), whole.pooling).astype(x.dtype)
    if result.path != "global":
        tally.record(f"integers {case}", np.array_equal(ops.avg_pool2d(x, **whole.arguments).output, want))
    return f"avg_pool2d {result.path}"


def run(seed: int, seconds: float) -> Tally:
    """Check calls until the time is over."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        series = str(rng.choice(SERIES))
        tally.calls += 1
        try:
            way = (_convolve if rng.random() < 0.7 else _pool)(rng, series, tally)
        except OperatorError as error:
            way = f"{error.status}: {str(error).split(' must ')[0]}"
            tally.refusals[way] = tally.refusals.get(way, 0) + 1
            continue
        tally.calls_by_way[f"{series} {way}"] = tally.calls_by_way.get(f"{series} {way}", 0) + 1
    return tally


def main() -> int:
    """Run, print and record; exit code 1 if anything differed."""
    parser = parser_of("tests.long.forward_calls", __doc__)
    parser.add_argument("--seconds", type=float, default=240.0)
    arguments = parser.parse_args()
    tally = run(arguments.seed, arguments.seconds)
    command = f"python -m tests.long.forward_calls --seconds {arguments.seconds:g} --seed {arguments.seed}"
    found = asdict(tally) | {"calls_by_way": dict(sorted(tally.calls_by_way.items()))}
    publish(command, found, arguments.json)
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
