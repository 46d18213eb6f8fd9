"""Mixed launches and flags between cores: what each mode counts, order of execution, deadlocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import InternalError, ProgramError
from npu_sim.isa.op import Pipe
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.program.core_kind import kind_of
from npu_sim.program.cross_core import CrossCoreFlags, Mark
from npu_sim.program.disassemble import disassemble
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind
from tests.unit.mix_launches import fill, mixed, relay, sets, store, waits

CHIP = get_product("910b")
OPTIONS = ExecuteOptions(accumulation=SERIAL)


def rows_of(*writers):
    rows, n = empty_rows(len(writers)), 0
    for writer in writers:
        n = writer(rows, n)
    return rows


def test_rows_show_what_they_are_and_where_they_may_run():
    rows = rows_of(sets(2, 3, Pipe.FIX), waits(3), sets(0, 14))
    assert [disassemble(row) for row in rows] == [
        "FIX  CrossCoreSetFlag<2, PIPE_FIX>(3)", "S    CrossCoreWaitFlag(3)", "MTE3 CrossCoreSetFlag<0, PIPE_MTE3>(14)",
    ]  # fmt: skip
    assert verify(rows, CHIP) == []
    assert [v.row for v in verify(rows, CHIP, core_kind="vector")] == [0]
    assert kind_of(rows[:2], CHIP) == "cube"
    assert {v.kind for v in verify(rows, get_product("310p"))} == {Kind.UNSUPPORTED}
    rows["event"], rows["value"] = 16, 4
    assert [v.row for v in verify(rows, CHIP)] == [0, 0, 1, 2, 2]


def test_cores_are_numbered_by_kind_and_block():
    launch = mixed(lambda core, phase: [], blocks=3, vectors=2)
    assert [launch.kind_of(core) for core in range(9)] == ["cube"] * 3 + ["vector"] * 6
    assert [launch.block_of(core) for core in range(9)] == [0, 1, 2, 0, 0, 1, 1, 2, 2]
    assert launch.cores_in_words == "3 cube and 6 vector"
    with pytest.raises(InternalError, match="whole blocks"):
        replace(launch, core_count=8)


def counted(launch, *made):
    """Return on which cores and flags the sets ``(core, mode, flag)`` count, in their order."""
    flags, marks = CrossCoreFlags(launch), []
    for core, mode, flag in made:
        [row] = rows_of(sets(mode, flag))
        assert flags.set(Mark(core, len(marks), row, None)) == []
        marks.append(row)
    [wait] = rows_of(waits(0))
    found = []
    for core in range(launch.core_count):
        for flag in range(16):
            wait["event"] = flag
            while (answer := flags.take(core, wait)) is not None:
                found.append((core, flag, tuple(mark.number for mark in answer)))
    return found


def test_each_mode_counts_where_the_page_says():
    launch = mixed(lambda core, phase: [], blocks=2, vectors=2)  # cubes 0 and 1; vectors 2, 3 and 4, 5
    assert counted(launch, (0, 0, 5)) == []
    assert counted(launch, (0, 0, 5), (1, 0, 5)) == [(0, 5, (0, 1)), (1, 5, (0, 1))]
    assert counted(launch, (2, 0, 1), (3, 0, 1), (4, 0, 1)) == []
    assert [core for core, _, _ in counted(launch, *((core, 0, 1) for core in (2, 3, 4, 5)))] == [2, 3, 4, 5]
    assert counted(launch, (4, 1, 7)) == []
    assert counted(launch, (4, 1, 7), (5, 1, 7)) == [(4, 7, (0, 1)), (5, 7, (0, 1))]
    assert counted(launch, (1, 2, 3)) == [(4, 3, (0,)), (5, 3, (0,))]
    assert counted(launch, (3, 2, 3)) == []
    # messages of the Matmul library: from one vector core to its Cube core, and to the one that the flag names
    assert counted(launch, (3, 3, 1), (2, 3, 0)) == [(0, 0, (1,)), (0, 1, (0,))]
    assert counted(launch, (1, 3, 2), (1, 3, 5)) == [(4, 2, (0,)), (5, 5, (1,))]
    # the k-th set of a core belongs to the k-th of the other
    assert counted(launch, (3, 2, 3), (3, 2, 3), (2, 2, 3)) == [(0, 3, (2, 0))]


@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("options", [
    {}, {"threads": 4}, {"order": "late"}, {"order": 3}, {"core_order": 1}, {"core_order": 2, "order": 9},
])  # fmt: skip
@pytest.mark.parametrize("chunk", [1, 7])
def test_cores_wait_for_each_other_whatever_the_order(vectors, options, chunk):
    launch = mixed(relay(4, vectors=vectors), vectors=vectors, chunk=chunk)
    launch.gm.arena.view(np.float32)[:512] = np.repeat(np.arange(64), 8)
    execute(launch, CHIP, replace(OPTIONS, **options))
    values = launch.gm.arena.view(np.float32).reshape(-1, 8)[:, 0]
    assert values[: 2 * vectors].tolist() == [own + 4 for own in range(2 * vectors)]


def test_a_core_is_asked_for_rows_when_those_before_have_run():
    """What a kernel reads in GM behind a wait is what the other core has stored there."""
    seen = []

    def kernel(rows, params, core, phase):
        if core == 1:
            yield store(3)(rows, fill(7)(rows, 0))
            yield sets(2, 1)(rows, 0)
            return
        yield waits(1)(rows, 0)
        seen.append(float(launch.gm.arena.view(np.float32)[24]))

    launch = replace(mixed(lambda core, phase: [], blocks=1, vectors=1), kernel=kernel)
    launch.gm.arena[:] = 0
    execute(launch, CHIP, OPTIONS)
    assert seen == [7.0]


def test_flags_are_carried_behind_sync_all():
    def program(core, phase):
        return [sets(2, 1)] if (core, phase) == (0, 0) else [waits(1)] if core and phase else []

    execute(mixed(program, blocks=1, phases=2), CHIP, OPTIONS)


def stuck(program, **others):
    with pytest.raises(ProgramError) as caught:
        execute(mixed(program, **others), CHIP, OPTIONS)
    [found] = caught.value.violations
    return found


def test_deadlock_is_one_finding_with_its_cycle():
    def program(core, phase):
        return [fill(1), waits(2, site=11), sets(2, 1)] if core else [waits(1, site=12), sets(2, 2)]

    found = stuck(program, blocks=1, vectors=1)
    assert (found.kind, found.core, found.row, found.other_core, found.other_row) == (Kind.SYNC_UNPAIRED, 0, 0, 1, 1)
    assert found.detail == (
        "Deadlock: core 0 (cube) row 0 CrossCoreWaitFlag(1) (mix.py:12), which waits for core 1 (vector) row 1 "
        "CrossCoreWaitFlag(2) (mix.py:11), which waits for the first, for ever (mix)"
    )


def test_a_wait_for_a_core_that_has_ended_is_a_deadlock():
    found = stuck(lambda core, phase: [] if core else [waits(1)], blocks=1, vectors=1)
    assert found.detail.endswith("which waits for core 1, which has ended (mix)")
    # of the two vector cores one has set: the finding names the other
    found = stuck(lambda core, phase: {0: [waits(1)], 1: [sets(2, 1)]}.get(core, []), blocks=1, vectors=2)
    assert found.detail.endswith("which waits for core 2, which has ended (mix)")


def test_counters_end_at_15():
    def program(sent):
        return lambda core, phase: [sets(2, 1)] * sent if core == 0 else [waits(1)] * sent

    execute(mixed(program(15), blocks=1, vectors=1), CHIP, OPTIONS)
    found = stuck(program(16), blocks=1, vectors=1)
    assert (found.kind, found.core, found.row) == (Kind.SYNC_DUPLICATE, 0, 15)


def test_modes_of_blocks_want_a_mixed_launch():
    launch = replace(mixed(lambda core, phase: [sets(2, 1)], blocks=2, vectors=0), crosses=True)
    with pytest.raises(ProgramError, match="must be in a mixed launch"):
        execute(launch, CHIP, OPTIONS)


def test_launches_say_that_they_cross():
    launch = mixed(lambda core, phase: [sets(0, 1), waits(1)], blocks=2, vectors=0)
    with pytest.raises(ProgramError, match="must be in a launch that crosses"):
        execute(launch, CHIP, OPTIONS)
    execute(replace(launch, crosses=True), CHIP, OPTIONS)
