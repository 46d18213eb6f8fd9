"""The order in which rows start where a pipe waits for a flag that is set further down in the program.

The scalar unit issues row after row. A wait holds up its own pipe alone: what is issued to the pipe behind it stays in
its queue, and another pipe may set the flag later. Issue itself stops at a wait of the scalar unit, at a barrier of all
pipes until all queues are empty, and where a queue is full. Source: asc-devkit, SetFlag and WaitFlag; the depth of the
queues is that of the timing model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npu_sim._jit import Int, jit
from npu_sim.engines.reorder_jit import PIPES, flag_number
from npu_sim.isa.codes import Pipe
from npu_sim.isa.op import Op
from npu_sim.program.disassemble import disassemble

_S, _ALL = np.int64(Pipe.S), np.int64(Pipe.ALL)


@jit
def first_held_wait(rows: np.ndarray, first: Int, flags: np.ndarray) -> Int:
    """Return the first wait from ``first`` on whose flag no earlier row has set (``len(rows)``: none).

    Parameters
    ----------
    rows : INSTR[n]
    first : int64
    flags : int64[FLAGS]
        How often each flag is set; carried on up to that row.
    """
    for i in range(first, len(rows)):
        op = rows[i]["op"]
        if op == Op.SET_FLAG:
            flags[flag_number(rows[i])] += 1
        elif op == Op.WAIT_FLAG:
            flag = flag_number(rows[i])
            if flags[flag] == 0:
                return np.int64(i)
            flags[flag] -= 1
    return np.int64(len(rows))


@jit
def _start_all(
    rows: np.ndarray, heads: np.ndarray, following: np.ndarray, flags: np.ndarray, counts: np.ndarray, order: np.ndarray
) -> None:
    """Start what stands at the head of a queue and need not wait, until nothing is left that can."""
    is_moving = True
    while is_moving:
        is_moving = False
        for pipe in range(1, PIPES - 1):
            while heads[pipe] >= 0:
                at = heads[pipe]
                op = rows[at]["op"]
                if op == Op.WAIT_FLAG:
                    if flags[flag_number(rows[at])] == 0:
                        break
                    flags[flag_number(rows[at])] -= 1
                elif op == Op.SET_FLAG:
                    flags[flag_number(rows[at])] += 1
                order[counts[_ALL]] = at
                counts[_ALL] += 1
                counts[pipe] -= 1
                heads[pipe] = following[at]
                is_moving = True


@jit
def start_in_issue_order(
    rows: np.ndarray, flags: np.ndarray, depth: Int, heads: np.ndarray, order: np.ndarray
) -> tuple[int, int]:
    """Fill ``order`` with the rows as they start.

    Parameters
    ----------
    rows : INSTR[n]
        The rest of the rows of one core and phase.
    flags : int64[FLAGS]
        How often each flag is set; carried on.
    depth : int64
        Rows that a queue holds.
    heads : int64[8]
        Receives the row at the head of each queue that waits, -1 for none.
    order : int64[n]

    Returns
    -------
    (started, issued)
        Rows started, and rows issued; fewer started than n if the rest waits for ever.
    """
    n = len(rows)
    following, tails = np.full(n, -1, np.int64), np.full(PIPES, -1, np.int64)
    counts = np.zeros(PIPES, np.int64)  # rows in each queue; of the last pipe, which has none, rows started
    heads[:] = -1
    for i in range(n):
        row = rows[i]
        op, pipe = row["op"], np.int64(row["pipe"]) & 7
        if pipe != _S and pipe != _ALL:
            if counts[pipe] == depth:
                return counts[_ALL], i
            if heads[pipe] < 0:
                heads[pipe] = i
            else:
                following[tails[pipe]] = i
            tails[pipe] = i
            counts[pipe] += 1
        else:
            if pipe == _ALL and counts[1 : PIPES - 1].sum() > 0:
                return counts[_ALL], i
            if op == Op.WAIT_FLAG:
                if flags[flag_number(row)] == 0:
                    return counts[_ALL], i
                flags[flag_number(row)] -= 1
            elif op == Op.SET_FLAG:
                flags[flag_number(row)] += 1
            order[counts[_ALL]] = i
            counts[_ALL] += 1
        _start_all(rows, heads, following, flags, counts, order)
    return counts[_ALL], n


@dataclass(frozen=True, slots=True)
class Starts:
    """How the rest of a core's rows starts.

    Attributes
    ----------
    order : int64[started]
        Rows in the order in which they start.
    waits : tuple of int
        Where not all of them do: rows that wait, each for the next, beginning with the first of ``rows`` or of a cycle.
    is_cycle : bool
        Whether they wait for each other although every wait has its set; else a set is missing.
    """

    order: npt.NDArray[np.int64]
    waits: tuple[int, ...]
    is_cycle: bool


def starts_of(rows: np.ndarray, flags: npt.NDArray[np.int64], depth: int) -> Starts:
    """Return how ``rows`` start whose first is a wait for a flag that is not set.

    Parameters
    ----------
    rows : INSTR[n]
    flags : int64[FLAGS]
        `first_held_wait`; changed.
    depth : int
    """
    heads, order, before = np.empty(PIPES, np.int64), np.empty(len(rows), np.int64), flags.copy()
    started, issued = start_in_issue_order(rows, flags, depth, heads, order)
    if started == len(rows):
        return Starts(order, (), is_cycle=False)
    waits: list[int] = []
    at: int | None = 0
    while at is not None and at not in waits:
        waits.append(at)
        at = _held_by(rows, heads, issued, at)
    if at is not None:
        waits = waits[waits.index(at) :]
    return Starts(order[:started], tuple(waits), at is not None and all(_has_set(rows, before, one) for one in waits))


def _has_set(rows: np.ndarray, flags: npt.NDArray[np.int64], at: int) -> bool:
    """Return whether the flag that row ``at`` waits for, if it does, is set as often as it is waited for."""
    row = rows[at]
    if int(row["op"]) != Op.WAIT_FLAG:
        return True
    source, target, event = row["peer"], row["pipe"], row["event"]
    same = rows["event"] == event
    sets = np.count_nonzero(same & (rows["op"] == Op.SET_FLAG) & (rows["pipe"] == source) & (rows["peer"] == target))
    waits = np.count_nonzero(same & (rows["op"] == Op.WAIT_FLAG) & (rows["pipe"] == target) & (rows["peer"] == source))
    return bool(sets + flags[(int(source) * 8 + int(target)) * 256 + int(event)] >= waits)


def _held_by(rows: np.ndarray, heads: npt.NDArray[np.int64], issued: int, at: int) -> int | None:
    """Return the row that row ``at``, which waits, waits for; None if no row sets its flag."""
    row = rows[at]
    if int(row["op"]) != Op.WAIT_FLAG:
        # issue stops here: a barrier of all pipes, or a full queue
        pipe = int(row["pipe"]) & 7
        held = [int(head) for head in heads if head >= 0]
        return int(heads[pipe]) if pipe != _ALL else min(held)
    source = int(row["peer"]) & 7
    sets = np.flatnonzero((rows["op"] == Op.SET_FLAG) & (rows["pipe"] == row["peer"]) & (rows["peer"] == row["pipe"]))
    later = sets[(rows["event"][sets] == row["event"]) & (sets >= (heads[source] if heads[source] >= 0 else issued))]
    if not len(later):
        return None
    return int(heads[source]) if later[0] < issued else issued


def deadlock_words(rows: np.ndarray, starts: Starts, first: int, line_of: Callable[[int], str]) -> str:
    """Return a deadlock in words.

    Parameters
    ----------
    rows : INSTR[n]
        Those of `starts_of`.
    starts : Starts
    first : int
        Number of ``rows[0]``.
    line_of : callable
        From a site to where it is, "" for nowhere.
    """
    words = []
    for at in starts.waits:
        where = line_of(int(rows["site"][at]))
        text = disassemble(rows[at]).split(maxsplit=1)[1]
        words.append(f"row {first + at} {text}{f' ({where})' if where else ''}")
    return f"Deadlock: {', which waits for '.join(words)}, which waits for the first, for ever"
