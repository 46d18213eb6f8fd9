"""The table of rules: each rule alone, the order of all, the page made of it, and a second implementation."""

from __future__ import annotations

import dataclasses
import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from npu_sim import get_product
from npu_sim.dtypes.cube_math import resolve_compute_dtype
from npu_sim.errors import OperatorError
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.rules import RULES, check, find_violation
from ops.conv_backward.rules_page import PATH, rules_page
from tests.oracles.conv_backward_cases import BREAKS, EMPTY, LEGAL, LINE, TENSOR_FIELDS, VOLUME, desc, make_call
from tests.oracles.conv_backward_status import status
from tests.oracles.series import SERIES, SPLIT

RULE = {rule.name: rule for rule in RULES}

# The order of the library's checks, written down once more: a rule that moves is a change of behaviour.
ORDER = """
0 product
1 grad-output-null input-null weight-null stride-null padding-null dilation-null output-padding-null output-mask-null
1b output-mask-length
1c grad-input-null-but-wanted grad-weight-null-but-wanted grad-bias-null-but-wanted
2 grad-output-dtype input-dtype weight-dtype grad-input-dtype grad-input-dtype-strict grad-weight-dtype
2 grad-weight-dtype-strict grad-bias-dtype grad-bias-dtype-strict
3 grad-output-format input-format weight-format grad-input-format grad-weight-format grad-bias-format
4 stride-low padding-low dilation-low output-padding-not-zero output-padding-low output-padding-high groups-low
5 cube-math-type-unknown cube-math-type-product
7 grad-output-rank weight-rank grad-output-empty weight-empty grad-input-shape grad-weight-shape grad-bias-rank
7 grad-bias-length stride-length dilation-length padding-length output-padding-length
8 weight-rows weight-columns groups-channels depthwise-channels
9 window-3d extents-3d
11 deterministic-groups
12.1 empty-bias-sizes-null empty-bias-sizes-length empty-bias-sizes-value
12.2 empty-input-extents
12.3 empty-stride-length empty-dilation-length empty-padding-length empty-output-padding-length empty-group-rows
12.3 empty-channels empty-weight-rows empty-window
12 no-conv3d grouped-fp32-weight-3d
13 grad-output-extent-range input-extent-range weight-extent-range kernel-range stride-range stride-range-3d
13 padding-range padding-range-3d dilation-range dilation-range-library groups-range batch group-rows window extents
"""


def code_of(call: ConvBackwardCall) -> int:
    try:
        check(call)
    except OperatorError as refusal:
        return refusal.status
    return 0


def broken_rules(call: ConvBackwardCall) -> list[str]:
    return [rule.name for rule in RULES if rule.find(call) is not None]


def test_rules_stand_in_the_librarys_order():
    lines = [line.split() for line in ORDER.strip().splitlines()]
    assert [(rule.step, rule.name) for rule in RULES] == [(step, name) for step, *names in lines for name in names]


def test_every_rule_has_a_case():
    assert set(BREAKS) == {rule.name for rule in RULES}


@pytest.mark.parametrize("changes", LEGAL, ids=range(len(LEGAL)))
def test_legal_call_breaks_no_rule(changes):
    call = make_call(**changes)
    assert broken_rules(call) == []
    assert status(call) == 0
    assert check(call).rank == call.rank


@pytest.mark.parametrize("name", BREAKS)
def test_rule_alone_is_broken_by_its_case(name):
    call = make_call(**BREAKS[name])
    assert broken_rules(call) == [name]
    assert status(call) == int(RULE[name].status)


@pytest.mark.parametrize("name", BREAKS)
def test_call_passes_without_the_rule(name):
    call = make_call(**BREAKS[name])
    assert find_violation(call, [rule for rule in RULES if rule.name != name]) is None


