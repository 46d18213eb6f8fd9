"""The table of rules of the pooling gradient: every rule broken once, its whole message, order, profiles, routes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from npu_sim import get_product
from npu_sim.errors import OperatorError
from ops.avg_pool.call import DEVIATIONS, AvgPoolCall
from ops.avg_pool.route import choose_route
from ops.avg_pool.rules import RULES, check, find_violation
from ops.avg_pool.rules_page import PATH, rules_page
from ops.common.quirks import parse_quirks
from ops.common.tensor_desc import TensorDesc
from tests.oracles.avg_pool_status import status
from tests.oracles.pooling import output_extent
from tests.oracles.series import SERIES, SPLIT

A2 = "Ascend910B2, Atlas A2 training and inference series"


def desc(*shape, dtype="fp16", storage_format=None):
    return TensorDesc(shape=shape, dtype=dtype, format=storage_format or ("NCL" if len(shape) == 3 else "NCHW"))


def call(series="910b", **changes):
    x = desc(2, 3, 8, 9)
    base = AvgPoolCall(
        product=get_product(series), grad_output=desc(2, 3, 4, 4), input=x, kernel_size=(2, 3), stride=(2, 2),
        padding=(0, 0), ceil_mode=False, count_include_pad=True, divisor_override=0, cube_math_type=0, grad_input=x,
        strict_shape=True,
    )  # fmt: skip
    return replace(base, **changes)


def both(shape_or_desc, **more):
    """The input and its gradient."""
    return {"input": shape_or_desc, "grad_input": shape_or_desc, **more}


def fp32(*names):
    shapes = {"grad_output": (2, 3, 4, 4), "input": (2, 3, 8, 9), "grad_input": (2, 3, 8, 9)}
    return {name: desc(*shapes[name], dtype="fp32") for name in names}


ALL = ("grad_output", "input", "grad_input")
MANY = {"grad_output": desc(65536, 1, 1), **both(desc(65536, 1, 1)), "kernel_size": (1,), "stride": ()}
BROKEN = {
    "product": (
        161002, {"product": get_product("310")}, "product must be of the series 310p, 910, 910b, 910_93, not Ascend310"
    ),
    "gradOutput-null": (161001, {"grad_output": None}, "gradOutput must be a tensor, not a null pointer"),
    "self-null": (161001, {"input": None}, "self must be a tensor, not a null pointer"),
    "kernelSize-null": (161001, {"kernel_size": None}, "kernelSize must be an array, not a null pointer"),
    "padding-null": (161001, {"padding": None}, "padding must be an array, not a null pointer"),
    "gradInput-null": (161001, {"grad_input": None}, "gradInput must be a tensor, not a null pointer"),
    "gradOutput-dtype": (
        161002, {"grad_output": desc(2, 3, 4, 4, dtype="double")},
        "gradOutput dtype must be FP32, FP16 or BF16, not DOUBLE",
    ),
    "self-dtype": (
        161002, {"series": "910", "input": desc(2, 3, 8, 9, dtype="bf16")},
        "self dtype must be FP32 or FP16, not BF16",
    ),
    "gradInput-dtype": (
        161002, {"grad_input": desc(2, 3, 8, 9, dtype="int8")},
        "gradInput dtype must be FP32, FP16 or BF16, not INT8",
    ),
    "gradOutput-dtype-as-gradInput": (
        161002, fp32("grad_output"), "gradOutput dtype must be FP16, as of gradInput, not FP32",
    ),
    "self-dtype-as-gradInput": (161002, fp32("input"), "self dtype must be FP16, as of gradInput, not FP32"),
    "gradOutput-format": (
        161002, {"grad_output": desc(2, 3, 4, 4, storage_format="ND")},
        "gradOutput format must be NCHW or NCL, not ND",
    ),
    "self-format": (
        161002, {"input": desc(2, 3, 8, 9, storage_format="NHWC")}, "self format must be NCHW or NCL, not NHWC",
    ),
    "gradInput-format": (
        161002, {"grad_input": desc(2, 3, 8, 9, storage_format="ND")}, "gradInput format must be NCHW or NCL, not ND",
    ),
    "4d-format": (
        161002, {"grad_output": desc(2, 3, 4, 4, storage_format="NCL")},
        "gradOutput format must be NCHW where gradOutput has 4 axes, not NCL",
    ),
    "self-format-as-gradInput": (
        161002, {"input": desc(2, 3, 8, 9, storage_format="NCL")},
        "self format must be NCHW, as of gradInput, not NCL",
    ),
    "gradOutput-rank": (
        161002, {"grad_output": desc(4, 4, storage_format="NCHW")},
        "gradOutput rank must be 3 or 4, not 2 (shape [4, 4])",
    ),
    "gradInput-rank": (
        161002, both(desc(1, 2, 3, 8, 9, storage_format="NCHW")),
        "gradInput rank must be 3 or 4, not 5 (shape [1, 2, 3, 8, 9])",
    ),
    "gradInput-rank-as-gradOutput": (
        161002, {"grad_output": desc(3, 4, 4, storage_format="NCHW")},
        "gradInput rank must be 3, as of gradOutput, not 4",
    ),
    "kernelSize-values": (161002, {"kernel_size": (2, 0)}, "kernelSizeW must be at least 1, not 0"),
    "stride-values": (161002, {"stride": (1, 2, 3)}, "stride must be of length 0 or 1 or 2, not 3 ([1, 2, 3])"),
    "padding-values": (161002, {"padding": ()}, "padding must be of length 1 or 2, not 0 ([])"),
    "padding-half-kernel": (
        161002, {"padding": (1, 2)}, "paddingW must be at most half of kernelSizeW = 3, not 2",
    ),
    "cubeMathType": (
        161002, {"cube_math_type": 4},
        "cubeMathType must be one of 0 (KEEP_DTYPE), 1 (ALLOW_FP32_DOWN_PRECISION), 2 (USE_FP16), 3 (USE_HF32), not 4",
    ),
    "self-shape": (
        161002, {"input": desc(2, 3, 8, 8)}, "self shape must be [2, 3, 8, 9], as of gradInput, not [2, 3, 8, 8]",
    ),
    "gradOutput-shape-strict": (
        161002, {"grad_output": desc(2, 3, 4, 5)},
        "gradOutput W must be 4 (input 9, kernel 3, stride 2, padding 0), not 5",
    ),
    "channels": (161002, {"series": "310p", **MANY}, "self channels must be at most 65535, not 65536"),
    "channels-page": (161002, {"profile": "page", **MANY}, "self channels must be at most 65535, not 65536"),
    "divisorOverride": (
        161002, {"series": "910", "profile": "library", "divisor_override": 256},
        "divisorOverride must be in [-255, 255], not 256",
    ),
    "divisorOverride-page": (161002, {"divisor_override": -256}, "divisorOverride must be in [-255, 255], not -256"),
    "cubeMathType-fp32-page": (
        161002, {"series": "910", **fp32(*ALL)},
        "cubeMathType must be 1 (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16) for FP32 tensors, not 0 (KEEP_DTYPE)",
    ),
    "cubeMathType-fp32-cube": (
        161002, {"series": "310p", "profile": "library", "cube_math_type": 3, **fp32(*ALL)},
        "cubeMathType must be 1 (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16) for FP32 tensors, not 3 (USE_HF32)",
    ),
    "gradOutput-planes-global": (
        561103, {
            "strict_shape": False, "kernel_size": (10,), "stride": (), "grad_output": desc(3, 2, 1, 1),
            **both(desc(2, 3, 10, 10)),
        },
        "gradOutput leading extents must be [2, 3], as of self, not [3, 2]",
    ),
    "gradOutput-shape-cube": (
        161002, {"strict_shape": False, "grad_output": desc(2, 3, 2, 4)},
        "gradOutput H must be 4 or more (input 8, kernel 2, stride 2, padding 0), not 2",
    ),
    "gradOutput-planes-vector": (
        161002, {"strict_shape": False, "ceil_mode": True, "grad_output": desc(2, 4, 4, 4)},
        "gradOutput planes must be 6, as of self, not 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_avg_pool_rule_broken_alone_is_named_with_its_whole_message(name):
    status, changes, text = BROKEN[name]
    broken = call(**changes)
    rule, _ = find_violation(broken)
    with pytest.raises(OperatorError) as caught:
        check(broken)
    assert rule.name == name
    assert caught.value.status == status == int(rule.status)
    context = f"{broken.product.name}, {broken.product.series_name}"
    assert str(caught.value) == f"{text} ({context}; rule {rule.step} {name})"


def test_avg_pool_every_rule_has_a_call_that_breaks_it():
    assert [rule.name for rule in RULES] == list(dict.fromkeys(rule.name for rule in RULES))
    assert {rule.name for rule in RULES} == set(BROKEN)


def test_avg_pool_right_call_breaks_no_rule():
    for series in SERIES:
        for profile in (None, "page", "library"):
            assert find_violation(call(series, profile=profile)) is None


def test_avg_pool_of_two_breaches_the_earlier_rule_decides():
    order = [rule.name for rule in RULES]
    changes = {name: BROKEN[name][1] for name in BROKEN}
    tried = 0
    for one in order:
        for other in order:
            merged = {**changes[other], **changes[one]}
            if set(changes[one]) & set(changes[other]) or one == other:
                continue
            found = find_violation(call(**merged))
            # a change may mend what the other breaks, or break more; it never lets a later rule speak first
            assert found is not None
            assert order.index(found[0].name) <= max(order.index(one), order.index(other))
            tried += 1
    assert tried > 600
    null = call(grad_input=None, kernel_size=(), padding=None)
    assert find_violation(null)[0].name == "padding-null"
    assert find_violation(call(cube_math_type=9, padding=(1, 2)))[0].name == "padding-half-kernel"


def test_avg_pool_null_stride_is_the_kernel():
    for stride in (None, ()):
        right = call(stride=stride, grad_output=desc(2, 3, 4, 3))
        assert find_violation(right) is None
        assert [axis.stride for axis in right.axes] == [2, 3]


def test_avg_pool_empty_tensors_succeed_whatever_comes_after_the_arguments():
    nothing = both(desc(0, 3, 8, 9, dtype="fp32"), grad_output=desc(0, 3, 4, 4, dtype="fp32"), divisor_override=300)
    for series in SERIES:
        assert check(call(series, **nothing)).route.name == "empty"
        assert check(call(series, **nothing)).route.compute_dtype == "fp32"
        halves = call(series, **both(desc(0, 3, 8, 9)), grad_output=desc(0, 3, 4, 4), cube_math_type=3)
        assert check(halves).route.compute_dtype == "fp16"
    with pytest.raises(OperatorError):
        check(call(**nothing, padding=(2, 0)))
    lax = call(strict_shape=False, grad_output=desc(2, 3, 0, 4))
    assert check(lax).route.name == "empty"


def test_avg_pool_profiles_differ_where_page_and_source_do():
    assert choose_route(call("910_93", divisor_override=300)).name == "AvgPool3DGrad"
    assert find_violation(call("910_93", divisor_override=300)) is None
    assert find_violation(call("910b", divisor_override=300, profile="library")) is None
    assert find_violation(call("910_93", divisor_override=300, profile="page"))[0].name == "divisorOverride-page"
    assert find_violation(call("910b", **MANY)) is None
    assert check(call("910b", **MANY)).route.why == "channels are more than 65535"
    plane = {**both(desc(1, 1, 10, 12, dtype="fp32")), "grad_output": desc(1, 1, 1, 1, dtype="fp32")}
    plane |= {"kernel_size": (10, 12), "stride": ()}
    assert check(call("910", profile="library", **plane)).route.name == "global"
    assert find_violation(call("910", **plane))[0].name == "cubeMathType-fp32-page"
    for changes in (fp32("input"), {"input": desc(2, 3, 8, 9, storage_format="NCL")}):
        for series in SERIES:
            assert find_violation(call(series, profile="library", **changes)) is None
            assert find_violation(call(series, **changes))[0].name.endswith("-as-gradInput")


def test_avg_pool_channels_that_choose_the_route_are_those_of_grad_output():
    """Of tensors that disagree, the library counts gradOutput's channels here."""
    few = {"grad_output": desc(65536, 2, 1, 1), **both(desc(2, 65536, 2, 2)), "kernel_size": (2,), "stride": ()}
    assert find_violation(call(strict_shape=False, **few))[0].name == "gradOutput-shape-cube"
    many = {"grad_output": desc(2, 65536, 1, 1), **both(desc(65536, 2, 2, 2)), "kernel_size": (2,), "stride": ()}
    assert check(call(strict_shape=False, **many)).route.why == "channels are more than 65535"
    pairs = {"grad_output": desc(2, 40000, 1, 1), **both(desc(2, 40000, 2, 2)), "kernel_size": (2,), "stride": ()}
    assert check(call(**pairs)).route.name == "cube"  # channels, not planes


