"""Races as orders of the execute engine, held to a machine on rows put in that order by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.authoring import In, InOut, Out, Pipe, TPosition, kernel
from npu_sim.debug.execution import Execution
from npu_sim.engines.execute import execute
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.numerics import options_of, use_orders
from npu_sim.engines.races import core_order_of, race_of
from npu_sim.engines.reorder import Race, order_that_bites
from npu_sim.errors import ShapeError
from npu_sim.isa.op import Op
from npu_sim.program.recorded import rows_of
from tests.cases.fault_subjects import Subject, subjects
from tests.cases.program_faults import program_fault
from tests.long.race_bites import result_of

_KINDS = ("wait dropped", "wait dropped in every tile", "wait late", "set early")


def _executed(call: Execution, order) -> bytes:
    """Return the bytes of the outputs, on memories that begin as those of a machine do."""
    (launch,), gm = call.launches, call.launches[0].gm.fresh()
    gm.allocate(gm.tensors)
    for tensor in gm.tensors:
        if tensor.name in call.tensors:
            given = np.ascontiguousarray(call.tensors[tensor.name]).view(np.uint8).reshape(-1)
            gm.view(tensor, np.uint8, given.shape)[:] = given
    execute(launch, call.product, replace(call.options, order=order, poison=True), gm)
    outputs = (tensor for tensor in gm.tensors if tensor.is_output)
    return b"".join(gm.view(tensor, np.uint8, (tensor.byte_count,)).tobytes() for tensor in outputs)


def _twin(subject: Subject, programs: list[np.ndarray], race: Race) -> bytes | None:
    rows = programs[race.core]
    order = order_that_bites(rows, race.earlier, race.later)
    return result_of(subject.with_programs([rows[order] if c == race.core else own for c, own in enumerate(programs)]))


@pytest.mark.parametrize("kind", _KINDS)
def test_a_race_as_an_order_gives_what_its_rows_in_that_order_give(kind):
    rng, seen, changed = np.random.default_rng(len(kind)), 0, 0
    for subject in subjects()[:6] * 3:
        fault = program_fault(kind, subject.programs(), rng)
        if fault is None:
            continue
        call = subject.with_programs(fault.programs)
        found = run_hazards(call.launches, call.product)
        for race in [race for one in found if (race := race_of(one, call.launches))][:2]:
            bitten = _executed(call, race)
            assert bitten == _twin(subject, fault.programs, race)
            assert bitten == _executed(call, race)
            changed += bitten != _executed(call, "program")
            seen += 1
    assert seen >= 3
    assert changed >= 2


def _run(function, arrays, order="program", **how):
    """Run a kernel on copies; return its run, the arrays behind it, and whether it had the race."""
    copies = [array.copy() for array in arrays]
    with use_orders(order) as orders:
        run = function(*copies, **how)
    return run, copies, orders.had_race


def _races(run) -> list[Race]:
    return [race for found in run.findings if (race := race_of(found, run.launches)) is not None]


def test_a_race_of_a_later_phase_bites_there_alone():
    @kernel
    def shift(core, x: In, w: InOut, y: Out):
        """Each core copies its 64 elements to w, and then those of the next core from w to y, without a wait."""
        t = core.alloc(TPosition.VECCALC, "fp32", 64, "t")
        own, other = core.block_idx * 64, (core.block_idx + 1) % core.block_num * 64
        for source, target, first in ((x, w, own), (w, y, other)):
            core.data_copy(t, source[first], 64)
            if core.phase == 0:
                core.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
                core.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
            core.data_copy(target[own], t, 64)
            if core.phase == 0:
                core.sync_all()
        core.free(t)

    x = np.arange(256, dtype=np.float32)
    arrays = x, np.zeros_like(x), np.zeros_like(x)
    run, (_, _, y), had = _run(shift, arrays, blocks=4)
    assert (y == np.roll(x, -64)).all()
    assert not had
    race = next(race for race in _races(run) if race.core == 2)
    _, (_, _, bitten), had = _run(shift, arrays, race, blocks=4)
    assert had
    changed = np.flatnonzero(bitten != y)
    assert (changed.min(), changed.max()) == (128, 191)
    np.testing.assert_array_equal(bitten[128:192], x[128:192])  # what the core kept from the first phase


def test_a_row_held_back_by_a_race_keeps_the_state_it_was_issued_with():
    @kernel
    def adds(core, y: InOut):
        t = core.alloc(TPosition.VECCALC, "fp32", 64, "t")
        core.duplicate(t, 1, 64)
        core.set_flag(Pipe.V, Pipe.MTE3, 0)
        core.wait_flag(Pipe.V, Pipe.MTE3, 0)
        core.set_atomic("fp32")
        core.data_copy(y, t, 64)
        core.set_atomic(None)
        core.duplicate(t, 5, 64)
        core.free(t)

    y = np.full(64, 10, np.float32)
    run, (added,), _ = _run(adds, [y], blocks=1)
    assert set(added) == {11}
    [race] = _races(run)
    assert set(_run(adds, [y], race, blocks=1)[1][0]) == {15}


def test_a_race_behind_a_wait_for_another_core_bites():
    @kernel(kind="mix", vectors=2)
    def both(core, x: In, y: Out):
        if core.is_cube:
            core.cross_core_set_flag(2, Pipe.FIX, 5)
            return
        t = core.alloc(TPosition.VECCALC, "fp32", 64)
        core.duplicate(t, 7, 64)
        core.pipe_barrier(Pipe.ALL)
        core.cross_core_wait_flag(5)
        core.data_copy(t, x[core.block_idx * 64], 64)
        core.data_copy(y[core.block_idx * 64], t, 64)
        core.free(t)

    x = np.arange(256, dtype=np.float32)
    arrays = x, np.zeros_like(x)
    run, (_, y), _ = _run(both, arrays, blocks=2)
    assert (y == x).all()
    race = next(race for race in _races(run) if race.core == 3)
    _, (_, bitten), had = _run(both, arrays, race, blocks=2)
    assert had
    np.testing.assert_array_equal(bitten, np.where(np.arange(256) // 64 == 1, 7, x))


def test_a_race_between_cores_bites_in_the_order_of_its_seed():
    @kernel
    def last(core, y: Out):
        t = core.alloc(TPosition.VECCALC, "fp32", 64, "t")
        core.duplicate(t, core.block_idx, 64)
        core.set_flag(Pipe.V, Pipe.MTE3, 0)
        core.wait_flag(Pipe.V, Pipe.MTE3, 0)
        core.data_copy(y, t, 64)
        core.free(t)

    y = np.zeros(64, np.float32)
    run, (written,), _ = _run(last, [y], blocks=5)
    assert set(written) == {4}
    found = next(one for one in run.findings if one.other_core >= 0)
    assert race_of(found, run.launches) is None
    seed = core_order_of(found, run.launches)
    with use_orders("program", seed):
        last(y, blocks=5)
    assert set(y) == {min(found.core, found.other_core)}


def test_rows_that_race_with_nothing_are_no_order():
    """Nothing orders the rows of the first pair, but they have no byte in common; the second pair is ordered."""

    @kernel
    def clean(core, x: In, y: Out):
        a, b = core.alloc(TPosition.VECCALC, "fp32", 64), core.alloc(TPosition.VECCALC, "fp32", 64)
        core.data_copy(a, x, 64)
        core.duplicate(b, 1, 64)
        core.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
        core.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
        core.data_copy(y, a, 64)
        core.free(a)
        core.free(b)

    x = np.arange(64, dtype=np.float32)
    run, (_, y), _ = _run(clean, [x, np.zeros_like(x)], blocks=1)
    rows = rows_of(run.launches[0], 0, 0)
    load, fill, store = (
        int(np.flatnonzero((rows["pipe"] == pipe) & (rows["op"] != Op.WAIT_FLAG))[0])
        for pipe in (Pipe.MTE2, Pipe.V, Pipe.MTE3)
    )
    for pair in ((load, fill), (load, store), (store, load), (0, 10**17)):
        race = Race(launch="clean", core=0, earlier=pair[0], later=pair[1])
        _, (_, again), had = _run(clean, [x, np.zeros_like(x)], race, blocks=1)
        assert not had
        np.testing.assert_array_equal(again, y)
    ordered = Race(launch="clean", core=0, earlier=load, later=store)
    with pytest.raises(ShapeError, match="order must be that of a race, not race:clean:0:"):
        execute(run.launches[0], run.product, replace(options_of(run.product, rows), order=ordered))
