"""The hazards engine on cores that run by turns (`Launch.by_turns`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from npu_sim.engines import hazards_book as kept
from npu_sim.engines import hazards_jit as jitted
from npu_sim.engines.hazards_checker import Checker
from npu_sim.engines.turns import run_by_turns
from npu_sim.isa.row import empty_rows
from npu_sim.program.cross_core import CrossCoreFlags
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.violation import Violation

_ROOM = 512
"""Rows of a core that are emitted at a time."""

Known = npt.NDArray[np.int64]


class _Turn:
    """What `run_by_turns` asks for here. A flag carries what is complete when it is set (`hazards_book.KNOWN`)."""

    def __init__(self, checker: Checker, number: int, launch: Launch, phase: int) -> None:
        self._checker, self._number, self._launch, self._phase = checker, number, launch, phase
        self._running = False

    def turn(self, core: int) -> None:
        """Put the running core aside and go to ``core``."""
        self.stop()
        self._checker.core_kind = self._launch.kind_of(core)
        self._checker.begin(self._number, self._phase, core)
        self._running = True

    def stop(self) -> None:
        """Put the running core aside."""
        if self._running:
            self._checker.end(is_last=False)
        self._running = False

    def run(self, core: int, rows: np.ndarray, number: int) -> None:
        """Check rows."""
        self._checker.check(rows, len(rows))

    def set(self, core: int, row: np.ndarray, number: int) -> Known:
        """Return what is complete."""
        self._checker.go_on()
        known = np.zeros((self._launch.core_count, kept.PIPES), np.int64)
        pipe = int(row["pipe"][0])
        if pipe < kept.PIPES - 1:
            jitted.knowledge(self._checker.shadow.book, pipe, known)
        self._checker.check(row, 1)
        return known

    def wait(self, core: int, row: np.ndarray, number: int, tokens: Sequence[Known]) -> None:
        """Let the core know what those that set the flag knew."""
        self._checker.go_on()
        for known in tokens:
            jitted.learn(self._checker.shadow.book, known)
        self._checker.check(row, 1)


def check_by_turns(
    checker: Checker, number: int, launch: Launch, core_states: npt.NDArray[np.int64]
) -> tuple[list[Violation], bool]:
    """Check launch ``number`` of the run; ``core_states`` end up as its cores leave them.

    Returns
    -------
    (list of Violation, bool)
        What is wrong with flags between cores, and whether the cores wait for each other for ever: then the launch was
        checked as far as they come.
    """
    checker.turn_cores = launch.core_count
    flags, row_counts, between = CrossCoreFlags(launch), dict[int, int](), list[Violation]()
    is_stuck = False
    for phase in range(launch.phase_count):
        driver = _Turn(checker, number, launch, phase)

        def chunks(core: int, phase: int = phase) -> Iterator[np.ndarray]:
            buffer = empty_rows(max(_ROOM, launch.step_rows))
            return issued_chunks(launch, core, phase, buffer, core_states[core])

        found, is_stuck = run_by_turns(range(launch.core_count), chunks, flags, driver, row_counts)
        driver.stop()
        between += [replace(one, launch=number) for one in found]
        if is_stuck:
            break
    for core in sorted(checker.aside):
        checker.begin(number, launch.phase_count - 1, core)
        checker.end(is_last=not is_stuck)
    checker.turn_cores = 0
    if not is_stuck:
        between += [replace(one, launch=number) for one in flags.left()]
    return between, is_stuck
