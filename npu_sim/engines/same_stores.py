"""Stores to the same bytes of global memory, in no order, that store the same: whichever comes last, they hold it.

Kernels let every core clear the same words, or store a tile twice. What a store takes from UB is followed back to what
wrote it there: two stores are the same where both take numbers that Duplicate filled in, or, on one core, what the same
row left in the same place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.isa.footprint import READ, empty_runs, footprint_at
from npu_sim.isa.mte import ITEM_BYTES_OF_CODE
from npu_sim.isa.op import Op
from npu_sim.program.violation import Violation

_ROWS = 512
"""Rows in front of a store that are looked at."""
_BYTES = 1 << 16
"""Of a finding."""
_PIECES = 1 << 12
"""That rows before a store write, in all."""
_UNKNOWN = -1
_SETTERS = (Op.SET_ATOMIC, Op.SET_ATOMIC_MAX, Op.SET_ATOMIC_MIN)
_STORES = (Op.DATA_COPY, Op.DATA_COPY_PAD)
_Origins = npt.NDArray[np.int64]


def stores_the_same(violation: Violation, rows_of: Callable[[int, int], np.ndarray]) -> bool:
    """Return whether both rows of a finding store the same bytes, as far as that can be told from rows alone.

    Parameters
    ----------
    violation : Violation
        Of two rows that write the same bytes of global memory.
    rows_of : callable
        From launch and core to all rows of the core.
    """
    if violation.other_row < 0 or violation.length > _BYTES:
        return False
    own, other = violation.core, violation.core if violation.other_core < 0 else violation.other_core
    found = []
    for core, at in ((own, violation.row), (other, violation.other_row)):
        found.append(_origins(rows_of(violation.launch, core), at, violation.start, violation.length))
    first, second = found
    known = (first != _UNKNOWN) & (first == second)
    if own != other:  # rows of two cores have nothing to do with each other, but for numbers
        known &= first < 256
    return bool(known.all())


def _origins(rows: np.ndarray, at: int, start: int, length: int) -> _Origins:
    """Return where bytes of GM come from that a row stores: the byte itself, or 256 and more for a row and a place."""
    origins = np.full(length, _UNKNOWN, np.int64)
    row = rows[at]
    if row["op"] not in _STORES or row["dst_space"] != Space.GM or row["src0_space"] != Space.UB:
        return origins
    if _adds(rows, at):
        return origins
    taken, left = _bytes_of(rows, at, Space.UB), _bytes_of(rows, at, Space.GM)
    if len(taken) != len(left):
        return origins
    inside = (left >= start) & (left < start + length)
    places = np.full(length, _UNKNOWN, np.int64)
    places[left[inside] - start] = taken[inside]
    open_ = places != _UNKNOWN
    runs, room = empty_runs(), _PIECES
    for before in range(at - 1, max(at - 1 - _ROWS, -1), -1):
        if not open_.any():
            break
        pieces = _written(rows, before, runs, int(places[open_].min()), int(places[open_].max()) + 1)
        room -= len(pieces)
        if room < 0:  # what is left open has come from anywhere
            break
        for first, last in pieces:
            mine = open_ & (places >= first) & (places < last)
            if mine.any():
                origins[mine] = _origin(rows, before, places[mine])
                open_ &= ~mine
    return origins


def _adds(rows: np.ndarray, at: int) -> bool:
    """Return whether a store adds to what is there, or keeps an extreme; `issue` need not have said so in the row."""
    setters = np.flatnonzero(np.isin(rows["op"][:at], _SETTERS))
    is_set = len(setters) > 0 and rows["dtype"][setters[-1]] != Data.NONE
    return bool(rows["mode"][at] & Mode.ATOMIC) or is_set


def _bytes_of(rows: np.ndarray, at: int, space: Space) -> npt.NDArray[np.int64]:
    """Return the bytes that a row touches in a space, in its order."""
    runs = empty_runs()
    boxes = runs[: max(int(footprint_at(rows, at, runs)), 0)].tolist()
    parts = [
        start + step * number + np.arange(length)
        for own, _, start, length, repeats, step in boxes if own == space for number in range(repeats)
    ]  # fmt: skip
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _written(rows: np.ndarray, at: int, runs: np.ndarray, low: int, high: int) -> list[tuple[int, int]]:
    """Return the pieces of UB that a row writes, as far as they meet bytes from ``low`` to before ``high``."""
    pieces = []
    for space, access, start, length, repeats, step in runs[: max(int(footprint_at(rows, at, runs)), 0)].tolist():
        if space != Space.UB or access == READ:
            continue
        first, last = 0, repeats if step else 1
        if step > 0:
            first, last = max((low - start - length) // step + 1, 0), min((high - 1 - start) // step + 1, repeats)
        pieces += [(start + step * i, start + step * i + length) for i in range(first, min(last, first + _PIECES + 1))]
    return pieces


def _origin(rows: np.ndarray, at: int, places: _Origins) -> _Origins:
    row = rows[at]
    if row["op"] != Op.DUPLICATE:
        return 256 + (np.int64(at) << 24 | places)
    item = int(ITEM_BYTES_OF_CODE[int(row["dtype"])])
    return int(row["value"]) >> 8 * ((places - int(row["dst"])) % item) & 0xFF
