"""The bytes an instruction touches, as strided runs: the only place that knows them.

Bounds, ordering, moved bytes and bandwidth are all derived from `footprint`. It is exact: the union of the runs is the
set of bytes that the semantics in `isa` reads resp. writes. Runs may overlap each other.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (DataCopy, LoadData 2D and 3D, LoadDataWithTranspose, InitConstValue, Mmad,
Fixpipe, vector instructions) and the fractal formats page (orders of L0A, L0B and L0C).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim._switch import switch
from npu_sim.isa.codes import Data
from npu_sim.isa.footprint_boxes import ATOMIC_ADD, NO_FOOTPRINT, REACH_BYTES, READ, TOO_MANY_RUNS, WRITE, melt
from npu_sim.isa.instruction import Instruction, touches_nothing
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import by_opcode, handlers

__all__ = [
    "ATOMIC_ADD",
    "MAY_LEAVE_OPEN",
    "NO_FOOTPRINT",
    "REACH_BYTES",
    "READ",
    "RUN_CAPACITY",
    "RUN_FIELDS",
    "TOO_MANY_RUNS",
    "WRITE",
    "empty_runs",
    "expand",
    "footprint",
    "footprint_at",
    "left_open",
    "left_open_at",
    "reach",
]

RUN_FIELDS = 6
"""Columns of a run: space, access, first byte, bytes of one repetition, repetitions, bytes between repetitions."""
RUN_CAPACITY = 1 << 16
"""Rows of a buffer that suffice for every instruction whose operands fit the buffers of a core."""


def empty_runs(capacity: int = RUN_CAPACITY) -> np.ndarray:
    """Return an output buffer for `footprint`: int64[capacity, 6]."""
    return np.zeros((capacity, RUN_FIELDS), np.int64)


def expand(out: np.ndarray, count: int) -> dict[tuple[int, int], set[int]]:
    """Return the bytes behind ``out[:count]`` as {(space, access): set of byte addresses}, for tests and reports."""
    touched: dict[tuple[int, int], set[int]] = {}
    for space, access, start, length, repeats, stride in out[:count].tolist():
        where = touched.setdefault((space, access), set())
        for i in range(repeats):
            where.update(range(start + i * stride, start + i * stride + length))
    return touched


def _typed(instruction: Instruction) -> int:
    """Return which type fields must name a type: bit 0 ``dtype``, bit 1 ``dst_dtype``."""
    optional = any(Data.NONE in types for types in instruction.dtypes.values())
    return ("dtype" in instruction.fields and not optional) + 2 * ("dst_dtype" in instruction.fields)


_TYPED = by_opcode(_typed, dtype=np.uint8)
_boxes = switch(("row", "out"), handlers("footprint"), touches_nothing)
_boxes_left_open = switch(("row", "out"), handlers("leaves_open"), touches_nothing)
MAY_LEAVE_OPEN = by_opcode(lambda instruction: instruction.leaves_open is not None, dtype=np.bool_)
"""Whether `left_open` can be anything, by opcode."""


@jit
def footprint(row: Any, out: np.ndarray) -> Int:
    """Write the runs that an instruction touches, reads before writes.

    Parameters
    ----------
    row : INSTR record
        After `isa.issue` (atomic additions show as `ATOMIC_ADD`).
    out : int64[capacity, 6]
        Runs: space, access (0 read, 1 write, 2 atomic add), first byte, bytes of one repetition, repetitions, bytes
        from one repetition to the next. `RUN_CAPACITY` rows are enough.

    Returns
    -------
    int
        Number of runs (0 for instructions that touch no memory or are empty), or a negative number: `TOO_MANY_RUNS`
        when ``out`` is too short (it also holds working data), `NO_FOOTPRINT` for a row that no hardware has: its type
        is none, its operands are wider than `OPERAND_BITS`, or its bytes lie in no space or more than `REACH_BYTES`
        from the start of theirs. Then the contents of ``out`` are undefined, but nothing was written behind it. Any 128
        bytes are a row here: no sum wraps around, every run ends within `REACH_BYTES`, and the work is bounded
        (`footprint_window`).
    """
    typed = _TYPED[row["op"]]
    if (typed & 1 != 0 and item_bytes(row["dtype"]) == 0) or (typed & 2 != 0 and item_bytes(row["dst_dtype"]) == 0):
        return NO_FOOTPRINT
    boxes = _boxes(row["op"], row, out)
    if boxes < 0:
        return boxes
    return melt(out, boxes)


@jit
def left_open(row: Any, out: np.ndarray) -> Int:
    """Write the runs of UB that an instruction with a `footprint` writes and whose contents nothing says; as there."""
    boxes = _boxes_left_open(row["op"], row, out)
    return melt(out, boxes) if boxes > 0 else boxes


@jit
def left_open_at(rows: np.ndarray, index: Int, out: np.ndarray) -> Int:
    """Call `left_open` for ``rows[index]``, as `footprint_at` does."""
    return left_open(rows[index], out)


@jit
def footprint_at(rows: np.ndarray, index: Int, out: np.ndarray) -> Int:
    """Call `footprint` for ``rows[index]``: Numba takes the row array from Python, but not one of its records."""
    return footprint(rows[index], out)


@jit
def reach(rows: np.ndarray, runs: np.ndarray, ends: np.ndarray) -> None:
    """Write how far each row reaches in each space: ``ends[i, space]`` = (lowest byte, byte behind the highest).

    Parameters
    ----------
    rows : INSTR[n]
        Any bytes.
    runs : int64[capacity, 6]
        Buffer of `footprint`.
    ends : int64[n, SPACES, 2]
        Set to equal numbers for spaces a row does not touch; space 0 to what `footprint` returned if that is negative,
        and all others to 0 then.
    """
    for i in range(len(rows)):
        ends[i] = 0
        count = footprint(rows[i], runs)
        if count < 0:
            ends[i, 0] = count
        for r in range(count):
            space, start = runs[r, 0], runs[r, 2]
            end = start + (runs[r, 4] - 1) * runs[r, 5] + runs[r, 3]
            if ends[i, space, 0] == ends[i, space, 1]:
                ends[i, space, 0] = start
                ends[i, space, 1] = end
            else:
                ends[i, space, 0] = min(ends[i, space, 0], start)
                ends[i, space, 1] = max(ends[i, space, 1], end)
