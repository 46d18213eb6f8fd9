"""The way around the rows of the Cube route against the rows themselves, and every route row by row."""

from __future__ import annotations

import numpy as np
import pytest

import ops
from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.products import get_product
from npu_sim.program.verify import verify
from ops.avg_pool.depthwise import KERNEL, adds_tap_by_tap, with_shortcut
from ops.avg_pool.oracle import Pooling
from ops.common.run import run_planned
from perf.avg_pool_cases import DTYPES, Case, random_case

SERIES = ("310p", "910", "910b", "910_93")
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


def compare(case, model=None, seed=3, special=False, **options):
    grad = case.gradient(seed)
    if special:
        grad.reshape(-1)[::7] = np.array([np.inf, -0.0, np.nan, 6.5e4], grad.dtype)[np.arange(grad[..., 0].size) % 4][
            : len(grad.reshape(-1)[::7])
        ]
    x = np.zeros((*case.leading, *case.extents), DTYPES[case.dtype])
    own = model or default_accumulation(get_product(case.series), "fp16")
    r = ops.avg_pool2d_backward(grad, x, **case.arguments, threads=2, accumulation=own)
    np.testing.assert_array_equal(patterns(r), patterns(by_rows(r, grad, own, **options)), str(case))
    return r


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_cube_around_the_rows_has_the_bits_of_the_rows(series):
    for leading, extents, pooling in CASES:
        case = Case(series=series, dtype="fp16", leading=leading, extents=extents, pooling=pooling)
        for model in (None, Accumulation(8, "exact", "rne"), Accumulation(16, "tree", "rne")):
            r = compare(case, model)
            short = with_shortcut(r.plan, ExecuteOptions(accumulation=model or Accumulation(16, "exact", "rne")))
            cube = [step for step in short.steps if step.step.name == KERNEL]
            assert len(cube) == (r.path == "cube")
            assert all(step.kernel.launches[0].shortcut is not None for step in cube)
        compare(case, seed=4, order=1, poison=True)


@pytest.mark.parametrize("series", SERIES)
def test_avg_pool_cube_with_infinities_runs_the_rows(series):
    case = Case(series=series, dtype="fp16", leading=(2, 20), extents=(9, 10), pooling=OVER)
    r = compare(case, special=True)
    if series in ("910b", "910_93"):  # the others clamp and have no infinities
        lost = np.isnan(r.grad_input.astype(np.float32)).mean()
        assert lost > 0.5  # an infinity times the zero weights of its fifteen neighbours


def test_avg_pool_cube_models_that_join_taps_have_no_way_around_the_rows():
    case = Case(series="910b", dtype="fp16", leading=(1, 16), extents=(6, 6), pooling=OVER)
    for group, inner, rounding in ((32, "exact", "rne"), (24, "exact", "rne"), (16, "exact", "rz")):
        model = Accumulation(group, inner, rounding)
        assert not adds_tap_by_tap(model)
        r = compare(case, model)
        assert with_shortcut(r.plan, ExecuteOptions(accumulation=model)) is r.plan.calls
    floats = Case(series="910b", dtype="fp32", leading=(1, 16), extents=(6, 6), pooling=OVER)
    r = compare(floats, default_accumulation(get_product("910b"), "fp32"))
    assert with_shortcut(r.plan, ExecuteOptions(accumulation=Accumulation(8, "exact", "rne"))) is r.plan.calls


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