@pytest.mark.parametrize("series", ["310p", "910b"])
def test_cube_route_takes_at_least_the_windows_that_fit_and_any_number_more(series):
    found_names = set()
    for extent, kernel, stride, pad in product((3, 7, 8), (2, 3, 4), (1, 2, 3), (0, 1)):
        least = max((extent - kernel) // stride + 1, 0)
        for windows in range(1, extent + 4):
            x = desc(2, 3, extent, 7)
            made = call(
                series, kernel_size=(kernel, 1), stride=(stride, 1), padding=(pad, 0), strict_shape=False,
                grad_output=desc(2, 3, windows, 7), **both(x),
            )  # fmt: skip
            if choose_route(made).name != "cube":
                continue
            found = find_violation(made)
            name = None if found is None else found[0].name
            assert name == (None if windows >= least else "gradOutput-shape-cube")
            found_names.add(name)
    assert found_names == {None, "gradOutput-shape-cube"}


def test_avg_pool_names_no_unknown_profile_or_quirk():
    with pytest.raises(OperatorError, match=r"^profile must be None or one of page, library, not 'book'$"):
        call(profile="book")
    with pytest.raises(OperatorError, match=r"^quirk must be one of A1, A2, A3, A4, A5, not 'A6'$"):
        call(quirks=frozenset({"A1", "A6"}))


@pytest.mark.parametrize("value", [3, None, "A9", ["A1", 2], {"A1": 1}])
def test_avg_pool_quirks_are_a_bool_or_names(value):
    with pytest.raises(OperatorError) as caught:
        parse_quirks(value, DEVIATIONS)
    assert str(caught.value) == f"quirks must be a bool or a set of A1, A2, A3, A4, A5, not {value!r}"
    assert parse_quirks(True, DEVIATIONS) == parse_quirks(np.True_, DEVIATIONS) == set(DEVIATIONS)
    assert parse_quirks(np.False_, DEVIATIONS) == frozenset()
    assert parse_quirks("A2", DEVIATIONS) == parse_quirks(["A2"], DEVIATIONS) == {"A2"}
    assert parse_quirks(False, DEVIATIONS) == parse_quirks((), DEVIATIONS) == frozenset()


def square(extent, **changes):
    kernel = changes.pop("kernel", (3, 3))
    height, width = extent if isinstance(extent, tuple) else (extent, extent)
    channels = changes.pop("channels", 2)
    x = desc(channels, height, width)
    probe = call(**both(x, grad_output=desc(channels, 1, 1)), kernel_size=kernel, stride=(), **changes)
    out = [axis.expected_y(probe.ceil_mode) for axis in probe.axes]
    return replace(probe, grad_output=desc(channels, *out))


VECTOR_REASONS = [
    ("the kernel is longer than 255", {"kernel": (256, 1)}, {"kernel": (255, 1)}),
    ("the kernel is longer than 255", {"kernel": (1, 256)}, {"kernel": (1, 255)}),
    ("the kernel's area is above 255", {"kernel": (21, 13)}, {"kernel": (20, 20)}),
    ("the kernel's area is above 255", {"kernel": (16, 21)}, {"kernel": (12, 21)}),
    ("countIncludePad is false", {"count_include_pad": False}, {}),
    ("ceilMode is true", {"ceil_mode": True}, {}),
    (
        "divisorOverride is outside [-255, 255]", {"divisor_override": 256, "profile": "library"},
        {"divisor_override": 255},
    ),
    (
        "divisorOverride is outside [-255, 255]", {"divisor_override": -256, "profile": "library"},
        {"divisor_override": -255},
    ),
    ("channels are more than 65535", {"channels": 65536}, {"channels": 65535}),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "beyond", "within"), VECTOR_REASONS)
