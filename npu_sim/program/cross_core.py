"""Flags between cores: who counts when somebody sets one, and who waits for whom.

Each core has 16 counters. CrossCoreSetFlag of a mode and id counts, once all who set it together have,

=====  ==========================  =============================================
mode   set by                      counts on
=====  ==========================  =============================================
0      all cores of a kind         each of them
1      all vector cores of a block each of them
2      the Cube core of a block    each vector core of the block, at once
2      all vector cores of a block the Cube core of the block
3      a vector core of a block    the Cube core of the block, at once
3      the Cube core of a block    its vector core ``id % 2``, at once
=====  ==========================  =============================================

and CrossCoreWaitFlag lowers the counter of its core, or holds the core up while it is 0. The k-th set of a core belongs
to the k-th of the others; the n-th wait to the n-th count. Source: asc-devkit, CrossCoreSetFlag and CrossCoreWaitFlag.

A word of global memory that some cores store and others poll orders them too. SetSignal stands behind such a store,
WaitSignal(word, count) where a core has seen what the first ``count`` of them left: it holds the core up until there
are so many, and takes none away. Neither is an instruction of the device. ASSUMED: they take as long as a flag.

Mode 3 is no mode of the device: it stands for the messages of the Matmul library, which vector cores post in memory and
their Cube core answers (ids 2 * object + vector core). ASSUMED: they take as long as a flag.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npu_sim.isa.flags import CROSS_CORE_LIMIT, MESSAGE_MODE
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op
from npu_sim.program.disassemble import disassemble
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Kind, Violation

Group = tuple[int, ...]
SETS = (Op.CROSS_CORE_SET_FLAG, Op.SET_SIGNAL)
WAITS = (Op.CROSS_CORE_WAIT_FLAG, Op.WAIT_SIGNAL)


class Mark(NamedTuple):
    """A flag that was set: by which core, in which row of its program, and what the engine knows of it."""

    core: int
    number: int
    row: np.void
    token: Any


@dataclass(frozen=True, slots=True)
class Waiting:
    """A core that is held up, and the row that it waits in."""

    core: int
    number: int
    row: np.void


class CrossCoreFlags:
    """The counters of all cores of a launch.

    Parameters
    ----------
    launch : Launch
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._sets: dict[tuple[int, Group, Group, int], dict[int, deque[Mark]]] = {}
        self._counts: dict[tuple[int, int], deque[tuple[Mark, ...]]] = {}
        self._signals: dict[int, list[Mark]] = {}
        self._kinds: dict[str, Group] = {}
        for kind in ("cube", "vector"):
            self._kinds[kind] = tuple(c for c in range(launch.core_count) if launch.kind_of(c) == kind)

    def groups_of(self, core: int, mode: int, event: int) -> tuple[Group, Group] | None:
        """Return who sets a flag together with ``core``, and on whom it counts; None if the mode is not for it."""
        launch, kind = self._launch, self._launch.kind_of(core)
        if mode == 0:
            return self._kinds[kind], self._kinds[kind]
        if not launch.vectors or mode > MESSAGE_MODE:
            return None
        block, *others = launch.cores_of(launch.block_of(core))
        vectors = tuple(others)
        if mode == MESSAGE_MODE:
            targets = vectors[event % 2 :][:1] if kind == "cube" else (block,)
            return ((core,), targets) if targets else None
        if kind == "cube":
            return ((block,), vectors) if mode == 2 else None
        return (vectors, (block,)) if mode == 2 else (vectors, vectors)

    def set(self, mark: Mark) -> list[Violation]:
        """Note that a core has set a flag or signal; return what is wrong with that."""
        if mark.row["op"] == Op.SET_SIGNAL:
            self._signals.setdefault(int(mark.row["value"]), []).append(mark)
            return []
        mode, event = int(mark.row["value"]), int(mark.row["event"])
        groups = self.groups_of(mark.core, mode, event)
        if groups is None:
            rule = f"{disassemble(mark.row).strip()} must be in a mixed launch, mode 1 on a vector core"
            return [_violation(mark, Kind.UNSUPPORTED, f"{rule}, not on a {self._launch.kind_of(mark.core)} core")]
        setters, targets = groups
        pending = self._sets.setdefault((mode, setters, targets, event), {core: deque() for core in setters})
        pending[mark.core].append(mark)
        found = []
        while all(pending.values()):
            together = tuple(queue.popleft() for queue in pending.values())
            for core in targets:
                counted = self._counts.setdefault((core, event), deque())
                counted.append(together)
                if len(counted) == CROSS_CORE_LIMIT + 1:
                    text = f"{disassemble(mark.row).strip()} must count to {CROSS_CORE_LIMIT} at most, not further"
                    found.append(_violation(mark, Kind.SYNC_DUPLICATE, f"{text}, on core {core}"))
        return found

    def has(self, core: int, row: np.void) -> bool:
        """Return whether the wait in ``row`` would not hold the core up."""
        if row["op"] == Op.WAIT_SIGNAL:
            return len(self._signals.get(int(row["value"]), ())) >= int(row["count"])
        return bool(self._counts.get((core, int(row["event"]))))

    def take(self, core: int, row: np.void) -> tuple[Mark, ...] | None:
        """Return the sets that answer the wait in ``row``, and lower the counter; None if it holds the core up."""
        if row["op"] == Op.WAIT_SIGNAL:
            marks = self._signals.get(int(row["value"]), [])[: int(row["count"])]
            return tuple(marks) if len(marks) == int(row["count"]) else None
        counted = self._counts.get((core, int(row["event"])))
        return counted.popleft() if counted else None

    def left(self) -> list[Violation]:
        """Return a finding for each set that no wait has cleared on some core, at most one for a flag of a core."""
        found = []
        for (core, event), counted in sorted(self._counts.items()):
            if counted:
                mark = counted[0][0]
                text = f"{disassemble(mark.row).strip()} counts on core {core}, and no wait for flag {event} clears it"
                found.append(_violation(mark, Kind.SYNC_UNPAIRED, text, core))
        for (_, _, _, event), pending in sorted(self._sets.items()):
            missing = [core for core, queue in pending.items() if not queue]
            for queue in pending.values():
                if queue:
                    text = f"{disassemble(queue[0].row).strip()} must be set by core {missing[0]} too"
                    found.append(_violation(queue[0], Kind.SYNC_UNPAIRED, f"{text}, or flag {event} never counts"))
                    break
        return found

    def deadlock(self, waiting: Sequence[Waiting]) -> Violation:
        """Return the one finding for cores that wait for ever: the cycle of their waits, or whose end it leads to.

        Parameters
        ----------
        waiting : sequence of Waiting
            All cores that are held up; the others have ended.
        """
        held = {one.core: one for one in waiting}
        chain, seen = [waiting[0]], {waiting[0].core: 0}
        ended = None
        while True:
            partner = self._partner(chain[-1], held)
            if partner not in held:
                ended = partner
                break
            if partner in seen:
                chain = chain[seen[partner] :]
                break
            seen[partner] = len(chain)
            chain.append(held[partner])
        first, second = chain[0], chain[1] if len(chain) > 1 else None
        words = ", which waits for ".join(self._words(one) for one in chain)
        end = f"core {ended}, which has ended" if ended is not None else "the first, for ever"
        more = len(waiting) - len(chain)
        others = f"; {more} more cores wait behind them" if more else ""
        return Violation(
            kind=Kind.SYNC_UNPAIRED,
            row=first.number,
            core=first.core,
            tile=int(first.row["tile"]),
            site=int(first.row["site"]),
            other_row=second.number if second else -1,
            other_core=second.core if second else -1,
            other_site=int(second.row["site"]) if second else -1,
            detail=f"Deadlock: {words}, which waits for {end}{others} ({self._launch.name})",
        )

    def _partner(self, one: Waiting, held: dict[int, Waiting]) -> int:
        """Return the core that a core waits for: one that others of its group wait for, or who may set its flag."""
        event = int(one.row["event"]) if one.row["op"] == Op.CROSS_CORE_WAIT_FLAG else -1
        for (_, _, targets, number), pending in self._sets.items():
            if number == event and one.core in targets and any(pending.values()):
                return next(core for core, queue in pending.items() if not queue)
        launch, block = self._launch, self._launch.block_of(one.core)
        near = [c for c in range(launch.core_count) if c != one.core and launch.block_of(c) == block]
        kind = launch.kind_of(one.core)
        near = [c for c in near if launch.kind_of(c) != kind] + [c for c in near if launch.kind_of(c) == kind]
        peers = near if launch.vectors else [c for c in self._kinds[kind] if c != one.core]
        # whoever still waits could set it later, whoever has ended never will
        return next((c for c in peers if c not in held), peers[0] if peers else one.core)

    def _words(self, one: Waiting) -> str:
        where = self._launch.place_of(int(one.row["site"]))
        kind = self._launch.kind_of(one.core)
        place = f" ({where})" if where else ""
        return f"core {one.core} ({kind}) row {one.number} {disassemble(one.row).split(maxsplit=1)[1]}{place}"


