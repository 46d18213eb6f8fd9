"""Low, expected and high time: what moves, how it adds up, and what it costs."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from math import exp, hypot, log

import numpy as np
import pytest

import ops
from npu_sim.engines.intervals import FASTER, LaunchBounds, bound_launch, core_interval, task_interval
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineResult
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Pipe, Space
from npu_sim.products import get_product, list_series
from npu_sim.products.cost import NUMBERS
from npu_sim.products.uncertainty import SPREADS, moves, optimistic, pessimistic
from tests.unit.small_launches import launch_of

A2 = get_product("910b")


def _copies(core, phase):
    return [
        lambda r, n: emit.emit_data_copy(r, n, Space.L1, 0, Space.GM, 0, 1, 512, 0, 0, Data.FP16, 0, 0, 0)
        for _ in range(50)
    ]


def _call(product="910b"):
    arrays = [np.ones(shape, np.float16) for shape in ((2, 40, 9, 9), (2, 24, 9, 9), (40, 24, 3, 3))]
    return ops.convolution_backward(*arrays, stride=1, padding=1, dilation=1, product=product).plan.calls.launches


@pytest.mark.parametrize("series", list_series())
def test_numbers_move_by_the_confidence_of_their_source(series):
    cost = get_product(series).cost
    low, high = optimistic(cost), pessimistic(cost)
    seen = set()
    for name in NUMBERS:
        value, fast, slow = (getattr(params, name) for params in (cost, low, high))
        spread = SPREADS[cost.sources[name].confidence]
        if not moves(name) or not value:
            assert value == fast == slow
            continue
        if name.startswith("unknown_"):
            assert (fast, slow) == (1, 1000)
            continue
        is_rate = "_per_cycle" in name or "_per_microsecond" in name
        assert (fast >= value >= slow) if is_rate else (fast <= value <= slow), name
        if value > 1000:
            assert fast == pytest.approx(value * exp(spread if is_rate else -spread), abs=1)
            assert slow == pytest.approx(value * exp(-spread if is_rate else spread), abs=1)
            seen.add(spread)
    assert len(seen) >= 2


def test_what_a_user_gives_does_not_move():
    mine = replace(A2.cost, l2_total_bytes_per_microsecond=5_000_000)
    assert optimistic(mine).l2_total_bytes_per_microsecond == 5_000_000
    assert pessimistic(mine).l2_total_bytes_per_microsecond == 5_000_000


def test_bounds_are_the_times_of_three_parameter_sets():
    for launch in _call():
        bounds = bound_launch(launch, A2)
        assert bounds.expected == run_timeline(launch, A2)
        for time, moved in ((bounds.optimistic, optimistic), (bounds.pessimistic, pessimistic)):
            whole = run_timeline(launch, replace(A2, cost=moved(A2.cost)))
            assert (time.total_cycles, time.seconds()) == (whole.total_cycles, whole.seconds())
            assert time.task_seconds() == whole.task_seconds()
        assert bounds.optimistic.total_cycles <= bounds.expected.total_cycles <= bounds.pessimistic.total_cycles


def test_bounds_take_the_rows_of_the_slowest_core_twice_more():
    emitted = []

    def program(core, phase):
        emitted.append(core)
        return _copies(core, phase)[: 1 + 6 * (core % 8)]

    launch = launch_of(program, cores=16, gm_bytes=1 << 20)
    run_timeline(launch, A2)
    once = len(emitted)
    emitted.clear()
    bounds = bound_launch(launch, A2)
    assert len(emitted) == once + 2
    assert emitted[-2:] == [7, 7]
    for time, moved in ((bounds.optimistic, optimistic), (bounds.pessimistic, pessimistic)):
        assert time.total_cycles == run_timeline(launch, replace(A2, cost=moved(A2.cost))).total_cycles


def test_cores_that_keep_their_flags_are_all_timed_with_moved_parameters():
    def program(core, phase):
        flag = emit.emit_wait_flag if phase else emit.emit_set_flag
        copies = _copies(core, phase)[: 4 + 8 * (core ^ phase)]
        return [*copies, lambda r, n: flag(r, n, Pipe.MTE2, Pipe.MTE1, 0, 0, 0)]

    launch = replace(launch_of(program, cores=2, gm_bytes=1 << 20), phase_count=2, trusted=False)
    assert launch.keeps_cores
    bounds = bound_launch(launch, A2)
    whole = run_timeline(launch, replace(A2, cost=pessimistic(A2.cost)))
    assert bounds.pessimistic.total_cycles == whole.total_cycles


def test_timing_keeps_no_rows():
    """Buffers of rows that were not given back were a third of the memory that networks took."""
    launch = _call()[0]
    bound_launch(launch, A2)
    tracemalloc.start()
    try:
        for _ in range(20):
            bound_launch(launch, A2)
        assert tracemalloc.get_traced_memory()[0] < 256 << 10
    finally:
        tracemalloc.stop()


def test_copies_hang_on_what_moves_them():
    launch = launch_of(_copies, gm_bytes=1 << 20)
    bounds = bound_launch(launch, A2)
    # 50 copies of 16 KiB: rate and fixed time are M, which is 0.10
    down = log(bounds.expected.total_cycles / bounds.optimistic.total_cycles)
    assert down == pytest.approx(0.10, abs=0.01)
    interval = core_interval([bounds])
    error = A2.cost.kernel_model_error_permille / 1000
    assert interval.seconds == bounds.expected.seconds()
    assert interval.low_seconds == pytest.approx(interval.seconds * exp(-hypot(down, FASTER * error)))
    assert interval.width == interval.high_seconds / interval.low_seconds


def _bounds(seconds, down, up, error, template):
    """Return bounds of invented times."""

    def result(factor):
        return replace(template, total_cycles=round(seconds * factor * template.clock_hz), launch_nanoseconds=0)

    return LaunchBounds(
        optimistic=result(exp(-down)), expected=result(1), pessimistic=result(exp(up)), kernel="copies",
        model_error=error, is_calibrated=True,
    )  # fmt: skip


def test_doubts_widen_the_interval_by_their_squares():
    launch = launch_of(_copies, gm_bytes=1 << 20)
    plain = bound_launch(launch, A2)
    cost = A2.cost
    for doubts in (("short_k",), ("ragged_rows",), ("short_k", "ragged_rows")):
        unsure = bound_launch(replace(launch, doubts=doubts), A2)
        assert unsure.expected.seconds() == plain.expected.seconds()
        wanted = sum((getattr(cost, f"{name}_model_error_permille") / 1000) ** 2 for name in doubts)
        assert unsure.model_error**2 - plain.model_error**2 == pytest.approx(wanted)
        assert unsure.is_calibrated == plain.is_calibrated


def test_errors_of_launches_of_one_kernel_add_up_and_of_others_their_squares_do():
    template: TimelineResult = run_timeline(launch_of(_copies, gm_bytes=1 << 20), A2)
    one = _bounds(1e-3, 0.1, 0.2, 0.3, template)
    same = task_interval([one, one])
    assert same.seconds == pytest.approx(2e-3)
    assert log(same.seconds / same.low_seconds) == pytest.approx(hypot(0.1, 0.3 * FASTER), rel=1e-4)
    assert log(same.high_seconds / same.seconds) == pytest.approx(hypot(0.2, 0.3), rel=1e-4)
    worse = _bounds(1e-3, 0.1, 0.2, 0.5, template)
    both = task_interval([one, worse])
    assert log(both.high_seconds / both.seconds) == pytest.approx(hypot(0.2, 0.4), rel=1e-4)
    apart = task_interval([one, replace(worse, kernel="another")])
    assert log(apart.high_seconds / apart.seconds) == pytest.approx(hypot(0.2, 0.15, 0.25), rel=1e-4)


def test_kernel_of_a_launch_is_what_writes_its_rows():
    kernels = [bound_launch(launch, A2).kernel for launch in _call()]
    assert {"TransData to_blocked", "TransData from_fractal"} < set(kernels)


def test_no_launches_take_no_time():
    nothing = task_interval([])
    assert (nothing.low_seconds, nothing.seconds, nothing.high_seconds, nothing.width) == (0, 0, 0, 1)


def test_interval_of_a_call_and_of_what_nobody_measured():
    interval = task_interval(bound_launch(launch, A2) for launch in _call())
    assert interval.low_seconds < interval.seconds < interval.high_seconds
    assert interval.is_calibrated
    assert 1.2 < interval.width < 2
    inference = get_product("310p")
    guess = task_interval(bound_launch(launch, inference) for launch in _call("310p"))
    assert not guess.is_calibrated
    assert guess.width > 2
