"""Host threads that outlive a call: every part runs, errors arrive, calls beside each other and forks do not hang."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from npu_sim import crew
from npu_sim.crew import run_parts


def meet(count: int, seen: list[int]) -> None:
    """Run ``count`` parts that end only when all of them run at once."""
    barrier = threading.Barrier(count)

    def part(number: int) -> None:
        barrier.wait(timeout=20)
        seen.append(number)

    run_parts(part, count)


@pytest.mark.parametrize("count", [1, 2, 5, 3])
def test_every_part_runs_once_and_all_at_the_same_time(count):
    seen: list[int] = []
    meet(count, seen)
    assert sorted(seen) == list(range(count))


def test_first_part_runs_on_the_calling_thread():
    where = {}
    run_parts(lambda part: where.__setitem__(part, threading.current_thread()), 3)
    assert where[0] is threading.current_thread()
    assert where[1] is not where[0]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_error_of_a_part_arrives_after_all_have_ended(bad):
    ended = []

    def part(number: int) -> None:
        ended.append(number)
        if number == bad:
            raise ValueError(f"part {number}")

    with pytest.raises(ValueError, match=f"^part {bad}$"):
        run_parts(part, 3)
    assert sorted(ended) == [0, 1, 2]


def test_calls_beside_each_other_end_although_their_parts_wait_for_each_other():
    with ThreadPoolExecutor(6) as callers:
        jobs = [callers.submit(meet, count, []) for count in [2, 4, 3, 2, 5, 4] * 5]
        for job in jobs:
            job.result(timeout=60)


def _child(connection) -> None:
    seen: list[int] = []
    meet(3, seen)
    connection.send(sorted(seen))


@pytest.mark.skipif(sys.platform != "linux", reason="fork is the default start method nowhere else")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_child_has_threads_of_its_own():
    meet(3, [])
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs,))
    child.start()
    assert ours.poll(20)
    assert ours.recv() == [0, 1, 2]
    child.join(timeout=20)
    assert child.exitcode == 0


def test_pool_grows_for_a_call_of_one_more_part(monkeypatch):
    monkeypatch.setattr(crew, "_CREW", crew._Crew())
    for count in (2, 3, 4):
        seen: list[int] = []
        meet(count, seen)
        assert sorted(seen) == list(range(count))


def test_lowest_of_several_failing_parts_decides_the_error():
    def part(number: int) -> None:
        if number:
            raise ValueError(f"part {number}")

    for _ in range(5):
        with pytest.raises(ValueError, match=r"^part 1$"):
            run_parts(part, 4)
