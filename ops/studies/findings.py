"""Findings one can act on: which instructions, where in the source, in which buffer, how often, what to do.

One fault shows in every tile and on every core; `ops.studies.grouping` makes one finding of it, with a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_sim.errors import InternalError, NpuSimError, ProgramError
from npu_sim.program.finding_codes import CODES, Code
from npu_sim.program.violation import Kind, Violation
from npu_sim.report.sarif import SarifPlace, SarifResult, SarifRule

HAZARDS = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)
_BETWEEN_CORES = (
    "give every core a part of its own, add with SetAtomicAdd, or order the cores by SyncAll or a flag between them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A row of a program: where it is, what it is, and where the user wrote it (``line`` 0: nowhere)."""

    core: int
    row: int
    tile: int
    site: str
    api: str
    pipe: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else ""
        return f"{place}{self.api} ({self.pipe}), core {self.core} row {self.row}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRange:
    """Bytes ``[start, end)`` of a named buffer or GM tensor, counted from its begin."""

    name: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.name}[{self.start}:{self.end}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What a finding is likely due to (`ops.studies.odd_rows`).

    ``instruction`` is the row that is wrong, or, at the row in front of which it is missing, the one that should be
    there; it is of ``launch``, which may be an earlier one than the finding's.
    """

    words: str
    launch: int
    instruction: Instruction

    def __str__(self) -> str:
        at = self.instruction
        return f"{at.file}:{at.line}: {self.words}" if at.line else self.words


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding with the instructions around it.

    Attributes
    ----------
    launch : str
        Kernel.
    violation : Violation
        What is wrong, where it shows first.
    windows : tuple of str
        Listings around the row and, if another one is involved, around that.
    count : int
        How often the same shows: in other tiles, on other cores.
    instruction, other : Instruction or None
        The row to blame, and the earlier one that is involved.
    buffer : BufferRange or None
        The bytes, where something named holds them.
    also : tuple of str
        What else the same missing order shows as.
    cause : Cause or None
        The row that is not as in the other tiles and cores, where there is one.
    order : str
        Option of ``npu-sim run`` and ``judge`` with which the race changes the result; "" where none is known.
    left_out : int
        How many more of the kind the checks found and did not keep (`engines.hazards.FINDING_LIMIT`).
    """

    launch: str
    violation: Violation
    windows: tuple[str, ...] = ()
    count: int = 1
    instruction: Instruction | None = None
    other: Instruction | None = None
    buffer: BufferRange | None = None
    also: tuple[str, ...] = ()
    cause: Cause | None = None
    order: str = ""
    left_out: int = 0

    @property
    def blamed(self) -> Instruction | None:
        """The instruction to look at first."""
        return self.cause.instruction if self.cause is not None else self.instruction

    @property
    def code(self) -> Code:
        """What the code means."""
        return CODES[self.violation.kind]

    @property
    def hint(self) -> str:
        """What to do."""
        if self.violation.kind in HAZARDS and self.violation.other_core >= 0:
            return _BETWEEN_CORES
        return self.code.hint

    def lines(self) -> list[str]:
        """Return the finding as text: what, where in the source, in what, how often."""
        first, other = self.instruction, self.other
        made = [f"{first.file}:{first.line}: {self.violation}" if first and first.line else str(self.violation)]
        if self.cause is not None:
            made.append(f"  likely because {self.cause}")
        if other is not None and other.line:
            made.append(f"  with {other}")
        if self.buffer is not None:
            made.append(f"  bytes {self.buffer}")
        if self.count > 1:
            made.append(f"  {self.count} times")
        if self.left_out:
            made.append(f"  {self.left_out} more {self.violation.kind.value} were found and not kept")
        return [*made, *(f"  it shows as {text} too" for text in self.also)]

    def document(self) -> dict[str, Any]:
        """Return the finding as plain data, the same in every report."""
        violation = self.violation
        return {
            "launch": self.launch,
            "launch_number": violation.launch,
            "kind": violation.kind.value,
            "name": violation.kind.name,
            "severity": self.code.severity,
            "tool": self.code.tool,
            "count": self.count,
            "left_out": self.left_out,
            "core": violation.core,
            "row": violation.row,
            "other_row": violation.other_row,
            "tile": violation.tile,
            "site": violation.site,
            "space": violation.space.name,
            "start": violation.start,
            "length": violation.length,
            "detail": violation.detail,
            "text": str(violation),
            "file": self.instruction.file if self.instruction else "",
            "line": self.instruction.line if self.instruction else 0,
            "hint": self.hint,
            "order": self.order,
            "instruction": self.instruction,
            "other_instruction": self.other,
            "buffer": self.buffer,
            "also": self.also,
            "likely_cause": self.cause,
            "windows": self.windows,
        }

    def sarif(self) -> SarifResult:
        """Return the finding for `npu_sim.report.sarif`."""
        places = tuple(
            SarifPlace(logical=f"{self.launch}/core {at.core}/row {at.row}", message=at.api, file=at.file, line=at.line)
            for at in (None if self.cause is None else self.cause.instruction, self.instruction, self.other)
            if at is not None
        )
        return SarifResult(
            code=self.violation.kind.value,
            message="; ".join(line.strip() for line in self.lines()),
            places=places,
            count=self.count,
        )


def finding_of_refusal(error: NpuSimError) -> Finding:
    """Return the finding of a kernel that was refused at a line (`NpuSimError.refusal`)."""
    refused = error.refusal
    if refused is None:
        raise InternalError(f"Error must be the refusal of a kernel, not {error!r}")
    rows = error.violations if isinstance(error, ProgramError) else ()
    text = rows[0].detail if rows else " ".join(str(error).split())
    at = Instruction(
        core=refused.core, row=-1, tile=-1, site=f"{refused.file}:{refused.line}", api="", pipe="", file=refused.file,
        line=refused.line,
    )  # fmt: skip
    violation = Violation(kind=refused.kind, row=-1, core=refused.core, detail=text)
    return Finding(launch=refused.function, violation=violation, instruction=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which findings to keep.

    Attributes
    ----------
    tools : tuple of str
        Checks of `finding_codes.TOOLS`, or "npuchk": the codes that npuchk has. Empty: all.
    core : int or None
        Of this core, and of none; None: of all.
    """

    tools: tuple[str, ...] = ()
    core: int | None = None

    def has(self, violation: Violation) -> bool:
        """Return whether to keep a violation."""
        is_of_core = violation.core < 0 or self.core in (None, violation.core, violation.other_core)
        return is_of_core and self._is_of_tool(violation)

    def chosen(self, found: Sequence[Violation]) -> list[Violation]:
        """Return those to keep; how many more of a kind there are, of whatever core, stays with one of the kind."""
        kept = {id(violation): violation for violation in found if self.has(violation)}
        for violation in found:
            if violation.left_out and id(violation) not in kept and self._is_of_tool(violation):
                same = [at for at, one in kept.items() if one.kind is violation.kind]
                if same:
                    kept[same[-1]] = replace(kept[same[-1]], left_out=violation.left_out)
                else:
                    kept[id(violation)] = violation
        return list(kept.values())

    def _is_of_tool(self, violation: Violation) -> bool:
        is_npuchk = violation.kind.value.startswith("Error")
        return not self.tools or CODES[violation.kind].tool in self.tools or (is_npuchk and "npuchk" in self.tools)


EVERYTHING = Wanted()


def sarif_rules() -> tuple[SarifRule, ...]:
    """Return every code for `npu_sim.report.sarif`."""
    return tuple(
        SarifRule(code=kind.value, name=kind.name, severity=code.severity, title=code.title, hint=code.hint)
        for kind, code in CODES.items()
    )
