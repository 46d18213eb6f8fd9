"""Happens-before checking of rows: vector clocks per pipe, shadow cells of 32 bytes with byte masks where needed.

**Entries.** Every row of a run has a serial number; ``entry = 8 * serial + pipe`` names an access in one word. Pipes
run in order, so "the other access is complete" is one comparison: ``entry <= clocks[pipe now, entry's pipe]``.

**Order.** A row follows the earlier rows of its pipe. SET_FLAG saves what its pipe knows, WAIT_FLAG joins that into its
pipe (into every pipe when the scalar unit waits, since it issues everything that follows). A barrier on `Pipe.ALL`
joins all. Flags are single bits: after a fault the analysis goes on in the most permissive way that still shows what
the fault breaks - a wait without a set orders nothing, a second set replaces the first.

**Shadow.** A cell of 32 bytes has seven slots. On chip: slot 0 the last writer, slot p the last reader on pipe p. GM: 0
the last plain writer, 1 and 2 the last atomic adder on MTE3 and FIX, 3 an atomic adder on an earlier core of the phase,
4 the last reader (only MTE2 reads GM), 5 a reader on an earlier core. A slot holds an entry, 0, or minus the number of
a list of nodes (byte mask, entry, next) when parts of the cell have different histories, so findings are exact to the
byte. Keeping only the last access is enough: if an older one were unordered with a new access, either the last one is
too, or the pair of the two was reported before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import pipe_of_copy
from npu_sim.isa.footprint import ATOMIC_ADD, READ, WRITE, footprint
from npu_sim.isa.op import Op, Pipe, Space

SLOTS = 7
SPACES = 7
PIPES = 8
NODE_FIELDS = 3
FINDING_FIELDS = 7
"""Code, serial of the row, entry of the other row (0: none), space, first byte, bytes, extra number."""

# state words
SERIAL, CORE_BASE, PHASE_BASE, FINDINGS, DROPPED, FREE, FREE_COUNT, NODE_COUNT, EVENTS, ROW_FINDINGS = range(10)
STATE_LENGTH = 16

# finding codes
(
    RAW, WAR, WAW, CORE_RAW, CORE_WAR, CORE_WAW, UNINITIALISED, READ_BEYOND, WRITE_BEYOND, READ_NOWHERE, WRITE_NOWHERE,
    CAPACITY, READ_MISALIGNED, WRITE_MISALIGNED, WAIT_UNSET, SET_TWICE, LEFT_SET, BAD_EVENT, BAD_PIPE, FRAGMENTED,
) = (np.int64(code) for code in range(1, 21))  # fmt: skip

ALWAYS = np.int64(1) << 62
_FULL = np.int64(0xFFFFFFFF)
_ZERO = np.int64(0)
_ONE = np.int64(1)
_GM = np.int64(Space.GM)
_FOREIGN_ATOMIC = np.int64(3)
_GM_READER = np.int64(4)
_FOREIGN_READER = np.int64(5)


class Shadow(NamedTuple):
    """Everything the engine remembers between chunks.

    Attributes
    ----------
    slots : int64[7, cells]
        Shadow cells, on-chip spaces first, then the GM arena.
    nodes : int64[capacity, 3]
        Byte mask, entry, next; node 0 is unused; free ones are chained by ``next``.
    state : int64[STATE_LENGTH]
        Counters, see the names above.
    clocks : int64[8, 8]
        ``clocks[p, q]``: largest entry of pipe q that is complete before the next row of pipe p; diagonal `ALWAYS`.
    flags : int64[7 * 7 * events]
        Entry of the SET_FLAG that holds the flag (source, destination, event), 0: clear.
    flag_clocks : int64[7 * 7 * events, 8]
        Clocks of the source pipe at that moment.
    findings : int64[capacity, FINDING_FIELDS]
        What was found.
    spaces : int64[7, 4]
        First cell, capacity in bytes, alignment of addresses in general and of a destination of Mmad.
    used : int64[7, 7]
        Whether a slot of a space was ever written.
    tensors : int64[tensors, 4]
        `GlobalMemory.table`.
    runs : int64[capacity, 6]
        Buffer of `footprint`.
    """

    slots: np.ndarray
    nodes: np.ndarray
    state: np.ndarray
    clocks: np.ndarray
    flags: np.ndarray
    flag_clocks: np.ndarray
    findings: np.ndarray
    spaces: np.ndarray
    used: np.ndarray
    tensors: np.ndarray
    runs: np.ndarray


@jit
def _report(sh, code, other, space, start, length, extra):
    """Note a finding of the current row, or widen the one with the same code and other row."""
    state, findings = sh.state, sh.findings
    for i in range(state[ROW_FINDINGS], state[FINDINGS]):
        if findings[i, 0] == code and findings[i, 2] == other and findings[i, 3] == space:
            end = max(findings[i, 4] + findings[i, 5], start + length)
            findings[i, 4] = min(findings[i, 4], start)
            findings[i, 5] = end - findings[i, 4]
            return
    at = state[FINDINGS]
    if at == len(findings):
        state[DROPPED] += 1
        return
    state[FINDINGS] = at + 1
    findings[at, 0] = code
    findings[at, 1] = state[SERIAL]
    findings[at, 2] = other
    findings[at, 3] = space
    findings[at, 4] = start
    findings[at, 5] = length
    findings[at, 6] = extra


@jit
def _judge(sh, entry, limits, own_code, core_code, floor, init_floor, space, start, length):
    """Report what an earlier access ``entry`` (0: none) of these bytes means for the current one.

    ``floor`` is the lowest entry of this phase, ``init_floor`` the lowest one that counts as written (0: do not ask).
    """
    if entry >= sh.state[CORE_BASE] * 8:
        if entry > limits[entry & 7]:
            _report(sh, own_code, entry, space, start, length, _ZERO)
    elif entry >= floor:
        _report(sh, core_code, entry, space, start, length, _ZERO)
    elif entry < init_floor:
        _report(sh, UNINITIALISED, _ZERO, space, start, length, _ZERO)


@jit
def _mask_start(mask):
    """Return the lowest byte of a non-empty mask."""
    first = np.int64(0)
    while mask >> first & 1 == 0:
        first += 1
    return first


@jit
def _mask_length(mask):
    """Return the distance from the lowest to behind the highest byte of a non-empty mask."""
    end = np.int64(32)
    while mask >> (end - 1) & 1 == 0:
        end -= 1
    return end - _mask_start(mask)


@jit
def _judge_nodes(sh, head, mask, limits, own_code, core_code, floor, init_floor, space, cell_start):
    """`_judge` for a cell with a list of nodes."""
    nodes = sh.nodes
    missing = mask
    while head != 0:
        part = nodes[head, 0] & mask
        if part != 0:
            entry = nodes[head, 1]
            if entry >= init_floor:
                missing &= ~part
            _judge(
                sh, entry, limits, own_code, core_code, floor, _ZERO, space,
                cell_start + _mask_start(part), _mask_length(part),
            )  # fmt: skip
        head = nodes[head, 2]
    if missing != 0 and init_floor > 0:
        start = cell_start + _mask_start(missing)
        _report(sh, UNINITIALISED, _ZERO, space, start, _mask_length(missing), _ZERO)


@jit
def _scan(sh, slot, c0, c1, mask, limits, own_code, core_code, floor, init_floor, space):
    """Judge the bytes ``mask`` of cells ``[c0, c1)`` against one slot; equal neighbours are judged once."""
    cells = sh.slots[slot]
    base = sh.spaces[space, 0]
    c = c0
    while c < c1:
        entry = cells[c]
        first = c
        c += 1
        if entry < 0:
            _judge_nodes(sh, -entry, mask, limits, own_code, core_code, floor, init_floor, space, (first - base) * 32)
            continue
        while c < c1 and cells[c] == entry:
            c += 1
        if entry > limits[entry & 7] or entry < init_floor or (floor <= entry < sh.state[CORE_BASE] * 8):
            start, length = (first - base) * 32, (c - first) * 32
            if mask != _FULL:
                start, length = start + _mask_start(mask), _mask_length(mask)
            _judge(sh, entry, limits, own_code, core_code, floor, init_floor, space, start, length)


@jit
def _new_node(sh, mask, entry, following):
    """Take a node from the free list (the caller made sure that there is one)."""
    state, nodes = sh.state, sh.nodes
    node = state[FREE]
    state[FREE] = nodes[node, 2]
    state[FREE_COUNT] -= 1
    nodes[node, 0] = mask
    nodes[node, 1] = entry
    nodes[node, 2] = following
    return node


@jit
def _free_node(sh, node):
    """Put a node back; return the one behind it."""
    following = sh.nodes[node, 2]
    sh.nodes[node, 2] = sh.state[FREE]
    sh.state[FREE] = node
    sh.state[FREE_COUNT] += 1
    return following


@jit
def _set_part(sh, slot, c, mask, entry):
    """Make ``entry`` the last access of the bytes ``mask`` of one cell."""
    nodes = sh.nodes
    old = sh.slots[slot, c]
    if old >= 0:
        if old == entry:
            return
        rest = _new_node(sh, _FULL & ~mask, old, _ZERO) if old > 0 else _ZERO
        sh.slots[slot, c] = -_new_node(sh, mask, entry, rest)
        return
    kept, node, together = _ZERO, -old, mask
    while node != 0:
        left = nodes[node, 0] & ~mask
        same = nodes[node, 1] == entry
        if left == 0 or same:
            if same:
                together |= left
            node = _free_node(sh, node)
        else:
            nodes[node, 0] = left
            following = nodes[node, 2]
            nodes[node, 2] = kept
            kept, node = node, following
    if together == _FULL:
        sh.slots[slot, c] = entry
    else:
        sh.slots[slot, c] = -_new_node(sh, together, entry, kept)


@jit
def _set(sh, slot, c0, c1, mask, entry, space):
    """Make ``entry`` the last access of the bytes ``mask`` of cells ``[c0, c1)``."""
    sh.used[space, slot] = 1
    if mask != _FULL:
        for c in range(c0, c1):
            _set_part(sh, slot, c, mask, entry)
        return
    cells = sh.slots[slot]
    if sh.state[FREE_COUNT] != sh.state[NODE_COUNT]:
        for c in range(c0, c1):
            node = -cells[c]
            while node > 0:
                node = _free_node(sh, node)
    cells[c0:c1] = entry


@jit
def _keep_foreign(sh, source, target, c0, c1, mask):
    """Copy entries of earlier cores of this phase from slot ``source`` to ``target`` before they are overwritten."""
    floor, limit = sh.state[PHASE_BASE] * 8, sh.state[CORE_BASE] * 8
    for c in range(c0, c1):
        entry = sh.slots[source, c]
        part, node = mask, _ZERO
        while entry != 0:
            if entry < 0:
                node = -entry
            if node != 0:
                part, entry = sh.nodes[node, 0] & mask, sh.nodes[node, 1]
                node = sh.nodes[node, 2]
            if part != 0 and floor <= entry < limit:
                _set(sh, target, c, c + 1, part, entry, _GM)
            entry = -node


@jit
def _touch_cells(sh, space, access, entry, limits, c0, c1, mask, init_floor):
    """Check an access to the bytes ``mask`` of cells ``[c0, c1)`` against every slot that matters, then record it."""
    pipe = entry & 7
    on_chip = space != _GM
    core_floor = sh.state[CORE_BASE] * 8
    floor = sh.state[PHASE_BASE] * 8
    if on_chip:
        # What other cores left in a buffer does not exist.
        floor = core_floor
        init_floor = core_floor if access == READ else _ZERO
    for slot in range(SLOTS):
        if slot > 0 and sh.used[space, slot] == 0:
            continue
        is_reader = slot > 0 if on_chip else slot > 3
        if is_reader and (access == READ or (on_chip and slot == pipe)):
            continue
        if access == ATOMIC_ADD and 1 <= slot <= 3:
            continue
        own_code, core_code = WAW, CORE_WAW
        if is_reader:
            own_code, core_code = WAR, CORE_WAR
        elif access == READ:
            own_code, core_code = RAW, CORE_RAW
        init = init_floor if slot == 0 else _ZERO
        _scan(sh, np.int64(slot), c0, c1, mask, limits, own_code, core_code, floor, init, space)
    target, foreign = _ZERO, _ZERO
    if on_chip:
        if access == READ:
            target = pipe
    elif access == READ:
        target, foreign = _GM_READER, _FOREIGN_READER
    elif access == ATOMIC_ADD:
        target, foreign = np.int64(1 if pipe == Pipe.MTE3 else 2), _FOREIGN_ATOMIC
    if foreign != 0 and floor != core_floor:
        _keep_foreign(sh, target, foreign, c0, c1, mask)
    _set(sh, target, c0, c1, mask, entry, space)


@jit
def _touch_bytes(sh, space, access, entry, limits, start, end, init_floor):
    """Check and record an access to the bytes ``[start, end)``: a part of a cell, whole cells, a part of a cell."""
    base = sh.spaces[space, 0]
    while start < end:
        cell, lead = start >> 5, start & 31
        if lead == 0 and end - start >= 32:
            behind, mask = end >> 5, _FULL
        else:
            behind = cell + 1
            mask = (_FULL << lead) & _FULL
            if behind * 32 > end:
                mask &= (_ONE << (end & 31)) - 1
        _touch_cells(sh, space, access, entry, limits, base + cell, base + behind, mask, init_floor)
        start = behind * 32


@jit
def _beyond(sh, access, space, low, high, start, end):
    """Report the part of ``[start, end)`` outside ``[low, high)``."""
    code = CAPACITY
    if space == _GM:
        code = READ_BEYOND if access == READ else WRITE_BEYOND
    _report(sh, code, _ZERO, space, start, end - start, high if end > high else low)


@jit
def _touch_run(sh, run, entry, tensor):
    """Check and record one run of a footprint."""
    space, access, start, length, repeats, stride = run[0], run[1], run[2], run[3], run[4], run[5]
    limits = sh.clocks[entry & 7]
    low, high = _ZERO, sh.spaces[space, 1]
    data_end, init_floor = high, _ZERO
    if space == _GM:
        if tensor < 0 or tensor >= len(sh.tensors):
            code = READ_NOWHERE if access == READ else WRITE_NOWHERE
            _report(sh, code, _ZERO, space, start, (repeats - 1) * stride + length, tensor)
            return
        low = sh.tensors[tensor, 0]
        high = low + sh.tensors[tensor, 2]
        data_end = low + sh.tensors[tensor, 1]
        # An atomic add reads its destination. Spare bytes behind a tensor may be read without having been written.
        if access != WRITE and sh.tensors[tensor, 3] == 0:
            init_floor = _ONE
    first, last = _ZERO, repeats
    if start < low or start + (repeats - 1) * stride + length > high:
        _beyond(sh, access, space, low, high, start, start + (repeats - 1) * stride + length)
        if start < low:
            first = max(first, (low - start - length) // stride + 1)
        last = min(last, (high - start + stride - 1) // stride)
    for i in range(first, last):
        begin = max(low, start + i * stride)
        end = min(high, start + i * stride + length)
        if begin >= end:
            continue
        if init_floor == 0 or end <= data_end:
            _touch_bytes(sh, space, access, entry, limits, begin, end, init_floor)
        else:
            if begin < data_end:
                _touch_bytes(sh, space, access, entry, limits, begin, data_end, init_floor)
            _touch_bytes(sh, space, access, entry, limits, max(begin, data_end), end, _ZERO)


@jit
def _nodes_needed(sh, count):
    """Return an upper bound of the nodes that recording the ``count`` runs in ``sh.runs`` may take.

    A partly touched cell takes two nodes, in GM two more for what an earlier core did there. Keeping lists of earlier
    cores copies each of their nodes at most once.
    """
    runs, state = sh.runs, sh.state
    needed = np.int64(8 * count)
    for i in range(count):
        space = runs[i, 0]
        if (runs[i, 2] | runs[i, 3] | runs[i, 5]) & 31 != 0:
            needed += 8 * min(runs[i, 4], sh.spaces[space, 1] // runs[i, 5] + 2)
    if state[PHASE_BASE] != state[CORE_BASE]:
        needed += 3 * (state[NODE_COUNT] - state[FREE_COUNT])
    return needed


@jit
def _expected_pipe(row):
    """Return the pipe that must run a memory instruction, -1 for an unknown one or a data path that exists nowhere."""
    op = row["op"]
    dst, src = row["dst_space"], row["src0_space"]
    to_l0 = dst == Space.L0A or dst == Space.L0B
    pipe = np.int64(-1)
    if op == Op.DATA_COPY:
        copy = pipe_of_copy(dst, src)
        if copy != Pipe.ALL:
            pipe = np.int64(copy)
    elif op == Op.LOAD_2D:
        if src == Space.GM and (to_l0 or dst == Space.L1):
            pipe = np.int64(Pipe.MTE2)
        elif src == Space.L1 and to_l0:
            pipe = np.int64(Pipe.MTE1)
    elif op == Op.ND2NZ:
        if src == Space.GM and dst == Space.L1:
            pipe = np.int64(Pipe.MTE2)
    elif op == Op.FILL:
        if dst == Space.L1:
            pipe = np.int64(Pipe.MTE2)
        elif to_l0:
            pipe = np.int64(Pipe.MTE1)
    elif op == Op.LOAD_TRANSPOSE or op == Op.LOAD_3D or op == Op.LOAD_3D_V1:
        if src == Space.L1 and to_l0:
            pipe = np.int64(Pipe.MTE1)
    elif op == Op.MMAD:
        pipe = np.int64(Pipe.M)
    elif op == Op.FIXPIPE:
        if dst == Space.GM or dst == Space.L1:
            pipe = np.int64(Pipe.FIX)
    elif op <= Op.CAST:
        pipe = np.int64(Pipe.V)
    return pipe


@jit
def _check_address(sh, access, space, address, alignment):
    if address % alignment != 0:
        code = READ_MISALIGNED if access == READ else WRITE_MISALIGNED
        _report(sh, code, _ZERO, space, address, _ONE, alignment)


@jit
def _check_alignment(sh, row):
    """Check the start addresses of an instruction that does something."""
    op = row["op"]
    dst, src0, src1 = np.int64(row["dst_space"]), np.int64(row["src0_space"]), _ZERO
    if op == Op.MMAD:
        dst, src0, src1 = np.int64(Space.L0C), np.int64(Space.L0A), np.int64(Space.L0B)
    elif op == Op.FIXPIPE:
        src0 = np.int64(Space.L0C)
    elif op == Op.L0C_TO_UB:
        dst, src0 = np.int64(Space.UB), np.int64(Space.L0C)
    elif op >= Op.DUPLICATE:
        dst, src0 = np.int64(Space.UB), np.int64(Space.UB)
        if op == Op.ADD:
            src1 = dst
    if op != Op.FILL and op != Op.DUPLICATE:
        _check_address(sh, READ, src0, np.int64(row["src0"]), sh.spaces[src0, 2])
    if src1 != 0:
        _check_address(sh, READ, src1, np.int64(row["src1"]), sh.spaces[src1, 2])
    _check_address(sh, WRITE, dst, np.int64(row["dst"]), sh.spaces[dst, 3 if op == Op.MMAD else 2])


@jit
def _synchronise(sh, row):
    """SET_FLAG, WAIT_FLAG and PIPE_BARRIER."""
    clocks, state = sh.clocks, sh.state
    op, pipe = row["op"], np.int64(row["pipe"])
    now = state[SERIAL] * 8 + 7
    if op == Op.PIPE_BARRIER:
        if pipe == Pipe.ALL:
            for p in range(PIPES):
                for q in range(PIPES):
                    clocks[p, q] = max(clocks[p, q], now)
        return
    peer, event = np.int64(row["peer"]), np.int64(row["event"])
    if pipe >= Pipe.ALL or peer >= Pipe.ALL or pipe == peer:
        _report(sh, BAD_PIPE, _ZERO, _ZERO, _ZERO, _ZERO, pipe)
        return
    if event >= state[EVENTS]:
        _report(sh, BAD_EVENT, _ZERO, _ZERO, _ZERO, _ZERO, event)
        return
    if op == Op.SET_FLAG:
        flag = (pipe * 7 + peer) * state[EVENTS] + event
        if sh.flags[flag] != 0:
            _report(sh, SET_TWICE, sh.flags[flag], _ZERO, _ZERO, _ZERO, event)
        sh.flags[flag] = state[SERIAL] * 8 + pipe
        for q in range(PIPES):
            sh.flag_clocks[flag, q] = clocks[pipe, q]
        sh.flag_clocks[flag, pipe] = now
        return
    flag = (peer * 7 + pipe) * state[EVENTS] + event
    if sh.flags[flag] == 0:
        _report(sh, WAIT_UNSET, _ZERO, _ZERO, _ZERO, _ZERO, event)
        return
    sh.flags[flag] = 0
    for p in range(PIPES):
        if p == pipe or pipe == Pipe.S:
            for q in range(PIPES):
                clocks[p, q] = max(clocks[p, q], sh.flag_clocks[flag, q])


@jit
def begin_core(sh, new_phase):
    """Start the rows of the next core (and phase): everything earlier is complete, all flags are clear."""
    state = sh.state
    state[CORE_BASE] = state[SERIAL]
    if new_phase:
        state[PHASE_BASE] = state[SERIAL]
    for p in range(PIPES):
        for q in range(PIPES):
            sh.clocks[p, q] = ALWAYS if p == q else state[SERIAL] * 8 - 1
    for flag in range(len(sh.flags)):
        sh.flags[flag] = 0


@jit
def end_core(sh):
    """Report the flags that the core's rows of this phase leave set."""
    state = sh.state
    serial = state[SERIAL]
    for flag in range(len(sh.flags)):
        if sh.flags[flag] != 0:
            state[ROW_FINDINGS] = state[FINDINGS]
            state[SERIAL] = sh.flags[flag] >> 3
            _report(sh, LEFT_SET, _ZERO, _ZERO, _ZERO, _ZERO, flag % state[EVENTS])
    state[SERIAL] = serial


