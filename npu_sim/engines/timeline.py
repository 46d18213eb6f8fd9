"""The timeline engine: integer cycles of a launch, pipe by pipe, with the reason of every wait.

Cycle-approximate: the pass over the rows is exact for in-order pipes joined by flags, the costs of the rows are those
of the product's parameter set (`products.cost`), each with a source and a confidence.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npu_sim.arguments import whole
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
from npu_sim.engines.timeline_memory import READ, first_accesses, l2_hits, memory_cycles, memory_traffic, touched_bytes
from npu_sim.engines.timeline_turns import Crossing, TurnClocks
from npu_sim.errors import ProgramError, ShapeError
from npu_sim.fenv import default_fenv
from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.names import pipe_name, space_name, type_name
from npu_sim.isa.op import Op
from npu_sim.isa.row import INSTR, join_rows
from npu_sim.products.cost import CostParams, cost_record
from npu_sim.program.cross_core import CrossCoreFlags
from npu_sim.program.disassemble import disassemble, name_of
from npu_sim.program.launch import InputPlace, Launch
from npu_sim.program.violation import Kind, Violation

CHUNK_ROWS = 1024
_PIPE_NAMES = tuple(Pipe(pipe).name for pipe in range(PIPES))
PART_NAMES = (*_PIPE_NAMES, "latency", "phase_barrier", "memory", "kernel_fixed")
"""Parts of the critical path: occupancy of each pipe (S: issue), latency, barriers between phases, what L2 and memory
take longer than the slowest cores (`timeline_memory`), fixed cost."""
STALL_NAMES = (
    *(f"flag_{Pipe(pipe).name}" for pipe in range(PIPES)), "barrier", "issue", "queue_full", "cross_core", "end"
)  # fmt: skip
"""Causes of a stall: a flag from that pipe, PipeBarrier, the scalar unit has not issued yet, (scalar unit) the queue of
a pipe is full, (scalar unit) a flag of another core, nothing left to do until the end of the phase."""


_NOT_PLAIN = ("spans", "crossings", "stall_cycles")


class TimedProduct(Protocol):
    """What the engine needs of a `products.Product`."""

    @property
    def name(self) -> str:
        """SoC version."""

    @property
    def timing_clock_hz(self) -> int:
        """Clock of the cores."""

    @property
    def l2_bytes(self) -> int:
        """L2 capacity."""

    @property
    def cost(self) -> CostParams:
        """Timing parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOptions:
    """What the timing of a launch assumes beside the rows.

    Attributes
    ----------
    l2_hit_permille : int or None
        Part of the GM traffic that hits L2, in thousandths. None: all of it if what the launch touches fits in L2,
        otherwise L2 capacity over the bytes it touches: those from the first to the last byte in each tensor.
    inputs_in_l2 : bool
        Tensors that were initialised before the launch are in L2 when it begins, as far as they fit. By default they
        are where `Launch.inputs` says.
    mte1_contended : bool or None
        MTE2 keeps writing L1, so that MTE1 is slower by ``mte1_contention_permille``. None: decided for each phase by
        its first busy core: when MTE2 would be busy for more than half of its time.
    chunk_rows : int
        Rows emitted at a time (at least the launch's ``step_rows``); never changes the result.
    span_cores : tuple of int or None
        Cores whose spans are kept when spans are asked for; None: all.
    """

    l2_hit_permille: int | None = None
    inputs_in_l2: bool = False
    mte1_contended: bool | None = None
    chunk_rows: int = CHUNK_ROWS
    span_cores: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if whole("chunk_rows", self.chunk_rows) < 1:
            raise ShapeError(f"chunk_rows must be at least 1, not {self.chunk_rows}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoreSpans:
    """When each row of one core and phase ran.

    Attributes
    ----------
    core, phase : int
        Whose rows.
    phase_start_cycles : int
        Start of the phase in the launch, fixed cost excluded.
    rows : INSTR[n]
        The rows, as issued.
    start_cycles, end_cycles : int64[n]
        Occupancy of the pipe, from the start of the phase. A WaitFlag's span contains its waiting.
    busy_cycles, stall_cycles : mapping of str to int
        By pipe: cycles it is occupied, and cycles it waits between its rows.
    bytes_by_path : mapping of str to int
        As of `TimelineResult`, of this core and phase.
    """

    core: int
    phase: int
    phase_start_cycles: int
    rows: np.ndarray
    start_cycles: npt.NDArray[np.int64]
    end_cycles: npt.NDArray[np.int64]
    busy_cycles: Mapping[str, int]
    stall_cycles: Mapping[str, int]
    bytes_by_path: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineResult:
    """Cycles of a launch.

    Attributes
    ----------
    launch, product, parameter_set : str
        Names; the parameter set with its revision.
    clock_hz, core_count, row_count : int
        Clock of the cores, emulated cores, rows of all cores.
    l2_hit_permille : int
        Assumed part of GM traffic that hits L2.
    mte1_contended : tuple of bool
        By phase: whether MTE1 ran at the contended rates.
    total_cycles : int
        Core time of the launch: fixed cost, the slowest core of every phase, the barriers between phases, and what L2
        and memory take longer than these cores.
    phase_cycles : tuple of int
        Slowest core of each phase.
    core_cycles : tuple of int
        By core: its own time in all phases, without fixed cost and barriers.
    busy_cycles : mapping of str to int
        By pipe: occupancy in the slowest core of each phase, flags and barriers included.
    busy_cycles_all_cores : mapping of str to int
        By pipe: occupancy, sum over the cores.
    stall_cycles : mapping of str to mapping of str to int
        By pipe and cause (`STALL_NAMES`), in the slowest core of each phase. Busy and stall cycles of a pipe add up to
        the sum of ``phase_cycles``.
    critical_parts : mapping of str to int
        By `PART_NAMES`: what the critical path consists of; adds up to ``total_cycles``.
    bytes_by_path : mapping of str to int
        By path, for example ``"GM->L1"``, all cores.
    instruction_counts : mapping of str to int
        By opcode, all cores.
    launch_nanoseconds : int
        Task duration minus core time, not part of ``total_cycles``.
    spans : tuple of CoreSpans
        Empty unless asked for.
    crossings : tuple of Crossing
        Flags between cores whose spans are kept.
    """

    launch: str
    product: str
    parameter_set: str
    clock_hz: int
    core_count: int
    row_count: int
    l2_hit_permille: int
    mte1_contended: tuple[bool, ...]
    total_cycles: int
    phase_cycles: tuple[int, ...]
    core_cycles: tuple[int, ...]
    busy_cycles: Mapping[str, int]
    busy_cycles_all_cores: Mapping[str, int]
    stall_cycles: Mapping[str, Mapping[str, int]]
    critical_parts: Mapping[str, int]
    bytes_by_path: Mapping[str, int]
    instruction_counts: Mapping[str, int]
    launch_nanoseconds: int
    spans: tuple[CoreSpans, ...] = field(default=(), compare=False, repr=False)
    crossings: tuple[Crossing, ...] = field(default=(), compare=False, repr=False)

    def seconds(self, clock_hz: int | None = None) -> float:
        """Return the core time in seconds, at ``clock_hz`` or the clock of the product."""
        return self.total_cycles / (self.clock_hz if clock_hz is None else clock_hz)

    def task_seconds(self) -> float:
        """Return the task duration in seconds: core time and launch overhead."""
        return self.seconds() + self.launch_nanoseconds * 1e-9

    def to_json(self) -> str:
        """Return everything but the spans as JSON text."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _NOT_PLAIN
        }
        for name in ("busy_cycles", "busy_cycles_all_cores", "critical_parts", "bytes_by_path", "instruction_counts"):
            plain[name] = dict(plain[name])
        plain["stall_cycles"] = {pipe: dict(causes) for pipe, causes in self.stall_cycles.items()}
        plain["seconds"] = self.seconds()
        plain["task_seconds"] = self.task_seconds()
        return json.dumps(plain, indent=2, allow_nan=False)


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """The time of a launch alone, as `TimelineResult` has it.

    Attributes
    ----------
    total_cycles, clock_hz, launch_nanoseconds : int
        As of `TimelineResult`.
    """

    total_cycles: int
    clock_hz: int
    launch_nanoseconds: int

    def seconds(self) -> float:
        """Return the core time in seconds."""
        return self.total_cycles / self.clock_hz

    def task_seconds(self) -> float:
        """Return the task duration in seconds: core time and launch overhead."""
        return self.seconds() + self.launch_nanoseconds * 1e-9


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
            run = _Run(launch, other, given, False, classes.gm_extents, rows)
            if launch.keeps_cores:
                run.time(classes)
            else:
                run.time_slowest_of(first)
            times.append(LaunchTime(run.total_cycles, other.timing_clock_hz, run.launch_nanoseconds))
    return first.result(), tuple(times)


_KEPT = threading.local()


@contextmanager
def _buffer(launch: Launch, options: TimelineOptions) -> Iterator[np.ndarray]:
    """Give a buffer for rows, the same again and again in a thread: jitted loops over generators never free theirs."""
    room = max(options.chunk_rows, launch.step_rows)
    rows = _KEPT.__dict__.pop("rows", None)
    if rows is None or len(rows) != room:
        rows = np.empty(room, INSTR)
    try:
        yield rows
    finally:
        _KEPT.rows = rows


def _timed(
    launch: Launch, product: TimedProduct, options: TimelineOptions, spans: bool, rows: np.ndarray
) -> tuple[_Run, CoreClasses]:
    classes = classify(launch, rows, with_extents=options.l2_hit_permille is None)
    run = _Run(launch, product, options, spans, classes.gm_extents, rows)
    run.time(classes)
    return run, classes


def _l2_misses(
    launch: Launch, product: TimedProduct, options: TimelineOptions, gm_extents: npt.NDArray[np.int64]
) -> tuple[int, int]:
    """Return the part of the accesses that hit L2, and that of what is read that misses it, in thousandths."""
    if options.l2_hit_permille is not None:
        return options.l2_hit_permille, 0
    touched = touched_bytes(gm_extents, launch.gm.total_bytes)
    apart = touched if launch.reuse_bytes is None else min(touched, launch.reuse_bytes)
    # what L2 has no room for is not there when it is first read
    misses = max(_read_misses(launch, product, options, gm_extents), 1000 - l2_hits(touched, product.l2_bytes))
    return l2_hits(apart, product.l2_bytes), misses


def _read_misses(
    launch: Launch, product: TimedProduct, options: TimelineOptions, gm_extents: npt.NDArray[np.int64]
) -> int:
    """Return the part of what is read that is not in L2 when the launch begins, in thousandths."""
    place: InputPlace = "l2" if options.inputs_in_l2 else launch.inputs
    missing = {"memory": 1000, "unknown": product.cost.unknown_miss_permille, "l2": 0}[place]
    inputs = [tensor.index for tensor in launch.gm.tensors if tensor.initialised]
    return missing * first_accesses(gm_extents, READ, inputs) // max(first_accesses(gm_extents, READ), 1)


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
        gm_extents: npt.NDArray[np.int64],
        rows: np.ndarray,
    ) -> None:
        self.launch, self.product, self.options, self.rows = launch, product, options, rows
        self.gm_extents = gm_extents
        self.l2_hit_permille, self.read_miss_permille = _l2_misses(launch, product, options, gm_extents)
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
        turn = TurnClocks(
            self.launch, phase, self._cost(contended), self.product.cost.cross_core_cycles, self._violation
        )
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
                busy_cycles=_by_pipe(self.clocks[AT_BUSY:]),
                stall_cycles=_by_pipe(self.clocks[AT_STALL:][: 8 * CAUSES].reshape(8, CAUSES).sum(axis=1)),
                bytes_by_path=_by_path(self.clocks[AT_BYTES:]),
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
        paths = self.totals[AT_BYTES - AT_BUSY :].reshape(8, 8)
        reads, stores = int(paths[Space.GM].sum()), int(paths[:, Space.GM].sum())
        moved = memory_traffic(reads, stores, self.gm_extents, self.read_miss_permille, self.l2_hit_permille)
        least = memory_cycles(moved, self.product.cost, self.product.timing_clock_hz)
        self.memory_cycles = max(least - sum(self.phase_cycles) - self.barrier_cycles, 0)

    @property
    def beside(self) -> tuple[int, int, int]:
        """Cycles beside the slowest cores: barriers between phases, memory, fixed cost."""
        fixed = self.product.cost.fixed_cycles(self.launch.fixed_cost, self.launch.core_count)
        return self.barrier_cycles, self.memory_cycles, fixed

    @property
    def total_cycles(self) -> int:
        """Core time of the launch."""
        return sum(self.phase_cycles) + sum(self.beside)

    @property
    def launch_nanoseconds(self) -> int:
        """Overhead of the launch."""
        return self.product.cost.launch_nanoseconds(self.launch.block_count)

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
            busy_cycles=_by_pipe(self.critical),
            busy_cycles_all_cores=_by_pipe(self.totals),
            stall_cycles=_stalls(self.critical, sum(self.phase_cycles)),
            critical_parts=dict(zip(PART_NAMES, parts, strict=True)),
            bytes_by_path=_by_path(self.totals[AT_BYTES - AT_BUSY :]),
            instruction_counts={Op(op).name: int(counts[op]) for op in np.flatnonzero(counts)},
            launch_nanoseconds=self.launch_nanoseconds,
            spans=tuple(self.kept_spans),
            crossings=tuple(self.crossings),
        )


def _by_pipe(values: npt.NDArray[np.int64]) -> dict[str, int]:
    return dict(zip(_PIPE_NAMES, values[:PIPES].tolist(), strict=True))


def _by_path(values: npt.NDArray[np.int64]) -> dict[str, int]:
    paths = ((divmod(int(at), 8), int(values[at])) for at in np.flatnonzero(values[:64]))
    return {f"{space_name(source)}->{space_name(target)}": count for (source, target), count in paths}


def _stalls(sums: npt.NDArray[np.int64], phases: int) -> dict[str, dict[str, int]]:
    """Return stall cycles by pipe and cause; what is neither busy nor waiting is the end of the phase."""
    table = sums[AT_STALL - AT_BUSY :][: 8 * CAUSES].reshape(8, CAUSES)
    stalls = {}
    for name, busy, causes in zip(_PIPE_NAMES, sums[:PIPES].tolist(), table[:PIPES].tolist(), strict=True):
        causes.append(phases - busy - sum(causes))
        stalls[name] = dict(zip(STALL_NAMES, causes, strict=True))
    return stalls
