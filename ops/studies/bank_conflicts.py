"""UB bank conflicts in a kernel of a user: which lines have them, what they cost, and what a launch takes without.

What an instruction costs by the places and strides of its operands is the cost model's (`npu_sim.isa.cost_vector`): a
row meets in banks if it costs less where no block meets another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ProgramError
from npu_sim.isa.cost import rows_cost
from npu_sim.isa.issue import CORE_STATE_LENGTH
from npu_sim.isa.row import INSTR, empty_rows, join_rows
from npu_sim.products import Product
from npu_sim.products.cost import CostParams
from npu_sim.products.cost_record import cost_record
from npu_sim.program.disassemble import name_of
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.program.violation import Kind, Violation

_MOST_ROWS = 200_000
"""Rows of a launch up to which it is timed again."""
_MOST_LINES = 24
_WORTH = 0.05
"""Part of a launch's cycles that its conflicts together have to take: less is within what the model is unsure of."""
_NO_TWO_BLOCKS = 1 << 16
"""Bank groups of a UB in which no two blocks of a repeat meet: strides are shorter than half of it."""


def bank_conflicts(launches: Sequence[Launch], product: Product, *, row_counts: Sequence[int]) -> list[Violation]:
    """Return advice for each line of a user's own source whose vector operands meet in banks of UB, dearest first.

    Launches that would take nearly as long without are left out.

    Parameters
    ----------
    launches : sequence of Launch
    product : Product
        Its cost model says which operands meet, and what that costs.
    row_counts : sequence of int
        Rows of each launch.
    """
    free = replace(product, cost=_without_conflicts(product.cost))
    found: list[Violation] = []
    for number, launch in enumerate(launches):
        if launch.lines and row_counts[number] <= _MOST_ROWS:
            found += _of_launch(launch, number, product, free)
    return found


def _without_conflicts(cost: CostParams) -> CostParams:
    step = cost.vector_step_millicycles
    return replace(
        cost,
        vector_read_conflict_millicycles=step,
        vector_write_conflict_millicycles=step,
        ub_bank_groups=_NO_TWO_BLOCKS,
    )


def _of_launch(launch: Launch, number: int, product: Product, free: Product) -> Iterator[Violation]:
    """Yield the lines of a launch, those of its slowest core."""
    try:
        time = run_timeline(launch, product)
    except ProgramError:  # what cannot be timed cannot be faster
        return
    core = int(np.argmax(time.core_cycles))
    rows = _issued(launch, core)
    taken, least = (_cycles(rows, of) for of in (product, free))
    lost = taken - least
    faster = run_timeline(launch, free).total_cycles if lost.any() else time.total_cycles
    if time.total_cycles - faster < _WORTH * time.total_cycles:
        return
    lines: Counter[int] = Counter()
    for site, cycles in zip(rows["site"].tolist(), lost.tolist(), strict=True):
        lines[site] += cycles
    for site, cycles in lines.most_common(_MOST_LINES):
        if cycles <= 0:
            return
        here = (rows["site"] == site) & (lost > 0)
        at = int(np.flatnonzero(here)[0])
        words = f"{name_of(rows[at])} has operands that meet in banks of UB: {cycles} of its {taken[here].sum()} cycles"
        yield Violation(
            kind=Kind.BANK_CONFLICT, row=at, core=core, tile=int(rows["tile"][at]), site=int(site), launch=number,
            detail=f"{words} at this line; without any such conflict the launch takes {faster} cycles instead of "
            f"{time.total_cycles}",
        )  # fmt: skip


def _issued(launch: Launch, core: int) -> np.ndarray:
    """Return the issued rows of a core."""
    buffer, state = empty_rows(max(_MOST_ROWS, launch.step_rows)), np.zeros(CORE_STATE_LENGTH, np.int64)
    parts = [
        rows.copy() for phase in range(launch.phase_count) for rows in issued_chunks(launch, core, phase, buffer, state)
    ]
    return join_rows(parts) if parts else np.zeros(0, INSTR)


def _cycles(rows: np.ndarray, product: Product) -> np.ndarray:
    """Return the cycles that each row keeps its pipe, int64[n]; 0 where there is no rule."""
    costs = np.zeros((len(rows), 3), np.int64)
    rows_cost(rows, len(rows), cost_record(product.cost, 1, product.clock_hz), costs)
    occupancy: np.ndarray = np.maximum(costs[:, 0], 0)
    return occupancy
