"""Waits that stand before their sets: legal where issue goes on, one finding with its cycle where it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.accumulation import SERIAL
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ProgramError
from npu_sim.isa.op import Pipe
from npu_sim.products import get_product
from npu_sim.program.launch import SourceLine
from npu_sim.program.violation import Kind
from tests.unit.mix_launches import add, barrier, fill, hand, load, store
from tests.unit.small_launches import launch_of, set_flag, wait_flag

CHIP = get_product("910b")
OPTIONS = ExecuteOptions(accumulation=SERIAL)
TO_V, BACK = (Pipe.MTE2, Pipe.V), (Pipe.V, Pipe.MTE2)
DEPTH = CHIP.cost.queue_depth_rows

EARLY = (
    fill(1, 64), wait_flag(*TO_V), barrier(Pipe.V), add(128, 0, 64), load(0), set_flag(*TO_V), hand(Pipe.V, Pipe.MTE3),
    store(1, 128),
)  # fmt: skip
"""V waits for a copy that is issued behind the addition of what it copies."""


def vector(program, *, cores=1, **others):
    """Return a vector launch of a program, a sequence of row writers."""
    lines = {site: SourceLine("k.py", site, "k") for site in range(100)}
    launch = launch_of(lambda core, phase: program, cores=cores)
    return replace(launch, core_kind="vector", lines=lines, **others)


@pytest.mark.parametrize("order", ["program", "late", 3])
def test_wait_before_its_set_takes_effect_in_the_order_of_the_pipes(order):
    launch = vector(EARLY)
    launch.gm.arena.view(np.float32)[:8] = 41
    execute(launch, CHIP, replace(OPTIONS, order=order))
    assert (launch.gm.arena.view(np.float32)[8:16] == 42).all()
    assert run_hazards(launch, CHIP) == []


def test_timeline_lets_the_pipe_wait():
    early = run_timeline(vector(EARLY), CHIP, spans=True)
    late = run_timeline(vector((EARLY[0], *EARLY[4:6], *EARLY[1:4], *EARLY[6:])), CHIP)
    assert abs(early.total_cycles - late.total_cycles) <= 2 * CHIP.cost.issue_cycles
    assert sum(early.critical_parts.values()) == early.total_cycles
    [spans] = early.spans
    assert (spans.end_cycles[1] >= spans.end_cycles[4]).all()  # rows in program order: the wait ends behind the copy


def test_rows_of_findings_are_those_of_the_program():
    """Behind the wait comes a race, reported with the numbers that the rows have in the program."""
    racing = (*EARLY[:4], load(0), set_flag(*TO_V), load(1, 128), hand(Pipe.V, Pipe.MTE3), store(1, 128))
    found = run_hazards(vector(racing), CHIP)
    pairs = {frozenset((v.row, v.other_row)) for v in found}
    assert {v.kind for v in found} == {Kind.SYNC_WRITE_HAZARD, Kind.SYNC_READ_HAZARD}
    assert pairs == {frozenset((3, 6)), frozenset((6, 9))}


def test_deadlock_of_two_pipes_is_one_finding():
    # each pipe waits for what the other sets behind its own wait
    program = (fill(1), wait_flag(*TO_V), set_flag(*BACK), wait_flag(*BACK), load(0), set_flag(*TO_V), add(0, 0, 0))
    [found] = run_hazards(vector(program), CHIP)
    assert (found.kind, found.row, found.other_row) == (Kind.SYNC_UNPAIRED, 1, 3)
    assert found.detail == (
        "Deadlock: row 1 WaitFlag<MTE2_V>(0) (k.py:0), which waits for row 3 WaitFlag<V_MTE2>(0) (k.py:0), which waits "
        "for the first, for ever"
    )
    with pytest.raises(ProgramError, match="Deadlock: row 1 WaitFlag<MTE2_V>") as caught:
        run_timeline(vector(program), CHIP)
    assert len(caught.value.violations) == 1


def test_issue_stops_at_waits_of_the_scalar_unit_at_barriers_and_full_queues():
    held = wait_flag(*TO_V)
    ending = (load(0), set_flag(*TO_V))
    for between in (
        (barrier(Pipe.ALL),),
        (set_flag(Pipe.V, Pipe.S), wait_flag(Pipe.V, Pipe.S)),
        (fill(1),) * DEPTH,
    ):
        found = run_hazards(vector((held, *between, *ending)), CHIP)
        assert [v.kind for v in found] == [Kind.SYNC_UNPAIRED], between
        assert found[0].detail.startswith("Deadlock: row 0 WaitFlag<MTE2_V>(0)")
    assert run_hazards(vector((held, *(fill(1),) * (DEPTH - 1), *ending)), CHIP) == []


def test_wait_that_nothing_answers_is_found_with_what_it_breaks():
    program = (wait_flag(*TO_V), load(0), add(64, 0, 0))
    found = run_hazards(vector(program), CHIP)
    assert [(v.kind, v.row) for v in found] == [(Kind.SYNC_UNPAIRED, 0), (Kind.SYNC_READ_HAZARD, 2)]
    assert "which no earlier set leaves set" in found[0].detail
    with pytest.raises(ProgramError, match="must follow its SetFlag"):
        run_timeline(vector(program), CHIP)


@pytest.mark.parametrize("chunk_rows", [1, 3, 64])
def test_rows_may_come_in_pieces(chunk_rows):
    launch = vector(EARLY)
    assert run_hazards(launch, CHIP, chunk_rows=chunk_rows) == []


def test_two_copies_to_common_bytes_need_a_barrier_of_their_pipe():
    # npu_sim knows which pipes complete in order: MTE2 and MTE3 of a split core do not
    fills = (fill(1), fill(2, 64), hand(Pipe.V, Pipe.MTE3))
    back = (hand(Pipe.MTE2, Pipe.MTE3), store(1))
    for pipe, before, first, second, end in (
        (Pipe.MTE2, (), load(0), load(2), back), (Pipe.MTE3, fills, store(3), store(3, 64), ()),
    ):  # fmt: skip
        found = run_hazards(vector((*before, first, second, *end)), CHIP)
        assert [v.kind for v in found] == [Kind.BARRIER_WRITE]
        assert run_hazards(vector((*before, first, barrier(pipe), second, *end)), CHIP) == []
    apart = (load(0), load(2, 32), *back)
    assert run_hazards(vector(apart), CHIP) == []
    [twice] = run_hazards(vector((*fills, store(3), store(3))), CHIP)  # what both leave there is the same
    assert (twice.kind, twice.severity) == (Kind.WRITES_THE_SAME, "advice")
