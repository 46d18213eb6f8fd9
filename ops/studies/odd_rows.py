"""Which row of a program is not as in its other tiles and cores: the likely cause of a finding.

What is found shows where order, a flag or bytes are missing, which can be a tile later than the row that should have
been there. Tiles of one kernel have the same rows: where the tiles around a finding have twins but for one row that is
missing, has another event or stands elsewhere, that is the one. Tiles of other sizes have twins in pieces: the rows
around a row, loops of any length taken as one. What is wrong in every tile alike has no twin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Space
from npu_sim.isa.op import SPEC_OF_OP, Op, by_opcode
from npu_sim.isa.row import INSTR, ROW_BYTES
from npu_sim.program.disassemble import disassemble, name_of
from npu_sim.program.violation import Kind, Violation

RowsOf = Callable[[int], np.ndarray]
"""Rows of a core, through all phases."""

_CORES = 3
"""Other cores that a core is held to."""
HOLE_CORES = 64
"""Cores of which one may have left out what it had to write."""
_TILES = 24
"""Tiles of a core that are looked at, the nearest ones."""
_ADDRESSES = ("dst", "src0", "src1")
_AROUND = 3
"""Rows before and behind a row that make its surroundings."""
_REACH = 4096
"""Rows before and behind a finding whose surroundings are looked at."""
_OPERANDS_AT = INSTR.fields["dst"][1] + 24  # type: ignore[index]  # behind the three addresses
_ODD_NUMBERS = np.random.default_rng(0).integers(1, 2**62, (ROW_BYTES - _OPERANDS_AT) // 8) | 1
_FLAGS = (Op.SET_FLAG, Op.WAIT_FLAG)
_ORDER = (*_FLAGS, Op.PIPE_BARRIER)
_OF_ORDER = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD, Kind.BARRIER_READ, Kind.BARRIER_WRITE)
_BUFFERS = (Op.ALLOC_TENSOR, Op.FREE_TENSOR)
_IS_STATE = by_opcode(lambda instruction: not instruction.routes, dtype=np.bool_)
"""Flags, barriers, buffers: what loops of one instruction do not consist of."""

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OddRow:
    """A row that is not as in a twin of its tile.

    ``row`` of ``core`` is the one that is wrong, or the one in front of which a row is missing. ``like`` is the number
    of the row of core ``like_core`` that shows what should be there, ``place`` where it should be.
    """

    what: Literal["missing", "another", "moved"]
    core: int
    row: int
    like_core: int
    like: int
    place: int

    def words(self, rows_of: RowsOf) -> str:
        """Return it in words."""
        right = " ".join(disassemble(rows_of(self.like_core)[self.like]).split(",")[0].split())
        twin = f"as in core {self.like_core} row {self.like}"
        if self.what == "missing":
            return f"{right} is missing in front of core {self.core} row {self.row}, {twin}"
        if self.what == "moved":
            return f"{right}, core {self.core} row {self.row}, does not stand {twin}"
        own, other = rows_of(self.core)[self.row], rows_of(self.like_core)[self.like]
        if all(own[name] == other[name] for name in ("op", "pipe", "peer", "event")):
            fields = [name for name in SPEC_OF_OP[int(own["op"])].fields if name not in _ADDRESSES]
            differing = [
                f"{name} {own[name]}, not {other[name]}" for name in fields if np.any(own[name] != other[name])
            ]
            return f"{name_of(own)}, core {self.core} row {self.row}, has {', '.join(differing)} {twin}"
        wrong = " ".join(disassemble(own).split(",")[0].split())
        return f"{wrong}, core {self.core} row {self.row}, is not {right} {twin}"


@dataclass(frozen=True, slots=True)
class _Tile:
    """Consecutive rows of one tile."""

    core: int
    first: int
    keys: Keys


def odd_row(violation: Violation, rows_of: RowsOf, core_count: int, *, tensors: Collection[int] = ()) -> OddRow | None:
    """Return the row that a finding is likely due to, None if no twin of its tile shows one.

    Parameters as of `likely_rows.likely_row`; tensors of the workspace can lie in one place.
    """
    if violation.row < 0:
        if violation.kind is not Kind.OUTPUT_HOLE:
            return None
        cores = range(min(core_count, HOLE_CORES))
        found = (one for core in cores for one in _odd_rows(violation, core, rows_of, core_count))
        return next((one for one in found if int(rows_of(one.like_core)["tensor"][one.like]) in tensors), None)
    return next(_odd_rows(violation, violation.core, rows_of, core_count), None)


def _odd_rows(violation: Violation, core: int, rows_of: RowsOf, core_count: int) -> Iterator[OddRow]:
    """Yield rows of a core, the likeliest first."""
    rows = rows_of(core)
    first, last = _where(violation, rows)
    near = min(max(violation.row, 0), len(rows))
    others = [other for other in dict.fromkeys((core - 1, core + 1, 0, core_count - 1)) if 0 <= other < core_count]
    cores = [core, *(other for other in others if other != core)][: _CORES + 1]
    for differences, part in (
        (_of_tiles, "event"), (_of_tiles, "place"), (_of_tiles, "operands"),
        (_of_surroundings, "event"), (_of_surroundings, "place"),
    ):  # fmt: skip
        keys = {other: _keys(rows_of(other), part) for other in cores}
        found = differences(core, keys, rows_of, near, first, last)
        fitting = [odd for odd in found if _fits(violation, odd, rows, rows_of)]

        def worth(odd: OddRow) -> tuple[bool, bool, int]:
            is_order = violation.kind not in _OF_ORDER or rows_of(odd.like_core)["op"][odd.like] in _ORDER
            return not is_order, odd.what == "another", abs(odd.row - near)

        yield from sorted(fitting, key=worth)
    yield from _barriers(violation, core, cores, rows_of)


def _keys(rows: np.ndarray, part: str) -> Keys:
    """Return what is the same of the same row in every tile, as one number: its place, event or operands too."""
    keys = rows["site"].astype(np.int64) << 32
    for shift, name in ((24, "op"), (16, "pipe"), (8, "peer"), (0, "event")):
        if part != "place" or name != "event":
            keys |= rows[name].astype(np.int64) << shift
    if part == "operands":
        words = rows.view(np.uint8).reshape(-1, ROW_BYTES)[:, _OPERANDS_AT:].copy().view(np.int64)
        keys += (words * _ODD_NUMBERS).sum(axis=1)  # wraps around; equal rows have equal sums
    return keys


def _of_tiles(
    core: int, keys: Mapping[int, Keys], rows_of: RowsOf, near: int, first: int, last: int
) -> Iterator[OddRow]:
    """Yield the differences of tiles of a core, between two rows, and tiles that differ from them in one row."""
    tiles = [tile for other in keys for tile in _tiles(other, rows_of(other)["tile"], keys[other], near)]
    for tile in tiles:
        if tile.core != core or tile.first > last or tile.first + len(tile.keys) < first:
            continue
        twins = [other for other in tiles if other is not tile and abs(len(other.keys) - len(tile.keys)) <= 1]
        if any(np.array_equal(tile.keys, other.keys) for other in twins):
            continue
        for odd in (_difference(tile, other) for other in twins):
            if odd is not None and max(odd.row, odd.place) >= first and min(odd.row, odd.place) <= last:
                yield odd


def _tiles(core: int, numbers: npt.NDArray[np.int32], keys: Keys, near: int) -> list[_Tile]:
    """Return the tiles of a core around a row, and its first and last ones."""
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(keys)]
    tiles = [_Tile(core, start, keys[start:end]) for start, end in pairwise(starts)]
    around = sorted(tiles, key=lambda tile: abs(tile.first + len(tile.keys) // 2 - near))[:_TILES]
    return around + [tile for tile in (tiles[0], tiles[-1]) if all(tile is not other for other in around)]


def _difference(tile: _Tile, twin: _Tile) -> OddRow | None:
    """Return the one row in which a tile differs from its twin, None if more do or none does."""
    own, other = tile.keys, twin.keys
    shorter = min(len(own), len(other))
    before = _common(own[:shorter], other[:shorter])
    behind = _common(own[::-1][: shorter - before], other[::-1][: shorter - before])

    def odd(what: Literal["missing", "another", "moved"], at: int, like: int) -> OddRow:
        return OddRow(what, tile.core, tile.first + at, twin.core, twin.first + like, tile.first + like)

    if len(other) == len(own) + 1:
        return odd("missing", before, before) if before + behind >= len(own) else None
    if len(other) != len(own) or before == len(own):
        return None
    last = len(own) - behind - 1
    if before == last:
        return odd("another", before, before)
    if np.array_equal(own[before:last], other[before + 1 : last + 1]) and own[last] == other[before]:
        return odd("moved", last, before)
    if np.array_equal(own[before + 1 : last + 1], other[before:last]) and own[before] == other[last]:
        return odd("moved", before, last)
    return None


def _of_surroundings(
    core: int, keys: Mapping[int, Keys], rows_of: RowsOf, near: int, first: int, last: int
) -> Iterator[OddRow]:
    """Yield rows of a core, between two rows, that nothing else has in its surroundings but another row or one more."""
    closed: Counter[tuple[int, ...]] = Counter()
    filled: dict[tuple[int, ...], dict[int, tuple[int, int]]] = {}
    counts: Counter[tuple[int, ...]] = Counter()
    own: list[tuple[int, tuple[int, ...]]] = []
    for other, every in keys.items():
        begin = max(near - _REACH, 0)
        part = every[begin : near + _REACH]
        if not len(part):
            continue
        is_move = ~_IS_STATE[rows_of(other)["op"][begin : near + _REACH]]
        is_again = (np.diff(part, prepend=-1) == 0) & is_move
        runs = np.flatnonzero(~is_again)
        edge = [-1] * _AROUND
        names = [*edge, *part[runs].tolist(), *edge]
        numbers = [*(runs + begin).tolist(), begin + len(part)]
        for at, row in enumerate(numbers):
            around = tuple(names[at : at + 2 * _AROUND])
            closed[around] += 1
            whole = tuple(names[at : at + 2 * _AROUND + 1])
            if at < len(runs):
                counts[whole] += 1
                middle = whole[:_AROUND] + whole[_AROUND + 1 :]
                filled.setdefault(middle, {}).setdefault(whole[_AROUND], (other, row))
            if other == core and first <= row <= last:
                own.append((row, whole))
    for row, whole in own:
        around = whole[: 2 * _AROUND]
        if closed[around] == 1:
            for like_core, like in filled.get(around, {}).values():
                yield OddRow("missing", core, row, like_core, like, row)
        middle = whole[:_AROUND] + whole[_AROUND + 1 :]
        if counts[whole] == 1:
            for name, (like_core, like) in filled[middle].items():
                if name != whole[_AROUND]:
                    yield OddRow("another", core, row, like_core, like, row)


def _barriers(violation: Violation, core: int, cores: Sequence[int], rows_of: RowsOf) -> Iterator[OddRow]:
    """Yield the barrier that the same instruction has behind it in another tile, for one that has none."""
    if violation.kind not in (Kind.BARRIER_READ, Kind.BARRIER_WRITE):
        return
    before = rows_of(core)[violation.other_row]
    for other in cores:
        rows = rows_of(other)
        is_same = (rows["site"] == before["site"]) & (rows["op"] == before["op"])
        barriers = (rows["op"] == Op.PIPE_BARRIER) & (rows["pipe"] == before["pipe"])
        for like in (np.flatnonzero(is_same[:-1] & barriers[1:]) + 1).tolist():
            place = violation.other_row + 1
            yield OddRow("missing", core, place, other, like, place)


def _common(one: Keys, other: Keys) -> int:
    """Return how many rows are the same from the begin on."""
    different = np.flatnonzero(one != other)
    return int(different[0]) if len(different) else len(one)


def _where(violation: Violation, rows: np.ndarray) -> tuple[int, int]:
    """Return the first and the last row that can be the cause."""
    row, other = violation.row, violation.other_row if violation.other_core < 0 else -1
    if row < 0:
        return 0, len(rows)
    if violation.kind is Kind.SYNC_UNPAIRED and other < 0:
        same = np.flatnonzero(_same_flag(rows, rows[row]))
        if rows["op"][row] == Op.SET_FLAG:
            later = same[same > row]
            return row, int(later[0]) if len(later) else len(rows)
        earlier = same[same < row]
        return int(earlier[-1]) if len(earlier) else 0, row
    if violation.kind in (Kind.STATE_LEFT, Kind.BUFFER_LEAK):
        return row, len(rows)
    return max(other, 0), max(row, other)


def _same_flag(rows: np.ndarray, flag: np.void) -> npt.NDArray[np.bool_]:
    """Return which rows do the same with the same flag."""
    same = rows["op"] == flag["op"]
    for name in ("pipe", "peer", "event"):
        same &= rows[name] == flag[name]
    return same


def _fits(violation: Violation, edit: OddRow, rows: np.ndarray, rows_of: RowsOf) -> bool:
    """Return whether such a row can lead to such a finding."""
    right = rows_of(edit.like_core)[edit.like]
    op, kind = int(right["op"]), violation.kind
    if kind in (Kind.SYNC_UNPAIRED, Kind.SYNC_DUPLICATE):
        at = rows[violation.row]
        ends = {int(at["pipe"]), int(at["peer"])}
        return op in _FLAGS and {int(right["pipe"]), int(right["peer"])} == ends
    is_moved = edit.what == "moved" and edit.row in (violation.row, violation.other_row)
    if kind in _OF_ORDER:
        return op in _ORDER or is_moved
    if kind in (Kind.READ_UNALLOCATED, Kind.WRITE_UNALLOCATED):
        return op in _BUFFERS or is_moved
    if kind is Kind.OUTPUT_HOLE:
        return int(right["dst_space"]) == Space.GM and op not in _ORDER
    if kind in (Kind.READ_UNINITIALISED, Kind.READ_STALE, Kind.READ_UNUSED):
        return int(right["dst_space"]) == violation.space and op not in _ORDER
    if kind is Kind.STATE_LEFT:
        return op == int(rows[violation.row]["op"])
    return kind.value.startswith("ErrorBuffer") or kind in (Kind.BUFFER_LEAK, Kind.BUFFER_FREED_TWICE)
