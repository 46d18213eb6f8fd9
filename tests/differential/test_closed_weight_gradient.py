"""The closed weight-gradient kernel: exact where sums are, ordered, as busy as the profiles it was inferred from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.errors import OperatorError, ShapeError
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from ops.common.core_count import with_cores
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.params import split_params
from ops.conv3d_backprop_filter.plan import WeightGradientLayouts, closed_launches, weight_gradient_kernel
from ops.conv3d_backprop_filter.tiling_closed import closed_tiling
from ops.conv3d_backprop_filter.tiling_data import ORIGIN_CLOSED
from tests.cases.weight_gradient import expected, operands, plan_of, random_case, run_plan

CHIP = get_product("Ascend910B2")


def closed(plan, cores):
    """Return ``plan`` with the closed kernel, None where there is none."""
    tiling = closed_tiling(plan.geometry, with_cores(plan.product, cores), plan.compute_dtype)
    if tiling is None:
        return None
    params = split_params(tiling, plan.product, plan.x, plan.dy, plan.dw, plan.compute_dtype)
    return replace(plan, tiling=tiling, launches=closed_launches(params, plan.gm, plan.dw, plan.product))


@pytest.mark.parametrize("series", ["910b", "910_93"])
def test_random_weight_gradients_equal_the_oracle(series):
    rng = np.random.default_rng([len(series), 2027])
    ran = 0
    while ran < 30:
        case = random_case(rng, series=series, most_macs=600_000)
        try:
            plan = closed(plan_of(case), int(rng.integers(1, 25)))
        except OperatorError:
            continue
        if plan is None:
            continue
        ran += 1
        x, dy = operands(case)
        options = ExecuteOptions(accumulation=default_accumulation(plan.product, plan.compute_dtype), poison=True)
        got = run_plan(plan, x, dy, options).reshape(case.weight_shape)
        np.testing.assert_array_equal(got, expected(case, x, dy))
        if ran % 4 == 0:
            assert run_hazards(plan.launches, plan.product) == []


def kernel(geometry, compute="hf32", **options):
    """Return the kernel of ``geometry`` on tensors of its own."""
    gm = GlobalMemory()
    layouts = WeightGradientLayouts.of(geometry, compute)
    item = 4 if compute in ("hf32", "fp32") else 2
    x = gm.add("x", layouts.x.storage_elems * item, initialised=True)
    dy = gm.add("dy", layouts.dy.storage_elems * item, initialised=True)
    dw = gm.add("dw", layouts.dw.storage_elems * 4, initialised=False)
    return weight_gradient_kernel(geometry, CHIP, compute, gm, x, dy, dw, generation="closed", **options)


ALEXNET_2 = ConvGeometry(n=32, cin=64, cout=192, hi=27, wi=27, ho=27, wo=27, kh=5, kw=5, pad=(0, 0, 2, 2, 2, 2))


def test_busy_time_of_pipes_is_that_of_the_profile():
    launch = kernel(ALEXNET_2).launches[1]
    result = run_timeline(launch, CHIP, options=TimelineOptions(inputs_in_l2=True))
    busy = {pipe: cycles / CHIP.timing_clock_hz * 1e6 for pipe, cycles in result.busy_cycles.items()}
    # msinsight, Conv2DBackpropFilter9: 101.3 us, of which 83 % M, 68 % MTE1, 46 % MTE2, 17 % FIX
    measured = {"M": 84.5, "MTE1": 68.6, "MTE2": 47.0, "FIX": 17.2}
    for pipe, within in (("M", 1.15), ("MTE1", 1.3), ("MTE2", 1.5), ("FIX", 1.5)):
        assert measured[pipe] / within < busy[pipe] < measured[pipe] * within
    assert 101.3 / 1.2 < result.seconds() * 1e6 < 101.3 * 1.2


def test_core_count_can_be_given():
    found = kernel(ALEXNET_2, block_dim=7)
    assert found.tiling.origin == ORIGIN_CLOSED
    assert found.launches[1].core_count == found.tiling.cores == 7
    with pytest.raises(ShapeError, match=r"^block_dim must be at least 1, not 0 \(Ascend910B2\)$"):
        kernel(ALEXNET_2, block_dim=0)


def test_what_the_closed_kernel_is_not_known_to_do_the_published_one_does():
    assert kernel(ALEXNET_2, deterministic=True).tiling.origin != ORIGIN_CLOSED
    wide = ConvGeometry(n=1, cin=8, cout=16, hi=1, wi=700, ho=1, wo=101, kh=1, kw=600)
    assert kernel(wide).tiling.origin != ORIGIN_CLOSED
