"""Which row a finding is likely due to where no tile shows one that is right: by the bytes that rows touch.

What is wrong in every tile alike has no twin (`odd_rows`). Bytes that nothing wrote begin where the row that should
have written them ends; a store that is missing leaves a result that nothing reads; a flag that is missing belongs
between the two instructions that share bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import READ, empty_runs, footprint_at
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import Op, by_opcode
from npu_sim.program.disassemble import name_of
from npu_sim.program.violation import Kind, Violation
from ops.studies.odd_rows import HOLE_CORES, RowsOf

_REACH = 2048
"""Rows before and behind a finding that are looked at, and rows of a core that leave a result unread."""
_STORES = 1 << 14
"""Stores that are looked at for one hole."""
_TWICE = 2
"""Rows between two that are one too many."""
_BEFORE = 4
"""Rows between a flag and the instruction that should stand in front of it."""
_SHARING = 4
"""Rows nearest to a flag of which one shares bytes with what the flag is for."""
_CELL = 32
"""Bytes that are read or not as one: what vector instructions and data movers count in."""
HOLES = (Kind.OUTPUT_HOLE, Kind.READ_UNINITIALISED, Kind.READ_STALE)
"""Findings of bytes that a row should have written."""
_FLAGS = (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE)
_DOES_WORK = by_opcode(lambda instruction: bool(instruction.routes), dtype=np.bool_)

Runs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LikelyRow:
    """A row of a core and what it has to do with a finding."""

    core: int
    row: int
    words: str


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
        return _short(violation, rows)
    if kind in _FLAGS:
        return _beside_flag(violation, rows)
    if kind in (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD):
        return _behind_its_set(violation, rows)
    if kind is Kind.READ_UNALLOCATED:
        return _early_release(violation, rows)
    if kind is Kind.BUFFER_LEAK:
        return _last_use(violation, rows)
    if kind is Kind.STATE_LEFT:
        return _last_store_of(violation, rows)
    return None


def unread_row(rows_of: RowsOf, core_count: int) -> LikelyRow | None:
    """Return the first row whose result on the chip nothing reads: what a store that is missing had to store."""
    for core in range(min(core_count, HOLE_CORES)):
        rows = rows_of(core)[:_REACH]
        read: dict[int, npt.NDArray[np.bool_]] = {}
        first = -1
        for at in reversed(_working(rows).tolist()):
            touched = _touched(rows, at)
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


def _working(rows: np.ndarray) -> npt.NDArray[np.int64]:
    """Return the rows that touch bytes."""
    return np.flatnonzero(_DOES_WORK[rows["op"]])


def _touched(rows: np.ndarray, at: int) -> list[list[int]]:
    """Return the runs of a row (`npu_sim.isa.footprint`), none if it has no footprint."""
    return _runs(rows, at).tolist()


def _runs(rows: np.ndarray, at: int) -> Runs:
    count = int(footprint_at(rows, at, _RUNS))
    found: Runs = _RUNS[: max(count, 0)]
    return found


_RUNS = empty_runs()


def _ends(runs: Runs, space: int, at: int) -> int:
    """Return the highest end of bytes in a space that runs write, at or below an address; -1: none."""
    own = runs[(runs[:, 0] == space) & (runs[:, 1] != READ)]
    first = own[:, 2] + own[:, 3]
    whole = np.clip((at - first) // np.maximum(own[:, 5], 1), 0, own[:, 4] - 1)
    ends = (first + whole * own[:, 5])[first <= at]
    return int(ends.max()) if len(ends) else -1


def _short(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that wrote the bytes right below those that a row reads and nothing wrote."""
    at, space = violation.row, int(violation.space)
    allocated = (rows["op"][:at] == Op.ALLOC_TENSOR) & (rows["dst_space"][:at] == space)
    if (allocated & (rows["dst"][:at] == violation.start)).any():
        return None  # what lies below is another buffer
    first = max(at - _REACH, violation.other_row, 0)
    for number in (first + _working(rows[first:at])[::-1]).tolist():
        if _ends(_runs(rows, number), space, violation.start) == violation.start:
            return _writes_up_to(violation, rows, violation.core, number)
    return None


