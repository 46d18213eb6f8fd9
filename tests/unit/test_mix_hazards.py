"""Order between cores that run by turns, against brute force; buffers, flags and deadlocks of mixed launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines.hazards import run_hazards
from npu_sim.isa.op import Op, Pipe
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.program.violation import Kind
from tests.oracles import cross_core as brute
from tests.unit.mix_launches import (
    fill,
    hand,
    load,
    load_l1,
    mixed,
    posts,
    relay,
    replay,
    sees,
    sets,
    store,
    store_l1,
    waits,
)

CHIP = get_product("910b")
SYNC = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)


def random_core(rng, is_cube, length, sync, places=3, patience=0.4, polled=None):
    """Return writers of a core: loads and stores of few blocks, hand-overs between its pipes, flags between cores.

    ``polled``: (own word, words) that cores poll instead of waiting for flags.
    """
    made = []
    for _ in range(length):
        if rng.random() < sync and polled:
            pipe = [Pipe.S, Pipe.MTE2, Pipe.MTE3][int(rng.integers(3))]
            word, count = int(rng.integers(polled[1])), 1 + int(rng.random() < 0.1)
            made.append(sees(word, count) if rng.random() < patience / 2 else posts(polled[0], pipe))
        elif rng.random() < sync:
            flag = int(rng.integers(2))
            mode = int(rng.choice([0, 2, 3] if is_cube else [0, 1, 2, 3]))
            pipe = [Pipe.MTE2, Pipe.MTE3][int(rng.integers(2))]
            made.append(waits(flag) if rng.random() < patience else sets(mode, flag, pipe))
        elif rng.random() < 0.3:
            pipes = [Pipe.MTE2, Pipe.MTE3] if not polled or rng.random() < 0.5 else [Pipe.S, Pipe.MTE3]
            made.append(hand(*(pipes if rng.random() < 0.5 else pipes[::-1])))
        else:
            block, at = int(rng.integers(places)), 32 * int(rng.integers(places))
            moves = (load_l1, store_l1) if is_cube else (load, store)
            made.append(moves[int(rng.integers(2))](block, at))
    return made


def rows_of(writers):
    rows, n = empty_rows(2 * len(writers) + 1), 0
    for writer in writers:
        n = writer(rows, n)
    return rows[:n]


def found_pairs(launch):
    kinds = (*SYNC, Kind.BARRIER_READ, Kind.BARRIER_WRITE)
    found = [v for v in run_hazards(launch, CHIP) if v.kind in kinds]
    between = {frozenset(((v.core, v.row), (v.other_core if v.other_core >= 0 else v.core, v.other_row)))
               for v in found if v.kind in SYNC}  # fmt: skip
    return between


@pytest.mark.parametrize("polls", [False, True], ids=["flags", "words"])
def test_races_between_cores_are_those_of_brute_force(polls):
    rng = np.random.default_rng(5)
    clean, racing, missed = 0, 0, 0
    for _ in range(400):
        blocks, vectors = int(rng.integers(1, 3)), int(rng.integers(1, 3))
        cores = blocks * (1 + vectors)
        sync, places = float(rng.choice([0.2, 0.6])), int(rng.choice([3, 6, 40]))
        programs = [
            rows_of(
                random_core(
                    rng, core < blocks, int(rng.integers(2, 9)), sync, places, polled=(core, cores) if polls else None
                )
            )
            for core in range(cores)
        ]
        before = brute.order(programs, blocks, vectors)
        if before is None:
            continue
        expected = brute.conflicts(programs, blocks, vectors, before)
        found = found_pairs(replay(programs, vectors=vectors))
        assert found <= expected
        missed += bool(expected) and not found
        clean, racing = clean + (not expected), racing + bool(expected)
    assert min(clean - 20, racing - 40) > 0
    assert missed == 0


@pytest.mark.parametrize("polls", [False, True], ids=["flags", "words"])
def test_deadlocks_are_those_of_brute_force(polls):
    rng = np.random.default_rng(7)
    outcomes = [0, 0]
    for _ in range(150):
        programs = [
            rows_of(random_core(rng, core < 1, 6, 0.7, patience=0.15, polled=(core, 3) if polls else None))
            for core in range(3)
        ]
        is_stuck = brute.order(programs, 1, 2) is None
        said = [v for v in run_hazards(replay(programs), CHIP) if v.detail.startswith("Deadlock")]
        assert len(said) == is_stuck
        outcomes[is_stuck] += 1
    assert min(outcomes) > 10


@pytest.mark.parametrize("vectors", [1, 2])
def test_kernel_that_hands_blocks_over_has_no_finding(vectors):
    launch = mixed(relay(3, vectors=vectors), vectors=vectors, chunk=3)
    assert run_hazards(launch, CHIP) == []


def without(program, core, at):
    """Return the program with one row of a core made a NOP."""

    def kernel(own, phase):
        writers = program(own, phase)
        if own == core:

            def drop(rows, n, writer=writers[at]):
                end = writer(rows, n)
                rows["op"][end - 1] = Op.NOP
                return end

            writers[at] = drop
        return writers

    return kernel


def test_every_flag_between_cores_that_is_dropped_is_noticed():
    base = relay(2)
    for core in range(6):
        for at, writer in enumerate(base(core, 0)):
            rows = rows_of([writer])
            if rows["op"][-1] in (Op.CROSS_CORE_SET_FLAG, Op.CROSS_CORE_WAIT_FLAG):
                found = run_hazards(mixed(without(base, core, at)), CHIP)
                assert {v.kind for v in found} & {*SYNC, Kind.SYNC_UNPAIRED}, (core, at)


def test_deadlock_is_one_finding():
    def program(core, phase):
        if core:
            return [fill(1), hand(Pipe.V, Pipe.MTE3), store(core), waits(2, site=11), sets(2, 1)]
        return [waits(1, site=12), sets(2, 2)]

    launch = mixed(program, blocks=1, vectors=1)
    [found] = run_hazards(launch, CHIP)
    assert found.detail.startswith("Deadlock: core 0 (cube) row 0 CrossCoreWaitFlag(1) (mix.py:12), which waits for")
    # no second launch begins, and what is not written because of it is no finding
    assert len(run_hazards([launch, replace(launch, name="next")], CHIP)) == 1


def test_flags_that_nobody_waits_for_are_found():
    [found] = run_hazards(mixed(lambda core, phase: [sets(2, 3)] if core == 0 else [], blocks=1, vectors=1), CHIP)
    assert (found.kind, found.core, found.other_core) == (Kind.SYNC_UNPAIRED, 0, 1)
    program = {1: [sets(2, 3)]}
    [found] = run_hazards(mixed(lambda core, phase: program.get(core, []), blocks=1, vectors=2), CHIP)
    assert (found.kind, found.core) == (Kind.SYNC_UNPAIRED, 1)
    assert "must be set by core 2 too" in found.detail


def test_each_core_has_the_rows_of_its_kind():
    program = {0: [load(0)], 1: [load_l1(0)], 2: [load(0)]}
    found = run_hazards(mixed(lambda core, phase: program[core], blocks=1), CHIP)
    assert [(v.kind, v.core) for v in found] == [(Kind.UNSUPPORTED, 0), (Kind.UNSUPPORTED, 1)]


def test_flags_between_cores_want_a_launch_that_crosses():
    launch = mixed(lambda core, phase: [sets(0, 1), waits(1)], blocks=2, vectors=0)
    assert {v.kind for v in run_hazards(launch, CHIP)} == {Kind.UNSUPPORTED}
    assert run_hazards(replace(launch, crosses=True), CHIP) == []


def test_numbers_of_rows_count_through_turns_and_phases():
    def program(core, phase):
        return [waits(1), load(0), store(1)] if core else [hand(Pipe.MTE2, Pipe.MTE3), sets(2, 1)]

    found = run_hazards(mixed(program, blocks=1, vectors=1, phases=2), CHIP)
    assert [(v.core, v.row, v.other_row) for v in found if v.kind in SYNC] == [(1, 2, 1), (1, 5, 4)]