def test_avg_pool_on_split_cores_leaves_the_cube_at_each_threshold(reason, beyond, within):
    extent = 300 if "kernel" in beyond else 12
    for series in SPLIT:
        route = check(square(extent, series=series, **beyond)).route
        assert (route.name, route.why) == ("AvgPool3DGrad", reason)
        assert check(square(extent, series=series, **within)).route.name == "cube"


@pytest.mark.parametrize(
    ("extent", "name"), [((8, 15), "cube"), ((8, 16), "AvgPool3DGrad"), ((17, 8), "AvgPool3DGrad"), ((15, 8), "cube")]
)
def test_avg_pool_strip_goes_to_the_vector_cores(extent, name):
    assert check(square(extent)).route.name == name


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_global_route_begins_at_ten(series):
    def route(h, w, **more):
        return check(square((h, w), series=series, kernel=(h, w), **more)).route.name

    other = "AvgPool3DGrad" if series in SPLIT else "cube"
    assert route(10, 10) == route(10, 11, ceil_mode=True) == "global"
    assert route(9, 10) == route(10, 9) == "cube"
    assert route(10, 10, divisor_override=1) == route(10, 10, divisor_override=100) == "cube"
    assert route(9, 9, ceil_mode=True) == other
    assert check(square((11, 10), series=series, kernel=(10, 10))).route.name == "cube"
    # a kernel beyond the plane, one axis at a time, hangs over the end of the only window
    for kernel in ((13, 12), (12, 13)):
        beyond = square(12, series=series, kernel=kernel, ceil_mode=True)
        assert [axis.y for axis in beyond.axes] == [1, 1]
        assert check(beyond).route.name == ("cube+mul" if other == "cube" else other)
    # padding along either axis, which the library ignores here
    for pad in ((0, 3), (3, 0)):
        padded = square(12, series=series, kernel=(12, 12), padding=pad)
        far = replace(padded, stride=(30, 30), grad_output=desc(2, 1, 1))
        assert check(far).route.name == "cube"
        assert choose_route(far).deviations == ("A5",)
        assert check(replace(far, quirks=frozenset({"A5"}))).route.name == "global"


