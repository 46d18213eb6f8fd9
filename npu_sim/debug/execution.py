"""Everything a call needs to run once more: launches, what its tensors held, and how it ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npu_sim.debug.machine import Machine
from npu_sim.engines.execute import ExecuteOptions, core_sequence
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.program.recorded import rows_of


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The issued rows of one core and phase; ``first`` is the number of the first one in the core's program."""

    launch: int
    phase: int
    core: int
    first: int
    rows: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Execution:
    """A call that ran.

    Attributes
    ----------
    launches : tuple of Launch
        In stream order, on one global memory.
    product : Product
    tensors : mapping of str to array
        What the tensors held before, by name; those left out held poison.
    results : mapping of str to array
        What those that it may write held behind it.
    options : ExecuteOptions
        Numerics and orders.
    """

    launches: tuple[Launch, ...]
    product: Product
    tensors: Mapping[str, np.ndarray]
    results: Mapping[str, np.ndarray]
    options: ExecuteOptions

    def machine(self) -> Machine:
        """Return a machine that stands before the first row."""
        return Machine(self.launches, self.product, self.tensors, self.options)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The rows of every core and phase, in the order in which they run."""
        return tuple(self._parts())

    def _parts(self) -> Iterator[Part]:
        for number, launch in enumerate(self.launches):
            done = dict.fromkeys(range(launch.core_count), 0)
            for phase in range(launch.phase_count):
                for core in core_sequence(launch.core_count, phase, self.options.core_order):
                    rows = rows_of(launch, core, phase)
                    issue(rows, len(rows), np.zeros(CORE_STATE_LENGTH, np.int64))
                    yield Part(number, phase, core, done[core], rows)
                    done[core] += len(rows)
