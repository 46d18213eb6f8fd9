"""The rows of launches, core by core and phase by phase, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from npu_sim.budget import reserve
from npu_sim.engines.execute_turns import core_sequence
from npu_sim.engines.turns import run_by_turns
from npu_sim.errors import ProgramError
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import ROW_BYTES, empty_rows, join_rows
from npu_sim.program.cross_core import CrossCoreFlags
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.recorded import rows_of

_ROOM = 512
"""Rows of a core that are emitted at a time where cores run by turns."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The issued rows of one core and phase, or some of them where cores run by turns (`Launch.by_turns`).

    ``first`` is the number of the first one in the core's program.
    """

    launch: int
    phase: int
    core: int
    first: int
    rows: np.ndarray


def parts_of(launches: Sequence[Launch], core_order: int | None) -> Iterator[Part]:
    """Yield the parts of launches in stream order, those without rows too.

    Parameters
    ----------
    launches : sequence of Launch
    core_order : int or None
        See `ExecuteOptions`.

    Raises
    ------
    ProgramError
        Cores wait for each other for ever.
    """
    for number, launch in enumerate(launches):
        if launch.by_turns:
            yield from _turns_of(number, launch, core_order)
            continue
        done = dict.fromkeys(range(launch.core_count), 0)
        states = {core: np.zeros(CORE_STATE_LENGTH, np.int64) for core in done}
        for phase in range(launch.phase_count):
            for core in core_sequence(launch.core_count, phase, core_order):
                rows = rows_of(launch, core, phase)
                reserve("Rows of a core", 2 * len(rows) * ROW_BYTES)
                if not launch.keeps_cores:
                    states[core][:] = 0
                issue(rows, len(rows), states[core])
                yield Part(number, phase, core, done[core], rows)
                done[core] += len(rows)


class _Turn:
    """What `run_by_turns` asks for here: the rows, in the order in which they run."""

    def __init__(self, launch: int, phase: int) -> None:
        self._launch, self._phase = launch, phase
        self.parts: list[Part] = []

    def turn(self, core: int) -> None:
        """Go to a core."""

    def run(self, core: int, rows: np.ndarray, number: int) -> None:
        """Keep rows."""
        reserve("Rows of a launch", sum(part.rows.nbytes for part in self.parts) + rows.nbytes)
        self.parts.append(Part(self._launch, self._phase, core, number, join_rows([rows])))

    def set(self, core: int, row: np.ndarray, number: int) -> None:
        """Keep the row of a flag."""
        self.run(core, row, number)

    def wait(self, core: int, row: np.ndarray, number: int, tokens: Sequence[None]) -> None:
        """Keep the row of a flag."""
        self.run(core, row, number)


def _turns_of(number: int, launch: Launch, core_order: int | None) -> Iterator[Part]:
    """Yield the parts of a launch whose cores run by turns."""
    flags, row_counts = CrossCoreFlags(launch), dict[int, int]()
    states = np.zeros((launch.core_count, CORE_STATE_LENGTH), np.int64)
    for phase in range(launch.phase_count):
        driver = _Turn(number, phase)

        def chunks(core: int, phase: int = phase) -> Iterator[np.ndarray]:
            return issued_chunks(launch, core, phase, empty_rows(max(_ROOM, launch.step_rows)), states[core])

        cores = core_sequence(launch.core_count, phase, core_order)
        found, _ = run_by_turns(cores, chunks, flags, driver, row_counts)
        if found:
            raise ProgramError(found[-1:])
        yield from driver.parts