@jit
def check_rows(sh, rows, first, end):
    """Check ``rows[first:end]``, which went through `issue`.

    Parameters
    ----------
    sh : Shadow
    rows : INSTR[:]
    first, end : int64

    Returns
    -------
    int
        ``end``, or the row before which ``sh.nodes`` must grow (by `_nodes_needed`, at least twice its size).
    """
    state = sh.state
    for i in range(first, end):
        row = rows[i]
        op = row["op"]
        state[ROW_FINDINGS] = state[FINDINGS]
        if op < Op.DATA_COPY:
            if op == Op.SET_FLAG or op == Op.WAIT_FLAG or op == Op.PIPE_BARRIER:
                _synchronise(sh, row)
            state[SERIAL] += 1
            continue
        pipe = np.int64(row["pipe"])
        if pipe != _expected_pipe(row):
            _report(sh, BAD_PIPE, _ZERO, _ZERO, _ZERO, _ZERO, pipe)
            state[SERIAL] += 1
            continue
        count = footprint(row, sh.runs)
        if count < 0:
            _report(sh, FRAGMENTED, _ZERO, _ZERO, _ZERO, _ZERO, np.int64(len(sh.runs)))
            state[SERIAL] += 1
            continue
        if _nodes_needed(sh, count) > state[FREE_COUNT]:
            return i
        if count > 0:
            _check_alignment(sh, row)
        entry = state[SERIAL] * 8 + pipe
        for r in range(count):
            _touch_run(sh, sh.runs[r], entry, np.int64(row["tensor"]))
        state[SERIAL] += 1
    return end


@jit
def nodes_needed_by(sh, rows, index):
    """Return the nodes that ``rows[index]`` may need."""
    return _nodes_needed(sh, footprint(rows[index], sh.runs))
