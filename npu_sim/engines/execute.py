"""The execute engine: the bits a launch leaves in GM.

Emulated cores run on a thread pool. Everything a core does is its own, except atomic additions to GM, and those are
applied core after core (see `isa.atomic`), so the result does not depend on the number of threads. On a device timing
decides their order; here `ExecuteOptions.core_order` does, so that the spread of the results can be studied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.arguments import choice, whole
from npu_sim.budget import reserve
from npu_sim.crew import run_parts
from npu_sim.dtypes.formats import TieRule
from npu_sim.engines.issue_order import first_held_wait, starts_of
from npu_sim.engines.reorder import legal_order, new_flags
from npu_sim.engines.turns import run_by_turns
from npu_sim.errors import ProductError, ProgramError, ShapeError, shown
from npu_sim.fenv import default_fenv
from npu_sim.isa.atomic import SINK_LENGTH, apply_log
from npu_sim.isa.cube import scratch_floats
from npu_sim.isa.dispatch import CONFIG_LENGTH, run_rows
from npu_sim.isa.gm_extent import atomic_demand
from npu_sim.isa.issue import CORE_STATE_LENGTH
from npu_sim.isa.op import Op
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.memory.core import CoreMemory, memory_bytes
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import Product, is_known_core
from npu_sim.program.bounds import gm_violations
from npu_sim.program.cross_core import CrossCoreFlags, undeclared_crossings
from npu_sim.program.disassemble import disassemble, duty_of
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind, Violation

Overflow = Literal["inf_nan", "saturate"]
KindT = TypeVar("KindT")
BufferT = TypeVar("BufferT")

CHUNK_ROWS = 4096
_LOG_LIMIT_BYTES = 32 << 20
"""A core that runs ahead waits for its turn rather than have this and the logs that wait for theirs grow further."""
_SMALL_PHASE_ROWS = 1024
"""Rows of a phase, all cores together, that one thread runs alone: memory-bound if long, and mostly short."""
_TURN_ROWS = 512
"""How often a core that logs looks whether its turn has come; what it logs is written and read once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteOptions:
    """How to execute.

    Attributes
    ----------
    accumulation : Accumulation
        Model of every Mmad.
    overflow : {"inf_nan", "saturate"} or None
        None: the product's default mode.
    hf32_ties : {"even", "away", "toward_zero"} or None
        Tie rule of the rounding to HF32; None: the product's default.
    threads : int
        Host threads; never changes the result.
    chunk_rows : int
        Rows emitted at a time (at least the launch's ``step_rows``); never changes the result.
    order : "program", "late" or int
        Order of the rows of a core: as emitted, with data movement as late as legal, or a random legal order by seed.
        A program without races gives the same bits in every one.
    core_order : int or None
        Whose atomic additions come first in a phase: those of the core with the lowest number (None), or of cores in a
        random order by seed (0 or more), the same on every host. A core's own additions stay in program order.
    poison : bool
        Overwrite the buffers with NaN before each core and phase, so that a read before a write shows whatever ran
        there before; otherwise once before a launch that is not ``trusted``. What a core keeps from phase to phase
        (`Launch.keeps_cores`) is poison before its first phase only.
    shortcuts : bool
        Whether trusted launches in program order may take their `Launch.shortcut` instead of running their rows; never
        changes the result.
    """

    accumulation: Accumulation
    overflow: Overflow | None = None
    hf32_ties: Literal["even", "away", "toward_zero"] | None = None
    threads: int = 1
    chunk_rows: int = CHUNK_ROWS
    order: Literal["program", "late"] | int = "program"
    core_order: int | None = None
    poison: bool = False
    shortcuts: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.accumulation, Accumulation):
            raise ShapeError(f"accumulation must be an Accumulation, not {shown(self.accumulation)}")
        for name in ("threads", "chunk_rows"):
            if whole(name, getattr(self, name)) < 1:
                raise ShapeError(f"{name} must be at least 1, not {getattr(self, name)}")
        if isinstance(self.order, str):
            choice("order", self.order, ("program", "late"))
        else:
            whole("order", self.order)
        if self.core_order is not None and whole("core_order", self.core_order) < 0:
            raise ShapeError(f"core_order must be None or a seed of 0 or more, not {self.core_order}")
        if self.hf32_ties is not None:
            choice("hf32_ties", self.hf32_ties, [rule.name.lower() for rule in TieRule])


