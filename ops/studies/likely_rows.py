"""Which row a finding is likely due to where no tile shows one that is right: by the bytes that rows touch.

What is wrong in every tile alike has no twin (`odd_rows`). Bytes that nothing wrote begin where the row that should
have written them ends; a store that is missing leaves a result that nothing reads. Flags and barriers: `likely_order`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import READ, WRITE
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op
from npu_sim.program.disassemble import name_of
from npu_sim.program.violation import Kind, Violation
from ops.studies.likely_extent import reads_too_far
from ops.studies.likely_order import (
    RELEASE_ROWS,
    behind_its_reader,
    beside_flag,
    handed_over,
    idle_barrier,
    idle_wait,
    unfilled_flag,
    unordered,
    without_barrier,
    without_work,
)  # fmt: skip
from ops.studies.odd_rows import HOLE_CORES, RowsOf
from ops.studies.row_bytes import REACH, LikelyRow, end_of, overlapping, runs_of, touched_by, working_rows

_STORES = 1 << 14
"""Stores that are looked at for one hole."""
_CELL = 32
"""Bytes that are read or not as one: what vector instructions and data movers count in."""
HOLES = (Kind.OUTPUT_HOLE, Kind.READ_UNINITIALISED, Kind.READ_STALE, Kind.READ_UNUSED)
"""Findings of bytes that a row should have written."""
_FLAGS = (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE)


def likely_row(
    violation: Violation, rows_of: RowsOf, core_count: int, *, tensors: Collection[int] = ()
) -> LikelyRow | None:
    """Return the row that a finding is likely due to, None if its bytes show none.

    Parameters
    ----------
    violation : Violation
        What is wrong.
    rows_of : callable
        Rows of a core of the launch, before `issue`.
    core_count : int
        Cores of the launch.
    tensors : collection of int
        Of an OUTPUT_HOLE: the tensors of the launch that have it.
    """
    kind = violation.kind
    if kind is Kind.OUTPUT_HOLE:
        return _last_store(violation, rows_of, core_count, tensors)
    if violation.row < 0 or violation.space is Space.GM:
        return None
    rows = rows_of(violation.core)
    if kind in HOLES:
        return (
            behind_its_reader(violation, rows)
            or without_work(violation, rows)
            or idle_barrier(violation, rows)
            or _short(violation, rows)
            or _unfilled(violation, rows)
            or _beside_operand(violation, rows)
            or without_work(violation, rows, is_near=False)
            or unfilled_flag(violation, rows)
        )
    if kind in _FLAGS:
        return beside_flag(violation, rows)
    if kind in (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD):
        return unordered(violation, rows)
    if kind in (Kind.BARRIER_READ, Kind.BARRIER_WRITE):
        return without_barrier(violation, rows)
    if kind is Kind.READ_UNALLOCATED:
        return _early_release(violation, rows)
    if kind is Kind.BUFFER_LEAK:
        return _last_use(violation, rows)
    if kind is Kind.BUFFER_TAKEN:
        return _taken_over(violation, rows)
    if kind is Kind.STATE_LEFT:
        return _last_store_of(violation, rows)
    return None


def unread_row(rows_of: RowsOf, core_count: int) -> LikelyRow | None:
    """Return the first row whose result on the chip nothing reads: what a store that is missing had to store."""
    for core in range(min(core_count, HOLE_CORES)):
        rows = rows_of(core)[:REACH]
        read: dict[int, npt.NDArray[np.bool_]] = {}
        first = -1
        for at in reversed(working_rows(rows).tolist()):
            touched = touched_by(rows, at)
            written = [run for run in touched if run[1] != READ and run[0] != Space.GM]
            is_store = any(run[1] != READ and run[0] == Space.GM for run in touched)
            # what only fills can be overwritten before anything reads it
            is_fill = all(run[1] != READ for run in touched)
            is_used = is_store or is_fill or not written
            is_used = is_used or any(part.any() for run in written for part in _cells(read, run))
            for run in written:
                for part in _cells(read, run):
                    part[:] = False
            for run in touched:
                if run[1] == READ and run[0] != Space.GM:
                    for part in _cells(read, run):
                        part[:] = True
            if not is_used:
                first = at
        if first >= 0:
            words = f"nothing reads what {name_of(rows[first])}, core {core} row {first}, writes"
            idle = idle_wait(rows, core, first)
            if idle is not None:
                return LikelyRow(core, idle.row, f"{words}: {idle.words}")
            return LikelyRow(core, first, words)
    return None


def _cells(read: dict[int, npt.NDArray[np.bool_]], run: list[int]) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the cells of the repetitions of a run."""
    space, _, start, length, repeats, step = run
    end = (start + length + (repeats - 1) * step) // _CELL + 1
    held = read.get(space, np.zeros(0, np.bool_))
    if len(held) < end:
        held = read[space] = np.concatenate([held, np.zeros(2 * end - len(held), np.bool_)])
    for at in range(start, start + repeats * step, step) if repeats > 1 else (start,):
        yield held[at // _CELL : (at + length - 1) // _CELL + 1]


def _short(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that wrote the bytes right below those that a row reads and nothing wrote, or that row itself."""
    at, space = violation.row, int(violation.space)
    allocated = (rows["op"][:at] == Op.ALLOC_TENSOR) & (rows["dst_space"][:at] == space)
    if (allocated & (rows["dst"][:at] == violation.start)).any():
        return None  # what lies below is another buffer
    first = max(at - REACH, violation.other_row, 0)
    for number in (first + working_rows(rows[first:at])[::-1]).tolist():
        if end_of(runs_of(rows, number), space, violation.start) == violation.start:
            if reads_too_far(rows, number, at, space, violation.start):
                return _reads_beyond(violation, rows, number)
            return _writes_up_to(violation, rows, violation.core, number)
    return None


def _unfilled(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row beside which the one is missing that should fill a named buffer, in which nothing is written.

    The pipe that sets a flag for the reader behind AllocTensor should have: buffers are filled in the order in which
    they were allocated, as far as others are between AllocTensor and the flag.
    """
    at, core = violation.row, violation.core
    first = max(at - REACH, 0)
    allocation = _allocation(rows, at, int(violation.space), violation.start, first)
    if allocation < 0:
        return None
    start = int(rows["dst"][allocation])
    bytes_of = np.array([[violation.space, READ, start, rows["count"][allocation], 1, 0]], np.int64)
    between = allocation + 1 + working_rows(rows[allocation + 1 : at])
    numbers = np.arange(allocation + 1, at)
    sets = numbers[(rows["op"][numbers] == Op.SET_FLAG) & (rows["peer"][numbers] == rows["pipe"][at])]
    if not len(sets) or overlapping(rows, between.tolist(), bytes_of) >= 0:
        return None
    flag = int(sets[0])
    pipe = rows["pipe"][flag]
    behind = rows[flag:at]
    is_flag = (behind["op"] == Op.SET_FLAG) & (behind["pipe"] == pipe) & (behind["peer"] == rows["pipe"][at])
    flags = len(is_flag) if is_flag.all() else int(np.argmin(is_flag))
    if allocation not in first + np.flatnonzero(rows["op"][first:flag] == Op.ALLOC_TENSOR)[-flags:]:
        return None  # the flags are for buffers that were allocated behind it
    where, number = "in front of", flag
    for filling in between[(between < flag) & (rows["pipe"][between] == pipe)].tolist():
        written = [run for run in touched_by(rows, filling) if run[1] != READ]
        if not written:
            continue
        if _allocation(rows, filling, written[0][0], written[0][2], first) < allocation:
            where, number = "behind", filling
        elif where == "in front of":
            number = filling
            break
    words = f"{pipe_name(int(pipe))} fills nothing of it between AllocTensor, row {allocation}, and SetFlag, row {flag}"
    return LikelyRow(core, number, f"{words}: what does is missing {where} core {core} row {number}")


def _beside_operand(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that fills another operand of a reader, beside which the one is missing that fills this one.

    Between its own wait and its flag for the reader, a pipe fills operands in their order.
    """
    at, core, space, start = violation.row, violation.core, violation.space, violation.start
    operands = [np.array([run], np.int64) for run in touched_by(rows, at) if run[1] == READ]
    own = [order for order, (run,) in enumerate(operands) if run[0] == space and run[2] <= start < _end(run)]
    if not own:
        return None
    for wait, flag, _ in handed_over(rows, at):
        first = max(wait, 0)
        pipe = rows["pipe"][flag]
        filling = first + working_rows(rows[first:flag])
        place = None
        for number in filling[rows["pipe"][filling] == pipe].tolist():
            others = [order for order, run in enumerate(operands) if overlapping(rows, [number], run) >= 0]
            if own[0] in others:
                return None
            if others and others[0] < own[0]:
                place = "behind", number
            elif others and place is None:
                place = "in front of", number
        if place is not None:
            words = f"{pipe_name(int(pipe))} fills nothing of it up to its SetFlag, row {flag}"
            return LikelyRow(core, place[1], f"{words}: what does is missing {place[0]} core {core} row {place[1]}")
    return None


def _end(run: npt.NDArray[np.int64]) -> int:
    return int(run[2] + (run[4] - 1) * run[5] + run[3])


def _allocation(rows: np.ndarray, before: int, space: int, byte: int, first: int) -> int:
    """Return the last AllocTensor before a row of the buffer that a byte is in, -1: none from row ``first`` on."""
    near = rows[first:before]
    is_it = (near["op"] == Op.ALLOC_TENSOR) & (near["dst_space"] == space)
    is_it &= (near["dst"] <= byte) & (byte < near["dst"] + near["count"])
    found = np.flatnonzero(is_it)
    return first + int(found[-1]) if len(found) else -1


def _writes_up_to(violation: Violation, rows: np.ndarray, core: int, number: int) -> LikelyRow:
    at = f"{violation.space.name}[{violation.start}]"
    return LikelyRow(core, number, f"{name_of(rows[number])}, core {core} row {number}, writes up to {at} only")


def _reads_beyond(violation: Violation, rows: np.ndarray, writer: int) -> LikelyRow:
    core, at = violation.core, violation.row
    written = f"{violation.space.name}[{violation.start}], where {name_of(rows[writer])}, row {writer}, ends"
    return LikelyRow(core, at, f"{name_of(rows[at])}, core {core} row {at}, reads beyond {written}")


def _last_store(violation: Violation, rows_of: RowsOf, core_count: int, tensors: Collection[int]) -> LikelyRow | None:
    """Return the store that ends nearest below a hole of a tensor."""
    best, end, looked = None, -1, 0
    for core in range(min(core_count, HOLE_CORES)):
        rows = rows_of(core)
        stores = working_rows(rows)
        stores = stores[(rows["dst_space"][stores] == Space.GM) & np.isin(rows["tensor"][stores], list(tensors))]
        looked += len(stores)
        if looked > _STORES:
            break
        for number in stores.tolist():
            own = end_of(runs_of(rows, number), Space.GM, violation.start)
            if own > end:
                best, end = (core, number), own
    return None if best is None else _writes_up_to(violation, rows_of(best[0]), *best)


def _early_release(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that gave a buffer back which is read behind it, and not written."""
    released = violation.other_row
    if released < 0 or violation.row - released > REACH or rows["op"][released] != Op.FREE_TENSOR:
        return None
    bytes_of = np.array([[violation.space, READ, violation.start, violation.length, 1, 0]], np.int64)
    between = released + 1 + working_rows(rows[released + 1 : violation.row])
    if overlapping(rows, between.tolist(), bytes_of) >= 0:
        return None
    core, row = violation.core, violation.row
    front = rows[released - 1 : row]
    if ((front["op"] == Op.SET_FLAG) & (front["pipe"] == rows["pipe"][row])).any():
        words = f"{name_of(rows[row])}, core {core} row {row}, stands behind the flag and FreeTensor for its buffer"
        return LikelyRow(core, row, words)
    return LikelyRow(core, released, f"FreeTensor, core {core} row {released}, stands in front of the last use")


def _last_use(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the last row that touches a buffer which nothing gives back."""
    row, value = violation.row, rows["value"][violation.row]
    again = np.flatnonzero((rows["op"][row + 1 :] == Op.ALLOC_TENSOR) & (rows["value"][row + 1 :] == value))
    return _without_release(violation, rows, row, row + 1 + int(again[0]) if len(again) else len(rows))


def _taken_over(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the last row that touches a buffer over which another is allocated."""
    alive = violation.other_row
    return None if alive < 0 else _without_release(violation, rows, alive, violation.row)


def _without_release(violation: Violation, rows: np.ndarray, allocation: int, end: int) -> LikelyRow | None:
    """Return the last row in front of ``end`` that touches a buffer which row ``allocation`` takes."""
    core, buffer = violation.core, rows[allocation]
    bytes_of = np.array([[buffer["dst_space"], WRITE, buffer["dst"], buffer["count"], 1, 0]], np.int64)
    behind = (allocation + 1 + working_rows(rows[allocation + 1 : min(end, allocation + REACH)])[::-1]).tolist()
    found = overlapping(rows, behind, bytes_of)
    if found < 0:
        return None
    words = f"FreeTensor is missing behind core {core} row"
    filling = overlapping(rows, reversed(behind), bytes_of)
    near = found + 1 + np.arange(len(rows[found + 1 : found + 1 + RELEASE_ROWS]))
    flags = (rows["op"][near] == Op.SET_FLAG) & (rows["pipe"][near] == rows["pipe"][found])
    for at in near[flags & (rows["peer"][near] == rows["pipe"][filling])].tolist():
        # the flags of buffers that are given back have FreeTensor behind them
        if (rows["op"][at + 1 : at + 2] != Op.FREE_TENSOR).all():
            return LikelyRow(core, at, f"{words} {at}, SetFlag behind the last use, row {found}")
    return LikelyRow(core, found, f"{words} {found}, the last use")


def _last_store_of(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the last row that a state which is left on can be for."""
    behind = violation.row + 1 + working_rows(rows[violation.row + 1 :])
    stores = behind[rows["dst_space"][behind] == Space.GM]
    if not len(stores):
        return None
    at = int(stores[-1])
    return LikelyRow(violation.core, at, f"core {violation.core} row {at} is the last one that it is for")