@pytest.mark.parametrize("name", BREAKS)
def test_message_names_rule_value_and_product(name):
    call = make_call(**BREAKS[name])
    rule = RULE[name]
    with pytest.raises(OperatorError) as raised:
        check(call)
    message = str(raised.value)
    dimensions = f"{call.rank - 2}D, " if call.rank else ""
    where = f"{dimensions}{'transposed, ' if call.transposed else ''}{call.product.name}, {call.product.series_name}"
    assert message.endswith(f" ({where}; rule {rule.step} {name})")
    assert rule.parameter in message or (rule.parameter == "weight" and "kernel extent" in message)
    assert re.match(r".+ must be .+, not .+ \(", message)
    assert raised.value.status == int(rule.status)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {**VOLUME, "stride": (1, 64, 1), "y": (1, 6, 3, 1, 4)},
            "strideH must be in [1, 63], not 64 (3D, Ascend910B2, Atlas A2 training / 800I A2 "
            "inference; rule 13 stride-range-3d)",
        ),
        (
            {"dtype": "fp32", "product": "310p", "cube_math_type": 0},
            "cubeMathType must be 1 (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16) for FP32 tensors, not 0 (KEEP_DTYPE) "
            "(2D, Ascend310P3, Atlas inference series; rule 5 cube-math-type-product)",
        ),
        (
            {"input_dtype": "bf16", "product": "910"},
            "input dtype must be FP32 or FP16, not BF16 (2D, Ascend910A, Atlas training series; rule 2 input-dtype)",
        ),
        (
            {"input": None},
            "input must be a tensor, not a null pointer (Ascend910B2, Atlas A2 training / 800I A2 "
            "inference; rule 1 input-null)",
        ),
        (
            {**LINE, "stride": (0,)},
            "strideL must be at least 1, not 0 (1D, Ascend910B2, Atlas A2 training / 800I A2 "
            "inference; rule 4 stride-low)",
        ),
        (
            {"padding": (0, 0, -1, 0)},
            "padding[2] must be at least 0, not -1 (2D, Ascend910B2, Atlas A2 training / 800I A2 "
            "inference; rule 4 padding-low)",
        ),
        (
            {"product": "910", "y": (2, 6, 4, 3)},
            "gradOutput extent on axis W must be 4, as the other extents, stride, padding and dilation give, not 3 "
            "(2D, Ascend910A, Atlas training series; rule 13 extents)",
        ),
    ],
)
def test_message_reads_as_a_sentence(changes, message):
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        check(make_call(**changes))


# ---- order -----------------------------------------------------------------------------------------------------------


def merged(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any] | None:
    """Return both changes together, None where they contradict each other."""
    if any(two[key] != value for key, value in one.items() if key in two):
        return None
    return {**one, **two}


def test_earlier_rule_wins_for_every_pair_that_can_be_broken_together():
    seen: set[str] = set()
    pairs = 0
    for (first, one), (second, two) in combinations(BREAKS.items(), 2):
        changes = merged(one, two)
        if changes is None:
            continue
        try:
            call = make_call(**changes)
        except (TypeError, AttributeError):  # a format or dtype of a tensor that the other change takes away
            continue
        broken = broken_rules(call)
        if not {first, second} <= set(broken):
            continue
        found = find_violation(call)
        assert found is not None
        assert found[0].name == broken[0]
        assert RULES.index(RULE[broken[0]]) <= min(RULES.index(RULE[first]), RULES.index(RULE[second]))
        assert code_of(call) == status(call)
        pairs += 1
        seen |= {first, second}
    assert pairs > 900
    assert seen == set(BREAKS)


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"output_mask": None, "grad_output_dtype": "int8"}, "output-mask-null"),
        ({"output_mask": (True,), "grad_input": None}, "output-mask-length"),
        ({"grad_bias": None, "input_dtype": "int8"}, "grad-bias-null-but-wanted"),
        ({"grad_bias_dtype": "int8", "input_format": "NHWC"}, "grad-bias-dtype"),
        ({"grad_bias_format": "NCHW", "stride": (0, 0)}, "grad-bias-format"),
        ({"stride": (0,), "padding": (-1,), "dilation": (0,)}, "stride-low"),
        ({"padding": (-1, 0), "dilation": (0, 0)}, "padding-low"),
        ({"groups": 0, "output_padding": (1, 1)}, "output-padding-not-zero"),
        ({"groups": 0, "cube_math_type": 9}, "groups-low"),
        ({"cube_math_type": -1, "y": (0, 6, 4, 4)}, "cube-math-type-unknown"),
        ({"grad_input": (1, 1), "output_mask": (False, True, True)}, "grad-input-format"),
        ({"stride": (1,), "weight": (7, 4, 3, 3), "grad_weight": (7, 4, 3, 3)}, "stride-length"),
        ({**VOLUME, "product": "910", "y": (1, 6, 9, 4, 4)}, "extents-3d"),
        ({**VOLUME, "product": "310p", "stride": (1, 1, 64), "y": (1, 6, 3, 4, 1)}, "no-conv3d"),
        ({"groups": 65536, "grad_output": (3, 6, 4, 4)}, "groups-channels"),
        ({"padding": (0, 0, 256, 0), "y": (9, 6, 4, 4)}, "padding-range"),
    ],
)
def test_first_of_several_breaches_decides(changes, first):
    call = make_call(**changes)
    found = find_violation(call)
    assert found is not None
    assert found[0].name == first
    assert code_of(call) == status(call) == int(RULE[first].status)


