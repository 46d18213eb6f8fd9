"""What the checkers report."""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.isa.codes import Space
from npu_sim.program.finding_codes import CODES, Severity
from npu_sim.program.finding_kinds import Kind

__all__ = ["Kind", "Violation"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Violation:
    """One finding.

    Attributes
    ----------
    kind : Kind
        What is wrong.
    row, other_row : int
        Row numbers in the core's program; ``other_row`` is -1 when only one instruction is involved, ``row`` too when
        none is.
    core, tile, site : int
        Where: emulated core (-1: none), work item, place in the kernel.
    other_core, other_site : int
        Where ``other_row`` is; core -1: on the same core. Site -1: no other row.
    launch : int
        Which of the launches checked together.
    space : Space
        Address space of the access.
    start, length : int
        Bytes.
    detail : str
        Rule, value and both instructions in words.
    left_out : int
        Of the last one of its kind in a list that is as long as it may be: how many more of the kind there are.
    """

    kind: Kind
    row: int
    other_row: int = -1
    core: int = 0
    tile: int = -1
    site: int = 0
    other_core: int = -1
    other_site: int = -1
    launch: int = 0
    space: Space = Space.NONE
    start: int = 0
    length: int = 0
    detail: str = ""
    left_out: int = 0

    def __str__(self) -> str:
        where = f" {self.space.name}[{self.start}:{self.start + self.length}]" if self.space is not Space.NONE else ""
        more = f" (and {self.left_out} more)" if self.left_out else ""
        if self.row < 0:
            return f"{self.kind.value}{where} {self.detail}{more}"
        tile = f" tile {self.tile}" if self.tile >= 0 else ""
        return f"{self.kind.value} core {self.core}{tile} row {self.row}{where} {self.detail}{more}"

    @property
    def severity(self) -> Severity:
        """How bad it is: "error", "warning" or "advice", of which nothing comes on a device."""
        return CODES[self.kind].severity

    def __repr__(self) -> str:
        return f"<{self}>"
