"""The execute engine: the bits a launch leaves in GM.

Emulated cores run on a thread pool. Everything a core does is its own, except atomic additions to GM, and those are
applied core after core (see `isa.atomic`), so the result does not depend on the number of threads. On a device timing
decides their order; here `ExecuteOptions.core_order` does, so that the spread of the results can be studied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from npu_sim.budget import reserve
from npu_sim.crew import run_parts
from npu_sim.engines.execute_again import ran_again
from npu_sim.engines.execute_core import (
    TURN_ROWS,
    Kept,
    Worker,
    carry_out,
    chunks_of,
    run_core,
    unsupported,
)
from npu_sim.engines.execute_options import ExecuteOptions, Overflow, configuration
from npu_sim.engines.execute_turns import Phase, core_sequence
from npu_sim.engines.kit import KITS, ROWS
from npu_sim.engines.shared_adds import earlier_sharers
from npu_sim.engines.turns import run_by_turns
from npu_sim.errors import ProgramError
from npu_sim.fenv import default_fenv
from npu_sim.isa.row import empty_rows
from npu_sim.memory.core import CoreMemory, memory_bytes
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import Product, is_known_core
from npu_sim.program.cross_core import CrossCoreFlags
from npu_sim.program.launch import Launch, Shortcut

__all__ = ["ExecuteOptions", "Overflow", "execute", "execute_all", "shortcut_of"]

_SMALL_PHASE_ROWS = 1024
"""Rows of a phase, all cores together, that one thread runs alone: memory-bound if long, and mostly short."""


class _Turn:
    """What `run_by_turns` asks for here: each row takes effect at once, and additions to GM as they come."""

    def __init__(
        self, launch: Launch, worker: Worker, memories: Mapping[int, CoreMemory], gm: npt.NDArray[np.uint8]
    ) -> None:
        self._launch, self._worker, self._memories, self._gm = launch, worker, memories, gm

    def turn(self, core: int) -> None:
        """Go to a core: its memory is there."""

    def run(self, core: int, rows: np.ndarray, number: int) -> None:
        """Run rows of a core."""
        bad = carry_out(rows, 0, len(rows), self._worker, self._memories[core], self._gm)
        if bad >= 0:
            raise ProgramError([unsupported(rows[bad], number + bad, core, self._launch.name)])

    def set(self, core: int, row: np.ndarray, number: int) -> None:
        """Set a flag: all rows before it have run."""

    def wait(self, core: int, row: np.ndarray, number: int, tokens: Sequence[None]) -> None:
        """Go on."""


class _Run:
    """One `execute`: phase after phase, the cores of each shared out to host threads with buffers of their own."""

    def __init__(
        self,
        launch: Launch,
        arena: npt.NDArray[np.uint8],
        product: Product,
        options: ExecuteOptions,
        config: npt.NDArray[np.int64],
    ) -> None:
        self._launch, self._arena, self._product, self._options = launch, arena, product, options
        self._config = config
        self._workers: list[Worker] = []
        self._kept: list[Kept] = []
        self._flags: CrossCoreFlags | None = None
        self._row_counts: dict[int, int] = {}

    def run(self) -> None:
        """Run every phase; the calling thread is one of the workers. Raise the first error of any."""
        self._workers.append(self._new_worker())
        apart = self._launch.blocks_apart
        if self._launch.keeps_cores and not apart:
            count, core = self._launch.core_count, self._product.core
            reserve(f"Buffers of {count} cores", count * memory_bytes(core))
            self._kept = [Kept(CoreMemory.for_core(core)) for _ in range(count)]
        for number in range(self._launch.phase_count):
            if apart:
                self._run_blocks(number)
            elif self._launch.by_turns:
                self._run_by_turns(number)
            else:
                self._run_phase(number)
        for worker in self._workers:
            KITS.give_back(self._product.core, worker.kit)
            ROWS.give_back(len(worker.rows), worker.rows)

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
        before = earlier_sharers(self._launch, number, cores) if threads > 1 else ()
        phase = Phase(self._arena, cores, before, threads == 1)
        run_parts(lambda part: self._work(number, phase, self._workers[part]), threads)

    def _run_blocks(self, number: int) -> None:
        """Share the blocks of a phase out to host threads; the cores of each run by turns and keep nothing."""
        threads = self._hire(number, self._launch.block_count)
        sequence = core_sequence(self._launch.block_count, number, self._options.core_order)
        # they add to different memory
        phase = Phase(self._arena, sequence, [()] * len(sequence), threads == 1)
        run_parts(lambda part: self._work_blocks(number, phase, self._workers[part]), threads)

    def _chunks_of(
        self, number: int, buffers: dict[int, np.ndarray], kept: dict[int, Kept], core: int
    ) -> Iterator[np.ndarray]:
        return chunks_of(self._launch, core, number, self._options, self._product, buffers[core], kept.get(core))

    def _work_blocks(self, number: int, phase: Phase, worker: Worker) -> None:
        launch, options, core = self._launch, self._options, self._product.core
        kits = [worker.kit, *(KITS.take(core) for _ in range(launch.vectors))]
        own = [kit.memory for kit in kits]
        buffers = [worker.rows, *(ROWS.take(len(worker.rows)) for _ in range(launch.vectors))]
        while (taken := phase.take()) is not None:
            cores = launch.cores_of(taken[1])
            if options.poison:
                for memory in own:
                    memory.poison()
            memories, places = dict(zip(cores, own, strict=True)), dict(zip(cores, buffers, strict=True))
            # other orders are found between two waits for other cores: flags reach from one stretch to the next
            kept = {} if options.order == "program" else {core: Kept(memories[core]) for core in cores}
            chunks = partial(self._chunks_of, number, places, kept)
            driver = _Turn(launch, worker, memories, self._arena)
            found, _ = run_by_turns(cores, chunks, CrossCoreFlags(launch), driver, {})
            if found:
                raise ProgramError(found[-1:])
        for kit, rows in zip(kits[1:], buffers[1:], strict=True):
            KITS.give_back(core, kit)
            ROWS.give_back(len(rows), rows)

    def _run_by_turns(self, number: int) -> None:
        """Run the cores of a phase on the calling thread, by turns."""
        launch, options, worker = self._launch, self._options, self._workers[0]
        room = max(launch.step_rows, TURN_ROWS)

        def chunks(core: int) -> Iterator[np.ndarray]:
            return chunks_of(launch, core, number, options, self._product, empty_rows(room), self._kept[core])

        memories = {core: kept.memory for core, kept in enumerate(self._kept)}
        driver = _Turn(launch, worker, memories, self._arena)
        cores = core_sequence(launch.core_count, number, options.core_order)
        self._flags = self._flags or CrossCoreFlags(launch)
        found, _ = run_by_turns(cores, chunks, self._flags, driver, self._row_counts)
        if found:
            raise ProgramError(found[-1:])

    def _is_small(self, number: int) -> bool:
        """Return whether the phase, going by its first core, is over before another thread has started."""
        kept = self._launch.kept.of(0, number)
        if kept is not None:
            return len(kept) * self._launch.core_count <= _SMALL_PHASE_ROWS
        rows = self._workers[0].rows
        parts = self._launch.rows(0, number, rows)
        return next(parts, 0) * self._launch.core_count <= _SMALL_PHASE_ROWS and next(parts, 0) == 0

    def _new_worker(self) -> Worker:
        kit = KITS.take(self._product.core)
        if not self._launch.trusted:
            kit.memory.poison()
        return Worker(
            product=self._product,
            kit=kit,
            rows=ROWS.take(max(self._options.chunk_rows, self._launch.step_rows)),
            config=self._config,
        )

    def _work(self, number: int, phase: Phase, worker: Worker) -> None:
        try:
            while (taken := phase.take()) is not None:
                place, core = taken
                kept = self._kept[core] if self._kept else None
                run_core(self._launch, core, place, number, self._options, worker, phase.turns, kept)
        except BaseException:
            phase.turns.fail()
            raise


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
    execute_all((launch,), product, options, gm or launch.gm)


@default_fenv
def execute_all(launches: Iterable[Launch], product: Product, options: ExecuteOptions, gm: GlobalMemory) -> None:
    """Run ``launches`` one after the other on one memory; everything else as of `execute`."""
    is_known, arena = is_known_core(product.core), gm.arena
    config = configuration(product, options)
    in_order = options.order == "program" and not options.poison
    for launch in launches:
        if launch.trusted and not is_known:
            # kernels are proven on the buffers of the products of the package; on others every row is looked at
            launch = replace(launch, trusted=False)
        shortcut = shortcut_of(launch, product, options)
        plain = launch.trusted and in_order
        if shortcut is not None:
            shortcut(gm, config[3] != 0, options.threads)
        elif not (plain and options.core_order is None and ran_again(launch, arena, product, config, options.threads)):
            _Run(launch, arena, product, options, config).run()


def shortcut_of(launch: Launch, product: Product, options: ExecuteOptions) -> Shortcut | None:
    """Return what is run instead of the rows of ``launch``, None if they are.

    Only launches that are trusted take it, on cores of the package, in program order and without poison.
    """
    plain = launch.trusted and options.shortcuts and options.order == "program" and not options.poison
    return launch.shortcut if plain and launch.shortcut is not None and is_known_core(product.core) else None
