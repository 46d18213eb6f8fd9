"""Which faults leave stale tiles, unguarded rows, holes in outputs and state behind: found without the checkers.

A fault is of a family if it has the effect, found by running it or byte by byte, whatever the checkers say of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from npu_sim.debug.execution import Execution
from npu_sim.errors import NpuSimError
from npu_sim.isa.op import Op, Pipe, Space
from tests.cases.fault_subjects import Subject
from tests.cases.program_faults import ProgramFault
from tests.oracles.footprint import touched_bytes
from tests.oracles.hazards import WRITE
from tests.oracles.lives import missing_barriers
from tests.oracles.programs import SYNC_OPS, issued
from tests.oracles.sync_removal import conflicts, unordered

FAMILIES = {
    "tiles left stale, another result": ("load dropped", "copy on the chip dropped"),
    "tiles left as filled, another result": ("load dropped", "copy on the chip dropped"),
    "barrier gone that guards rows": ("barrier dropped",),
    "holes in outputs": ("store dropped", "store too short"),
    "additions left on": ("atomic off dropped",),
    "buffers overrun": ("load too long", "copy on the chip too long", "computation too long"),
}
"""Effect, and the classes that may have it, in one row or in every tile."""
_MARKS = (*SYNC_OPS, Op.ALLOC_TENSOR, Op.FREE_TENSOR)
_BRUTE_ROWS = 330
"""Barriers of longer programs are not judged: pairs of rows are looked at byte by byte."""


def family_of(fault: ProgramFault, subject: Subject, execution: Execution) -> str | None:
    """Return the family of a fault; None if it has no such effect."""
    family = next((name for name, kinds in FAMILIES.items() if fault.kind.startswith(kinds)), None)
    if family is None:
        return None
    rows = fault.programs[fault.core]
    if family == "tiles left stale, another result" and is_filled(subject.programs()[fault.core], fault.row):
        family = "tiles left as filled, another result"
    has_effect = {
        "tiles left stale, another result": lambda: _outputs(execution) != _outputs(subject.execution),
        "tiles left as filled, another result": lambda: _outputs(execution) != _outputs(subject.execution),
        "barrier gone that guards rows": lambda: _is_unguarded(rows, subject),
        "holes in outputs": lambda: _has_hole(execution) and not _has_hole(subject.execution),
        "additions left on": lambda: any(_adds_at_end(one) for one in fault.programs),
        "buffers overrun": lambda: bool(subject.launch.buffers) and _overruns(rows),
    }[family]()
    return family if has_effect else None


def is_filled(rows: np.ndarray, at: int) -> bool:
    """Return whether rows before ``at`` wrote all that it writes, and nothing has read that: no earlier tile is there.

    Without the row, what reads the bytes gets the fill of its own tile: the very rows of a tile that has nothing
    to load, as where a window lies in the padding, so that no check of rows can tell.
    """
    touched = touched_bytes(rows[at])
    left = {where: set(touched[where, access]) for where, access in touched if access == WRITE}
    if not left:
        return False
    for row in rows[:at][::-1]:
        if not any(left.values()) or row["op"] in _MARKS:
            continue
        for (where, access), span in touched_bytes(row).items():
            if access != WRITE and left.get(where, set()) & span:
                return False
            left[where] = left.get(where, set()) - span
    return not any(left.values())


def _outputs(execution: Execution, before: Mapping[str, np.ndarray] | None = None) -> bytes | None:
    """Return the outputs in program order, of tensors that held ``before``; None if it does not get there."""
    tensors = execution.tensors if before is None else {**before, **execution.tensors}
    try:
        machine = replace(execution, tensors=tensors).machine()
        machine.run()
    except NpuSimError:
        return None
    names = [tensor.name for tensor in execution.launches[0].gm.tensors if tensor.is_output]
    return b"".join(machine.tensor(name).tobytes() for name in names)


def _has_hole(execution: Execution) -> bool:
    """Return whether outputs hold behind the call what they held before it: other bytes, and these are others."""
    outputs = [tensor for tensor in execution.launches[0].gm.tensors if tensor.is_output]
    held = [{tensor.name: np.full(tensor.byte_count, byte, np.uint8) for tensor in outputs} for byte in (0, 0x3C)]
    first, second = (_outputs(execution, before) for before in held)
    return first is not None and second is not None and first != second


def _is_unguarded(rows: np.ndarray, subject: Subject) -> bool:
    """Return whether dependent rows of a core meet without a barrier, or rows of two pipes without any order."""
    if len(rows) > _BRUTE_ROWS:
        return False
    alone = issued(rows)
    pipes = {Pipe[name] for name in subject.execution.product.core.barrier_pipes}
    return bool(missing_barriers(alone, pipes) or unordered(alone, conflicts(alone)))


def _overruns(rows: np.ndarray) -> bool:
    """Return whether a row of a core writes bytes on the chip that no allocated buffer has."""
    live: dict[tuple[int, int], int] = {}
    for row in issued(rows):
        space, first = int(row["dst_space"]), int(row["dst"])
        if row["op"] == Op.ALLOC_TENSOR:
            live[space, first] = first + int(row["count"])
        elif row["op"] == Op.FREE_TENSOR:
            live.pop((space, first), None)
        elif row["op"] not in SYNC_OPS:
            for (where, access), touched in touched_bytes(row).items():
                if where != Space.GM and access == WRITE:
                    own = set().union(*(range(at, end) for (of, at), end in live.items() if of == where))
                    if not touched <= own:
                        return True
    return False


def _adds_at_end(rows: np.ndarray) -> bool:
    switches = rows[rows["op"] == Op.SET_ATOMIC]
    return len(switches) > 0 and int(switches["dtype"][-1]) != 0
