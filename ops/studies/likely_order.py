"""Which flag or barrier a finding is likely due to where no tile shows one that is right.

Where a set and a wait each lack their other end, one of them has another event or is on another pipe: the one whose
line is wrong most often. Where none lacks it, a flag or a barrier stands on the wrong side of an instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from npu_sim.isa.footprint import READ, WRITE
from npu_sim.isa.names import pipe_name
from npu_sim.isa.op import OPS, Op, Pipe
from npu_sim.program.disassemble import name_of
from npu_sim.program.violation import Kind, Violation
from ops.studies.row_bytes import REACH, LikelyRow, overlapping, runs_of, touched_by, working_rows

_TWICE = 2
"""Rows between two that are one too many."""
_BEFORE = 4
"""Rows between a flag or barrier and the instruction that should stand on its other side."""
_SHARING = 4
"""Rows nearest to a flag of which one shares bytes with what the flag is for."""
_BARRIER_ROWS = 32
"""Rows in front of a reader in which a barrier can be for it."""
_WAITS = 6
"""Waits before the last work of a pipe that may be for what a row reads."""
RELEASE_ROWS = 16
"""Rows behind the last use of a buffer in which it is given back."""
_OTHER = {Op.SET_FLAG: Op.WAIT_FLAG, Op.WAIT_FLAG: Op.SET_FLAG}
_FILLS = {(int(pipe), int(dst)) for instruction in OPS for (dst, _), pipe in instruction.routes.items()}
"""Pipes and the spaces that they can write to."""
_READS = {(int(pipe), int(src)) for instruction in OPS for (_, src), pipe in instruction.routes.items()}
"""Pipes and the spaces that they can read from."""


@dataclass(frozen=True)
class _Flags:
    """The sets and waits of a core, and which have no other end."""

    rows: np.ndarray

    @cached_property
    def places(self) -> dict[int, npt.NDArray[np.int64]]:
        """Rows of each of the two."""
        return {op: np.flatnonzero(self.rows["op"] == op) for op in _OTHER}

    @cached_property
    def counts(self) -> dict[int, dict[int, int]]:
        """How often each flag is set, and how often waited for."""
        made = {}
        for op, places in self.places.items():
            there, counts = np.unique(_flag_numbers(self.rows[places]), return_counts=True)
            made[op] = dict(zip(there.tolist(), counts.tolist(), strict=True))
        return made

    def surplus(self, at: int) -> int:
        """Return how many flags like that of a row have no other end."""
        op, number = Op(self.rows["op"][at]), int(_flag_numbers(self.rows[at : at + 1])[0])
        return max(self.counts[op][number] - self.counts[_OTHER[op]].get(number, 0), 0)

    def wrong(self, at: int) -> tuple[float, float]:
        """Return which part of the flags of a row's line have no other end, and how many that are."""
        op = Op(self.rows["op"][at])
        own, other = self.counts[op], self.counts[_OTHER[op]]
        places = self.places[op]
        here = places[self.rows["site"][places] == self.rows["site"][at]]
        numbers, counts = np.unique(_flag_numbers(self.rows[here]), return_counts=True)
        alone = sum(
            count * max(own[number] - other.get(number, 0), 0) / own[number]
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        )
        return round(alone / len(here), 3), round(alone, 3)

    def right(self, at: int) -> tuple[int, int, int]:
        """Return how much speaks for the event of a flag: flags with both ends, the way back, a low number."""
        source, target = _ends(self.rows[at])
        event = int(self.rows["event"][at])
        own, back = (one << 32 | other << 16 | event for one, other in ((source, target), (target, source)))
        counts = list(self.counts.values())
        return min(of.get(own, 0) for of in counts), sum(of.get(back, 0) for of in counts), -event

    def single(self, op: Op) -> list[int]:
        """Return the first of each kind of set or wait that has no other end."""
        places = self.places[op]
        numbers, first = np.unique(_flag_numbers(self.rows[places]), return_index=True)
        return [
            int(places[at])
            for number, at in zip(numbers.tolist(), first.tolist(), strict=True)
            if self.counts[op][number] > self.counts[_OTHER[op]].get(number, 0)
        ]

    def worse(self, one: int, other: int) -> int:
        """Return which of two flags with different events has the wrong one."""
        wrong = self.wrong(one), self.wrong(other)
        if wrong[0] != wrong[1]:
            return one if wrong[0] > wrong[1] else other
        return one if self.right(one) < self.right(other) else other