def _writes_up_to(violation: Violation, rows: np.ndarray, core: int, number: int) -> LikelyRow:
    at = f"{violation.space.name}[{violation.start}]"
    return LikelyRow(core, number, f"{name_of(rows[number])}, core {core} row {number}, writes up to {at} only")


def _last_store(violation: Violation, rows_of: RowsOf, core_count: int, tensors: Collection[int]) -> LikelyRow | None:
    """Return the store that ends nearest below a hole of a tensor."""
    best, end, looked = None, -1, 0
    for core in range(min(core_count, HOLE_CORES)):
        rows = rows_of(core)
        stores = _working(rows)
        stores = stores[(rows["dst_space"][stores] == Space.GM) & np.isin(rows["tensor"][stores], list(tensors))]
        looked += len(stores)
        if looked > _STORES:
            break
        for number in stores.tolist():
            own = _ends(_runs(rows, number), Space.GM, violation.start)
            if own > end:
                best, end = (core, number), own
    return None if best is None else _writes_up_to(violation, rows_of(best[0]), *best)


def _overlapping(rows: np.ndarray, numbers: Iterable[int], wanted: Runs) -> int:
    """Return the first of some rows that shares bytes with runs of which one of the two writes, -1: none."""
    for number in numbers:
        for space, access, start, length, repeats, step in _touched(rows, number):
            end = start + length + (repeats - 1) * step
            ends = wanted[:, 2] + wanted[:, 3] + (wanted[:, 4] - 1) * wanted[:, 5]
            shared = (wanted[:, 0] == space) & (wanted[:, 2] < end) & (start < ends)
            if (shared & ((wanted[:, 1] != READ) | (access != READ))).any():
                return number
    return -1


