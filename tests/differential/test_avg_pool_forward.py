"""ops.avg_pool2d against the definition, on every route, and against PyTorch where it is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.program.verify import verify
from tests.cases.avg_pool import DTYPES, Case, as_integers
from tests.cases.avg_pool_forward import bound, fmap, random_forward_case
from tests.oracles.pooling import Pooling, forward
from tests.oracles.series import SERIES, SPLIT

ROUTES = {True: {"global", "cube", "cube+mul", "AvgPool3D"}, False: {"global", "cube", "cube+mul"}}


def run(case, seed=0, **more):
    x = fmap(case, seed)
    before = x.copy()
    r = ops.avg_pool2d(x, **case.arguments, threads=2, **more)
    assert x.tobytes() == before.tobytes()
    assert r.output.shape == (*case.leading, *case.out)
    assert r.output.dtype == DTYPES[case.dtype]
    return x, r


def assert_right(case, seed=0, **more):
    x, r = run(case, seed, **more)
    error = np.abs(r.output.astype(np.float64) - forward(x.astype(np.float64), case.pooling))
    assert (error <= bound(case, x, r)).all(), (case, r.path, float(error.max()))
    return r


@pytest.mark.parametrize("series", SERIES)
def test_random_calls_are_within_the_bound_and_take_every_route(series):
    rng = np.random.default_rng([SERIES.index(series), 4])
    paths = Counter(assert_right(random_forward_case(rng, series), seed).path for seed in range(110))
    assert set(paths) == ROUTES[series in SPLIT]


@pytest.mark.parametrize("series", SERIES)
def test_integers_by_a_power_of_two_are_exact(series):
    rng = np.random.default_rng([SERIES.index(series), 5])
    for seed in range(25):
        case = as_integers(random_forward_case(rng, series))
        x, r = run(case, seed)
        want = forward(x.astype(np.float64), case.pooling).astype(DTYPES[case.dtype])
        # the plane's mean is rounded before another divisor makes up for its area
        if r.path != "global":
            np.testing.assert_array_equal(r.output.astype(np.float64), want.astype(np.float64), str(case))


@pytest.mark.parametrize("series", SERIES)
def test_launches_of_a_call_are_sound(series):
    rng = np.random.default_rng([SERIES.index(series), 6])
    for seed in range(12):
        _, r = run(random_forward_case(rng, series), seed)
        launches = r.plan.calls.launches
        assert run_hazards(launches, r.product) == []
        for launch in launches:
            assert verify(emit_rows(launch, 0, 0), r.product) == [], launch.name


CLIPPED = [
    ((5, 7), Pooling(kernel=(4, 3), stride=(2, 2), pad=(2, 1))),
    ((6, 8), Pooling(kernel=(4, 4), stride=(2, 2), pad=(2, 2), count_include_pad=False)),
    ((6, 7), Pooling(kernel=(3, 2), stride=(2, 2), ceil_mode=True)),
    ((9, 9), Pooling(kernel=(2, 2), stride=(2, 2), pad=(1, 1), ceil_mode=True)),
    ((9, 9), Pooling(kernel=(2, 2), stride=(2, 2), pad=(1, 1), ceil_mode=True, count_include_pad=False)),
    ((8, 8), Pooling(kernel=(2, 2), stride=(3, 3), pad=(1, 1))),
    ((10, 9), Pooling(kernel=(1, 1), stride=(4, 4), ceil_mode=True)),
    ((12, 11), Pooling(kernel=(12, 11), stride=(30, 30), pad=(6, 5), count_include_pad=False)),
    ((3, 70), Pooling(kernel=(3, 64), stride=(1, 3), divisor_override=1000)),
    ((40, 30), Pooling(kernel=(25, 26), stride=(3, 70))),
    ((70, 70), Pooling(kernel=(2, 2), stride=(66, 66))),
]
"""Windows over every side, long kernels and strides, large divisors."""


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(("extents", "pooling"), CLIPPED)
def test_windows_clipped_in_every_way_are_right(series, extents, pooling):
    for leading in ((3,), (2, 17)):
        case = Case(series=series, dtype="fp16", leading=leading, extents=extents, pooling=pooling)
        assert_right(case, 1)


@pytest.mark.parametrize("series", SERIES)
def test_output_is_that_of_pytorch(series):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng([SERIES.index(series), 7])
    for seed in range(20):
        case = random_forward_case(rng, series)
        x, p = fmap(case, seed).astype(np.float64), case.pooling
        want = torch.nn.functional.avg_pool2d(
            torch.tensor(x), p.kernel, p.stride, p.pad, p.ceil_mode, p.count_include_pad, p.divisor_override or None
        )
        np.testing.assert_allclose(forward(x, p), want.numpy(), rtol=1e-12, atol=1e-14)


def test_means_of_large_halves_do_not_pass_their_range_unless_the_library_lets_them():
    x = np.full((1, 3, 20, 20), 300.0, np.float16)
    call = {"kernel_size": 18, "stride": 1, "padding": 2, "count_include_pad": False, "product": "910b"}
    np.testing.assert_allclose(ops.avg_pool2d(x, **call).output.astype(np.float64), 300, rtol=2.0**-10)
    quirky = ops.avg_pool2d(x, **call, quirks=True)
    assert (quirky.path, quirky.plan.route.active) == ("cube+mul", ("F2",))
    assert np.isinf(quirky.output).any()


def test_clipped_windows_are_divided_by_the_kernels_area_where_the_library_does():
    x = np.ones((1, 1, 5, 5), np.float16)
    call = {"kernel_size": 2, "stride": 2, "ceil_mode": True}
    assert (ops.avg_pool2d(x, **call, product="310p").output == 1).all()
    assert ops.avg_pool2d(x, **call, product="310p", quirks="F1").output[0, 0, 2].tolist() == [0.5, 0.5, 0.25]
    assert (ops.avg_pool2d(x, **call, product="910b", quirks=True).output == 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_lanes_go_through_ub_in_pieces(dtype):
    case = Case(
        series="910b", dtype=dtype, leading=(3, 1800), extents=(3, 7), pooling=Pooling(kernel=(2, 3), stride=(1, 2))
    )
    r = assert_right(case)
    (tiling,) = [planned.kernel.tiling for planned in r.plan.calls.steps if planned.step.name == "AvgPool3D"]
    assert tiling.pieces == 2
    assert run_hazards(r.plan.calls.launches, r.product) == []


@pytest.mark.parametrize("wish", [1, 3])
def test_vector_route_computes_the_same_whatever_the_cube_may_do(wish):
    x = np.random.default_rng(5).standard_normal((2, 5, 9, 8)).astype(np.float32)
    pooling = {"kernel_size": 3, "stride": 2, "ceil_mode": True, "threads": 1}
    kept, r = (ops.avg_pool2d(x, **pooling, cube_math_type=mode) for mode in (0, wish))
    assert r.path == kept.path == "AvgPool3D"
    assert r.output.tobytes() == kept.output.tobytes()


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_avg_pool_forward_of_no_batch_item_has_no_element(series, dtype):
    r = ops.avg_pool2d(
        np.zeros((0, 3, 5, 9), dtype), kernel_size=(2, 6), stride=3, padding=(0, 2), cube_math_type=1, product=series
    )
    assert (r.path, r.output.shape, r.output.dtype) == ("empty", (0, 3, 2, 3), dtype)