def _ends(flag: np.void) -> tuple[int, int]:
    """Return the pipes of a flag, source first."""
    ends = int(flag["pipe"]), int(flag["peer"])
    return ends if flag["op"] == Op.SET_FLAG else ends[::-1]


def _flag_numbers(flags: np.ndarray) -> npt.NDArray[np.int64]:
    """Return the flags that rows set or wait for: source, target and event as one number."""
    pipe, peer = flags["pipe"].astype(np.int64), flags["peer"].astype(np.int64)
    is_set = flags["op"] == Op.SET_FLAG
    source, target = np.where(is_set, pipe, peer), np.where(is_set, peer, pipe)
    found: npt.NDArray[np.int64] = source << 32 | target << 16 | flags["event"].astype(np.int64)
    return found


def beside_flag(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that the other end of a flag belongs to, or the other end where that is the wrong one.

    Behind a set that nothing waits for, it is the first of the waiting pipe that shares bytes with what was set for, or
    the end; before a wait that nothing sets, the last of the setting pipe, or the begin.
    """
    row, core = violation.row, violation.core
    if violation.kind is Kind.SYNC_DUPLICATE and violation.other_row >= 0:
        row = violation.other_row
    flag, op = rows[row], Op(rows["op"][row])
    is_set = op == Op.SET_FLAG
    near = rows[max(row - _TWICE, 0) : row + _TWICE + 1]
    if sum(all(one[name] == flag[name] for name in ("op", "pipe", "peer", "event")) for one in near) > 1:
        return None  # it stands there twice
    pipe, peer, event = int(flag["pipe"]), int(flag["peer"]), int(flag["event"])
    flags = _Flags(rows)
    like = [at for at in flags.single(_OTHER[op]) if _differing(flag, rows[at]) == 1]
    if like:
        other = max(like, key=flags.wrong)
        source, target = _ends(rows[other])
        if rows["event"][other] != event and (source, target) == _ends(flag):
            is_own = flags.worse(row, other) == row
        else:
            # the end that the flag names is right if the other one is on another pipe
            is_named = source == pipe if is_set else target == pipe
            own, others = flags.wrong(row), flags.wrong(other)
            is_own = own > others or (own == others and not is_named)
        if is_own:
            return None
        return LikelyRow(core, other, f"core {core} row {other} does it {_of(rows[other])}")
    working = working_rows(rows)
    working = working[(working > row - REACH) & (working < row + REACH)]
    before, behind = working[working < row][::-1], working[working > row]
    own_rows, other_rows = (before, behind) if is_set else (behind, before)
    own_rows, other_rows = own_rows[rows["pipe"][own_rows] == pipe], other_rows[rows["pipe"][other_rows] == peer]
    found = -1
    for number in own_rows[:_SHARING].tolist():
        found = overlapping(rows, other_rows.tolist(), runs_of(rows, number).copy())
        if found >= 0:
            break
    if found < 0 and is_set and violation.kind is Kind.SYNC_DUPLICATE:
        # it was set for a buffer that is free: before the first that fills what its pipe reads next
        own_later = behind[rows["pipe"][behind] == pipe]
        for number in own_later[:_SHARING].tolist():
            found = overlapping(rows, other_rows[other_rows < number].tolist(), runs_of(rows, number).copy())
            if found >= 0:
                break
    if found < 0 and len(other_rows) and (not is_set or violation.kind is Kind.SYNC_DUPLICATE):
        found = int(other_rows[0])
    ends = (pipe, peer) if is_set else (peer, pipe)
    flag_of = f"<{pipe_name(ends[0])}_{pipe_name(ends[1])}>({event})"
    missing = f"{pipe_name(peer)} {'WaitFlag' if is_set else 'SetFlag'}{flag_of} is missing"
    if found < 0:
        end = len(rows) - 1 if is_set else 0
        return LikelyRow(core, end, f"{missing} at the {'end' if is_set else 'begin'} of core {core}")
    if not is_set and (release := _bare_release(rows, found, pipe)) >= 0:
        words = f"{missing} in front of core {core} row {release}, which gives the buffer back"
        return LikelyRow(core, release, words)
    return LikelyRow(core, found, f"{missing} {'in front of' if is_set else 'behind'} core {core} row {found}")


def _differing(one: np.void, other: np.void) -> int:
    """Return in how many of source, target and event two flags differ."""
    ends = zip(_ends(one), _ends(other), strict=True)
    return sum(own != its for own, its in ends) + int(one["event"] != other["event"])


def _of(flag: np.void) -> str:
    return f"on {pipe_name(int(flag['pipe']))} with event {int(flag['event'])}"


def unordered(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the flag that two rows lack order for, or the one of the two that stands on its wrong side."""
    earlier, later, core = violation.other_row, violation.row, violation.core
    if earlier < 0 or violation.other_core >= 0:
        return None
    source, target = int(rows["pipe"][earlier]), int(rows["pipe"][later])
    flags = _Flags(rows)
    numbers = np.arange(earlier + 1, min(later, earlier + REACH))
    between = numbers[np.isin(rows["op"][numbers], list(_OTHER))]
    of_pair = [at for at in between.tolist() if _ends(rows[at]) == (source, target)]
    sets = [at for at in of_pair if rows["op"][at] == Op.SET_FLAG]
    waits = [at for at in of_pair if rows["op"][at] == Op.WAIT_FLAG]
    if sets and waits and sets[0] < waits[-1] and rows["event"][sets[0]] != rows["event"][waits[-1]]:
        return _other_event(core, flags, sets[0], waits[-1])
    elsewhere = [at for at in between.tolist() if flags.surplus(at)]
    for at in elsewhere:
        if not sets and rows["op"][at] == Op.SET_FLAG and rows["peer"][at] == target and rows["pipe"][at] != source:
            return LikelyRow(core, at, f"{name_of(rows[at])}, core {core} row {at}, is not on {pipe_name(source)}")
    for at in reversed(elsewhere):
        if not waits and rows["op"][at] == Op.WAIT_FLAG and rows["peer"][at] == source and rows["pipe"][at] != target:
            return LikelyRow(core, at, f"{name_of(rows[at])}, core {core} row {at}, is not on {pipe_name(target)}")
    likely = (
        (_behind_its_handshake(rows, core, earlier, later) if violation.kind is Kind.SYNC_WRITE_HAZARD else None)
        or _early_set(rows, core, earlier, later)
        or _late_wait(rows, core, earlier, later)
    )
    is_overwritten = violation.kind is Kind.SYNC_WRITE_HAZARD
    if likely is None and is_overwritten and not sets and (release := _bare_release(rows, earlier, target)) >= 0:
        missing = f"{pipe_name(source)} SetFlag<{pipe_name(source)}_{pipe_name(target)}> is missing"
        return LikelyRow(core, release, f"{missing} in front of core {core} row {release}, which gives the buffer back")
    return likely


def _bare_release(rows: np.ndarray, used: int, filling: int) -> int:
    """Return the next row that gives back a buffer which a row uses and has no flag for a pipe in front, -1: none.

    Only in programs in which other such rows have one: not all kernels give back with flags.
    """
    releases = np.flatnonzero(rows["op"] == Op.FREE_TENSOR)
    if not (rows["op"][releases - 1] == Op.SET_FLAG).any():
        return -1
    near = used + 1 + np.flatnonzero(rows["op"][used + 1 : used + 1 + RELEASE_ROWS] == Op.FREE_TENSOR)
    for at in near[(rows["op"][near - 1] != Op.SET_FLAG) | (rows["peer"][near - 1] != filling)].tolist():
        buffer = rows[at]
        bytes_of = np.array([[buffer["dst_space"], WRITE, buffer["dst"], buffer["count"], 1, 0]], np.int64)
        if overlapping(rows, [used], bytes_of) >= 0:
            return int(at)
    return -1


def _behind_its_handshake(rows: np.ndarray, core: int, earlier: int, later: int) -> LikelyRow | None:
    """Return the later of two rows near each other if the earlier one waited for its pipe right before."""
    front = rows[max(earlier - _BEFORE, 0) : earlier]
    is_waited = (front["op"] == Op.WAIT_FLAG) & (front["pipe"] == rows["pipe"][earlier])
    is_waited &= front["peer"] == rows["pipe"][later]
    if later - earlier > _BEFORE or not is_waited.any():
        return None
    words = f"{name_of(rows[later])}, core {core} row {later}, stands behind row {earlier}, which waited for its pipe"
    return LikelyRow(core, later, words)


def _other_event(core: int, flags: _Flags, of_set: int, of_wait: int) -> LikelyRow:
    rows = flags.rows
    words = (
        f"SetFlag, core {core} row {of_set}, has event {rows['event'][of_set]}, "
        f"WaitFlag, row {of_wait}, event {rows['event'][of_wait]}"
    )
    return LikelyRow(core, flags.worse(of_set, of_wait), words)


def _early_set(rows: np.ndarray, core: int, earlier: int, later: int) -> LikelyRow | None:
    """Return a set in front of the row that it is for, or that row where it is what moved; None if none is near."""
    source, target = int(rows["pipe"][earlier]), int(rows["pipe"][later])
    is_set = (rows["op"] == Op.SET_FLAG) & (rows["pipe"] == source) & (rows["peer"] == target)
    places = np.flatnonzero(is_set)
    front = places[(places >= earlier - _BEFORE) & (places < earlier)]
    behind = places[(places > earlier) & (places < later)]
    if not len(front) or (len(behind) and behind[0] - earlier <= earlier - front[-1]):
        return None
    at = int(front[-1])
    words = f"SetFlag, core {core} row {at}, stands in front of row {earlier} {name_of(rows[earlier])}"
    between = rows[at + 1 : earlier]
    is_own = (between["op"] == Op.ALLOC_TENSOR) | ((between["pipe"] == source) & (between["op"] != Op.SET_FLAG))
    is_waited = (between["op"] == Op.WAIT_FLAG) & (between["pipe"] == target) & (between["peer"] == source)
    return LikelyRow(core, at if is_own.any() and not is_waited.any() else earlier, words)


def _late_wait(rows: np.ndarray, core: int, earlier: int, later: int) -> LikelyRow | None:
    """Return a wait behind the rows that it is for, in the midst of their line; None if there is none."""
    source, target = int(rows["pipe"][earlier]), int(rows["pipe"][later])
    for at in range(later + 1, min(later + _BEFORE + 1, len(rows))):
        if rows["op"][at] == Op.WAIT_FLAG and rows["pipe"][at] == target and rows["peer"][at] == source:
            words = f"WaitFlag, core {core} row {at}, stands behind row {later} {name_of(rows[later])}"
            return LikelyRow(core, at, words) if _in_the_midst(rows, later, at) else None
    return None


def _in_the_midst(rows: np.ndarray, first: int, at: int) -> bool:
    """Return whether a row stands behind more than one that works on its pipe, or between two of one line."""
    pipe = rows["pipe"][at]
    working = first + working_rows(rows[first : at + _BEFORE + 1])
    working = working[rows["pipe"][working] == pipe]
    before, behind = working[working < at], working[working > at]
    return len(before) > 1 or (len(behind) > 0 and rows["site"][behind[0]] == rows["site"][first])


def without_barrier(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the barrier that two rows of a pipe lack if it stands near them, or is on another pipe."""
    earlier, later, core = violation.other_row, violation.row, violation.core
    pipe = int(rows["pipe"][later])
    first = max(earlier - _BEFORE, 0)
    near = first + np.flatnonzero(rows["op"][first : later + _BEFORE + 1] == Op.PIPE_BARRIER)
    for at in near[(near > earlier) & (near < later)].tolist():
        own = int(rows["pipe"][at])
        before = working_rows(rows[max(at - _BEFORE, 0) : at]) + max(at - _BEFORE, 0)
        if own not in (pipe, Pipe.ALL) and not (rows["pipe"][before] == own).any():
            return LikelyRow(core, at, f"PipeBarrier, core {core} row {at}, is on {pipe_name(own)}")
    own_barriers = near[rows["pipe"][near] == pipe]
    for at in own_barriers[own_barriers > later].tolist():
        words = f"PipeBarrier, core {core} row {at}, stands behind row {later} {name_of(rows[later])}"
        handed = rows[later + 1 : at]
        is_late = ((handed["op"] == Op.SET_FLAG) & (handed["pipe"] == pipe)).any()
        if is_late or _splits(rows, later, at) or _is_doubled(rows, at):
            return LikelyRow(core, at, words)
    for at in own_barriers[own_barriers < earlier][::-1].tolist():
        words = f"PipeBarrier, core {core} row {at}, stands in front of row {earlier} {name_of(rows[earlier])}"
        between = rows[at + 1 : earlier]
        is_early = ((between["pipe"] == pipe) & (between["op"] != Op.SET_FLAG)) | (between["op"] == Op.ALLOC_TENSOR)
        return LikelyRow(core, at if is_early.any() else earlier, words)
    return None


def _splits(rows: np.ndarray, first: int, at: int) -> bool:
    """Return whether a row stands between two of one line."""
    behind = rows["site"][at + 1 : at + 2]
    return len(behind) > 0 and behind[0] == rows["site"][first]


def _is_doubled(rows: np.ndarray, at: int) -> bool:
    """Return whether nothing works between a barrier and the next one of its pipe."""
    behind = rows[at + 1 : at + 1 + _BEFORE]
    barriers = np.flatnonzero((behind["op"] == Op.PIPE_BARRIER) & (behind["pipe"] == rows["pipe"][at]))
    if not len(barriers):
        return False
    working = working_rows(behind[: barriers[0]])
    return not (behind["pipe"][working] == rows["pipe"][at]).any()


def behind_its_reader(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the row that writes what an earlier one needs, where that one waited for it."""
    row, core, space = violation.row, violation.core, int(violation.space)
    pipe = int(rows["pipe"][row])
    wanted = np.array([[space, 0, violation.start, 1, 1, 0]], np.int64)
    behind = row + 1 + working_rows(rows[row + 1 : row + 1 + _BEFORE])
    found = overlapping(rows, behind.tolist(), wanted)
    if found < 0:
        return None
    source = int(rows["pipe"][found])
    front = rows[max(row - _BEFORE, 0) : row]
    ordering = (front["op"] == Op.PIPE_BARRIER) if source == pipe else (front["op"] == Op.WAIT_FLAG)
    ordering &= (front["pipe"] == pipe) & ((front["peer"] == source) | (source == pipe))
    if not ordering.any():
        return None
    words = f"{name_of(rows[found])}, core {core} row {found}, stands behind row {row}, which needs what it writes"
    return LikelyRow(core, found, words)


def without_work(violation: Violation, rows: np.ndarray, *, is_near: bool = True) -> LikelyRow | None:
    """Return where the pipe that a reader waited for waits itself, if it did nothing behind that.

    Waits behind what the reader's pipe did before are looked at, or, if not ``is_near``, the last ones before that.
    """
    core = violation.core
    for wait, at, working in handed_over(rows, violation.row, is_near=is_near):
        if wait < 0 or (len(working) and working[-1] > wait):
            continue
        pipe = pipe_name(int(rows["pipe"][at]))
        return LikelyRow(core, wait, f"{pipe} waits at core {core} row {wait} and does nothing up to row {at} SetFlag")
    return None


def idle_barrier(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the barrier nearest in front of a reader that has none of its pipe's work in front of it."""
    core, at = violation.core, violation.row
    first = max(at - _BARRIER_ROWS, 0)
    own = first + np.flatnonzero(rows["pipe"][first:at] == rows["pipe"][at])
    barriers = own[rows["op"][own] == Op.PIPE_BARRIER]
    working = own[working_rows(rows[own])]
    for before, barrier in zip(barriers[-2::-1].tolist(), barriers[:0:-1].tolist(), strict=True):
        if not ((before < working) & (working < barrier)).any():
            words = f"{pipe_name(int(rows['pipe'][at]))} does nothing between PipeBarrier, row {before}, and that of"
            return LikelyRow(core, barrier, f"{words} core {core} row {barrier}")
    return None


def unfilled_flag(violation: Violation, rows: np.ndarray) -> LikelyRow | None:
    """Return the flag for a reader of a pipe that could fill the bytes, and did not."""
    core, space = violation.core, int(violation.space)
    for _, at, _ in handed_over(rows, violation.row):
        pipe = int(rows["pipe"][at])
        if (pipe, space) in _FILLS:
            return LikelyRow(
                core, at, f"{pipe_name(pipe)} writes nothing of it in front of core {core} row {at} SetFlag"
            )
    return None


def handed_over(
    rows: np.ndarray, row: int, *, is_near: bool = True
) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
    """Yield what other pipes did for a row: their last wait (-1: none) before the flag, the flag, and what they did."""
    for wait in _flags_in_front(rows, row, is_near=is_near):
        source, target = _ends(rows[wait])
        first = max(wait - REACH, 0)
        near = rows[first:wait]
        sets = (near["op"] == Op.SET_FLAG) & (near["pipe"] == source) & (near["peer"] == target)
        sets &= near["event"] == rows["event"][wait]
        if not sets.any():
            continue
        at = first + int(np.flatnonzero(sets)[-1])
        own = first + np.flatnonzero(rows["pipe"][first:at] == source)
        waits = own[rows["op"][own] == Op.WAIT_FLAG]
        yield int(waits[-1]) if len(waits) else -1, at, own[working_rows(rows[own])]


def _flags_in_front(rows: np.ndarray, row: int, *, is_near: bool) -> list[int]:
    """Return the waits of a row's pipe since what it did before, or the `_WAITS` before that; the nearest first."""
    own = np.flatnonzero(rows["pipe"][:row] == rows["pipe"][row])[-REACH:]
    working = own[working_rows(rows[own])]
    is_wait = rows["op"][own] == Op.WAIT_FLAG
    is_behind = own > working[-1] if len(working) else np.ones(len(own), np.bool_)
    waits: list[int] = own[is_wait & (is_behind == is_near)][::-1].tolist()
    return waits if is_near else waits[:_WAITS]


def idle_wait(rows: np.ndarray, core: int, row: int) -> LikelyRow | None:
    """Return where another pipe waits for what a row wrote, and does nothing then."""
    flags = row + 1 + np.flatnonzero(np.isin(rows["op"][row + 1 : row + REACH], list(_OTHER)))
    pipe = int(rows["pipe"][row])
    written = {space for space, access, *_ in touched_by(rows, row) if access != READ}
    for at in flags[(rows["op"][flags] == Op.SET_FLAG) & (rows["pipe"][flags] == pipe)].tolist():
        if not any((int(rows["peer"][at]), space) in _READS for space in written):
            continue  # it tells that an operand is free
        waits = [to for to in flags[flags > at].tolist() if _is_other_end(rows[at], rows[to])]
        if not waits:
            continue
        behind = np.flatnonzero(rows["pipe"][waits[0] + 1 :] == rows["peer"][at])[:1] + waits[0] + 1
        if not len(working_rows(rows[behind])) and not (rows["op"][behind] == Op.WAIT_FLAG).any():
            words = f"{pipe_name(int(rows['peer'][at]))} waits at core {core} row {waits[0]} and does nothing behind it"
            return LikelyRow(core, waits[0], words)
    return None


def _is_other_end(flag: np.void, other: np.void) -> bool:
    """Return whether a set and another row are the two ends of a flag."""
    return bool(other["op"] == Op.WAIT_FLAG) and _differing(flag, other) == 0
