"""Plans are kept from call to call, whatever thread makes it, and never hold or share the data of one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ops
from npu_sim.errors import NpuSimError, OperatorError
from npu_sim.products import get_product
from npu_sim.report.explain import recording
from ops.avg_pool import api as pool_api
from ops.common import plan_cache
from ops.conv_backward import api
from ops.conv_forward import api as forward_api
from tests.oracles.convolution import Attributes, gradients

SHAPES = ((2, 16, 6, 6), (2, 16, 6, 6), (16, 16, 3, 3))


@pytest.fixture(autouse=True)
def _no_plans() -> Iterator[None]:
    plan_cache.forget_plans()
    yield
    plan_cache.forget_plans()


def _call(seed: int, **changes: Any) -> Any:
    rng = np.random.default_rng(seed)
    # whole numbers: every sum is exact, in any order
    tensors = [rng.integers(-4, 5, shape).astype(np.float16) for shape in SHAPES]
    arguments: dict[str, Any] = {"stride": 1, "padding": 1, "dilation": 1, "threads": 1}
    return tensors, ops.convolution_backward(*tensors, **arguments | changes)


def _check(tensors: list[np.ndarray], result: Any) -> None:
    attributes = Attributes(stride=(1, 1), pads=((1, 1), (1, 1)), dilation=(1, 1))
    dx, dw, db = gradients(*(tensor.astype(np.int64) for tensor in tensors), attributes)
    np.testing.assert_array_equal(result.grad_input, dx)
    np.testing.assert_array_equal(result.grad_weight, dw)
    np.testing.assert_array_equal(result.grad_bias, db)


def test_repeated_call_shares_the_plan_and_nothing_of_the_data() -> None:
    first_tensors, first = _call(0)
    second_tensors, second = _call(1)
    assert second.plan is first.plan
    _check(first_tensors, first)
    _check(second_tensors, second)
    assert not np.shares_memory(first.grad_input, second.grad_input)


@pytest.mark.parametrize(
    "changes",
    [
        {"padding": 1, "stride": 2},
        {"output_mask": (True, True, False)},
        {"product": "910"},
        {"deterministic": True},
        {"cube_math_type": 1},
        {"product": replace(get_product("910b"), name="mine")},
    ],
)
def test_what_differs_has_a_plan_of_its_own(changes: dict[str, Any]) -> None:
    plan = _call(0)[1].plan
    if "stride" in changes:
        rng = np.random.default_rng(0)
        tensors = [rng.standard_normal(shape).astype(np.float16) for shape in ((2, 16, 3, 3), *SHAPES[1:])]
        other = ops.convolution_backward(*tensors, **{"padding": 1, "dilation": 1} | changes).plan
    else:
        other = _call(0, **changes)[1].plan
    assert other is not plan
    assert _call(0)[1].plan is plan


def test_what_a_user_does_to_the_memory_of_a_plan_reaches_no_later_call() -> None:
    _, first = _call(0)
    first.plan.calls.gm.arena[:] = 0x3C
    words = first.plan.calls.gm.arena
    _check(*_call(2))
    assert (words == 0x3C).all()


def test_plans_of_recorded_calls_are_not_kept_nor_taken() -> None:
    _, first = _call(0)
    with recording():
        plans = [_call(0)[1].plan for _ in range(2)]
    assert len({id(plan) for plan in (first.plan, *plans)}) == 3
    assert _call(0)[1].plan is first.plan


@pytest.mark.parametrize("name", ["stride", "padding", "dilation", "groups"])
def test_arguments_are_known_by_type_as_well_as_by_value(name: str) -> None:
    plan = _call(0, padding=1)[1].plan
    for wrong in (True, 1.0, np.True_):
        # 1 == True == 1.0, and they have one hash
        with pytest.raises(NpuSimError, match=name):
            _call(0, **{name: wrong})
    if name != "groups":
        with pytest.raises(NpuSimError, match=name):
            _call(0, **{name: (1, True)})
        assert _call(0, **{name: [1, 1]})[1].plan is plan
    assert _call(0, **{name: np.int64(1)})[1].plan is plan


def test_arguments_as_they_were_given_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _call(0, stride=[1, 1])[1].plan
    monkeypatch.setattr(api, "_call_of", None)
    assert _call(1, stride=[1, 1])[1].plan is plan
    with pytest.raises(TypeError):
        _call(0, stride=(1, 1))


def test_forward_convolutions_are_known_by_their_arguments_as_given_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = (np.ones(shape, np.float16) for shape in SHAPES[1:])
    bias = np.ones(16, np.float16)
    plan = ops.convolution(x, w, padding=1).plan
    for wrong in (True, 1.0):
        with pytest.raises(NpuSimError, match="padding"):
            ops.convolution(x, w, padding=wrong)
    others = ops.convolution(x, w, bias, padding=1).plan, ops.convolution(x[:1], w, padding=1).plan
    assert len({id(plan), *map(id, others)}) == 3
    monkeypatch.setattr(forward_api, "_call_of", None)
    assert ops.convolution(x + 1, w, padding=1).plan is plan
    assert ops.convolution(x, w, bias + 1, padding=1).plan is others[0]


def test_gradients_of_poolings_are_known_by_their_arguments_as_given_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x, g = np.ones((2, 16, 6, 6), np.float16), np.ones((2, 16, 3, 3), np.float16)
    plan = ops.avg_pool2d_backward(g, x, kernel_size=2).plan
    for wrong in (2.0, True):
        with pytest.raises(NpuSimError, match="kernel_size"):
            ops.avg_pool2d_backward(g, x, kernel_size=wrong)
    others = [
        ops.avg_pool2d_backward(g[:1], x[:1], kernel_size=2).plan,
        ops.avg_pool2d_backward(g, x, kernel_size=2, divisor_override=3).plan,
        ops.avg_pool2d_backward(g[..., :2, :2], x[..., :5, :5], kernel_size=2).plan,
    ]
    assert len({id(plan), *map(id, others)}) == 4
    monkeypatch.setattr(pool_api, "_call_of", None)
    result = ops.avg_pool2d_backward(4 * g, x, kernel_size=2)
    assert result.plan is plan
    assert (result.grad_input == 1).all()


def test_refusals_are_made_anew() -> None:
    for _ in range(2):
        with pytest.raises(OperatorError, match="groups"):
            _call(0, groups=5)


def test_threads_share_one_plan() -> None:
    _, first = _call(0)
    found: list[tuple[list[np.ndarray], Any]] = []

    def work(seed: int) -> None:
        found.extend(_call(100 * seed + i) for i in range(20))

    crew = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert len(found) == 80
    for tensors, result in found:
        assert result.plan is first.plan
        _check(tensors, result)


def test_plans_that_were_not_used_for_longest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "LIMIT", 3)  # calls have two signatures, as given and as read
    plans = [_call(0, output_mask=mask)[1].plan for mask in ((True, False, False), (False, True, False))]
    assert _call(0, output_mask=(True, False, False))[1].plan is plans[0]
    _call(0, output_mask=(False, False, True))
    assert _call(0, output_mask=(True, False, False))[1].plan is plans[0]
    assert _call(0, output_mask=(False, True, False))[1].plan is not plans[1]


def test_large_constants_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    grad, x = np.ones((1, 16, 2, 2), np.float16), np.ones((1, 16, 4, 4), np.float16)

    def plan() -> Any:
        return ops.avg_pool2d_backward(grad, x, kernel_size=2).plan

    assert plan().constants
    assert plan() is plan()
    monkeypatch.setattr(plan_cache, "LIMIT_BYTES", 8)
    plan_cache.forget_plans()
    assert plan() is not plan()


def test_other_operators_share_plans_too() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((20, 24)).astype(np.float16), rng.standard_normal((24, 32)).astype(np.float16)
    assert ops.matrix_product(a, b).plan is ops.matrix_product(a + 1, b).plan
    assert ops.matrix_product(a, b).plan is not ops.matrix_product(a, b, cube_math_type=2, product="910").plan
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in SHAPES[1:])
    assert ops.convolution(x, w).plan is ops.convolution(x + 1, w).plan
    assert ops.convolution(x, w).plan is not ops.convolution(x, w, padding=1).plan
    assert ops.avg_pool2d(x, kernel_size=2).plan is ops.avg_pool2d(x + 1, kernel_size=2).plan
