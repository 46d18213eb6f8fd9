"""What the checks found as findings: one for each fault, with its rows in words and what it is likely due to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npu_sim.engines.hazards import emit_rows
from npu_sim.isa.codes import Space
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op
from npu_sim.isa.row import join_rows
from npu_sim.program.disassemble import listing, name_of
from npu_sim.program.finding_codes import SEVERITIES
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Kind, Violation
from ops.studies.findings import HAZARDS, BufferRange, Cause, Finding, Instruction
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
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


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
        if pipes is not None and first.kind in HAZARDS and first.other_core < 0:
            same = first.launch, pipes, first.core, first.tile
        if same in shown:
            shown[same][2].append(first)
        else:
            shown[same] = key, first, []
    hazards = {place: one for one in shown.values() if one[1].kind in HAZARDS for place in _places_of(one[1])}
    for same, one in list(shown.items()):  # pipes that hand over to each other need no barrier in between
        if one[1].kind in _BARRIERS:
            cause = next((hazards[place] for place in _places_of(one[1]) if place in hazards), None)
            if cause is not None:
                cause[2].append(shown.pop(same)[1])
    for key, first, ends in flags:
        like = [one for one in shown.values() if one[1].launch == first.launch and one[1].kind in HAZARDS]
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
    if violation.row < 0 or violation.kind not in (*HAZARDS, *_FLAGS):
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
        violation, number = finding.violation, finding.violation.launch
        is_unused = violation.kind is Kind.READ_UNUSED and violation.space is Space.UB
        if finding.code.severity == "advice" and not is_unused:
            return None
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
