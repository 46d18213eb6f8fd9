"""The hazards engine: bounds, uninitialised reads, missing order between pipes and cores, unpaired flags.

It looks at rows only; no tensor data exists or is needed. What is ordered and what is remembered is described in
`hazards_jit`. The names of the findings are those of asc-tools' npuchk (``docs/02_npu_check_en.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from npu_sim.engines.hazards_checker import Checker
from npu_sim.engines.hazards_shadow import FINDING_LIMIT
from npu_sim.engines.hazards_turns import check_by_turns
from npu_sim.engines.unused_reads import as_notes
from npu_sim.errors import ShapeError
from npu_sim.isa.codes import Pipe
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks, programs_of
from npu_sim.program.row_digest import Programs
from npu_sim.program.violation import Violation

__all__ = ["FINDING_LIMIT", "emit_rows", "missing_order", "run_hazards", "run_hazards_programs", "run_hazards_rows"]

CHUNK_ROWS = 4096


def emit_rows(launch: Launch, core: int, phase: int = 0, *, chunk_rows: int = CHUNK_ROWS) -> np.ndarray:
    """Return all rows of one core and phase of ``launch``, before `issue`, as INSTR[rows]."""
    buffer = empty_rows(max(chunk_rows, launch.step_rows))
    return join_rows([buffer[:count].copy() for count in launch.rows(core, phase, buffer)])


def run_hazards(
    launches: Launch | Sequence[Launch],
    product: Product,
    *,
    outputs: Iterable[str] | None = None,
    chunk_rows: int = CHUNK_ROWS,
    programs: Sequence[Programs] | None = None,
) -> list[Violation]:
    """Check every core and phase of one launch, or of several in stream order, without touching tensor data.

    Parameters
    ----------
    launches : Launch or sequence of Launch
        The kernels; several must share one `GlobalMemory`, and each begins when the one before is over (so an output
        that an earlier launch cleared counts as written). The GM arena is not used.
    product : Product
        Capacities and event ids.
    outputs : iterable of str, optional
        Tensors that the launches have to fill. None: those outputs (`GmTensor.is_output`) of which they write anything.
    chunk_rows : int
        Rows emitted at a time (at least a launch's ``step_rows``); never changes the result.
    programs : sequence of Programs, optional
        Those of each launch (`program.legality.programs_of`), so that what equal cores do in their buffers is checked
        once; never changes the result. None: they are found out.

    Returns
    -------
    list of Violation
        In the order launch, phase, core, row, then state that cores leave on, outputs that are not filled, and what the
        launches say themselves (`Launch.known`); empty when all is well. At most one per (kind of conflict, row, other
        row), at most `FINDING_LIMIT` and the first of each kind; how many more of its kind there are is in the last
        (`Violation.left_out`). Row numbers count the rows of a core through all phases of a launch; of several
        launches, `detail` names the one.

    Raises
    ------
    ShapeError
        If the launches do not share their global memory.

    Notes
    -----
    Between cores a GM byte may have one writer per phase, or any number that add atomically, and then no reader on
    another core. Within a core, atomic adds need no order among themselves. SetAtomicMax and Min count as additions:
    that a byte is added to and takes an extreme without an order in between is not found.
    """
    sequence = [launches] if isinstance(launches, Launch) else list(launches)
    if not sequence:
        return []
    gm = sequence[0].gm
    if any(launch.gm is not gm for launch in sequence):
        raise ShapeError("launches must share one GlobalMemory, not several")
    names = [tensor.name for tensor in gm.tensors]
    checker = Checker(product, gm.table(), names, [launch.name for launch in sequence])

    def source(launch: int, phase: int, core: int) -> np.ndarray:
        # Emission is deterministic, so the rows of the findings are emitted once more instead of being kept.
        return emit_rows(sequence[launch], core, phase, chunk_rows=chunk_rows)

    between: list[Violation] = []
    is_stuck = False
    for number, launch in enumerate(sequence):
        buffer = empty_rows(max(chunk_rows, launch.step_rows))
        checker.auto_sync, checker.line_of = launch.auto_sync, launch.place_of
        checker.has_buffers, checker.keeps_cores = bool(launch.buffers), launch.keeps_cores
        checker.plain_stores = (*launch.plain_stores, *launch.filled)
        alike = None
        if not launch.keeps_cores and launch.core_count > 1:
            alike = programs_of(launch) if programs is None else programs[number]
        core_states = np.zeros((launch.core_count, CORE_STATE_LENGTH), np.int64)
        if launch.by_turns:
            found, is_stuck = check_by_turns(checker, number, launch, core_states)
            between += found
            if is_stuck:
                break
            for core, core_state in enumerate(core_states):
                checker.leave(core, core_state, source)
            continue
        for phase in range(launch.phase_count):
            is_last = not launch.keeps_cores or phase == launch.phase_count - 1
            for core, core_state in enumerate(core_states):
                checker.core_kind = launch.kind_of(core)
                checker.begin(number, phase, core, None if alike is None else alike.digests[phase][core])
                for rows in issued_chunks(launch, core, phase, buffer, core_state):
                    checker.check(rows, len(rows))
                checker.end(is_last=is_last)
                if is_last:
                    checker.leave(core, core_state, source)

    def rows_of(launch: int, core: int) -> np.ndarray:
        return join_rows([source(launch, phase, core) for phase in range(sequence[launch].phase_count)])

    def start_of(number: int, core: int, row: int) -> int:
        """Return the first row of the phase that a row is in, where a phase finds nothing of the one before."""
        launch, start = sequence[number], 0
        for phase in range(0 if launch.keeps_cores else launch.phase_count - 1):
            end = start + len(source(number, phase, core))
            if row < end:
                break
            start = end
        return start

    cores_of = [launch.core_count for launch in sequence]
    found = as_notes(checker.violations(source), rows_of, product, cores_of.__getitem__, start_of)
    if outputs is None:
        births = checker.shadow.births
        filled = [tensor.index for tensor in gm.tensors if tensor.is_output and births[tensor.index]]
    else:
        asked = set(outputs)
        filled = [tensor.index for tensor in gm.tensors if tensor.name in asked]
    known = (replace(said, launch=number) for number, launch in enumerate(sequence) for said in launch.known)
    holes = [] if is_stuck else checker.holes(filled, source)
    return [*between, *found, *checker.states, *holes, *known]


def run_hazards_programs(
    programs: Sequence[Sequence[np.ndarray]],
    product: Product,
    gm_table: npt.NDArray[np.int64],
    *,
    names: Sequence[str] | None = None,
) -> list[Violation]:
    """Check materialised rows, for instance after removing some of them.

    Parameters
    ----------
    programs : sequence of sequence of INSTR[:]
        ``programs[phase][core]``; not modified.
    product : Product
        Capacities and event ids.
    gm_table : int64[tensors, 4]
        `GlobalMemory.table`.
    names : sequence of str, optional
        Names of the tensors, for messages.

    Returns
    -------
    list of Violation
        As `run_hazards`.
    """
    table = np.ascontiguousarray(gm_table, np.int64).reshape(-1, 4)
    checker = Checker(product, table, names or [f"tensor {index}" for index in range(len(table))])
    for phase, cores in enumerate(programs):
        for core, rows in enumerate(cores):
            checker.begin(0, phase, core)
            issued = rows.copy()
            issue(issued, len(issued), np.zeros(CORE_STATE_LENGTH, np.int64))
            checker.check(issued, len(issued))
            checker.end()
    return checker.violations(lambda _, phase, core: programs[phase][core])


def run_hazards_rows(
    rows: np.ndarray, product: Product, gm_table: npt.NDArray[np.int64], *, names: Sequence[str] | None = None
) -> list[Violation]:
    """Check the rows of one core and phase; see `run_hazards_programs`."""
    return run_hazards_programs([[rows]], product, gm_table, names=names)


def missing_order(rows: np.ndarray, violation: Violation) -> tuple[Pipe, Pipe] | None:
    """Return the (source, destination) pipes whose set/wait would order the two rows of ``violation``, if any."""
    pipes = [int(rows[at]["pipe"]) for at in (violation.other_row, violation.row) if at >= 0]
    if len(pipes) < 2 or max(pipes) > Pipe.ALL:
        return None
    return Pipe(pipes[0]), Pipe(pipes[1])
