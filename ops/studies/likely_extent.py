"""Which of two rows counts wrongly, where one reads more than the other wrote.

The two do not say: the one may end too early, or the other too late. Their neighbours do: who else reads the same
bytes, what the reader's other operands hold, how much of its result is read, and how much there was for the writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import READ
from ops.studies.row_bytes import touched_by, working_rows

_REACH = 512
"""Rows before and behind that are looked at."""
_Part = tuple[int, int, int]
"""Space, first byte and byte behind the last."""


def reads_too_far(rows: np.ndarray, writer: int, reader: int, space: int, byte: int) -> bool:
    """Return whether more speaks for a reader that should end where the writer does than for the contrary.

    Parameters
    ----------
    rows : INSTR[:]
        Of the core.
    writer, reader : int
        Rows.
    space, byte : int
        Where what the writer wrote ends, and the reader reads on.
    """
    votes = (
        *_others(rows, writer, reader, space, byte),
        *_results(rows, reader, space, byte),
        *_stores(rows, reader),
        *_operands(rows, reader, space, byte),
        *_sources(rows, writer),
    )
    return sum(votes) > 0


def _parts(rows: np.ndarray, at: int, *, read: bool) -> list[_Part]:
    """Return what a row reads or writes on the chip."""
    return [
        (space, start, start + length + (repeats - 1) * step)
        for space, access, start, length, repeats, step in touched_by(rows, at)
        if (access == READ) == read and space != Space.GM
    ]


def _covers(parts: Iterable[_Part], space: int, byte: int) -> bool:
    return any(own == space and start <= byte < end for own, start, end in parts)


def _behind(rows: np.ndarray, at: int) -> list[int]:
    return (at + 1 + working_rows(rows[at + 1 : at + _REACH])).tolist()


def _before(rows: np.ndarray, at: int) -> list[int]:
    first = max(at - _REACH, 0)
    return (first + working_rows(rows[first:at])[::-1]).tolist()


def _others(rows: np.ndarray, writer: int, reader: int, space: int, byte: int) -> Iterator[int]:
    """Yield what the next row says that reads the end of what was written: does it end there too or go on."""
    for at in _behind(rows, writer):
        if at != reader:
            for own, start, end in _parts(rows, at, read=True):
                if own == space and start < byte <= end:
                    yield 1 if end == byte else -1
                    return
        if _covers(_parts(rows, at, read=False), space, byte - 1):
            return


def _results(rows: np.ndarray, reader: int, space: int, byte: int) -> Iterator[int]:
    """Yield what those say that read the reader's result: how much of it, all or as much as was there for it."""
    there = [
        (byte - first) / (last - first)
        for own, first, last in _parts(rows, reader, read=True)
        if own == space and first <= byte < last
    ]
    for own, first, last in _parts(rows, reader, read=False):
        for at in _behind(rows, reader):
            ends = [end for where, start, end in _parts(rows, at, read=True) if where == own and start == first]
            if ends:
                share = (max(ends) - first) / (last - first)
                # it says more than the others
                yield 2 if abs(share - max(there, default=1)) < abs(share - 1) else -2
                break
            if _covers(_parts(rows, at, read=False), own, first):
                break


def _stores(rows: np.ndarray, reader: int) -> Iterator[int]:
    """Yield what other stores of a reader that is one say: does it end where the next begins, or behind that."""
    own = _stored(rows, reader)
    others = [
        at for at in (*_before(rows, reader), *_behind(rows, reader)) if rows["tensor"][at] == rows["tensor"][reader]
    ]
    if len(own) == 1:
        first, last = own[0]
        behind = [start for at in others for start, _ in _stored(rows, at) if start > first]
        if behind and min(behind) <= last:
            yield 1 if min(behind) < last else -1


def _stored(rows: np.ndarray, at: int) -> list[tuple[int, int]]:
    """Return what a row writes to global memory in one piece each."""
    return [
        (start, start + length)
        for space, access, start, length, repeats, _ in touched_by(rows, at)
        if space == Space.GM and access != READ and repeats == 1
    ]


def _operands(rows: np.ndarray, reader: int, space: int, byte: int) -> Iterator[int]:
    """Yield what the reader's other operands say: are they there to their ends."""
    writes = [_parts(rows, at, read=False) for at in _before(rows, reader)]
    for own, start, end in _parts(rows, reader, read=True):
        if own == space and start <= byte < end:
            continue
        if any(_covers(parts, own, start) for parts in writes):
            yield -1 if any(_covers(parts, own, end - 1) for parts in writes) else 1


def _sources(rows: np.ndarray, writer: int) -> Iterator[int]:
    """Yield what the writer's operands say: does it read to its end what was written for it, of each of them."""
    votes = []
    before = _before(rows, writer)
    for space, _, end in _parts(rows, writer, read=True):
        found = next((at for at in before if _covers(_parts(rows, at, read=False), space, end - 1)), -1)
        if found >= 0:
            # parts of an operand can come from rows of one line
            more = (at for at in _since(rows, before, writer) if rows["site"][at] == rows["site"][found])
            votes.append(-1 if any(_covers(_parts(rows, at, read=False), space, end) for at in (found, *more)) else 1)
    if votes:
        yield min(votes)


def _since(rows: np.ndarray, before: list[int], writer: int) -> Iterator[int]:
    """Yield rows before the writer back to the one of its line before."""
    for at in before:
        if rows["site"][at] == rows["site"][writer]:
            return
        yield at
