"""Bytes of L1 that nobody wrote for a load that takes them along, and nothing uses: behind the last k, say.

A LoadData moves whole fractals, so kernels whose k or m ends inside one read what nobody has written, and an Mmad of
that k leaves it out; the bias table and the Fixpipe buffer are filled by 64 and 128 bytes, and n columns of them used.
The load is carried out twice, on two contents of the bytes, to see which elements they reach; if no Mmad or Fixpipe
reads one of these before it is overwritten, the finding is a note. So it is only where the load takes other bytes too.
An Mmad of whole fractals multiplies lines of them that nobody wrote: the sums of these lines are followed in L0C, and
are read or not as well.

Bytes of UB that nothing stored depends on are notes as well, and those of global memory that come there by a load of
others too (`unused_lanes`).

Two stores of the same bytes in no order are notes where they store the same (`same_stores`).

Gather and Gatherb read what their offsets name, which are data: of a source that is longer than what was written there,
the rest is a note as well. Where the kernel has filled them in itself, it is known what they name (`known_lanes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npu_sim.engines.same_stores import stores_the_same
from npu_sim.engines.unused_lanes import Need, is_left_to_offsets, needs
from npu_sim.isa.atomic import SINK_LENGTH
from npu_sim.isa.codes import Mode, Space
from npu_sim.isa.dispatch import CONFIG_LENGTH, run_rows
from npu_sim.isa.footprint import READ, empty_runs, footprint_at
from npu_sim.isa.mmad_depth import depths_of
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE
from npu_sim.isa.op import MMADS, SPEC_OF_OP, Op
from npu_sim.products import Product
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import FRACTAL_BYTES, ceil_div

_ROWS = 1 << 13
"""Rows behind a load that are looked at; a load whose elements live longer stays an error."""
_FINDINGS = 1000
"""Findings of L1 that are looked into."""
_STORES = 256
"""Findings of stores that are."""
_CORES = 64
"""Cores whose findings of UB are looked into."""
_ROWS_FOLLOWED = 1 << 17
"""Rows of them in all, but for cores that do the same."""
_UNUSED = (Kind.READ_UNINITIALISED, Kind.READ_STALE)
_WRITES = (Kind.SYNC_WRITE_HAZARD, Kind.BARRIER_WRITE)
_SIDE, _CARRIERS, _SUM_BYTES = 16, 256, 4
_L0 = (Space.L0A, Space.L0B)
_TABLES = (Space.BT, Space.FB)


def as_notes(
    found: Iterable[Violation],
    rows_of: Callable[[int, int], np.ndarray],
    product: Product,
    cores_of: Callable[[int], int] = lambda launch: 0,
    start_of: Callable[[int, int, int], int] = lambda launch, core, row: 0,
) -> list[Violation]:
    """Return findings, those of uninitialised bytes that no Mmad or Fixpipe uses, or no offset need name, as notes.

    Parameters
    ----------
    found : iterable of Violation
    rows_of : callable
        From launch and core to all rows of the core.
    product : Product
    cores_of : callable
        From launch to its number of cores, 0 where only those of findings have any.
    start_of : callable
        From launch, core and row to the first row whose writes to the core's buffers it may find there.
    """
    result: list[Violation] = []
    looked = compared = 0
    rows = lru_cache(maxsize=4)(rows_of)  # findings of a core stand together
    writes = lru_cache(maxsize=4)(lambda launch, core: _writes_to_l1(rows(launch, core)))
    for violation in found:
        if violation.left_out:  # of those that are not there nothing is known
            result.append(violation)
            continue
        if violation.kind in _WRITES and violation.space is Space.GM and compared < _STORES:
            compared += 1
            if stores_the_same(violation, rows):
                text = f"{violation.detail}, with the same bytes"
                violation = replace(violation, kind=Kind.WRITES_THE_SAME, detail=text)
        elif violation.kind in _UNUSED and violation.space is Space.L1 and looked < _FINDINGS:
            looked += 1
            start = start_of(violation.launch, violation.core, violation.row)
            if _is_unused(violation, rows(violation.launch, violation.core), start, writes, product):
                text = f"{violation.detail}, and which no Mmad or Fixpipe uses"
                violation = replace(violation, kind=Kind.READ_UNUSED, detail=text)
        result.append(violation)
    needed, named = _note_lanes(result, rows_of, product, cores_of)
    for at, violation in enumerate(result):
        if violation.kind is not Kind.READ_UNINITIALISED or violation.space is not Space.UB or violation.left_out:
            continue
        row = rows(violation.launch, violation.core)[violation.row]
        if at in named or (at not in needed and is_left_to_offsets(violation, row)):
            text = f"{violation.detail}, if an offset leads there"
            result[at] = replace(violation, kind=Kind.READ_BY_OFFSETS, detail=text)
    return result


def _note_lanes(
    found: list[Violation],
    rows_of: Callable[[int, int], np.ndarray],
    product: Product,
    cores_of: Callable[[int], int],
) -> tuple[set[int], set[int]]:
    """Make those findings of UB, and of global memory that is loaded there, notes on which nothing depends.

    Returns
    -------
    needed : set of int
        Those, by number, on which something does.
    named : set of int
        Those of what unknown offsets may name.
    """
    of_core: dict[tuple[int, int], list[int]] = {}
    last: dict[int, int] = {}  # by launch, the finding that stands for those that were left out
    for at, violation in enumerate(found):
        is_loaded = violation.space is Space.GM and violation.kind is Kind.READ_UNINITIALISED and not violation.left_out
        if violation.kind in _UNUSED and (violation.space is Space.UB or is_loaded):
            of_core.setdefault((violation.launch, violation.core), []).append(at)
            if violation.left_out and violation.kind is Kind.READ_UNINITIALISED:
                last[violation.launch] = at
    for launch in last:  # they may be of any core
        of_core |= {(launch, core): of_core.get((launch, core), []) for core in range(cores_of(launch))}
    left = _ROWS_FOLLOWED
    of_need: dict[Need, set[int]] = {need: set() for need in Need}
    unknown = {launch for launch in last if not 0 < cores_of(launch) <= _CORES}
    alike: dict[bytes, list[Need]] = {}
    for (launch, core), places in islice(of_core.items(), _CORES):
        rows, others = rows_of(launch, core), launch in last
        key = _in_its_buffers(rows) if others and not places else b""
        answers = alike.get(key)
        if answers is None:
            left -= len(rows)
            answers = needs([found[at] for at in places], rows, product, others=others) if left >= 0 else []
            if key:
                alike[key] = answers
        for at, need in zip(places, answers, strict=False):
            of_need[need].add(at)
        if others and not (answers and answers[-1] is Need.NOTHING):
            unknown.add(launch)
    for at in of_need[Need.NOTHING]:
        violation = found[at]
        if violation.left_out and (violation.launch in unknown or last.get(violation.launch) != at):
            continue  # of what stands behind it nothing is known
        text = f"{violation.detail}, and nothing that leaves UB depends on them"
        found[at] = replace(violation, kind=Kind.READ_UNUSED, detail=text)
    return of_need[Need.SOMETHING], of_need[Need.OFFSETS]


def _in_its_buffers(rows: np.ndarray) -> bytes:
    """Return what is the same of cores that do the same in their buffers, with other parts of global memory."""
    rows = rows.copy()
    for address, space in (("dst", "dst_space"), ("src0", "src0_space")):
        rows[address][rows[space] == Space.GM] = 0
    for label in ("tensor", "tile", "site"):
        rows[label] = 0
    return hashlib.sha256(rows.tobytes()).digest()


def _is_unused(
    violation: Violation,
    rows: np.ndarray,
    start: int,
    writes: Callable[[int, int], npt.NDArray[np.int64]],
    product: Product,
) -> bool:
    row, space = rows[violation.row], int(rows["dst_space"][violation.row])
    instruction = SPEC_OF_OP.get(int(row["op"]))
    if instruction is None or space not in (*_L0, *_TABLES) or (space, Space.L1) not in instruction.routes:
        return False
    if int(row["op"]) == Op.LOAD_SPARSE:
        return False  # what it brings of indices is not followed
    if verify(rows[violation.row : violation.row + 1 + _ROWS], product):
        return False  # rows that nobody vouches for are not carried out, nor are their addresses followed
    runs = empty_runs()
    count = int(footprint_at(rows, violation.row, runs))
    reads = [_Box(*box) for box in runs[: max(count, 0)].tolist() if box[0] == Space.L1]
    # a finding spans pieces, between which other rows may have written
    before = writes(violation.launch, violation.core)
    before = before[(before[:, 0] >= max(violation.other_row + 1, start)) & (before[:, 0] < violation.row), 1:]
    taken = np.array([box[2:] for box in reads], np.int64).reshape(-1, 4)
    place = violation.start, violation.length
    unwritten = violation.start + np.flatnonzero(_covered(*place, taken) & ~_covered(*place, before))
    # a load was meant to load something, if it is not of lines that fill a product's tile up
    is_whole, are_multiplied = sum(box.length * box.repeats for box in reads) <= len(unwritten), False
    reached = _reached(rows[violation.row : violation.row + 1].copy(), unwritten, product)[space]
    sums, are_stored = np.zeros(product.core.l0c_bytes, np.bool_), False
    for at in range(violation.row + 1, min(len(rows), violation.row + 1 + _ROWS)):
        row, count = rows[at], int(footprint_at(rows, at, runs))
        boxes = [_Box(*box) for box in runs[: max(count, 0)].tolist() if box[0] in (space, Space.L0C)]
        multiplies = int(row["op"]) in MMADS
        are_stored |= not multiplies and any(box.space == Space.L0C and box.access == READ for box in boxes)
        held = {space: reached, int(Space.L0C): sums}
        read = {box.space for box in boxes if box.access == READ and box.meets(held[box.space])}
        if read and not multiplies:
            return False
        lines = _lines_of(row, reached, space) if space in read else _NONE
        if lines is None:
            return False
        are_multiplied |= len(lines) > 0
        adds = any(box.space == Space.L0C and box.access == READ for box in boxes)
        for box in boxes:
            if box.access != READ and not (adds and box.space == Space.L0C):
                box.clear(held[box.space])
        sums[_sums_of(row, lines, space)] = True
        if not reached.any() and not sums.any():
            return are_multiplied or not is_whole
    # sums of which nobody reads any were meant for something
    has_ended = len(rows) <= violation.row + 1 + _ROWS
    return has_ended and (are_stored or not sums.any()) and (are_multiplied or not is_whole)


_NONE = np.zeros(0, np.int64)


class _Box(NamedTuple):
    """Bytes that a row touches, as `footprint_at` tells them."""

    space: int
    access: int
    start: int
    length: int
    repeats: int
    step: int

    def _parts(self, held: npt.NDArray[np.bool_]) -> Iterator[npt.NDArray[np.bool_]]:
        for number in range(self.repeats):
            first = self.start + number * self.step
            yield held[first : first + self.length]

    def meets(self, held: npt.NDArray[np.bool_]) -> bool:
        """Return whether one of its bytes is held."""
        return bool(held.any()) and any(part.any() for part in self._parts(held))

    def clear(self, held: npt.NDArray[np.bool_]) -> None:
        """Take its bytes out."""
        for part in self._parts(held) if held.any() else ():
            part[:] = False


def _writes_to_l1(rows: np.ndarray) -> npt.NDArray[np.int64]:
    """Return what rows write to L1, int64[n, 5]: the row, where its bytes begin, how many, how often, how far apart."""
    runs, found = empty_runs(), []
    for at in np.flatnonzero(rows["dst_space"] == Space.L1).tolist():
        count = int(footprint_at(rows, at, runs))
        found += [(at, *box[2:]) for box in runs[: max(count, 0)].tolist() if box[0] == Space.L1 and box[1] != READ]
    return np.array(found, np.int64).reshape(-1, 5)


def _covered(start: int, length: int, boxes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which bytes of a range lie in boxes, int64[n, 4]: begin, bytes, repeats and step."""
    ends = np.zeros(length + 1, np.int64)
    last = boxes[:, 0] + (boxes[:, 2] - 1) * boxes[:, 3]
    meets = (np.minimum(boxes[:, 0], last) < start + length) & (np.maximum(boxes[:, 0], last) + boxes[:, 1] > start)
    for begin, size, repeats, step in boxes[meets].tolist():
        first = begin - start + step * np.arange(repeats if step else 1)
        np.add.at(ends, first.clip(0, length), 1)
        np.add.at(ends, (first + size).clip(0, length), -1)
    return ends[:length].cumsum() > 0