COMPUTE = {
    # tensors: compute type of cubeMathType 0, 1, 2 and 3; None: refused
    "fp16": ("fp16", "fp16", "fp16", "fp16"),
    "global": ("fp32", "fp16", "fp16", "fp32"),
    "vector": ("fp32", "fp32", "fp32", "fp32"),
    "cube without FP32": (None, "fp16", "fp16", None),
    "cube fp32": ("fp32", "hf32", "fp16", "hf32"),
    "cube bf16": ("fp32", "fp32", "fp16", "hf32"),
    "cube with A4": ("fp32", "fp16", "fp16", "hf32"),
}


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_avg_pool_compute_type_follows_route_tensors_and_cube_math_type(series, dtype):
    split = series in SPLIT
    if dtype == "bf16" and not split:
        return
    own = "without FP32" if not split else dtype
    expected = {"cube": f"cube {own}", "global": "global", "vector": "vector"}
    if dtype == "fp16":
        expected |= {"cube": "fp16", "global": "fp16"}
    poolings = {"cube": square(12), "global": square(12, kernel=(12, 12))}
    if split:
        poolings["vector"] = square(12, count_include_pad=False)
    for name, pooling in poolings.items():
        tensors = {field: replace(getattr(pooling, field), dtype=dtype) for field in ALL}
        for number, wanted in enumerate(COMPUTE[expected[name]]):
            made = replace(pooling, product=get_product(series), profile="library", cube_math_type=number, **tensors)
            found = find_violation(made)
            assert (None if found else choose_route(made).compute_dtype) == wanted, (name, number)
            if wanted is not None:  # the Cube of 310P and 910 multiplies halves only
                assert check(made).cube_dtype == (wanted if split else "fp16")
            if name == "cube" and split and dtype != "fp16":
                quirk = choose_route(replace(made, quirks=frozenset({"A4"})))
                assert quirk.compute_dtype == COMPUTE["cube with A4"][number]


