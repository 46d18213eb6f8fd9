"""The bytes that rows of a program touch, for what leads a finding back to a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.isa.footprint import READ, empty_runs, footprint_at
from npu_sim.isa.op import by_opcode

REACH = 2048
"""Rows before and behind a finding that are looked at, and rows of a core that leave a result unread."""
_DOES_WORK = by_opcode(lambda instruction: bool(instruction.routes), dtype=np.bool_)

Runs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LikelyRow:
    """A row of a core and what it has to do with a finding."""

    core: int
    row: int
    words: str


def working_rows(rows: np.ndarray) -> npt.NDArray[np.int64]:
    """Return the rows that touch bytes."""
    return np.flatnonzero(_DOES_WORK[rows["op"]])


def touched_by(rows: np.ndarray, at: int) -> list[list[int]]:
    """Return the runs of a row (`npu_sim.isa.footprint`), none if it has no footprint."""
    return runs_of(rows, at).tolist()


def runs_of(rows: np.ndarray, at: int) -> Runs:
    """Return the runs of a row, valid until the next call."""
    count = int(footprint_at(rows, at, _RUNS))
    found: Runs = _RUNS[: max(count, 0)]
    return found


_RUNS = empty_runs()


def end_of(runs: Runs, space: int, at: int) -> int:
    """Return the highest end of bytes in a space that runs write, at or below an address; -1: none."""
    own = runs[(runs[:, 0] == space) & (runs[:, 1] != READ)]
    first = own[:, 2] + own[:, 3]
    whole = np.clip((at - first) // np.maximum(own[:, 5], 1), 0, own[:, 4] - 1)
    ends = (first + whole * own[:, 5])[first <= at]
    return int(ends.max()) if len(ends) else -1


def overlapping(rows: np.ndarray, numbers: Iterable[int], wanted: Runs) -> int:
    """Return the first of some rows that shares bytes with runs of which one of the two writes, -1: none."""
    for number in numbers:
        for space, access, start, length, repeats, step in touched_by(rows, number):
            end = start + length + (repeats - 1) * step
            ends = wanted[:, 2] + wanted[:, 3] + (wanted[:, 4] - 1) * wanted[:, 5]
            shared = (wanted[:, 0] == space) & (wanted[:, 2] < end) & (start < ends)
            if (shared & ((wanted[:, 1] != READ) | (access != READ))).any():
                return number
    return -1
