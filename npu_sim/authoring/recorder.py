"""The rows of one core as its kernel's source runs, and where in the source each of them is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.budget import reserve
from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import empty_runs, footprint_at
from npu_sim.isa.row import ROW_BYTES, empty_rows
from npu_sim.program.launch import SourceLine
from npu_sim.program.violation import Violation

_FIRST_CAPACITY = 256
_RUNS = empty_runs(1 << 12)
INSIDE, UNKNOWN = -1, -2
"""What `outside` says of a row all of whose bytes lie in its tensors, and of one without a footprint."""


@jit
def outside(rows: np.ndarray, n: Int, runs: np.ndarray, ranges: np.ndarray) -> Int:
    """Return the number of the first run of row ``n`` that is in none of ``ranges``, `INSIDE` or `UNKNOWN`."""
    count = footprint_at(rows, n, runs)
    if count < 0:
        return np.int64(UNKNOWN)
    for i in range(count):
        space, start = runs[i, 0], runs[i, 2]
        end = start + (runs[i, 4] - 1) * runs[i, 5] + runs[i, 3]
        is_inside = space == Space.IDX  # that of a tensor in L0B which is judged here too
        for k in range(len(ranges)):
            is_inside |= space == ranges[k, 0] and start >= ranges[k, 1] and end <= ranges[k, 2]
        if not is_inside:
            return np.int64(i)
    return np.int64(INSIDE)


class Sites:
    """Numbers of source lines, shared by the cores of a launch."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[CodeType, int], int] = {}

    def number(self, frame: FrameType) -> int:
        """Return the number of the line that a frame is at."""
        key = frame.f_code, frame.f_lineno
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
        return number

    def lines(self) -> dict[int, SourceLine]:
        """Return the lines by their numbers."""
        return {number: line_of(code, line) for (code, line), number in self._numbers.items()}


def line_of(code: CodeType, line: int) -> SourceLine:
    """Return a line as messages show it: with a path below the current directory where it is there."""
    relative = os.path.relpath(code.co_filename) if os.path.isabs(code.co_filename) else code.co_filename
    return SourceLine(code.co_filename if relative.startswith("..") else relative, line, code.co_qualname)


class Recorder:
    """A growing list of rows.

    Attributes
    ----------
    count : int
        Rows so far, through the phases.
    phases : list of int
        Number of the first row of each phase.
    syncs : list of SourceLine
        Where each phase but the first was begun.
    tile : int
        Label of the rows that follow.
    """

    def __init__(self, sites: Sites) -> None:
        self.sites, self.count, self.phases, self.tile = sites, 0, [0], -1
        self.syncs: list[SourceLine] = []
        self._rows = empty_rows(_FIRST_CAPACITY)

    @property
    def rows(self) -> np.ndarray:
        """The rows so far, INSTR[n]: a view that is valid until the next instruction."""
        return self._rows[: self.count]

    def append(self, emit: Any, operands: Sequence[int], steps: Sequence[tuple[Any, Sequence[int]]]) -> int:
        """Append a row and return its number.

        Parameters
        ----------
        emit : jitted function
            Of `npu_sim.isa.emit`.
        operands : sequence of int
            Those of ``emit`` behind the row number, which fit their fields (`program.operands`).
        steps : sequence of (function, operands)
            What fills operands of the row before.
        """
        n = self.count
        if n == len(self._rows):
            reserve("Rows of a core", 2 * n * ROW_BYTES)
            grown = empty_rows(2 * n)
            grown.view(np.uint8)[: self._rows.nbytes] = self._rows.view(np.uint8)
            self._rows = grown
        for function, values in steps:
            function(self._rows, n, *values)
        emit(self._rows, n, *operands)
        self.count = n + 1
        return n

    def outside(self, row: int, ranges: Sequence[tuple[int, int, int]]) -> tuple[int, ...] | None:
        """Return the first run of a row (`isa.footprint`) that is in none of the ranges, None without one.

        Parameters
        ----------
        row : int
        ranges : sequence of (space, first byte, byte behind the last)
        """
        found = int(outside(self._rows, row, _RUNS, np.array(ranges, np.int64).reshape(-1, 3)))
        return tuple(_RUNS[found].tolist()) if found >= 0 else None

    def drop_last(self) -> None:
        """Take the last row back."""
        self.count -= 1

    def located(self, violation: Violation) -> Violation:
        """Return a finding whose words name the line of its row."""
        where = self.sites.lines().get(violation.site)
        return replace(violation, detail=f"{violation.detail.removesuffix(')')}, {where})") if where else violation

    def programs(self) -> list[np.ndarray]:
        """Return copies of the rows, phase by phase."""
        ends = [*self.phases[1:], self.count]
        # Bytes, because NumPy would copy the overlapping fields of a row one after the other.
        data = self._rows.view(np.uint8).reshape(-1, ROW_BYTES)
        return [data[a:b].copy().reshape(-1).view(self._rows.dtype) for a, b in zip(self.phases, ends, strict=True)]
