"""Happens-before checking of rows: vector clocks per pipe, shadow cells of 32 bytes with byte masks where needed.

**Entries.** Every row of a run has a serial number; ``entry = 8 * serial + pipe`` names an access in one word. Pipes
run in order, so "the other access is complete" is one comparison: ``entry <= clocks[pipe now, entry's pipe]``.

**Order.** A row follows the earlier rows of its pipe; on the pipes of `BARRIER_PIPES` it is issued behind them, but
meets their results only behind a barrier, or a wait that something the pipe set leads to. SET_FLAG saves what its pipe
knows, WAIT_FLAG joins that into its pipe (into every pipe when the scalar unit waits, since it issues everything that
follows). A barrier on `Pipe.ALL` joins all. Flags are single bits: after a fault the analysis goes on in the most
permissive way that still shows what the fault breaks - a wait without a set orders nothing, a second set replaces the
first.

**Lives.** What a pipe writes between its wait for a flag and its set of the flag of that number back belongs to the
handshake: the buffer is handed over full and comes back free. Once a reader of these bytes has handed the flag back
and the writer has taken it again, their content is over, and reading it is a stale read unless something wrote them
anew (`_is_stale`). ASSUMED: one flag number in both directions guards one buffer; where a write lies in several
handshakes with the reader, all must have turned. What a later write replaced in part is no stale read any more: the
next tile is smaller, and lanes behind its end that instructions read because they take whole fractals are not used.

**Shadow.** A cell of 32 bytes has seven slots. On chip: slot 0 the last writer, slot p the last reader on pipe p; the
scalar unit, pipe 0, reads only UB, so it has the slot of pipe M, which never does. GM: 0 the last plain writer, 1 and 2
the last atomic adder on MTE3 and FIX, 3 an atomic adder on an earlier core of the phase, 4 and 6 the last reader on
MTE2 and S (no other pipe reads GM), 5 a reader on an earlier core. A slot holds an entry, 0, or minus the number of
a list of nodes (byte mask, entry, next) when parts of the cell have different histories, so findings are exact to the
byte. Keeping only the last access is enough: if an older one were unordered with a new access, either the last one is
too, or the pair of the two was reported before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.footprint import ATOMIC_ADD, NO_FOOTPRINT, READ, WRITE, footprint
from npu_sim.isa.gm_extent import space_of
from npu_sim.isa.instruction import ITEM, Instruction
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Op, by_opcode
from npu_sim.program.limits import MMAD_BARRIER_ELEMS

SLOTS = 7
SPACES = 7
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
SPACE = 17
"""[7 spaces, 4]: first cell, capacity in bytes, alignment of addresses, spare."""
USED = SPACE + 4 * SPACES
"""[7 spaces, 7 slots]: whether a slot of a space was ever written."""
CLOCKS = USED + SPACES * SLOTS
"""[8 pipes p, 8 pipes q]: largest entry of q that is complete before the next row of p; `ALWAYS` for p = q, unless
rows of p need barriers. Row 7, of no pipe, is that of a row whose own pipe waits for it by itself."""
HELD = CLOCKS + PIPES * PIPES
"""[8 pipes]: bits of the flags (source, event) that a pipe has waited for and not set back."""
TURNED = HELD + PIPES
"""[8 pipes]: serial of the last wait of a pipe."""
BOOK_LENGTH = TURNED + PIPES

# finding codes
(
    RAW, WAR, WAW, CORE_RAW, CORE_WAR, CORE_WAW, UNINITIALISED, READ_BEYOND, WRITE_BEYOND, READ_NOWHERE, WRITE_NOWHERE,
    CAPACITY, READ_MISALIGNED, WRITE_MISALIGNED, WAIT_UNSET, SET_TWICE, LEFT_SET, BAD_EVENT, BAD_PIPE, FRAGMENTED,
    OTHER_CORE, OUTSIDE, TOO_LARGE, PIPE_RAW, PIPE_WAW, STALE,
) = (np.int64(code) for code in range(1, 27))  # fmt: skip

LIVES = 1 << 14
"""Rows back to which handshakes and opcodes are remembered."""
RUN_BLOCKS = 8
"""What a repetition of a run costs beside its blocks, in blocks."""
BLOCK_LIMIT = np.int64(1) << 18
"""Blocks of 32 bytes one row may touch, each as often as it does, and `RUN_BLOCKS` for every repetition of a run: 8 MiB
in one piece, several times what any buffer holds. It bounds the time a row takes, whatever its operands are."""

ALWAYS = np.int64(1) << 62
_FULL = np.int64(0xFFFFFFFF)
_ZERO = np.int64(0)
_ONE = np.int64(1)
_BLOCK_CELLS = 64
_PIPE_COUNT = 7
_ALL = np.int64(Pipe.ALL)
_GM = np.int64(Space.GM)
_FOREIGN_ATOMIC = np.int64(3)
_GM_READER = np.int64(4)
_GM_SCALAR_READER = np.int64(6)
_SCALAR_READER = np.int64(Pipe.M)
_FOREIGN_READER = np.int64(5)


class Shadow(NamedTuple):
    """Everything the engine remembers between chunks.

    Attributes
    ----------
    slots : int64[7, cells]
        Shadow cells, on-chip spaces first, then the GM arena.
    nodes : int64[capacity, 3]
        Byte mask, entry, next; node 0 is unused; free ones are chained by ``next``.
    book : int64[BOOK_LENGTH]
        Counters and small tables, see the names above.
    flags : int64[7 * 7 * events]
        Entry of the SET_FLAG that holds the flag (source, destination, event), 0: clear.
    flag_clocks : int64[7 * 7 * events, 8]
        Clocks of the source pipe at that moment.
    findings : int64[capacity, FINDING_FIELDS]
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
def _report(
    book: np.ndarray, findings: np.ndarray, code: Int, other: Int, space: Int, start: Int, length: Int, extra: Int
) -> None:
    """Note a finding of the current row, or widen the one with the same code and other row."""
    for i in range(book[ROW_FINDINGS], book[FINDINGS]):
        if findings[i, 0] == code and findings[i, 2] == other and findings[i, 3] == space:
            end = max(findings[i, 4] + findings[i, 5], start + length)
            findings[i, 4] = min(findings[i, 4], start)
            findings[i, 5] = end - findings[i, 4]
            return
    at = book[FINDINGS]
    if at == len(findings):
        if code != book[LAST_DROPPED] or book[SERIAL] != book[LAST_DROPPED + 1] or other != book[LAST_DROPPED + 2]:
            book[DROPPED] += 1
        book[LAST_DROPPED] = code
        book[LAST_DROPPED + 1] = book[SERIAL]
        book[LAST_DROPPED + 2] = other
        return
    book[FINDINGS] = at + 1
    findings[at, 0] = code
    findings[at, 1] = book[SERIAL]
    findings[at, 2] = other
    findings[at, 3] = space
    findings[at, 4] = start
    findings[at, 5] = length
    findings[at, 6] = extra


