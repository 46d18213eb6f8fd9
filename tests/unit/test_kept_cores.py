"""What a core keeps behind SyncAll: buffers, flags, SetAtomicAdd and SetHF32Mode, in every engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.budget import use_budget
from npu_sim.engines.buffers import run_buffers
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import BudgetError, ProgramError
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Mode, Pipe, Space
from npu_sim.isa.row import empty_rows
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks, verify_launch
from npu_sim.program.violation import Kind
from tests.unit.small_launches import set_flag, wait_flag

CHIP = get_product("910b")
OPTIONS = ExecuteOptions(accumulation=SERIAL)
CORES = 3


def fill(value, at=0):
    """Fill 32 bytes of UB."""
    return lambda r, n: emit.emit_duplicate(r, n, at, Data.FP32, 8, int(np.float32(value).view(np.int32)), 0, 0)


def store(block, at=0, tensor=0):
    """Copy 32 bytes of UB to a block of GM."""
    return lambda r, n: emit.emit_data_copy(
        r, n, Space.GM, 32 * block, Space.UB, at, 1, 1, 0, 0, Data.FP32, tensor, 0, 0
    )


def adding(dtype):
    return lambda r, n: emit.emit_set_atomic(r, n, dtype, 0, 0)


def launch_of(program, *, phases=2, cores=CORES, **others):
    """Return a vector launch of ``program(core, phase) -> list of row writers``."""

    def kernel(rows, params, core, phase):
        n = 0
        for writer in program(core, phase):
            n = writer(rows, n)
        yield n

    gm = GlobalMemory()
    gm.add("y", 32 * CORES * 2, initialised=False)
    return Launch(
        name="kept", kernel=kernel, params=np.zeros(1), core_count=cores, phase_count=phases, gm=gm,
        core_kind="vector", **others,
    )  # fmt: skip


def handed(pipes, *, wait=True, event=0):
    return [set_flag(*pipes, event), *([wait_flag(*pipes, event)] if wait else [])]


V_MTE3 = (Pipe.V, Pipe.MTE3)


def filled_before(core, phase):
    """Every core fills its UB in phase 0 and stores it in phase 1, the flag of the hand-over set before SyncAll."""
    if phase == 0:
        return [fill(10 + core), set_flag(*V_MTE3, 1)]
    return [wait_flag(*V_MTE3, 1), store(core)]


@pytest.mark.parametrize("order", ["program", "late", 0, 5])
@pytest.mark.parametrize("threads", [1, 3])
def test_buffers_and_flags_of_each_core_survive(order, threads):
    launch = launch_of(filled_before)
    execute(launch, CHIP, replace(OPTIONS, order=order, threads=threads, poison=threads == 1))
    values = launch.gm.arena.view(np.float32)[: 8 * CORES].reshape(CORES, 8)
    assert (values == np.arange(10, 10 + CORES)[:, None]).all()
    assert run_hazards(launch, CHIP) == []
    assert verify_launch(launch, CHIP) == []


def test_other_orders_know_which_flags_are_set():
    twice = launch_of(lambda core, phase: [] if phase == 0 else [wait_flag(*V_MTE3, 1), store(core)])
    with pytest.raises(ProgramError, match="never runs"):
        execute(twice, CHIP, replace(OPTIONS, order=1))


def test_trusted_launches_keep_nothing():
    launch = launch_of(filled_before, trusted=True)
    kinds = [found.kind for found in run_hazards(launch, CHIP)]
    assert kinds.count(Kind.READ_UNINITIALISED) == CORES
    with pytest.raises(ProgramError, match="must follow its SetFlag"):
        run_timeline(launch, CHIP)


def test_buffers_of_all_cores_are_within_the_budget():
    with use_budget("2 MiB"), pytest.raises(BudgetError, match="Buffers of 3 cores"):
        execute(launch_of(filled_before), CHIP, OPTIONS)


def test_a_core_reads_nothing_that_only_others_wrote():
    launch = launch_of(lambda core, phase: filled_before(core, phase) if core == 1 else [store(core)] * phase)
    found = run_hazards(launch, CHIP)
    assert [(v.kind, v.core, v.row) for v in found] == [(Kind.READ_UNINITIALISED, core, 0) for core in (0, 2)]


def test_parts_of_blocks_are_remembered_byte_for_byte():
    def program(core, phase):
        half = [lambda r, n: emit.emit_duplicate(r, n, 0, Data.FP32, 4, 0, 0, 0)]
        return half if phase < 2 and phase == core % 2 else [store(core)] * (phase == 2)

    found = run_hazards(launch_of(program, phases=3), CHIP)
    assert {v.kind for v in found} == {Kind.READ_UNINITIALISED}
    assert [(v.core, v.start, v.length) for v in found] == [(core, 16, 16) for core in range(CORES)]


def test_launches_do_not_know_what_cores_kept_in_the_one_before():
    launch = launch_of(filled_before)
    second = replace(launch_of(lambda core, phase: [store(CORES + core)] * phase), gm=launch.gm)
    found = run_hazards([launch, second], CHIP)
    assert [(v.kind, v.launch, v.core) for v in found] == [(Kind.READ_UNINITIALISED, 1, core) for core in range(CORES)]


def test_what_comes_before_sync_all_is_over_behind_it():
    assert run_hazards(launch_of(lambda core, phase: [fill(1)] if phase == 0 else [store(core)]), CHIP) == []
    unordered = launch_of(lambda core, phase: [fill(1), store(core)] if phase == 0 else [])
    assert {v.kind for v in run_hazards(unordered, CHIP)} == {Kind.SYNC_READ_HAZARD}


def test_flag_that_nobody_waits_for_is_found_where_it_was_set():
    def program(core, phase):
        return [fill(1), set_flag(*V_MTE3, 2)] if phase == 0 else [fill(2)] * (phase == 1)

    [found] = run_hazards(launch_of(program, phases=3, cores=1), CHIP)
    assert (found.kind, found.row) == (Kind.SYNC_UNPAIRED, 1)
    again = launch_of(lambda core, phase: [set_flag(*V_MTE3, 2)] if phase < 2 else [wait_flag(*V_MTE3, 2)], phases=3)
    assert {(v.kind, v.row, v.other_row) for v in run_hazards(again, CHIP)} == {(Kind.SYNC_DUPLICATE, 1, 0)}


def test_stale_tiles_are_found_across_phases():
    # phase 0 fills a tile and hands it over; behind SyncAll it is handed back, taken again and read once more
    back = (Pipe.MTE3, Pipe.V)

    def program(core, phase):
        if phase == 0:
            return [*handed(back), fill(1), *handed(V_MTE3), store(core)]
        rows = [*handed(back), *handed(V_MTE3), store(CORES + core)]
        return rows if core else [rows[0], rows[1], fill(2), *rows[2:]]

    found = run_hazards(launch_of(program), CHIP)
    assert {(v.kind, v.core) for v in found} == {(Kind.READ_STALE, core) for core in range(1, CORES)}


def test_state_of_the_core_stays_on_and_is_reported_at_its_end():
    def program(core, phase):
        if phase == 0:
            return [fill(3), adding(Data.FP32)]
        return [store(0), *([] if core == 1 else [adding(Data.NONE)])]

    launch = launch_of(program)
    launch.gm.arena[:] = 0
    execute(launch, CHIP, OPTIONS)
    assert (launch.gm.arena.view(np.float32)[:8] == 3 * CORES).all()
    [found] = [v for v in run_hazards(launch, CHIP) if v.kind is Kind.STATE_LEFT]
    assert (found.core, found.row) == (1, 1)
    assert "SetAtomicAdd" in found.detail


def test_rows_are_issued_with_the_state_of_the_phase_before():
    def program(core, phase):
        return [adding(Data.FP16)] if phase == 0 else [store(core)]

    for trusted in (False, True):
        launch, state, buffer = launch_of(program, trusted=trusted), np.zeros(8, np.int64), empty_rows(64)
        [[first], [second]] = ([part.copy() for part in issued_chunks(launch, 0, p, buffer, state)] for p in (0, 1))
        assert first["mode"][0] == 0
        assert bool(second["mode"][0] & Mode.ATOMIC) is not trusted


def test_named_buffers_live_on():
    def program(core, phase):
        def mark(what):
            return lambda r, n: getattr(emit, f"emit_{what}_tensor")(r, n, Space.UB, 0, 64, 0, 0, 0)

        if phase == 0:
            return [mark("alloc"), fill(1)]
        return [store(core), mark("free")]

    launch = launch_of(program, buffers={0: "tile"})
    assert run_buffers(launch, CHIP) == run_hazards(launch, CHIP) == []


def test_timeline_carries_flags_and_tells_cores_apart_by_them():
    """The flag is set when the phase begins, and a core without it cannot wait."""
    launch = launch_of(filled_before)
    result = run_timeline(launch, CHIP)
    apart = launch_of(lambda core, phase: filled_before(core, phase)[phase:] if phase else [fill(1)])
    assert result.phase_cycles[1] == run_timeline(apart, CHIP).phase_cycles[1] + CHIP.cost.flag_cycles
    assert sum(result.critical_parts.values()) == result.total_cycles
    # all cores run the same behind SyncAll, but one has not got the flag
    missing = launch_of(lambda core, phase: [fill(1)] if core == 2 and phase == 0 else filled_before(core, phase))
    with pytest.raises(ProgramError) as caught:
        run_timeline(missing, CHIP)
    assert [(v.kind, v.core) for v in caught.value.violations] == [(Kind.SYNC_UNPAIRED, 2)]


def test_timeline_carries_the_mode_of_the_cube():
    def program(core, phase):
        is_on = phase == 0 and core == 0
        fp32 = lambda r, n: emit.emit_mmad(r, n, 0, 0, 0, Data.FP32, 16, 16, 4096, 1, 0, 0)  # noqa: E731
        return [lambda r, n: emit.emit_set_hf32(r, n, 1, 0, 0)] if is_on else [fp32] * phase

    launch = replace(launch_of(program, cores=2), core_kind="cube")
    slow, fast = run_timeline(launch, CHIP).core_cycles[1], run_timeline(launch, CHIP).core_cycles[0]
    assert fast < slow
