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

Lives of tiles and shadow cells are those of `hazards_cells`, what a row touches of them is in `hazards_touch`, what is
kept from row to row in `hazards_book`.
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
    BLOCK_CELLS,
    BLOCK_LIMIT,
    BY_HANDSHAKES,
    CHIP_BASE,
    CHIP_FLOOR,
    CLOCKS,
    CORE,
    CORE_BASE,
    CORES,
    CROSSING,
    EVENTS,
    FINDINGS,
    FRAGMENTED,
    FREE_COUNT,
    FULL,
    GM,
    GM_ONLY,
    HELD,
    KNOWN,
    LAUNCH_BASE,
    LEFT_SET,
    LENIENT,
    LIVES,
    NO_PIPE,
    ONE,
    OUTSIDE,
    PHASE_BASE,
    PIPE,
    PIPES,
    READ_MISALIGNED,
    ROW_FINDINGS,
    SERIAL,
    SET_TWICE,
    SPACE,
    STOPPED,
    TOO_LARGE,
    TURNED,
    UB,
    WAIT_UNSET,
    WRITE_MISALIGNED,
    ZERO,
    report,
)
from npu_sim.engines.hazards_cells import set
from npu_sim.engines.hazards_touch import blocks_touched, leave_open, look_run, nodes_needed, touch_run
from npu_sim.isa.codes import SPACES, Pipe
from npu_sim.isa.footprint import MAY_LEAVE_OPEN, NO_FOOTPRINT, WRITE, footprint, left_open
from npu_sim.isa.gm_extent import gm_operands, space_of
from npu_sim.isa.instruction import ITEM, Instruction
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import IS_MMAD, Op, by_opcode
from npu_sim.program.cross_core import SETS, WAITS
from npu_sim.program.limits import MMAD_BARRIER_ELEMS

_OPERANDS = ("dst", "src0", "src1")


def _pipes(instruction: Instruction) -> np.ndarray:
    """Return int8[SPACES, SPACES]: the pipe of each data path (destination, source), -1 where there is none."""
    table = np.full((SPACES, SPACES), -1, np.int8)
    for (destination, source), pipe in instruction.routes.items():
        table[destination, source] = pipe
    return table


_PIPE_OF_PATH = by_opcode(_pipes, default=np.full((SPACES, SPACES), -1), dtype=np.int8)
_IS_SYNCHRONISATION = by_opcode(lambda instruction: not instruction.routes, dtype=np.bool_)
"""Flags, barriers and core state: what touches no memory."""
_IS_SYNCHRONISATION[Op.NOP] = True
_IS_CROSSING = by_opcode(lambda instruction: instruction.op in (*SETS, *WAITS), dtype=np.bool_)
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
    if dst >= SPACES or src >= SPACES:
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
    if not IS_MMAD[row["op"]] or np.int64(row["m"]) * np.int64(row["n"]) < MMAD_BARRIER_ELEMS:
        return own
    ordered = CLOCKS + PIPES * ALL
    for q in range(PIPES):
        book[ordered + q] = book[own + q]
    book[ordered + pipe] = ALWAYS
    return ordered


@jit
def begin_core(book: np.ndarray, flags: np.ndarray, turned: np.ndarray, new_phase: Int) -> None:
    """Start the rows of the next core (and phase): everything earlier is complete, flags and buffers are clear."""
    book[CORE_BASE] = book[CHIP_BASE] = book[CHIP_FLOOR] = book[SERIAL]
    if new_phase:
        book[PHASE_BASE] = book[SERIAL]
    for p in range(PIPES):
        for q in range(PIPES):
            is_ordered = p == q and book[BARRIER_PIPES] >> p & 1 == 0
            book[CLOCKS + PIPES * p + q] = ALWAYS if is_ordered else book[SERIAL] * 8 - 1
        book[HELD + p] = book[TURNED + p] = 0
    for flag in range(len(flags)):
        flags[flag] = turned[flag] = 0