@jit
def _behind_equal(cells: np.ndarray, c: Int, c1: Int, entry: Int) -> Int:
    """Return the first of the cells ``[c, c1)`` that does not hold ``entry``, or ``c1``."""
    # Whole blocks first: an OR of differences is a vector loop, a search is not.
    while c + _BLOCK_CELLS <= c1:
        block = cells[c : c + _BLOCK_CELLS]
        differ = _ZERO
        for i in range(_BLOCK_CELLS):
            differ |= block[i] ^ entry
        if differ != 0:
            break
        c += _BLOCK_CELLS
    while c < c1 and cells[c] == entry:
        c += 1
    return c


@jit
def _is_stale(slots: np.ndarray, book: np.ndarray, lives: np.ndarray, turned: np.ndarray, c: Int, space: Int) -> bool:
    """Return whether a reader handed the content of cell ``c`` back and its writer has taken the buffer again."""
    entry = slots[0, c]
    serial, writer = entry >> 3, entry & 7
    if serial < book[CORE_BASE] or book[TURNED + writer] <= serial:
        return False
    row = serial & (LIVES - 1)
    if lives[row, 0] != serial or lives[row, 3] != 0:
        return False
    events = book[EVENTS]
    for q in range(1, _PIPE_COUNT):
        if book[USED + SLOTS * space + q] == 0:
            continue
        consumed = slots[q, c]
        held = lives[row, 1] >> (q * events) & ((_ONE << events) - 1)
        if held == 0 or consumed <= entry:
            continue
        is_over = True
        for event in range(events):
            if held >> event & 1 and turned[(q * _PIPE_COUNT + writer) * events + event] <= consumed >> 3:
                is_over = False
        if is_over:
            return True
    return False


@jit
def _end_lives(slots: np.ndarray, book: np.ndarray, lives: np.ndarray, c0: Int, c1: Int) -> None:
    """Note that the rows which wrote the cells ``[c0, c1)`` are being replaced, in part or whole."""
    c = c0
    while c < c1:
        entry = slots[0, c]
        c = _behind_equal(slots[0], c + 1, c1, entry)
        row = (entry >> 3) & (LIVES - 1)
        if entry > 0 and lives[row, 0] == entry >> 3 and entry >> 3 != book[SERIAL]:
            lives[row, 3] = 1


