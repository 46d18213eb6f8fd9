"""Legal execution orders of rows: which pipe may run its next row, and which one to run.

Pipes run in order. The scalar unit issues in program order and takes no time, so a pipe may run ahead of the others
until it meets a wait whose set has not run, a barrier of all pipes, or a row behind a scalar wait. A flag counts: the
k-th wait belongs to the k-th set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Pipe
from npu_sim.isa.op import Op

PIPES = 8
FLAGS = 8 * 8 * 256
PROGRAM, LATE, RANDOM = range(3)
RANDOM_MODULUS = 2**31 - 1

_S = np.int64(Pipe.S)
_ALL = np.int64(Pipe.ALL)


@jit
def flag_number(row: Any) -> Int:
    """Return the number of the flag that a SET_FLAG or WAIT_FLAG names."""
    source, target = np.int64(row["pipe"]), np.int64(row["peer"])
    if row["op"] == Op.WAIT_FLAG:
        source, target = target, source
    return ((source & 7) * 8 + (target & 7)) * 256 + np.int64(row["event"])


@jit
def pass_flags(rows: np.ndarray, flags: np.ndarray) -> None:
    """Let all of ``rows``, INSTR[n], set and clear ``flags``, int64[FLAGS]."""
    for i in range(len(rows)):
        if rows[i]["op"] == Op.SET_FLAG:
            flags[flag_number(rows[i])] += 1
        elif rows[i]["op"] == Op.WAIT_FLAG:
            flags[flag_number(rows[i])] -= 1


@jit
def _next_random(state: np.ndarray) -> np.int64:
    """Advance the Lehmer generator (factor 48271, modulus 2^31 - 1) in ``state[0]`` and return its value.

    Its products stay below 2^63, so it also runs without the JIT.
    """
    state[0] = state[0] * 48271 % RANDOM_MODULUS
    return state[0]


@jit
def link(rows: np.ndarray, following: np.ndarray, heads: np.ndarray) -> None:
    """Chain the rows of each pipe: ``following[i]`` is the next row of the same pipe (``len(rows)``: none).

    Parameters
    ----------
    rows : INSTR[n]
    following : int64[n]
    heads : int64[8]
        First row of each pipe.
    """
    n = len(rows)
    for pipe in range(PIPES):
        heads[pipe] = n
    for i in range(n - 1, -1, -1):
        pipe = np.int64(rows[i]["pipe"]) & 7
        following[i] = heads[pipe]
        heads[pipe] = i


@jit
def _scalar_waits(rows: np.ndarray) -> np.ndarray:
    """Return int64[n + 1]: the first wait of the scalar unit at or behind each row (``len(rows)``: none)."""
    n = len(rows)
    waits = np.empty(n + 1, np.int64)
    waits[n] = n
    for i in range(n - 1, -1, -1):
        is_wait = rows[i]["op"] == Op.WAIT_FLAG and rows[i]["pipe"] == Pipe.S
        waits[i] = i if is_wait else waits[i + 1]
    return waits


@jit
def _blocker(rows: np.ndarray, heads: np.ndarray, flags: np.ndarray, waits: np.ndarray, pipe: Int) -> np.int64:
    """Return why the next row of ``pipe`` cannot run: -1 it can, -2 no row left, else the pipe it waits for."""
    head = heads[pipe]
    n = len(rows)
    if head == n:
        return np.int64(-2)
    if pipe == _ALL:
        # A barrier of all pipes runs when everything issued before it has run.
        for other in range(PIPES - 1):
            if heads[other] < head:
                return np.int64(other)
        return np.int64(-1)
    if heads[_ALL] < head:
        return _ALL
    # Rows are issued while the scalar unit's own stores are still under way, but not before its waits are over.
    if pipe != _S and waits[heads[_S]] < head:
        return _S
    row = rows[head]
    if row["op"] == Op.WAIT_FLAG and flags[flag_number(row)] == 0:
        return np.int64(row["peer"]) & 7
    return np.int64(-1)


@jit
def _demanded(rows: np.ndarray, heads: np.ndarray, flags: np.ndarray, waits: np.ndarray) -> np.int64:
    """Return the pipe to run in the late order, or -1 if nothing can run.

    Target is the earliest row that computes; from it the waits lead to the row of another pipe that must run first.
    Without such a row left, the earliest row of all is the target.
    """
    n = len(rows)
    target, first = np.int64(-1), n
    for computing in (Pipe.S, Pipe.V, Pipe.M, Pipe.ALL):
        pipe = np.int64(computing)
        if heads[pipe] < first:
            target, first = pipe, heads[pipe]
    if target < 0:
        for pipe in range(PIPES):
            if heads[pipe] < first:
                target, first = np.int64(pipe), heads[pipe]
    for _ in range(2 * PIPES):
        if target < 0:
            return target
        blocker = _blocker(rows, heads, flags, waits, target)
        if blocker == -1:
            return target
        if blocker == -2:
            return np.int64(-1)
        target = blocker
    return np.int64(-1)


@jit
def _any_ready(rows: np.ndarray, heads: np.ndarray, flags: np.ndarray, waits: np.ndarray, start: Int) -> np.int64:
    """Return the first pipe from ``start`` on (cyclically) that can run, or -1."""
    for step in range(PIPES):
        pipe = np.int64((start + step) % PIPES)
        if _blocker(rows, heads, flags, waits, pipe) == -1:
            return pipe
    return np.int64(-1)


@jit
def _run_head(rows: np.ndarray, following: np.ndarray, heads: np.ndarray, flags: np.ndarray, pipe: Int) -> Int:
    """Let the next row of a pipe take effect on the flags, and return its number."""
    head = heads[pipe]
    row = rows[head]
    if row["op"] == Op.SET_FLAG:
        flags[flag_number(row)] += 1
    elif row["op"] == Op.WAIT_FLAG:
        flags[flag_number(row)] -= 1
    heads[pipe] = following[head]
    return np.int64(head)


@jit
def schedule(
    rows: np.ndarray,
    following: np.ndarray,
    heads: np.ndarray,
    flags: np.ndarray,
    rule: Int,
    random_state: np.ndarray,
    order: np.ndarray,
) -> Int:
    """Fill ``order`` with a legal permutation.

    Parameters
    ----------
    rows : INSTR[n]
    following : int64[n]
        From `link`.
    heads : int64[8]
        From `link`; ends up at the rows that could not run.
    flags : int64[FLAGS]
        Zeros on entry.
    rule : int64
        `LATE` or `RANDOM`.
    random_state : int64[1]
        Seed of `RANDOM`, in [1, 2^31 - 2].
    order : int64[n]
        Result.

    Returns
    -------
    int
        Rows placed; fewer than n if the program deadlocks.
    """
    n = len(rows)
    burst, favourite = np.int64(0), np.int64(0)
    waits = _scalar_waits(rows)
    for position in range(n):
        if rule == LATE:
            pipe = _demanded(rows, heads, flags, waits)
            if pipe < 0:
                pipe = _any_ready(rows, heads, flags, waits, np.int64(0))
        else:
            # Bursts of one pipe: single steps alone would keep the pipes close together.
            if burst == 0:
                favourite = _next_random(random_state) % PIPES
                burst = 1 + _next_random(random_state) % 24
            burst -= 1
            pipe = _any_ready(rows, heads, flags, waits, favourite)
            if pipe != favourite:
                burst = np.int64(0)
        if pipe < 0:
            return position
        order[position] = _run_head(rows, following, heads, flags, pipe)
    return np.int64(n)


@jit
def hold_back(
    rows: np.ndarray,
    following: np.ndarray,
    heads: np.ndarray,
    flags: np.ndarray,
    held: Int,
    wanted: Int,
    order: np.ndarray,
) -> Int:
    """Fill ``order`` with a legal permutation in which row ``wanted`` runs before row ``held``, if there is one.

    Of the rows that may run the earliest does, but ``held`` not before ``wanted`` has run. What needs ``held`` waits
    with it, so that ``wanted`` is reached unless it needs it, too.

    Parameters
    ----------
    rows, following, heads, flags, order
        As for `schedule`.
    held, wanted : int64
        Row numbers.

    Returns
    -------
    int
        Rows placed; fewer than n if there is no such order, or the program deadlocks.
    """
    n = len(rows)
    waits = _scalar_waits(rows)
    is_free = False
    for position in range(n):
        pipe, head = np.int64(-1), np.int64(n)
        for candidate in range(PIPES):
            at = heads[candidate]
            if at >= head or (at == held and not is_free):
                continue
            if _blocker(rows, heads, flags, waits, np.int64(candidate)) == -1:
                pipe, head = np.int64(candidate), at
        if pipe < 0:
            return position
        order[position] = _run_head(rows, following, heads, flags, pipe)
        is_free = is_free or head == wanted
    return np.int64(n)
