"""Legality of programs: every row as its core sees it, behind the SetAtomicAdd and SetHF32Mode that came before.

`verify` judges rows that went through `issue`; what is emitted has not. These are the ways to judge what was emitted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import Product
from npu_sim.program.known_rows import GM_BITS
from npu_sim.program.launch import CoreKind, Launch
from npu_sim.program.row_digest import LANES, Programs, digest
from npu_sim.program.verify import verify
from npu_sim.program.violation import Violation

_CHUNK_ROWS = 1 << 14
_DIGEST_ROWS = 1 << 12


def issued_chunks(
    launch: Launch, core: int, phase: int, buffer: np.ndarray, core_state: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yield the issued rows of one core and phase, as views into ``buffer`` that are valid until the next one.

    Parameters
    ----------
    launch : Launch
    core, phase : int
    buffer : INSTR[n]
        Room for at least the launch's ``step_rows``.
    core_state : int64[CORE_STATE_LENGTH] or None
        The state of the core, carried on in place, from the phase before if it keeps it; None: of a core that begins.
    """
    if core_state is None:
        core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
    if not launch.keeps_cores:
        core_state[:] = 0
    for count in launch.rows(core, phase, buffer):
        issue(buffer, count, core_state)
        yield buffer[:count]


def programs_of(launch: Launch) -> Programs:
    """Emit the rows of every core and phase once, and tell which are the same program wherever their tensors are."""
    buffer = empty_rows(max(_DIGEST_ROWS, launch.step_rows))
    words = buffer.view(np.uint8).reshape(-1).view(np.uint64)
    row_counts = np.zeros((launch.phase_count, launch.core_count), np.int64)
    digests = [[b""] * launch.core_count for _ in range(launch.phase_count)]
    for core in range(launch.core_count):
        core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
        for phase in range(launch.phase_count):
            lanes = np.zeros(LANES, np.uint64)
            with np.errstate(over="ignore"):  # without compilation NumPy reports that numbers of 64 bits wrap around
                for rows in issued_chunks(launch, core, phase, buffer, core_state):
                    digest(rows, words, len(rows), GM_BITS, lanes)
                    row_counts[phase, core] += len(rows)
            digests[phase][core] = lanes.tobytes() + launch.kind_of(core).encode()
    return Programs(tuple(map(tuple, digests)), row_counts)


def verify_program(rows: np.ndarray, product: Product, *, core_kind: CoreKind | None = None) -> list[Violation]:
    """Check the whole program of one core and phase, INSTR[n] as emitted; ``rows`` are left alone. See `verify`."""
    issued = rows.copy()
    issue(issued, len(issued), np.zeros(CORE_STATE_LENGTH, np.int64))
    return verify(issued, product, core_kind=core_kind)


def verify_launch(launch: Launch, product: Product, *, programs: Programs | None = None) -> list[Violation]:
    """Check every row of a launch, core by core, phase by phase, chunk by chunk.

    Parameters
    ----------
    launch : Launch
        Its GM arena is not used; bounds of GM tensors are for `program.bounds` and `engines.hazards`.
    product : Product
    programs : Programs, optional
        Those of the launch (`programs_of`): one of each kind is checked, and all if anything is wrong with it.

    Returns
    -------
    list of Violation
        As `verify`, on cores of the launch's kind; rows are numbered through the phases of a core.
    """
    return verify_launches([launch], product, programs=None if programs is None else [programs])


def verify_launches(
    launches: Sequence[Launch], product: Product, *, programs: Sequence[Programs] | None = None
) -> list[Violation]:
    """Return what is wrong with several launches, as `verify_launch` of each; `Violation.launch` says with which."""
    if programs is None:
        return _verified([(number, launch, None) for number, launch in enumerate(launches)], product)
    found = _verified(list(zip(range(len(launches)), launches, programs, strict=True)), product)
    wrong = sorted({violation.launch for violation in found})
    return _verified([(number, launches[number], None) for number in wrong], product)


def _verified(launches: Sequence[tuple[int, Launch, Programs | None]], product: Product) -> list[Violation]:
    """Check every row of numbered launches, or one program of each kind."""
    buffer = empty_rows(max([_CHUNK_ROWS, *(launch.step_rows for _, launch, _ in launches)]))
    batches: dict[CoreKind, _Batch] = {}
    found: list[Violation] = []
    for number, launch, programs in launches:
        known = set[bytes]()
        for core in range(launch.core_count):
            first, kind = 0, launch.kind_of(core)
            batch = batches.setdefault(kind, _Batch(product, kind))
            core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
            for phase in range(launch.phase_count):
                if programs is not None and not launch.keeps_cores:
                    if programs.digests[phase][core] in known:
                        first += int(programs.row_counts[phase, core])
                        continue
                    known.add(programs.digests[phase][core])
                for rows in issued_chunks(launch, core, phase, buffer, core_state):
                    found += batch.add(rows, (number, core, first))
                    first += len(rows)
    found += [violation for batch in batches.values() for violation in batch.verified()]
    return sorted(found, key=lambda violation: (violation.launch, violation.core, violation.row))


class _Batch:
    """Rows of several cores of one kind, judged at once: most of the time of `verify` does not depend on how many."""

    def __init__(self, product: Product, kind: CoreKind) -> None:
        self._product = product
        self._kind = kind
        self._parts: list[np.ndarray] = []
        self._starts: list[int] = []
        self._owners: list[tuple[int, int, int]] = []
        self._count = 0

    def add(self, rows: np.ndarray, owner: tuple[int, int, int]) -> list[Violation]:
        """Add the next rows of a launch and core, from a row of it on; return what is wrong with those before."""
        found = self.verified() if self._count >= _CHUNK_ROWS else []
        self._parts.append(join_rows([rows]))
        self._starts.append(self._count)
        self._owners.append(owner)
        self._count += len(rows)
        return found

    def verified(self) -> list[Violation]:
        """Judge the rows that were added, and begin anew."""
        found = []
        for violation in verify(join_rows(self._parts), self._product, core_kind=self._kind):
            part = bisect_right(self._starts, violation.row) - 1
            launch, core, first = self._owners[part]
            row = first + violation.row - self._starts[part]
            found.append(replace(violation, launch=launch, core=core, row=row))
        for kept in (self._parts, self._starts, self._owners):
            kept.clear()
        self._count = 0
        return found