def _beside_flag(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that the other end of a flag belongs to, or the other end where it is on another pipe.

    Behind a set that nothing waits for, it is the first of the waiting pipe that shares bytes with what was set for, or
    the end; before a wait that nothing sets, the last of the setting pipe, or the begin.
    """
    row, core = violation.row, violation.core
    if violation.kind is Kind.SYNC_DUPLICATE and violation.other_row >= 0:
        row = violation.other_row
    flag, is_set = rows[row], rows["op"][row] == Op.SET_FLAG
    near = rows[max(row - _TWICE, 0) : row + _TWICE + 1]
    if sum(all(one[name] == flag[name] for name in ("op", "pipe", "peer", "event")) for one in near) > 1:
        return None  # it stands there twice
    pipe, peer, event = int(flag["pipe"]), int(flag["peer"]), int(flag["event"])
    for other, row_of in _single_flags(rows, of_sets=not is_set):
        if (int(other["pipe"]) == peer) + (int(other["peer"]) == pipe) + (int(other["event"]) == event) != 2:
            continue
        if int(other["peer"]) != pipe or int(other["event"]) != event:
            return None  # this one is on another pipe, or one of the two has another event
        return LikelyRow(core, row_of, f"core {core} row {row_of} does it on {pipe_name(int(other['pipe']))}")
    working = _working(rows)
    working = working[(working > row - _REACH) & (working < row + _REACH)]
    before, behind = working[working < row][::-1], working[working > row]
    own, others = (before, behind) if is_set else (behind, before)
    own, others = own[rows["pipe"][own] == pipe], others[rows["pipe"][others] == peer]
    found = -1
    for number in own[:_SHARING].tolist():
        found = _overlapping(rows, others.tolist(), _runs(rows, number).copy())
        if found >= 0:
            break
    if found < 0 and len(others) and (not is_set or violation.kind is Kind.SYNC_DUPLICATE):
        found = int(others[0])
    ends = (pipe, peer) if is_set else (peer, pipe)
    flag_of = f"<{pipe_name(ends[0])}_{pipe_name(ends[1])}>({event})"
    missing = f"{pipe_name(peer)} {'WaitFlag' if is_set else 'SetFlag'}{flag_of} is missing"
    if found < 0:
        end = len(rows) - 1 if is_set else 0
        return LikelyRow(core, end, f"{missing} at the {'end' if is_set else 'begin'} of core {core}")
    return LikelyRow(core, found, f"{missing} {'in front of' if is_set else 'behind'} core {core} row {found}")


def _single_flags(rows: np.ndarray, *, of_sets: bool) -> Iterator[tuple[np.void, int]]:
    """Yield sets of flags, or waits, of which the program has more than the other, with the row of the first."""
    wanted, others = (Op.SET_FLAG, Op.WAIT_FLAG) if of_sets else (Op.WAIT_FLAG, Op.SET_FLAG)
    flags = [_flag_numbers(rows, op) for op in (wanted, others)]
    numbers, first, counts = np.unique(flags[0], return_index=True, return_counts=True)
    there, against = np.unique(flags[1], return_counts=True)
    fewer = dict(zip(there.tolist(), against.tolist(), strict=True))
    places = np.flatnonzero(rows["op"] == wanted)[first]
    for number, place, count in zip(numbers.tolist(), places.tolist(), counts.tolist(), strict=True):
        if count > fewer.get(number, 0):
            yield rows[place], place


def _flag_numbers(rows: np.ndarray, op: Op) -> npt.NDArray[np.int64]:
    """Return the flags that rows set or wait for: source, target and event as one number."""
    part = rows[rows["op"] == op]
    source, target = ("pipe", "peer") if op == Op.SET_FLAG else ("peer", "pipe")
    found: npt.NDArray[np.int64] = (
        part[source].astype(np.int64) << 32 | part[target].astype(np.int64) << 16 | part["event"].astype(np.int64)
    )
    return found


def _behind_its_set(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the earlier of two rows that lack order if the flag for it is set in front of it, and not behind."""
    earlier, later, core = violation.other_row, violation.row, violation.core
    if earlier < 0 or violation.other_core >= 0:
        return None
    sets = (rows["op"] == Op.SET_FLAG) & (rows["pipe"] == rows["pipe"][earlier])
    places = np.flatnonzero(sets & (rows["peer"] == rows["pipe"][later]))
    places = places[(places >= earlier - _BEFORE) & (places < later)]
    if not len(places) or places[-1] > earlier:
        return None
    words = f"SetFlag, core {core} row {places[-1]}, stands in front of row {earlier} {name_of(rows[earlier])}"
    return LikelyRow(core, earlier, words)


def _early_release(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that gave a buffer back which is read behind it, and not written."""
    released = violation.other_row
    if released < 0 or violation.row - released > _REACH or rows["op"][released] != Op.FREE_TENSOR:
        return None
    bytes_of = np.array([[violation.space, READ, violation.start, violation.length, 1, 0]], np.int64)
    between = released + 1 + _working(rows[released + 1 : violation.row])
    if _overlapping(rows, between.tolist(), bytes_of) >= 0:
        return None
    core = violation.core
    return LikelyRow(core, released, f"FreeTensor, core {core} row {released}, stands in front of the last use")


def _last_use(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the last row that touches a buffer which nothing gives back."""
    row, value = violation.row, rows["value"][violation.row]
    again = np.flatnonzero((rows["op"][row + 1 :] == Op.ALLOC_TENSOR) & (rows["value"][row + 1 :] == value))
    end = row + 1 + int(again[0]) if len(again) else len(rows)
    bytes_of = np.array([[violation.space, 1, violation.start, violation.length, 1, 0]], np.int64)
    behind = (row + 1 + _working(rows[row + 1 : min(end, row + _REACH)])[::-1]).tolist()
    found = _overlapping(rows, behind, bytes_of)
    if found < 0:
        return None
    return LikelyRow(
        violation.core, found, f"FreeTensor is missing behind core {violation.core} row {found}, the last use"
    )


def _last_store_of(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the last row that a state which is left on can be for."""
    behind = violation.row + 1 + _working(rows[violation.row + 1 :])
    stores = behind[rows["dst_space"][behind] == Space.GM]
    if not len(stores):
        return None
    at = int(stores[-1])
    return LikelyRow(violation.core, at, f"core {violation.core} row {at} is the last one that it is for")