# ---- a second implementation -----------------------------------------------------------------------------------------

ODD: dict[str, tuple[Any, ...]] = {
    "stride": ((1, 1), (2, 2), (1,), (1, 1, 1), (0, 1), (1, 64), (2**31 - 1, 1), None),
    "padding": ((0, 0), (1, 1), (1, 0, 0, 1), (0,), (0, 0, 0), (-1, 0), (256, 0), None),
    "dilation": ((1, 1), (2, 1), (1,), (1, 1, 1), (0, 1), (256, 1), None),
    "output_padding": ((0, 0), (0, 0, 0, 0), (1, 0), (0,), (0, 0, 0), (-1, 0), None),
    "groups": (1, 2, 3, 4, 0, -1, 65536),
    "cube_math_type": (0, 1, 2, 3, 4, -1),
    "output_mask": ((True, False, False), (False, True, False), (False, False, True), (False,) * 3, (True,), None),
    "bias_sizes": (None, (6,), (4,), (1, 1), ()),
    "transposed": (True, False),
    "product": tuple(map(get_product, SERIES)),
    "profile": ("page", "library"),
    "quirks": (frozenset(), frozenset({"Q2"}), frozenset({"Q3"}), frozenset({"Q1", "Q2", "Q3"})),
    "deterministic": (True, False),
    "strict_output_dtype": (True, False),
}
SHAPES = (
    *((2, 4, 6, 6), (2, 6, 4, 4), (6, 4, 3, 3), (0, 4, 6, 6), (6, 0, 3, 3), (2, 4, 0, 6), (4, 1, 3, 3), (6, 2, 3, 3)),
    *((2, 4, 6), (1, 4, 5, 6, 6), (2,), (), (6,)),
)


def test_status_equals_a_straight_implementation_on_random_calls():
    rng = np.random.default_rng(20)
    bases = [make_call(**changes) for changes in (*LEGAL, *BREAKS.values())]
    seen: dict[int, int] = {}
    for _ in range(20_000):
        call = bases[rng.integers(len(bases))]
        changes: dict[str, Any] = {}
        for _ in range(rng.integers(0, 4)):
            if rng.random() < 0.6:
                field = list(ODD)[rng.integers(len(ODD))]
                changes[field] = ODD[field][rng.integers(len(ODD[field]))]
                continue
            field = TENSOR_FIELDS[rng.integers(len(TENSOR_FIELDS))]
            tensor = changes.get(field, getattr(call, field))
            kind = rng.integers(4)
            if kind == 0 or tensor is None:
                tensor = None if rng.random() < 0.3 else desc(SHAPES[rng.integers(len(SHAPES))])
            elif kind == 1:
                tensor = dataclasses.replace(tensor, dtype=("fp16", "fp32", "bf16", "int8")[rng.integers(4)])
            elif kind == 2:
                formats = ("NCHW", "ND", "NCL", "NCDHW", "NHWC")
                tensor = dataclasses.replace(tensor, format=formats[rng.integers(5)])
            changes[field] = tensor
        call = dataclasses.replace(call, **changes)
        expected = status(call)
        assert code_of(call) == expected, call
        seen[expected] = seen.get(expected, 0) + 1
    assert set(seen) == {0, 161001, 161002, 561103}
    assert min(seen.values()) > 500


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "manual"}, "profile must be one of page, library, not 'manual'"),
        ({"quirks": frozenset({"Q1", "D1"})}, "quirk must be one of Q1, Q2, Q3, not 'D1'"),
    ],
)
def test_call_with_an_unknown_switch_cannot_be_made(changes, message):
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$") as raised:
        make_call(**changes)
    assert raised.value.status == 161002


# ---- details the cases leave open ------------------------------------------------------------------------------------


