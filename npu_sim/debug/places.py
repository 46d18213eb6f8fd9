"""Where the machine stands and why, and what it watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npu_sim.isa.codes import Space
from npu_sim.program.launch import SourceLine

Reason = Literal["step", "target", "watch", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A row of a program.

    Attributes
    ----------
    launch, phase, core, row : int
        Rows of a core are numbered through the phases of a launch.
    tile : int
    source : SourceLine or None
        Where the user wrote it.
    text : str
        The instruction, disassembled.
    """

    launch: int
    phase: int
    core: int
    row: int
    tile: int
    source: SourceLine | None
    text: str

    @property
    def key(self) -> tuple[int, int, int]:
        """Launch, core and row: what names the row."""
        return self.launch, self.core, self.row

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        return f"{where}launch {self.launch} core {self.core} row {self.row} tile {self.tile}: {self.text}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the machine stands, and before which row (None behind the last one).

    ``reason`` is "step", "target", "watch" (the row before has written what is watched) or "end".
    """

    reason: Reason
    place: Place | None

    def __str__(self) -> str:
        return self.reason if self.place is None else f"{self.reason} at {self.place}"


@dataclass(frozen=True, slots=True)
class Watch:
    """Bytes of a space whose next write stops the machine, on one core or (None) on any."""

    space: Space
    start: int
    end: int
    core: int | None

    def meets(self, space: int, start: int, length: int, repeats: int, stride: int) -> bool:
        """Return whether a strided run has a byte of what is watched."""
        if space != self.space or start + (repeats - 1) * stride + length <= self.start or start >= self.end:
            return False
        if stride <= length:
            return True
        first = max((self.start - start - length) // stride + 1, 0)
        return first < repeats and start + first * stride < self.end