@jit
def end_core(book: np.ndarray, flags: np.ndarray, findings: np.ndarray) -> None:
    """Report the flags that the core's rows of this phase leave set."""
    serial = book[SERIAL]
    for flag in range(len(flags)):
        if flags[flag] != 0:
            book[ROW_FINDINGS] = book[FINDINGS]
            book[SERIAL] = flags[flag] >> 3
            report(book, findings, LEFT_SET, ZERO, ZERO, ZERO, ZERO, flag % book[EVENTS])
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
def note_plain_store(shadow: Any, begin: Int, end: Int) -> None:
    """Count the bytes ``[begin, end)`` of GM as written by what takes the place of the next row, and is none."""
    book, tensors, births = shadow.book, shadow.tensors, shadow.births
    base = book[SPACE + 4 * GM]
    end = min(end, book[SPACE + 4 * GM + 1])
    entry = book[SERIAL] * 8 + NO_PIPE
    for tensor in range(len(tensors)):
        first, size = tensors[tensor, 0], tensors[tensor, 1]
        if births[tensor] == 0 and begin < first + size and first < end:
            births[tensor] = book[LAUNCH_BASE]
    if begin < end:
        set(shadow.slots, shadow.nodes, book, ZERO, base + (begin >> 5), base + ((end + 31) >> 5), FULL, entry, GM)


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
    gm_only = book[GM_ONLY] != 0
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
            elif book[CORES] == 0 and _IS_CROSSING[op]:
                report(book, findings, CROSSING, ZERO, ZERO, ZERO, ZERO, ZERO)
            book[SERIAL] += 1
            continue
        if gm_only and gm_operands(row) == 0:
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
        elif blocks_touched(book, runs, count) > BLOCK_LIMIT:
            report(book, findings, TOO_LARGE, ZERO, ZERO, ZERO, ZERO, BLOCK_LIMIT)
            count = np.int64(0)
        if count > 0:
            if _nodes_of(book, row, runs, count) > book[FREE_COUNT]:
                return i
            _check_alignment(book, findings, row)
        book[PIPE] = pipe
        limits = _limits_of(book, row) if count > 0 else ZERO
        entry = book[SERIAL] * 8 + pipe
        if count > 0:
            # only the pipe of a row that touches something is known to be one
            life = lives[book[SERIAL] & (LIVES - 1)]
            life[0], life[1], life[2], life[3] = book[SERIAL], book[HELD + pipe], op, 0
        if op == Op.SCALAR_LOOK and count > 0:
            # others may store there at the same time
            look_run(book, findings, tensors, runs, np.int64(row["tensor"]))
            count = np.int64(0)
        for r in range(count):
            touch_run(
                slots, nodes, book, findings, lives, turned, births, tensors, runs, r, entry, limits,
                np.int64(row["tensor"]),
            )  # fmt: skip
        if count > 0 and MAY_LEAVE_OPEN[op] and not gm_only:
            leave_open(slots, nodes, book, runs, left_open(row, runs), entry)
        book[SERIAL] += 1
    return end


@jit
def _nodes_of(book: np.ndarray, row: Any, runs: np.ndarray, count: Int) -> Int:
    """Return the nodes that a row with the footprint ``runs[:count]`` may need."""
    needed = nodes_needed(book, runs, count)
    if MAY_LEAVE_OPEN[row["op"]]:
        # two parts of a cell, and what lay there
        for i in range(count):
            if runs[i, 0] == UB and runs[i, 1] == WRITE:
                needed += 3 * min(runs[i, 4] * ((runs[i, 3] >> 5) + 1), book[SPACE + 4 * UB + 1] >> 5)
    return needed


@jit
def nodes_needed_by(shadow: Any, rows: np.ndarray, index: Int) -> Int:
    """Return the nodes that ``rows[index]`` may need."""
    return _nodes_of(shadow.book, rows[index], shadow.runs, footprint(rows[index], shadow.runs))


@jit
def unwritten(shadow: Any, tensor: Int, hole: np.ndarray) -> Int:
    """Count the bytes of a GM tensor that nothing wrote or added to; where they are goes to ``hole``.

    Parameters
    ----------
    shadow : Shadow
    tensor : int64
    hole : int64[3]
        First byte in the arena, byte behind the last, and entry of a store next to them (before, else behind; 0: none).
    """
    hole[2] = ZERO
    slots, nodes, book, tensors = shadow.slots, shadow.nodes, shadow.book, shadow.tensors
    start, missing = tensors[tensor, 0], np.int64(0)
    end, born = start + tensors[tensor, 1], shadow.births[tensor] * 8
    base = book[SPACE + 4 * GM]
    cell, cells_end, writers = (start >> 5) - 1, (end + 31) >> 5, slots[0, base:]
    while cell + 1 < cells_end:
        cell += 1
        # of a block that was written as a whole only the last cell is looked at: it may be the last store before a hole
        if cell + BLOCK_CELLS <= cells_end and (missing == 0 or hole[2] != 0):
            block, oldest = writers[cell : cell + BLOCK_CELLS], ALWAYS
            for i in range(BLOCK_CELLS):
                oldest = min(oldest, block[i])
            if oldest >= max(born, ONE):
                cell += BLOCK_CELLS - 1
        written, last = ZERO, ZERO
        for slot in range(4):
            entry = slots[slot, base + cell]
            if entry > 0 and entry >= born:
                written, last = FULL, max(last, entry)
            node = -entry
            while node > 0:
                if nodes[node, 1] >= born:
                    written, last = written | nodes[node, 0], max(last, nodes[node, 1])
                node = nodes[node, 2]
        if last > 0 and (missing == 0 or hole[2] == 0):
            hole[2] = last
        if written == FULL:
            continue
        for byte in range(max(start - cell * 32, 0), min(end - cell * 32, 32)):
            if written >> byte & 1 == 0:
                if missing == 0:
                    hole[0] = cell * 32 + byte
                hole[1] = cell * 32 + byte + 1
                missing += 1
    return missing
