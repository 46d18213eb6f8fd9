"""Launches that run again: rows are kept where they are few, because to make them takes as long as to carry out some.

Cores of a trusted launch need nothing of each other within a phase, nor of their buffers from phase to phase, and one
thread that runs them one after the other lets each add to GM at once. So their rows in a row are one program. Several
threads share the cores as they do the first time, each with the rows that are kept of it.
"""

from __future__ import annotations

from threading import RLock
from weakref import finalize

import numpy as np
import numpy.typing as npt

from npu_sim.engines.kit import KITS
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.dispatch import run_rows
from npu_sim.isa.row import empty_rows, join_rows
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.program.legality import issued_chunks
from npu_sim.units import MIB

LIMIT_ROWS, SHARED_ROWS = 1 << 15, 1024
"""Rows of a launch that are kept, 4 MiB; and that one thread runs where there are others, for which more are worth a
part each."""
LIMIT_BYTES = 32 * MIB
"""Of all rows that are kept."""
FEW_ROWS = 4096
"""Of a launch that may take what is left of `LIMIT_BYTES`; larger ones, which gain less, leave it half."""


def ran_again(
    launch: Launch, arena: npt.NDArray[np.uint8], product: Product, config: npt.NDArray[np.int64], threads: int
) -> bool:
    """Run a trusted launch in program order on ``arena`` from rows that were kept; return whether it was possible.

    Not the first time, nor if it has too many rows, for ``threads`` too, or cores that run by turns, or has a row that
    cannot be carried out, which whoever runs the launch otherwise finds again.
    """
    if launch.by_turns:
        return False
    kept = launch.kept
    if kept.runs == 1:
        # threads that meet here keep the same twice
        _keep(launch)
    kept.runs = min(kept.runs + 1, 2)
    rows = kept.rows
    if rows is None or (threads > 1 and len(rows) > SHARED_ROWS):
        return False
    sink = np.zeros(SINK_LENGTH, np.int64)
    sink[3] = config[3]
    kit = KITS.take(product.core)
    buffers = kit.memory.buffers
    bad = run_rows(rows, 0, len(rows), arena, *buffers, config, kit.scratch, kit.staging, sink, _NO_RUNS, _NO_BYTES)
    KITS.give_back(product.core, kit)
    return bad < 0


_NO_RUNS, _NO_BYTES = np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)


class _Shelf:
    """How many bytes of rows there are."""

    def __init__(self) -> None:
        # rows may go while this thread counts others
        self._lock = RLock()
        self._used = 0

    def has_room_for(self, rows: np.ndarray) -> bool:
        """Return whether ``rows`` can be kept, and count them as long as they exist."""
        with self._lock:
            limit = LIMIT_BYTES if len(rows) <= FEW_ROWS else LIMIT_BYTES // 2
            if self._used + rows.nbytes > limit:
                return False
            self._used += rows.nbytes
        finalize(rows, self._give_back, rows.nbytes)
        return True

    def _give_back(self, byte_count: int) -> None:
        with self._lock:
            self._used -= byte_count


_SHELF = _Shelf()


def _keep(launch: Launch) -> None:
    """Keep the issued rows of all cores, phase after phase, unless they are many."""
    buffer, parts, count = empty_rows(max(LIMIT_ROWS, launch.step_rows)), [], 0
    ends = np.zeros((launch.phase_count, launch.core_count), np.int64)
    for phase in range(launch.phase_count):
        for core in range(launch.core_count):
            for rows in issued_chunks(launch, core, phase, buffer):
                count += len(rows)
                if count > LIMIT_ROWS:
                    return
                parts.append(rows.copy())
            ends[phase, core] = count
    joined = join_rows(parts)
    if _SHELF.has_room_for(joined):
        launch.kept.ends, launch.kept.rows = ends, joined
