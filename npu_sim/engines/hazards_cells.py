"""Shadow cells of the hazards engine: who touched which bytes, what that means for the next access, whose life is over.

**Lives.** What a pipe writes between its wait for a flag and its set of the flag of that number back belongs to the
handshake: the buffer is handed over full and comes back free. Once a reader of these bytes has handed the flag back
and the writer has taken it again, their content is over, and reading it is a stale read unless something wrote them
anew (`scan_lives`). ASSUMED: one flag number in both directions guards one buffer; where a write lies in several
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

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.engines.hazards_book import (
    ALWAYS,
    BLOCK_CELLS,
    CHIP_BASE,
    CORE,
    CORE_BASE,
    CORES,
    EVENTS,
    FREE,
    FREE_COUNT,
    FULL,
    GM,
    KNOWN,
    LEFT_OPEN,
    LIVES,
    NODE_COUNT,
    ONE,
    PHASE_BASE,
    PIPE,
    PIPE_COUNT,
    PIPE_RAW,
    PIPE_WAW,
    RAW,
    REGION_BITS,
    REGIONS,
    REGIONS_ASKED,
    SERIAL,
    SLOTS,
    SPACE,
    STALE,
    TURNED,
    TURNS,
    UB,
    UNINITIALISED,
    USED,
    ZERO,
    report,
)
from npu_sim.isa.codes import Pipe
from npu_sim.isa.op import Op


@jit
def _behind_equal(cells: np.ndarray, c: Int, c1: Int, entry: Int) -> Int:
    """Return the first of the cells ``[c, c1)`` that does not hold ``entry``, or ``c1``."""
    # Whole blocks first: an OR of differences is a vector loop, a search is not.
    while c + BLOCK_CELLS <= c1:
        block = cells[c : c + BLOCK_CELLS]
        differ = ZERO
        for i in range(BLOCK_CELLS):
            differ |= block[i] ^ entry
        if differ != 0:
            break
        c += BLOCK_CELLS
    while c < c1 and cells[c] == entry:
        c += 1
    return c


@jit
def _given_back(book: np.ndarray, lives: np.ndarray, turned: np.ndarray, entry: Int, q: Int) -> Int:
    """Return the entry before which a read of pipe ``q`` ends the life of what ``entry`` wrote; 0 if none does.

    Its writer has taken every flag of ``q`` again that it held then, and all that it wrote is still there.
    """
    serial, writer, events = entry >> 3, entry & 7, book[EVENTS]
    if entry <= 0 or serial < book[CHIP_BASE] or book[TURNED + writer] <= serial:
        return ZERO
    row = serial & (LIVES - 1)
    held = lives[row, 1] >> (q * events) & ((ONE << events) - 1)
    if held == 0 or lives[row, 0] != serial or lives[row, 3] != 0:
        return ZERO
    oldest = ALWAYS >> 3
    for event in range(events):
        if held >> event & 1:
            oldest = min(oldest, turned[(q * PIPE_COUNT + writer) * events + event])
    return oldest << 3


@jit
def end_lives(slots: np.ndarray, book: np.ndarray, lives: np.ndarray, c0: Int, c1: Int) -> None:
    """Note that the rows which wrote the cells ``[c0, c1)`` are being replaced, in part or whole."""
    c = c0
    while c < c1:
        entry = slots[0, c]
        c = _behind_equal(slots[0], c, c1, entry)
        row = (entry >> 3) & (LIVES - 1)
        if entry > 0 and lives[row, 0] == entry >> 3 and entry >> 3 != book[SERIAL]:
            lives[row, 3] = 1


@jit
def scan_lives(
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
    writers = slots[0]
    for q in range(1, PIPE_COUNT):
        if book[USED + SLOTS * space + q] == 0 or (space == UB and q == LEFT_OPEN):
            continue
        readers = slots[q]
        # two rows are remembered: what was loaded into a filled map takes turns with the fill
        entry: Int = ZERO
        limit: Int = ZERO
        other: Int = ZERO
        other_limit: Int = ZERO
        c = c0
        while c < c1:
            if writers[c] != entry:
                entry, limit, other, other_limit = other, other_limit, entry, limit
            if writers[c] != entry:
                entry = writers[c]
                limit = _given_back(book, lives, turned, entry, np.int64(q))
            if limit <= max(entry, ZERO):
                c = _behind_equal(writers, c, c1, entry)
                continue
            if entry < readers[c] < limit:
                report(book, findings, STALE, entry, space, (c - base) * 32, np.int64(32), ZERO)
            c += 1


@jit
def _is_alike(book: np.ndarray, lives: np.ndarray, entry: Int) -> bool:
    """Return whether the row of ``entry`` has the opcode of this one and both write in the order of their issue.

    ASSUMED: vector instructions of one kind take equally long to write, and fills do.
    """
    before, now = (entry >> 3) & (LIVES - 1), book[SERIAL] & (LIVES - 1)
    op = lives[now, 2]
    return (book[PIPE] == Pipe.V or op == Op.FILL) and lives[before, 0] == entry >> 3 and lives[before, 2] == op


@jit
def _owner(book: np.ndarray, serial: Int) -> Int:
    """Return the core whose row has a serial of this phase, where cores run by turns."""
    turns = KNOWN + 8 * book[CORES]
    low, high = np.int64(0), book[TURNS]
    while high - low > 1:
        middle = (low + high) >> 1
        if book[turns + 2 * middle] <= serial:
            low = middle
        else:
            high = middle
    return book[turns + 2 * low + 1]


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
    owner = book[CORE]
    if book[CORES] != 0 and floor <= entry < book[CORE_BASE] * 8:
        owner = _owner(book, entry >> 3)
    if owner != book[CORE]:
        if entry > book[KNOWN + 8 * owner + (entry & 7)]:
            report(book, findings, core_code, entry, space, start, length, ZERO)
    elif entry >= book[CORE_BASE] * 8 or (book[CORES] != 0 and entry >= floor):
        if entry > book[limits + (entry & 7)]:
            if entry & 7 != book[PIPE]:
                report(book, findings, own_code, entry, space, start, length, ZERO)
            elif own_code == RAW and entry >> 3 != book[SERIAL]:
                report(book, findings, PIPE_RAW, entry, space, start, length, ZERO)
            elif entry >> 3 != book[SERIAL] and not _is_alike(book, lives, entry):
                report(book, findings, PIPE_WAW, entry, space, start, length, ZERO)
    elif entry >= floor:
        report(book, findings, core_code, entry, space, start, length, ZERO)
    elif entry < init_floor:
        report(book, findings, UNINITIALISED, ZERO, space, start, length, ZERO)


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
                book, findings, lives, entry, limits, own_code, core_code, floor, ZERO, space,
                cell_start + _mask_start(part), _mask_length(part),
            )  # fmt: skip
        head = nodes[head, 2]
    if missing != 0 and init_floor > 0:
        start = cell_start + _mask_start(missing)
        report(book, findings, UNINITIALISED, ZERO, space, start, _mask_length(missing), ZERO)


@jit
def used_slots(slots: np.ndarray, book: np.ndarray, c0: Int, c1: Int, space: Int) -> Int:
    """Return the bits of the slots that a cell among ``[c0, c1)`` may ever have had."""
    used = ZERO
    first, last = c0 >> REGION_BITS, (c1 - 1) >> REGION_BITS
    if space == GM and last - first < REGIONS_ASKED:
        for region in range(first, last + 1):
            used |= slots[REGIONS, region]
        return used
    for slot in range(SLOTS):
        used |= book[USED + SLOTS * space + slot] << slot
    return used


@jit
def quiet_until(
    slots: np.ndarray, book: np.ndarray, slot: Int, c0: Int, c1: Int, limits: Int, floor: Int, init_floor: Int
) -> Int:
    """Return the first of the cells ``[c0, c1)`` of which one slot means something for the current access, or ``c1``.

    It is all that nearly every access needs, and small enough to stand in the caller.
    """
    cells = slots[slot]
    c, core_floor = c0, book[CORE_BASE] * 8
    while c < c1:
        entry = cells[c]
        if entry < init_floor or entry < 0 or entry > book[limits + (entry & 7)] or floor <= entry < core_floor:
            return c
        c = _behind_equal(cells, c, c1, entry)
    return c1


@jit
def scan(
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
            if mask != FULL:
                start, length = start + _mask_start(mask), _mask_length(mask)
            _judge(book, findings, lives, entry, limits, own_code, core_code, floor, init_floor, space, start, length)


@jit
def _entry_of(nodes: np.ndarray, head: Int, byte: Int) -> Int:
    """Return the entry of a byte of a cell; ``head`` is what its slot holds."""
    if head >= 0:
        return head
    node = -head
    while node != 0:
        if nodes[node, 0] >> byte & 1:
            return nodes[node, 1]
        node = nodes[node, 2]
    return ZERO


@jit
def scan_left_open(
    slots: np.ndarray, nodes: np.ndarray, book: np.ndarray, findings: np.ndarray, c0: Int, c1: Int, mask: Int
) -> None:
    """Report the bytes ``mask`` of the cells ``[c0, c1)`` of UB whose last writer has left them open."""
    base = book[SPACE + 4 * UB + 0]
    for c in range(c0, c1):
        if slots[LEFT_OPEN, c] == 0:
            continue
        for byte in range(32):
            if mask >> byte & 1 == 0:
                continue
            entry = _entry_of(nodes, slots[LEFT_OPEN, c], np.int64(byte))
            # what is older than the core counts as unwritten anyway
            if entry >= max(book[CHIP_BASE] * 8, ONE) and entry == _entry_of(nodes, slots[0, c], np.int64(byte)):
                report(book, findings, UNINITIALISED, entry, UB, (c - base) * 32 + byte, ONE, ZERO)


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
        rest = _new_node(nodes, book, FULL & ~mask, old, ZERO) if old > 0 else ZERO
        slots[slot, c] = -_new_node(nodes, book, mask, entry, rest)
        return
    kept, node, together = ZERO, -old, mask
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
    if together == FULL:
        slots[slot, c] = entry
    else:
        slots[slot, c] = -_new_node(nodes, book, together, entry, kept)


@jit
def set(
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
    if space == GM:
        for region in range(c0 >> REGION_BITS, ((c1 - 1) >> REGION_BITS) + 1):
            slots[REGIONS, region] |= ONE << slot
    if mask != FULL:
        for c in range(c0, c1):
            _set_part(slots, nodes, book, slot, c, mask, entry)
        return
    cells = slots[slot]
    signs = ZERO
    if book[FREE_COUNT] != book[NODE_COUNT]:
        # a vector loop, where most cells have no list
        for c in range(c0, c1):
            signs |= cells[c]
    if signs < 0:
        for c in range(c0, c1):
            node = -cells[c]
            while node > 0:
                node = _free_node(nodes, book, node)
    part = cells[c0:c1]
    for i in range(len(part)):
        part[i] = entry


@jit
def keep_foreign(
    slots: np.ndarray, nodes: np.ndarray, book: np.ndarray, source: Int, target: Int, c0: Int, c1: Int, mask: Int
) -> None:
    """Copy entries of earlier cores or turns of this phase from slot ``source`` to ``target``: they are overwritten."""
    floor, limit = book[PHASE_BASE] * 8, book[CORE_BASE] * 8
    c = c0
    while c < c1:
        first, entry = c, slots[source, c]
        c += 1
        if entry >= 0:
            c = _behind_equal(slots[source], c, c1, entry)
            if floor <= entry < limit:
                set(slots, nodes, book, target, first, c, mask, entry, GM)
            continue
        node = -entry
        while node != 0:
            part, entry = nodes[node, 0] & mask, nodes[node, 1]
            if part != 0 and floor <= entry < limit:
                set(slots, nodes, book, target, first, c, part, entry, GM)
            node = nodes[node, 2]
