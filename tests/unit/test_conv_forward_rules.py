"""The forward call's table of rules: each rule broken alone, the order, what profiles change, the page made of it."""

from __future__ import annotations

import pytest

from npu_sim import get_product
from npu_sim.errors import OperatorError
from ops.common.tensor_desc import TensorDesc
from ops.conv_forward.call import ConvolutionCall
from ops.conv_forward.rules import FORMAT_OF_RANK, RULES, check
from ops.conv_forward.rules_page import PATH, rules_page
from tests.oracles.rules import assert_decides
from tests.oracles.series import SERIES, SPLIT

FIELDS = ("input", "weight", "bias", "output")
BASE = {
    "series": "910b", "input": (2, 4, 6, 7), "weight": (8, 2, 3, 2), "bias": (8,), "output": (2, 8, 4, 6),
    "dtype": "fp16", "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False,
    "output_padding": None, "groups": 2, "cube_math_type": 0, "profile": None, "strict_output_dtype": False,
}  # fmt: skip
TURNED = {
    "transposed": True, "input": (2, 4, 4, 6), "weight": (4, 3, 3, 2), "bias": (6,), "output": (2, 6, 6, 7),
    "output_padding": (0, 0),
}  # fmt: skip
VOLUME = {
    "input": (1, 4, 3, 4, 4), "weight": (8, 2, 1, 2, 2), "output": (1, 8, 3, 3, 3), "stride": (1, 1, 1),
    "padding": (0, 0, 0), "dilation": (1, 1, 1),
}  # fmt: skip
LINE = {"input": (2, 4, 9), "weight": (8, 2, 3), "output": (2, 8, 7), "stride": (1,), "padding": (0,), "dilation": (1,)}


def make(**changes):
    """A call from shapes, one type for all (``<tensor>_dtype`` for one) and formats of the ranks."""
    given = BASE | changes
    descs = {}
    for name in FIELDS:
        shape = given.pop(name)
        dtype, form = given.pop(f"{name}_dtype", given["dtype"]), given.pop(f"{name}_format", None)
        kind = form or ("ND" if name == "bias" else FORMAT_OF_RANK.get(len(shape or ()), "ND"))
        descs[name] = None if shape is None else TensorDesc(shape=shape, dtype=dtype, format=kind)
    given.pop("dtype")
    return ConvolutionCall(product=get_product(given.pop("series")), **descs, **given)


def long_line(extent):
    return {**LINE, "input": (1, 4, extent), "output": (1, 8, extent - 2)}


