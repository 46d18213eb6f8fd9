"""Happens-before checking of rows: vector clocks per pipe, shadow cells of 32 bytes with byte masks where needed.

**Entries.** Every row of a run has a serial number; ``entry = 8 * serial + pipe`` names an access in one word. Pipes
run in order, so "the other access is complete" is one comparison: ``entry <= clocks[pipe now, entry's pipe]``.

**Order.** Rows are checked in the order in which they start, which is that of the program but where a wait stands
before its set (`issue_order`). A row follows the earlier rows of its pipe; on the pipes of `BARRIER_PIPES` it is issued
behind them, but meets their results only behind a barrier, or a wait that something the pipe set leads to. SET_FLAG
saves what its pipe knows, WAIT_FLAG joins that into its pipe (into every pipe when the scalar unit waits, since it
issues everything that follows). A barrier on `Pipe.ALL` joins all. Flags are single bits: after a fault the analysis
goes on in the most permissive way that still shows what the fault breaks - a wait without a set orders nothing, a
second set replaces the first.

Lives of tiles and shadow cells are those of `hazards_cells`, what is kept from row to row is in `hazards_book`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.engines.hazards_book import (
    ALL,
    ALWAYS,
    BAD_EVENT,
    BAD_PIPE,
    BARRIER_PIPES,
    BLOCK_LIMIT,
    BY_HANDSHAKES,
    CAPACITY,
    CHIP_BASE,
    CHIP_FLOOR,
    CLOCKS,
    CORE,
    CORE_BASE,
    CORE_RAW,
    CORE_WAR,
    CORE_WAW,
    CORES,
    CROSSING,
    EVENTS,
    FINDINGS,
    FOREIGN_ATOMIC,
    FOREIGN_READER,
    FRAGMENTED,
    FREE_COUNT,
    FULL,
    GM,
    GM_READER,
    GM_SCALAR_READER,
    HELD,
    KNOWN,
    LAUNCH_BASE,
    LEFT_SET,
    LENIENT,
    LIVES,
    NODE_COUNT,
    ONE,
    OUTSIDE,
    PHASE_BASE,
    PIPE,
    PIPES,
    RAW,
    READ_BEYOND,
    READ_MISALIGNED,
    READ_NOWHERE,
    ROW_FINDINGS,
    RUN_BLOCKS,
    SCALAR_READER,
    SERIAL,
    SET_TWICE,
    SLOTS,
    SPACE,
    STOPPED,
    TOO_LARGE,
    TURNED,
    USED,
    WAIT_UNSET,
    WAR,
    WAW,
    WRITE_BEYOND,
    WRITE_MISALIGNED,
    WRITE_NOWHERE,
    ZERO,
    report,
)
from npu_sim.engines.hazards_cells import (
    end_lives,
    keep_foreign,
    scan,
    scan_lives,
    set,
)
from npu_sim.isa.codes import Pipe
from npu_sim.isa.footprint import ATOMIC_ADD, NO_FOOTPRINT, READ, WRITE, footprint
from npu_sim.isa.gm_extent import space_of
from npu_sim.isa.instruction import ITEM, Instruction
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Op, by_opcode
from npu_sim.program.limits import MMAD_BARRIER_ELEMS


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
    on_chip = space != GM
    reader = pipe if pipe != Pipe.S else SCALAR_READER
    core_floor = book[CORE_BASE] * 8
    floor = book[PHASE_BASE] * 8
    if on_chip:
        # What other cores left in a buffer does not exist.
        floor = book[CHIP_FLOOR] * 8
        init_floor = book[CHIP_BASE] * 8 if access == READ else ZERO
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
        init = init_floor if slot == 0 else ZERO
        scan(
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
    target, foreign = ZERO, ZERO
    if on_chip:
        if access == READ:
            target = reader
    elif access == READ:
        target, foreign = GM_READER if pipe != Pipe.S else GM_SCALAR_READER, FOREIGN_READER
    elif access == ATOMIC_ADD:
        target, foreign = np.int64(1 if pipe == Pipe.MTE3 else 2), FOREIGN_ATOMIC
    if foreign != 0 and floor != core_floor:
        keep_foreign(slots, nodes, book, target, foreign, c0, c1, mask)
    if on_chip and access == READ:
        scan_lives(slots, book, findings, lives, turned, c0, c1, space)
    elif on_chip:
        end_lives(slots, book, lives, c0, c1)
    set(slots, nodes, book, target, c0, c1, mask, entry, space)


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
            behind, mask = end >> 5, FULL
        else:
            behind = cell + 1
            mask = (FULL << lead) & FULL
            if behind * 32 > end:
                mask &= (ONE << (end & 31)) - 1
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
    if space == GM:
        code = READ_BEYOND if access == READ else WRITE_BEYOND
    report(book, findings, code, ZERO, space, start, end - start, high if end > high else low)


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
    low, high = ZERO, book[SPACE + 4 * space + 1]
    data_end, init_floor = high, ZERO
    if space == GM:
        if tensor < 0 or tensor >= len(tensors):
            code = READ_NOWHERE if access == READ else WRITE_NOWHERE
            report(book, findings, code, ZERO, space, start, (repeats - 1) * stride + length, tensor)
            return
        low = tensors[tensor, 0]
        high = low + tensors[tensor, 2]
        data_end = low + tensors[tensor, 1]
        # An atomic add reads its destination. Spare bytes behind a tensor may be read without having been written.
        if births[tensor] == 0:
            births[tensor] = book[LAUNCH_BASE]
        if access != WRITE and tensors[tensor, 3] == 0:
            init_floor = births[tensor] * 8
    first, last = ZERO, repeats
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
                ZERO,
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
            report(book, findings, code, ZERO, space, address, ONE, alignment)


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
            report(book, findings, BAD_PIPE, ZERO, ZERO, ZERO, ZERO, pipe)
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
        report(book, findings, BAD_PIPE, ZERO, ZERO, ZERO, ZERO, pipe)
        return
    if event >= book[EVENTS]:
        report(book, findings, BAD_EVENT, ZERO, ZERO, ZERO, ZERO, event)
        return
    if op == Op.SET_FLAG:
        flag = (pipe * 7 + peer) * book[EVENTS] + event
        if flags[flag] != 0:
            report(book, findings, SET_TWICE, flags[flag], ZERO, ZERO, ZERO, event)
        flags[flag] = book[SERIAL] * 8 + pipe
        for q in range(PIPES):
            flag_clocks[flag, q] = book[CLOCKS + PIPES * pipe + q]
        flag_clocks[flag, pipe] = now
        book[HELD + pipe] &= ~(ONE << (peer * book[EVENTS] + event))
        return
    flag = (peer * 7 + pipe) * book[EVENTS] + event
    if flags[flag] == 0:
        report(book, findings, WAIT_UNSET, ZERO, ZERO, ZERO, ZERO, event)
        return
    flags[flag] = 0
    if book[BY_HANDSHAKES] != 0:
        turned[flag] = book[TURNED + pipe] = book[SERIAL]
        book[HELD + pipe] |= ONE << (peer * book[EVENTS] + event)
    for p in range(PIPES):
        if p == pipe or pipe == Pipe.S:
            for q in range(PIPES):
                book[CLOCKS + PIPES * p + q] = max(book[CLOCKS + PIPES * p + q], flag_clocks[flag, q])


@jit
def _is_held(book: np.ndarray, flags: np.ndarray, row: Any) -> bool:
    """Return whether a WAIT_FLAG waits for a flag that exists and is not set."""
    pipe, peer, event = np.int64(row["pipe"]), np.int64(row["peer"]), np.int64(row["event"])
    if pipe >= Pipe.ALL or peer >= Pipe.ALL or pipe == peer or event >= book[EVENTS]:
        return False
    return flags[(peer * 7 + pipe) * book[EVENTS] + event] == 0


@jit
def _limits_of(book: np.ndarray, row: Any) -> Int:
    """Return where the clocks of a memory instruction are."""
    pipe = np.int64(row["pipe"])
    own = CLOCKS + PIPES * pipe
    if row["op"] != Op.MMAD or np.int64(row["m"]) * np.int64(row["n"]) < MMAD_BARRIER_ELEMS:
        return own
    ordered = CLOCKS + PIPES * ALL
    for q in range(PIPES):
        book[ordered + q] = book[own + q]
    book[ordered + pipe] = ALWAYS
    return ordered


@jit
def begin_core(shadow: Any, new_phase: Int) -> None:
    """Start the rows of the next core (and phase): everything earlier is complete, flags and buffers are clear."""
    book, flags = shadow.book, shadow.flags
    book[CORE_BASE] = book[CHIP_BASE] = book[CHIP_FLOOR] = book[SERIAL]
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
            report(book, shadow.findings, LEFT_SET, ZERO, ZERO, ZERO, ZERO, flag % book[EVENTS])
    book[SERIAL] = serial


@jit
def knowledge(book: np.ndarray, pipe: Int, known: np.ndarray) -> None:
    """Write to ``known``, int64[cores, 8], what is complete when a flag queued in ``pipe`` is set: as `KNOWN`."""
    for core in range(book[CORES]):
        for q in range(PIPES):
            known[core, q] = book[KNOWN + 8 * core + q]
    for q in range(PIPES):
        known[book[CORE], q] = book[CLOCKS + PIPES * pipe + q]
    known[book[CORE], pipe] = book[SERIAL] * 8 + 7


@jit
def learn(book: np.ndarray, known: np.ndarray) -> None:
    """Let the core know what whoever set the flag knew: it issues everything that follows behind that."""
    for core in range(book[CORES]):
        for q in range(PIPES):
            at = KNOWN + 8 * core + q
            book[at] = max(book[at], known[core, q])
    for p in range(PIPES):
        for q in range(PIPES):
            at = CLOCKS + PIPES * p + q
            book[at] = max(book[at], known[book[CORE], q])


@jit
def clear(shadow: Any, slot: Int, c0: Int, c1: Int, space: Int) -> None:
    """Forget who touched the cells ``[c0, c1)`` last, and give their lists back."""
    set(shadow.slots, shadow.nodes, shadow.book, slot, c0, c1, FULL, ZERO, space)


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
        ``end``, or the row before which ``shadow.nodes`` must grow (by `nodes_needed_by`), or the wait for a flag that
        is not set yet (`STOPPED`).
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
            if op == Op.WAIT_FLAG and book[LENIENT] == 0 and _is_held(book, flags, row):
                book[STOPPED] = 1
                return i
            if op == Op.SET_FLAG or op == Op.WAIT_FLAG or op == Op.PIPE_BARRIER:
                _synchronise(book, findings, flags, flag_clocks, turned, row)
            elif book[CORES] == 0 and (op == Op.CROSS_CORE_SET_FLAG or op == Op.CROSS_CORE_WAIT_FLAG):
                report(book, findings, CROSSING, ZERO, ZERO, ZERO, ZERO, ZERO)
            book[SERIAL] += 1
            continue
        pipe = np.int64(row["pipe"])
        count = np.int64(0)
        if pipe != _expected_pipe(row):
            report(book, findings, BAD_PIPE, ZERO, ZERO, ZERO, ZERO, pipe)
        else:
            count = footprint(row, runs)
        if count == NO_FOOTPRINT:
            report(book, findings, OUTSIDE, ZERO, ZERO, ZERO, ZERO, ZERO)
        elif count < 0:
            report(book, findings, FRAGMENTED, ZERO, ZERO, ZERO, ZERO, np.int64(len(runs)))
        elif _blocks_touched(book, runs, count) > BLOCK_LIMIT:
            report(book, findings, TOO_LARGE, ZERO, ZERO, ZERO, ZERO, BLOCK_LIMIT)
            count = np.int64(0)
        if count > 0:
            if _nodes_needed(book, runs, count) > book[FREE_COUNT]:
                return i
            _check_alignment(book, findings, row)
        book[PIPE] = pipe
        limits = _limits_of(book, row) if count > 0 else ZERO
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
    base = book[SPACE + 4 * GM]
    for cell in range(start >> 5, (end + 31) >> 5):
        written = ZERO
        for slot in range(4):
            entry = slots[slot, base + cell]
            if entry > 0 and entry >= born:
                written = FULL
            node = -entry
            while node > 0:
                if nodes[node, 1] >= born:
                    written |= nodes[node, 0]
                node = nodes[node, 2]
        if written == FULL:
            continue
        for byte in range(max(start - cell * 32, 0), min(end - cell * 32, 32)):
            if written >> byte & 1 == 0:
                if missing == 0:
                    hole[0] = cell * 32 + byte
                hole[1] = cell * 32 + byte + 1
                missing += 1
    return missing
