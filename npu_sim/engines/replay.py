"""Rows that many cores ran in turns, as steps of one: to run them again, with other data.

Each core has buffers of its own, which are poison before its first row. What its rows touch is known, so the buffers of
one core do for all: before a core's turn they get poison there and what it left in them, if it had a turn before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from npu_sim._jit import JIT_ENABLED
from npu_sim.engines.kit import KITS, RUNS
from npu_sim.engines.replay_jit import MOST_STEPS, STEP_FIELDS, plan_steps, run_steps
from npu_sim.fenv import default_fenv
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.dispatch import compiled_for
from npu_sim.isa.footprint import RUN_CAPACITY
from npu_sim.products import CoreSpec
from npu_sim.units import MIB

_MOST_ASIDE = 8 * MIB
"""Bytes that cores leave from turn to turn, all together."""
_NO_RUNS, _NO_BYTES = np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Turn:
    """Rows that a core runs before another does: those from ``first`` to before ``last``."""

    core: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Rows and what is to be done with them.

    Attributes
    ----------
    rows : INSTR[n]
        That went through `isa.issue`.
    steps : int64[m, STEP_FIELDS]
        See `replay_jit`.
    aside : int
        Bytes that are put aside.
    """

    rows: np.ndarray
    steps: npt.NDArray[np.int64]
    aside: int

    @classmethod
    def of(cls, rows: np.ndarray, turns: Sequence[Turn]) -> Replay | None:
        """Return rows of cores in their turns as steps; None where a row's bytes are not known, or too many are left.

        Parameters
        ----------
        rows : INSTR[n]
            That went through `isa.issue`, and ran.
        turns : sequence of Turn
            One behind the other they are all rows.
        """
        if not JIT_ENABLED:
            return None
        joined = np.array([(turn.core, turn.first, turn.last) for turn in _joined(turns)], np.int64).reshape(-1, 3)
        steps = np.empty((len(joined) * MOST_STEPS, STEP_FIELDS), np.int64)
        runs = RUNS.take(RUN_CAPACITY)
        count, aside = map(int, plan_steps(rows, joined, _MOST_ASIDE, runs, steps))
        RUNS.give_back(RUN_CAPACITY, runs)
        return None if count < 0 else cls(rows, steps[:count].copy(), aside)

    @property
    def byte_count(self) -> int:
        """What this takes."""
        return int(self.rows.nbytes + self.steps.nbytes)

    @default_fenv
    def run(self, gm: npt.NDArray[np.uint8], core: CoreSpec, config: npt.NDArray[np.int64]) -> int:
        """Run the rows, and return the first that cannot be carried out with the data that there is, or -1.

        That is so where a row depends on data (the offsets of a Gather); none behind it runs then.

        Parameters
        ----------
        gm : uint8[:]
            Memory with the addresses of the rows.
        core : CoreSpec
            Which the rows ran on.
        config : int64[CONFIG_LENGTH]
            Numerics (`execute_options.configuration`).
        """
        sink = np.zeros(SINK_LENGTH, np.int64)
        sink[3] = config[3]
        aside, compiled = np.empty(self.aside, np.uint8), compiled_for(config)
        kit = KITS.take(core)
        parts = (
            gm,
            *kit.memory.buffers,
            config,
            kit.scratch,
            kit.staging,
            sink,
            _NO_RUNS,
            _NO_BYTES,
            compiled.addresses,
        )
        step, row, bad = 0, -1, -1
        while step < len(self.steps):
            step, end = map(int, run_steps(self.steps, step, row, aside, self.rows, parts))
            if step < len(self.steps):
                row = -1 - end
                if row < 0:
                    bad = end
                    break
                compiled.provide(int(self.rows["op"][row]))
        KITS.give_back(core, kit)
        return bad


def _joined(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns without empty ones, and those of one core that follow each other as one."""
    joined: list[Turn] = []
    for turn in turns:
        if turn.first == turn.last:
            continue
        if joined and joined[-1].core == turn.core:
            joined[-1] = Turn(turn.core, joined[-1].first, turn.last)
        else:
            joined.append(turn)
    assert all(one.last == other.first for one, other in pairwise(joined))
    return joined