@jit
def _scan_lives(
    slots: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    turned: np.ndarray,
    c0: Int,
    c1: Int,
    space: Int,
) -> None:
    """Report the cells ``[c0, c1)`` whose content is over; histories of parts of a cell are not asked."""
    base = book[SPACE + 4 * space]
    c = c0
    while c < c1:
        first, entry = c, slots[0, c]
        c += 1
        if entry <= 0 or book[TURNED + (entry & 7)] <= entry >> 3:
            c = _behind_equal(slots[0], c, c1, entry)
        elif _is_stale(slots, book, lives, turned, first, space):
            _report(book, findings, STALE, entry, space, (first - base) * 32, np.int64(32), _ZERO)


@jit
def _is_alike(book: np.ndarray, lives: np.ndarray, entry: Int) -> bool:
    """Return whether the row of ``entry`` has the opcode of this one and both write in the order of their issue.

    ASSUMED: vector instructions of one kind take equally long to write, and fills do.
    """
    before, now = (entry >> 3) & (LIVES - 1), book[SERIAL] & (LIVES - 1)
    op = lives[now, 2]
    return (book[PIPE] == Pipe.V or op == Op.FILL) and lives[before, 0] == entry >> 3 and lives[before, 2] == op


@jit
def _judge(
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    entry: Int,
    limits: Int,
    own_code: Int,
    core_code: Int,
    floor: Int,
    init_floor: Int,
    space: Int,
    start: Int,
    length: Int,
) -> None:
    """Report what an earlier access ``entry`` (0: none) of these bytes means for the current one.

    ``floor`` is the lowest entry of this phase, ``init_floor`` the lowest one that counts as written (0: do not ask).
    """
    if entry >= book[CORE_BASE] * 8:
        if entry > book[limits + (entry & 7)]:
            if entry & 7 != book[PIPE]:
                _report(book, findings, own_code, entry, space, start, length, _ZERO)
            elif own_code == RAW and entry >> 3 != book[SERIAL]:
                _report(book, findings, PIPE_RAW, entry, space, start, length, _ZERO)
            elif entry >> 3 != book[SERIAL] and not _is_alike(book, lives, entry):
                _report(book, findings, PIPE_WAW, entry, space, start, length, _ZERO)
    elif entry >= floor:
        _report(book, findings, core_code, entry, space, start, length, _ZERO)
    elif entry < init_floor:
        _report(book, findings, UNINITIALISED, _ZERO, space, start, length, _ZERO)


@jit
def _mask_start(mask: Int) -> Int:
    """Return the lowest byte of a non-empty mask."""
    first = np.int64(0)
    while mask >> first & 1 == 0:
        first += 1
    return first


@jit
def _mask_length(mask: Int) -> Int:
    """Return the distance from the lowest to behind the highest byte of a non-empty mask."""
    end = np.int64(32)
    while mask >> (end - 1) & 1 == 0:
        end -= 1
    return end - _mask_start(mask)


@jit
def _judge_nodes(
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    head: Int,
    mask: Int,
    limits: Int,
    own_code: Int,
    core_code: Int,
    floor: Int,
    init_floor: Int,
    space: Int,
    cell_start: Int,
) -> None:
    """`_judge` for a cell with a list of nodes."""
    missing = mask
    while head != 0:
        part = nodes[head, 0] & mask
        if part != 0:
            entry = nodes[head, 1]
            if entry >= init_floor:
                missing &= ~part
            _judge(
                book, findings, lives, entry, limits, own_code, core_code, floor, _ZERO, space,
                cell_start + _mask_start(part), _mask_length(part),
            )  # fmt: skip
        head = nodes[head, 2]
    if missing != 0 and init_floor > 0:
        start = cell_start + _mask_start(missing)
        _report(book, findings, UNINITIALISED, _ZERO, space, start, _mask_length(missing), _ZERO)


@jit
def _scan(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    slot: Int,
    c0: Int,
    c1: Int,
    mask: Int,
    limits: Int,
    own_code: Int,
    core_code: Int,
    floor: Int,
    init_floor: Int,
    space: Int,
) -> None:
    """Judge the bytes ``mask`` of cells ``[c0, c1)`` against one slot; equal neighbours are judged once."""
    cells = slots[slot]
    base = book[SPACE + 4 * space + 0]
    c = c0
    while c < c1:
        entry = cells[c]
        first = c
        c += 1
        if entry < 0:
            _judge_nodes(
                nodes,
                book,
                findings,
                lives,
                -entry,
                mask,
                limits,
                own_code,
                core_code,
                floor,
                init_floor,
                space,
                (first - base) * 32,
            )
            continue
        c = _behind_equal(cells, c, c1, entry)
        if entry > book[limits + (entry & 7)] or entry < init_floor or (floor <= entry < book[CORE_BASE] * 8):
            start, length = (first - base) * 32, (c - first) * 32
            if mask != _FULL:
                start, length = start + _mask_start(mask), _mask_length(mask)
            _judge(book, findings, lives, entry, limits, own_code, core_code, floor, init_floor, space, start, length)


