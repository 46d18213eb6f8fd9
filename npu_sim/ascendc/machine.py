"""The emulated cores of a kernel's program: they run the rows that it hands over, and answer what it reads.

Rows are kept as they come, phase by phase, for the engines that look at the program afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.ascendc.arguments import SharedMemory
from npu_sim.ascendc.control import PAGE_BYTES, Status
from npu_sim.ascendc.emission import MOST_ROWS, Emission, Kept, Told
from npu_sim.ascendc.mmad_types import MODE_LENGTH, type_end
from npu_sim.ascendc.process import Process
from npu_sim.budget import reserve
from npu_sim.engines.execute_core import unsupported
from npu_sim.engines.execute_options import ExecuteOptions, configuration
from npu_sim.engines.kit import kit_bytes
from npu_sim.engines.replay import Replay, Turn
from npu_sim.engines.session import Session, outside_of
from npu_sim.errors import NpuSimError, ProgramError
from npu_sim.isa.codes import Data, Space
from npu_sim.isa.gm_extent import note_stored
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.row import INSTR, ROW_BYTES, join_rows
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product
from npu_sim.program.verify import verify
from npu_sim.program.violation import Violation

_FP16 = 2 * Data.FP16
"""As `type_end` names it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one core among those that were handed over.

    Attributes
    ----------
    core : int
    rows : slice
        Where they are.
    why : Status
        Why they end.
    number : int
        Of the first, among all of the core.
    """

    core: int
    rows: slice
    why: Status
    number: int

    @property
    def count(self) -> int:
        """How many rows."""
        return int(self.rows.stop - self.rows.start)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Rows that a program has handed over, where they are, and whose they are."""

    rows: np.ndarray
    parts: list[_Part]


