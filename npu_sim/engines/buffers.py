"""Lives of named buffers: use without or behind their life, overruns, old content, double and missing FreeTensor.

A buffer may end behind its space, as on a device, where nothing happens until those bytes are used: that it does is a
finding, and what uses them is refused as any access outside a space.

For launches whose rows say where their buffers are (`npu_sim.isa.local_buffer`). The names of the findings are those of
asc-tools' npuchk (``docs/02_npu_check_en.md``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npu_sim.engines import buffers_jit as jitted
from npu_sim.engines.unused_reads import as_notes
from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import empty_runs
from npu_sim.isa.issue import CORE_STATE_LENGTH
from npu_sim.isa.op import Op
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import Product
from npu_sim.program.disassemble import name_of
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.verify import space_capacities
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import BLOCK_BYTES, ceil_div

FINDING_LIMIT = 1000
"""Findings kept of a core."""
_CHUNK_ROWS = 4096

_KINDS = {
    jitted.READ_FREE: Kind.READ_UNALLOCATED,
    jitted.WRITE_FREE: Kind.WRITE_UNALLOCATED,
    jitted.READ_OVERRUN: Kind.READ_OUT_OF_BOUNDS,
    jitted.WRITE_OVERRUN: Kind.WRITE_OUT_OF_BOUNDS,
    jitted.DEAD: Kind.READ_STALE,
    jitted.UNREAD: Kind.WRITE_UNREAD,
    jitted.TAKEN: Kind.BUFFER_TAKEN,
    jitted.NOT_ALIVE: Kind.BUFFER_FREED_TWICE,
    jitted.LEAK: Kind.BUFFER_LEAK,
    jitted.TOO_LARGE: Kind.CAPACITY,
}


def run_buffers(launch: Launch, product: Product) -> list[Violation]:
    """Check the named buffers of every core of a launch, through its phases.

    Parameters
    ----------
    launch : Launch
        One without `Launch.buffers` has nothing to check.
    product : Product
        Capacities.

    Returns
    -------
    list of Violation
        Core by core in the order of the rows; at most one per (kind, row, other row), at most `FINDING_LIMIT` a core
        and the first of each kind (`Violation.left_out` has how many more). Those of a core's end, LEAK, last.
    """
    found: list[Violation] = []
    if not launch.buffers:
        return found
    buffer, runs = empty_rows(max(_CHUNK_ROWS, launch.step_rows)), empty_runs()
    for core in range(launch.core_count):
        lives = _new_lives(product, max(launch.buffers) + 1)
        core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
        for phase in range(launch.phase_count):
            for rows in issued_chunks(launch, core, phase, buffer, core_state):
                jitted.check_rows(lives, rows, len(rows), runs)
        jitted.end_core(lives)
        count = int(lives.book[jitted.FINDINGS])
        if count:
            rows = _program(launch, core, buffer)
            findings, left = lives.findings[:count].tolist(), lives.book[jitted.LEFT :].tolist()
            last = {finding[0]: at for at, finding in enumerate(findings)}
            for at, finding in enumerate(findings):
                made = _violation(finding, rows, core, launch, product)
                found.append(replace(made, left_out=left[finding[0]]) if last[finding[0]] == at else made)
    return as_notes(found, lambda _, core: _program(launch, core, buffer), product)


def _program(launch: Launch, core: int, buffer: np.ndarray) -> np.ndarray:
    """Return all rows of a core."""
    phases = range(launch.phase_count)
    return join_rows([rows.copy() for phase in phases for rows in issued_chunks(launch, core, phase, buffer)])


def _new_lives(product: Product, buffer_count: int) -> jitted.Lives:
    book = np.zeros(jitted.BOOK_LENGTH, np.int64)
    book[jitted.BASE : jitted.CELLS] = -1
    cells = 0
    for space, capacity in space_capacities(product).items():
        if space is Space.IDX:
            continue  # nobody allocates what nobody names
        book[jitted.BASE + space], book[jitted.CELLS + space] = cells, ceil_div(capacity, BLOCK_BYTES)
        cells += int(book[jitted.CELLS + space])
    return jitted.Lives(
        owner=np.zeros(cells, np.int64),
        written=np.zeros(cells, np.int64),
        unread=np.zeros(cells, np.int64),
        writers=np.zeros((jitted.WRITERS, 3), np.int64),
        alive=np.zeros((buffer_count, 4), np.int64),
        findings=np.zeros((FINDING_LIMIT + jitted.CODES, jitted.FINDING_FIELDS), np.int64),
        book=book,
    )


def _violation(finding: list[int], rows: np.ndarray, core: int, launch: Launch, product: Product) -> Violation:
    code, number, other, space, start, length = finding
    row = rows[number - 1 : number].copy()[0]
    if code == jitted.TOO_LARGE:
        name, capacity = Space(space).name, space_capacities(product)[Space(space)]
        words = f"must leave {name} at most {capacity} bytes, not ask for {start + length} ({product.name})"
    else:
        words = _detail(np.int64(code), rows, number, other, launch)
    return Violation(
        kind=_KINDS[np.int64(code)],
        row=number - 1,
        other_row=other - 1,
        core=core,
        tile=int(row["tile"]),
        site=int(row["site"]),
        other_site=int(rows["site"][other - 1]) if other else -1,
        space=Space(space),
        start=start,
        length=length,
        detail=f"{name_of(row)} {words}",
    )


def _detail(code: np.int64, rows: np.ndarray, number: int, other: int, launch: Launch) -> str:
    before = rows[other - 1] if other else None
    words = "" if before is None else f"row {other - 1} {name_of(before)}"
    name = launch.buffers.get(int(rows[number - 1]["value"]), "") if _is_marker(rows[number - 1]) else ""
    if before is not None and _is_marker(before):
        name = launch.buffers.get(int(before["value"]), "")
    if code in (jitted.READ_FREE, jitted.WRITE_FREE):
        verb = "reads" if code == jitted.READ_FREE else "writes"
        return f"{verb} bytes of no buffer" + (f", which {words} of {name} gave back" if words else "")
    if code in (jitted.READ_OVERRUN, jitted.WRITE_OVERRUN):
        return f"must stay inside buffer {name} of {words}"
    if code == jitted.DEAD:
        return f"reads what is left of {words}, which was written before the buffer was allocated"
    if code == jitted.UNREAD:
        return f"overwrites what {words} wrote and nobody has read"
    if code == jitted.TAKEN:
        return f"must be given bytes that are free, not those of {name} since {words}"
    if code == jitted.NOT_ALIVE:
        return f"must give back a buffer that is alive, not {name}" + (f", which {words} gave back" if words else "")
    return f"of {name} is not followed by FreeTensor"


def _is_marker(row: np.void) -> bool:
    return int(row["op"]) in (Op.ALLOC_TENSOR, Op.FREE_TENSOR)
