"""One core of a launch: its rows, checked and put in order, and the buffers they run on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npu_sim.engines.execute_options import ExecuteOptions
from npu_sim.engines.execute_turns import Log, Turns, take_turn
from npu_sim.engines.issue_order import first_held_wait, starts_of
from npu_sim.engines.kit import Kit
from npu_sim.engines.reorder import Order, Race, legal_order, new_flags, order_that_bites
from npu_sim.errors import ProgramError, ShapeError
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.issue import CORE_STATE_LENGTH
from npu_sim.isa.row import join_rows
from npu_sim.memory.core import CoreMemory
from npu_sim.products import Product
from npu_sim.program.bounds import gm_violations
from npu_sim.program.cross_core import undeclared_crossings, waits_for_cores
from npu_sim.program.disassemble import disassemble, duty_of
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind, Violation

TURN_ROWS = 512
"""How often a core that logs looks whether its turn has come; what it logs is written and read once more."""


@dataclass(slots=True)
class Kept:
    """What a core keeps from phase to phase (`Launch.keeps_cores`)."""

    memory: CoreMemory
    state: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(CORE_STATE_LENGTH, np.int64))
    flags: npt.NDArray[np.int64] = field(default_factory=new_flags)


@dataclass(slots=True)
class Worker:
    """Buffers of one host thread."""

    product: Product
    kit: Kit
    rows: np.ndarray
    config: npt.NDArray[np.int64]
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = Log(int(self.config[3]))


def chunks_of(
    launch: Launch,
    core: int,
    phase: int,
    options: ExecuteOptions,
    product: Product,
    buffer: np.ndarray,
    kept: Kept | None,
) -> Iterator[np.ndarray]:
    """Yield the issued rows of one core and phase, checked unless the launch is trusted, in the order of ``options``.

    They are views that are valid until the next one. No row changes places with a CrossCoreWaitFlag or WaitSignal.
    """
    order = _order_of(options, launch, core)
    if launch.trusted and kept is None and order == "program":
        # nothing to check, to hold back or to move
        made = launch.kept.of(core, phase)
        if made is None:
            yield from issued_chunks(launch, core, phase, buffer)
        elif len(made):
            yield made
        return
    collected: list[np.ndarray] = []
    done = begin = 0
    if isinstance(order, Race):
        before = sum(sum(launch.rows(core, earlier, buffer)) for earlier in range(phase))
        order = replace(order, earlier=order.earlier - before, later=order.later - before)
    flags = kept.flags if kept else None
    if order == "program" and not launch.trusted:
        flags = new_flags() if flags is None else flags
    for rows in issued_chunks(launch, core, phase, buffer, kept.state if kept else None):
        if not launch.trusted:
            _check(rows, launch, product, core, done)
        start, done = done, done + len(rows)
        first = 0
        if order == "program" and not collected:
            first = len(rows) if flags is None else int(first_held_wait(rows, 0, flags))
            if first:
                yield rows[:first]
        for wait in waits_for_cores(rows):
            if wait < first:
                continue
            yield _ordered([*collected, rows[first:wait].copy()], order, begin, product, flags)
            yield rows[wait : wait + 1]
            collected, first = [], wait + 1
            begin = start + first
        if first < len(rows):
            collected.append(rows[first:].copy())
    if collected:
        yield _ordered(collected, order, begin, product, flags)


def _order_of(options: ExecuteOptions, launch: Launch, core: int) -> Order:
    """Return the order of the rows of a core; a race of another core or launch leaves that of the program."""
    order = options.order
    if isinstance(order, Race) and (order.launch, order.core) != (launch.name, core):
        return "program"
    return order


def _ordered(
    parts: list[np.ndarray], order: Order, begin: int, product: Product, flags: npt.NDArray[np.int64] | None
) -> np.ndarray:
    """Return rows, of which the first has the number ``begin``, in an order, the program's being that of their starts.

    They are those between two waits for other cores; a race of rows that are elsewhere leaves them as they are.
    """
    rows = join_rows(parts)
    if isinstance(order, Race):
        if begin <= order.earlier and order.later < begin + len(rows):
            biting = order_that_bites(rows, order.earlier - begin, order.later - begin, flags)
            if biting is None:
                raise ShapeError(f"order must be that of a race, not {order}: something orders the two rows")
            return rows[biting]
        order = "program"
    if order != "program" or flags is None:
        return rows[legal_order(rows, order, flags)]
    starts = starts_of(rows, flags, product.cost.queue_depth_rows)
    # rows that wait for ever are for the hazards engine to find; here they run as if they did not
    return rows if starts.waits else rows[starts.order]


def run_core(
    launch: Launch,
    core: int,
    place: int,
    phase: int,
    options: ExecuteOptions,
    worker: Worker,
    turns: Turns,
    kept: Kept | None,
) -> None:
    """Run what a core does in a phase; ``place`` is its place in the `core_sequence`, ``kept`` what it keeps."""
    gm = turns.gm
    memory = kept.memory if kept else worker.kit.memory
    if options.poison and not kept:
        memory.poison()
    done = 0
    for rows in chunks_of(launch, core, phase, options, worker.product, worker.rows, kept):
        # alone, a core has its turn from the start; among others it looks again every few rows
        step = len(rows) if options.threads == 1 else TURN_ROWS
        for first in range(0, len(rows), step):
            last = min(first + step, len(rows))
            take_turn(place, rows[first:last], worker.log, turns, gm)
            bad = carry_out(rows, first, last, worker, memory, gm)
            if bad >= 0:
                raise ProgramError([unsupported(rows[bad], done + bad, core, launch.name)])
        done += len(rows)
    worker.log = turns.finish(place, worker.log) or Log(int(worker.config[3]))


def carry_out(rows: np.ndarray, first: int, last: int, worker: Worker, memory: CoreMemory, gm: np.ndarray) -> int:
    """Run a stretch of rows on the buffers of a core; return the row that cannot be carried out, or -1."""
    log = worker.log
    return int(
        run_rows(
            rows,
            first,
            last,
            gm,
            *memory.buffers,
            worker.config,
            worker.kit.scratch,
            worker.kit.staging,
            log.sink,
            log.runs,
            log.data,
        )
    )


def unsupported(row: np.void, number: int, core: int, context: str) -> Violation:
    """Return what is wrong with a row that cannot be carried out.

    Parameters
    ----------
    row : INSTR
    number : int
        Of the row, among all of the core.
    core : int
    context : str
        What emitted it; "": nothing that has a name.
    """
    return Violation(
        kind=Kind.UNSUPPORTED,
        row=number,
        core=core,
        tile=int(row["tile"]),
        site=int(row["site"]),
        detail=f"{disassemble(row)} must {duty_of(row)}" + (f" ({context})" if context else ""),
    )


def _check(rows: np.ndarray, launch: Launch, product: Product, core: int, first: int) -> None:
    """Refuse rows that are illegal on the product or leave their tensors, before they touch memory."""
    found = [replace(v, core=core, row=first + v.row) for v in verify(rows, product, core_kind=launch.kind_of(core))]
    found += [replace(v, core=core, row=first + v.row) for v in undeclared_crossings(rows, launch)]
    known = {violation.row for violation in found}
    bounds = gm_violations(rows, launch.gm.table(), core=core, first=first)
    found += [violation for violation in bounds if violation.row not in known]
    if found:
        raise ProgramError(found)
