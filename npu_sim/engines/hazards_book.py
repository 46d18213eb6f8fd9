"""What the hazards engine remembers between rows: its shadow memory, counters, tables and findings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import SPACES, Pipe, Space

SLOTS = 7
REGIONS = SLOTS
"""Row of `Shadow.slots` behind them, of words for regions of GM: bits of the slots that any cell there ever had."""
REGION_BITS = 11
"""A region is that many bits of a cell's number: 64 KiB."""
REGIONS_ASKED = 64
"""Of an access to more regions every slot counts as used."""
PIPES = 8
NODE_FIELDS = 3
FINDING_FIELDS = 7
"""Code, serial of the row, entry of the other row (0: none), space, first byte, bytes, extra number."""

# words of the book: counters, then tables
SERIAL, CORE_BASE, PHASE_BASE, FINDINGS, DROPPED, FREE, FREE_COUNT, NODE_COUNT, EVENTS, ROW_FINDINGS = range(10)
LAST_DROPPED = 10
"""[3]: code, serial and other row of the last finding that found no room."""
LAUNCH_BASE = 15
"""Serial of the first row of the launch."""
PIPE = 14
"""Pipe of the current row."""
BARRIER_PIPES = 13
"""Bits of the pipes whose dependent rows need a barrier between them."""
BY_HANDSHAKES = 16
"""Whether lives of tiles are told from handshakes; else rows say them (`npu_sim.engines.buffers`)."""
CHIP_BASE = 17
"""Serial of the first row whose accesses to the buffers of the core count."""
CHIP_FLOOR = 18
"""Serial of the first row whose accesses to the buffers of the core need an order."""
CORES = 19
"""Cores that run by turns (`npu_sim.engines.hazards_turns`); 0: they do not."""
CORE = 20
"""Which of them runs."""
TURNS = 21
"""Turns of the phase so far."""
LENIENT = 22
"""Whether a wait for a flag that is not set is passed over, with a finding; else checking stops there."""
STOPPED = 23
"""Whether it has stopped there."""
GM_ONLY = 24
"""Whether only accesses to GM are checked: an equal program has shown that those to the buffers of a core are right."""
SPACE = 25
"""[spaces, 4]: first cell, capacity in bytes, alignment of addresses, spare."""
USED = SPACE + 4 * SPACES
"""[spaces, 7 slots]: whether a slot of a space was ever written."""
CLOCKS = USED + SPACES * SLOTS
"""[8 pipes p, 8 pipes q]: largest entry of q that is complete before the next row of p; `ALWAYS` for p = q, unless
rows of p need barriers. Row 7, of no pipe, is that of a row whose own pipe waits for it by itself."""
HELD = CLOCKS + PIPES * PIPES
"""[8 pipes]: bits of the flags (source, event) that a pipe has waited for and not set back."""
TURNED = HELD + PIPES
"""[8 pipes]: serial of the last wait of a pipe."""
CODES = 28
KEPT = TURNED + PIPES
"""[codes]: how many findings of a code are in the list."""
LEFT = KEPT + CODES
"""[codes]: how many found no room there. The first of a code always does."""
BOOK_LENGTH = LEFT + CODES
KNOWN = BOOK_LENGTH
"""[cores, 8 pipes], where cores run by turns: largest entry of a pipe of a core that is complete before the next row of
the running one. Behind it [turns, 2]: serial of the first row of a turn, and its core."""

# finding codes
(
    RAW, WAR, WAW, CORE_RAW, CORE_WAR, CORE_WAW, UNINITIALISED, READ_BEYOND, WRITE_BEYOND, READ_NOWHERE, WRITE_NOWHERE,
    CAPACITY, READ_MISALIGNED, WRITE_MISALIGNED, WAIT_UNSET, SET_TWICE, LEFT_SET, BAD_EVENT, BAD_PIPE, FRAGMENTED,
    OTHER_CORE, OUTSIDE, TOO_LARGE, PIPE_RAW, PIPE_WAW, STALE, CROSSING,
) = (np.int64(code) for code in range(1, CODES))  # fmt: skip

LIVES = 1 << 14
"""Rows back to which handshakes and opcodes are remembered."""
RUN_BLOCKS = 8
"""What a repetition of a run costs beside its blocks, in blocks."""
BLOCK_LIMIT = np.int64(1) << 18
"""Blocks of 32 bytes one row may touch, each as often as it does, and `RUN_BLOCKS` for every repetition of a run: 8 MiB
in one piece, several times what any buffer holds. It bounds the time a row takes, whatever its operands are."""