def _saturates(product: Product, options: ExecuteOptions) -> bool:
    """Return whether overflow clamps."""
    overflow = options.overflow or product.overflow_mode
    if overflow not in product.overflow_modes:
        allowed = ", ".join(product.overflow_modes)
        raise ProductError(f"overflow must be one of {allowed}, not {overflow} ({product.name}, {product.series_name})")
    return overflow == "saturate"


def configuration(product: Product, options: ExecuteOptions) -> npt.NDArray[np.int64]:
    """Return the numeric configuration of `isa.dispatch` for ``product``."""
    saturates = _saturates(product, options)
    config = np.zeros(CONFIG_LENGTH, np.int64)
    model = options.accumulation
    config[0], config[1], config[2], config[6], config[7] = model.codes
    config[3] = saturates
    config[8] = saturates and model.saturates == "operands"
    config[4] = 23 - product.hf32_mantissa_bits if product.hf32_mantissa_bits else 0
    config[5] = TieRule[(options.hf32_ties or product.hf32_ties or "even").upper()]
    return config


class _Log:
    """Atomic additions of a core that ran ahead."""

    def __init__(self, saturate: int) -> None:
        self.sink = np.zeros(SINK_LENGTH, np.int64)
        self.sink[3] = saturate
        self.runs = np.zeros((0, 4), np.int64)
        self.data = np.zeros(0, np.uint8)

    def reserve(self, runs: int, byte_count: int) -> None:
        """Make room for that many more runs and bytes."""
        want_runs, want_bytes = int(self.sink[1]) + runs, int(self.sink[2]) + byte_count
        if want_runs > len(self.runs):
            grown = np.empty((max(want_runs, 2 * len(self.runs), 256), 4), np.int64)
            grown[: len(self.runs)] = self.runs
            self.runs = grown
        if want_bytes > len(self.data):
            data = np.empty(max(want_bytes, len(self.data) * 3 // 2, 1 << 16), np.uint8)
            data[: len(self.data)] = self.data
            self.data = data


def core_sequence(core_count: int, phase: int, core_order: int | None) -> list[int]:
    """Return the cores of a phase in the order in which they add to GM, see `ExecuteOptions.core_order`."""
    if core_order is None:
        return list(range(core_count))
    # NumPy keeps the words of a bit generator from version to version (NEP 19), but not how it shuffles
    words = np.random.PCG64([core_order, phase]).random_raw(core_count)
    return np.argsort(words, kind="stable").tolist()


class _Turns:
    """Who may add to GM: the first unfinished core of the phase; finished cores leave their log here.

    A core is known by its place in the `core_sequence` of the phase.
    """

    def __init__(self, gm: npt.NDArray[np.uint8], alone: bool) -> None:
        self.gm, self.alone = gm, alone
        """The arena of the run, and whether one thread runs all cores: in their order, so that each has its turn."""
        self._condition = threading.Condition()
        self._turn = 0
        self._left: dict[int, _Log] = {}
        self._spare: _Log | None = None
        self._failed = False
        self.held_bytes = 0
        """Bytes in the logs of finished cores whose turn has not come."""

    def is_turn(self, place: int) -> bool:
        """Return whether all cores before the one at ``place`` are finished and applied."""
        return self._turn == place

    def wait(self, place: int) -> None:
        """Block until it is the turn of the core at ``place`` (or another core failed)."""
        with self._condition:
            self._condition.wait_for(lambda: self._turn == place or self._failed)

    def finish(self, place: int, log: _Log) -> _Log | None:
        """Record that the core at ``place`` is done and apply every log whose turn has come.

        Returns
        -------
        _Log or None
            An empty log for the caller's next core, None if there is none to spare.
        """
        if self.alone:
            return log
        with self._condition:
            if self._turn != place:
                self._left[place] = log
                self.held_bytes += len(log.data)
                spare, self._spare = self._spare, None
                return spare
            self._apply(log)
            self._turn += 1
            while self._turn in self._left:
                left = self._left.pop(self._turn)
                self.held_bytes -= len(left.data)
                self._apply(left)
                self._spare = left
                self._turn += 1
            self._condition.notify_all()
            return log

    def fail(self) -> None:
        """Wake every waiting core so that the pool can end."""
        with self._condition:
            self._failed = True
            self._condition.notify_all()

    def _apply(self, log: _Log) -> None:
        apply_log(self.gm, log.runs, log.data, log.sink)


@dataclass(slots=True)
class _Kept:
    """What a core keeps from phase to phase (`Launch.keeps_cores`)."""

    memory: CoreMemory
    state: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(CORE_STATE_LENGTH, np.int64))
    flags: npt.NDArray[np.int64] = field(default_factory=new_flags)


@dataclass(slots=True)
class _Worker:
    """Buffers of one host thread."""

    product: Product
    memory: CoreMemory
    rows: np.ndarray
    scratch: np.ndarray
    staging: npt.NDArray[np.float32]
    config: npt.NDArray[np.int64]
    log: _Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = _Log(int(self.config[3]))


class _Spare(Generic[KindT, BufferT]):
    """Buffers that no launch uses, by kind: allocating and filling some takes as long as a small launch."""

    LIMIT = 8

    def __init__(self, make: Callable[[KindT], BufferT]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._spare: list[tuple[KindT, BufferT]] = []

    def take(self, kind: KindT) -> BufferT:
        """Return a buffer of ``kind``, as it is made or as another launch left it."""
        with self._lock:
            for i, (spare, buffer) in enumerate(self._spare):
                if spare is kind or spare == kind:
                    del self._spare[i]
                    return buffer
        return self._make(kind)

    def give_back(self, kind: KindT, buffer: BufferT) -> None:
        """Keep ``buffer`` for a later launch, and drop the oldest if there are too many."""
        with self._lock:
            self._spare.append((kind, buffer))
            del self._spare[: -self.LIMIT]


_BUFFERS = _Spare(CoreMemory.for_core)
_ROWS = _Spare(empty_rows)


def _chunks(
    launch: Launch,
    core: int,
    phase: int,
    options: ExecuteOptions,
    product: Product,
    buffer: np.ndarray,
    kept: _Kept | None,
) -> Iterator[np.ndarray]:
    """Yield the issued rows of one core and phase, checked unless the launch is trusted, in the order of ``options``.

    They are views that are valid until the next one. No row changes places with a CrossCoreWaitFlag.
    """
    if launch.trusted and kept is None and options.order == "program":
        # nothing to check, to hold back or to move
        yield from issued_chunks(launch, core, phase, buffer)
        return
    collected: list[np.ndarray] = []
    done = 0
    flags = kept.flags if kept else None
    if options.order == "program" and not launch.trusted:
        flags = new_flags() if flags is None else flags
    for rows in issued_chunks(launch, core, phase, buffer, kept.state if kept else None):
        if not launch.trusted:
            _check(rows, launch, product, core, done)
        done += len(rows)
        first = 0
        if options.order == "program" and not collected:
            first = len(rows) if flags is None else int(first_held_wait(rows, 0, flags))
            if first:
                yield rows[:first]
        for wait in np.flatnonzero(rows["op"] == Op.CROSS_CORE_WAIT_FLAG).tolist():
            if wait < first:
                continue
            yield _ordered([*collected, rows[first:wait].copy()], options, product, flags)
            yield rows[wait : wait + 1]
            collected, first = [], wait + 1
        if first < len(rows):
            collected.append(rows[first:].copy())
    if collected:
        yield _ordered(collected, options, product, flags)


def _ordered(
    parts: list[np.ndarray], options: ExecuteOptions, product: Product, flags: npt.NDArray[np.int64] | None
) -> np.ndarray:
    """Return rows in the order of ``options``, the program's being that in which they start."""
    rows = join_rows(parts)
    if options.order != "program" or flags is None:
        return rows[legal_order(rows, options.order, flags)]
    starts = starts_of(rows, flags, product.cost.queue_depth_rows)
    # rows that wait for ever are for the hazards engine to find; here they run as if they did not
    return rows if starts.waits else rows[starts.order]


def _run_core(
    launch: Launch,
    core: int,
    place: int,
    phase: int,
    options: ExecuteOptions,
    worker: _Worker,
    turns: _Turns,
    kept: _Kept | None,
) -> None:
    gm = turns.gm
    memory = kept.memory if kept else worker.memory
    if options.poison and not kept:
        memory.poison()
    done = 0
    for rows in _chunks(launch, core, phase, options, worker.product, worker.rows, kept):
        # alone, a core has its turn from the start; among others it looks again every few rows
        step = len(rows) if options.threads == 1 else _TURN_ROWS
        for first in range(0, len(rows), step):
            last = min(first + step, len(rows))
            _take_turn(place, rows[first:last], worker.log, turns, gm)
            bad = _run_rows(rows, first, last, worker, memory, gm)
            if bad >= 0:
                raise ProgramError([_unsupported(rows[bad], launch, core, done + bad)])
        done += len(rows)
    worker.log = turns.finish(place, worker.log) or _Log(int(worker.config[3]))


def _take_turn(place: int, rows: np.ndarray, log: _Log, turns: _Turns, gm: np.ndarray) -> None:
    """Let a core's next ``rows`` add to GM if it is the turn of its place, else to its log, which gets room."""
    if turns.alone:
        log.sink[0] = 0
        return
    demand = np.zeros(2, np.int64)
    atomic_demand(rows, len(rows), demand)
    if not turns.is_turn(place) and turns.held_bytes + log.sink[2] + demand[1] > _LOG_LIMIT_BYTES:
        turns.wait(place)
    if turns.is_turn(place):
        apply_log(gm, log.runs, log.data, log.sink)
        log.sink[0] = 0
    else:
        log.sink[0] = 1
        log.reserve(int(demand[0]), int(demand[1]))


def _run_rows(rows: np.ndarray, first: int, last: int, worker: _Worker, memory: CoreMemory, gm: np.ndarray) -> int:
    """Run a stretch of rows on the buffers of a core; return the row that cannot be carried out, or -1."""
    log = worker.log
    return int(
        run_rows(
            rows,
            first,
            last,
            gm,
            memory.l1,
            memory.l0a,
            memory.l0b,
            memory.l0c,
            memory.ub,
            worker.config,
            worker.scratch,
            worker.staging,
            log.sink,
            log.runs,
            log.data,
        )
    )


def _unsupported(row: np.void, launch: Launch, core: int, number: int) -> Violation:
    """Return the finding for a row without semantics."""
    return Violation(
        kind=Kind.UNSUPPORTED,
        row=number,
        core=core,
        tile=int(row["tile"]),
        site=int(row["site"]),
        detail=f"{disassemble(row)} must {duty_of(row)} ({launch.name})",
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


class _Phase:
    """The cores of one phase that nobody has taken yet, and their turns."""

    def __init__(self, arena: npt.NDArray[np.uint8], cores: list[int], alone: bool) -> None:
        self.turns = _Turns(arena, alone)
        self._cores = enumerate(cores)
        self._take = threading.Lock()

    def take(self) -> tuple[int, int] | None:
        """Return place and number of the first core that nobody runs, None if there is none left."""
        with self._take:
            return next(self._cores, None)


class _Turn:
    """What `run_by_turns` asks for here: each row takes effect at once, and additions to GM as they come."""

    def __init__(
        self, launch: Launch, worker: _Worker, memories: Mapping[int, CoreMemory], gm: npt.NDArray[np.uint8]
    ) -> None:
        self._launch, self._worker, self._memories, self._gm = launch, worker, memories, gm

    def turn(self, core: int) -> None:
        """Go to a core: its memory is there."""

    def run(self, core: int, rows: np.ndarray, number: int) -> None:
        """Run rows of a core."""
        bad = _run_rows(rows, 0, len(rows), self._worker, self._memories[core], self._gm)
        if bad >= 0:
            raise ProgramError([_unsupported(rows[bad], self._launch, core, number + bad)])

    def set(self, core: int, row: np.ndarray, number: int) -> None:
        """Set a flag: all rows before it have run."""

    def wait(self, core: int, row: np.ndarray, number: int, tokens: Sequence[None]) -> None:
        """Go on."""


class _Run:
    """One `execute`: phase after phase, the cores of each shared out to host threads with buffers of their own."""

    def __init__(self, launch: Launch, arena: npt.NDArray[np.uint8], product: Product, options: ExecuteOptions) -> None:
        self._launch, self._arena, self._product, self._options = launch, arena, product, options
        self._config = configuration(product, options)
        self._workers: list[_Worker] = []
        self._kept: list[_Kept] = []
        self._flags: CrossCoreFlags | None = None
        self._row_counts: dict[int, int] = {}

    def run(self) -> None:
        """Run every phase; the calling thread is one of the workers. Raise the first error of any."""
        self._workers.append(self._new_worker())
        apart = self._launch.blocks_apart
        if self._launch.keeps_cores and not apart:
            count, core = self._launch.core_count, self._product.core
            reserve(f"Buffers of {count} cores", count * memory_bytes(core))
            self._kept = [_Kept(CoreMemory.for_core(core)) for _ in range(count)]
        for number in range(self._launch.phase_count):
            if apart:
                self._run_blocks(number)
            elif self._launch.by_turns:
                self._run_by_turns(number)
            else:
                self._run_phase(number)
        for worker in self._workers:
            _BUFFERS.give_back(self._product.core, worker.memory)
            _ROWS.give_back(len(worker.rows), worker.rows)

    def _hire(self, number: int, parts: int) -> int:
        """Make workers for a phase of so many parts; return how many."""
        threads = min(self._options.threads, parts)
        if threads > 1 and self._is_small(number):
            threads = 1
        while len(self._workers) < threads:
            self._workers.append(self._new_worker())
        return max(threads, 1)

    def _run_phase(self, number: int) -> None:
        threads = self._hire(number, self._launch.core_count)
        cores = core_sequence(self._launch.core_count, number, self._options.core_order)
        phase = _Phase(self._arena, cores, threads == 1)
        run_parts(lambda part: self._work(number, phase, self._workers[part]), threads)

    def _run_blocks(self, number: int) -> None:
        """Share the blocks of a phase out to host threads; the cores of each run by turns and keep nothing."""
        threads = self._hire(number, self._launch.block_count)
        sequence = core_sequence(self._launch.block_count, number, self._options.core_order)
        phase = _Phase(self._arena, sequence, threads == 1)
        run_parts(lambda part: self._work_blocks(number, phase, self._workers[part]), threads)

    def _chunks_of(
        self, number: int, buffers: dict[int, np.ndarray], kept: dict[int, _Kept], core: int
    ) -> Iterator[np.ndarray]:
        return _chunks(self._launch, core, number, self._options, self._product, buffers[core], kept.get(core))

    def _work_blocks(self, number: int, phase: _Phase, worker: _Worker) -> None:
        launch, options, core = self._launch, self._options, self._product.core
        own = [worker.memory, *(_BUFFERS.take(core) for _ in range(launch.vectors))]
        buffers = [worker.rows, *(_ROWS.take(len(worker.rows)) for _ in range(launch.vectors))]
        while (taken := phase.take()) is not None:
            cores = launch.cores_of(taken[1])
            if options.poison:
                for memory in own:
                    memory.poison()
            memories, places = dict(zip(cores, own, strict=True)), dict(zip(cores, buffers, strict=True))
            # other orders are found between two waits for other cores: flags reach from one stretch to the next
            kept = {} if options.order == "program" else {core: _Kept(memories[core]) for core in cores}
            chunks = partial(self._chunks_of, number, places, kept)
            driver = _Turn(launch, worker, memories, self._arena)
            found, _ = run_by_turns(cores, chunks, CrossCoreFlags(launch), driver, {})
            if found:
                raise ProgramError(found[-1:])
        for memory, rows in zip(own[1:], buffers[1:], strict=True):
            _BUFFERS.give_back(core, memory)
            _ROWS.give_back(len(rows), rows)

    def _run_by_turns(self, number: int) -> None:
        """Run the cores of a phase on the calling thread, by turns."""
        launch, options, worker = self._launch, self._options, self._workers[0]
        room = max(launch.step_rows, _TURN_ROWS)

        def chunks(core: int) -> Iterator[np.ndarray]:
            return _chunks(launch, core, number, options, self._product, empty_rows(room), self._kept[core])

        memories = {core: kept.memory for core, kept in enumerate(self._kept)}
        driver = _Turn(launch, worker, memories, self._arena)
        cores = core_sequence(launch.core_count, number, options.core_order)
        self._flags = self._flags or CrossCoreFlags(launch)
        found, _ = run_by_turns(cores, chunks, self._flags, driver, self._row_counts)
        if found:
            raise ProgramError(found[-1:])

    def _is_small(self, number: int) -> bool:
        """Return whether the phase, going by its first core, is over before another thread has started."""
        rows = self._workers[0].rows
        parts = self._launch.rows(0, number, rows)
        return next(parts, 0) * self._launch.core_count <= _SMALL_PHASE_ROWS and next(parts, 0) == 0

    def _new_worker(self) -> _Worker:
        memory = _BUFFERS.take(self._product.core)
        if not self._launch.trusted:
            memory.poison()
        return _Worker(
            product=self._product,
            memory=memory,
            rows=_ROWS.take(max(self._options.chunk_rows, self._launch.step_rows)),
            scratch=np.empty(scratch_floats(self._product.core), np.float64),
            staging=np.empty(max(self._product.core.l0c_bytes // 4, 8192), np.float32),
            config=self._config,
        )

    def _work(self, number: int, phase: _Phase, worker: _Worker) -> None:
        try:
            while (taken := phase.take()) is not None:
                place, core = taken
                kept = self._kept[core] if self._kept else None
                _run_core(self._launch, core, place, number, self._options, worker, phase.turns, kept)
        except BaseException:
            phase.turns.fail()
            raise


@default_fenv
def execute(launch: Launch, product: Product, options: ExecuteOptions, gm: GlobalMemory | None = None) -> None:
    """Run ``launch``: afterwards `launch.gm`, or ``gm``, holds the result.

    Parameters
    ----------
    launch : Launch
        What to run.
    product : Product
        Where.
    options : ExecuteOptions
        How.
    gm : GlobalMemory or None
        The memory of this run, `GlobalMemory.fresh` of the launch's, where others may run the launch too; None: the
        launch's own.

    Raises
    ------
    ProductError
        If the overflow mode does not exist on the product.
    ProgramError
        If a row of a launch that is not ``trusted``, or of any launch on a core that no product of the package has, is
        illegal on the product or leaves its tensors; if an instruction names element types the emulator does not model,
        or a Mmad lies outside its buffers.
    """
    if launch.trusted and not is_known_core(product.core):
        # kernels are proven on the buffers of the products of the package; on others every row is looked at
        launch = replace(launch, trusted=False)
    arena = (gm or launch.gm).arena
    plain = launch.trusted and options.shortcuts and options.order == "program" and not options.poison
    if plain and launch.shortcut is not None:
        launch.shortcut(arena, _saturates(product, options), options.threads)
    else:
        _Run(launch, arena, product, options).run()
