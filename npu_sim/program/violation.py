"""What the checkers report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from npu_sim.isa.codes import Space


class Kind(Enum):
    """Kinds of finding; those that begin with Error carry the names of asc-tools' npuchk (``docs/02_npu_check_en.md``).

    What stands behind a slash tells causes apart that have one name there.
    """

    READ_UNALLOCATED = "ErrorRead1"
    READ_UNINITIALISED = "ErrorRead2"
    READ_OUT_OF_BOUNDS = "ErrorRead3"
    READ_MISALIGNED = "ErrorRead4"
    WRITE_UNALLOCATED = "ErrorWrite1"
    WRITE_OUT_OF_BOUNDS = "ErrorWrite2"
    WRITE_MISALIGNED = "ErrorWrite4"
    SYNC_WRITE_HAZARD = "ErrorSync1"
    SYNC_READ_HAZARD = "ErrorSync2"
    SYNC_UNPAIRED = "ErrorSync3"
    SYNC_ALL_UNPAIRED = "ErrorSync3/all"
    SYNC_DUPLICATE = "ErrorSync4"
    WRITE_UNREAD = "ErrorWrite3"
    BUFFER_LEAK = "ErrorLeak"
    BUFFER_FREED_TWICE = "ErrorFree"
    BUFFER_NOT_GIVEN = "ErrorBuffer0"
    BUFFER_OTHER_QUEUE = "ErrorBuffer1"
    BUFFER_STATE = "ErrorBuffer2"
    BUFFER_TAKEN = "ErrorBuffer3"
    BUFFER_POOL_NOT_GIVEN = "ErrorBuffer4"
    READ_STALE = "ErrorRead2/stale"
    READ_UNUSED = "ErrorRead2/unused"
    READ_BY_OFFSETS = "ErrorRead2/offsets"
    BARRIER_WRITE = "ErrorSync1/barrier"
    BARRIER_READ = "ErrorSync2/barrier"
    BARRIER_UNNEEDED = "BarrierUnneeded"
    BANK_CONFLICT = "BankConflict"
    OUTPUT_HOLE = "OutputHole"
    STATE_LEFT = "StateLeft"
    CAPACITY = "Capacity"
    FIELD_RANGE = "FieldRange"
    UNSUPPORTED = "Unsupported"
    UNDEFINED = "UndefinedOnHardware"


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

    def __repr__(self) -> str:
        return f"<{self}>"