def _violation(mark: Mark, kind: Kind, text: str, other_core: int = -1) -> Violation:
    row = mark.row
    return Violation(
        kind=kind,
        row=mark.number,
        core=mark.core,
        tile=int(row["tile"]),
        site=int(row["site"]),
        other_core=-1 if other_core == mark.core else other_core,
        detail=f"{text} (pipe {pipe_name(int(row['pipe']))})",
    )


def undeclared_crossings(rows: np.ndarray, launch: Launch) -> list[Violation]:
    """Return a finding for each of ``rows`` that sets or waits for flags of other cores in a launch of another kind."""
    if launch.by_turns:
        return []
    return [
        Violation(
            kind=Kind.UNSUPPORTED,
            row=at,
            tile=int(rows["tile"][at]),
            site=int(rows["site"][at]),
            detail=f"{disassemble(rows[at]).strip()} must be in a launch that crosses ({launch.name})",
        )
        for at in np.flatnonzero(is_cross_core(rows)).tolist()
    ]


def is_for_all(row: np.ndarray) -> bool:
    """Return whether a row, INSTR[1], sets the flag of all cores of a kind, as SyncAll does."""
    return bool(row["op"][0] == Op.CROSS_CORE_SET_FLAG and row["value"][0] == 0)


def is_cross_core(rows: np.ndarray) -> np.ndarray:
    """Return which rows set or wait for flags of other cores, bool[n]."""
    marks: np.ndarray = np.isin(rows["op"], (*SETS, *WAITS))
    return marks


def waits_for_cores(rows: np.ndarray) -> list[int]:
    """Return which rows hold the core up until others have come so far."""
    return np.flatnonzero(np.isin(rows["op"], WAITS)).tolist()