def _lines_of(row: np.void, reached: npt.NDArray[np.bool_], space: int) -> npt.NDArray[np.int64] | None:
    """Return the lines that an Mmad multiplies of its tile and that hold a byte reached; None: not to be told."""
    m, n, k = (int(row[name]) for name in "mnk")
    if m == 1:  # a vector lies otherwise
        return None
    depth = depths_of(row)[space == Space.L0B]
    blocks, inside = np.divmod(np.arange(depth), FRACTAL_BYTES // _SIDE)
    if space == Space.L0A:
        padded = depth // k * ceil_div(k, _SIDE) * _SIDE if row["mode"] & Mode.K_ALIGN else depth
        start, count, step, over = int(row["src0"]), m, FRACTAL_BYTES, ceil_div(padded, FRACTAL_BYTES // _SIDE)
    else:
        start, count, step, over = int(row["src1"]), n, ceil_div(n, _SIDE) * FRACTAL_BYTES, 1
    line = np.arange(count)
    first = start + line // _SIDE * over * FRACTAL_BYTES + line % _SIDE * (FRACTAL_BYTES // _SIDE)
    return np.flatnonzero(reached[first[:, None] + blocks * step + inside].any(1))


def _sums_of(row: np.void, lines: npt.NDArray[np.int64], space: int) -> npt.NDArray[np.int64]:
    """Return the bytes of L0C that hold the sums of lines of a tile of L0A, or of L0B."""
    if not len(lines):
        return lines
    m, n = int(row["m"]), int(row["n"])
    rows, columns = (lines, np.arange(n)) if space == Space.L0A else (np.arange(m), lines)
    block = ceil_div(m, _SIDE) * _SIDE * _SUM_BYTES * _SIDE
    first = int(row["dst"]) + columns // _SIDE * block + columns % _SIDE * _SUM_BYTES
    each = rows[:, None] * (_SIDE * _SUM_BYTES) + first
    return (each[..., None] + np.arange(_SUM_BYTES)).reshape(-1)


def _reached(row: np.ndarray, unwritten: npt.NDArray[np.int64], product: Product) -> dict[int, npt.NDArray[np.bool_]]:
    """Return which bytes of each space that loads fill from L1 hold what some bytes of L1 reach through one."""
    core = product.core
    outcomes = []
    for content in (0x00, 0x3C):
        l1, none = np.zeros(core.l1_bytes, np.uint8), np.zeros(0, np.uint8)
        l1[unwritten] = content
        l0a, l0b = np.zeros(core.l0a_bytes // 2, np.float32), np.zeros(core.l0b_bytes // 2, np.float32)
        bt, fb, idx = (np.zeros(size, np.uint8) for size in (core.bt_bytes, core.quantisation_bytes, core.index_bytes))
        staging = np.zeros(max(core.l0c_bytes // 4, 8192), np.float32)
        run_rows(
            row, 0, 1, none, l1, l0a, l0b, np.zeros(0, np.float32), none, bt, fb, idx,
            np.zeros(CONFIG_LENGTH, np.int64), np.zeros(8192, np.float64), staging,
            np.zeros(SINK_LENGTH, np.int64), np.zeros((0, 4), np.int64), none,
        )  # fmt: skip
        outcomes.append((l0a, l0b, bt, fb))
    item = int(ITEM_BYTES_OF_CODE[int(row["dtype"][0])])
    found = {}
    for space, before, now in zip((*_L0, *_TABLES), *outcomes, strict=True):
        if space in _TABLES:
            found[int(space)] = before != now
            continue
        if item == 1:  # elements themselves, of which the carriers of a fractal hold four each
            carriers, in_fractal = np.flatnonzero(before.view(np.uint8) != now.view(np.uint8)), 4 * _CARRIERS
        else:
            # by their bits: lanes that nobody specifies are NaN
            carriers, in_fractal = np.flatnonzero(before.view(np.uint32) != now.view(np.uint32)), _CARRIERS
        fractal, rest = np.divmod(carriers, in_fractal)
        depth, line = np.divmod(rest, _SIDE)  # carriers are k-major, a fractal's lines of 32 bytes hold k
        first = fractal * FRACTAL_BYTES + line * (FRACTAL_BYTES // _SIDE) + depth * item
        reached = np.zeros(2 * len(now), np.bool_)
        for byte in range(item):
            reached[first + byte] = True
        found[int(space)] = reached
    return found
