"""The timeline of cores that run by turns (`Launch.by_turns`): clocks of each, and flags that carry times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npu_sim.engines.timeline_held import advance_held
from npu_sim.engines.timeline_jit import (
    AT_TIME,
    CLOCK_WORDS,
    FLAG_TIMES,
    FREE,
    OK,
    PARTS,
    WAIT_WITHOUT_SET,
    advance,
    cross_set,
    cross_wait,
    finish,
    reset_clocks,
)
from npu_sim.engines.turns import run_by_turns
from npu_sim.errors import ProgramError
from npu_sim.isa.issue import CORE_STATE_LENGTH
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.program.cross_core import CrossCoreFlags, is_for_all
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.violation import Violation

_ROOM = 512
"""Rows of a core that are emitted at a time."""


class Crossing(NamedTuple):
    """A flag from one core to another: who set it and who waited for it.

    ``row`` and ``wait_row`` are numbers in ``phase`` and ``wait_phase`` of the cores.
    """

    core: int
    phase: int
    row: int
    wait_core: int
    wait_phase: int
    wait_row: int


class Token(NamedTuple):
    """Where a flag was set, and when it arrives in that phase with the parts of that time, int64[1 + PARTS]."""

    core: int
    phase: int
    row: int
    times: npt.NDArray[np.int64]


class TurnClocks:
    """What `run_by_turns` asks for here, for one phase.

    Parameters
    ----------
    launch : Launch
    phase : int
    cost : COST[1]
    cross_core_cycles, barrier_cycles : int
        From the set of a flag to the core that waits; of a flag of all cores, which is a SyncAll.
    violation : callable
        From code, row, number and core to what is wrong.
    """

    def __init__(
        self,
        launch: Launch,
        phase: int,
        cost: np.ndarray,
        cross_core_cycles: int,
        barrier_cycles: int,
        violation: Callable[[int, np.void, int, int], Violation],
    ) -> None:
        self._launch, self._phase, self._cost = launch, phase, cost
        self._cross_core_cycles, self._barrier_cycles, self._violation = cross_core_cycles, barrier_cycles, violation
        self._no_spans = np.zeros((0, 2), np.int64)
        self._shown: frozenset[int] = frozenset()
        self.clocks = np.empty((launch.core_count, CLOCK_WORDS), np.int64)
        self.core_states = np.zeros((launch.core_count, CORE_STATE_LENGTH), np.int64)
        self.kept: dict[int, list[tuple[np.ndarray, npt.NDArray[np.int64]]]] = defaultdict(list)
        self.row_counts: dict[int, int] = {}
        self.crossings: list[Crossing] = []
        self._held: dict[int, tuple[int, list[np.ndarray]]] = {}

    def run_phase(
        self,
        states: npt.NDArray[np.int64],
        shown: frozenset[int],
        flags: CrossCoreFlags,
        row_counts: dict[int, int],
        cores: Iterable[int],
    ) -> None:
        """Time the cores of the phase.

        Parameters
        ----------
        states : int64[cores, CORE_STATE_LENGTH + flags]
            Of each core when the phase begins: its state, and which of its flags are set.
        shown : frozenset of int
            Cores whose rows and spans go to ``kept``.
        flags : CrossCoreFlags
        row_counts : dict of int to int
            Rows of each core in earlier phases.
        cores : iterable of int
            Those that run.

        Raises
        ------
        ProgramError
            As `run_timeline`; also if cores wait for each other for ever.
        """
        self._shown, self._first_rows, self.row_counts = shown, dict(row_counts), row_counts
        for core, state in enumerate(states):
            reset_clocks(self.clocks[core])
            self.core_states[core] = state[:CORE_STATE_LENGTH]
            self.clocks[core][FLAG_TIMES][state[CORE_STATE_LENGTH:] != 0] = 0

        def chunks(core: int) -> Iterator[np.ndarray]:
            buffer = empty_rows(max(_ROOM, self._launch.step_rows))
            return issued_chunks(self._launch, core, self._phase, buffer, self.core_states[core])

        found, _ = run_by_turns(cores, chunks, flags, self, row_counts)
        if found:
            raise ProgramError(found[-1:])
        for core in sorted(self._held):
            self._go_on(core)

    def ends(self) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Return cycles and parts of the critical path of each core."""
        found = []
        for clocks in self.clocks:
            parts = np.zeros(PARTS, np.int64)
            found.append((int(finish(clocks, parts)), parts))
        return found

    def turn(self, core: int) -> None:
        """Go to a core: its clocks are there."""

    def run(self, core: int, rows: np.ndarray, number: int) -> None:
        """Advance the clocks of a core."""
        taken = 0
        if core not in self._held:
            spans = np.zeros((len(rows), 2), np.int64) if core in self._shown else self._no_spans
            code, taken = advance(rows, len(rows), self._cost, self.clocks[core], spans)
            if code not in (OK, WAIT_WITHOUT_SET):
                raise ProgramError([self._violation(code, rows[taken], number + taken, core)])
            if core in self._shown:
                self.kept[core].append((rows[:taken].copy(), spans[:taken]))
        if taken < len(rows):
            self._held.setdefault(core, (number + taken, []))[1].append(rows[taken:].copy())

    def _go_on(self, core: int) -> None:
        """Advance the clocks of a core over what stands behind a wait whose flag was not set."""
        if core in self._held:
            number, parts = self._held.pop(core)
            rows, clocks = join_rows(parts), self.clocks[core]
            spans = advance_held(rows, self._cost, clocks, self._launch, (core, number), self._violation)
            if core in self._shown:
                self.kept[core].append((rows, spans))

    def set(self, core: int, row: np.ndarray, number: int) -> Token:
        """Return when the flag arrives at those who wait."""
        self._go_on(core)
        self.run(core, row, number)
        token = np.zeros(1 + PARTS, np.int64)
        cycles = self._barrier_cycles if is_for_all(row) else self._cross_core_cycles
        cross_set(self.clocks[core], int(row["pipe"][0]), cycles, token)
        return Token(core, self._phase, number - self._first_rows.get(core, 0), token)

    def wait(self, core: int, row: np.ndarray, number: int, tokens: Sequence[Token]) -> None:
        """Let a core wait until the last of the flags arrives; those of earlier phases are there."""
        self._go_on(core)
        clocks = self.clocks[core]
        start = int(clocks[AT_TIME + FREE])
        for token in tokens:
            if token.phase == self._phase:
                cross_wait(clocks, token.times)
            if core in self._shown and token.core in self._shown:
                here = core, self._phase, number - self._first_rows.get(core, 0)
                self.crossings.append(Crossing(token.core, token.phase, token.row, *here))
        self.run(core, row, number)
        if core in self._shown:
            self.kept[core][-1][1][0, 0] = start