@jit
def _new_node(nodes: np.ndarray, book: np.ndarray, mask: Int, entry: Int, following: Int) -> Int:
    """Take a node from the free list (the caller made sure that there is one)."""
    node = book[FREE]
    book[FREE] = nodes[node, 2]
    book[FREE_COUNT] -= 1
    nodes[node, 0] = mask
    nodes[node, 1] = entry
    nodes[node, 2] = following
    return node


@jit
def _free_node(nodes: np.ndarray, book: np.ndarray, node: Int) -> Int:
    """Put a node back; return the one behind it."""
    following = nodes[node, 2]
    nodes[node, 2] = book[FREE]
    book[FREE] = node
    book[FREE_COUNT] += 1
    return following


@jit
def _set_part(slots: np.ndarray, nodes: np.ndarray, book: np.ndarray, slot: Int, c: Int, mask: Int, entry: Int) -> None:
    """Make ``entry`` the last access of the bytes ``mask`` of one cell."""
    old = slots[slot, c]
    if old >= 0:
        if old == entry:
            return
        rest = _new_node(nodes, book, _FULL & ~mask, old, _ZERO) if old > 0 else _ZERO
        slots[slot, c] = -_new_node(nodes, book, mask, entry, rest)
        return
    kept, node, together = _ZERO, -old, mask
    while node != 0:
        left = nodes[node, 0] & ~mask
        same = nodes[node, 1] == entry
        if left == 0 or same:
            if same:
                together |= left
            node = _free_node(nodes, book, node)
        else:
            nodes[node, 0] = left
            following = nodes[node, 2]
            nodes[node, 2] = kept
            kept, node = node, following
    if together == _FULL:
        slots[slot, c] = entry
    else:
        slots[slot, c] = -_new_node(nodes, book, together, entry, kept)


@jit
def _set(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    slot: Int,
    c0: Int,
    c1: Int,
    mask: Int,
    entry: Int,
    space: Int,
) -> None:
    """Make ``entry`` the last access of the bytes ``mask`` of cells ``[c0, c1)``."""
    book[USED + SLOTS * space + slot] = 1
    if mask != _FULL:
        for c in range(c0, c1):
            _set_part(slots, nodes, book, slot, c, mask, entry)
        return
    cells = slots[slot]
    if book[FREE_COUNT] != book[NODE_COUNT]:
        for c in range(c0, c1):
            node = -cells[c]
            while node > 0:
                node = _free_node(nodes, book, node)
    part = cells[c0:c1]
    for i in range(len(part)):
        part[i] = entry


@jit
def _keep_foreign(
    slots: np.ndarray, nodes: np.ndarray, book: np.ndarray, source: Int, target: Int, c0: Int, c1: Int, mask: Int
) -> None:
    """Copy entries of earlier cores of this phase from slot ``source`` to ``target`` before they are overwritten."""
    floor, limit = book[PHASE_BASE] * 8, book[CORE_BASE] * 8
    c = c0
    while c < c1:
        first, entry = c, slots[source, c]
        c += 1
        if entry >= 0:
            c = _behind_equal(slots[source], c, c1, entry)
            if floor <= entry < limit:
                _set(slots, nodes, book, target, first, c, mask, entry, _GM)
            continue
        node = -entry
        while node != 0:
            part, entry = nodes[node, 0] & mask, nodes[node, 1]
            if part != 0 and floor <= entry < limit:
                _set(slots, nodes, book, target, first, c, part, entry, _GM)
            node = nodes[node, 2]


