"""The state of a hazards run: shadow memory, which rows the serial numbers mean, and findings in words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.engines import hazards_book as kept
from npu_sim.engines import hazards_jit as jitted
from npu_sim.engines.hazards_kept import KeptCore, forget, go_on, note_turn, put_aside, take_turn
from npu_sim.engines.hazards_shadow import FINDING_LIMIT, new_shadow, with_more_nodes
from npu_sim.engines.issue_order import deadlock_words, starts_of
from npu_sim.engines.reorder import new_flags
from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op
from npu_sim.isa.row import ROW_BYTES, join_rows
from npu_sim.memory.gm import spare_words
from npu_sim.products import Product
from npu_sim.program.core_kind import foreign_rows
from npu_sim.program.disassemble import disassemble, name_of
from npu_sim.program.launch import CoreKind
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import BLOCK_BYTES

_KINDS = {
    kept.RAW: Kind.SYNC_READ_HAZARD,
    kept.WAR: Kind.SYNC_WRITE_HAZARD,
    kept.WAW: Kind.SYNC_WRITE_HAZARD,
    kept.CORE_RAW: Kind.SYNC_READ_HAZARD,
    kept.CORE_WAR: Kind.SYNC_WRITE_HAZARD,
    kept.CORE_WAW: Kind.SYNC_WRITE_HAZARD,
    kept.UNINITIALISED: Kind.READ_UNINITIALISED,
    kept.READ_BEYOND: Kind.READ_OUT_OF_BOUNDS,
    kept.WRITE_BEYOND: Kind.WRITE_OUT_OF_BOUNDS,
    kept.READ_NOWHERE: Kind.READ_UNALLOCATED,
    kept.WRITE_NOWHERE: Kind.WRITE_UNALLOCATED,
    kept.CAPACITY: Kind.CAPACITY,
    kept.READ_MISALIGNED: Kind.READ_MISALIGNED,
    kept.WRITE_MISALIGNED: Kind.WRITE_MISALIGNED,
    kept.WAIT_UNSET: Kind.SYNC_UNPAIRED,
    kept.SET_TWICE: Kind.SYNC_DUPLICATE,
    kept.LEFT_SET: Kind.SYNC_UNPAIRED,
    kept.BAD_EVENT: Kind.FIELD_RANGE,
    kept.BAD_PIPE: Kind.UNSUPPORTED,
    kept.FRAGMENTED: Kind.CAPACITY,
    kept.OTHER_CORE: Kind.UNSUPPORTED,
    kept.OUTSIDE: Kind.CAPACITY,
    kept.TOO_LARGE: Kind.CAPACITY,
    kept.PIPE_RAW: Kind.BARRIER_READ,
    kept.PIPE_WAW: Kind.BARRIER_WRITE,
    kept.STALE: Kind.READ_STALE,
    kept.CROSSING: Kind.UNSUPPORTED,
}
_CONFLICTS = {
    kept.RAW: "reads data of",
    kept.WAR: "overwrites data still read by",
    kept.WAW: "overwrites data of",
    kept.CORE_RAW: "reads data of",
    kept.CORE_WAR: "overwrites data read by",
    kept.CORE_WAW: "overwrites data of",
    kept.PIPE_RAW: "reads data of",
    kept.PIPE_WAW: "overwrites data of",
    kept.STALE: "reads what is left of",
}
_ATOMICS = (Op.SET_ATOMIC, Op.SET_ATOMIC_MAX, Op.SET_ATOMIC_MIN)
_STATES = ((_ATOMICS, "atomic stores"), ((Op.SET_HF32,), "HF32 mode"))
_OF_ORDER = (
    kept.RAW, kept.WAR, kept.WAW, kept.CORE_RAW, kept.CORE_WAR, kept.CORE_WAW, kept.WAIT_UNSET, kept.SET_TWICE,
    kept.LEFT_SET, kept.PIPE_RAW, kept.PIPE_WAW, kept.STALE,
)  # fmt: skip
_IN_PIPE = (kept.PIPE_RAW, kept.PIPE_WAW)
_BETWEEN_CORES = (kept.CORE_RAW, kept.CORE_WAR, kept.CORE_WAW)

_Program = tuple[bytes, bool, bool]
"""Digest of the rows of a core and phase, and whether its compiler puts barriers and its rows say where buffers are."""

RowSource = Callable[[int, int, int], np.ndarray]
"""``source(launch, phase, core)``: the rows of one core and phase."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one core and phase: serials from ``serial`` on, row numbers of the core from ``first_row`` on.

    ``index`` is the number of the first of them in the phase. They are in program order, or in ``order``.
    """

    serial: int
    launch: int
    phase: int
    core: int
    first_row: int
    index: int
    order: npt.NDArray[np.int64] | None = None

    def offset(self, serial: int) -> int:
        """Return how far behind the first of the rows the one with a serial number is."""
        at = serial - self.serial
        # what is found when a core ends stands behind its rows
        return at if self.order is None or at >= len(self.order) else int(self.order[at])


@dataclass(frozen=True, slots=True)
class _Place:
    """A row of the program, found by its serial number."""

    part: _Part
    index: int
    row: np.void

    @property
    def number(self) -> int:
        """Row number in the core's program."""
        return self.part.first_row + self.index

    @property
    def words(self) -> str:
        """The instruction in words."""
        return f"{name_of(self.row)} ({pipe_name(int(self.row['pipe']))})"