class Cores:
    """All cores of a call.

    Parameters
    ----------
    process : Process
        The kernel's program.
    product : Product
    memory : SharedMemory or None
        The tensors; None: rows are kept and not run.
    accumulation : Accumulation, str or None
        Model of every Mmad; None: the product's for the type that is multiplied.
    core_count : int
    """

    def __init__(
        self,
        process: Process,
        product: Product,
        memory: SharedMemory | None,
        accumulation: Accumulation | str | None,
        core_count: int,
    ) -> None:
        self._process, self._product, self._memory, self._model = process, product, memory, accumulation
        self._sessions: dict[int, Session] = {}
        self._kit_bytes = kit_bytes(product.core)
        self._known_options: dict[str, ExecuteOptions] = {}
        self._types = [_FP16] * core_count
        self._modes = np.zeros((core_count, MODE_LENGTH), np.int64)
        self._parts: list[list[list[npt.NDArray[np.uint8]]]] = [[[]] for _ in range(core_count)]
        self._counts = [0] * core_count
        self._row_count = 0
        self._states = np.zeros((core_count, CORE_STATE_LENGTH), np.int64)
        self._kept: list[npt.NDArray[np.uint8]] = []
        self._turns: list[Turn] = []
        self._multiplied: set[str] = set()
        self._has_answered = False
        self._bytes = 0
        self._shown = np.frombuffer(process.control.window, np.uint8)
        self._stored = np.zeros(process.control.tensor_count, np.bool_)
        self.refused: list[Violation] = []

    def keep(self) -> HandedOver:
        """Keep the rows that the program has handed over, and return them for `run`.

        Raises
        ------
        BudgetError
            There are more rows than the budget holds.
        """
        control = self._process.control
        return self._keep([*self._lots(), (int(control.core), int(control.count), Status.ROWS)])

    def keep_lots(self) -> HandedOver:
        """Keep what the program was about to hand over of cores that had given up their turn when it was stopped."""
        return self._keep(self._lots())

    def _lots(self) -> list[tuple[int, int, Status]]:
        control = self._process.control
        lots = [(int(lot.core), int(lot.end), Status(lot.why)) for lot in control.lots[: control.lot_count]]
        control.lot_count = 0  # each is taken once, also where the program does not go on
        return lots

    def _keep(self, lots: list[tuple[int, int, Status]]) -> HandedOver:
        """Keep rows, which are those of each core in turn up to an end."""
        rows = self._process.rows()[: lots[-1][1] if lots else 0]
        # kept here, and once or twice by what looks at them afterwards
        self._bytes += 3 * len(rows) * ROW_BYTES
        reserve("Rows of a kernel", self._bytes)
        kept = rows.view(np.uint8).reshape(-1, ROW_BYTES).copy()
        parts, first, before = list[_Part](), 0, self._row_count
        self._kept.append(kept)
        self._row_count += len(kept)
        for core, end, why in lots:
            parts.append(_Part(core, slice(first, end), why, self._counts[core]))
            self._turns.append(Turn(core, before + first, before + end))
            if end > first:
                self._parts[core][-1].append(kept[first:end])
                self._counts[core] += end - first
            if why is Status.SYNC:
                self._parts[core].append([])
            first = end
        return HandedOver(rows, parts)

    def run(self, handed_over: HandedOver) -> None:
        """Run rows that were kept, those of each core as far as all before them are right.

        Where one is illegal, leaves its tensor or cannot be carried out, what is wrong is kept in ``refused``, and
        nothing runs from then on.
        """
        if self._memory is not None and handed_over.parts:
            self._run_by_core(handed_over, self._judged(handed_over))

    def run_last(self, handed_over: HandedOver) -> None:
        """Run rows behind which there are none; see `run`.

        A program that has handed over all rows at once needs no buffers of each core, which no cache of the host holds.
        """
        if self._memory is None or not handed_over.parts:
            return
        found = self._judged(handed_over)
        replay = None if found or len(self._kept) > 1 else self._as_steps(handed_over)
        if replay is None:
            self._run_by_core(handed_over, found)
            return
        assert self._memory.arena is not None
        options = self._options(self._multiplied_alone)
        bad = replay.run(self._memory.arena, self._product.core, configuration(self._product, options))
        if bad >= 0:
            part = next(one for one in handed_over.parts if one.rows.start <= bad < one.rows.stop)
            self.stop()
            self.refused.append(unsupported(handed_over.rows[bad], bad - part.rows.start + part.number, part.core, ""))

    def _judged(self, handed_over: HandedOver) -> list[Violation]:
        """Make rows ready to run, and return those that break a rule."""
        rows = handed_over.rows
        for part in handed_over.parts:
            issue(rows[part.rows], part.count, self._states[part.core])
        note_stored(rows, len(rows), self._stored)
        return verify(rows, self._product)

    def _as_steps(self, handed_over: HandedOver) -> Replay | None:
        """Return all rows of a program as steps; None where they need more, or one leaves its tensor."""
        assert self._memory is not None
        rows, modes = handed_over.rows, np.zeros_like(self._modes)
        for part in handed_over.parts:
            begin = 0
            while begin < part.count:
                begin = self._type_end(rows[part.rows], begin, modes[part.core])
        table, reached = self._memory.table(self._memory.spans), np.zeros((1, len(Space), 2), np.int64)
        if len(self._multiplied) > 1 or outside_of(rows, table, reached) >= 0:
            return None
        return Replay.of(rows, self._turns)

    def _type_end(self, rows: np.ndarray, begin: int, mode: npt.NDArray[np.int64]) -> int:
        """Return `type_end`, and note what is multiplied."""
        end = int(type_end(rows, begin, len(rows), mode))
        if mode[1] >= 0:
            self._multiplied.add(_name_of(int(mode[1])))
        return end

    @property
    def _multiplied_alone(self) -> str:
        """What Mmads multiply, of one type at the most; without any it does not matter."""
        return next(iter(self._multiplied), "fp16")

    def _run_by_core(self, handed_over: HandedOver, found: list[Violation]) -> None:
        rows, parts = handed_over.rows, handed_over.parts
        try:
            for part in parts:
                if part.count:
                    self._run_part(part.core, rows[part.rows], part.rows.start, found)
                if part.why is Status.END and part.core in self._sessions:
                    self._sessions.pop(part.core).close()
        except ProgramError as error:
            # a session numbers rows that ran before as the program does
            wrong = tuple(replace(violation, core=part.core) for violation in error.violations)
            assert all(0 <= one.row - part.number < part.count for one in wrong)
            self.stop()
            self.refused += wrong

    def stop(self) -> None:
        """Run nothing any more; the program cannot read values from now on."""
        self._memory = None
        self._process.control.reads, self._process.control.has_stopped = 0, 1
        self.close()

    def answer(self) -> None:
        """Copy the bytes that the program asks for to where it reads them.

        Raises
        ------
        NpuSimError
            They cannot be looked at.
        """
        control, shown = self._process.control, self._shown
        self._has_answered = True
        memory = self._session(int(control.core)).memory
        space = Space(control.space)
        if space is Space.UB:
            pages, first = int(control.pages), 0
            while pages:  # those that lie side by side at a time
                first += (skipped := (pages & -pages).bit_length() - 1)
                pages >>= skipped
                count = (~pages & (pages + 1)).bit_length() - 1
                begin, end = first * PAGE_BYTES, min((first + count) * PAGE_BYTES, len(memory.ub))
                shown[begin:end] = memory.ub[begin:end]
                first, pages = first + count, pages >> count
            return
        buffers: dict[Space, np.ndarray] = {Space.L1: memory.l1, Space.L0C: memory.l0c}
        held = buffers.get(space)
        if held is None:
            raise NpuSimError(f"Contents must be looked at in UB, L1 or L0C, not in {space.name}")
        first, end = int(control.address), int(control.address + control.size)
        data = held.view(np.uint8)[first:end]
        if len(data) != end - first or len(data) > len(shown):
            raise NpuSimError(f"Contents of {space.name} must be looked at inside it, not at [{first}:{end}]")
        shown[: len(data)] = data

    def close(self) -> None:
        """Give the buffers of all cores back."""
        for session in self._sessions.values():
            session.close()
        self._sessions = {}

    @property
    def emission(self) -> Emission:
        """What the program has handed over."""
        return Emission(programs=self._parts, stored=self._stored, told=Told.by(self._process))

    def kept(self, emission: Emission, data: Sequence[GmTensor]) -> Kept | None:
        """Return what another call like this can do without the program.

        Parameters
        ----------
        emission : Emission
            All that it has handed over.
        data : sequence of GmTensor
            What may be another in that call.

        Returns
        -------
        Kept or None
            None: nothing was computed, the rows are many, or depend on the data, or multiply floats of several types.
        """
        told = emission.told
        depends = self._has_answered or told.plain_stores or told.has_looked_at(data)
        if self._memory is None or depends or self._row_count > MOST_ROWS or len(self._multiplied) > 1:
            return None
        rows = join_rows([kept.copy().reshape(-1).view(INSTR) for kept in self._kept])
        states = np.zeros_like(self._states)
        for turn in self._turns:
            issue(rows[turn.first : turn.last], turn.last - turn.first, states[turn.core])
        replay = Replay.of(rows, self._turns)
        if replay is None:
            return None
        return Kept(product=self._product, emission=emission, multiplied=self._multiplied_alone, replay=replay)

    def _session(self, core: int) -> Session:
        if core not in self._sessions:
            assert self._memory is not None
            cores = len(self._sessions) + 1
            reserve(f"Buffers of {cores} cores", cores * self._kit_bytes)
            self._sessions[core] = Session(self._product, self._options("fp16"), self._memory, core=core)
            self._types[core] = _FP16
        return self._sessions[core]

    def _options(self, name: str) -> ExecuteOptions:
        if name not in self._known_options:
            self._known_options[name] = _options_for(self._product, self._model, name)
        return self._known_options[name]

    def _run_part(self, core: int, rows: np.ndarray, first: int, found: list[Violation]) -> None:
        """Run rows of one core but for those that break a rule, and what Mmads of another type stand behind them."""
        session, mode = self._session(core), self._modes[core]
        assert self._memory is not None
        begin, count = 0, len(rows)
        while begin < count:
            end = self._type_end(rows, begin, mode)
            kind = int(mode[1])
            if kind >= 0 and kind != self._types[core]:
                session.use(self._options(_name_of(kind)))
                self._types[core] = kind
            wrong = [one for one in found if begin <= one.row - first < end]
            session.refuse(replace(one, row=one.row - first - begin) for one in wrong)
            session.run_issued(rows[begin:end], self._memory.spans)
            begin = end


def _name_of(kind: int) -> str:
    """Return what `default_accumulation` calls what `type_end` names."""
    return "hf32" if kind % 2 else Data(kind // 2).name.lower()


def _options_for(product: Product, model: Accumulation | str | None, multiplied: str) -> ExecuteOptions:
    return ExecuteOptions(accumulation=Accumulation.parse(model, default_accumulation(product, multiplied)))


def run_again(kept: Kept, memory: SharedMemory, model: Accumulation | str | None) -> bool:
    """Run what a program has handed over in an earlier call, with what is in memory now; see `Cores`.

    Return whether all rows could be carried out.
    """
    options = _options_for(kept.product, model, kept.multiplied)
    assert memory.arena is not None
    return kept.replay.run(memory.arena, kept.product.core, configuration(kept.product, options)) < 0
