"""Time of vector intrinsics: streams, isolated ones, and sequences with barriers.

The unit is an in-order pipe. An intrinsic occupies it for its steps and is complete a start-up later; what depends on
it (behind a barrier) waits for that, what does not follows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.isa.codes import C220
from npu_sim.points.tables import Intrinsic, intrinsics, sequence_costs
from npu_sim.products.cost import CostParams
from npu_sim.units import ceil_div

_BITS = {"8": 8, "16": 16, "32": 32, "64": 64}
UNIFIED_EXTRA_CYCLES = 5
"""Start-up on dav-c100 and dav-m200 beside that of dav-c220 (TK). ASSUMED: steps are the same."""


@dataclass(frozen=True, slots=True)
class VectorStep:
    """One intrinsic.

    Attributes
    ----------
    intrinsic : Intrinsic
        Which.
    repeats : int
        Repeats of one.
    dtype, result : str
        Types of source and result, as NumPy calls them.
    bits : int
        Of an element: of the name if that has them, else of the source.
    meets_banks : bool
        Its two vectors share bank groups.
    """

    intrinsic: Intrinsic
    repeats: int
    dtype: str
    result: str
    bits: int
    meets_banks: bool = True

    def occupancy(self, cost: CostParams) -> int:
        """Return the cycles it keeps the unit in a stream."""
        one = self.intrinsic
        return max(self.steps(cost), one.least.get(self.dtype, cost.vector_minimum_cycles))

    def steps(self, cost: CostParams) -> int:
        """Return the cycles of its repeats and of a block of bits written in part."""
        one = self.intrinsic
        if one.conflicts and self.meets_banks:
            millicycles = cost.vector_read_conflict_millicycles
        elif one.mixed_step and _width(self.result) > _width(self.dtype):
            millicycles = 1000 * one.mixed_step
        else:
            millicycles = 1000 * one.step.get(self.bits, one.step.get(0, max(one.step.values())))
        further = one.eighths * (max(self.repeats - 1, 0) // 8)
        lanes = 256 * 8 // max(self.bits, 1)
        bits = one.mask_block if self.repeats * lanes // 8 % 32 else 0
        return one.fixed + ceil_div(self.repeats * millicycles, 1000) + further + bits

    def start(self, cost: CostParams) -> int:
        """Return the cycles beside the steps until an isolated one is complete."""
        extra = 0 if cost.arch == C220 else UNIFIED_EXTRA_CYCLES
        return self.intrinsic.start["float" if "float" in self.dtype else "int"] + extra

    def isolated(self, cost: CostParams) -> int:
        """Return the cycles from the start to the end of one alone."""
        return self.start(cost) + self.steps(cost)


def _width(dtype: str) -> int:
    return int("".join(filter(str.isdigit, dtype)) or 16)


def vector_step(op: str, repeats: int, dtype: str, *, meets_banks: bool = True) -> VectorStep | None:
    """Return the intrinsic ``op``, whose name may end in its width (``_b32``), None if it is not known.

    Parameters
    ----------
    op : str
        Its name.
    repeats : int
        Repeats.
    dtype : str
        ``source,source->result``, or the one type of all.
    meets_banks : bool
        Two vectors share bank groups.
    """
    name, _, width = op.lower().rpartition("_b")
    known = intrinsics()
    if not (name in known and width in _BITS):
        name, width = op.lower(), ""
    if name not in known:
        return None
    sources, _, result = dtype.partition("->")
    source = sources.split(",")[0]
    bits = _BITS[width] if width else _width(source)
    return VectorStep(known[name], repeats, source, result or source, bits, meets_banks)


@dataclass(slots=True)
class VectorPipe:
    """The unit while a sequence runs.

    Attributes
    ----------
    cost : CostParams
        Parameters.
    free : int
        When it can take the next intrinsic.
    complete : int
        When all results so far can be used.
    """

    cost: CostParams
    free: int = 0
    complete: int = 0

    def run(self, step: VectorStep) -> None:
        """Take an intrinsic that does not depend on what runs."""
        self.complete = max(self.complete, self.free + step.isolated(self.cost))
        self.free += step.occupancy(self.cost)

    def hold(self, cycles: int) -> None:
        """Keep the unit, with what is in it, for ``cycles``."""
        self.free += cycles
        self.complete = max(self.complete, self.free)

    def barrier(self) -> None:
        """Wait for all results."""
        self.free = self.complete = max(self.free, self.complete) + self.cost.barrier_cycles


def scalar_duplicates(times: int) -> int:
    """Return the cycles of Duplicates whose scalars are read from UB, one after the other."""
    costs = sequence_costs()
    return costs["scalar_duplicate_start_cycles"] + times * costs["scalar_duplicate_cycles"]