def test_window_of_empty_call_reads_pads_of_their_axes_unless_q2_is_on():
    # H needs 1 more row: up + down = 2 is enough, twice `up` = 0 is not; W needs nothing.
    changes = {**EMPTY, "x": (0, 4, 1, 6), "y": (0, 6, 1, 4), "padding": (0, 2, 0, 0)}
    assert code_of(make_call(**changes)) == 0
    assert code_of(make_call(**changes, quirks=frozenset({"Q2"}))) == 161002
    # And the other way round: with Q2 `down` is taken for the padding of both sides of W.
    changes = {**EMPTY, "x": (0, 4, 6, 1), "y": (0, 6, 7, 1), "padding": (1, 2, 0, 1)}
    assert code_of(make_call(**changes)) == 161002
    assert code_of(make_call(**changes, quirks=frozenset({"Q2"}))) == 0


def test_deterministic_groups_are_refused_only_with_q3():
    changes = {name: value for name, value in BREAKS["deterministic-groups"].items() if name != "quirks"}
    assert code_of(make_call(**changes)) == 0
    assert code_of(make_call(**changes, quirks=frozenset({"Q1", "Q2"}))) == 0


@pytest.mark.parametrize("name", ["kernel-range", "dilation-range"])
def test_ranges_of_the_page_do_not_hold_in_the_library(name):
    assert code_of(make_call(**BREAKS[name], profile="library")) == 0


@pytest.mark.parametrize("name", ["stride-range-3d", "padding-range", "padding-range-3d", "groups-range"])
def test_ranges_of_the_kernels_hold_in_the_library_where_one_runs(name):
    assert code_of(make_call(**BREAKS[name], profile="library")) == 561103
    changes = {**BREAKS[name], "output_mask": (False, False, True)}
    assert code_of(make_call(**changes, profile="library")) == 0
    assert code_of(make_call(**changes)) == 561103


@pytest.mark.parametrize("name", [rule.name for rule in RULES if rule.step == "13" and "range" in rule.name])
def test_ranges_concern_neither_transposed_calls_nor_unified_products(name):
    rule = RULE[name]
    call = make_call(**BREAKS[name])
    assert rule.find(call) is not None
    assert rule.find(dataclasses.replace(call, transposed=True)) is None
    assert rule.find(dataclasses.replace(call, product=get_product("910"))) is None


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(
    ("dtypes", "promoted"),
    [
        (("fp16", "fp16", "fp16"), "fp16"),
        (("fp32", "fp32", "fp32"), "fp32"),
        (("bf16", "bf16", "bf16"), "bf16"),
        (("fp16", "fp16", "fp32"), "fp32"),
        (("fp16", "bf16", "fp16"), "fp32"),
    ],
)
def test_compute_dtype_is_that_of_the_table(series, dtypes, promoted):
    split = series in SPLIT
    table = {
        ("fp16", True): ["fp16", "fp16", "fp16", "fp16"],
        ("fp16", False): ["fp16", "fp16", "fp16", "fp16"],
        ("bf16", True): ["bf16", "bf16", "fp16", "bf16"],
        ("fp32", True): ["fp32", "hf32", "fp16", "hf32"],
        ("fp32", False): [None, "fp16", "fp16", None],
    }
    tensors = dict(zip(("grad_output_dtype", "input_dtype", "weight_dtype"), dtypes, strict=True))
    for kind in range(4):
        for changes in ({}, EMPTY, {"output_mask": (False, False, True)}, {"output_mask": (False, False, False)}):
            call = make_call(**changes, **tensors, product=series, cube_math_type=kind)
            expected = table[promoted, split][kind] if split or "bf16" not in dtypes else None
            if changes is EMPTY and not split:
                expected = None  # an empty gradOutput is refused there
            if expected is None:
                assert code_of(call) == 161002
                continue
            resolved = check(call)
            assert resolved.compute_dtype == expected == resolve_compute_dtype(promoted, kind, call.product)
            assert resolved.promoted_dtype == promoted
            assert resolved.is_empty == (changes is EMPTY)


def test_rules_page_is_up_to_date():
    assert PATH.read_text(encoding="utf-8") == rules_page()


def test_rules_page_has_a_row_for_every_rule():
    rows = [line for line in rules_page().splitlines() if line.count(" | ") == 10 and "`" in line]
    assert len(rows) == len(RULES)
    for rule, row in zip(RULES, rows, strict=True):
        assert row.startswith(f"| {rule.step} | `{rule.name}` | {rule.parameter} |")
        assert f" | {int(rule.status)} | " in row


