"""The rows of launches, core by core and phase by phase, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from npu_sim.budget import reserve
from npu_sim.engines.execute import core_sequence
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import ROW_BYTES
from npu_sim.program.launch import Launch
from npu_sim.program.recorded import rows_of


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The issued rows of one core and phase; ``first`` is the number of the first one in the core's program."""

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
    """
    for number, launch in enumerate(launches):
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
