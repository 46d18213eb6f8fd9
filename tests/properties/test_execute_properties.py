"""The execute engine: the same bits for every thread count, chunk length, legal order and initial content."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL, default_accumulation
from npu_sim.engines import execute_turns as engine
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows
from npu_sim.errors import ProductError, ProgramError, ShapeError
from npu_sim.isa.op import Op, Pipe
from npu_sim.products import get_product
from tests.cases.weight_gradient import SERIES, plan_of, random_case, random_tiling, run_plan

SETTINGS = [
    *itertools.product((1, 2, 3), (1, 64, 4096), ("program",), (False, True)),
    *itertools.product((1, 3), (1, 4096), ("late", 0, 1, 2, 3), (True,)),
]


def many_core_plan(series, seed):
    """A plan whose cores add to the same elements, so that the order of the additions shows in the last bits."""
    rng = np.random.default_rng(seed)
    while True:
        case = random_case(rng, series=series, most_macs=60_000)
        if min(case.dy_shape[0], case.geometry.ho) < 3 or case.geometry.spatial_rank != 2:
            continue
        plan = random_tiling(rng, plan_of(case))
        adds = plan.product.core.is_split or plan.tiling.batch_parts > 1
        if plan.launches[-1].core_count >= 5 and adds:
            return rng, case, plan


def with_cores_in(plan, order):
    """Return ``plan`` with its kernel's cores renumbered: core i of a phase does what ``order(phase)[i]`` did."""
    kernel = plan.launches[-1]

    def renumbered(rows, params, core, phase):
        return kernel.rows(order(phase)[core], phase, rows)

    return replace(plan, launches=(*plan.launches[:-1], replace(kernel, kernel=renumbered)))


@pytest.mark.parametrize("series", SERIES)
def test_bits_depend_on_no_setting_of_the_engine(series):
    for seed in range(2):
        rng, case, plan = many_core_plan(series, [SERIES.index(series), seed])
        # values far apart, so that another order of additions would round differently
        x, dy = (
            (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 9, shape)).astype(np.float32)
            for shape in (case.x_shape, case.dy_shape)
        )
        model = default_accumulation(plan.product, plan.compute_dtype)
        reference = run_plan(plan, x, dy, ExecuteOptions(accumulation=model))
        for threads, chunk_rows, order, poison in SETTINGS:
            options = ExecuteOptions(
                accumulation=model, threads=threads, chunk_rows=chunk_rows, order=order, poison=poison
            )
            got = run_plan(plan, x, dy, options)
            np.testing.assert_array_equal(got.view(np.uint32), reference.view(np.uint32), str(options))


@pytest.mark.parametrize("series", ["910b", "310p"])
def test_order_of_the_cores_would_show_in_the_bits(series):
    # Without this the test above could pass on sums that do not depend on their order.
    rng, case, plan = many_core_plan(series, [SERIES.index(series), 0])
    x, dy = (
        (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 9, shape)).astype(np.float32)
        for shape in (case.x_shape, case.dy_shape)
    )
    options = ExecuteOptions(accumulation=default_accumulation(plan.product, plan.compute_dtype))
    forward = run_plan(plan, x, dy, options)
    other = with_cores_in(plan, lambda phase: list(reversed(range(plan.launches[-1].core_count))))
    assert not np.array_equal(run_plan(other, x, dy, options), forward)


@pytest.mark.parametrize("series", SERIES)
def test_core_order_is_the_order_in_which_one_thread_would_run_the_cores(series):
    rng, case, plan = many_core_plan(series, [SERIES.index(series), 0])
    x, dy = (
        (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 9, shape)).astype(np.float32)
        for shape in (case.x_shape, case.dy_shape)
    )
    options = ExecuteOptions(accumulation=default_accumulation(plan.product, plan.compute_dtype))
    count = plan.launches[-1].core_count
    seen = {run_plan(plan, x, dy, options).tobytes()}
    for seed in range(4):
        naive = with_cores_in(plan, lambda phase, seed=seed: engine.core_sequence(count, phase, seed))
        want = run_plan(naive, x, dy, options)
        for threads, chunk_rows, order in ((1, 4096, "program"), (2, 64, "late"), (3, 1, "program"), (3, 64, seed)):
            changed = replace(options, core_order=seed, threads=threads, chunk_rows=chunk_rows, order=order)
            got = run_plan(plan, x, dy, changed)
            np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32), str(changed))
        seen.add(want.tobytes())
    assert len(seen) > 1, "sums that do not depend on their order prove nothing"


@pytest.mark.parametrize("series", SERIES)
def test_core_order_changes_nothing_where_each_element_has_one_writer(series):
    rng = np.random.default_rng([SERIES.index(series), 5])
    made = 0
    while made < 2:
        case = random_case(rng, series=series, most_macs=60_000)
        if case.geometry.spatial_rank == 3:
            continue
        plan = plan_of(case)
        tiling = plan.tiling
        parts = tiling.batch_items * tiling.k_count if plan.product.core.is_split else tiling.batch_parts
        if plan.launches[-1].core_count == 1 or parts > 1:
            continue
        made += 1
        x, dy = (rng.standard_normal(shape).astype(np.float32) for shape in (case.x_shape, case.dy_shape))
        options = ExecuteOptions(accumulation=default_accumulation(plan.product, plan.compute_dtype))
        want = run_plan(plan, x, dy, options)
        for seed in range(3):
            np.testing.assert_array_equal(run_plan(plan, x, dy, replace(options, core_order=seed)), want)


