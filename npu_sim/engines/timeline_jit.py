"""The timeline: one forward pass over rows in program order that is exact for in-order pipes joined by flags.

All state of a core lives in one int64 array, ``clocks``, so a program can be fed in chunks of any size. A *time* is a
slot: a point in time (int64 cycles) and its parts, the eight numbers that say how much of the critical path up to it
was spent in each pipe and in latency. Parts are copied whenever a time wins a maximum and grow by what is added to the
time, so they add up to it by construction.

Measured alternatives (`perf.bench.rows`): without parts 1.7 times as fast; a loop or a one-hot addition instead of
eight scalars the same; keeping a base vector per pipe and copying it only when something else wins half as fast. The
functions must stay small enough to be inlined: an array argument of an outlined call is reference-counted, which costs
more than the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import SPACES, Pipe
from npu_sim.isa.cost import issue_cost, row_cost_bytes, row_path
from npu_sim.isa.cost_rates import UNKNOWN_OPCODE, UNSUPPORTED
from npu_sim.isa.op import Op

PIPES = 7
PARTS = 8
"""Parts of a time: the seven pipes in the order of `Pipe`, then latency."""
LATENCY = 7

FREE = 0
"""Slots 0-6: when the pipe can take its next instruction. Slot of `Pipe.S`: the scalar unit, which also issues."""
DONE = 8
"""Slots 8-14: when every result of the pipe so far can be used (latency included)."""
EVENTS = 8
FLAG = 16
"""Slots 16-527: set time of flag (source, destination, event), source * 64 + destination * 8 + event; -1: not set."""
RING_SIZE = 32
RING = 528
"""Slots 528-783: start times of the last 32 instructions of each pipe (back-pressure)."""
SLOTS = 784

CAUSE_BARRIER = 7
"""Causes 0-6 of a stall: a flag from that pipe."""
CAUSE_ISSUE = 8
CAUSE_QUEUE = 9
CAUSE_CROSS = 10
CAUSES = 11

AT_PARTS = 0
AT_TIME = SLOTS * PARTS
FLAG_TIMES = slice(AT_TIME + FLAG, AT_TIME + RING)
"""When each flag was set; -1: it is not."""
AT_FRESH = AT_TIME + SLOTS
"""int64[8]: `FRESH` while nothing has run on the pipe since a wait or barrier, `STARVED` if a wait held it up."""
FRESH, STARVED = 1, 2
AT_RING_COUNT = AT_FRESH + 8
AT_BUSY = AT_RING_COUNT + 8
AT_STALL = AT_BUSY + 8
"""int64[8, CAUSES]"""
OPCODES = 255
"""Opcodes are below it (`isa.op`)."""
AT_COUNT = AT_STALL + 8 * CAUSES
"""int64[OPCODES]: instructions by opcode."""
AT_BYTES = AT_COUNT + OPCODES
"""int64[SPACES, SPACES]: bytes by (source space, destination space)."""
CLOCK_WORDS = AT_BYTES + SPACES * SPACES

OK = 0
WAIT_WITHOUT_SET = 1
SET_TWICE = 2
NO_COST_RULE = 3
UNSUPPORTED_BY_PRODUCT = 4
BAD_PIPE = 5
BAD_FLAG = 6
OUT_OF_RANGE = 7
TOO_LONG = 8

ROW_CYCLES = np.uint64(1 << 39)
"""Most cycles of one row: more than any operands give that the hardware can encode."""
CORE_CYCLES = np.int64(1) << 46
"""Most cycles of one core and phase, so that the sums over rows, cores and phases stay in int64."""


@jit
def reset_clocks(clocks: np.ndarray) -> None:
    """Start a core at time 0 with no flag set."""
    clocks[:] = 0
    for slot in range(FLAG, RING):
        clocks[AT_TIME + slot] = -1


@jit
def _copy(clocks: Any, target: Int, source: Int) -> None:
    """Copy time and parts of slot ``source`` to slot ``target``."""
    a = AT_PARTS + source * PARTS
    b = AT_PARTS + target * PARTS
    x0, x1, x2, x3 = clocks[a], clocks[a + 1], clocks[a + 2], clocks[a + 3]
    x4, x5, x6, x7 = clocks[a + 4], clocks[a + 5], clocks[a + 6], clocks[a + 7]
    clocks[b], clocks[b + 1], clocks[b + 2], clocks[b + 3] = x0, x1, x2, x3
    clocks[b + 4], clocks[b + 5], clocks[b + 6], clocks[b + 7] = x4, x5, x6, x7
    clocks[AT_TIME + target] = clocks[AT_TIME + source]


@jit
def _add(clocks: Any, slot: Int, part: Int, cycles: Int) -> None:
    """Move slot ``slot`` by ``cycles`` that count as ``part``."""
    clocks[AT_PARTS + slot * PARTS + part] += cycles
    clocks[AT_TIME + slot] += cycles


@jit
def _reach(clocks: Any, slot: Int, other: Int) -> Int:
    """Set slot ``slot`` to the later of itself and ``other``; return the cycles gained."""
    gap = clocks[AT_TIME + other] - clocks[AT_TIME + slot]
    if gap > 0:
        _copy(clocks, slot, other)
        return gap
    return np.int64(0)


@jit
def flag_slot(source: Int, destination: Int, event: Int) -> Int:
    """Return the slot of a flag."""
    return FLAG + source * 64 + destination * 8 + event


@jit
def _issue(clocks: Any, pipe: Int, cycles: Int, depth: Int) -> None:
    """Let the scalar unit hand an instruction to ``pipe``: it waits while the queue is full."""
    _add(clocks, FREE, Pipe.S, cycles)
    issued = clocks[AT_RING_COUNT + pipe]
    if issued >= depth:
        oldest = RING + pipe * RING_SIZE + ((issued - depth) & (RING_SIZE - 1))
        gap = _reach(clocks, FREE, oldest)
        clocks[AT_STALL + CAUSE_QUEUE] += gap
    clocks[AT_BUSY] += cycles


@jit
def _start(clocks: Any, pipe: Int) -> Int:
    """Begin an instruction on ``pipe`` (not S): the later of the issue time and the free time; return it."""
    gap = _reach(clocks, FREE + pipe, FREE)
    clocks[AT_STALL + pipe * CAUSES + CAUSE_ISSUE] += gap
    issued = clocks[AT_RING_COUNT + pipe]
    _copy(clocks, RING + pipe * RING_SIZE + (issued & (RING_SIZE - 1)), FREE + pipe)
    clocks[AT_RING_COUNT + pipe] = issued + 1
    return clocks[AT_TIME + FREE + pipe]


@jit
def _set_flag(clocks: Any, pipe: Int, destination: Int, event: Int, cycles: Int) -> int:
    slot = flag_slot(pipe, destination, event)
    if clocks[AT_TIME + slot] >= 0:
        return SET_TWICE
    _add(clocks, FREE + pipe, pipe, cycles)
    clocks[AT_BUSY + pipe] += cycles
    if clocks[AT_TIME + DONE + pipe] > clocks[AT_TIME + FREE + pipe]:
        _copy(clocks, slot, DONE + pipe)
    else:
        _copy(clocks, slot, FREE + pipe)
    return OK


@jit
def _wait_flag(clocks: Any, source: Int, pipe: Int, event: Int, cycles: Int) -> None:
    slot = flag_slot(source, pipe, event)
    gap = _reach(clocks, FREE + pipe, slot)
    clocks[AT_STALL + pipe * CAUSES + source] += gap
    clocks[AT_TIME + slot] = -1
    _add(clocks, FREE + pipe, pipe, cycles)
    clocks[AT_BUSY + pipe] += cycles
    clocks[AT_FRESH + pipe] |= FRESH | (STARVED if gap > 0 else 0)


@jit
def _barrier_all(clocks: Any, cycles: Int) -> None:
    """Let the scalar unit wait for every pipe, so that whatever is issued later starts later."""
    gap = np.int64(0)
    for pipe in range(PIPES):
        gap += _reach(clocks, FREE, FREE + pipe)
        gap += _reach(clocks, FREE, DONE + pipe)
        clocks[AT_FRESH + pipe] |= FRESH
    clocks[AT_STALL + CAUSE_BARRIER] += gap
    _add(clocks, FREE, Pipe.S, cycles)
    clocks[AT_BUSY] += cycles


@jit
def _run(clocks: Any, pipe: Int, occupancy: Int, latency: Int) -> None:
    """Occupy ``pipe`` and make the result usable ``latency`` cycles later."""
    slot = FREE + pipe
    _add(clocks, slot, pipe, occupancy)
    clocks[AT_BUSY + pipe] += occupancy
    clocks[AT_FRESH + pipe] = 0
    if latency > 0 and clocks[AT_TIME + slot] + latency > clocks[AT_TIME + DONE + pipe]:
        _copy(clocks, DONE + pipe, slot)
        _add(clocks, DONE + pipe, LATENCY, latency)


@jit
def _exceeds(seventh: Int, eighth: Int) -> Flag:
    """Return whether one of seven things (pipes, spaces) or one of eight is none: two byte-sized fields, one look."""
    return (seventh + 1 | eighth) >= EVENTS


@jit
def _is_held(clocks: Any, row: Any) -> Flag:
    """Return whether a WAIT_FLAG waits for a flag that exists and that no row so far has set."""
    peer, pipe, event = np.int64(row["peer"]), np.int64(row["pipe"]), np.int64(row["event"])
    return pipe < PIPES and not _exceeds(peer, event) and clocks[AT_TIME + flag_slot(peer, pipe, event)] < 0


@jit
def advance(rows: np.ndarray, n: int, cost: np.ndarray, clocks: np.ndarray, spans: np.ndarray) -> tuple[int, int]:
    """Advance the clocks of one core over rows ``[0, n)``.

    Parameters
    ----------
    rows : INSTR[:]
        Rows of the core in program order, after `isa.issue`.
    n : int64
        Rows to take.
    cost : COST[1]
        Parameters (`products.cost_record.cost_record`).
    clocks : int64[CLOCK_WORDS]
        State, carried from chunk to chunk; `reset_clocks` first.
    spans : int64[n, 2] or int64[0, 2]
        Start and end of each row's occupancy, written if there is room for ``n``.

    Returns
    -------
    (code, row)
        ``OK`` and ``n``, or what is wrong and the row it is wrong in: `WAIT_WITHOUT_SET` (none so far; then nothing of
        the row has happened, and rows behind it may be taken first), `SET_TWICE` (without a wait between),
        `NO_COST_RULE`, `UNSUPPORTED_BY_PRODUCT`, `BAD_PIPE`, `BAD_FLAG`, `OUT_OF_RANGE` (operands beyond what can be
        encoded), `TOO_LONG` (all rows so far).

    Notes
    -----
    The scalar unit hands over one row after the other and waits while the queue of the pipe is full; rows of pipe S
    run in the scalar unit itself. A row leaves the queue when it starts. Start = later of issue and free pipe; a wait
    ends after its flag, which is set when every earlier instruction of the source pipe is complete; the first
    instruction of MTE1 behind a wait or a barrier pays ``mte1_start_cycles``, the first Mmad behind a wait that held M
    up ``mmad_start_cycles``.
    """
    record = cost[0]
    depth = record["queue_depth_rows"]
    flag_cycles = record["flag_cycles"]
    barrier_cycles = record["barrier_cycles"]
    mte1_start = record["mte1_start_cycles"]
    mmad_start = record["mmad_start_cycles"]
    with_spans = spans.shape[0] >= n
    for pipe in range(PIPES):
        if clocks[AT_TIME + FREE + pipe] > CORE_CYCLES:
            return TOO_LONG, 0
    for i in range(n):
        row = rows[i]
        op = np.int64(row["op"])
        pipe = np.int64(row["pipe"])
        if op >= OPCODES:
            return NO_COST_RULE, i
        if op == Op.WAIT_FLAG and _is_held(clocks, row):
            return WAIT_WITHOUT_SET, i
        clocks[AT_COUNT + op] += 1
        if op == Op.PIPE_BARRIER and pipe == Pipe.ALL:
            start = clocks[AT_TIME + FREE]
            _barrier_all(clocks, barrier_cycles)
            if with_spans:
                spans[i, 0] = start
                spans[i, 1] = clocks[AT_TIME + FREE]
            continue
        if pipe >= PIPES:
            return BAD_PIPE, i
        if pipe != Pipe.S:
            _issue(clocks, pipe, issue_cost(op, record), depth)
            start = _start(clocks, pipe)
        else:
            start = clocks[AT_TIME + FREE]
        if op == Op.WAIT_FLAG:
            peer, event = np.int64(row["peer"]), np.int64(row["event"])
            if _exceeds(peer, event):
                return BAD_FLAG, i
            _wait_flag(clocks, peer, pipe, event, flag_cycles)
        elif op == Op.SET_FLAG:
            peer, event = np.int64(row["peer"]), np.int64(row["event"])
            if _exceeds(peer, event):
                return BAD_FLAG, i
            code = _set_flag(clocks, pipe, peer, event, flag_cycles)
            if code != OK:
                return code, i
        elif op == Op.PIPE_BARRIER:
            gap = _reach(clocks, FREE + pipe, DONE + pipe)
            clocks[AT_STALL + pipe * CAUSES + CAUSE_BARRIER] += gap
            _run(clocks, pipe, barrier_cycles, np.int64(0))
            clocks[AT_FRESH + pipe] = FRESH
        else:
            occupancy, latency, byte_count = row_cost_bytes(row, record)
            if np.uint64(occupancy + latency) > ROW_CYCLES:
                # Below 0: there is no rule.
                if occupancy == UNKNOWN_OPCODE:
                    return NO_COST_RULE, i
                return (UNSUPPORTED_BY_PRODUCT if occupancy == UNSUPPORTED else OUT_OF_RANGE), i
            if byte_count > 0:
                source, target = row_path(row)
                if source >= SPACES or target >= SPACES:
                    return UNSUPPORTED_BY_PRODUCT, i
                clocks[AT_BYTES + source * SPACES + target] += byte_count
            if pipe == Pipe.MTE1 and clocks[AT_FRESH + pipe] != 0:
                occupancy += mte1_start
            elif pipe == Pipe.M and clocks[AT_FRESH + pipe] & STARVED != 0:
                occupancy += mmad_start
            _run(clocks, pipe, occupancy, latency)
        if with_spans:
            spans[i, 0] = start
            spans[i, 1] = clocks[AT_TIME + FREE + pipe]
    return OK, n


@jit
def cross_set(clocks: np.ndarray, pipe: Int, cycles: Int, token: np.ndarray) -> None:
    """Write when a flag queued in ``pipe`` arrives at other cores, ``cycles`` later, and the parts of that time.

    Parameters
    ----------
    clocks : int64[CLOCK_WORDS]
        Behind the row that sets it.
    pipe, cycles : int64
    token : int64[1 + PARTS]
    """
    slot = FREE + pipe
    if clocks[AT_TIME + DONE + pipe] > clocks[AT_TIME + slot]:
        slot = DONE + pipe
    token[0] = clocks[AT_TIME + slot] + cycles
    for part in range(PARTS):
        token[1 + part] = clocks[AT_PARTS + slot * PARTS + part]
    token[1 + LATENCY] += cycles


@jit
def cross_wait(clocks: np.ndarray, token: np.ndarray) -> None:
    """Let the scalar unit issue nothing before the flag of ``token`` has arrived."""
    gap = token[0] - clocks[AT_TIME + FREE]
    if gap > 0:
        clocks[AT_TIME + FREE] = token[0]
        for part in range(PARTS):
            clocks[AT_PARTS + FREE * PARTS + part] = token[1 + part]
        clocks[AT_STALL + CAUSE_CROSS] += gap


@jit
def finish(clocks: np.ndarray, parts: np.ndarray) -> int:
    """Write the parts of the latest time to ``parts`` (int64[PARTS]) and return that time."""
    last = FREE
    for pipe in range(PIPES):
        if clocks[AT_TIME + FREE + pipe] > clocks[AT_TIME + last]:
            last = FREE + pipe
        if clocks[AT_TIME + DONE + pipe] > clocks[AT_TIME + last]:
            last = DONE + pipe
    for part in range(PARTS):
        parts[part] = clocks[AT_PARTS + last * PARTS + part]
    return clocks[AT_TIME + last]
