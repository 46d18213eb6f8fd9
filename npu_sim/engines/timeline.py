"""The timeline engine: integer cycles of a launch, pipe by pipe, with the reason of every wait.

Cycle-approximate: the pass over the rows is exact for in-order pipes joined by flags, the costs of the rows are those
of the product's parameter set (`products.cost`), each with a source and a confidence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from npu_sim.engines.core_classes import CoreClasses, classify
from npu_sim.engines.timeline_held import advance_held
from npu_sim.engines.timeline_jit import (
    AT_BUSY,
    AT_BYTES,
    AT_COUNT,
    AT_STALL,
    BAD_FLAG,
    BAD_PIPE,
    CAUSES,
    CLOCK_WORDS,
    CORE_CYCLES,
    EVENTS,
    FLAG_TIMES,
    NO_COST_RULE,
    OK,
    OPCODES,
    OUT_OF_RANGE,
    PARTS,
    PIPES,
    SET_TWICE,
    TOO_LONG,
    UNSUPPORTED_BY_PRODUCT,
    WAIT_WITHOUT_SET,
    advance,
    finish,
    reset_clocks,
)
from npu_sim.engines.timeline_memory import Touched, l2_misses, memory_cycles, memory_traffic, touched_of
from npu_sim.engines.timeline_result import (
    PART_NAMES,
    CoreSpans,
    LaunchTime,
    TimedProduct,
    TimelineOptions,
    TimelineResult,
    by_path,
    by_pipe,
    stalls_of,
)
from npu_sim.engines.timeline_turns import Crossing, TurnClocks
from npu_sim.errors import ProgramError
from npu_sim.fenv import default_fenv
from npu_sim.isa.codes import SPACES, Pipe, Space
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.names import pipe_name, space_name, type_name
from npu_sim.isa.op import Op
from npu_sim.isa.row import INSTR, join_rows
from npu_sim.products.cost_record import cost_record
from npu_sim.program.cross_core import CrossCoreFlags
from npu_sim.program.disassemble import disassemble, name_of
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Kind, Violation


@default_fenv
def run_timeline(
    launch: Launch, product: TimedProduct, *, spans: bool = False, options: TimelineOptions | None = None
) -> TimelineResult:
    """Time ``launch`` on ``product``; tensor data is neither read nor needed.

    Parameters
    ----------
    launch : Launch
        Kernel launch.
    product : Product
        Parameters, clock and L2 size.
    spans : bool
        Keep the start and end of every row (for traces; memory grows with the program).
    options : TimelineOptions or None
        Assumptions; None: the defaults.

    Raises
    ------
    ProgramError
        If rows wait for each other or for a flag that none sets, a flag is set twice without a wait, an instruction has
        no cost on this product, or a row holds what no instruction can.

    Examples
    --------
    >>> result = run_timeline(launch, npu_sim.get_product("910b"))  # doctest: +SKIP
    >>> sum(result.critical_parts.values()) == result.total_cycles  # doctest: +SKIP
    True
    """
    given = options or TimelineOptions()
    with _buffer(launch, given) as rows:
        return _timed(launch, product, given, spans, rows)[0].result()


@default_fenv
def run_timelines(
    launch: Launch, product: TimedProduct, moved: Sequence[TimedProduct], *, options: TimelineOptions | None = None
) -> tuple[TimelineResult, tuple[LaunchTime, ...]]:
    """Time ``launch`` as `run_timeline` does, and again on products whose parameters differ from those of ``product``.

    There, of each phase the core is timed that was the slowest on ``product``, with MTE1 contended where it was there.
    Where another core or state would be the slowest, the time is off: of 3,380 times, those of the launches of the
    published rows and of two networks on two series, 37 are, by at most 8 % (``python -m tests.long.moved_times``).

    Raises
    ------
    ProgramError
        As `run_timeline`.
    """
    given = options or TimelineOptions()
    times = []
    with _buffer(launch, given) as rows:
        first, classes = _timed(launch, product, given, False, rows)
        for other in moved:
            run = _Run(launch, other, given, False, first.touched, rows)
            if launch.keeps_cores:
                run.time(classes)
            else:
                run.time_slowest_of(first)
            times.append(LaunchTime(run.total_cycles, other.timing_clock_hz, run.launch_nanoseconds))
    return first.result(), tuple(times)


class _Kept(threading.local):
    """Buffers of a thread by their rows."""

    def __init__(self) -> None:
        self.buffers: dict[int, np.ndarray] = {}


_KEPT = _Kept()


@contextmanager
def _buffer(launch: Launch, options: TimelineOptions) -> Iterator[np.ndarray]:
    """Give a buffer for rows, one of each size in a thread: jitted loops over generators never free theirs."""
    room = max(options.chunk_rows, launch.step_rows)
    rows = _KEPT.buffers.pop(room, None)
    if rows is None:
        rows = np.empty(room, INSTR)
    try:
        yield rows
    finally:
        _KEPT.buffers[room] = rows


def _timed(
    launch: Launch, product: TimedProduct, options: TimelineOptions, spans: bool, rows: np.ndarray
) -> tuple[_Run, CoreClasses]:
    classes = classify(launch, rows, with_extents=options.l2_hit_permille is None)
    run = _Run(launch, product, options, spans, touched_of(classes.gm_extents, launch.gm), rows)
    run.time(classes)
    return run, classes


# Launches of a network differ in few of the arguments; nothing writes to a record.
_shared_record = lru_cache(maxsize=256)(cost_record)


class _Run:
    """One call of `run_timeline`: buffers and running sums."""

    def __init__(
        self,
        launch: Launch,
        product: TimedProduct,
        options: TimelineOptions,
        spans: bool,
        touched: Touched,
        rows: np.ndarray,
    ) -> None:
        self.launch, self.product, self.options, self.rows = launch, product, options, rows
        self.touched = touched
        self.l2_hit_permille, self.read_miss_permille = l2_misses(launch, product, options, touched)
        self.clocks = np.empty(CLOCK_WORDS, np.int64)
        self.parts = np.zeros(PARTS, np.int64)
        self.no_spans = np.zeros((0, 2), np.int64)
        shown = range(launch.core_count) if options.span_cores is None else options.span_cores
        self.shown_cores = frozenset(shown if spans else ())
        self.costs: dict[bool, np.ndarray] = {}
        self.core_cycles = np.zeros(launch.core_count, np.int64)
        self.totals = np.zeros(CLOCK_WORDS - AT_BUSY, np.int64)
        self.critical = np.zeros(CLOCK_WORDS - AT_BUSY, np.int64)
        self.critical_parts = np.zeros(PARTS, np.int64)
        self.phase_cycles: list[int] = []
        self.barrier_cycles = product.cost.phase_barrier_cycles * max(launch.phase_count - 1, 0)
        self.memory_cycles = 0
        self.contended: list[bool] = []
        self.slowest: list[int] = []
        self.kept_spans: list[CoreSpans] = []
        # of each core at the begin of the phase and, if it keeps them, at its end: core state, then which flags are set
        cores = launch.core_count if launch.keeps_cores else 0
        self.states = np.zeros((cores, CORE_STATE_LENGTH + (FLAG_TIMES.stop - FLAG_TIMES.start)), np.int64)
        self.next_states = self.states.copy()
        self.cross_flags = CrossCoreFlags(launch) if launch.by_turns else None
        self.row_counts: dict[int, int] = {}
        self.crossings: list[Crossing] = []

    def _cost(self, contended: bool) -> np.ndarray:
        """Return the parameters; each record is made when it is first needed, which most launches save for one."""
        if contended not in self.costs:
            self.costs[contended] = _shared_record(
                self.product.cost,
                self.launch.sharing_cores,
                self.product.timing_clock_hz,
                l2_hit_permille=self.l2_hit_permille,
                read_miss_permille=self.read_miss_permille,
                mte1_contended=contended,
                list_commands=self.launch.list_commands,
            )
        return self.costs[contended]

    def time(self, classes: CoreClasses) -> None:
        """Time all cores in all phases."""
        for phase, first_of in enumerate(classes.first_of):
            self._time_phase(phase, first_of)
        self._bound_by_memory()

    def time_slowest_of(self, other: _Run) -> None:
        """Time in each phase the core that was the slowest with other parameters; what all cores move is the same."""
        for phase, core in enumerate(other.slowest):
            self.phase_cycles.append(self._core(core, phase, self._cost(other.contended[phase])))
        self.totals = other.totals
        self._bound_by_memory()

    def _time_phase(self, phase: int, first_of: npt.NDArray[np.int64]) -> None:
        """Time the cores of a phase; of those that run the same (``first_of``, see `CoreClasses`) the first one."""
        if self.launch.by_turns:
            self._time_by_turns(phase, self._timed_for(first_of))
            return
        contended = self.options.mte1_contended
        if self.launch.keeps_cores:
            firsts: dict[bytes, int] = {}
            keys = (line.tobytes() for line in np.column_stack((first_of, self.states)))
            first_of = np.array([firsts.setdefault(key, core) for core, key in enumerate(keys)])
        cores_of = np.bincount(first_of, minlength=self.launch.core_count)
        cycles_of = np.zeros(self.launch.core_count, np.int64)
        slowest, slowest_core, slowest_sums, slowest_parts = -1, 0, self.totals, self.parts
        for core in range(self.launch.core_count):
            if not cores_of[core]:
                if core in self.shown_cores:
                    self._core(core, phase, self._cost(bool(contended)))
                continue
            cycles = self._core(core, phase, self._cost(bool(contended)))
            if contended is None and cycles > 0:
                contended = bool(2 * self.clocks[AT_BUSY + Pipe.MTE2] > cycles)
                if contended:
                    cycles = self._core(core, phase, self._cost(True))
            cycles_of[core] = cycles
            sums = self.clocks[AT_BUSY:]
            self.totals += sums * cores_of[core]
            if cycles > slowest:
                slowest, slowest_core, slowest_sums, slowest_parts = cycles, core, sums.copy(), self.parts.copy()
        self.core_cycles += cycles_of[first_of]
        if self.launch.keeps_cores:
            self.states = self.next_states[first_of]
        self.contended.append(bool(contended))
        self.slowest.append(slowest_core)
        self._end_phase(slowest, slowest_sums, slowest_parts)

    def _end_phase(self, cycles: int, sums: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]) -> None:
        """Note what the slowest core of a phase takes."""
        self.phase_cycles.append(cycles)
        self.critical += sums
        self.critical_parts += parts

    def _timed_for(self, first_of: npt.NDArray[np.int64]) -> list[int]:
        """Return for each core which one is timed for it: itself, or where blocks are apart that of an equal block."""
        launch = self.launch
        timed = list(range(launch.core_count))
        if not launch.blocks_apart:
            return timed
        blocks = [launch.cores_of(block) for block in range(launch.block_count)]
        firsts: dict[tuple[int, ...], tuple[int, ...]] = {}
        for cores in blocks:
            key = tuple(first_of[list(cores)].tolist())
            if self.shown_cores.isdisjoint(cores):
                for core, first in zip(cores, firsts.setdefault(key, cores), strict=True):
                    timed[core] = first
        return timed

    def _time_by_turns(self, phase: int, timed_for: list[int]) -> None:
        """Time the cores of a phase that wait for each other, some of them for all."""
        contended = self.options.mte1_contended
        flags = deepcopy(self.cross_flags)
        cores = sorted(set(timed_for))
        turn = self._turn(phase, bool(contended), cores)
        ended = turn.ends()
        if contended is None:
            busy = next((core for core, (cycles, _) in enumerate(ended) if cycles), 0)
            contended = bool(2 * turn.clocks[busy][AT_BUSY + Pipe.MTE2] > ended[busy][0])
            if contended:
                self.cross_flags = flags
                turn = self._turn(phase, True, cores)
                ended = turn.ends()
        slowest = 0
        for core, timed in enumerate(timed_for):
            cycles = ended[timed][0]
            if cycles > CORE_CYCLES:
                raise ProgramError([self._violation(TOO_LONG, self.rows[0], self.row_counts[core], core)])
            self.totals += turn.clocks[timed][AT_BUSY:]
            self.core_cycles[core] += cycles
            self.states[core] = np.concatenate((turn.core_states[timed], turn.clocks[timed][FLAG_TIMES] >= 0))
            slowest = timed if cycles > ended[slowest][0] else slowest
            if core in turn.kept:
                rows, spans = zip(*turn.kept[core], strict=True)
                self.clocks[:] = turn.clocks[core]
                self._keep(core, phase, join_rows(list(rows)), np.concatenate(spans))
        self.row_counts = turn.row_counts
        self.crossings += turn.crossings
        self.contended.append(bool(contended))
        sums = turn.clocks[slowest][AT_BUSY:].copy()
        if self.launch.vectors:
            self._add_block(sums, turn.clocks[list(self.launch.cores_of(self.launch.block_of(slowest)))])
        self._end_phase(ended[slowest][0], sums, ended[slowest][1])

    @staticmethod
    def _add_block(sums: npt.NDArray[np.int64], clocks: npt.NDArray[np.int64]) -> None:
        """Let ``sums``, of one core of a block, have what others do on pipes that it does not use."""
        stalls = sums[AT_STALL - AT_BUSY :][: 8 * CAUSES].reshape(8, CAUSES)
        for pipe, core in enumerate(clocks[:, AT_BUSY:][:, :PIPES].argmax(axis=0)):
            if sums[pipe] == 0:
                sums[pipe] = clocks[core, AT_BUSY + pipe]
                stalls[pipe] = clocks[core, AT_STALL:][: 8 * CAUSES].reshape(8, CAUSES)[pipe]

    def _turn(self, phase: int, contended: bool, cores: list[int]) -> TurnClocks:
        chip = self.product.cost
        latencies = chip.cross_core_cycles, chip.phase_barrier_cycles
        turn = TurnClocks(self.launch, phase, self._cost(contended), *latencies, self._violation)
        assert self.cross_flags is not None
        turn.run_phase(self.states, self.shown_cores, self.cross_flags, dict(self.row_counts), cores)
        return turn

    def _core(self, core: int, phase: int, cost: np.ndarray) -> int:
        """Run one core and phase; leaves its clocks and parts in the buffers and returns its cycles."""
        launch, rows, clocks = self.launch, self.rows, self.clocks
        core_state = np.zeros(CORE_STATE_LENGTH, np.int64)
        reset_clocks(clocks)
        if launch.keeps_cores:
            core_state[:] = self.states[core, :CORE_STATE_LENGTH]
            clocks[FLAG_TIMES][self.states[core, CORE_STATE_LENGTH:] != 0] = 0
        keep = core in self.shown_cores
        kept_rows: list[np.ndarray] = []
        kept_spans: list[np.ndarray] = []
        held: list[np.ndarray] = []
        done = 0
        for count in launch.rows(core, phase, rows):
            issue(rows, count, core_state)
            taken = 0
            if not held:
                spans = np.zeros((count, 2), np.int64) if keep else self.no_spans
                code, taken = advance(rows, count, cost, clocks, spans)
                if code not in (OK, WAIT_WITHOUT_SET):
                    raise ProgramError([self._violation(code, rows[taken], done + taken, core)])
                done += taken
                kept_spans.append(spans[:taken])
            if taken < count:
                held.append(rows[taken:count].copy())
            if keep:
                kept_rows.append(rows[:count].copy())
        if held:
            kept_spans.append(advance_held(join_rows(held), cost, clocks, launch, (core, done), self._violation))
        if kept_rows:
            self._keep(core, phase, join_rows(kept_rows), np.concatenate(kept_spans))
        if launch.keeps_cores:
            self.next_states[core] = np.concatenate((core_state, clocks[FLAG_TIMES] >= 0))
        cycles = int(finish(clocks, self.parts))
        if cycles > CORE_CYCLES:
            raise ProgramError([self._violation(TOO_LONG, rows[0], done, core)])
        return cycles

    def _keep(self, core: int, phase: int, rows: np.ndarray, spans: npt.NDArray[np.int64]) -> None:
        # A contended phase runs its first core twice; the second run counts.
        self.kept_spans = [kept for kept in self.kept_spans if (kept.core, kept.phase) != (core, phase)]
        start = sum(self.phase_cycles) + phase * self.product.cost.phase_barrier_cycles
        self.kept_spans.append(
            CoreSpans(
                core=core,
                phase=phase,
                phase_start_cycles=start,
                rows=rows,
                start_cycles=np.ascontiguousarray(spans[:, 0]),
                end_cycles=np.ascontiguousarray(spans[:, 1]),
                busy_cycles=by_pipe(self.clocks[AT_BUSY:]),
                stall_cycles=by_pipe(self.clocks[AT_STALL:][: 8 * CAUSES].reshape(8, CAUSES).sum(axis=1)),
                bytes_by_path=by_path(self.clocks[AT_BYTES:]),
            )
        )

    def _violation(self, code: int, row: np.void, number: int, core: int) -> Violation:
        name, event = name_of(row), int(row["event"])
        pipe, peer = (pipe_name(int(row[key])) for key in ("pipe", "peer"))
        if code == WAIT_WITHOUT_SET:
            kind, detail = Kind.SYNC_UNPAIRED, f"{name} {peer}->{pipe} event {event} must follow its SetFlag, not none"
        elif code == SET_TWICE:
            kind = Kind.SYNC_DUPLICATE
            detail = f"{name} {pipe}->{peer} event {event} must follow the WaitFlag of its last set, not the set itself"
        elif code == NO_COST_RULE:
            kind, detail = Kind.UNSUPPORTED, f"Opcode must be one with a cost rule, not {int(row['op'])}"
        elif code == UNSUPPORTED_BY_PRODUCT:
            path = "->".join(space_name(int(row[key])) for key in ("src0_space", "dst_space"))
            kind = Kind.UNSUPPORTED
            detail = f"{name} must be a path and type with a known cost, not {path} {type_name(int(row['dtype']))}"
        elif code == BAD_FLAG:
            kind = Kind.FIELD_RANGE
            detail = f"{name} must have a peer in [0, {PIPES - 1}] and an event in [0, {EVENTS - 1}], "
            detail += f"not {peer} and {event}"
        elif code == OUT_OF_RANGE:
            kind = Kind.FIELD_RANGE
            detail = f"Operands must be ones that an instruction can hold, not {disassemble(row)}"
        elif code == TOO_LONG:
            kind, detail = Kind.CAPACITY, f"Rows of a core must take at most {int(CORE_CYCLES)} cycles, not more"
        else:
            assert code == BAD_PIPE
            kind, detail = Kind.UNSUPPORTED, f"Pipe of {name} must be in [0, {PIPES - 1}], not {int(row['pipe'])}"
        return Violation(
            kind=kind,
            row=number,
            core=core,
            tile=int(row["tile"]),
            site=int(row["site"]),
            detail=f"{detail} ({self.product.name})",
        )

    def _bound_by_memory(self) -> None:
        """Find out by how much L2 and memory take longer for what all cores read and store than the cores do."""
        paths = self.totals[AT_BYTES - AT_BUSY :].reshape(SPACES, SPACES)
        reads, stores = int(paths[Space.GM].sum()), int(paths[:, Space.GM].sum())
        moved = memory_traffic(reads, stores, self.touched, self.read_miss_permille, self.l2_hit_permille)
        least = memory_cycles(moved, self.product.cost, self.product.timing_clock_hz)
        self.memory_cycles = max(least - sum(self.phase_cycles) - self.barrier_cycles - self.tiling_cycles, 0)

    @property
    def tiling_cycles(self) -> int:
        """What the slowest cores take longer with the tiling that theirs stands for."""
        worse = self.product.cost.record_tiling_permille - 1000 if self.launch.stands_for_record else 0
        return sum(self.phase_cycles) * worse // 1000

    @property
    def beside(self) -> tuple[int, int, int, int]:
        """Cycles beside the slowest cores: barriers between phases, tiling, memory, fixed cost."""
        launch = self.launch
        fixed = self.product.cost.fixed_cycles(launch.fixed_cost, launch.core_count, launch.code_in_memory)
        return self.barrier_cycles, self.tiling_cycles, self.memory_cycles, fixed

    @property
    def total_cycles(self) -> int:
        """Core time of the launch."""
        return sum(self.phase_cycles) + sum(self.beside)

    @property
    def launch_nanoseconds(self) -> int:
        """Overhead of the launch."""
        return self.product.cost.launch_nanoseconds(self.launch.block_count, self.launch.core_kind)

    def result(self) -> TimelineResult:
        """Return what the phases add up to."""
        cost, launch = self.product.cost, self.launch
        parts = [*self.critical_parts.tolist(), *self.beside]
        counts = self.totals[AT_COUNT - AT_BUSY :][:OPCODES]
        return TimelineResult(
            launch=launch.name,
            product=self.product.name,
            parameter_set=f"{cost.name} r{cost.revision}",
            clock_hz=self.product.timing_clock_hz,
            core_count=launch.core_count,
            row_count=int(counts.sum()),
            l2_hit_permille=self.l2_hit_permille,
            mte1_contended=tuple(self.contended),
            total_cycles=self.total_cycles,
            phase_cycles=tuple(self.phase_cycles),
            core_cycles=tuple(self.core_cycles.tolist()),
            busy_cycles=by_pipe(self.critical),
            busy_cycles_all_cores=by_pipe(self.totals),
            stall_cycles=stalls_of(self.critical, sum(self.phase_cycles)),
            critical_parts=dict(zip(PART_NAMES, parts, strict=True)),
            bytes_by_path=by_path(self.totals[AT_BYTES - AT_BUSY :]),
            instruction_counts={Op(op).name: int(counts[op]) for op in np.flatnonzero(counts)},
            launch_nanoseconds=self.launch_nanoseconds,
            spans=tuple(self.kept_spans),
            crossings=tuple(self.crossings),
        )