@jit
def _touch_cells(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    turned: np.ndarray,
    space: Int,
    access: Int,
    entry: Int,
    limits: Int,
    c0: Int,
    c1: Int,
    mask: Int,
    init_floor: Int,
) -> None:
    """Check an access to the bytes ``mask`` of cells ``[c0, c1)`` against every slot that matters, then record it."""
    pipe = entry & 7
    on_chip = space != _GM
    reader = pipe if pipe != Pipe.S else _SCALAR_READER
    core_floor = book[CORE_BASE] * 8
    floor = book[PHASE_BASE] * 8
    if on_chip:
        # What other cores left in a buffer does not exist.
        floor = core_floor
        init_floor = core_floor if access == READ else _ZERO
    for slot in range(SLOTS):
        if slot > 0 and book[USED + SLOTS * space + slot] == 0:
            continue
        is_reader = slot > 0 if on_chip else slot > 3
        if is_reader and (access == READ or (on_chip and slot == reader)):
            continue
        if access == ATOMIC_ADD and 1 <= slot <= 3:
            continue
        own_code, core_code = WAW, CORE_WAW
        if is_reader:
            own_code, core_code = WAR, CORE_WAR
        elif access == READ:
            own_code, core_code = RAW, CORE_RAW
        init = init_floor if slot == 0 else _ZERO
        _scan(
            slots,
            nodes,
            book,
            findings,
            lives,
            np.int64(slot),
            c0,
            c1,
            mask,
            limits,
            own_code,
            core_code,
            floor,
            init,
            space,
        )
    target, foreign = _ZERO, _ZERO
    if on_chip:
        if access == READ:
            target = reader
    elif access == READ:
        target, foreign = _GM_READER if pipe != Pipe.S else _GM_SCALAR_READER, _FOREIGN_READER
    elif access == ATOMIC_ADD:
        target, foreign = np.int64(1 if pipe == Pipe.MTE3 else 2), _FOREIGN_ATOMIC
    if foreign != 0 and floor != core_floor:
        _keep_foreign(slots, nodes, book, target, foreign, c0, c1, mask)
    if on_chip and access == READ:
        _scan_lives(slots, book, findings, lives, turned, c0, c1, space)
    elif on_chip:
        _end_lives(slots, book, lives, c0, c1)
    _set(slots, nodes, book, target, c0, c1, mask, entry, space)


@jit
def _touch_bytes(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    turned: np.ndarray,
    space: Int,
    access: Int,
    entry: Int,
    limits: Int,
    start: Int,
    end: Int,
    init_floor: Int,
) -> None:
    """Check and record an access to the bytes ``[start, end)``: a part of a cell, whole cells, a part of a cell."""
    base = book[SPACE + 4 * space + 0]
    while start < end:
        cell, lead = start >> 5, start & 31
        if lead == 0 and end - start >= 32:
            behind, mask = end >> 5, _FULL
        else:
            behind = cell + 1
            mask = (_FULL << lead) & _FULL
            if behind * 32 > end:
                mask &= (_ONE << (end & 31)) - 1
        _touch_cells(
            slots,
            nodes,
            book,
            findings,
            lives,
            turned,
            space,
            access,
            entry,
            limits,
            base + cell,
            base + behind,
            mask,
            init_floor,
        )
        start = behind * 32


@jit
def _beyond(
    book: np.ndarray, findings: np.ndarray, access: Int, space: Int, low: Int, high: Int, start: Int, end: Int
) -> None:
    """Report the part of ``[start, end)`` outside ``[low, high)``."""
    code = CAPACITY
    if space == _GM:
        code = READ_BEYOND if access == READ else WRITE_BEYOND
    _report(book, findings, code, _ZERO, space, start, end - start, high if end > high else low)