def test_rules_page_shows_the_cube_math_table_of_the_documents():
    lines = rules_page().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    table = {(row[0], row[1]): row[2:] for row in rows if len(row) == 6 and row[0] in SERIES}
    for series in SERIES:
        split = series in SPLIT
        assert table[series, "FP16"] == ["FP16"] * 4
        assert table[series, "BF16"] == (["BF16", "BF16", "FP16", "BF16"] if split else ["-"] * 4)
        assert table[series, "FP32"] == (["FP32", "HF32", "FP16", "HF32"] if split else ["-", "FP16", "FP16", "-"])


GROUPED = {**VOLUME, "w": (6, 2, 3, 3, 3), "groups": 2, "grad_weight_dtype": "fp32"}


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"dtype": "fp16", "cube_math_type": 0}, True),
        ({"dtype": "bf16", "cube_math_type": 0}, True),
        ({"dtype": "bf16", "cube_math_type": 3}, True),
        ({"dtype": "fp32", "cube_math_type": 2}, True),
        ({"dtype": "fp32", "cube_math_type": 0}, False),
        ({"dtype": "fp32", "cube_math_type": 1}, False),
        ({"dtype": "fp32", "cube_math_type": 3}, False),
        ({"dtype": "fp16", "cube_math_type": 0, "weight_dtype": "bf16"}, False),  # a mix is computed in FP32
        ({"dtype": "fp16", "cube_math_type": 2, "weight_dtype": "bf16"}, True),
        ({"dtype": "fp16", "cube_math_type": 0, "grad_weight_dtype": "bf16"}, False),
        ({"dtype": "fp16", "cube_math_type": 0, "output_mask": (True, False, True)}, False),
        ({"dtype": "fp16", "cube_math_type": 0, "groups": 1, "w": VOLUME["w"]}, False),
    ],
)
def test_float32_weight_gradient_of_groups_in_3d_is_refused_where_the_cube_multiplies_16_bits(changes, refused):
    found = find_violation(make_call(**(GROUPED | changes)))
    assert (found is not None and found[0].name == "grouped-fp32-weight-3d") == refused
    assert refused or found is None


@pytest.mark.parametrize("series", SERIES)
def test_output_padding_of_a_stride_or_more_is_the_pages_and_not_the_librarys(series):
    # 4 columns of stride 2 under 3 taps 3 apart make 13, and 2 or 3 more
    more = {"transposed": True, "y": (2, 6, 4, 4), "x": (2, 4, 10, 15), "w": (6, 4, 3, 3), "stride": (1, 2)}
    more |= {"dilation": (3, 3), "output_padding": (0, 2), "product": series}
    for changes, page, library in (
        (more, 0, 561103),
        ({**more, "x": (2, 4, 10, 16), "output_padding": (0, 3)}, 0, 561103),
        ({**more, "x": (2, 4, 10, 16)}, 561103, 561103),
    ):
        for profile, code in (("page", page), ("library", library)):
            call = make_call(**changes, profile=profile)
            assert code_of(call) == code == status(call), (changes, profile)


DEPTHWISE = {
    **VOLUME, "w": (4, 1, 3, 3, 3), "y": (1, 4, 3, 4, 4), "groups": 4, "cube_math_type": 2, "dtype": "bf16",
    "weight_dtype": "fp32", "grad_weight_dtype": "fp32",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, False),
        ({"weight_dtype": "bf16", "grad_output_dtype": "fp32"}, False),
        ({"profile": "library"}, True),
        ({"dtype": "fp32"}, True),  # input is not BF16
        ({"dtype": "fp16"}, True),
        ({"weight_dtype": "bf16"}, True),  # the page's gradWeight is BF16
        ({"w": (8, 1, 3, 3, 3), "y": (1, 8, 3, 4, 4)}, True),  # gradOutput has more channels than groups
        ({"w": (4, 2, 3, 3, 3), "groups": 2}, True),
        ({"transposed": True}, True),
    ],
)
def test_the_page_has_float32_weight_gradients_of_depthwise_convolutions_of_bfloat16(changes, refused):
    found = find_violation(make_call(**(DEPTHWISE | changes)))
    assert (found is not None and found[0].name == "grouped-fp32-weight-3d") == refused
    assert refused or found is None
