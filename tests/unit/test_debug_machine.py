"""The machine under a debugger: what `execute` computes, and stops where a twin that looks at every byte stops."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.authoring import In, Out, TBuf, TPipe, TPosition, kernel
from npu_sim.debug import Machine, SpaceView
from npu_sim.debug.views import lanes_of
from npu_sim.dtypes.formats import get_dtype
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.numerics import options_of
from npu_sim.errors import ProgramError, ShapeError, StateError
from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.op import Op
from npu_sim.memory.core import CoreMemory
from npu_sim.products import get_product
from npu_sim.program.recorded import launch_of
from tests.cases.python_kernels import CALLS

PRODUCT = get_product("910b")


@pytest.mark.parametrize("name", CALLS)
def test_machine_leaves_what_execute_leaves_however_it_is_stopped(name):
    call = CALLS[name]()
    expected = call.run()
    rng = np.random.default_rng(0)
    for order in ("program", "late", 7):
        options = options_of(PRODUCT, call.record().rows())
        machine = call.machine(ExecuteOptions(accumulation=options.accumulation, order=order, core_order=3))
        seen = []
        while (place := machine.place) is not None:
            seen.append(place.key)
            machine.step(int(rng.integers(1, 40)))
        assert len(seen) == len(set(seen)) > 3
        assert machine.tensor(call.result).tobytes() == expected.tobytes()
    machine = call.machine()
    assert machine.run().reason == "end"
    assert machine.tensor(call.result).tobytes() == expected.tobytes()
    assert str(machine.step()) == "end"


def test_machine_leaves_the_callers_arrays_and_the_launch_alone():
    call = CALLS["vector_add"]()
    call.arrays[-1][:] = 5
    machine = call.machine()
    machine.run()
    assert (call.arrays[-1] == 5).all()
    with pytest.raises(ValueError, match="read-only"):
        machine.gm[0] = 1


def test_machine_steps_over_every_row_once_in_order():
    call = CALLS["softmax"]()
    run, machine = call.record(), call.machine()
    places = []
    while machine.place is not None:
        places.append(machine.place)
        assert int(machine.row["tile"]) == machine.place.tile
        machine.step()
        assert machine.last == places[-1]
    for core in range(3):
        own = [place for place in places if place.core == core]
        assert [place.row for place in own] == list(range(len(run.rows(core))))
        assert [place.tile for place in own] == run.rows(core)["tile"].tolist()
    assert [place.core for place in places] == sorted(place.core for place in places)
    with pytest.raises(StateError, match="before the program has ended"):
        _ = machine.row


def test_run_to_stops_before_the_first_row_that_is_asked_for():
    call = CALLS["matmul"]()
    every = []
    machine = call.machine()
    while machine.place is not None:
        every.append(machine.place)
        machine.step()
    line = next(place.source.line for place in every if "Mmad" in place.text)
    for asked, wanted in (
        ({"tile": 1}, lambda p: p.tile == 1),
        ({"row": 7, "core": 1}, lambda p: p.row == 7 and p.core == 1),
        ({"line": line}, lambda p: p.source.line == line),
        ({"line": f"matmul.py:{line}", "core": 1}, lambda p: p.source.line == line and p.core == 1),
        ({"row": 0}, lambda p: p.row == 0),
    ):
        machine, hits = call.machine(), [place for place in every if wanted(place)]
        for place in hits[:3]:
            stop = machine.run_to(**asked)
            assert (stop.reason, stop.place) == ("target", place)
    machine = call.machine()
    assert machine.run_to(tile=999).reason == "end"
    with pytest.raises(ShapeError, match="line must be one that instructions come from"):
        call.machine().run_to(line=1)
    with pytest.raises(ShapeError, match="count must be"):
        call.machine().step(0)


def _bytes(machine, space, core):
    if space == "GM":
        return machine.gm.copy()
    return getattr(machine.memory(core), space.lower()).copy().view(np.uint8)


WATCHED = [
    ("matmul", "L0C", 4096, 4100),
    ("matmul", "L1", 70000, 70032),
    ("softmax", "UB", 100, 101),
    ("vector_add", "GM", 330000, 330033),
]


@pytest.mark.parametrize(("name", "space", "start", "end"), WATCHED)
def test_watch_stops_behind_rows_that_write_and_behind_every_one_that_changes_bytes(name, space, start, end):
    call = CALLS[name]()
    changed, machine = [], call.machine()
    while (place := machine.place) is not None:
        before = _bytes(machine, space, place.core)
        machine.step()
        if (before[start:end] != _bytes(machine, space, place.core)[start:end]).any():
            changed.append(place.key)
    machine, stops = call.machine(), []
    machine.watch(space, start, end)
    while machine.run().reason == "watch":
        stops.append(machine.last.key)
    assert changed
    assert set(changed) <= set(stops)
    extra = [key for key in stops if key not in changed]  # the same bytes written again
    assert len(extra) <= len(stops) // 2
    machine = call.machine()
    machine.watch(space, start, end, core=1)
    own = [key for key in stops if key[1] == 1]
    assert (machine.run().reason == "watch") == bool(own)
    machine.unwatch()
    assert machine.run().reason == "end"


def test_watch_refuses_what_is_no_space_or_range():
    machine = CALLS["vector_add"]().machine()
    with pytest.raises(ShapeError, match="space must be one of"):
        machine.watch("L3")
    with pytest.raises(ShapeError, match="range must begin"):
        machine.watch("UB", 8, 8)


def test_views_show_what_a_twin_reads_element_by_element():
    memory = CoreMemory.for_core(PRODUCT.core)
    rng = np.random.default_rng(0)
    for held in (memory.l0a, memory.l0b):
        held[:] = rng.integers(-8, 8, len(held))
    memory.l0c[:] = rng.standard_normal(len(memory.l0c))
    halves = rng.integers(-8, 8, len(memory.l1) // 2).astype(np.float16)
    memory.l1[:] = halves.view(np.uint8)
    l0a, l0b, l0c, l1 = (SpaceView(space, memory) for space in (Space.L0A, Space.L0B, Space.L0C, Space.L1))
    a, b, c = l0a.matrix("fp16", 40, 48, 512), l0b.matrix("fp32", 24, 40, 1024), l0c.matrix("fp32", 20, 40, 1024)
    for m in range(40):
        for k in range(48):
            fractal = 1 + m // 16 * 3 + k // 16
            assert a[m, k] == memory.l0a[256 * fractal + 16 * (k % 16) + m % 16]
    for k in range(24):
        for n in range(40):
            fractal = 2 + k // 8 * 3 + n // 16
            assert b[k, n] == memory.l0b[256 * fractal + 16 * (k % 8) + n % 16]
    for m in range(20):
        for n in range(40):
            assert c[m, n] == memory.l0c[256 * (1 + n // 16 * 2 + m // 16) + 16 * (m % 16) + n % 16]
    nz = l1.matrix("fp16", 5, 40, 64)
    assert all(nz[r, n] == halves[32 + (n // 16 * 5 + r) * 16 + n % 16] for r in range(5) for n in range(40))
    assert np.array_equal(l1.nd("fp16", (3, 7), 2), halves[1:22].reshape(3, 7))
    assert np.array_equal(l0a.fractals("fp16", 2)[1], memory.l0a[256:512].reshape(16, 16).T)
    assert (l0a.byte_count, l1.byte_count) == (PRODUCT.core.l0a_bytes, PRODUCT.core.l1_bytes)


def test_lanes_that_hold_no_integer_are_0_or_the_nearest(recwarn):
    carriers = np.full((1, 16, 16), np.nan, np.float32)
    carriers[0, :3, 5] = (-7, 40000, -np.inf)
    lanes = lanes_of(carriers, get_dtype("int16"))
    assert lanes.shape == (1, 16, 16)
    assert lanes[0, 5, :4].tolist() == [-7, 32767, -32768, 0]
    assert not lanes[0, :5].any()
    assert not recwarn.list


def test_lanes_of_8_bits_are_the_bytes_that_are_there():
    carriers = np.zeros((2, 16, 16), np.float32)
    carriers.view(np.int8).reshape(2, 1024)[:, :512] = np.arange(-512, 512).reshape(2, 512)
    lanes = lanes_of(carriers, get_dtype("int8"))
    assert lanes.shape == (2, 16, 32)
    assert lanes[1, 3].tolist() == [np.int64(16 * k + 3).astype(np.int8) for k in range(32)]


@pytest.mark.parametrize(
    ("space", "look", "words"),
    [
        (Space.L0A, lambda view: view.nd("fp16", 4), "as fractals or as a matrix"),
        (Space.UB, lambda view: view.nd("fp32", 4, 2), r"multiple of 4, not \[2:18\]"),
        (Space.UB, lambda view: view.nd("fp32", (1 << 20,)), "must be within its"),
        (Space.L0B, lambda view: view.fractals("fp16", 1, 256), "multiple of 512"),
        (Space.L0C, lambda view: view.matrix("fp32", 0, 16), "at least 1"),
    ],
)
def test_views_refuse_what_is_not_there(space, look, words):
    with pytest.raises(ShapeError, match=words):
        look(SpaceView(space, CoreMemory.for_core(PRODUCT.core)))


@kernel
def _two_phases(core, x: In, y: Out):
    pipe = TPipe(core)
    tile = pipe.init_buffer(TBuf(TPosition.VECCALC), 256).get("fp32")
    core.data_copy(tile, x[core.block_idx * 64], 64)
    core.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
    core.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
    core.data_copy(y[core.block_idx * 64], tile, 64)
    core.pipe_barrier(Pipe.ALL)
    core.sync_all()
    other = 1 - core.block_idx
    core.data_copy(tile, x[other * 64], 64)
    core.pipe_barrier(Pipe.ALL)


def test_machine_runs_phases_one_after_the_other_and_numbers_rows_through_them():
    x = np.arange(128, dtype=np.float32)
    machine = _two_phases.machine(x, np.empty_like(x), blocks=2, product=PRODUCT)
    seen = []
    while machine.place is not None:
        seen.append((machine.place.phase, machine.place.core, machine.place.row))
        machine.step()
    assert seen == sorted(seen)
    first = [row for phase, core, row in seen if core == 0 and phase == 0]
    second = [row for phase, core, row in seen if core == 0 and phase == 1]
    assert first + second == list(range(len(first) + len(second)))
    assert np.array_equal(machine.tensor("y"), x)
    held = machine.dump()
    assert np.array_equal(held["core0.ub"][:256].view(np.float32), x[64:])
    assert np.array_equal(held["gm.x"], x)


def test_machine_refuses_rows_that_leave_their_tensors_and_tensors_of_other_sizes():
    call = CALLS["vector_add"]()
    run = call.record()
    launch = run.launches[0]
    with pytest.raises(ShapeError, match="tensor x must have 160000 bytes, not 4"):
        Machine(run.launches, PRODUCT, {"x": np.zeros(1, np.float32)})
    with pytest.raises(ShapeError, match="tensor must be one of x, y, z"):
        call.machine().tensor("w")
    with pytest.raises(ShapeError, match="share one GlobalMemory"):
        Machine((), PRODUCT, {})
    rows = run.rows(0).copy()
    at = int(np.flatnonzero(rows["op"] == Op.DATA_COPY)[0])
    rows["src0"][at] += 1 << 20
    broken = launch_of("broken", [[rows]], launch.gm, core_kind="vector")
    with pytest.raises(ProgramError, match="must stay inside tensor 0"):
        Machine([broken], PRODUCT, call.tensors())
