"""Everything a call needs to run once more: launches, what its tensors held, and how it ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npu_sim.debug.machine import Machine
from npu_sim.debug.parts import Part, parts_of
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.products import Product
from npu_sim.program.launch import Launch


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
        return tuple(parts_of(self.launches, self.options.core_order))
