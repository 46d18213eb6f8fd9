"""In which order the cores of a phase add to GM, whoever runs them and when.

A core whose turn it is adds at once, one that runs ahead writes a log that is applied when its turn has come: when all
cores before it that add to the same bytes are finished.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npu_sim.isa.atomic import SINK_LENGTH, apply_log
from npu_sim.isa.gm_extent import atomic_demand

_LOG_LIMIT_BYTES = 32 << 20
"""A core that runs ahead waits for its turn rather than have this and the logs that wait for theirs grow further."""


class Log:
    """Atomic additions of a core that ran ahead."""

    def __init__(self, saturate: int) -> None:
        self.sink = np.zeros(SINK_LENGTH, np.int64)
        self.sink[3] = saturate
        self.runs = np.zeros((0, 4), np.int64)
        self.data = np.zeros(0, np.uint8)

    def reserve(self, runs: int, byte_count: int) -> None:
        """Make room for that many more runs and bytes."""
        want_runs, want_bytes = int(self.sink[1]) + runs, int(self.sink[2]) + byte_count
        if want_runs > len(self.runs):
            grown = np.empty((max(want_runs, 2 * len(self.runs), 256), 4), np.int64)
            grown[: len(self.runs)] = self.runs
            self.runs = grown
        if want_bytes > len(self.data):
            data = np.empty(max(want_bytes, len(self.data) * 3 // 2, 1 << 16), np.uint8)
            data[: len(self.data)] = self.data
            self.data = data


def core_sequence(core_count: int, phase: int, core_order: int | None) -> list[int]:
    """Return the cores of a phase in the order in which they add to GM, see `ExecuteOptions.core_order`."""
    if core_order is None:
        return list(range(core_count))
    # NumPy keeps the words of a bit generator from version to version (NEP 19), but not how it shuffles
    words = np.random.PCG64([core_order, phase]).random_raw(core_count)
    return np.argsort(words, kind="stable").tolist()


class Turns:
    """Who may add to GM: cores that no unfinished one has to be before; finished ones leave their log here.

    A core is known by its place in the `core_sequence` of the phase.
    """

    def __init__(self, gm: npt.NDArray[np.uint8], before: Sequence[Sequence[int]], alone: bool) -> None:
        self.gm, self.alone = gm, alone
        """The arena of the run, and whether one thread runs all cores: in their order, so that each has its turn."""
        self._before = before
        self._condition = threading.Condition()
        self._is_applied = [False] * len(before)
        self._left: dict[int, Log] = {}
        self._spare: Log | None = None
        self._failed = False
        self.held_bytes = 0
        """Bytes in the logs of finished cores whose turn has not come."""

    def is_turn(self, place: int) -> bool:
        """Return whether all cores that have to be before the one at ``place`` are finished and applied."""
        return all(self._is_applied[before] for before in self._before[place])

    def wait(self, place: int) -> None:
        """Block until it is the turn of the core at ``place`` (or another core failed)."""
        with self._condition:
            self._condition.wait_for(lambda: self.is_turn(place) or self._failed)

    def finish(self, place: int, log: Log) -> Log | None:
        """Record that the core at ``place`` is done and apply every log whose turn has come.

        Returns
        -------
        Log or None
            An empty log for the caller's next core, None if there is none to spare.
        """
        if self.alone:
            return log
        with self._condition:
            if not self.is_turn(place):
                self._left[place] = log
                self.held_bytes += len(log.data)
                spare, self._spare = self._spare, None
                return spare
            self._apply(place, log)
            # in ascending order: those that one has to wait for come before it
            for waiting in sorted(self._left):
                if self.is_turn(waiting):
                    left = self._left.pop(waiting)
                    self.held_bytes -= len(left.data)
                    self._apply(waiting, left)
                    self._spare = left
            self._condition.notify_all()
            return log

    def fail(self) -> None:
        """Wake every waiting core so that the pool can end."""
        with self._condition:
            self._failed = True
            self._condition.notify_all()

    def _apply(self, place: int, log: Log) -> None:
        apply_log(self.gm, log.runs, log.data, log.sink)
        self._is_applied[place] = True


def take_turn(place: int, rows: np.ndarray, log: Log, turns: Turns, gm: np.ndarray) -> None:
    """Let a core's next ``rows`` add to GM if it is the turn of its place, else to its log, which gets room."""
    if turns.alone:
        log.sink[0] = 0
        return
    demand = np.zeros(2, np.int64)
    atomic_demand(rows, len(rows), demand)
    if not turns.is_turn(place) and turns.held_bytes + log.sink[2] + demand[1] > _LOG_LIMIT_BYTES:
        turns.wait(place)
    if turns.is_turn(place):
        apply_log(gm, log.runs, log.data, log.sink)
        log.sink[0] = 0
    else:
        log.sink[0] = 1
        log.reserve(int(demand[0]), int(demand[1]))


class Phase:
    """The cores of one phase that nobody has taken yet, and their turns."""

    def __init__(
        self, arena: npt.NDArray[np.uint8], cores: Sequence[int], before: Sequence[Sequence[int]], alone: bool
    ) -> None:
        self.turns = Turns(arena, before, alone)
        self._cores = enumerate(cores)
        self._take = threading.Lock()

    def take(self) -> tuple[int, int] | None:
        """Return place and number of the first core that nobody runs, None if there is none left."""
        with self._take:
            return next(self._cores, None)