def test_core_order_by_seed_is_the_same_on_every_host():
    assert engine.core_sequence(5, 1, None) == [0, 1, 2, 3, 4]
    assert engine.core_sequence(6, 0, 0) == [3, 2, 1, 0, 4, 5]
    assert engine.core_sequence(6, 1, 0) == [4, 5, 1, 2, 0, 3]
    assert engine.core_sequence(6, 0, 2**63 - 1) == [0, 3, 1, 4, 5, 2]


def test_core_that_runs_ahead_waits_instead_of_logging_too_much(monkeypatch):
    rng, case, plan = many_core_plan("910b", [2, 1])
    x, dy = (rng.standard_normal(shape).astype(np.float32) for shape in (case.x_shape, case.dy_shape))
    options = ExecuteOptions(accumulation=SERIAL, chunk_rows=1)
    reference = run_plan(plan, x, dy, options)
    waited = threading.Event()
    wait = engine.Turns.wait

    def counted(self, core):
        waited.set()
        wait(self, core)

    monkeypatch.setattr(engine, "_LOG_LIMIT_BYTES", 256)
    monkeypatch.setattr(engine.Turns, "wait", counted)
    # the core whose turn it is, on whichever thread, is held until a later one had to wait for it
    is_turn = engine.Turns.is_turn

    def slow(self, place):
        has_turn = is_turn(self, place)
        if has_turn and not waited.is_set():
            waited.wait(0.05)
        return has_turn

    monkeypatch.setattr(engine.Turns, "is_turn", slow)
    got = run_plan(plan, x, dy, replace(options, threads=3))
    assert waited.is_set()
    np.testing.assert_array_equal(got.view(np.uint32), reference.view(np.uint32))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bad_core", [0, 2, 4])
def test_row_without_semantics_ends_the_launch_with_one_error(threads, bad_core):
    _, _, plan = many_core_plan("910b", [2, 0])
    kernel = plan.launches[-1]

    def spoiled(rows, params, core, phase):
        for count in kernel.rows(core, phase, rows):
            if core == bad_core and phase == 1:
                rows["op"][0] = 250
            yield count

    message = (
        rf"^Unsupported core {bad_core} row 0 \w+ +Op<250> must have modelled element types and lie inside the "
        r"buffers \(Conv3DBackpropFilterV2\)$"
    )
    plan.gm.arena[:] = 0
    with pytest.raises(ProgramError, match=message):
        execute(replace(kernel, kernel=spoiled), plan.product, ExecuteOptions(accumulation=SERIAL, threads=threads))


def test_phase_begins_when_every_core_has_finished_the_one_before():
    _, _, plan = many_core_plan("910b", [2, 0])
    kernel = plan.launches[-1]
    seen = []

    def watched(rows, params, core, phase):
        seen.append((phase, core))
        for count in kernel.rows(core, phase, rows):
            seen.append((phase, core))
            yield count

    plan.gm.arena[:] = 0
    execute(replace(kernel, kernel=watched), plan.product, ExecuteOptions(accumulation=SERIAL, threads=3))
    phases = [phase for phase, _ in seen]
    assert phases == sorted(phases)
    assert set(seen) == {(phase, core) for phase in range(2) for core in range(kernel.core_count)}


def test_missing_wait_changes_the_result_in_some_order():
    # The point of the orders: a race that program order hides.
    _, case, plan = many_core_plan("910b", [2, 0])
    kernel = plan.launches[-1]
    programs = [[emit_rows(kernel, core, phase) for core in range(kernel.core_count)] for phase in range(2)]
    kept = [
        [
            rows[~((rows["op"] == Op.WAIT_FLAG) & (rows["pipe"] == Pipe.M) & (rows["peer"] == Pipe.MTE1))]
            for rows in cores
        ]
        for cores in programs
    ]

    def replay(buffer, params, core, phase):
        rows = kept[phase][core]
        for first in range(0, len(rows), len(buffer)):
            part = rows[first : first + len(buffer)]
            buffer[: len(part)] = part
            yield len(part)

    racy = replace(plan, launches=(replace(kernel, kernel=replay),))
    rng = np.random.default_rng(0)
    x, dy = (rng.integers(-4, 5, shape).astype(np.float32) for shape in (case.x_shape, case.dy_shape))
    options = ExecuteOptions(accumulation=default_accumulation(plan.product, plan.compute_dtype), poison=True)
    right = run_plan(plan, x, dy, options)
    assert np.array_equal(run_plan(racy, x, dy, options), right)
    assert not np.array_equal(run_plan(racy, x, dy, replace(options, order="late")), right)


def test_options_out_of_range_are_refused():
    with pytest.raises(ShapeError, match=r"^threads must be at least 1, not 0$"):
        ExecuteOptions(accumulation=SERIAL, threads=0)
    with pytest.raises(ShapeError, match=r"^chunk_rows must be at least 1, not -1$"):
        ExecuteOptions(accumulation=SERIAL, chunk_rows=-1)
    for name, value, rule in (
        ("accumulation", "serial", "an Accumulation"),
        ("threads", "a", "an int"),
        ("chunk_rows", 2.5, "an int"),
        ("order", "later", "one of program, late"),
        ("order", None, "an int"),
        ("hf32_ties", "up", "one of even, away, toward_zero"),
        ("core_order", "random", "an int"),
        ("core_order", -1, "None or a seed of 0 or more"),
    ):
        with pytest.raises(ShapeError, match=rf"^{name} must be {rule}, not {value!r}$"):
            ExecuteOptions(**{"accumulation": SERIAL, name: value})
    _, _, plan = many_core_plan("910", [1, 0])
    message = r"^overflow must be one of saturate, not inf_nan \(Ascend910A, Atlas training series\)$"
    with pytest.raises(ProductError, match=message):
        execute(plan.launches[0], get_product("910"), ExecuteOptions(accumulation=SERIAL, overflow="inf_nan"))
