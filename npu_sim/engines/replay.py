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
from npu_sim.engines.replay_jit import LEAVE, POISON, RUN, STEP_FIELDS, TAKE, run_steps
from npu_sim.fenv import default_fenv
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.codes import ON_CHIP, SPACES, Space
from npu_sim.isa.dispatch import compiled_for
from npu_sim.isa.footprint import RUN_CAPACITY, reach
from npu_sim.isa.l0_bytes import KEPT
from npu_sim.isa.mte import FRACTAL
from npu_sim.products import CoreSpec
from npu_sim.units import MIB, ceil_div

_MOST_ASIDE = 8 * MIB
"""Bytes that cores leave from turn to turn, all together."""
_NO_RUNS, _NO_BYTES = np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)

_Places = npt.NDArray[np.int64]
"""int64[SPACES, 2]: first byte and the one behind the last in each buffer as the host has it; equal for none."""


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
        turns = _joined(turns)
        last_turn = {turn.core: number for number, turn in enumerate(turns)}
        steps: list[tuple[int, int, int, int, int]] = []
        before: dict[int, tuple[_Places, _Places]] = {}
        aside = 0
        for number, turn in enumerate(turns):
            touched = _touched(rows[turn.first : turn.last])
            if touched is None:
                return None
            left, at = before.get(turn.core, (np.zeros_like(touched), np.zeros(SPACES, np.int64)))
            touched = _hull(touched, left)
            steps += [(POISON, space, *touched[space].tolist(), 0) for space in _spaces(touched)]
            steps += [(TAKE, space, *left[space].tolist(), int(at[space])) for space in _spaces(left)]
            steps += [(RUN, 0, turn.first, turn.last, 0)]
            if last_turn[turn.core] > number:
                sizes = touched[:, 1] - touched[:, 0]
                at = aside + np.cumsum(sizes) - sizes
                aside += int(sizes.sum())
                if aside > _MOST_ASIDE:
                    return None
                steps += [(LEAVE, space, *touched[space].tolist(), int(at[space])) for space in _spaces(touched)]
                before[turn.core] = touched, at
        return cls(rows, np.array(steps, np.int64).reshape(-1, STEP_FIELDS), aside)

    @property
    def byte_count(self) -> int:
        """What this takes."""
        return int(self.rows.nbytes + self.steps.nbytes)

    @default_fenv
    def run(self, gm: npt.NDArray[np.uint8], core: CoreSpec, config: npt.NDArray[np.int64]) -> bool:
        """Run the rows, and return whether all could be carried out: some depend on data (the offsets of a Gather).

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
        step, row = 0, -1
        while step < len(self.steps):
            step, end = map(int, run_steps(self.steps, step, row, aside, self.rows, parts))
            if step < len(self.steps):
                row = -1 - end
                if row < 0:
                    break
                compiled.provide(int(self.rows["op"][row]))
        KITS.give_back(core, kit)
        return step == len(self.steps)


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


def _touched(rows: np.ndarray) -> _Places | None:
    """Return which bytes of the buffers rows touch; None where that is not known."""
    ends, runs = np.zeros((len(rows), SPACES, 2), np.int64), RUNS.take(RUN_CAPACITY)
    reach(rows, runs, ends)
    RUNS.give_back(RUN_CAPACITY, runs)
    if (ends[:, 0] < 0).any():
        return None
    is_there = ends[..., 0] != ends[..., 1]
    places = np.zeros((SPACES, 2), np.int64)
    for space in ON_CHIP:
        own = ends[is_there[:, space], space]
        if len(own):
            low, high = int(own[:, 0].min()), int(own[:, 1].max())
            if space in (Space.L0A, Space.L0B):  # whole fractals, as carriers
                low = low // int(FRACTAL) * KEPT
                high = ceil_div(high, int(FRACTAL)) * KEPT
            places[space] = low, high
    return places


def _hull(one: _Places, other: _Places) -> _Places:
    """Return the bytes from the first of either to the last."""
    both = np.stack([np.minimum(one[:, 0], other[:, 0]), np.maximum(one[:, 1], other[:, 1])], 1)
    both = np.where((one[:, :1] == one[:, 1:]), other, both)
    hull: _Places = np.where((other[:, :1] == other[:, 1:]), one, both)
    return hull


def _spaces(places: _Places) -> list[int]:
    return np.flatnonzero(places[:, 0] != places[:, 1]).tolist()
