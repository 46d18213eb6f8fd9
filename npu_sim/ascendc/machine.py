"""The emulated cores of a kernel's program: they run the rows that it hands over, and answer what it reads.

Rows are kept as they come, phase by phase, for the engines that look at the program afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation, default_accumulation
from npu_sim.ascendc.arguments import SharedMemory
from npu_sim.ascendc.control import Status
from npu_sim.ascendc.process import Process
from npu_sim.budget import reserve
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.engines.kit import kit_bytes
from npu_sim.engines.session import Session
from npu_sim.errors import NpuSimError, ProgramError
from npu_sim.isa.codes import Data, Space
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import Op
from npu_sim.isa.row import ROW_BYTES
from npu_sim.products import Product
from npu_sim.program.launch import SourceLine
from npu_sim.program.verify import verify
from npu_sim.program.violation import Violation


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
        self._types = [""] * core_count
        self._hf32 = [False] * core_count
        self._parts: list[list[list[npt.NDArray[np.uint8]]]] = [[[]] for _ in range(core_count)]
        self._counts = [0] * core_count
        self._states = np.zeros((core_count, CORE_STATE_LENGTH), np.int64)
        self._bytes = 0
        self.refused: list[Violation] = []

    def take(self) -> None:
        """Keep and run the rows that the program has handed over.

        Where one is illegal, leaves its tensor or cannot be carried out, what is wrong is kept in ``refused``, and
        nothing runs from then on.

        Raises
        ------
        BudgetError
            There are more rows than the budget holds.
        """
        control = self._process.control
        self._take([*self._lots(), (int(control.core), int(control.count), Status.ROWS)])

    def take_lots(self) -> None:
        """Take what the program was about to hand over of cores that had given up their turn when it was stopped."""
        self._take(self._lots())

    def _lots(self) -> list[tuple[int, int, Status]]:
        control = self._process.control
        lots = [(int(lot.core), int(lot.end), Status(lot.why)) for lot in control.lots[: control.lot_count]]
        control.lot_count = 0  # each is taken once, also where the program does not go on
        return lots

    def _take(self, lots: list[tuple[int, int, Status]]) -> None:
        """Keep and run rows, which are those of each core in turn up to an end."""
        count = lots[-1][1] if lots else 0
        # kept here, and once or twice by what looks at them afterwards
        self._bytes += 3 * count * ROW_BYTES
        reserve("Rows of a kernel", self._bytes)
        kept = self._process.row_bytes[:count].copy()
        parts, first = list[tuple[int, slice, Status]](), 0
        for core, end, why in lots:
            if end > first:
                self._parts[core][-1].append(kept[first:end])
            if why is Status.SYNC:
                self._parts[core].append([])
            parts.append((core, slice(first, end), why))
            first = end
        self._run(parts)
        for core, part, _ in parts:
            self._counts[core] += part.stop - part.start

    def stop(self) -> None:
        """Run nothing any more; the program cannot read values from now on."""
        self._memory = None
        self._process.control.reads = 0
        self.close()

    def answer(self) -> None:
        """Copy the bytes that the program asks for to where it reads them.

        Raises
        ------
        NpuSimError
            They cannot be looked at.
        """
        control = self._process.control
        core, space = int(control.core), Space(control.space)
        first, end = int(control.address), int(control.address + control.size)
        session = self._session(core)
        memory = session.memory
        buffers: dict[Space, np.ndarray] = {Space.UB: memory.ub, Space.L1: memory.l1, Space.L0C: memory.l0c}
        held = buffers.get(space)
        if held is None:
            raise NpuSimError(f"Contents must be looked at in UB, L1 or L0C, not in {space.name}")
        data = held.view(np.uint8)[first:end]
        if len(data) != end - first or len(data) > len(control.window):
            raise NpuSimError(f"Contents of {space.name} must be looked at inside it, not at [{first}:{end}]")
        np.frombuffer(control.window, np.uint8)[: len(data)] = data

    def close(self) -> None:
        """Give the buffers of all cores back."""
        for session in self._sessions.values():
            session.close()
        self._sessions = {}

    @property
    def programs(self) -> list[list[list[npt.NDArray[np.uint8]]]]:
        """Rows by core and phase, in the parts in which they came."""
        return self._parts

    @property
    def lines(self) -> dict[int, SourceLine]:
        """Places in the source by the ``site`` of rows."""
        control = self._process.control
        found = ((site, self._process.line(site)) for site in control.sites[: control.site_count])
        return {site: line for site, line in found if line is not None}

    @property
    def buffers(self) -> list[int]:
        """Numbers of named buffers."""
        return list(self._process.control.buffers[: self._process.control.buffer_count])

    @property
    def crosses(self) -> bool:
        """Whether a core has set or waited for a flag of others."""
        return bool(self._process.control.crosses)

    def _session(self, core: int) -> Session:
        if core not in self._sessions:
            assert self._memory is not None
            options = self._options("fp16")
            cores = len(self._sessions) + 1
            reserve(f"Buffers of {cores} cores", cores * kit_bytes(self._product.core))
            self._sessions[core] = Session(self._product, options, self._memory, core=core)
            self._types[core] = "fp16"
        return self._sessions[core]

    def _options(self, name: str) -> ExecuteOptions:
        model = Accumulation.parse(self._model, default_accumulation(self._product, name))
        return ExecuteOptions(accumulation=model)

    def _run(self, parts: list[tuple[int, slice, Status]]) -> None:
        """Run rows that were handed over, those of each core as far as all before them are right."""
        rows = self._process.rows
        if self._memory is None or not parts:
            return
        for core, part, _ in parts:
            issue(rows[part], part.stop - part.start, self._states[core])
        found = verify(rows[: parts[-1][1].stop], self._product)
        counts = self._counts.copy()
        try:
            for core, part, why in parts:
                if part.stop > part.start:
                    self._run_part(core, part, found)
                    counts[core] += part.stop - part.start
                if why is Status.END and core in self._sessions:
                    self._sessions.pop(core).close()
        except ProgramError as error:
            # a session numbers rows that ran before as the program does
            wrong = tuple(replace(violation, core=core) for violation in error.violations)
            assert all(counts[core] <= one.row < counts[core] + part.stop - part.start for one in wrong)
            self.stop()
            self.refused += wrong

    def _run_part(self, core: int, part: slice, found: list[Violation]) -> None:
        """Run rows of one core but for those that break a rule, and what Mmads of another type stand behind them."""
        session = self._session(core)
        assert self._memory is not None
        first = part.start
        for rows, name in self._stretches(core, self._process.rows[part]):
            if name and name != self._types[core]:
                session.use(self._options(name))
                self._types[core] = name
            end = first + len(rows)
            session.refuse(replace(one, row=one.row - first) for one in found if first <= one.row < end)
            session.run_issued(rows, self._memory.spans)
            first = end

    def _stretches(self, core: int, rows: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
        """Yield the rows in parts whose Mmads multiply one type, and its name."""
        ops = rows["op"]
        types, modes = rows["dtype"][ops == Op.MMAD], rows["value"][ops == Op.SET_HF32]
        if (types == types[:1]).all() and (modes == self._hf32[core]).all():
            yield rows, self._compute_type(core, int(types[0])) if len(types) else ""
            return
        first, name = 0, ""
        for at in np.flatnonzero((ops == Op.MMAD) | (ops == Op.SET_HF32)).tolist():
            row = rows[at]
            if row["op"] == Op.SET_HF32:
                self._hf32[core] = bool(row["value"])
                continue
            own = self._compute_type(core, int(row["dtype"]))
            if name and own != name:
                yield rows[first:at], name
                first = at
            name = own
        yield rows[first:], name

    def _compute_type(self, core: int, data: int) -> str:
        """Return what an Mmad of a core multiplies, by its type."""
        name = Data(data).name.lower()
        return "hf32" if name == "fp32" and self._hf32[core] else name
