"""Cores that run by turns: each until it waits for a flag of another core that is not set (`Launch.by_turns`).

The order is always the same: a core goes on as far as it can, those whose flag was set stand behind the others. Behind
a flag of all cores of a kind, which is a SyncAll, all that can go on do so in the order of their numbers, as they
began. What an engine does with the rows is its own (`Driver`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from npu_sim.isa.row import join_rows
from npu_sim.program.cross_core import SETS, CrossCoreFlags, Mark, Waiting, is_cross_core, is_for_all
from npu_sim.program.violation import Violation


class Driver(Protocol):
    """What an engine does, in the order in which it is called."""

    def turn(self, core: int) -> None:
        """Go to ``core``; its rows follow."""

    def run(self, core: int, rows: np.ndarray, number: int) -> None:
        """Take rows without flags of other cores; ``number`` is that of the first in the core's program."""

    def set(self, core: int, row: np.ndarray, number: int) -> Any:
        """Take a CrossCoreSetFlag or SetSignal, INSTR[1]; return what whoever waits for it is given."""

    def wait(self, core: int, row: np.ndarray, number: int, tokens: Sequence[Any]) -> None:
        """Take a CrossCoreWaitFlag or WaitSignal, INSTR[1], which is over; ``tokens`` of the sets that answered it."""


class _Core:
    """A core that has not ended: its generator, and the rows that it waits in."""

    def __init__(self, number: int, chunks: Iterator[np.ndarray], done: int) -> None:
        self.number, self._chunks, self.done = number, chunks, done
        self.rows: np.ndarray | None = None
        self.at = 0
        self._crossings: list[int] = []

    def more(self) -> bool:
        """Ask for the next rows when there are none left; return whether there are any."""
        while self.rows is None or self.at == len(self.rows):
            if self.rows is not None:
                self.done += len(self.rows)
            self.rows, self.at = next(self._chunks, None), 0
            if self.rows is None:
                return False
            self._crossings = np.flatnonzero(is_cross_core(self.rows)).tolist()
        return True

    def stretch(self) -> np.ndarray:
        """Return the rows up to the next flag of other cores."""
        assert self.rows is not None
        end = next((at for at in self._crossings if at >= self.at), len(self.rows))
        return self.rows[self.at : end]


def run_by_turns(
    cores: Iterable[int],
    chunks: Callable[[int], Iterator[np.ndarray]],
    flags: CrossCoreFlags,
    driver: Driver,
    row_counts: dict[int, int],
) -> tuple[list[Violation], bool]:
    """Run the cores of a phase to their ends.

    Parameters
    ----------
    cores : iterable of int
        In the order in which they begin.
    chunks : callable
        Return the issued rows of a core, as views that are valid until the next one is asked for.
    flags : CrossCoreFlags
        Carried from phase to phase.
    driver : Driver
    row_counts : dict of int to int
        Rows of each core in earlier phases; those of this one are added.

    Returns
    -------
    (list of Violation, bool)
        What is wrong with flags between the cores, and whether the last of it is a deadlock: then the cores stand where
        they wait.
    """
    found: list[Violation] = []
    ready = deque(_Core(core, chunks(core), row_counts.get(core, 0)) for core in cores)
    held: dict[int, tuple[_Core, Waiting]] = {}
    while ready:
        core = ready.popleft()
        driver.turn(core.number)
        while core.more():
            assert core.rows is not None
            stretch = core.stretch()
            if len(stretch):
                driver.run(core.number, stretch, core.done + core.at)
                core.at += len(stretch)
                continue
            number, row = core.done + core.at, join_rows([core.rows[core.at : core.at + 1]])
            if row["op"][0] in SETS:
                found += flags.set(Mark(core.number, number, row[0], driver.set(core.number, row, number)))
                freed = [other for other, (_, one) in held.items() if flags.has(other, one.row)]
                ready.extend(held.pop(other)[0] for other in freed)
                if freed and is_for_all(row):
                    core.at += 1
                    ready = deque(sorted((core, *ready), key=lambda one: one.number))
                    break
            else:
                answer = flags.take(core.number, row[0])
                if answer is None:
                    held[core.number] = core, Waiting(core.number, number, row[0])
                    break
                driver.wait(core.number, row, number, [mark.token for mark in answer])
            core.at += 1
        row_counts[core.number] = core.done + core.at * (core.rows is not None)
    if held:
        found.append(flags.deadlock([one for _, one in held.values()]))
    return found, bool(held)
