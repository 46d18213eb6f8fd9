"""Whose bytes on the chip are, by cells of 32 bytes: what AllocTensor and FreeTensor rows say, and what is done.

Rows count from 1 in the state, through the phases of a core; 0 is none. A cell knows the row that allocated it (minus
the row that freed it), the row that wrote it last, and that row again as long as nobody has read what it wrote.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.engines.hazards_book import widened
from npu_sim.isa.codes import SPACES, Space
from npu_sim.isa.footprint import READ, WRITE, footprint
from npu_sim.isa.op import Op

FINDING_FIELDS = 6
"""Code, row, other row (0: none), space, first byte, bytes."""
FINDINGS, ROW, ROW_FINDINGS = range(3)
LAST_LEFT = 3
"""[3]: code, row and other row of the last finding that found no room."""
BASE = 8
"""[spaces]: first cell of a space of the core, -1 for others."""
CELLS = BASE + SPACES
"""[spaces]: cells of a space."""
CODES = 11
KEPT = CELLS + SPACES
"""[codes]: how many findings of a code are in the list."""
LEFT = KEPT + CODES
"""[codes]: how many found no room there. The first of a code always does."""
BOOK_LENGTH = LEFT + CODES
WRITERS = 1 << 13
"""Rows back to which the bytes that a row wrote are counted."""

(READ_FREE, WRITE_FREE, READ_OVERRUN, WRITE_OVERRUN, DEAD, UNREAD, TAKEN, NOT_ALIVE, LEAK, TOO_LARGE) = (
    np.int64(code) for code in range(1, CODES)
)


class Lives(NamedTuple):
    """The state of one core.

    Attributes
    ----------
    owner, written, unread : int64[cells]
        Rows, see the module.
    writers : int64[WRITERS, 3]
        At its number modulo WRITERS: row, cells it wrote, cells of these that were written again unread.
    alive : int64[buffers, 4]
        Row that allocated the buffer (0: not alive), space, first byte, bytes.
    findings : int64[capacity + CODES, FINDING_FIELDS]
    book : int64[BOOK_LENGTH]
    """

    owner: np.ndarray
    written: np.ndarray
    unread: np.ndarray
    writers: np.ndarray
    alive: np.ndarray
    findings: np.ndarray
    book: np.ndarray


@jit
def _report(lives: Any, code: Int, other: Int, space: Int, start: Int, length: Int) -> None:
    """Note a finding of the current row, or widen the one with the same code and other row."""
    book, findings = lives.book, lives.findings
    if widened(findings, book[ROW_FINDINGS], book[FINDINGS], code, other, space, start, length):
        return
    at = book[FINDINGS]
    if at >= len(findings) - CODES and book[KEPT + code] > 0:
        if code != book[LAST_LEFT] or book[ROW] != book[LAST_LEFT + 1] or other != book[LAST_LEFT + 2]:
            book[LEFT + code] += 1
        book[LAST_LEFT], book[LAST_LEFT + 1], book[LAST_LEFT + 2] = code, book[ROW], other
        return
    book[FINDINGS] = at + 1
    book[KEPT + code] += 1
    findings[at, 0], findings[at, 1], findings[at, 2] = code, book[ROW], other
    findings[at, 3], findings[at, 4], findings[at, 5] = space, start, length


@jit
def _allocate(lives: Any, number: Int, space: Int, start: Int, length: Int) -> None:
    book, owner, alive = lives.book, lives.owner, lives.alive
    if alive[number, 0] != 0:
        _report(lives, TAKEN, alive[number, 0], space, start, length)
    alive[number, 0], alive[number, 1], alive[number, 2], alive[number, 3] = book[ROW], space, start, length
    for i in range(start >> 5, (start + length + 31) >> 5):
        c = book[BASE + space] + i
        if owner[c] > 0:
            _report(lives, TAKEN, owner[c], space, i * 32, np.int64(32))
        owner[c] = book[ROW]


@jit
def _free(lives: Any, number: Int, space: Int, start: Int, length: Int) -> None:
    book, owner, alive = lives.book, lives.owner, lives.alive
    if alive[number, 0] == 0:
        before = owner[book[BASE + space] + (start >> 5)]
        _report(lives, NOT_ALIVE, -before if before < 0 else np.int64(0), space, start, length)
        return
    alive[number, 0] = 0
    for i in range(start >> 5, (start + length + 31) >> 5):
        owner[book[BASE + space] + i] = -book[ROW]


@jit
def _touch(lives: Any, space: Int, access: Int, cell: Int, intended: Int, is_part: Flag) -> None:
    """Judge and record an access to one cell, or to a part of it that leaves the rest alone."""
    book, owner, written, unread, writers = lives.book, lives.owner, lives.written, lives.unread, lives.writers
    c, now, width = book[BASE + space] + cell, book[ROW], np.int64(32)
    own = owner[c]
    if own <= 0:
        _report(lives, READ_FREE if access == READ else WRITE_FREE, -own, space, cell * 32, width)
    elif intended > 0 and own != intended:
        _report(lives, READ_OVERRUN if access == READ else WRITE_OVERRUN, intended, space, cell * 32, width)
    before = unread[c]
    writer = before & (WRITERS - 1)
    if access == READ:
        if 0 < written[c] < own:
            _report(lives, DEAD, written[c], space, cell * 32, width)
        unread[c] = 0
        if writers[writer, 0] == before:
            writers[writer, 0] = 0
        return
    if before != 0 and before != now and writers[writer, 0] == before and not is_part:
        writers[writer, 2] += 1
        if writers[writer, 2] == writers[writer, 1]:
            _report(lives, UNREAD, before, space, cell * 32, width)
    if before != now:
        writers[now & (WRITERS - 1), 1] += 1
    written[c] = unread[c] = now


@jit
def _judge_list(lives: Any, access: Int, cells: np.ndarray, repeats: Int, step: Int) -> None:
    """Judge where the repeats of a list of addresses lead: each address is an operand with a buffer of its own."""
    book, owner = lives.book, lives.owner
    base, count = book[BASE + Space.UB], book[CELLS + Space.UB]
    if base < 0:
        return
    for address in cells:
        first = np.int64(address) + (step if repeats == 1 else 0)
        if first < 0 or first >= count or owner[base + first] <= 0:
            continue
        intended = owner[base + first]
        for repeat in range(1, repeats):
            cell = first + repeat * step
            if 0 <= cell < count and owner[base + cell] > 0 and owner[base + cell] != intended:
                code = READ_OVERRUN if access == READ else WRITE_OVERRUN
                _report(lives, code, intended, np.int64(Space.UB), cell * 32, np.int64(32))


@jit
def check_rows(lives: Any, rows: np.ndarray, count: Int, runs: np.ndarray) -> None:
    """Check the next ``count`` rows of a core, which lie inside its memories or are reported by others.

    Parameters
    ----------
    lives : Lives
    rows : INSTR[:]
    count : int64
    runs : int64[capacity, 6]
        Buffer of `footprint`.
    """
    book, owner = lives.book, lives.owner
    for i in range(count):
        row = rows[i]
        op = row["op"]
        book[ROW] += 1
        book[ROW_FINDINGS] = book[FINDINGS]
        if op == Op.ALLOC_TENSOR or op == Op.FREE_TENSOR:
            space, start, length = np.int64(row["dst_space"]), np.int64(row["dst"]), np.int64(row["count"])
            number = np.int64(row["value"])
            inside = 0 <= space < SPACES and 0 <= number < len(lives.alive) and start >= 0 and length >= 0
            if inside and book[BASE + space] >= 0:
                room = 32 * book[CELLS + space] - start
                if op == Op.ALLOC_TENSOR and length > room:
                    _report(lives, TOO_LARGE, np.int64(0), space, start, length)
                if room > 0 and op == Op.ALLOC_TENSOR:
                    _allocate(lives, number, space, start, min(length, room))
                elif room > 0:
                    _free(lives, number, space, start, min(length, room))
            continue
        at = book[ROW] & (WRITERS - 1)
        lives.writers[at, 0], lives.writers[at, 1], lives.writers[at, 2] = book[ROW], 0, 0
        has_lists = op == Op.TRANS_DATA_TO_5HD or op == Op.TRANS_DATA_BYTES
        if has_lists:
            repeats = np.int64(row["repeat"])
            _judge_list(lives, READ, row["src_list"], repeats, np.int64(row["src_rep_stride"]))
            _judge_list(lives, WRITE, row["dst_list"], repeats, np.int64(row["dst_rep_stride"]))
        for r in range(footprint(row, runs)):
            space, first = runs[r, 0], runs[r, 2]
            cells = book[CELLS + space]
            if book[BASE + space] < 0 or first < 0 or first >> 5 >= cells:
                continue
            intended = np.int64(0) if has_lists else owner[book[BASE + space] + (first >> 5)]
            for repeat in range(min(runs[r, 4], cells)):
                start = first + repeat * runs[r, 5]
                end = start + runs[r, 3]
                for cell in range(max(start >> 5, 0), min((end + 31) >> 5, cells)):
                    is_part = start > cell * 32 or end < cell * 32 + 32
                    _touch(lives, space, runs[r, 1], np.int64(cell), intended, is_part)


@jit
def end_core(lives: Any) -> None:
    """Report the buffers that are alive at the end of the core, at the rows that allocated them."""
    book, alive = lives.book, lives.alive
    for number in range(len(alive)):
        if alive[number, 0] != 0:
            book[ROW], book[ROW_FINDINGS] = alive[number, 0], book[FINDINGS]
            _report(lives, LEAK, np.int64(0), alive[number, 1], alive[number, 2], alive[number, 3])