@jit
def _touch_run(
    slots: np.ndarray,
    nodes: np.ndarray,
    book: np.ndarray,
    findings: np.ndarray,
    lives: np.ndarray,
    turned: np.ndarray,
    births: np.ndarray,
    tensors: np.ndarray,
    runs: np.ndarray,
    r: Int,
    entry: Int,
    limits: Int,
    tensor: Int,
) -> None:
    """Check and record run ``r`` of a footprint."""
    space, access, start = runs[r, 0], runs[r, 1], runs[r, 2]
    length, repeats, stride = runs[r, 3], runs[r, 4], runs[r, 5]
    low, high = _ZERO, book[SPACE + 4 * space + 1]
    data_end, init_floor = high, _ZERO
    if space == _GM:
        if tensor < 0 or tensor >= len(tensors):
            code = READ_NOWHERE if access == READ else WRITE_NOWHERE
            _report(book, findings, code, _ZERO, space, start, (repeats - 1) * stride + length, tensor)
            return
        low = tensors[tensor, 0]
        high = low + tensors[tensor, 2]
        data_end = low + tensors[tensor, 1]
        # An atomic add reads its destination. Spare bytes behind a tensor may be read without having been written.
        if births[tensor] == 0:
            births[tensor] = book[LAUNCH_BASE]
        if access != WRITE and tensors[tensor, 3] == 0:
            init_floor = births[tensor] * 8
    first, last = _ZERO, repeats
    if start < low or start + (repeats - 1) * stride + length > high:
        _beyond(book, findings, access, space, low, high, start, start + (repeats - 1) * stride + length)
        if start < low:
            first = max(first, (low - start - length) // stride + 1)
        last = min(last, (high - start + stride - 1) // stride)
    for i in range(first, last):
        begin = max(low, start + i * stride)
        end = min(high, start + i * stride + length)
        if begin >= end:
            continue
        if init_floor == 0 or end <= data_end:
            _touch_bytes(
                slots, nodes, book, findings, lives, turned, space, access, entry, limits, begin, end, init_floor
            )
        else:
            if begin < data_end:
                _touch_bytes(
                    slots,
                    nodes,
                    book,
                    findings,
                    lives,
                    turned,
                    space,
                    access,
                    entry,
                    limits,
                    begin,
                    data_end,
                    init_floor,
                )
            _touch_bytes(
                slots,
                nodes,
                book,
                findings,
                lives,
                turned,
                space,
                access,
                entry,
                limits,
                max(begin, data_end),
                end,
                _ZERO,
            )


@jit
def _blocks_touched(book: np.ndarray, runs: np.ndarray, count: Int) -> Int:
    """Return an upper bound of what counts against `BLOCK_LIMIT` in ``count`` runs; it stops above that."""
    blocks = np.int64(0)
    for i in range(count):
        capacity = book[SPACE + 4 * runs[i, 0] + 1]
        repeats = min(runs[i, 4], capacity // runs[i, 5] + 2)
        blocks += repeats * ((min(runs[i, 3], capacity) >> 5) + RUN_BLOCKS)
        if blocks > BLOCK_LIMIT:
            break
    return blocks


@jit
def _nodes_needed(book: np.ndarray, runs: np.ndarray, count: Int) -> Int:
    """Return an upper bound of the nodes that recording the ``count`` runs in ``runs`` may take.

    A partly touched cell takes two nodes, in GM two more for what an earlier core did there. Keeping lists of earlier
    cores copies each of their nodes at most once.
    """
    needed = np.int64(8 * count)
    for i in range(count):
        space = runs[i, 0]
        if (runs[i, 2] | runs[i, 3] | runs[i, 5]) & 31 != 0:
            needed += 8 * min(runs[i, 4], book[SPACE + 4 * space + 1] // runs[i, 5] + 2)
    if book[PHASE_BASE] != book[CORE_BASE]:
        needed += 3 * (book[NODE_COUNT] - book[FREE_COUNT])
    return needed


_OPERANDS = ("dst", "src0", "src1")


def _pipes(instruction: Instruction) -> np.ndarray:
    """Return int8[8, 8]: the pipe of each data path (destination, source), -1 where there is none."""
    table = np.full((8, 8), -1, np.int8)
    for (destination, source), pipe in instruction.routes.items():
        table[destination, source] = pipe
    return table


_PIPE_OF_PATH = by_opcode(_pipes, default=np.full((8, 8), -1), dtype=np.int8)
_IS_SYNCHRONISATION = by_opcode(lambda instruction: not instruction.routes, dtype=np.bool_)
"""Flags, barriers and core state: what touches no memory."""
_IS_SYNCHRONISATION[Op.NOP] = True
_ALIGNMENT = by_opcode(
    lambda instruction: [instruction.alignment.get(name, 0) for name in _OPERANDS], default=[0, 0, 0], dtype=np.int64
)
_IS_ADDRESS = by_opcode(
    lambda instruction: [name in instruction.fields for name in _OPERANDS], default=[False] * 3, dtype=np.bool_
)


@jit
def _expected_pipe(row: Any) -> Int:
    """Return the pipe that must run a memory instruction, -1 for an unknown one or a data path that exists nowhere."""
    dst, src = space_of(row, 0), space_of(row, 1)
    if dst > 7 or src > 7:
        return np.int64(-1)
    return np.int64(_PIPE_OF_PATH[row["op"], dst, src])


@jit
def _check_alignment(book: np.ndarray, findings: np.ndarray, row: Any) -> None:
    """Check the start addresses of an instruction that does something, sources first."""
    op = row["op"]
    for operand in (1, 2, 0):
        if not _IS_ADDRESS[op, operand]:
            continue
        space = space_of(row, operand)
        alignment = _ALIGNMENT[op, operand]
        if alignment == ITEM:
            alignment = np.int64(item_bytes(row["dtype"]))
        elif alignment == 0:
            alignment = book[SPACE + 4 * space + 2]
        address = np.int64(row["dst"]) if operand == 0 else np.int64(row["src0"]) if operand == 1 else row["src1"]
        if address % alignment != 0:
            code = WRITE_MISALIGNED if operand == 0 else READ_MISALIGNED
            _report(book, findings, code, _ZERO, space, address, _ONE, alignment)


@jit
def _synchronise(
    book: np.ndarray,
    findings: np.ndarray,
    flags: np.ndarray,
    flag_clocks: np.ndarray,
    turned: np.ndarray,
    row: Any,
) -> None:
    """SET_FLAG, WAIT_FLAG and PIPE_BARRIER."""
    op, pipe = row["op"], np.int64(row["pipe"])
    now = book[SERIAL] * 8 + 7
    if op == Op.PIPE_BARRIER:
        if pipe > Pipe.ALL:
            _report(book, findings, BAD_PIPE, _ZERO, _ZERO, _ZERO, _ZERO, pipe)
        elif pipe == Pipe.ALL:
            for p in range(PIPES):
                for q in range(PIPES):
                    book[CLOCKS + PIPES * p + q] = max(book[CLOCKS + PIPES * p + q], now)
        else:
            own = CLOCKS + PIPES * pipe + pipe
            book[own] = max(book[own], now)
        return
    peer, event = np.int64(row["peer"]), np.int64(row["event"])
    if pipe >= Pipe.ALL or peer >= Pipe.ALL or pipe == peer:
        _report(book, findings, BAD_PIPE, _ZERO, _ZERO, _ZERO, _ZERO, pipe)
        return
    if event >= book[EVENTS]:
        _report(book, findings, BAD_EVENT, _ZERO, _ZERO, _ZERO, _ZERO, event)
        return
    if op == Op.SET_FLAG:
        flag = (pipe * 7 + peer) * book[EVENTS] + event
        if flags[flag] != 0:
            _report(book, findings, SET_TWICE, flags[flag], _ZERO, _ZERO, _ZERO, event)
        flags[flag] = book[SERIAL] * 8 + pipe
        for q in range(PIPES):
            flag_clocks[flag, q] = book[CLOCKS + PIPES * pipe + q]
        flag_clocks[flag, pipe] = now
        book[HELD + pipe] &= ~(_ONE << (peer * book[EVENTS] + event))
        return
    flag = (peer * 7 + pipe) * book[EVENTS] + event
    if flags[flag] == 0:
        _report(book, findings, WAIT_UNSET, _ZERO, _ZERO, _ZERO, _ZERO, event)
        return
    flags[flag] = 0
    if book[BY_HANDSHAKES] != 0:
        turned[flag] = book[TURNED + pipe] = book[SERIAL]
        book[HELD + pipe] |= _ONE << (peer * book[EVENTS] + event)
    for p in range(PIPES):
        if p == pipe or pipe == Pipe.S:
            for q in range(PIPES):
                book[CLOCKS + PIPES * p + q] = max(book[CLOCKS + PIPES * p + q], flag_clocks[flag, q])


@jit
def _limits_of(book: np.ndarray, row: Any) -> Int:
    """Return where the clocks of a memory instruction are."""
    pipe = np.int64(row["pipe"])
    own = CLOCKS + PIPES * pipe
    if row["op"] != Op.MMAD or np.int64(row["m"]) * np.int64(row["n"]) < MMAD_BARRIER_ELEMS:
        return own
    ordered = CLOCKS + PIPES * _ALL
    for q in range(PIPES):
        book[ordered + q] = book[own + q]
    book[ordered + pipe] = ALWAYS
    return ordered


@jit
def begin_core(shadow: Any, new_phase: Int) -> None:
    """Start the rows of the next core (and phase): everything earlier is complete, all flags are clear."""
    book, flags = shadow.book, shadow.flags
    book[CORE_BASE] = book[SERIAL]
    if new_phase:
        book[PHASE_BASE] = book[SERIAL]
    for p in range(PIPES):
        for q in range(PIPES):
            is_ordered = p == q and book[BARRIER_PIPES] >> p & 1 == 0
            book[CLOCKS + PIPES * p + q] = ALWAYS if is_ordered else book[SERIAL] * 8 - 1
        book[HELD + p] = book[TURNED + p] = 0
    for flag in range(len(flags)):
        flags[flag] = shadow.turned[flag] = 0


@jit
def end_core(shadow: Any) -> None:
    """Report the flags that the core's rows of this phase leave set."""
    book, flags = shadow.book, shadow.flags
    serial = book[SERIAL]
    for flag in range(len(flags)):
        if flags[flag] != 0:
            book[ROW_FINDINGS] = book[FINDINGS]
            book[SERIAL] = flags[flag] >> 3
            _report(book, shadow.findings, LEFT_SET, _ZERO, _ZERO, _ZERO, _ZERO, flag % book[EVENTS])
    book[SERIAL] = serial


@jit
def check_rows(shadow: Any, rows: np.ndarray, first: Int, end: Int) -> Int:
    """Check ``rows[first:end]``, which went through `issue`.

    Parameters
    ----------
    shadow : Shadow
    rows : INSTR[:]
    first, end : int64

    Returns
    -------
    int
        ``end``, or the row before which ``shadow.nodes`` must grow (by `nodes_needed_by`).
    """
    # Taken out of the tuple once: handing the tuple from function to function would count references every time.
    slots, nodes, book, findings = shadow.slots, shadow.nodes, shadow.book, shadow.findings
    flags, flag_clocks, tensors, runs = shadow.flags, shadow.flag_clocks, shadow.tensors, shadow.runs
    lives, turned, births = shadow.lives, shadow.turned, shadow.births
    for i in range(first, end):
        row = rows[i]
        op = row["op"]
        book[ROW_FINDINGS] = book[FINDINGS]
        if _IS_SYNCHRONISATION[op]:
            if op == Op.SET_FLAG or op == Op.WAIT_FLAG or op == Op.PIPE_BARRIER:
                _synchronise(book, findings, flags, flag_clocks, turned, row)
            book[SERIAL] += 1
            continue
        pipe = np.int64(row["pipe"])
        count = np.int64(0)
        if pipe != _expected_pipe(row):
            _report(book, findings, BAD_PIPE, _ZERO, _ZERO, _ZERO, _ZERO, pipe)
        else:
            count = footprint(row, runs)
        if count == NO_FOOTPRINT:
            _report(book, findings, OUTSIDE, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO)
        elif count < 0:
            _report(book, findings, FRAGMENTED, _ZERO, _ZERO, _ZERO, _ZERO, np.int64(len(runs)))
        elif _blocks_touched(book, runs, count) > BLOCK_LIMIT:
            _report(book, findings, TOO_LARGE, _ZERO, _ZERO, _ZERO, _ZERO, BLOCK_LIMIT)
            count = np.int64(0)
        if count > 0:
            if _nodes_needed(book, runs, count) > book[FREE_COUNT]:
                return i
            _check_alignment(book, findings, row)
        book[PIPE] = pipe
        limits = _limits_of(book, row) if count > 0 else _ZERO
        entry = book[SERIAL] * 8 + pipe
        if count > 0:
            # only the pipe of a row that touches something is known to be one
            life = lives[book[SERIAL] & (LIVES - 1)]
            life[0], life[1], life[2], life[3] = book[SERIAL], book[HELD + pipe], op, 0
        for r in range(count):
            _touch_run(
                slots,
                nodes,
                book,
                findings,
                lives,
                turned,
                births,
                tensors,
                runs,
                r,
                entry,
                limits,
                np.int64(row["tensor"]),
            )
        book[SERIAL] += 1
    return end


@jit
def nodes_needed_by(shadow: Any, rows: np.ndarray, index: Int) -> Int:
    """Return the nodes that ``rows[index]`` may need."""
    return _nodes_needed(shadow.book, shadow.runs, footprint(rows[index], shadow.runs))


@jit
def unwritten(shadow: Any, tensor: Int, hole: np.ndarray) -> Int:
    """Count the bytes of a GM tensor that nothing wrote or added to; the first and the last of them go to ``hole``.

    Parameters
    ----------
    shadow : Shadow
    tensor : int64
    hole : int64[2]
        First byte in the arena and byte behind the last.
    """
    slots, nodes, book, tensors = shadow.slots, shadow.nodes, shadow.book, shadow.tensors
    start, missing = tensors[tensor, 0], np.int64(0)
    end, born = start + tensors[tensor, 1], shadow.births[tensor] * 8
    base = book[SPACE + 4 * _GM]
    for cell in range(start >> 5, (end + 31) >> 5):
        written = _ZERO
        for slot in range(4):
            entry = slots[slot, base + cell]
            if entry > 0 and entry >= born:
                written = _FULL
            node = -entry
            while node > 0:
                if nodes[node, 1] >= born:
                    written |= nodes[node, 0]
                node = nodes[node, 2]
        if written == _FULL:
            continue
        for byte in range(max(start - cell * 32, 0), min(end - cell * 32, 32)):
            if written >> byte & 1 == 0:
                if missing == 0:
                    hole[0] = cell * 32 + byte
                hole[1] = cell * 32 + byte + 1
                missing += 1
    return missing
