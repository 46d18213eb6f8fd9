"""Small launches that run again: their rows are kept, because making them takes longer than carrying them out.

Cores of a trusted launch need nothing of each other within a phase, nor of their buffers from phase to phase, and one
thread that runs them one after the other lets each add to GM at once. So their rows in a row are one program.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_sim.engines.kit import KITS
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks

LIMIT_ROWS = 1024
"""Rows of a launch that are kept, 128 KiB; more take longer than to make them, and are worth several threads."""


def ran_again(launch: Launch, arena: npt.NDArray[np.uint8], product: Product, config: npt.NDArray[np.int64]) -> bool:
    """Run a trusted launch in program order on ``arena`` from rows that were kept; return whether it was possible.

    Not the first time, nor if it has too many rows or cores that run by turns, or has a row that cannot be carried out,
    which whoever runs the launch otherwise finds again.
    """
    if launch.by_turns:
        return False
    kept = launch.kept
    if kept.rows is None:
        # threads that meet here keep the same twice
        if kept.runs == 1:
            kept.rows = _few_rows(launch)
        kept.runs = min(kept.runs + 1, 2)
    rows = kept.rows
    if rows is None:
        return False
    sink = np.zeros(SINK_LENGTH, np.int64)
    sink[3] = config[3]
    kit = KITS.take(product.core)
    memory = kit.memory
    bad = run_rows(
        rows, 0, len(rows), arena, memory.l1, memory.l0a, memory.l0b, memory.l0c, memory.ub, config, kit.scratch,
        kit.staging, sink, _NO_RUNS, _NO_BYTES,
    )  # fmt: skip
    KITS.give_back(product.core, kit)
    return bad < 0


_NO_RUNS, _NO_BYTES = np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)


def _few_rows(launch: Launch) -> np.ndarray | None:
    """Return the issued rows of all cores, phase after phase, or None if they are many."""
    buffer, parts, count = empty_rows(max(LIMIT_ROWS, launch.step_rows)), [], 0
    for phase in range(launch.phase_count):
        for core in range(launch.core_count):
            for rows in issued_chunks(launch, core, phase, buffer):
                count += len(rows)
                if count > LIMIT_ROWS:
                    return None
                parts.append(rows.copy())
    return join_rows(parts)
