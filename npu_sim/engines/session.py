"""A core that runs rows as they come and keeps its buffers in between.

`execute` runs whole launches. A session runs what a kernel object emits call by call, on tensors that are the caller's
arrays, and can keep the rows, so that the engines that look at rows only can judge the whole program afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from npu_sim.engines.execute_core import unsupported
from npu_sim.engines.execute_options import ExecuteOptions, configuration
from npu_sim.engines.kit import KITS, RUNS, Kit
from npu_sim.engines.session_jit import first_outside, localise, spaces_named
from npu_sim.errors import InternalError, ProgramError, ShapeError
from npu_sim.fenv import default_fenv
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.codes import Space
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.footprint import RUN_CAPACITY
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import join_rows
from npu_sim.memory.core import CoreMemory, overwrite
from npu_sim.memory.gm import GlobalMemory, spare_words
from npu_sim.memory.host import HostMemory, HostSpan
from npu_sim.products import Product
from npu_sim.program.disassemble import disassemble
from npu_sim.program.launch import Launch
from npu_sim.program.recorded import launch_of
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind, Violation


class Session:
    """One emulated core with its buffers, from the first row to `close`.

    Parameters
    ----------
    product : Product
        Where.
    options : ExecuteOptions
        Numerics. Rows run in program order, on the calling thread; the buffers start poisoned.
    memory : HostMemory
        The tensors.
    core : int
        Number of the core, for messages.
    trusted : bool
        False: rows are also held to the rules of single rows (`program.verify`). GM bounds are checked always.
    record : bool
        Keep a copy of the rows.
    """

    def __init__(
        self,
        product: Product,
        options: ExecuteOptions,
        memory: HostMemory,
        *,
        core: int = 0,
        trusted: bool = False,
        record: bool = False,
    ) -> None:
        if options.order != "program":
            raise ShapeError(f"order of a session must be 'program', not {options.order!r}")
        self._product, self._memory, self._core, self._trusted = product, memory, core, trusted
        self._config = configuration(product, options)
        self._core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
        self._parts: list[np.ndarray] | None = [] if record else None
        self._count = 0
        self._sink = np.zeros(SINK_LENGTH, np.int64)
        self._sink[3] = self._config[3]
        self._no_gm = np.zeros(0, np.uint8)
        self._segments = np.zeros((64, 2), np.int64)
        self._reached = np.zeros((1, len(Space), 2), np.int64)
        self._kit: Kit | None = KITS.take(product.core)
        core_memory = self._kit.memory
        overwrite(core_memory.bt)
        overwrite(core_memory.fb)
        overwrite(core_memory.idx)
        # the others are poisoned when a row first names them: a vector core has a sixth of what a kit has
        self._untouched: dict[Space, np.ndarray] = {
            Space.L1: core_memory.l1,
            Space.L0A: core_memory.l0a,
            Space.L0B: core_memory.l0b,
            Space.L0C: core_memory.l0c,
            Space.UB: core_memory.ub,
        }
        self._buffers = core_memory.buffers
        no_log = np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)
        self._work = self._config, self._kit.scratch, self._kit.staging, self._sink, *no_log

    def use(self, options: ExecuteOptions) -> None:
        """Run the rows that follow with other numerics."""
        self._config[:] = configuration(self._product, options)
        self._sink[3] = self._config[3]

    @property
    def row_count(self) -> int:
        """Rows run so far."""
        return self._count

    @property
    def memory(self) -> CoreMemory:
        """The buffers of the core, as the rows so far have left them."""
        if self._kit is None:
            raise InternalError("Session must be open, not closed")
        self._touch(-1)
        return self._kit.memory

    def _touch(self, spaces: int) -> None:
        """Poison the buffers of ``spaces``, in bits, that no row has touched yet."""
        for space in [one for one in self._untouched if spaces >> one & 1]:
            overwrite(self._untouched.pop(space))

    @property
    def rows(self) -> np.ndarray:
        """The rows so far, before `issue`, INSTR[n]; empty unless they are kept."""
        return join_rows(self._parts or [])

    @default_fenv
    def run(self, rows: np.ndarray, spans: Sequence[HostSpan], context: str = "") -> None:
        """Run the next rows of the core.

        Parameters
        ----------
        rows : INSTR[n]
            In program order; changed in place.
        spans : sequence of HostSpan
            What they may touch of the tensors. Not to be changed: the next call may give the same object.
        context : str
            What emitted them, for messages.

        Raises
        ------
        ProgramError
            If a row leaves the spans, is illegal on the product (unless the session is ``trusted``), or cannot be
            carried out. Nothing has run then, except before a row that cannot be carried out.
        """
        if self._kit is None:
            raise InternalError("Session must be open, not closed")
        emitted = rows.copy() if self._parts is not None else None
        core_state = self._core_state.copy()
        issue(rows, len(rows), core_state)
        if not self._trusted:
            self.refuse(verify(rows, self._product))
        table = self._table_within(rows, spans, context)
        self._core_state = core_state
        if self._parts is not None and emitted is not None:
            self._parts.append(emitted)
        self._carry_out(rows, table, context)

    def refuse(self, found: Iterable[Violation]) -> None:
        """Raise what is wrong with the next rows, numbered as all of the core.

        Parameters
        ----------
        found : iterable of Violation
            Numbered from the first of the next rows.

        Raises
        ------
        ProgramError
            If there are any.
        """
        numbered = [replace(one, core=self._core, row=self._count + one.row) for one in found]
        if numbered:
            raise ProgramError(numbered)

    @default_fenv
    def run_issued(self, rows: np.ndarray, spans: Sequence[HostSpan], context: str = "") -> None:
        """Run the next rows, which `isa.issue` has seen and which were held to the rules of single rows.

        A session runs rows by this or by `run`, not by both.

        Parameters
        ----------
        rows, spans, context
            See `run`.

        Raises
        ------
        ProgramError
            If a row leaves the spans, or cannot be carried out.
        """
        self._carry_out(rows, self._table_within(rows, spans, context), context)

    def _table_within(self, rows: np.ndarray, spans: Sequence[HostSpan], context: str) -> npt.NDArray[np.int64]:
        """Return what rows may touch (`HostMemory.table`); refuse those that touch more."""
        table = self._memory.table(spans)
        outside = outside_of(rows, table, self._reached)
        if outside >= 0:
            raise ProgramError([self._outside(rows[outside], outside, spans, context)])
        return table

    def _carry_out(self, rows: np.ndarray, table: npt.NDArray[np.int64], context: str) -> None:
        if self._kit is None:
            raise InternalError("Session must be open, not closed")
        if self._untouched:
            self._touch(int(spaces_named(rows, len(rows))))
        first = 0
        for last, gm in self._arrays(rows, table):
            bad = int(run_rows(rows, first, last, gm, *self._buffers, *self._work))
            if bad >= 0:
                raise ProgramError([unsupported(rows[bad], self._count + bad, self._core, context)])
            first = last
        self._count += len(rows)

    def _arrays(self, rows: np.ndarray, table: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Yield the array that rows touch, and the row behind the last that touches it; count addresses in it."""
        count = len(rows)
        if self._memory.arena is not None:
            yield count, self._memory.arena
            return
        if len(self._segments) <= count:
            self._segments = np.zeros((2 * count, 2), np.int64)
        for last, tensor in self._segments[: localise(rows, count, table, self._segments)].tolist():
            yield last, self._memory.storage(tensor) if tensor >= 0 else self._no_gm

    def close(self) -> None:
        """Give the buffers back; the rows stay."""
        if self._kit is not None:
            KITS.give_back(self._product.core, self._kit)
            self._kit = None

    def _outside(
        self,
        row: np.void,
        at: int,
        spans: Sequence[HostSpan],
        context: str,
    ) -> Violation:
        low, high = self._reached[0, Space.GM].tolist()
        tensor = int(row["tensor"])
        named = [span for span in spans if span.tensor.index == tensor]
        where = "a tensor of the call"
        if named:
            start = named[0].start
            end = max(span.end for span in named)
            data_end = min(end, named[0].tensor.address + named[0].tensor.byte_count)
            extent = f"[0:{data_end - start}] bytes{spare_words(data_end, end)}"
            where = f"{named[0].name}{extent}, not touch [{low - start}:{high - start}]"
        writes = int(row["dst_space"]) == Space.GM
        return Violation(
            kind=Kind.WRITE_OUT_OF_BOUNDS if writes else Kind.READ_OUT_OF_BOUNDS,
            row=self._count + at,
            core=self._core,
            tile=int(row["tile"]),
            site=int(row["site"]),
            space=Space.GM,
            start=low,
            length=high - low,
            detail=f"{disassemble(row)} must stay inside {where}" + (f" ({context})" if context else ""),
        )


