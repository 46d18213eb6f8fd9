"""The way around the rows of a call against the rows themselves, and every route row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ops
from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ProductError
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.avg_pool import bulk
from ops.avg_pool.bulk import adds_tap_by_tap, can_run
from ops.avg_pool.plan import plan_call
from ops.avg_pool.rules import check
from ops.common.run import run_planned
from ops.common.tensor_desc import TensorDesc
from tests.cases.avg_pool import DTYPES, Case, random_case
from tests.oracles.pooling import Pooling
from tests.oracles.series import SERIES, SPLIT

OVER = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1))
MEANS = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1), count_include_pad=False)
GLOBAL = Pooling(kernel=(10, 11), stride=(10, 11))
CASES = [
    ((2, 20), (9, 10), OVER),
    ((1, 16), (7, 7), Pooling(kernel=(7, 7), stride=(7, 7))),
    ((3,), (8, 8), Pooling(kernel=(2, 2), stride=(3, 3), pad=(1, 1))),
    ((1, 33), (6, 5), Pooling(kernel=(1, 1), stride=(2, 2), divisor_override=-3)),
    ((2, 5), (12, 9), Pooling(kernel=(4, 2), stride=(1, 1), pad=(2, 1))),
]


def patterns(result):
    code = result.grad_input.view(np.dtype(f"u{result.grad_input.dtype.itemsize}"))
    return np.where(np.isnan(result.grad_input.astype(np.float64)), code.dtype.type(0x7FC0), code)


def by_rows(r, grad, model, **options):
    """Run a call again without any shortcut; return a result like the first."""
    out = np.empty_like(r.grad_input)
    descs = {name: r.plan.resolved.desc(name) for name in r.plan.arguments}
    tensors = {"grad_output": grad.reshape(-1), "grad_input": out.reshape(-1)}
    settings = ExecuteOptions(accumulation=model, shortcuts=False, threads=2, **options)
    run_planned(r.plan.calls, r.plan.arguments, descs, tensors, settings, r.plan.constants)
    return type(r)(grad_input=out, path=r.path, compute_dtype=r.compute_dtype, plan=r.plan)


def compare(case, model=None, seed=3, special=False, grad=None, overflow=None, **options):
    """Run a call and its rows; return the former."""
    grad = case.gradient(seed) if grad is None else grad
    if special:
        chosen = grad.reshape(-1)[::7]
        chosen[...] = np.resize(np.array([np.inf, -0.0, np.nan, 6.5e4], grad.dtype), chosen.size)
    x = np.zeros((*case.leading, *case.extents), DTYPES[case.dtype])
    r = ops.avg_pool2d_backward(grad, x, **case.arguments, threads=2, accumulation=model, overflow=overflow)
    own = model or default_accumulation(r.product, r.plan.resolved.cube_dtype)
    rows = by_rows(r, grad, own, overflow=overflow, **options)
    np.testing.assert_array_equal(patterns(r), patterns(rows), str(case))
    return r


def in_bulk(r, model):
    """Whether a call goes around its rows, as far as its arguments tell."""
    return can_run(r.plan.resolved, ExecuteOptions(accumulation=model))


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_in_bulk_has_the_bits_of_the_rows(series):
    for leading, extents, pooling in CASES:
        case = Case(series=series, dtype="fp16", leading=leading, extents=extents, pooling=pooling)
        for model in (None, Accumulation(8, "exact", "rne"), Accumulation(16, "tree", "rne")):
            r = compare(case, model)
            assert in_bulk(r, model or default_accumulation(r.product, "fp16")) is (r.path != "global")
        compare(case, seed=4, order=1, poison=True)


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_in_bulk_has_the_bits_of_the_rows_on_random_calls(series):
    """Every type, mode and route; infinities, NaN and numbers beyond FP16; both overflow modes."""
    rng = np.random.default_rng([SERIES.index(series), 21])
    product = get_product(series)
    seen = set()
    for number in range(40):
        case = random_case(rng, series)
        grad = case.gradient(number)
        if number % 3 == 1 and case.dtype != "fp16":
            grad *= np.array(4e4, grad.dtype)
        overflow = product.overflow_modes[number % len(product.overflow_modes)]
        r = compare(case, seed=number, special=number % 3 == 0, grad=grad, overflow=overflow)
        seen.add((r.path, case.dtype))
    assert {path for path, _ in seen} >= {"cube", "AvgPool3DGrad" if product.core.is_split else "cube+mul"}
    assert {dtype for _, dtype in seen} == ({"fp32", "fp16", "bf16"} if product.core.is_split else {"fp32", "fp16"})


@pytest.mark.parametrize(("extents", "pooling"), [
    ((40, 30), Pooling(kernel=(5, 4), stride=(3, 2), pad=(2, 1), ceil_mode=True)),  # several stretches of rows
    ((3, 300), Pooling(kernel=(2, 3), stride=(1, 2), pad=(1, 1))),  # a row longer than a stretch
    ((1, 1), Pooling(kernel=(1, 1), stride=(1, 1))),
    ((20, 21), Pooling(kernel=(3, 3), stride=(5, 2), pad=(1, 0))),  # rows under no window, columns under two
    ((13, 9), Pooling(kernel=(2, 9), stride=(3, 9))),  # windows as wide as the plane, gaps between them
    ((70, 80), Pooling(kernel=(1, 1), stride=(1, 1))),  # more windows than are scaled at a time
])  # fmt: skip
def test_avg_pool_in_bulk_cuts_planes_without_a_trace(extents, pooling):
    for series, dtype, include, mode in (
        ("910b", "fp16", True, 0), ("910b", "bf16", False, 0), ("910_93", "fp32", False, 0), ("910b", "bf16", True, 2),
        ("910b", "fp32", True, 2), ("310p", "fp32", False, 2),
    ):  # fmt: skip
        pool = replace(pooling, count_include_pad=include)
        case = Case(series=series, dtype=dtype, leading=(1, 35), extents=extents, pooling=pool, cube_math_type=mode)
        alone = compare(case, seed=5)
        grad = case.gradient(5)
        x = np.zeros((*case.leading, *case.extents), DTYPES[case.dtype])
        for threads in (1, 3):
            r = ops.avg_pool2d_backward(grad, x, **case.arguments, threads=threads)
            assert r.grad_input.tobytes() == alone.grad_input.tobytes()


def test_avg_pool_in_bulk_shares_large_calls_among_threads(monkeypatch):
    """Every part writes its planes, whatever the number of threads."""
    monkeypatch.setattr(bulk, "_WORK_PER_THREAD", 1)
    for pooling in (OVER, CASES[1][2]):
        case = Case(series="910b", dtype="fp16", leading=(2, 20), extents=(7, 7), pooling=pooling)
        grad, x = case.gradient(8), np.zeros((2, 20, 7, 7), np.float16)
        results = {
            ops.avg_pool2d_backward(grad, x, **case.arguments, threads=threads).grad_input.tobytes()
            for threads in (1, 2, 3, 64)
        }
        assert len(results) == 1


def strided(array, wide):
    """The descriptor of every second element of rows of ``wide``, and such a storage that holds ``array``."""
    shape = (*array.shape[:-1], wide)
    storage = np.full(shape, 77, array.dtype)
    storage[..., 1 : 1 + 2 * array.shape[-1] : 2] = array
    strides = tuple(stride // array.itemsize for stride in storage.strides)
    desc = TensorDesc(
        shape=array.shape, dtype="fp16", format="NCHW", strides=(*strides[:-1], 2), offset=1, storage_elems=storage.size
    )
    return desc, storage.reshape(-1)


@pytest.mark.parametrize("include", [True, False])
def test_avg_pool_in_bulk_reads_and_writes_through_views(include):
    case = Case(
        series="910b", dtype="fp16", leading=(2, 5), extents=(9, 10), pooling=replace(OVER, count_include_pad=include)
    )
    grad = case.gradient(6)
    x = np.zeros((2, 5, 9, 10), np.float16)
    r = ops.avg_pool2d_backward(grad, x, **case.arguments)
    source, source_storage = strided(grad, 13)
    target, target_storage = strided(x, 23)
    call = replace(r.plan.resolved.call, grad_output=source, grad_input=target)
    plan = plan_call(check(call))
    options = ExecuteOptions(accumulation=default_accumulation(r.product, "fp16"))
    assert can_run(plan.resolved, options)
    before, expected = source_storage.copy(), target_storage.copy()
    plan.run({"grad_output": source_storage, "grad_input": target_storage}, options)
    np.testing.assert_array_equal(source_storage, before)
    target.view(expected)[...] = r.grad_input
    assert target_storage.tobytes() == expected.tobytes()


@pytest.mark.parametrize("pooling", [
    Pooling(kernel=(2, 2), stride=(2, 2)),
    Pooling(kernel=(2, 2), stride=(2, 3), pad=(1, 0), count_include_pad=False),
    Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
    Pooling(kernel=(3, 2), stride=(1, 1), count_include_pad=False),
])  # fmt: skip
@pytest.mark.parametrize("series", ["910", "910b"])
def test_avg_pool_in_bulk_windows_behind_the_input_write_nothing(series, pooling):
    """A gradOutput with more windows than the forward output, and what lies behind the result in memory."""
    case = Case(series=series, dtype="fp16", leading=(2, 17), extents=(6, 7), pooling=pooling)
    for more in ((2, 0), (0, 2), (3, 1)):
        out = tuple(extent + extra for extent, extra in zip(case.out, more, strict=True))
        grad = np.random.default_rng(more).standard_normal((2, 17, *out)).astype(np.float16)
        r = ops.avg_pool2d_backward(grad, np.zeros((2, 17, 6, 7), np.float16), **case.arguments, strict_shape=False)
        model = default_accumulation(r.product, "fp16")
        assert in_bulk(r, model)
        np.testing.assert_array_equal(patterns(r), patterns(by_rows(r, grad, model)))
        call = r.plan.resolved.call
        target = replace(call.grad_input, storage_elems=r.grad_input.size + 64)
        plan = plan_call(check(replace(call, grad_input=target)))
        storage = np.full(r.grad_input.size + 64, 77, np.float16)
        plan.run({"grad_output": grad.reshape(-1), "grad_input": storage}, ExecuteOptions(accumulation=model))
        assert storage[:-64].tobytes() == r.grad_input.tobytes()
        assert (storage[-64:] == 77).all()


@pytest.mark.parametrize(("channels", "pooling"), [
    (3, Pooling(kernel=(1, 1), stride=(2, 2))),  # much larger than gradOutput
    (40, Pooling(kernel=(2, 2), stride=(1, 1))),  # written before the last planes are read
    (600, Pooling(kernel=(2, 2), stride=(2, 2))),
])  # fmt: skip
def test_avg_pool_in_bulk_may_write_over_grad_output(channels, pooling):
    """The gradient shares its memory with gradOutput."""
    case = Case(series="910b", dtype="fp16", leading=(1, channels), extents=(6, 6), pooling=pooling)
    grad = case.gradient(1)
    r = ops.avg_pool2d_backward(grad, np.zeros((1, channels, 6, 6), np.float16), **case.arguments)
    storage = np.zeros(36 * channels, np.float16)
    storage[5 : 5 + grad.size] = grad.reshape(-1)
    source = replace(r.plan.resolved.call.grad_output, offset=5, storage_elems=storage.size)
    plan = plan_call(check(replace(r.plan.resolved.call, grad_output=source)))
    options = ExecuteOptions(accumulation=default_accumulation(r.product, "fp16"))
    plan.run({"grad_output": storage, "grad_input": storage}, options)
    assert storage.tobytes() == r.grad_input.tobytes()


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_cube_with_infinities_runs_the_rows(series):
    case = Case(series=series, dtype="fp16", leading=(2, 20), extents=(9, 10), pooling=OVER)
    r = compare(case, special=True)
    if series in SPLIT:  # the others clamp and have no infinities
        lost = np.isnan(r.grad_input.astype(np.float32)).mean()
        assert lost > 0.5  # an infinity times the zero weights of its fifteen neighbours


@pytest.mark.parametrize("series", SPLIT)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_avg_pool_cube_with_numbers_beyond_half_runs_the_rows(series, dtype):
    """They become infinities on the way to the Cube; where FP16 saturates they do not."""
    case = Case(series=series, dtype=dtype, leading=(2, 20), extents=(9, 10), pooling=OVER, cube_math_type=2)
    grad = case.gradient(5)
    grad[0, 3, 2, 2] = 1e6
    lost = np.isnan(compare(case, grad=grad).grad_input.astype(np.float32))
    assert lost[0, :16, 3, 3].sum() == 15
    assert not lost[0, 16:].any()
    kept = compare(case, grad=grad, overflow="saturate").grad_input.astype(np.float32)
    assert np.isfinite(kept).all()


def test_avg_pool_cube_models_that_join_taps_have_no_way_around_the_rows():
    case = Case(series="910b", dtype="fp16", leading=(1, 16), extents=(6, 6), pooling=OVER)
    others = ((32, "exact", "rne"), (24, "exact", "rne"), (12, "exact", "rne"), (3, "tree", "rne"), (16, "exact", "rz"))
    for group, inner, rounding in others:
        model = Accumulation(group, inner, rounding)
        assert not adds_tap_by_tap(model)
        assert not in_bulk(compare(case, model), model)
    floats = Case(series="910b", dtype="fp32", leading=(1, 16), extents=(6, 6), pooling=OVER)
    r = compare(floats, default_accumulation(get_product("910b"), "fp32"))
    assert not in_bulk(r, Accumulation(8, "exact", "rne"))


@pytest.mark.parametrize(
    ("series", "pooling", "path"),
    [("910b", OVER, "cube"), ("910", OVER, "cube"), ("910", MEANS, "cube+mul"), ("910_93", MEANS, "AvgPool3DGrad")],
)
def test_avg_pool_in_bulk_never_touches_the_rows(monkeypatch, series, pooling, path):
    def rows(*arguments):
        raise AssertionError("rows ran")

    monkeypatch.setattr("ops.common.plan.run_planned", rows)
    case = Case(series=series, dtype="fp16", leading=(1, 16), extents=(6, 6), pooling=pooling)
    grad, x = case.gradient(2), np.zeros((1, 16, 6, 6), np.float16)
    assert ops.avg_pool2d_backward(grad, x, **case.arguments).path == path
    grad[0, 0, 0, 0] = np.inf
    if path == "AvgPool3DGrad":
        ops.avg_pool2d_backward(grad, x, **case.arguments)
    else:
        with pytest.raises(AssertionError, match=r"^rows ran$"):
            ops.avg_pool2d_backward(grad, x, **case.arguments)


def test_avg_pool_that_asks_for_rows_gets_them():
    case = Case(series="910b", dtype="fp16", leading=(1, 16), extents=(6, 6), pooling=OVER)
    r = compare(case)
    model = default_accumulation(r.product, "fp16")
    assert in_bulk(r, model)
    for wish in ({"shortcuts": False}, {"order": "late"}, {"order": 3}, {"poison": True}):
        assert not can_run(r.plan.resolved, ExecuteOptions(accumulation=model, **wish))


@pytest.mark.parametrize(("series", "pooling", "path"), [("910b", OVER, "cube"), ("910_93", MEANS, "AvgPool3DGrad")])
def test_avg_pool_runs_its_rows_in_an_order_of_cores_only_where_cores_add(series, pooling, path):
    r = compare(Case(series=series, dtype="fp16", leading=(1, 16), extents=(6, 6), pooling=pooling))
    assert r.path == path
    options = ExecuteOptions(accumulation=default_accumulation(r.product, "fp16"), core_order=1)
    assert can_run(r.plan.resolved, options) == (path == "cube")


def test_avg_pool_in_bulk_refuses_an_overflow_mode_the_product_lacks_and_writes_nothing():
    case = Case(series="910", dtype="fp16", leading=(1, 16), extents=(6, 6), pooling=OVER)
    r = compare(case)
    out = np.full(r.grad_input.size, 5, np.float16)
    options = ExecuteOptions(accumulation=default_accumulation(r.product, "fp16"), overflow="inf_nan")
    with pytest.raises(ProductError, match=r"^overflow must be one of saturate, not inf_nan \(Ascend910A, "):
        r.plan.run({"grad_output": case.gradient(1).reshape(-1), "grad_input": out}, options)
    assert set(out.tolist()) == {5.0}


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_every_route_is_sound_and_its_rows_give_the_result(series):
    """No hazard over the whole call, only rows its cores have, time passes, poisoned buffers and late rows as well."""
    rng = np.random.default_rng([SERIES.index(series), 9])
    product = get_product(series)
    poolings = (((9, 10), OVER), ((9, 10), MEANS), ((10, 11), GLOBAL))
    cases = [Case(series=series, dtype="fp16", leading=(2, 20), extents=e, pooling=p) for e, p in poolings]
    cases += [random_case(rng, series) for _ in range(4)]
    seen = set()
    for number, case in enumerate(cases):
        r = compare(case, order=("late", 1, 2)[number % 3], poison=True)
        launches = r.plan.calls.launches
        assert run_hazards(launches, product) == []
        for launch in launches:
            assert run_timeline(launch, product).total_cycles > 0
            for phase in range(launch.phase_count):
                rows = emit_rows(launch, launch.core_count - 1, phase)
                assert verify(rows, product, core_kind=launch.core_kind) == []
        seen.add(r.path)
    assert seen == {"cube", "global", "AvgPool3DGrad" if product.core.is_split else "cube+mul"}
