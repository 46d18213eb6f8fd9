"""The calls of public tests: status and route as derived for every series, values against the definition."""

from __future__ import annotations

from math import prod
from zlib import crc32

import numpy as np
import pytest

import ops
from npu_sim import use_product
from npu_sim.errors import OperatorError
from ops import aclnn
from ops.avg_pool.call import expanded
from ops.avg_pool.plan import plan_call
from ops.avg_pool.rules import check
from tests.cases.avg_pool import DTYPES, Case, bound, expected
from tests.oracles.avg_pool_calls import arguments_of, call_of, load
from tests.oracles.pooling import Pooling
from tests.oracles.series import SERIES, SPLIT, UNIFIED

CASES = load("cases.jsonl")
MEANS = load("means.jsonl")
COLUMNS = {series: int(series in SPLIT) for series in SERIES}

NOT_AS_OBSERVED = {
    "ut-000": "commented-out test of a negative extent: aclCreateTensor makes no such tensor",
}
"""Cases whose status differs from the derived one, with the reason."""


def outcome(case, series, **more):
    try:
        resolved = check(call_of(case, series, **more))
        plan_call(resolved)
    except OperatorError as refusal:
        return refusal.status, None
    return 0, resolved.route.name


@pytest.mark.parametrize("series", COLUMNS)
def test_avg_pool_status_and_route_of_public_calls_are_those_of_the_documents(series):
    column = COLUMNS[series]
    for case in CASES:
        if case["id"] in NOT_AS_OBSERVED:
            continue
        got = outcome(case, series, profile="library")
        wanted = case["path"][column]
        assert got == (case["status"][column], wanted), case["id"]
        if case["of"] == series:
            assert got[0] == case["observed"], case["id"]
        by_page = outcome(case, series, profile="page")
        page_status = case.get("page_status", case["status"][column])
        assert by_page == ((page_status, wanted) if page_status == 0 else (page_status, None)), case["id"]


def test_avg_pool_call_with_a_negative_extent_has_no_tensor():
    (case,) = (case for case in CASES if case["id"] in NOT_AS_OBSERVED)
    shape = list(map(int, case["g"].split()[2].split("x")))
    with use_product("910b"):
        assert aclnn.aclCreateTensor(shape, aclnn.ACL_FLOAT, None, 0, aclnn.ACL_FORMAT_NCHW, None, None) is None
    assert aclnn.aclGetRecentErrMsg().startswith(
        f"{case['observed']} ACLNN_ERR_PARAM_INVALID: aclCreateTensor: viewDims"
    )


def test_avg_pool_public_calls_are_all_there():
    assert len({case["id"] for case in CASES}) == len(CASES) == 135
    paths = {(series, case["path"][column]) for series, column in COLUMNS.items() for case in CASES}
    assert {name for _, name in paths} == {None, "cube", "cube+mul", "AvgPool3DGrad", "global"}
    assert sum("any_shape" in case for case in CASES) == 12


def as_case(case, series):
    call = call_of(case, series)
    shape = call.input.shape
    pooling = Pooling(
        kernel=call.kernel,
        stride=expanded(call.stride, call.kernel),
        pad=expanded(call.padding),
        ceil_mode=call.ceil_mode,
        count_include_pad=call.count_include_pad,
        divisor_override=call.divisor_override,
    )
    return Case(
        series=series, dtype=call.grad_output.dtype, leading=shape[:-2], extents=shape[-2:], pooling=pooling,
        cube_math_type=call.cube_math_type,
    )  # fmt: skip


def cost(case):
    """Additions of the oracle, and how many instructions it takes in NumPy."""
    call = call_of(case, "910b")
    return prod(call.grad_output.shape[-2:]) * prod(call.kernel), call.input.elems


def computed(series, largest):
    column = COLUMNS[series]
    for case in CASES:
        if case["status"][column] or "any_shape" in case:
            continue
        steps, elems = cost(case)
        if steps <= largest and elems <= 100 * largest:
            yield case


def assert_values(case, series):
    judged = as_case(case, series)
    grad = judged.gradient(crc32(case["id"].encode())) if "values" not in case else np.ones((1, 16, 1, 1), np.float32)
    x = np.zeros((*judged.leading, *judged.extents), DTYPES[judged.dtype])
    r = ops.avg_pool2d_backward(grad, x, **judged.arguments, threads=2)
    error = np.abs(r.grad_input.astype(np.float64) - expected(judged, grad))
    assert (error <= bound(judged, grad, r.path, r.compute_dtype)).all(), (case["id"], r.path)
    if "values" in case:
        assert (r.grad_input == case["values"]).all()


@pytest.mark.parametrize(("series", "count"), [("310p", 16), ("910", 16), ("910b", 41), ("910_93", 41)])
def test_avg_pool_values_of_small_public_calls_are_right(series, count):
    cases = list(computed(series, 1000))
    for case in cases:
        assert_values(case, series)
    assert len(cases) == count


@pytest.mark.slow
@pytest.mark.parametrize("series", COLUMNS)
def test_avg_pool_values_of_all_public_calls_are_right(series):
    for case in computed(series, 10**9):
        assert_values(case, series)


@pytest.mark.parametrize("series", UNIFIED)
@pytest.mark.parametrize("case", MEANS, ids=lambda case: case["id"])
def test_avg_pool_with_means_has_the_bits_of_the_published_steps(case, series):
    count = prod(case["g"])
    grad = ((((13 * np.arange(count) + 5) % 31) - 15) / 8).astype(np.float16).reshape(case["g"])
    r = ops.avg_pool2d_backward(
        grad, np.zeros(case["x"], np.float16), kernel_size=case["kernel"], stride=case["stride"],
        padding=case["padding"], ceil_mode=case["ceil"], count_include_pad=False, product=series,
    )  # fmt: skip
    assert r.path == "cube+mul"
    (matrix,) = (values for buffer, values in r.plan.constants.items() if buffer.name == "mean")
    assert matrix.view(np.uint16).tolist() == case["means"]
    assert r.grad_input[0, 0, 0].view(np.uint16).tolist() == case["first_row"]
    assert r.grad_input[-1, -1, -1].view(np.uint16).tolist() == case["last_row"]
    assert float(r.grad_input.astype(np.float32).sum()) == pytest.approx(case["sum"], abs=1e-6)


@pytest.mark.parametrize("series", COLUMNS)
def test_avg_pool_public_calls_through_the_front_have_the_status_of_the_rules(series):
    column = COLUMNS[series]
    with use_product(series):
        for case in CASES[:24]:
            if case["id"] in NOT_AS_OBSERVED:
                continue
            positional, keywords = arguments_of(call_of(case, series, profile="library"))
            status, workspace, executor = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(*positional, **keywords)
            assert status == case["status"][column], (case["id"], aclnn.aclGetRecentErrMsg())
            assert (executor is None) == bool(status)
            assert workspace > 0 or case["path"][column] in (None, "global")
    aclnn.aclGetRecentErrMsg()