BREAKS = {
    "product": {"series": "310"},
    "input-null": {"input": None, "output": None},
    "weight-null": {"weight": None},
    "stride-null": {"stride": None},
    "padding-null": {"padding": None},
    "dilation-null": {"dilation": None},
    "output-null": {"output": None},
    "output-padding-null": {**TURNED, "output_padding": None},
    "bias-dtype": {"bias_dtype": "int8"},
    "bias-dtype-as-input": {"bias_dtype": "fp32", "profile": "page"},
    "input-dtype": {"input_dtype": "int8"},
    "weight-dtype": {"weight_dtype": "double"},
    "output-dtype": {"output_dtype": "int32"},
    "output-dtype-strict": {"output_dtype": "fp32", "strict_output_dtype": True},
    "output-dtype-transposed": {**TURNED, "output_dtype": "fp32"},
    "input-rank": {"input": (4, 6), "input_format": "NCHW"},
    "weight-rank": {"weight": (8, 2)},
    "output-rank": {"output": (2, 8), "output_format": "NCHW"},
    "weight-rank-as-input": {"weight": (8, 2, 3)},
    "output-rank-as-input": {"output": (2, 8, 4), "output_format": "NCHW"},
    "bias-rank": {"bias": (1, 8)},
    "bias-length": {"bias": (4,)},
    "stride-length": {"stride": (1,)},
    "dilation-length": {"dilation": (1, 1, 1)},
    "padding-length": {"padding": (0, 0, 0)},
    "output-padding-length": {**TURNED, "output_padding": (0, 0, 0, 0)},
    "output-format-as-input": {"output_format": "ND"},
    "bias-format": {"bias_format": "NHWC"},
    "input-format": {"input_format": "NHWC", "output_format": "NHWC"},
    "weight-format": {"weight_format": "ND"},
    "weight-extents": {"weight": (8, 2, 0, 2), "output": (2, 8, 8, 6)},
    "stride-low": {"stride": (0, 1)},
    "dilation-low": {"dilation": (1, 0), "output": (2, 8, 4, 7)},
    "padding-low": {"padding": (-1, 0), "output": (2, 8, 2, 6)},
    "window": {"weight": (8, 2, 7, 2), "output": (2, 8, 0, 6)},
    "groups-low": {"groups": 0},
    "channels": {"weight": (8, 3, 3, 2)},
    "output-padding": {**TURNED, "output_padding": (1, 0), "output": (2, 6, 7, 7)},
    "group-rows": {"groups": 2, "weight": (7, 2, 3, 2), "bias": (7,), "output": (2, 7, 4, 6)},
    "input-channels": {
        **TURNED, "input": (2, 0, 4, 6), "weight": (0, 3, 3, 2), "output": (0, 6, 6, 7), "groups": 2
    },
    "back-padding": {
        **TURNED, "weight": (4, 3, 129, 2), "dilation": (2, 1), "output": (2, 6, 260, 7), "profile": "library"
    },
    "output-shape": {"output": (2, 8, 4, 5)},
    "output-empty": {"weight": (8, 0, 3, 2), "input": (2, 0, 6, 7)},
    "cube-math-type-unknown": {"cube_math_type": 4},
    "cube-math-type-product": {"series": "310p", "dtype": "fp32"},
    "fp32-kept-page": {"dtype": "fp32", "profile": "page"},
    "bf16-as-fp16-page": {"dtype": "bf16", "cube_math_type": 2, "profile": "page"},
    "input-extent-range": long_line(1_000_001),
    "weight-extent-range": {
        "weight": (1_000_002, 2, 3, 2), "bias": None, "output": (2, 1_000_002, 4, 6)
    },
    "bias-extent-range": {**TURNED, "groups": 2, "weight": (4, 600_000, 3, 2), "bias": (1_200_000,),
                          "output": (2, 1_200_000, 6, 7)},
    "kernel-range-transposed": {**TURNED, "weight": (4, 3, 256, 2), "output": (2, 6, 259, 7),
                                "profile": "page"},
    "kernel-range-3d": {**VOLUME, "weight": (8, 2, 1, 512, 2), "input": (1, 4, 3, 512, 4), "output": (1, 8, 3, 1, 3)},
    "input-map-range": {"series": "310p", "input": (1, 4, 6, 4097), "output": (1, 8, 4, 4096)},
    "kernel-range-unified": {"series": "310p", "input": (1, 4, 6, 300), "weight": (8, 2, 3, 256),
                             "output": (1, 8, 4, 45)},
    "stride-range-3d": {**VOLUME, "stride": (1, 64, 1), "output": (1, 8, 3, 1, 3)},
    "padding-range": {"padding": (0, 256), "output": (2, 8, 4, 518)},
    "padding-range-3d": {**VOLUME, "padding": (0, 256, 0), "output": (1, 8, 3, 515, 3)},
    "dilation-range-transposed": {**TURNED, "dilation": (256, 1), "output": (2, 6, 516, 7)},
    "dilation-range-3d": {**VOLUME, "dilation": (1, 256, 1), "input": (1, 4, 3, 300, 4), "output": (1, 8, 3, 44, 3)},
    "groups-range": {"groups": 65536, "input": (1, 65536, 1, 1), "weight": (65536, 1, 1, 1), "bias": None,
                     "output": (1, 65536, 1, 1)},
    "transposed-output-fp32": {**TURNED, "output_dtype": "fp32", "profile": "library"},
    "no-conv3d": {**VOLUME, "series": "310p"},
}  # fmt: skip
LEGAL = (
    {}, TURNED, VOLUME, LINE, {"bias": None}, {"dtype": "fp32"}, {"dtype": "bf16", "cube_math_type": 2},
    {"dtype": "fp32", "profile": "page", "cube_math_type": 1}, {"output_dtype": "fp32"},
    {"weight_dtype": "fp32", "bias_dtype": "fp32", "output_dtype": "fp32"},
    {**TURNED, "dilation": (2, 1), "output": (2, 6, 9, 7), "output_padding": (1, 0)},
    {**LINE, "padding": (1, 2), "output": (2, 8, 10)}, {"padding": (1, 0, 2, 0), "output": (2, 8, 5, 8)},
    {"input": (0, 4, 6, 7), "output": (0, 8, 4, 6)},
    {"input": (2, 4, 0, 0), "padding": (1, 1), "output": (2, 8, 0, 1)},
    {**TURNED, "input": (0, 4, 4, 6), "output": (0, 6, 6, 7)},
    {"series": "310p", "dtype": "fp32", "cube_math_type": 1, "bias_dtype": "fp16"},
    {"series": "910", **VOLUME, "input": (1, 4, 1, 4, 4), "output": (1, 8, 1, 3, 3)},
    {"bias_dtype": "fp32"}, {"stride": (100, 70), "output": (2, 8, 1, 1)},
)  # fmt: skip


def status_of(call):
    try:
        check(call)
    except OperatorError as refusal:
        return refusal.status
    return 0


@pytest.mark.parametrize("changes", LEGAL, ids=range(len(LEGAL)))
def test_legal_call_breaks_no_rule(changes):
    call = make(**changes)
    assert [(rule.name, text) for rule in RULES if (text := rule.find(call)) is not None] == []
    check(call)


def test_every_rule_has_a_case():
    assert list(BREAKS) == [rule.name for rule in RULES]


@pytest.mark.parametrize("name", BREAKS)
def test_rule_decides_its_case(name):
    assert_decides(name, make(**BREAKS[name]), RULES, check)


def test_negative_extents_are_named_as_such():
    with pytest.raises(OperatorError, match=r"without negative extents.*, not \[2, 6, -2, 7\]"):
        check(make(**TURNED | {"padding": (4, 0), "output": (2, 6, 0, 7)}))


def test_steps_ascend():
    steps = [int(rule.step) for rule in RULES]
    assert steps == sorted(steps)


def test_switched_and_profiled_rules_let_their_cases_through_elsewhere():
    names = ("fp32-kept-page", "bf16-as-fp16-page", "kernel-range-transposed", "transposed-output-fp32", "back-padding")
    for name in names:
        changes = BREAKS[name] | {"profile": None, "output_dtype": "fp16", "dilation": (1, 1)}
        changes |= {"output": (2, 6, 132, 7)} if name == "back-padding" else {}
        if name.endswith("-page"):
            changes |= {"output_dtype": changes["dtype"]}
        assert status_of(make(**changes)) == 0, name


@pytest.mark.parametrize("series", SERIES)
def test_cases_are_refused_on_every_series_a_rule_is_for(series):
    for rule in RULES:
        if rule.needs is None and not rule.ranks:
            changes = BREAKS[rule.name] | {"series": series}
            assert rule.find(make(**changes)) is not None, rule.name
    assert (status_of(make(series=series, dtype="bf16")) == 0) == (series in SPLIT)


def test_rules_page_is_up_to_date():
    assert PATH.read_text(encoding="utf-8") == rules_page()