@dataclass(slots=True)
class Checker:
    """Shadow state of one run and the book of serial numbers."""

    product: Product
    table: npt.NDArray[np.int64]
    names: Sequence[str]
    launches: Sequence[str] = ("",)
    shadow: kept.Shadow = field(init=False)
    barrier_pipes: int = field(init=False)
    parts: list[_Part] = field(default_factory=list)
    rows_of_core: dict[int, int] = field(default_factory=dict)
    phase_rows: dict[int, int] = field(default_factory=dict)
    foreign: list[list[int]] = field(default_factory=list)
    foreign_left_out: int = 0
    states: list[Violation] = field(default_factory=list)
    core_kind: CoreKind | None = None
    auto_sync: bool = False
    has_buffers: bool = False
    keeps_cores: bool = False
    plain_stores: Sequence[tuple[int, int]] = ()
    turn_cores: int = 0
    line_of: Callable[[int], str] = field(default=lambda site: "")
    aside: dict[int, KeptCore] = field(default_factory=dict)
    held: list[np.ndarray] = field(default_factory=list)
    stuck: list[Violation] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    clean: set[_Program] = field(default_factory=set)
    program: _Program | None = None
    found_before: int = 0

    def __post_init__(self) -> None:
        self.shadow = new_shadow(self.product, self.table)
        self.barrier_pipes = sum({1 << Pipe[name] for name in self.product.core.barrier_pipes})

    def begin(self, launch: int, phase: int, core: int, digest: bytes | None = None) -> None:
        """Start the rows of one core and phase of a launch, or its next turn.

        ``digest``, of a core that begins anew: if nothing was found in an equal program, only GM is looked at.
        """
        serial = int(self.shadow.book[kept.SERIAL])
        new_phase = not self.parts or (self.parts[-1].launch, self.parts[-1].phase) != (launch, phase)
        if not self.parts or self.parts[-1].launch != launch:
            self.rows_of_core.clear()
            if self.keeps_cores:
                forget(self.shadow)
            self.shadow.book[kept.LAUNCH_BASE] = serial
            self.shadow.book[kept.CORES] = 0
            for first, last in self.plain_stores:
                jitted.note_plain_store(self.shadow, first, last)
            if self.plain_stores:
                self.shadow.book[kept.SERIAL] = serial = serial + 1
        if new_phase:
            self.begun.clear()
            self.phase_rows = dict(self.rows_of_core)
        self.shadow.book[kept.LENIENT] = 0
        first = self.rows_of_core.get(core, 0)
        self.parts.append(_Part(serial, launch, phase, core, first, first - self.phase_rows.get(core, 0)))
        if self.turn_cores:
            self.shadow = note_turn(self.shadow, core, self.turn_cores, is_new_phase=new_phase)
        if core in self.begun:
            take_turn(self.shadow, self.aside.pop(core))
            return
        self.begun.add(core)
        pipes = self.barrier_pipes & ~(1 << Pipe.V) if self.auto_sync else self.barrier_pipes
        self.shadow.book[kept.BY_HANDSHAKES] = not self.has_buffers
        self.shadow.book[kept.BARRIER_PIPES] = pipes
        jitted.begin_core(self.shadow.book, self.shadow.flags, self.shadow.turned, new_phase)
        self.program = None if digest is None else (digest, self.auto_sync, self.has_buffers)
        self.shadow.book[kept.GM_ONLY] = self.program in self.clean
        self.found_before = self._found()
        if self.keeps_cores:
            go_on(self.shadow, self.aside.pop(core, None))
        if self.turn_cores:
            self.shadow.book[kept.KNOWN :][: 8 * self.turn_cores] = 0
            self.shadow.book[kept.CHIP_FLOOR] = self.shadow.book[kept.PHASE_BASE]

    def check(self, rows: np.ndarray, count: int) -> None:
        """Check the next ``count`` issued rows."""
        done = 0
        if not self.held:
            first = int(self.shadow.book[kept.SERIAL])
            while (done := int(jitted.check_rows(self.shadow, rows, done, count))) < count:
                if self.shadow.book[kept.STOPPED]:
                    break
                needed = int(jitted.nodes_needed_by(self.shadow, rows, done))
                self.shadow = with_more_nodes(self.shadow, needed)
            if self.core_kind is not None and not self.shadow.book[kept.GM_ONLY]:
                other = np.flatnonzero(foreign_rows(rows[:done], self.product, self.core_kind))
                room = max(FINDING_LIMIT - len(self.foreign), 0)
                self.foreign_left_out += max(len(other) - room, 0)
                self.foreign += [[int(kept.OTHER_CORE), first + int(row), 0, 0, 0, 0, 0] for row in other[:room]]
        if done < count:
            reserve("Rows of a core behind a wait", (count + sum(map(len, self.held))) * ROW_BYTES)
            self.held.append(rows[done:count].copy())

    def go_on(self) -> None:
        """Check the rows from a wait on whose flag was not set, in the order in which they start.

        If they wait for each other, that is one finding, and what they would do in some order is none. If nothing sets
        the flag, they are checked in program order as if the wait were not there, to show what it breaks.
        """
        if not self.held:
            return
        book, part = self.shadow.book, self.parts[-1]
        rows, self.held = join_rows(self.held), []
        book[kept.STOPPED], book[kept.LENIENT] = 0, 1
        starts = starts_of(rows, self._flag_counts(), self.product.cost.queue_depth_rows)
        serial = int(book[kept.SERIAL])
        behind = serial - part.serial
        # rows of pipes that do not exist never start
        is_whole = not starts.waits and len(starts.order) == len(rows)
        order = starts.order if is_whole else np.arange(len(rows))
        here = replace(part, serial=serial, first_row=part.first_row + behind, index=part.index + behind, order=order)
        self.parts.append(here)
        count = int(book[kept.FINDINGS])
        self.check(rows[order], len(rows))
        book = self.shadow.book
        if starts.is_cycle:
            first, second = rows[starts.waits[0]], rows[starts.waits[-1]]
            self.stuck.append(
                Violation(
                    kind=Kind.SYNC_UNPAIRED,
                    row=here.first_row + starts.waits[0],
                    other_row=here.first_row + starts.waits[-1],
                    core=here.core,
                    tile=int(first["tile"]),
                    site=int(first["site"]),
                    other_site=int(second["site"]),
                    launch=here.launch,
                    detail=deadlock_words(rows, starts, here.first_row, self.line_of),
                )
            )
            found = self.shadow.findings[count : book[kept.FINDINGS]]
            others = found[~np.isin(found[:, 0], _OF_ORDER)]
            self.shadow.findings[count : count + len(others)] = others
            book[kept.FINDINGS] = count + len(others)
            codes = self.shadow.findings[: book[kept.FINDINGS], 0]
            book[kept.KEPT : kept.LEFT] = np.bincount(codes, minlength=kept.CODES)
            self.shadow.flags[:] = 0
        elif not starts.waits:
            book[kept.LENIENT] = 0

    def _found(self) -> int:
        """Count what was found so far."""
        book = self.shadow.book
        return int(book[kept.FINDINGS]) + int(book[kept.DROPPED]) + len(self.foreign) + len(self.stuck)

    def _flag_counts(self) -> npt.NDArray[np.int64]:
        """Return which flags are set, as `issue_order` counts them."""
        counts = new_flags()
        events = int(self.shadow.book[kept.EVENTS])
        for flag in np.flatnonzero(self.shadow.flags).tolist():
            pipes, event = divmod(flag, events)
            source, target = divmod(pipes, 7)
            counts[(source * 8 + target) * 256 + event] = 1
        return counts

    def end(self, *, is_last: bool = True) -> None:
        """Finish the rows of one core and phase, or of its turn; ``is_last``: and the core."""
        self.go_on()
        if is_last:
            jitted.end_core(self.shadow.book, self.shadow.flags, self.shadow.findings)
        if self.program is not None and self._found() == self.found_before:
            self.clean.add(self.program)
        if self.keeps_cores and is_last:
            forget(self.shadow)
        elif self.keeps_cores:
            self.aside[self.parts[-1].core] = put_aside(self.shadow)
        part = self.parts[-1]
        self.rows_of_core[part.core] = part.first_row + int(self.shadow.book[kept.SERIAL]) - part.serial

    def leave(self, core: int, core_state: npt.NDArray[np.int64], source: RowSource) -> None:
        """Report what the rows of a core of this launch leave switched on at its end, at the row that switched it."""
        launch = self.parts[-1].launch
        for word, (ops, what) in enumerate(_STATES):
            if core_state[word] and len(self.states) < FINDING_LIMIT:
                own = [part for part in self.parts if (part.launch, part.core) == (launch, core)]
                for part in reversed(own):
                    rows = source(launch, part.phase, core)
                    if len(places := np.flatnonzero(np.isin(rows["op"], ops))):
                        break
                at = int(places[-1])
                self.states.append(
                    Violation(
                        kind=Kind.STATE_LEFT,
                        row=part.first_row - part.index + at,
                        core=core,
                        tile=int(rows["tile"][at]),
                        site=int(rows["site"][at]),
                        launch=launch,
                        detail=f"{name_of(rows[at])} leaves {what} on at the end of the core",
                    )
                )

    def holes(self, outputs: Iterable[int], source: RowSource) -> list[Violation]:
        """Return a violation for each of the tensors ``outputs`` of which a byte was never written.

        Its other core and site are those of a store next to the first hole, which may be too short or elsewhere.
        """
        found, hole = [], np.zeros(3, np.int64)
        for tensor in outputs:
            missing = int(jitted.unwritten(self.shadow, tensor, hole))
            if missing:
                first, byte_count = self.table[tensor, :2].tolist()
                start, end = (hole[:2] - first).tolist()
                text = f"{missing} of {byte_count} bytes of output {self.names[tensor]} are never written"
                nearby = {int(hole[2]) >> 3} if hole[2] & 7 != kept.NO_PIPE else set()
                near = next(iter(self._places(nearby, source).values()), None)
                if near is not None and near.part.launch != len(self.launches) - 1:
                    near = None  # sites are those of one launch
                store = "" if near is None else f"; the store next to them is {name_of(near.row)}"
                found.append(
                    Violation(
                        kind=Kind.OUTPUT_HOLE,
                        row=-1,
                        core=-1,
                        other_core=-1 if near is None else near.part.core,
                        other_site=-1 if near is None else int(near.row["site"]),
                        launch=len(self.launches) - 1,
                        space=Space.GM,
                        start=int(hole[0]),
                        length=int(hole[1] - hole[0]),
                        detail=f"{text}, the first is byte {start}, the last byte {end - 1}{store}",
                    )
                )
        return found

    def violations(self, source: RowSource) -> list[Violation]:
        """Return the findings in the order of the rows."""
        book = self.shadow.book
        findings = self.shadow.findings[: int(book[kept.FINDINGS])]
        ordered = sorted(findings.tolist() + self.foreign, key=lambda finding: int(finding[1]))
        places = self._places({finding[1] for finding in ordered} | {finding[2] >> 3 for finding in ordered}, source)
        result = [self._violation(finding, places) for finding in ordered]
        left = book[kept.LEFT : kept.BOOK_LENGTH].tolist()
        left[kept.OTHER_CORE] = self.foreign_left_out
        for code, at in {finding[0]: at for at, finding in enumerate(ordered)}.items():
            if left[code]:
                result[at] = replace(result[at], left_out=left[code])
        return [*self.stuck, *result]

    def _places(self, serials: set[int], source: RowSource) -> dict[int, _Place]:
        """Return the rows behind serial numbers (0: none), asking for the rows of each core and phase once."""
        places = {}
        part, rows = None, None
        for serial in sorted(serials - {0}):
            owner = self.parts[bisect_right(self.parts, serial, key=lambda part: part.serial) - 1]
            if owner is not part or rows is None:
                part, rows = owner, source(owner.launch, owner.phase, owner.core)
            offset = owner.offset(serial)
            at = owner.index + offset
            places[serial] = _Place(owner, offset, rows[at : at + 1].copy()[0])
        return places

    def _violation(self, finding: list[int], places: dict[int, _Place]) -> Violation:
        code, serial, other, space, start, length, extra = finding
        place, before = places[serial], places.get(other >> 3)
        where = f" ({self.launches[place.part.launch]})" if len(self.launches) > 1 else ""
        return Violation(
            kind=_KINDS[np.int64(code)],
            row=place.number,
            other_row=-1 if before is None else before.number,
            core=place.part.core,
            tile=int(place.row["tile"]),
            site=int(place.row["site"]),
            other_core=-1 if before is None or before.part.core == place.part.core else before.part.core,
            other_site=-1 if before is None else int(before.row["site"]),
            launch=place.part.launch,
            space=Space(space),
            start=start,
            length=length,
            detail=self._detail(np.int64(code), place, before, Space(space), extra) + where,
        )

    def _detail(self, code: np.int64, place: _Place, before: _Place | None, space: Space, extra: int) -> str:
        row = place.row
        pipe = pipe_name(int(row["pipe"]))
        if before is not None and code in _CONFLICTS:
            other = pipe_name(int(before.row["pipe"]))
            text = f"{place.words} {_CONFLICTS[code]} "
            if code in _BETWEEN_CORES:
                words = f"{text}core {before.part.core} row {before.number} {before.words} in the same phase"
                return words + (", and no flag between the cores orders them" if self.turn_cores else "")
            text += f"row {before.number} {before.words}"
            if code in _IN_PIPE:
                return f"{text} without PipeBarrier<PIPE_{pipe}>"
            if code == kept.STALE:
                return f"{text}, whose buffer was handed back since and not filled again"
            return f"{text} without set/wait {other}->{pipe}"
        if before is not None and code == kept.UNINITIALISED:
            return f"{place.words} reads bytes that row {before.number} {before.words} leaves open"
        if before is not None:
            return f"{place.words} sets flag {extra} for {pipe_name(int(row['peer']))} again before a wait clears it"
        if code == kept.UNINITIALISED:
            return f"{place.words} reads bytes that nothing has written"
        if code in (kept.READ_BEYOND, kept.WRITE_BEYOND):
            tensor = int(row["tensor"])
            first, size, allocated, _ = self.table[tensor].tolist()
            extent = f"[{first}:{first + size}]{spare_words(size, allocated)}"
            return f"{place.words} must stay inside {self.names[tensor]} {extent}"
        if code in (kept.READ_NOWHERE, kept.WRITE_NOWHERE):
            return f"{place.words} must name a GM tensor of the launch, not tensor {extra}"
        if code == kept.CAPACITY:
            capacity = int(self.shadow.book[kept.SPACE + 4 * space + 1])
            return f"{place.words} must stay inside the {capacity} bytes of {space.name} ({self.product.name})"
        if code in (kept.READ_MISALIGNED, kept.WRITE_MISALIGNED):
            return f"{place.words} address must be a multiple of {extra} bytes"
        return _flag_detail(code, place, extra, self.product)


def _flag_detail(code: np.int64, place: _Place, extra: int, product: Product) -> str:
    peer = pipe_name(int(place.row["peer"]))
    if code == kept.WAIT_UNSET:
        return f"{place.words} waits for flag {extra} of {peer}, which no earlier set leaves set"
    if code == kept.LEFT_SET:
        return f"{place.words} sets flag {extra} for {peer}, and no wait clears it"
    if code == kept.BAD_EVENT:
        return f"{place.words} event must be below {product.core.event_count}, not {extra} ({product.name})"
    if code == kept.OTHER_CORE:
        return f"{place.words} must run on the other kind of core ({product.name})"
    if code == kept.CROSSING:
        return f"{place.words} must be in a launch that crosses, whose cores run by turns"
    if code == kept.OUTSIDE:
        return f"Operands must stay inside a memory, not reach as far as {disassemble(place.row).strip()}"
    if code == kept.TOO_LARGE:
        rule = f"at most {extra} blocks of {BLOCK_BYTES} bytes, a separate run counting {kept.RUN_BLOCKS} more"
        return f"{place.words} must touch {rule}"
    if code == kept.FRAGMENTED:
        return f"{place.words} must touch at most {extra} separate runs"
    return f"{place.words} must be an instruction and data path of its pipe"
