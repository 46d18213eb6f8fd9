"""Faults of order, lifetime and value in the rows of a kernel: in one row, or in every one that its line makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Space
from npu_sim.isa.op import OPS, Op
from npu_sim.isa.row import join_rows

MOVED_ROWS = 3
_MOVES = (Op.DATA_COPY, Op.DATA_COPY_PAD, Op.ND2NZ, Op.LOAD_2D, Op.LOAD_3D)
_COUNTS = ("block_len", "n_value", "repeat", "count", "m", "n", "k")
_ROUTED = np.array([bool(instruction.routes) for instruction in OPS])
_WORK = np.array([int(instruction.op) for instruction in OPS])[_ROUTED]
_FIELDS = {int(instruction.op): instruction.fields for instruction in OPS}

Places = npt.NDArray[np.bool_]

_OF: dict[str, Callable[[np.ndarray], Places]] = {
    "wait": lambda rows: rows["op"] == Op.WAIT_FLAG,
    "set": lambda rows: rows["op"] == Op.SET_FLAG,
    "barrier": lambda rows: rows["op"] == Op.PIPE_BARRIER,
    "load": lambda rows: np.isin(rows["op"], _MOVES) & (rows["src0_space"] == Space.GM),
    "copy on the chip": lambda rows: (
        np.isin(rows["op"], _MOVES) & (rows["src0_space"] != Space.GM) & (rows["dst_space"] != Space.GM)
    ),
    "store": lambda rows: np.isin(rows["op"], _WORK) & (rows["dst_space"] == Space.GM),
    "computation": lambda rows: (
        np.isin(rows["op"], _WORK) & ~np.isin(rows["op"], _MOVES) & (rows["dst_space"] != Space.GM)
    ),
    "atomic off": lambda rows: (rows["op"] == Op.SET_ATOMIC) & (rows["dtype"] == 0),
    "allocation": lambda rows: rows["op"] == Op.ALLOC_TENSOR,
    "release": lambda rows: rows["op"] == Op.FREE_TENSOR,
}
_DONE: dict[str, tuple[str, ...]] = {
    "dropped": tuple(_OF),
    "late": ("wait", "set", "barrier", "load", "computation", "release", "atomic off"),
    "early": ("wait", "set", "barrier", "store", "computation", "release"),
    "twice": ("wait", "set", "allocation", "release"),
    "with another event": ("wait", "set"),
    "of another pipe": ("wait", "set", "barrier"),
    "too short": ("load", "copy on the chip", "computation", "store"),
    "too long": ("load", "copy on the chip", "computation", "store"),
}
EVERYWHERE = " in every tile"
"""What a class of faults in every row of one line and core kind ends with."""
CLASSES = tuple(f"{of} {done}{where}" for where in ("", EVERYWHERE) for done, parts in _DONE.items() for of in parts)
"""``<what> <what is done to it>``, in one row or in every tile and core."""
OF_ORDER = ("wait", "set", "barrier")
"""What changes no value but by order."""


@dataclass(frozen=True, slots=True)
class ProgramFault:
    """Programs with a fault: its class, its core, the row where it is (in which numbering it does not matter) and its
    line (`Launch.sites` has the words of the number)."""

    kind: str
    core: int
    row: int
    site: int
    programs: list[np.ndarray]


def program_fault(kind: str, programs: list[np.ndarray], rng: np.random.Generator) -> ProgramFault | None:
    """Return one fault of a class, None if the drawn core has no row that can have it."""
    of, done = next((of, done) for done, parts in _DONE.items() for of in parts if kind.startswith(f"{of} {done}"))
    core = int(rng.integers(len(programs)))
    places = np.flatnonzero(_OF[of](programs[core]))
    if not len(places):
        return None
    at = int(rng.choice(places))
    row = programs[core][at]
    made = list(programs)
    if not kind.endswith(EVERYWHERE):
        changed = _done(done, programs[core], np.array([at]))
        if changed is None:
            return None
        made[core] = changed
    else:
        for number, rows in enumerate(programs):
            same = np.flatnonzero(_OF[of](rows) & (rows["site"] == row["site"]) & (rows["op"] == row["op"]))
            changed = _done(done, rows, same)
            if changed is None:
                return None
            made[number] = changed
    return ProgramFault(kind, core, at, int(row["site"]), made)


def _done(done: str, rows: np.ndarray, places: npt.NDArray[np.int64]) -> np.ndarray | None:
    """Return rows with a fault in several places, None if one cannot have it."""
    if done in ("dropped", "late", "early", "twice"):
        order = list(range(len(rows)))
        for at in reversed(places.tolist()):
            if done == "twice":
                order.insert(at, at)
                continue
            order.remove(at)
            if done != "dropped":
                to = min(at + MOVED_ROWS, len(order)) if done == "late" else max(at - MOVED_ROWS, 0)
                order.insert(to, at)
        return join_rows([rows[at : at + 1] for at in order])
    changed = rows.copy()
    for at in places.tolist():
        if done == "with another event":
            changed["event"][at] ^= 1
        elif done == "of another pipe":
            changed["pipe"][at] = (int(rows["pipe"][at]) + 1) % 6
        else:
            fields = [name for name in _COUNTS if name in _FIELDS[int(rows["op"][at])] and rows[name][at] > 1]
            if not fields:
                return None
            if done == "too short":
                changed[fields[0]][at] = rows[fields[0]][at] // 2
            else:
                changed[fields[0]][at] += (rows[fields[0]][at] + 3) // 4
    return changed
