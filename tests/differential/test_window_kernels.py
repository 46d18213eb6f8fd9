"""Input gradients and forward convolutions of unified cores: exact on integers, bit for bit on real numbers.

The judges are the definition of the convolution (`ops.conv3d_backprop_input.oracle`) where every sum is exact, and
`tests.oracles.window_kernels`, which rounds in the published order of K, where it is not.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.program.verify import verify
from ops.conv3d_backprop_input import oracle
from tests.oracles.window_cases import SERIES, integers, planned, random_geometry, random_tiling, run

CASES = 60


def exact(plan, source, weight):
    judge = oracle.forward if plan.forward else oracle.input_gradient
    return judge(source, weight, plan.shapes[1], *plan.attributes)


def assert_exact(plan, rng, options=None):
    source, weight = integers(rng, plan)
    got, lanes = run(plan, source, weight, options)
    np.testing.assert_array_equal(got, exact(plan, source, weight), err_msg=f"{plan.geometry} {plan.tiling}")
    assert not lanes.any()


def assert_clean(plan):
    assert run_hazards(plan.launches, plan.product) == [], (plan.geometry, plan.tiling)
    for launch in plan.launches:
        for core in {0, launch.core_count - 1}:
            assert verify(emit_rows(launch, core), plan.product) == [], (plan.geometry, plan.tiling)


def options_of(rng, plan):
    """Any order, chunk and number of threads: nothing of them may show."""
    return ExecuteOptions(
        accumulation=default_accumulation(plan.product, "fp16"),
        poison=True,
        threads=int(rng.integers(1, 3)),
        chunk_rows=int(rng.choice((1, 300, 4096))),
        order=("program", "late", int(rng.integers(1000)))[int(rng.integers(3))],
    )


@pytest.mark.parametrize("forward", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("series", SERIES)
def test_window_kernel_random_convolutions_and_tilings_equal_the_definition(series, forward):
    rng = np.random.default_rng([SERIES.index(series), forward, 1])
    seen = set()
    for _ in range(CASES):
        plan = planned(random_geometry(rng), series, forward=forward)
        for variant in (plan, random_tiling(rng, plan)):
            t = variant.tiling
            seen.add((t.source.name, "row" if t.by_row else "two" if t.two_column else "whole"))
            assert_clean(variant)
            assert_exact(variant, rng, options_of(rng, variant))
    # A generator that stopped drawing a way of the windows would let this pass with less in it.
    ways = {("MAP", "whole"), ("MAP", "row"), ("MAP", "two"), ("GATHERED", "whole")}
    if not forward:
        ways |= {("DILATED", "whole"), ("DILATED", "row"), ("DILATED", "two"), ("PIXELS", "whole")}
    assert seen == ways
