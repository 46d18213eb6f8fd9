"""ops.avg_pool2d_backward against the definition of the gradient, on every route."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import npu_sim
import ops
from tests.cases.avg_pool import DTYPES, Case, as_integers, bound, expected, random_case
from tests.oracles.pooling import Pooling
from tests.oracles.series import SERIES

ROUTES = {
    "310p": {"cube", "cube+mul"},
    "910": {"cube", "cube+mul"},
    "910b": {"cube", "AvgPool3DGrad"},
    "910_93": {"cube", "AvgPool3DGrad"},
}


def run(case, seed=0, **more):
    grad = case.gradient(seed)
    x = np.zeros((*case.leading, *case.extents), DTYPES[case.dtype])
    return grad, ops.avg_pool2d_backward(grad, x, **case.arguments, threads=2, **more)


def assert_right(case, seed=0, **more):
    grad, r = run(case, seed, **more)
    assert r.grad_input.dtype == DTYPES[case.dtype]
    error = np.abs(r.grad_input.astype(np.float64) - expected(case, grad))
    limit = bound(case, grad, r.path, r.compute_dtype)
    assert (error <= limit).all(), (case, r.path, error.max())
    return r


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_random_calls_are_within_the_bound_and_take_every_route(series):
    rng = np.random.default_rng([SERIES.index(series), 4])
    paths = Counter(assert_right(random_case(rng, series), seed).path for seed in range(40))
    assert set(paths) == ROUTES[series]
    assert min(paths.values()) >= 4


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_of_integers_by_a_power_of_two_is_exact(series):
    rng = np.random.default_rng([SERIES.index(series), 5])
    for seed in range(20):
        case = as_integers(random_case(rng, series))
        grad, r = run(case, seed)
        np.testing.assert_array_equal(r.grad_input.astype(np.float64), expected(case, grad), str(case))


CLIPPED = [
    ((5, 7), Pooling(kernel=(4, 3), stride=(2, 2), pad=(2, 1))),
    ((6, 8), Pooling(kernel=(4, 4), stride=(2, 2), pad=(2, 2), count_include_pad=False)),
    ((6, 7), Pooling(kernel=(3, 2), stride=(2, 2), ceil_mode=True)),
    ((6, 7), Pooling(kernel=(3, 2), stride=(2, 2), ceil_mode=True, count_include_pad=False)),
    ((9, 9), Pooling(kernel=(2, 2), stride=(2, 2), pad=(1, 1), ceil_mode=True)),
    ((8, 8), Pooling(kernel=(3, 3), stride=(5, 5), pad=(1, 1))),
    ((8, 8), Pooling(kernel=(2, 2), stride=(3, 3), pad=(1, 1))),
    ((10, 9), Pooling(kernel=(1, 1), stride=(4, 4), ceil_mode=True)),
    ((12, 11), Pooling(kernel=(12, 11), stride=(12, 11))),
    ((12, 11), Pooling(kernel=(12, 11), stride=(30, 30), pad=(6, 5), count_include_pad=False)),
    ((9, 10), Pooling(kernel=(9, 10), stride=(1, 1))),
]
"""Windows over the left and top padding, the right and bottom padding, over the padded end, and over nothing."""


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(("extents", "pooling"), CLIPPED)
def test_avg_pool_windows_clipped_in_every_way_are_right(series, extents, pooling):
    for leading in ((3,), (2, 17)):
        case = Case(series=series, dtype="fp16", leading=leading, extents=extents, pooling=pooling)
        assert_right(case, 1)


def test_call_without_a_product_runs_on_the_current_one():
    x, g = np.ones((1, 16, 4, 4), np.float16), np.ones((1, 16, 2, 2), np.float16)
    with npu_sim.use_product("310p"):
        assert ops.avg_pool2d_backward(g, x, kernel_size=2).product.name == "Ascend310P3"
    assert ops.avg_pool2d_backward(g, x, kernel_size=2).product.name == "Ascend910B2"