def test_avg_pool_page_of_rules_is_made_from_the_table():
    assert PATH.read_text(encoding="utf-8") == rules_page()
    assert all(f"`{rule.name}`" in rules_page() for rule in RULES)
    assert all(f"| {name} |" in rules_page() for name in DEVIATIONS)


def any_call(rng):
    """A call that is right in most respects: each argument is now and then another one."""

    def pick(usual, *others, chance=0.06):
        return others[rng.integers(len(others))] if rng.random() < chance else usual

    series = SERIES[rng.integers(len(SERIES))]
    height, width = (int(extent) for extent in rng.integers(1, 24, 2))
    kernel = (int(rng.integers(1, 7)), int(rng.integers(1, 7)))
    whole = rng.random() < 0.3
    if whole:
        height, width = max(height, 9), max(width, 9)
        kernel = pick((height, width), (height + 1, width), (height, width + 1), (height, width - 1), chance=0.2)
    stride = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    pad = (int(rng.integers(0, kernel[0] // 2 + 1)), int(rng.integers(0, kernel[1] // 2 + 1)))
    if whole and rng.random() < 0.7:
        pad = (0, 0)
    ceil_mode = bool(rng.integers(2))
    every = zip((height, width), kernel, stride, pad, strict=True)
    out = [max(output_extent(*axis, ceil_mode), 1) for axis in every]
    out = pick(out, [out[0] + 1, out[1]], [out[0], max(out[1] - 1, 0)], [1, 1])
    leading = pick((2, 3), (3,), (0, 3), (1, 1, 3), chance=0.2)
    dtype = pick("fp16", "fp32", "bf16", "int8", chance=0.5)
    types = [pick(dtype, "fp32", "fp16", chance=0.03) for _ in range(3)]
    formats = [pick("NCL" if len(leading) == 1 else "NCHW", "NCL", "NCHW", "ND") for _ in range(3)]
    shapes = (pick((*leading, *out), (leading[0] + 1, *leading[1:], *out)), (*leading, height, width))
    shapes = (*shapes, pick(shapes[1], (*leading, height, width + 1), shapes[1][1:], (1, *shapes[1]), chance=0.04))
    g, x, dx = (
        pick(desc(*shape, dtype=dtype_, storage_format=name), None, chance=0.02)
        for shape, dtype_, name in zip(shapes, types, formats, strict=True)
    )
    return AvgPoolCall(
        product=get_product(series), grad_output=g, input=x, grad_input=dx,
        kernel_size=pick(kernel, None, (), (3,), (0, 2), (1, 2, 3)),
        stride=pick(stride, None, (), (2,), (0,), (1, 1, 1)),
        padding=pick(pad, None, (), (0,), (9, 9), (-1, 0), (0, 0, 0)), ceil_mode=ceil_mode,
        count_include_pad=bool(rng.integers(2)), divisor_override=pick(0, 1, 255, -255, 256, -256, 300, chance=0.5),
        cube_math_type=int(pick(rng.integers(0, 4), -1, 4)), profile=(None, "page", "library")[rng.integers(3)],
        quirks=parse_quirks([False, True, "A1", "A2", "A5"][rng.integers(5)], DEVIATIONS),
        strict_shape=bool(rng.integers(2)),
    )  # fmt: skip


def test_avg_pool_random_calls_have_the_status_and_route_of_plain_conditions():
    rng = np.random.default_rng(77)
    seen = Counter()
    for _ in range(8000):
        made = any_call(rng)
        found = find_violation(made)
        got = (int(found[0].status), None) if found else (0, choose_route(made).name)
        assert got == status(made), (made, found)
        seen[got] += 1
        seen[found[0].name if found else "right"] += 1
    assert {path for code, path in (key for key in seen if isinstance(key, tuple))} == {
        None, "empty", "global", "cube", "cube+mul", "AvgPool3DGrad",
    }  # fmt: skip
    never = {rule.name for rule in RULES} - set(seen)
    assert never == {"product", "channels", "channels-page"}
