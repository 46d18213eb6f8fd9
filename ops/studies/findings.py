"""Findings one can act on: which instructions, where in the source, in which buffer, how often, what to do.

One fault shows in every tile and on every core; `grouped` makes one finding of it, with a count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npu_sim.engines.hazards import emit_rows
from npu_sim.errors import InternalError, NpuSimError, ProgramError
from npu_sim.isa.codes import Space
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from npu_sim.program.disassemble import listing, name_of
from npu_sim.program.finding_codes import CODES, SEVERITIES, Code
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Kind, Violation
from npu_sim.report.sarif import SarifPlace, SarifResult, SarifRule
from ops.studies.likely_rows import HOLES, likely_row, unread_row
from ops.studies.odd_rows import odd_row
from ops.studies.row_bytes import LikelyRow

GroupKey = tuple[Any, ...]
WINDOW_ROWS = 2
"""Rows shown before and behind each row of a finding."""
_PROGRAMS = 8
"""Programs kept at a time: findings come core by core, and each is held to a few other cores."""
_CAUSES = 64
"""Findings whose cause is looked for: who has more does not read them one by one."""
_HAZARDS = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)
_BETWEEN_CORES = (
    "give every core a part of its own, add with SetAtomicAdd, or order the cores by SyncAll or a flag between them"
)
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


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
        if self.violation.kind in _HAZARDS and self.violation.other_core >= 0:
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


def grouped(violations: Iterable[Violation], launches: Sequence[Launch]) -> tuple[Finding, ...]:
    """Return one finding for each fault, worst first.

    Violations are of one fault if code, launch, sites of both rows, space and words but for the numbers are the same.
    The first of them is shown. What one missing order between two pipes shows as is one finding (`causes`), and so is
    what is likely due to one row (`Finding.cause`).
    """
    groups: dict[GroupKey, list[Violation]] = {}
    for violation in violations:
        words = _NUMBERS.sub("#", violation.detail)
        key = violation.launch, violation.kind, violation.site, violation.other_site, violation.space, words
        groups.setdefault(key, []).append(violation)
    programs = Programs()
    left_out = {id(group[0]): sum(violation.left_out for violation in group) for group in groups.values()}
    found = [
        replace(
            programs.finding(first, len(groups[key]), launches[first.launch]),
            also=tuple(str(replace(other, left_out=0)) for other in others),
            left_out=sum(left_out[id(one)] for one in (first, *others)),
        )
        for key, first, others in causes({key: group[0] for key, group in groups.items()}, launches, programs)
    ]
    found.sort(key=lambda finding: SEVERITIES.index(finding.code.severity))
    by_cause: dict[Any, Finding] = {}
    for number, finding in enumerate(found):
        cause = programs.cause(finding, launches) if number < _CAUSES else None
        of = number if cause is None else (cause.launch, cause.instruction.core, cause.instruction.row)
        if of in by_cause:
            also = (*by_cause[of].also, str(finding.violation), *finding.also)
            by_cause[of] = replace(by_cause[of], also=also, left_out=by_cause[of].left_out + finding.left_out)
        else:
            by_cause[of] = replace(finding, cause=cause)
    return tuple(by_cause.values())


_BARRIERS = (Kind.BARRIER_READ, Kind.BARRIER_WRITE)
_FLAGS = (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE)


def causes(
    firsts: Mapping[GroupKey, Violation], launches: Sequence[Launch], programs: Programs
) -> list[tuple[GroupKey, Violation, list[Violation]]]:
    """Return the violations that are shown, each with those that the same missing order shows as.

    A dropped wait leaves every row of its tile unordered that the pipe behind it runs, and its flag is left set or set
    twice: rows of one tile and core with the same two pipes have one cause, and so has a flag between these pipes.
    """
    shown: dict[tuple[Any, ...], tuple[GroupKey, Violation, list[Violation]]] = {}
    flags: list[tuple[GroupKey, Violation, tuple[int, ...]]] = []
    for number, (key, first) in enumerate(firsts.items()):
        pipes = _pipes(first, launches, programs)
        if pipes is not None and first.kind in _FLAGS:
            flags.append((key, first, pipes))
            continue
        same: tuple[Any, ...] = (number,)
        if pipes is not None and first.kind in _HAZARDS and first.other_core < 0:
            same = first.launch, pipes, first.core, first.tile
        if same in shown:
            shown[same][2].append(first)
        else:
            shown[same] = key, first, []
    hazards = {place: one for one in shown.values() if one[1].kind in _HAZARDS for place in _places_of(one[1])}
    for same, one in list(shown.items()):  # pipes that hand over to each other need no barrier in between
        if one[1].kind in _BARRIERS:
            cause = next((hazards[place] for place in _places_of(one[1]) if place in hazards), None)
            if cause is not None:
                cause[2].append(shown.pop(same)[1])
    for key, first, ends in flags:
        like = [one for one in shown.values() if one[1].launch == first.launch and one[1].kind in _HAZARDS]
        like = [one for one in like if _pipes(one[1], launches, programs) == ends]
        if like:
            nearest = min(like, key=lambda one: (one[1].core != first.core, abs(one[1].row - first.row)))
            nearest[2].append(first)
        else:
            same = first.launch, ends, "flag"
            if same in shown:
                shown[same][2].append(first)
            else:
                shown[same] = key, first, []
    return list(shown.values())


def _places_of(violation: Violation) -> list[tuple[int, int, int, str]]:
    """Return both rows of a violation."""
    at = violation.launch, violation.core
    return [(*at, violation.row, "later"), (*at, violation.other_row, "earlier")]


def _pipes(violation: Violation, launches: Sequence[Launch], programs: Programs) -> tuple[int, int] | None:
    """Return the pipes between which order is missing, source first; None where it is not about that."""
    if violation.row < 0 or violation.kind not in (*_HAZARDS, *_FLAGS):
        return None
    row = programs.rows(launches[violation.launch], violation.core)[violation.row]
    if violation.kind in _FLAGS:
        ends = int(row["pipe"]), int(row["peer"])
        return ends if row["op"] == Op.SET_FLAG else ends[::-1] if row["op"] == Op.WAIT_FLAG else None
    if violation.other_row < 0:
        return None
    core = violation.core if violation.other_core < 0 else violation.other_core
    other = programs.rows(launches[violation.launch], core)[violation.other_row]
    return int(other["pipe"]), int(row["pipe"])


@dataclass(slots=True)
class Programs:
    """Rows of cores, emitted again when they are first needed."""

    known: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def finding(self, violation: Violation, count: int, launch: Launch) -> Finding:
        """Return the finding that ``violation`` is the first of."""
        made = Finding(launch=launch.name, violation=violation, count=count)
        if violation.row < 0:
            return replace(made, buffer=_gm_range(violation, launch))
        places = [(violation.core, violation.row)]
        if violation.other_row >= 0:
            places.append((violation.core if violation.other_core < 0 else violation.other_core, violation.other_row))
        at = [self._instruction(launch, *place) for place in places]
        return replace(
            made,
            windows=tuple(self._window(launch, *place) for place in places),
            instruction=at[0],
            other=at[1] if len(at) > 1 else None,
            buffer=self._range(violation, launch),
        )

    def rows(self, launch: Launch, core: int) -> np.ndarray:
        """Return the rows of a core, through all phases."""
        key = (id(launch), core)
        if key not in self.known:
            if len(self.known) >= _PROGRAMS:
                self.known.clear()
            self.known[key] = join_rows([emit_rows(launch, core, phase) for phase in range(launch.phase_count)])
        return self.known[key]

    def cause(self, finding: Finding, launches: Sequence[Launch]) -> Cause | None:
        """Return what a finding is likely due to."""
        if finding.code.severity == "advice":
            return None
        violation, number = finding.violation, finding.violation.launch
        if (cause := self._cause(violation, number, launches[number])) is not None:
            return cause
        if violation.space is not Space.GM or violation.kind not in (Kind.OUTPUT_HOLE, Kind.READ_UNINITIALISED):
            return None
        # an earlier launch had to write it
        is_output = violation.kind is Kind.OUTPUT_HOLE
        hole = replace(violation, kind=Kind.OUTPUT_HOLE, row=-1)
        last = len(launches) if is_output else number
        for find in (self._cause, self._unread):
            for earlier in range(last - 1, -1, -1):
                if (cause := find(hole, earlier, launches[earlier])) is not None:
                    return cause
        return None

    def _unread(self, violation: Violation, number: int, launch: Launch) -> Cause | None:
        """Return the row of a launch whose result nothing stores."""
        likely = unread_row(lambda core: self.rows(launch, core), launch.core_count)
        return None if likely is None else self._cause_of(likely, violation, number, launch)

    def _cause_of(self, likely: LikelyRow, violation: Violation, number: int, launch: Launch) -> Cause:
        words = likely.words + (f" (launch {number} {launch.name})" if number != violation.launch else "")
        return Cause(words=words, launch=number, instruction=self._instruction(launch, likely.core, likely.row))

    def _cause(self, violation: Violation, number: int, launch: Launch) -> Cause | None:
        """Return the row of a launch that something is likely due to."""

        def rows_of(core: int) -> np.ndarray:
            return self.rows(launch, core)

        tensors = {
            tensor.index
            for tensor in launch.gm.tensors
            if tensor.address <= violation.start < tensor.address + tensor.byte_count
        }
        odd = odd_row(violation, rows_of, launch.core_count, tensors=tensors)
        if odd is None or (odd.what == "another" and violation.kind in HOLES):  # of two, the one that ends there
            likely = likely_row(violation, rows_of, launch.core_count, tensors=tensors)
            if likely is not None and (odd is None or (likely.core, likely.row) != (odd.core, odd.row)):
                return self._cause_of(likely, violation, number, launch)
        if odd is None:
            return None
        right = self._instruction(launch, odd.like_core, odd.like)
        words = odd.words(rows_of) + (f" (launch {number} {launch.name})" if number != violation.launch else "")
        return Cause(words=words, launch=number, instruction=replace(right, core=odd.core, row=odd.row))

    def _instruction(self, launch: Launch, core: int, number: int) -> Instruction:
        row = self.rows(launch, core)[number]
        site, source = int(row["site"]), launch.lines.get(int(row["site"]))
        return Instruction(
            core=core,
            row=number,
            tile=int(row["tile"]),
            site=launch.sites.get(site, str(site)),
            api=name_of(row),
            pipe=pipe_name(int(row["pipe"])),
            file=source.file if source else "",
            line=source.line if source else 0,
        )

    def _window(self, launch: Launch, core: int, row: int) -> str:
        rows = self.rows(launch, core)
        first = max(row - WINDOW_ROWS, 0)
        lines = listing(rows[first : row + WINDOW_ROWS + 1], first=first, sites=launch.sites).splitlines()
        return "\n".join(
            f"{'>' if number == row else ' '} core {core} {line}" for number, line in enumerate(lines, first)
        )

    def _range(self, violation: Violation, launch: Launch) -> BufferRange | None:
        if violation.space is Space.GM:
            return _gm_range(violation, launch)
        if not launch.buffers:
            return None
        rows = self.rows(launch, violation.core)[: violation.row + 1]
        for row in rows[(rows["op"] == Op.ALLOC_TENSOR) & (rows["dst_space"] == violation.space)][::-1]:
            start = int(row["dst"])
            if start <= violation.start < start + int(row["count"]):
                name = launch.buffers.get(int(row["value"]), str(int(row["value"])))
                return _within(name, start, violation)
        return None


def _gm_range(violation: Violation, launch: Launch) -> BufferRange | None:
    for tensor in launch.gm.tensors:
        if tensor.address <= violation.start < tensor.address + max(tensor.byte_count, 1):
            return _within(tensor.name, tensor.address, violation)
    return None


def _within(name: str, start: int, violation: Violation) -> BufferRange:
    first = violation.start - start
    return BufferRange(name=name, start=first, end=first + violation.length)
