"""Launches that run again from the rows that were kept leave what they left the first time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ops
from npu_sim.accumulation import SERIAL
from npu_sim.engines import execute as engine
from npu_sim.engines import execute_again
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import ProgramError
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Space
from npu_sim.isa.row import ROW_BYTES, empty_rows
from npu_sim.products import get_product
from npu_sim.program.legality import issued_chunks
from tests.unit.small_launches import launch_of

CHIP = get_product("910b")
OPTIONS = ExecuteOptions(accumulation=SERIAL)


def add_to_gm(value):
    """Fill 32 bytes of UB and add them to the first of GM."""

    def writer(rows, n):
        n = emit.emit_duplicate(rows, n, 0, Data.FP16, 16, int(np.float16(value).view(np.uint16)), 0, 0)
        n = emit.emit_set_atomic(rows, n, Data.FP16, 0, 0)
        n = emit.emit_data_copy(rows, n, Space.GM, 0, Space.UB, 0, 1, 1, 0, 0, Data.FP16, 0, 0, 0)
        return emit.emit_set_atomic(rows, n, Data.NONE, 0, 0)

    return writer


def counted_launch(value_of, **about):
    """Return a trusted launch that adds ``value_of(core, phase)`` each, and the list of what its kernel was asked."""
    asked = []

    def program(core, phase):
        asked.append((core, phase))
        return [add_to_gm(value_of(core, phase))]

    return replace(launch_of(program, cores=3, phases=2, gm_bytes=64, **about), trusted=True, core_kind="vector"), asked


def total(launch, options=OPTIONS):
    launch.gm.arena[:] = 0
    execute(launch, CHIP, options)
    return float(launch.gm.arena[:2].view(np.float16)[0])


def value(core, phase):
    """2048 + 1 is 2048 in half, 1 + 1 + 2048 is 2050: the sum tells the order."""
    return 2048 if (core, phase) == (1, 0) else 1


def test_rows_are_made_twice_and_run_in_the_order_of_phases_and_cores():
    launch, asked = counted_launch(value)
    first = total(launch)
    assert first == 2048  # 1 + 2048 = 2048 to even, and every 1 behind it is lost
    before = len(asked)
    assert total(launch) == first
    assert asked[before:] == [(core, phase) for phase in range(2) for core in range(3)]
    assert launch.kept.rows is not None
    before = len(asked)
    assert [total(launch, replace(OPTIONS, threads=threads)) for threads in (1, 3)] == [first] * 2
    assert len(asked) == before


def test_overflow_mode_is_that_of_the_run():
    launch, _ = counted_launch(lambda core, phase: 60000)
    modes = ["inf_nan", "saturate"] * 3
    assert [total(launch, replace(OPTIONS, overflow=mode)) for mode in modes] == [np.inf, 65504] * 3


def test_what_asks_for_another_order_of_rows_makes_them():
    launch, asked = counted_launch(value)
    for _ in range(3):
        total(launch)
    before = len(asked)
    total(launch, replace(OPTIONS, order=2))
    assert len(asked) > before
    before = len(asked)
    total(launch, replace(OPTIONS, poison=True))
    orders = [total(launch, replace(OPTIONS, core_order=seed)) for seed in range(8)]
    assert len(asked) == before
    anew, _ = counted_launch(value)
    assert orders == [total(anew, replace(OPTIONS, core_order=seed)) for seed in range(8)]
    assert len(set(orders)) > 1


def test_launch_made_of_another_begins_anew():
    launch, _ = counted_launch(value)
    other, _ = counted_launch(lambda core, phase: 2)
    for _ in range(3):
        total(launch)
    changed = replace(launch, kernel=other.kernel)
    assert changed.kept.rows is None
    assert [total(changed) for _ in range(3)] == [12] * 3
    assert changed == replace(changed)  # what is kept is no part of a launch


def test_many_rows_are_made_each_time(monkeypatch):
    launch, asked = counted_launch(value)
    monkeypatch.setattr(execute_again, "LIMIT_ROWS", 23)
    counts = []
    for _ in range(4):
        before = len(asked)
        total(launch)
        counts.append(len(asked) - before)
    assert launch.kept.rows is None
    assert counts[0] == counts[2] == counts[3]
    fits, _ = counted_launch(value)
    monkeypatch.setattr(execute_again, "LIMIT_ROWS", 24)
    for _ in range(2):
        total(fits)
    assert len(fits.kept.rows) == 24


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_several_threads_share_the_cores_whose_rows_are_kept(monkeypatch, threads):
    launch, asked = counted_launch(value)
    monkeypatch.setattr(execute_again, "SHARED_ROWS", 23)
    monkeypatch.setattr(engine, "_SMALL_PHASE_ROWS", 0)
    several = replace(OPTIONS, threads=threads)
    first = total(launch, several)
    assert total(launch, several) == first
    before = len(asked)
    assert [total(launch, several) for _ in range(4)] == [first] * 4
    assert total(launch) == first
    assert len(asked) == before
    assert len(launch.kept.rows) == 24


def test_kept_rows_of_a_core_are_those_it_makes():
    launch, _ = counted_launch(value)
    assert launch.kept.of(0, 0) is None
    for _ in range(2):
        total(launch)
    for phase in range(2):
        for core in range(3):
            made = [rows.copy() for rows in issued_chunks(launch, core, phase, empty_rows(64))]
            assert launch.kept.of(core, phase).tobytes() == b"".join(rows.tobytes() for rows in made)


def test_rows_of_all_launches_are_kept_within_a_limit(monkeypatch):
    monkeypatch.setattr(execute_again, "_SHELF", execute_again._Shelf())
    monkeypatch.setattr(execute_again, "LIMIT_BYTES", 24 * ROW_BYTES)

    def ran_thrice():
        launch, _ = counted_launch(value)
        for _ in range(3):
            total(launch)
        return launch

    one, other = ran_thrice(), ran_thrice()
    assert one.kept.rows is not None
    assert other.kept.rows is None
    del one
    assert ran_thrice().kept.rows is not None


def test_large_launches_leave_half_of_the_room_to_small_ones(monkeypatch):
    monkeypatch.setattr(execute_again, "_SHELF", execute_again._Shelf())
    monkeypatch.setattr(execute_again, "LIMIT_BYTES", 4 * 24 * ROW_BYTES)
    launches = [counted_launch(value)[0] for _ in range(6)]
    for few, some in ((23, launches[:3]), (24, launches[3:])):
        monkeypatch.setattr(execute_again, "FEW_ROWS", few)
        for launch in some:
            for _ in range(2):
                total(launch)
    assert [launch.kept.rows is not None for launch in launches] == [True, True, False, True, True, False]


def test_row_that_cannot_be_carried_out_is_found_each_time():
    def program(core, phase):
        return [lambda rows, n: emit.emit_mmad(rows, n, 0, 0, 0, Data.FP16, 16, 16, 4000 if core else 16, 1, 0, 0)]

    launch = replace(launch_of(program, cores=2), trusted=True)
    errors = []
    for _ in range(4):
        with pytest.raises(ProgramError) as caught:
            execute(launch, CHIP, OPTIONS)
        errors.append(str(caught.value))
    assert "core 1" in errors[0]
    assert errors == errors[:1] * 4


@pytest.mark.parametrize("accumulation", ["serial", "exact16-rne"])
@pytest.mark.parametrize("case", [((1, 16, 8, 8), (16, 16, 3, 3)), ((2, 20, 5, 4), (17, 20, 3, 2))])
def test_repeated_call_has_the_bits_of_the_first(case, accumulation):
    x_shape, w_shape = case
    (n, _, h, w), (cout, _, kh, kw) = case
    g_shape = (n, cout, h + 3 - kh, w + 3 - kw)

    def tensors(seed):
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape).astype(np.float16) for shape in (g_shape, x_shape, w_shape)]

    call = {"stride": 1, "padding": 1, "dilation": 1, "accumulation": accumulation}
    before = [ops.convolution_backward(*tensors(seed), **call) for seed in range(4)]
    kept = [launch.kept.rows is not None for launch in before[0].plan.calls.launches if launch.shortcut is None]
    assert kept
    assert all(kept)
    for seed, one in enumerate(before):
        # a product of its own has a plan of its own, which runs for the first time
        anew = ops.convolution_backward(*tensors(seed), **call, product=replace(CHIP, name=f"mine{seed}"))
        for name in ("grad_input", "grad_weight", "grad_bias"):
            np.testing.assert_array_equal(getattr(one, name).view(np.uint16), getattr(anew, name).view(np.uint16))


@pytest.mark.parametrize("threads", [1, 2])
def test_core_without_rows_keeps_none(monkeypatch, threads):
    monkeypatch.setattr(engine, "_SMALL_PHASE_ROWS", 0)
    monkeypatch.setattr(execute_again, "SHARED_ROWS", 0)

    def program(core, phase):
        return [add_to_gm(core + 1)] if core != 1 else []

    launch = replace(launch_of(program, cores=3, phases=2, gm_bytes=64), trusted=True, core_kind="vector")
    for core_order in (None, None, None, 7):
        assert total(launch, replace(OPTIONS, threads=threads, core_order=core_order)) == 8
    assert len(launch.kept.of(1, 0)) == 0