ALWAYS = np.int64(1) << 62
FULL = np.int64(0xFFFFFFFF)
ZERO = np.int64(0)
ONE = np.int64(1)
BLOCK_CELLS = 16
PIPE_COUNT = 7
NO_PIPE = np.int64(7)
"""In an entry: of no row, see `hazards_jit.note_plain_store`."""
ALL = np.int64(Pipe.ALL)
GM = np.int64(Space.GM)
UB = np.int64(Space.UB)
FOREIGN_ATOMIC = np.int64(3)
GM_READER = np.int64(4)
GM_SCALAR_READER = np.int64(6)
SCALAR_READER = np.int64(Pipe.M)
FOREIGN_READER = np.int64(5)
LEFT_OPEN = np.int64(Pipe.FIX)
"""Of UB: who wrote it last and left open what it holds; no pipe of that number reads it."""


class Shadow(NamedTuple):
    """Everything the engine remembers between chunks.

    Attributes
    ----------
    slots : int64[7 + 1, cells]
        Shadow cells, on-chip spaces first, then the GM arena; and `REGIONS`.
    nodes : int64[capacity, 3]
        Byte mask, entry, next; node 0 is unused; free ones are chained by ``next``.
    book : int64[BOOK_LENGTH or more]
        Counters and small tables, see the names above.
    flags : int64[7 * 7 * events]
        Entry of the SET_FLAG that holds the flag (source, destination, event), 0: clear.
    flag_clocks : int64[7 * 7 * events, 8]
        Clocks of the source pipe at that moment.
    findings : int64[capacity + CODES, FINDING_FIELDS]
        What was found.
    tensors : int64[tensors, 4]
        `GlobalMemory.table`.
    runs : int64[capacity, 6]
        Buffer of `footprint`.
    lives : int64[LIVES, 4]
        At its serial modulo LIVES: serial of a row, flags its pipe held (`HELD`), opcode, whether any byte it wrote was
        written again.
    turned : int64[7 * 7 * events]
        Serial of the last wait for the flag.
    births : int64[tensors]
        Serial of the first row of the launch that touched the tensor first, 0: none has. What its bytes held before is
        of another tensor, whose workspace was there.
    """

    slots: np.ndarray
    nodes: np.ndarray
    book: np.ndarray
    flags: np.ndarray
    flag_clocks: np.ndarray
    findings: np.ndarray
    tensors: np.ndarray
    runs: np.ndarray
    lives: np.ndarray
    turned: np.ndarray
    births: np.ndarray


@jit
def widened(
    findings: np.ndarray, first: Int, last: Int, code: Int, other: Int, space: Int, start: Int, length: Int
) -> Flag:
    """Widen the one of ``findings[first:last]`` with this code, other row and space; return whether there is one."""
    for i in range(first, last):
        if findings[i, 0] == code and findings[i, 2] == other and findings[i, 3] == space:
            end = max(findings[i, 4] + findings[i, 5], start + length)
            findings[i, 4] = min(findings[i, 4], start)
            findings[i, 5] = end - findings[i, 4]
            return True
    return False


@jit
def report(
    book: np.ndarray, findings: np.ndarray, code: Int, other: Int, space: Int, start: Int, length: Int, extra: Int
) -> None:
    """Note a finding of the current row, or widen the one with the same code and other row."""
    if widened(findings, book[ROW_FINDINGS], book[FINDINGS], code, other, space, start, length):
        return
    at = book[FINDINGS]
    if at >= len(findings) - CODES and book[KEPT + code] > 0:
        if code != book[LAST_DROPPED] or book[SERIAL] != book[LAST_DROPPED + 1] or other != book[LAST_DROPPED + 2]:
            book[DROPPED] += 1
            book[LEFT + code] += 1
        book[LAST_DROPPED] = code
        book[LAST_DROPPED + 1] = book[SERIAL]
        book[LAST_DROPPED + 2] = other
        return
    book[FINDINGS] = at + 1
    book[KEPT + code] += 1
    findings[at, 0] = code
    findings[at, 1] = book[SERIAL]
    findings[at, 2] = other
    findings[at, 3] = space
    findings[at, 4] = start
    findings[at, 5] = length
    findings[at, 6] = extra
