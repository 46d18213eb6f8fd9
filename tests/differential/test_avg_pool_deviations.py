"""Where the library deviates from the definition, each switch alone; and calls whose gradOutput has another shape."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import ops
from npu_sim import get_product
from npu_sim.accumulation import default_accumulation
from npu_sim.errors import NpuSimError, OperatorError, ProductError, ShapeError, shown
from npu_sim.report.explain import recording
from ops.avg_pool.call import DEVIATIONS, AvgPoolCall
from ops.avg_pool.divisors import mean_matrix
from ops.avg_pool.route import choose_route
from ops.common.tensor_desc import TensorDesc
from tests.cases.avg_pool import DTYPES, Case, bound, expected
from tests.differential.test_avg_pool_shortcut import by_rows
from tests.oracles.pooling import Pooling, input_gradient
from tests.oracles.series import SPLIT, UNIFIED


def run(case, grad=None, seed=1, **more):
    grad = case.gradient(seed) if grad is None else grad
    x = np.zeros((*case.leading, *case.extents), DTYPES[case.dtype])
    return grad, ops.avg_pool2d_backward(grad, x, **case.arguments, threads=1, **more)


def assert_follows(case, grad, r, pooling):
    """The result is the gradient of ``pooling``, within the bound."""
    judged = replace(case, pooling=pooling)
    error = np.abs(r.grad_input.astype(np.float64) - expected(judged, grad))
    assert (error <= bound(judged, grad, r.path, r.compute_dtype)).all()


def assert_leaves(case, grad, r):
    """The result is not the gradient of the call, by far."""
    error = np.abs(r.grad_input.astype(np.float64) - expected(case, grad))
    assert (error > 4 * bound(case, grad, r.path, r.compute_dtype)).any()


def deviations_of(explanation):
    """The deviations that the explanation says the call meets, and whether they are on."""
    tables = [table for table in explanation.tables if "deviations" in table.title]
    found = {row[0]: row[2] for table in tables for row in table.rows}
    assert explanation.facts["call"]["deviations met"] == (", ".join(found) or "none")
    assert [row[1] for table in tables for row in table.rows] == [DEVIATIONS[name] for name in found]
    return found


@pytest.mark.parametrize("series", UNIFIED)
@pytest.mark.parametrize("quirks", [("A1",), True])
def test_a1_divides_a_clipped_last_window_by_the_whole_kernel(series, quirks):
    pooling = Pooling(kernel=(3, 3), stride=(2, 2), ceil_mode=True)
    case = Case(series=series, dtype="fp16", leading=(2, 3), extents=(6, 6), pooling=pooling)
    with recording() as recorder:
        grad, off = run(case)
    assert off.path == "cube+mul"
    assert_follows(case, grad, off, pooling)
    assert deviations_of(recorder.explanations()[0]) == {"A1": "off"}
    with recording() as recorder:
        _, on = run(case, quirks=quirks)
    assert on.path == "cube"
    assert_leaves(case, grad, on)
    assert_follows(case, grad, on, replace(pooling, divisor_override=9))
    assert deviations_of(recorder.explanations()[0]) == {"A1": "on"}


@pytest.mark.parametrize("series", UNIFIED)
@pytest.mark.parametrize("divisor", [255, -255])
def test_a2_ignores_the_largest_divisor(series, divisor):
    pooling = Pooling(kernel=(3, 2), stride=(2, 2), pad=(1, 1), count_include_pad=False, divisor_override=divisor)
    case = Case(series=series, dtype="fp16", leading=(4,), extents=(7, 6), pooling=pooling)
    grad, off = run(case)
    assert off.path == "cube"
    assert_follows(case, grad, off, pooling)
    _, on = run(case, quirks={"A2"})
    assert on.path == "cube+mul"
    assert_leaves(case, grad, on)
    assert_follows(case, grad, on, replace(pooling, divisor_override=0))
    _, smaller = run(replace(case, pooling=replace(pooling, divisor_override=254)), quirks=True)
    assert smaller.path == "cube"


@pytest.mark.parametrize("series", UNIFIED)
def test_a3_stops_counting_at_2048(series):
    """The windows hang over two edges: all of 2500 elements, some of fewer than 2048."""
    pooling = Pooling(kernel=(50, 50), stride=(5, 6), pad=(25, 3), count_include_pad=False)
    case = Case(series=series, dtype="fp16", leading=(2, 3), extents=(60, 65), pooling=pooling)
    covered = []
    for axis in range(2):
        start = np.arange(case.out[axis]) * pooling.stride[axis] - pooling.pad[axis]
        covered.append(np.minimum(start + 50, case.extents[axis]) - np.maximum(start, 0))
    count = np.multiply.outer(*covered)
    assert count.min() < 2048 < count.max() == 2500
    large = (case.gradient(1) * 1000).astype(np.float16)
    grad, off = run(case, large)
    assert off.path == "cube+mul"
    assert_follows(case, grad, off, pooling)
    for quirks in ("A3", True):
        _, on = run(case, large, quirks=quirks)
        assert_leaves(case, grad, on)
        assert_follows(case, grad.astype(np.float64) * count / np.minimum(count, 2048), on, pooling)
        # the same bits from the rows, which stream the weights through L1
        rows = by_rows(on, large, default_accumulation(get_product(series), "fp16"))
        np.testing.assert_array_equal(rows.grad_input.view(np.uint16), on.grad_input.view(np.uint16))


@pytest.mark.parametrize("series", UNIFIED)
def test_a3_is_met_by_windows_of_more_than_2048_halves_without_padding_only(series):
    x = TensorDesc(shape=(1, 50, 60), dtype="fp16", format="NCL")
    call = AvgPoolCall(
        product=get_product(series), grad_output=replace(x, shape=(1, 1, 11), storage_elems=-1), input=x,
        kernel_size=(50, 50), stride=(1,), padding=(0,), ceil_mode=False, count_include_pad=False, divisor_override=0,
        cube_math_type=0, grad_input=x,
    )  # fmt: skip
    for quirks, count in ((frozenset(), 2500), (frozenset({"A3"}), 2048), (frozenset({"A1"}), 2500)):
        mine = replace(call, quirks=quirks)
        route = choose_route(mine)
        assert (route.name, route.deviations) == ("cube+mul", ("A3",))
        assert (mean_matrix(mine, route, "fp16") == np.float16(1 / count)).all()
    at_limit = replace(call, kernel_size=(32, 64), grad_output=replace(x, shape=(1, 19, 1), storage_elems=-1))
    at_limit = replace(
        at_limit, **dict.fromkeys(("input", "grad_input"), replace(x, shape=(1, 50, 64), storage_elems=-1))
    )
    assert choose_route(at_limit).deviations == ()
    # a kernel of 2500 of which at most 44 x 46 lie on the input
    small = replace(x, shape=(1, 44, 46), storage_elems=-1)
    padded = replace(call, input=small, grad_input=small, padding=(3, 2), grad_output=replace(x, shape=(1, 1, 1)))
    assert choose_route(replace(padded, kernel_size=(50, 50))).deviations == ()
    # with A2 off the divisor stands and nothing is counted
    overridden = replace(call, divisor_override=255)
    for quirks, met in (((), ("A2",)), (("A3",), ("A2",)), (("A2",), ("A2", "A3"))):
        assert choose_route(replace(overridden, quirks=frozenset(quirks))).deviations == met
    floats = {name: replace(getattr(call, name), dtype="fp32") for name in ("grad_output", "input", "grad_input")}
    wide = replace(call, **floats, cube_math_type=1, quirks=frozenset(DEVIATIONS))
    assert choose_route(wide).deviations == ()
    assert (mean_matrix(wide, choose_route(wide), "fp32") == np.float32(1) / np.float32(2500)).all()


@pytest.mark.parametrize("series", SPLIT)
@pytest.mark.parametrize(("dtype", "off", "on"), [("fp32", "hf32", "fp16"), ("bf16", "fp32", "fp16")])
def test_a4_computes_in_fp16_on_the_cube(series, dtype, off, on):
    pooling = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1))
    case = Case(series=series, dtype=dtype, leading=(2, 3), extents=(6, 6), pooling=pooling, cube_math_type=1)
    grad = (case.gradient(3).astype(np.float32) * 1e6).astype(DTYPES[dtype])
    _, default = run(case, grad)
    assert default.compute_dtype == off
    assert_follows(case, grad, default, pooling)
    _, quirk = run(case, grad, quirks="A4")
    assert quirk.compute_dtype == on
    assert not np.isfinite(quirk.grad_input.astype(np.float32)).all()  # far beyond FP16


@pytest.mark.parametrize("series", [*UNIFIED, *SPLIT])
def test_a5_fills_the_plane_in_spite_of_padding(series):
    pooling = Pooling(kernel=(10, 12), stride=(20, 20), pad=(2, 3), count_include_pad=False)
    case = Case(series=series, dtype="fp16", leading=(2, 3), extents=(10, 12), pooling=pooling)
    grad, off = run(case)
    assert off.path == ("cube+mul" if series in UNIFIED else "AvgPool3DGrad")
    assert_follows(case, grad, off, pooling)
    assert (off.grad_input[..., -2:, :] == 0).all()
    _, on = run(case, quirks={"A5"})
    assert on.path == "global"
    assert (on.grad_input == (grad / np.float16(120)).astype(np.float16)).all()
    plain = replace(case, pooling=replace(pooling, pad=(0, 0)))
    assert run(plain)[1].path == "global"


@pytest.mark.parametrize("series", SPLIT)
def test_a4_is_met_by_wide_tensors_with_type_1_on_the_cube_only(series):
    over = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1))
    case = Case(series=series, dtype="fp32", leading=(1, 3), extents=(6, 6), pooling=over, cube_math_type=1)
    other = [
        replace(case, dtype="fp16"), replace(case, cube_math_type=0), replace(case, cube_math_type=2),
        replace(case, cube_math_type=3), replace(case, pooling=replace(over, count_include_pad=False)),
    ]  # fmt: skip
    met = [run(each)[1].plan.route.deviations for each in (case, replace(case, dtype="bf16"), *other)]
    assert met == [("A4",), ("A4",), *[()] * 5]


@pytest.mark.parametrize("series", SPLIT)
def test_a4_holds_on_the_cube_where_a5_is_off(series):
    """The library would divide; the Cube route taken instead has the precision it always has."""
    pooling = Pooling(kernel=(10, 10), stride=(20, 20), pad=(2, 2))
    case = Case(series=series, dtype="fp32", leading=(1, 3), extents=(10, 10), pooling=pooling, cube_math_type=1)
    for quirks, compute in (((), "hf32"), (("A4",), "fp16"), (("A2", "A3"), "hf32")):
        grad, r = run(case, quirks=quirks)
        assert (r.path, r.compute_dtype, r.plan.route.deviations) == ("cube", compute, ("A4", "A5"))
        assert_follows(case, grad, r, pooling)
    _, r = run(case, quirks=("A4", "A5"))
    assert (r.path, r.compute_dtype, r.plan.route.deviations) == ("global", "fp16", ("A5",))


@pytest.mark.parametrize("series", UNIFIED)
def test_a3_holds_for_the_matrix_where_a5_is_off(series):
    pooling = Pooling(kernel=(50, 50), stride=(100, 100), pad=(1, 2), count_include_pad=False)
    case = Case(series=series, dtype="fp16", leading=(1, 2), extents=(50, 50), pooling=pooling)
    large = np.full((1, 2, 1, 1), 1000, np.float16)
    for quirks, count in (((), 49 * 48), ("A3", 2048)):
        _, r = run(case, large, quirks=quirks)
        assert (r.path, r.plan.route.deviations) == ("cube+mul", ("A3", "A5"))
        assert r.grad_input.max() == np.float16(1000) * np.float16(1 / count)


@pytest.mark.parametrize("series", UNIFIED)
def test_clipped_windows_count_the_padding_whatever_other_deviation_is_on(series):
    """The last of 4 windows on 6 + 2 positions has 2 positions of a row, one of them padding."""
    pooling = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1), ceil_mode=True)
    case = Case(series=series, dtype="fp16", leading=(2, 3), extents=(6, 6), pooling=pooling)
    grad, r = run(case, quirks=set(DEVIATIONS) - {"A1"})
    assert (r.path, r.plan.route.deviations) == ("cube+mul", ("A1",))
    assert_follows(case, grad, r, pooling)


@pytest.mark.parametrize("series", [*UNIFIED, *SPLIT])
def test_a1_is_about_ceil_mode_only(series):
    """Without it a window beyond the padding is a gradOutput of another shape: what the library computes."""
    pooling = Pooling(kernel=(3, 3), stride=(2, 2))
    case = Case(series=series, dtype="fp16", leading=(1, 2), extents=(8, 8), pooling=pooling)
    grad = np.full((1, 2, 4, 5), 2, np.float16)
    for quirks in ((), ("A1",)):
        _, r = run(case, grad, quirks=quirks, strict_shape=False)
        assert (r.path, r.plan.route.deviations) == ("cube", ())
        expected_sums = input_gradient(grad, (8, 8), replace(pooling, divisor_override=1)) * np.float16(1 / 9)
        np.testing.assert_array_equal(r.grad_input, expected_sums.astype(np.float16))


def test_deviations_are_all_off_by_default_and_shown_in_the_explanation():
    pooling = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1))
    case = Case(series="910b", dtype="fp16", leading=(2, 3), extents=(6, 6), pooling=pooling)
    with recording() as recorder:
        _, r = run(case)
    (explanation,) = recorder.explanations()
    assert deviations_of(explanation) == {}
    assert explanation.facts["call"] == {
        "route": "cube", "why": "one divisor for all windows", "gradOutput": "fp16 2x3x3x3", "cubeMathType": 0,
        "computes in": "fp16", "workspace (bytes)": r.workspace_bytes, "profile": "page", "quirks": "none",
        "deviations met": "none", "deterministic": False,
    }  # fmt: skip
    assert r.workspace_bytes > 0
    with recording() as recorder:
        wide = replace(case, series="910_93", dtype="bf16", cube_math_type=2)
        run(replace(wide, pooling=replace(pooling, ceil_mode=True)), quirks=("A5", "A1"))
        run(wide)
    vector, widened = (found.facts["call"] for found in recorder.explanations())
    expected_facts = ("AvgPool3DGrad", "ceilMode is true", "bf16 2x3x4x4", 2, "fp32", "library", "A1, A5")
    facts = ("route", "why", "gradOutput", "cubeMathType", "computes in", "profile", "quirks")
    assert tuple(vector[fact] for fact in facts) == expected_facts
    assert (widened["computes in"], widened["route"]) == ("fp16", "cube")
    assert explanation.launches == r.plan.calls.launches
    assert [row[1] for row in explanation.tables[0].rows] == [
        "TransData", "MemSet", "TransData", "MemSet", "TransData", "Conv2DBackpropInput", "TransData",
    ]  # fmt: skip
    assert explanation.facts["launched as"] == {"step 5": "Conv3DBackpropInputV2"}
    assert "tiling of step 5, Conv2DBackpropInput" in explanation.facts
    assert explanation.to_plain()


@pytest.mark.parametrize("series", ["310p", "910b"])
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool_gradients_of_another_shape_follow_the_windows_if_asked_to(series, include):
    """Windows stand at o * stride - pad for any o; what lies beyond the input adds nothing."""
    pooling = Pooling(kernel=(4, 3), stride=(2, 1), pad=(2, 1), count_include_pad=include, divisor_override=16)
    x = np.zeros((2, 3, 12, 11), np.float16)
    rng = np.random.default_rng(8)
    for out in ((6, 11), (8, 14), (7, 10), (5, 9)):
        grad = rng.integers(-8, 9, (2, 3, *out)).astype(np.float16)
        case = Case(series=series, dtype="fp16", leading=(2, 3), extents=(12, 11), pooling=pooling)
        r = ops.avg_pool2d_backward(grad, x, **case.arguments, strict_shape=False)
        np.testing.assert_array_equal(
            r.grad_input.astype(np.float64), input_gradient(grad, (12, 11), pooling), str(out)
        )
        if out != (7, 11):
            with pytest.raises(OperatorError, match=r"^gradOutput [HW] must be \d+ \(input"):
                ops.avg_pool2d_backward(grad, x, **case.arguments)


def test_avg_pool_cube_refuses_what_no_convolution_has():
    grad = np.zeros((1, 1, 2, 2), np.float16)
    with pytest.raises(OperatorError, match=r"^gradOutput H must be 5 or more \(input 10, kernel 2"):
        ops.avg_pool2d_backward(grad, np.zeros((1, 1, 10, 10), np.float16), kernel_size=2, strict_shape=False)


def test_avg_pool_wide_divisors_are_cut_to_32_bits_by_the_library_only():
    grad, x = np.ones((1, 2, 2), np.float32), np.zeros((1, 4, 4), np.float32)
    common = {"kernel_size": 2, "divisor_override": 2**32 + 2, "product": "910_93"}
    assert ops.avg_pool2d_backward(grad, x, **common).grad_input.max() == np.float32(1) / np.float32(2**32)
    assert ops.avg_pool2d_backward(grad, x, **common, quirks=True).grad_input.max() == 0.5
    # the sign is bit 31; 0 is no override at all
    for wide, seen in ((2**31, -(2**31)), (-(2**31) - 1, 2**31 - 1), (2**31 - 1, 2**31 - 1), (2**32, 4)):
        r = ops.avg_pool2d_backward(grad, x, **{**common, "divisor_override": wide}, quirks="A1")
        assert (r.grad_input == np.float32(1) / np.float32(seen)).all(), wide


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8, 8), (0, 8, 8)])
@pytest.mark.parametrize("series", ["910", "910b"])
def test_avg_pool_of_nothing_is_empty(shape, series):
    grad = np.zeros((*shape[:-2], 4, 4), np.float32)
    r = ops.avg_pool2d_backward(grad, np.zeros(shape, np.float32), kernel_size=2, product=series)
    assert (r.path, r.grad_input.shape, r.workspace_bytes, r.plan.calls.launches) == ("empty", shape, 0, ())


def test_avg_pool_of_an_empty_grad_output_is_zero():
    np.full((2, 3, 2, 2), 7, np.float32)  # leaves memory that is not zero
    r = ops.avg_pool2d_backward(
        np.zeros((2, 3, 0, 1), np.float32), np.ones((2, 3, 2, 2), np.float32), kernel_size=2, strict_shape=False
    )
    assert r.path == "empty"
    assert (r.grad_input == 0).all()


def test_avg_pool_arguments_in_every_form_mean_the_same():
    rng = np.random.default_rng(3)
    x = np.zeros((2, 3, 8, 8), np.float32)
    grad = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
    first = ops.avg_pool2d_backward(grad, x, kernel_size=2)
    forms = [
        {"kernel_size": (2,), "stride": ()},
        {"kernel_size": [2, 2], "stride": 2, "padding": (0,)},
        {"kernel_size": np.array([2, 2]), "stride": (2, 2), "padding": (0, 0), "divisor_override": None},
        {"kernel_size": 2, "stride": None, "padding": np.int64(0)},
        {"kernel_size": 2, "cube_math_type": "KEEP_DTYPE", "product": "Ascend910B2", "threads": 1},
    ]
    swapped = np.asfortranarray(grad.astype(">f4"))
    for form in forms:
        np.testing.assert_array_equal(ops.avg_pool2d_backward(grad, x, **form).grad_input, first.grad_input)
    np.testing.assert_array_equal(ops.avg_pool2d_backward(swapped, x, kernel_size=2).grad_input, first.grad_input)
    repr_text = (
        "AvgPool2dBackward(grad_input=float32[2, 3, 8, 8], path='cube', compute_dtype='fp32', product='Ascend910B2')"
    )
    assert repr(first) == repr_text
    merged = "TransData, TransData, MemSet, TransData"
    places = f"{merged}, Conv2DBackpropInput (Conv3DBackpropInputV2), TransData"
    summary = f"Ascend910B2: {places}; workspace {first.workspace_bytes} bytes"
    assert str(first.plan) == repr(first.plan) == f"AvgPoolPlan(cube on {summary})"
    assert repr(first.plan.calls) == f"CallPlan({summary})"
    assert first != ops.avg_pool2d_backward(grad, x, kernel_size=2)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"divisor_override": 2**63}, f"divisor_override must be an int of 64 bits, not {2**63}"),
        ({"divisor_override": -(2**63) - 1}, f"divisor_override must be an int of 64 bits, not {-(2**63) - 1}"),
        ({"stride": (1, 2**64)}, f"stride entry must be an int of 64 bits, not {2**64}"),
        ({"kernel_size": 2**63}, f"kernel_size must be an int of 64 bits, not {2**63}"),
        ({"padding": (-(2**70),)}, f"padding entry must be an int of 64 bits, not {-(2**70)}"),
        ({"divisor_override": 1.0}, "divisor_override must be an int, not 1.0"),
        ({"threads": 0}, "threads must be at least 1, not 0"),
    ],
)
def test_avg_pool_numbers_the_interface_does_not_hold_are_refused(more, text):
    grad, x = np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 1, 4, 4), np.float32)
    with pytest.raises(NpuSimError) as caught:
        ops.avg_pool2d_backward(grad, x, **{"kernel_size": 2, "product": "910_93", **more})
    assert (str(caught.value), caught.value.status) == (text, 161002)


@pytest.mark.parametrize("name", ["ceil_mode", "count_include_pad", "strict_shape", "deterministic"])
def test_avg_pool_flags_are_bools_and_nothing_python_takes_for_one(name):
    grad, x = np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 1, 4, 4), np.float32)
    for value in ("no", "", None, 2, -1, 1.0, [True], np.ones(2, bool)):
        with pytest.raises(ShapeError) as caught:
            ops.avg_pool2d_backward(grad, x, kernel_size=2, **{name: value})
        assert (str(caught.value), caught.value.status) == (f"{name} must be a bool, not {shown(value)}", 161002)
    for value in (True, np.True_, 1, np.int8(1), False, np.False_, 0):
        call = ops.avg_pool2d_backward(grad, x, kernel_size=2, **{name: value}).plan.resolved.call
        assert getattr(call, name) is bool(value)


@pytest.mark.parametrize("series", ["910b", "310p"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_avg_pool_infinity_on_the_cube_reaches_its_window_of_the_channels_beside_it(series, bad):
    """Zero times infinity: RULES.md says which windows are lost, and that none is where the Cube saturates."""
    grad = np.ones((1, 40, 2, 2), np.float16)
    grad[0, 19, 0, 1] = bad
    r = ops.avg_pool2d_backward(grad, np.zeros((1, 40, 4, 4), np.float16), kernel_size=2, product=series)
    assert r.path == "cube"
    want = np.full((1, 40, 4, 4), 0.25, np.float16)
    if series == "910b":
        want[0, 16:32, :2, 2:] = np.nan
        want[0, 19, :2, 2:] = bad
    else:
        want[0, 19, :2, 2:] = 65504 / 4 if bad == np.inf else 0
    np.testing.assert_array_equal(r.grad_input, want)


def test_avg_pool_infinity_that_saturates_before_the_cube_stays_in_its_channel():
    one = np.ones((1, 16, 2, 2), np.float32)
    one[0, 3, 0, 0] = np.inf
    x = np.zeros((1, 16, 4, 4), np.float32)
    common = {"kernel_size": 2, "product": "310p", "cube_math_type": 1}
    for more in ({}, {"count_include_pad": False}):
        r = ops.avg_pool2d_backward(one, x, **common, **more)
        assert r.path == ("cube+mul" if more else "cube")
        want = np.full(x.shape, 0.25, np.float32)
        # FP32: the Cast makes 1/4 of infinity the largest number behind a Mul, and infinity itself without one
        want[0, 3, :2, :2] = 65504 if more else 65504 / 4
        np.testing.assert_array_equal(r.grad_input, want)
    half = ops.avg_pool2d_backward(
        one.astype(np.float16), x.astype(np.float16), kernel_size=2, product="310p", count_include_pad=False
    )
    np.testing.assert_array_equal(np.delete(half.grad_input, 3, 1), np.float16(0.25))
    assert (half.grad_input[0, 3, :2, :2] == 65504).all()


def test_avg_pool_repr_names_the_deviations_that_are_active():
    grad, x = np.zeros((1, 1, 3, 3), np.float16), np.zeros((1, 1, 6, 6), np.float16)
    common = {"kernel_size": 3, "stride": 2, "product": "310p"}
    r = ops.avg_pool2d_backward(grad, x, **common, ceil_mode=True, quirks=True)
    assert repr(r) == (
        "AvgPool2dBackward(grad_input=float16[1, 1, 6, 6], path='cube', compute_dtype='fp16', product='Ascend310P3', "
        "quirks=['A1'])"
    )
    assert "Conv2DBackpropInput, TransData" in str(r.plan)


def test_avg_pool_of_nothing_is_explained_without_a_table():
    with recording() as recorder:
        r = ops.avg_pool2d_backward(
            np.zeros((0, 1, 2, 2)).astype(np.float16), np.zeros((0, 1, 4, 4), np.float16), kernel_size=2
        )
    (explanation,) = recorder.explanations()
    assert (explanation.tables, explanation.launches) == ((), ())
    assert (explanation.facts["call"]["route"], explanation.facts["call"]["deviations met"]) == ("empty", "none")
    assert str(r.plan) == "AvgPoolPlan(empty on Ascend910B2: nothing; workspace 0 bytes)"


def test_avg_pool_explanation_gives_shapes_units_and_the_tilings_description():
    with recording() as recorder:
        ops.avg_pool2d_backward(
            np.zeros((2, 3, 4, 5), np.float32),
            np.zeros((2, 3, 8, 10), np.float32),
            kernel_size=2,
            count_include_pad=False,
        )
        ops.avg_pool2d_backward(
            np.zeros((3, 4, 4), np.float16), np.zeros((3, 8, 8), np.float16), kernel_size=2, product="310p"
        )
    vector, windows = recorder.explanations()
    steps = vector.tables[0]
    assert steps.columns == ("step", "kernel", "reads", "writes", "cores", "workspace bytes", "tiling")
    assert [row[2:4] for row in steps.rows] == [
        ("grad_output fp32 NCHW 2x3x4x5", "grad_output fp32 NDHWC 1x1x4x5x6"),
        ("grad_output fp32 NDHWC 1x1x4x5x6", "grad_input fp32 NDHWC 1x1x8x10x6"),
        ("grad_input fp32 NDHWC 1x1x8x10x6", "grad_input fp32 NCHW 2x3x8x10"),
    ]
    described = [
        (name, module) for made in (vector, windows) for key, facts in made.facts.items() if "tiling" in key
        for module, _, name in [str(facts["described by"]).rpartition(".")]
    ]  # fmt: skip
    assert len(described) == 2
    assert "launched as" not in vector.facts | windows.facts
    for name, module in described:
        assert "Attributes" in getattr(import_module(module), name).__doc__
    assert windows.facts["tiling of step 2, Conv2DBackpropInput"]["source"] == "DILATED"


@pytest.mark.parametrize(
    ("out", "shape", "text"),
    [
        ((2, 2), (4, 4), "gradOutput rank must be 3 or 4, not 2 (shape [2, 2])"),
        ((), (1, 4, 4), "gradOutput rank must be 3 or 4, not 0 (shape [])"),
        ((1, 1, 1, 2, 2), (1, 1, 4, 4), "gradOutput rank must be 3 or 4, not 5 (shape [1, 1, 1, 2, 2])"),
        ((1, 2, 2), (4, 4), "gradInput rank must be 3 or 4, not 2 (shape [4, 4])"),
        ((1, 1, 2, 2), (1, 4, 4), "gradInput rank must be 4, as of gradOutput, not 3"),
        ((1, 2, 2), (1, 1, 4, 4), "gradInput rank must be 3, as of gradOutput, not 4"),
    ],
)
def test_avg_pool_arrays_of_other_ranks_are_refused_by_their_rank(out, shape, text):
    with pytest.raises(OperatorError) as caught:
        ops.avg_pool2d_backward(np.zeros(out, np.float32), np.zeros(shape, np.float32), kernel_size=2)
    assert caught.value.status == 161002
    assert str(caught.value).startswith(f"{text} (Ascend910B2, ")


@pytest.mark.parametrize("divisor", [2**63 - 1, -(2**63)])
def test_avg_pool_widest_divisors_are_taken(divisor):
    grad, x = np.ones((1, 2, 2), np.float32), np.zeros((1, 4, 4), np.float32)
    r = ops.avg_pool2d_backward(grad, x, kernel_size=2, divisor_override=divisor, product="910_93")
    assert (r.grad_input == np.float32(1) / np.float32(divisor)).all()


@pytest.mark.parametrize("planes", [0, 1])
def test_avg_pool_overflow_mode_the_product_lacks_is_refused_even_of_nothing(planes):
    grad, x = np.zeros((planes, 2, 2), np.float16), np.zeros((planes, 4, 4), np.float16)
    with pytest.raises(ProductError, match=r"^overflow must be None or one of saturate, not 'inf_nan' \(Ascend910A, "):
        ops.avg_pool2d_backward(grad, x, kernel_size=2, product="910", overflow="inf_nan")


def test_avg_pool_deterministic_call_adds_on_one_core_and_gives_the_same_bits():
    grad = np.random.default_rng(9).standard_normal((2, 3, 4, 4)).astype(np.float16)
    common = {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}
    results = [
        ops.avg_pool2d_backward(grad, np.zeros((2, 3, 7, 7), np.float16), **common, deterministic=wish)
        for wish in (False, True)
    ]
    assert [r.plan.calls.launches[1].core_count for r in results] == [16, 1]
    assert results[0].grad_input.tobytes() == results[1].grad_input.tobytes()


def test_avg_pool_same_bits_on_every_thread_count():
    rng = np.random.default_rng(4)
    x = np.zeros((2, 40, 13, 12), np.float16)
    grad = rng.standard_normal((2, 40, 7, 6)).astype(np.float16)
    for more in ({}, {"count_include_pad": False}):
        results = [
            ops.avg_pool2d_backward(grad, x, kernel_size=3, stride=2, padding=1, threads=t, **more) for t in (1, 2, 5)
        ]
        for other in results[1:]:
            assert other.grad_input.tobytes() == results[0].grad_input.tobytes()


def test_avg_pool_of_more_channels_than_the_cube_takes_runs_on_vector_cores():
    rng = np.random.default_rng(6)
    for channels, path in ((65535, "cube"), (65536, "AvgPool3DGrad")):
        grad = rng.integers(-8, 9, (channels, 1, 1)).astype(np.float16)
        r = ops.avg_pool2d_backward(grad, np.zeros((channels, 2, 2), np.float16), kernel_size=2)
        assert r.path == path
        np.testing.assert_array_equal(r.grad_input, np.broadcast_to(grad / np.float16(4), (channels, 2, 2)))


def test_avg_pool_overflow_follows_the_mode():
    grad = np.full((1, 2, 3, 3), 6e4, np.float16)
    for path, more in (("cube", {}), ("AvgPool3DGrad", {"count_include_pad": False})):
        common = {"kernel_size": 2, "stride": 1, "divisor_override": 1, **more}
        lost = ops.avg_pool2d_backward(grad, np.zeros((1, 2, 4, 4), np.float16), **common)
        kept = ops.avg_pool2d_backward(grad, np.zeros((1, 2, 4, 4), np.float16), **common, overflow="saturate")
        assert lost.path == kept.path == path
        assert np.isinf(lost.grad_input[0, 0, 1, 1])
        assert kept.grad_input[0, 0, 1, 1] == np.float16(65504)
        assert lost.grad_input[0, 0, 0, 0] == kept.grad_input[0, 0, 0, 0] == grad[0, 0, 0, 0]


@pytest.mark.parametrize("series", ["910", "310p"])
def test_avg_pool_global_divides_floats_where_the_cube_could_not(series):
    x, grad = np.zeros((2, 3, 10, 11), np.float32), np.full((2, 3, 1, 1), 1.1, np.float32)
    with pytest.raises(OperatorError, match=r"^cubeMathType must be 1 "):
        ops.avg_pool2d_backward(grad, x, kernel_size=(10, 11), product=series)
    r = ops.avg_pool2d_backward(grad, x, kernel_size=(10, 11), product=series, profile="library")
    assert (r.path, r.compute_dtype) == ("global", "fp32")
    assert (r.grad_input == np.float32(1.1) / np.float32(110)).all()


def test_avg_pool_global_rounds_a_large_area_to_half():
    x, grad = np.zeros((1, 1, 50, 51), np.float16), np.full((1, 1, 1, 1), 2.0, np.float16)
    r = ops.avg_pool2d_backward(grad, x, kernel_size=(50, 51))
    assert r.path == "global"
    assert (r.grad_input == np.float16(2) / np.float16(2550)).all()
    assert (
        ops.avg_pool2d_backward(grad, np.zeros((1, 1, 256, 257), np.float16), kernel_size=(256, 257)).grad_input.max()
        == 0
    )
    big, kernel = np.full((1, 1, 1, 1), 6e4, np.float16), (256, 257)
    r = ops.avg_pool2d_backward(big, np.zeros((1, 1, *kernel), np.float16), kernel_size=kernel, product="910")
    assert (r.grad_input == np.float16(6e4) / np.float16(65504)).all()
