"""Weight gradients as mathematics: linear, adjoint to the forward pass, group by group; and their timing."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.products import list_products
from ops.common.geometry import ConvGeometry
from tests.cases.weight_gradient import SERIES, gradient_of, plan_weight_gradient, random_case

PRODUCTS = {product.name: product for product in list_products()}


def cases(series, count, seed, *, groups_wanted=False):
    rng = np.random.default_rng([SERIES.index(series), seed])
    found = 0
    while found < count:
        case = random_case(rng, series=series, most_macs=80_000)
        # fp32 tensors hold every sum; all but the refused 3D groups, whose 16-bit operands make no fp32 gradient
        case = replace(case, dtype="fp32", cube_math_type=1)
        if groups_wanted and (case.groups == 1 or case.geometry.spatial_rank == 1):
            continue
        found += 1
        yield rng, case


def integers(rng, shape):
    return rng.integers(-4, 5, shape).astype(np.float32)


def gradient(case, x, dy, **changes):
    attributes = {**case.attributes, **changes}
    return gradient_of(
        x, dy, attributes.pop("weight_shape", case.weight_shape), product=case.series, cube_math_type=1, **attributes
    ).grad_weight


@pytest.mark.parametrize("series", SERIES)
def test_gradient_is_linear_in_both_tensors(series):
    for rng, case in cases(series, 6, 1):
        x, dy, other = integers(rng, case.x_shape), integers(rng, case.dy_shape), integers(rng, case.dy_shape)
        both = gradient(case, x, 2 * dy - 3 * other)
        np.testing.assert_array_equal(both, 2 * gradient(case, x, dy) - 3 * gradient(case, x, other))
        more = integers(rng, case.x_shape)
        both = gradient(case, 2 * x + more, dy)
        np.testing.assert_array_equal(both, 2 * gradient(case, x, dy) + gradient(case, more, dy))


@pytest.mark.parametrize("series", SERIES)
def test_gradient_of_groups_is_the_gradients_of_the_groups(series):
    for rng, case in cases(series, 6, 2, groups_wanted=True):
        x, dy = integers(rng, case.x_shape), integers(rng, case.dy_shape)
        cin, cout = case.weight_shape[1], case.weight_shape[0] // case.groups
        parts = [
            gradient(
                case,
                x[:, group * cin : (group + 1) * cin],
                dy[:, group * cout : (group + 1) * cout],
                groups=1,
                weight_shape=(cout, *case.weight_shape[1:]),
            )
            for group in range(case.groups)
        ]
        np.testing.assert_array_equal(gradient(case, x, dy), np.concatenate(parts))


def forward(geometry, x, weight):
    """The convolution by its definition, int64, all tensors with three spatial axes."""
    g = geometry
    padded = np.pad(x, ((0, 0), (0, 0), g.pad[0:2], g.pad[2:4], g.pad[4:6]))
    y = np.zeros((g.n, g.cout, g.do, g.ho, g.wo), np.int64)
    cin, cout = g.cin // g.groups, g.cout // g.groups
    for group, kd, kh, kw in itertools.product(range(g.groups), range(g.kd), range(g.kh), range(g.kw)):
        first = [tap * step for tap, step in zip((kd, kh, kw), g.dilation, strict=True)]
        window = tuple(
            slice(at, at + (out - 1) * step + 1, step)
            for at, out, step in zip(first, (g.do, g.ho, g.wo), g.stride, strict=True)
        )
        read = padded[(slice(None), slice(group * cin, (group + 1) * cin), *window)]
        rows = slice(group * cout, (group + 1) * cout)
        y[:, rows] += np.einsum("ncdhw,oc->nodhw", read, weight[rows, :, kd, kh, kw])
    return y


@pytest.mark.parametrize("series", SERIES)
def test_gradient_is_the_adjoint_of_the_forward_pass(series):
    for rng, case in cases(series, 8, 3):
        g = case.geometry
        x, dy, weight = (rng.integers(-4, 5, shape) for shape in (case.x_shape, case.dy_shape, case.weight_shape))
        y = forward(g, x.reshape(g.n, g.cin, g.di, g.hi, g.wi), weight.reshape(g.weight_shape))
        dw = gradient(case, x.astype(np.float32), dy.astype(np.float32)).astype(np.int64)
        assert int((y.reshape(dy.shape) * dy).sum()) == int((dw * weight).sum())


@pytest.mark.parametrize("series", SERIES)
def test_gradient_of_a_batch_is_the_sum_over_its_items(series):
    for rng, case in cases(series, 4, 4):
        x, dy = integers(rng, case.x_shape), integers(rng, case.dy_shape)
        parts = sum(gradient(case, x[n : n + 1], dy[n : n + 1]) for n in range(len(x)))
        np.testing.assert_array_equal(gradient(case, x, dy), parts)


LAYERS = {
    "3x3": ConvGeometry.from_shapes((2, 64, 28, 28), (2, 64, 28, 28), (64, 64, 3, 3), padding=1),
    "1x1, stride 2": ConvGeometry.from_shapes((1, 40, 15, 15), (1, 130, 8, 8), (130, 40, 1, 1), stride=2),
    "depthwise": ConvGeometry.from_shapes((1, 33, 14, 14), (1, 33, 10, 10), (33, 1, 5, 5), groups=33),
    "one column": ConvGeometry.from_shapes((3, 16, 9, 5), (3, 24, 7, 1), (24, 16, 3, 5)),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_timeline_of_a_gradient_adds_up(product, layer):
    chip = PRODUCTS[product]
    for dtype in sorted(chip.cube_dtypes & {"fp16", "fp32", "hf32"}):
        plan = plan_weight_gradient(LAYERS[layer], chip, dtype)
        for launch in plan.launches:
            result = run_timeline(launch, chip)
            assert sum(result.critical_parts.values()) == result.total_cycles
            assert min(result.critical_parts.values()) >= 0
            phases = sum(result.phase_cycles)
            assert result.total_cycles >= phases > 0
            for pipe, busy in result.busy_cycles.items():
                assert 0 <= busy <= phases
                assert busy + sum(result.stall_cycles[pipe].values()) == phases
            assert max(result.core_cycles) <= phases
            for rows in (1, 5000):
                again = run_timeline(launch, chip, options=TimelineOptions(chunk_rows=rows))
                assert again.to_json() == result.to_json()
        # No tensor existed: what the tensors hold cannot matter.
        assert plan.gm._arena is None


@pytest.mark.parametrize("product", ["Ascend910B2", "Ascend910A", "Ascend310P3"])
def test_timeline_counts_the_multiplications_of_the_tiling(product):
    # The Cube cannot be busy for fewer cycles than its products take at the published rate.
    chip = PRODUCTS[product]
    geometry = LAYERS["3x3"]
    plan = plan_weight_gradient(geometry, chip, "fp16")
    busy = run_timeline(plan.launches[-1], chip).busy_cycles_all_cores["M"]
    assert busy >= geometry.macs / chip.macs_per_cycle("fp16")
