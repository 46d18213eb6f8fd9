"""Faults put into a launch: rows dropped one at a time, what that does to the result, and what the checkers say.

The judge of a fault is the machine: whether any byte that the launch writes to global memory is another one, on random
operands, in program order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.isa.row import ROW_BYTES
from npu_sim.memory.core import POISON_BYTE
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.program.violation import Violation


def replay(launch: Launch, programs: list[list[np.ndarray]]) -> Launch:
    """Return ``launch`` with the rows ``programs[phase][core]`` in place of its own."""

    def kernel(buffer, params, core, phase):
        rows = programs[phase][core].view(np.uint8).reshape(-1, ROW_BYTES)
        for first in range(0, len(rows), len(buffer)):
            part = rows[first : first + len(buffer)]
            buffer.view(np.uint8).reshape(-1, ROW_BYTES)[: len(part)] = part
            yield len(part)

    return replace(launch, kernel=kernel, shortcut=None, trusted=True, step_rows=1)


@dataclass
class Bench:
    """A launch with random fp16 operands, whose rows of one core can be changed."""

    launch: Launch
    product: Product
    model: str = "fp16"
    programs: list[list[np.ndarray]] = field(init=False)
    clean: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        cores, phases = range(self.launch.core_count), range(self.launch.phase_count)
        self.programs = [[emit_rows(self.launch, core, phase) for core in cores] for phase in phases]
        self.clean = self.result(self.programs)

    def result(self, programs: list[list[np.ndarray]]) -> np.ndarray:
        """Return global memory behind the run of ``programs``."""
        arena, rng = self.launch.gm.arena, np.random.default_rng(0)
        arena[:] = POISON_BYTE
        for tensor in self.launch.gm.tensors:
            if tensor.initialised:
                values = rng.standard_normal(tensor.byte_count // 2).astype(np.float16).view(np.uint8)
                arena[tensor.address : tensor.address + len(values)] = values
        options = ExecuteOptions(accumulation=default_accumulation(self.product, self.model), poison=True)
        execute(replay(self.launch, programs), self.product, options)
        return arena.copy()

    def without(self, core: int, phase: int, at: int) -> list[list[np.ndarray]]:
        """Return the programs without row ``at`` of a core and phase."""
        programs = [list(cores) for cores in self.programs]
        programs[phase][core] = np.delete(programs[phase][core], at)
        return programs

    def rows_of(self, *ops: int) -> Iterator[tuple[int, int, int]]:
        """Yield (core, phase, row) of the rows with one of these opcodes."""
        for phase, cores in enumerate(self.programs):
            for core, rows in enumerate(cores):
                for at in np.flatnonzero(np.isin(rows["op"], ops)).tolist():
                    yield core, phase, at

    def is_wrong(self, programs: list[list[np.ndarray]]) -> bool:
        """Return whether ``programs`` leave other bytes in global memory."""
        return not np.array_equal(self.result(programs), self.clean)

    def findings(self, programs: list[list[np.ndarray]]) -> list[Violation]:
        """Return what the checker says about ``programs``."""
        return run_hazards(replay(self.launch, programs), self.product)