def outside_of(rows: np.ndarray, table: npt.NDArray[np.int64], reached: npt.NDArray[np.int64]) -> int:
    """Return the first row that leaves what it may touch (`HostMemory.table`), or -1.

    Parameters
    ----------
    rows : INSTR[n]
    table : int64[tensors, 3]
    reached : int64[1, SPACES, 2]
        Receives how far that row reaches.
    """
    runs = RUNS.take(RUN_CAPACITY)
    outside = int(first_outside(rows, len(rows), table, runs, reached))
    RUNS.give_back(RUN_CAPACITY, runs)
    return outside


def recorded_launch(
    name: str,
    programs: Sequence[np.ndarray],
    gm: GlobalMemory,
    *,
    sites: dict[int, str] | None = None,
    known: tuple[Violation, ...] = (),
) -> Launch:
    """Return recorded rows as a launch, for the engines that look at rows only.

    Parameters
    ----------
    name : str
        Kernel name for reports.
    programs : sequence of INSTR[:]
        The rows of each core, of one phase.
    gm : GlobalMemory
        The layout their addresses mean.
    sites : dict of int to str, optional
        Names of the sites.
    known : tuple of Violation
        See `Launch.known`.
    """
    phases = [[rows] for rows in programs]
    return launch_of(name, phases, gm, sites=dict(sites or {}), known=known)
