"""Recorded calls of the DSL function: outcome, error code and shape of each, and the values where they are known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import npu_sim
from ops import tbe
from ops.tbe.groups import GROUP_KEYS
from tests.oracles import tbe_weight_gradient as oracle
from tests.oracles.series import DSL

GOLDEN = Path(__file__).parents[1] / "golden/tbe_conv3d_dw"
CALLS = json.loads((GOLDEN / "calls.json").read_text(encoding="utf-8"))
NUMERIC = json.loads((GOLDEN / "numeric.json").read_text(encoding="utf-8"))
MOST_MACS, MOST_ELEMS = 40_000_000, 8_000_000

# What differs from the recorded outcome: stage and code here. The README of the golden files says why.
EXCEPTIONS = {
    "der-x_bf16-8.1": ("call", "E60005"),
}
PAIRS = [(call, series) for call in CALLS for series in call["series"]]


def group_of(call):
    return dict(zip(GROUP_KEYS, call["group"], strict=True))


def make_call(call, x, dy):
    para = {name: call[name] for name in ("strides", "pads", "dilations", "res_dtype")}
    para |= {"kernel_name": "recorded", "group_dict": group_of(call)}
    return tbe.conv3d_backprop_filter(x, dy, call["filter"], para, filter_layout=call["layout"])


def tensors(call):
    shapes = (call["x"], call["dy"])
    names = ("fmap", "dedy")
    return [
        tbe.placeholder(shape, dtype=dtype, name=name)
        for name, shape, dtype in zip(names, shapes, call["dtypes"], strict=True)
    ]


@pytest.mark.parametrize(("call", "series"), PAIRS, ids=[f"{call['case']}-{series}" for call, series in PAIRS])
def test_recorded_call_ends_as_recorded_or_as_listed(call, series):
    stage, expected = EXCEPTIONS.get(call["case"], (call["stage"], call["expected"]))
    with npu_sim.use_product(series):
        if stage == "call":
            with pytest.raises(RuntimeError) as caught:
                make_call(call, *tensors(call))
            assert caught.value.args[0]["errCode"] == expected
            return
        result = make_call(call, *tensors(call))
    if call["stage"] == "success":
        assert (result.shape, result.dtype) == (tuple(call["expected"]), "float32")
    if stage == "schedule":
        with pytest.raises(RuntimeError) as caught:
            tbe.auto_schedule(result)
        assert caught.value.args[0]["errCode"] == expected
    else:
        assert [launch.name for launch in result.launches] == ["MemSet", "Conv3DBackpropFilter"]


def test_recorded_calls_are_all_there_and_every_exception_is_one():
    by_case = {call["case"]: call for call in CALLS}
    assert (len(CALLS), len(by_case), len(NUMERIC)) == (122, 122, 8)
    assert sum(call["stage"] == "success" for call in CALLS) == 73
    assert {call["expected"] for call in CALLS if call["stage"] != "success"} == {
        "E60000", "E60005", "E60006", "E60011", "E60108", "E62006", "E62504", "E62510", "E62511",
    }  # fmt: skip
    for name, outcome in EXCEPTIONS.items():
        assert outcome != (by_case[name]["stage"], by_case[name]["expected"])


def kernel_of(call):
    cout_first, second, third, height, width = call["filter"]
    assert cout_first > 0
    return (second if call["layout"] == "NDCHW" else third, height, width)


def macs(call):
    return math.prod(call["dy"][:2]) * math.prod(call["dy"][3:5]) * math.prod(call["expected"])


SMALL = [
    (call, series)
    for call, series in PAIRS
    if call["stage"] == "success"
    and call["case"] not in EXCEPTIONS
    and macs(call) <= MOST_MACS
    and math.prod(call["x"]) <= MOST_ELEMS
]


@pytest.mark.parametrize(("call", "series"), SMALL, ids=[f"{call['case']}-{series}" for call, series in SMALL])
def test_recorded_call_that_is_small_has_the_right_values(call, series):
    rng = np.random.default_rng(len(call["case"]))
    x, dy = (rng.integers(-3, 4, shape).astype(np.float16) for shape in (call["x"], call["dy"]))
    with npu_sim.use_product(series):
        got = make_call(call, x, dy)
    _, a, b, height, width = call["dilations"]
    depth = a if call["layout"] == "NDCHW" else b
    want = oracle.result(x, dy, kernel_of(call), call["strides"], call["pads"], (depth, height, width), group_of(call))
    np.testing.assert_array_equal(got, want)


def test_recorded_calls_small_enough_to_run_are_most_of_them():
    assert len(SMALL) > 75


@pytest.mark.parametrize("series", DSL)
@pytest.mark.parametrize("case", NUMERIC, ids=[case["case"] for case in NUMERIC])
def test_recorded_gradient_of_integers_is_reproduced(case, series):
    x = ((7 * np.arange(math.prod(case["x"])) + 3) % 11 - 5).reshape(case["x"])
    dy = ((5 * np.arange(math.prod(case["dy"])) + 1) % 7 - 3).reshape(case["dy"])
    groups, kernel = case["groups"], case["kernel"]
    cin, cout = case["x"][1], case["dy"][1]
    group = tbe.calculate_group(cin, cout, groups)
    assert group == group_of(case)
    depth, height, width = case["dilations"]
    para = {
        "strides": case["strides"], "pads": case["pads"], "dilations": [1, depth, 1, height, width],
        "res_dtype": "float32", "kernel_name": "numeric", "group_dict": group,
    }  # fmt: skip
    with npu_sim.use_product(series):
        got = tbe.conv3d_backprop_filter(
            tbe.to_6hd(x.astype(np.float16)), tbe.to_6hd(dy.astype(np.float16)),
            [cout, kernel[0], cin // groups, *kernel[1:]], para,
        )  # fmt: skip
    assert (list(got.shape), got.dtype) == (case["result"], np.float32)
    assert (got.sum(), np.abs(got).sum()) == (case["sum"], case["abs_sum"])
    assert got[0, 0, 0].tolist() == case["first_row"]
    plain = tbe.gradient_from_result(got, group, groups, kernel)
    assert (plain.sum(), np.abs(plain).sum()) == (case["plain_sum"], case["plain_abs_sum"])
    flat = plain.reshape(-1)
    assert (flat[:8].tolist(), flat[-8:].tolist()) == (case["plain_first"], case["plain_last"])
