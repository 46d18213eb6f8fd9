"""Barriers that a kernel of a user does not need, each found by leaving it out: clean without it, and faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from npu_sim.engines.hazards import run_hazards
from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ProgramError
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op
from npu_sim.isa.row import INSTR, ROW_BYTES
from npu_sim.products import Product
from npu_sim.program.disassemble import name_of
from npu_sim.program.finding_codes import CODES
from npu_sim.program.launch import Launch
from npu_sim.program.recorded import launch_of, rows_of
from npu_sim.program.violation import Kind, Violation

_MOST_ROWS = 200_000
"""Rows of a launch up to which barriers are tried: each line of them costs a run of the checks and of the timeline."""
_MOST_LINES = 24


def unneeded_barriers(launches: Sequence[Launch], product: Product, *, row_counts: Sequence[int]) -> list[Violation]:
    """Return advice for each line of PipeBarrier that may go, beside the others that may.

    Launches are tried that are a user's own source (`Launch.lines`), of one phase, whose cores do not wait for each
    other, and in which no compiler puts barriers.

    Parameters
    ----------
    launches : sequence of Launch
        On one memory, in stream order; the checks find nothing in them.
    product : Product
    row_counts : sequence of int
        Rows of each launch.
    """
    found: list[Violation] = []
    made = list(launches)
    for number, launch in enumerate(launches):
        is_plain = launch.phase_count == 1 and not launch.by_turns and not launch.auto_sync
        if launch.lines and is_plain and row_counts[number] <= _MOST_ROWS:
            found += _of_launch(made, number, product)
    return found


def _of_launch(made: list[Launch], number: int, product: Product) -> Iterator[Violation]:
    """Yield the lines of a launch that may go, and leave ``made[number]`` without them."""
    launch = made[number]
    whole = programs = [rows_of(launch, core, 0) for core in range(launch.core_count)]
    # the last row of a core is the framework's own barrier
    sites = np.concatenate([rows["site"][:-1][rows["op"][:-1] == Op.PIPE_BARRIER] for rows in programs])
    if not len(sites):
        return
    try:
        cycles = run_timeline(launch, product).total_cycles
    except ProgramError:  # what cannot be timed cannot be faster
        return
    for site in np.unique(sites).tolist()[:_MOST_LINES]:
        is_barrier = [(rows["op"] == Op.PIPE_BARRIER) & (rows["site"] == site) for rows in programs]
        fewer = [_without(rows, gone) for rows, gone in zip(programs, is_barrier, strict=True)]
        kept = launch_of(launch.name, [[rows] for rows in fewer], launch.gm)
        tried = replace(launch, kernel=kept.kernel, params=kept.params, step_rows=kept.step_rows)
        faster = run_timeline(tried, product).total_cycles
        if faster >= cycles or not _is_clean([*made[:number], tried, *made[number + 1 :]], product):
            continue
        core = next(core for core, gone in enumerate(is_barrier) if gone.any())
        at = int(np.flatnonzero((whole[core]["op"] == Op.PIPE_BARRIER) & (whole[core]["site"] == site))[0])
        row = whole[core][at]
        words = f"{name_of(row)}<PIPE_{pipe_name(int(row['pipe']))}> orders nothing that has to be: without this line"
        yield Violation(
            kind=Kind.BARRIER_UNNEEDED, row=at, core=core, tile=int(row["tile"]), site=int(site), launch=number,
            detail=f"{words} the checks find nothing either, and the launch takes {faster} cycles instead of {cycles}",
        )  # fmt: skip
        made[number], programs, cycles = tried, fewer, faster


def _without(rows: np.ndarray, gone: npt.NDArray[np.bool_]) -> np.ndarray:
    """Return rows without some, as bytes: NumPy copies overlapping fields one after the other."""
    kept: np.ndarray = rows.view(np.uint8).reshape(-1, ROW_BYTES)[~gone].reshape(-1).view(INSTR)
    return kept


def _is_clean(launches: Sequence[Launch], product: Product) -> bool:
    """Return whether the order checker finds nothing but advice."""
    return all(CODES[found.kind].severity == "advice" for found in run_hazards(launches, product))
