"""Steps of `engines.replay`, planned and carried out."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.codes import ON_CHIP, SPACES, Space
from npu_sim.isa.dispatch import run_what_is_compiled
from npu_sim.isa.footprint import reach
from npu_sim.isa.l0_bytes import KEPT
from npu_sim.isa.mte import FRACTAL
from npu_sim.memory.core import POISON_BYTE

RUN, POISON, LEAVE, TAKE = range(4)
"""Rows; and bytes of a buffer: overwrite them, put them aside, take them back."""
STEP_FIELDS = 5
"""What; the space; first row or byte and the one behind the last; place of the bytes that are put aside."""
MOST_STEPS = 1 + 3 * len(ON_CHIP)
"""Of a turn."""


@jit
def _widen(place: np.ndarray, low: Int, high: Int) -> None:
    """Let a place, [first byte, the one behind the last], hold others too; equal for none."""
    if low != high:
        empty = place[0] == place[1]
        place[0] = low if empty else min(place[0], low)
        place[1] = high if empty else max(place[1], high)


@jit
def _touch(rows: np.ndarray, first: Int, last: Int, runs: np.ndarray, touched: np.ndarray) -> Flag:
    """Add to ``touched[space]`` the bytes of each buffer, as the host has it, that rows touch; False: not known."""
    ends = np.zeros((1, SPACES, 2), np.int64)
    for i in range(first, last):
        reach(rows[i : i + 1], runs, ends)
        if ends[0, 0, 0] < 0:
            return False
        for space in range(Space.L1, SPACES):
            low, high = ends[0, space]
            if space == Space.L0A or space == Space.L0B:  # whole fractals, as carriers
                low, high = low // FRACTAL * KEPT, (high + FRACTAL - 1) // FRACTAL * KEPT
            _widen(touched[space], low, high)
    return True


@jit
def plan_steps(rows: np.ndarray, turns: np.ndarray, most: Int, runs: np.ndarray, steps: np.ndarray) -> Any:
    """Write the steps that run rows of many cores on the buffers of one.

    Parameters
    ----------
    rows : INSTR[:]
    turns : int64[m, 3]
        Core, its first row and the one behind its last.
    most : int
        Bytes that may be put aside.
    runs : int64[capacity, 6]
        Buffer of `isa.footprint`.
    steps : int64[m * MOST_STEPS, STEP_FIELDS]
        Receives the steps.

    Returns
    -------
    (int, int)
        Steps, and the bytes that they put aside; (-1, 0): a row's bytes are not known, or too many are put aside.
    """
    cores = turns[:, 0].max() + 1 if len(turns) else 0
    last_turn, left = np.zeros(cores, np.int64), np.zeros((cores, SPACES, 2), np.int64)
    at = np.zeros((cores, SPACES), np.int64)
    for number in range(len(turns)):
        last_turn[turns[number, 0]] = number
    count, aside = np.int64(0), np.int64(0)
    for number in range(len(turns)):
        core, first, last = turns[number]
        touched = left[core].copy()
        if not _touch(rows, first, last, runs, touched):
            return np.int64(-1), np.int64(0)
        for what in (POISON, TAKE):
            places = touched if what == POISON else left[core]
            for space in range(Space.L1, SPACES):
                if places[space, 0] != places[space, 1]:
                    steps[count] = what, space, places[space, 0], places[space, 1], at[core, space]
                    count += 1
        steps[count] = RUN, 0, first, last, 0
        count += 1
        if last_turn[core] == number:
            continue
        left[core] = touched
        for space in range(Space.L1, SPACES):
            if touched[space, 0] != touched[space, 1]:
                at[core, space] = aside
                steps[count] = LEAVE, space, touched[space, 0], touched[space, 1], aside
                aside += touched[space, 1] - touched[space, 0]
                count += 1
        if aside > most:
            return np.int64(-1), np.int64(0)
    return count, aside


@jit
def _bytes_of(space: Int, parts: Any) -> Any:
    """Return the bytes of the buffer of a space."""
    if space == Space.L1:
        return parts[1]
    if space == Space.L0A:
        return parts[2].view(np.uint8)
    if space == Space.L0B:
        return parts[3].view(np.uint8)
    if space == Space.L0C:
        return parts[4].view(np.uint8)
    if space == Space.UB:
        return parts[5]
    if space == Space.BT:
        return parts[6]
    return parts[7] if space == Space.FB else parts[8]


@jit
def run_steps(steps: np.ndarray, step: Int, row: Int, aside: np.ndarray, rows: np.ndarray, parts: Any) -> Any:
    """Carry out steps.

    Parameters
    ----------
    steps : int64[n, STEP_FIELDS]
    step, row : int
        The first step, and its first row if it is not that of the step: -1.
    aside : uint8[:]
        Where bytes are put aside.
    rows : INSTR[:]
    parts : tuple
        What `isa.dispatch.run_what_is_compiled` has behind the range of rows: memory, the buffers and so on.

    Returns
    -------
    (int, int)
        The step it ends at and what `run_what_is_compiled` returned there; (n, 0) behind the last.
    """
    while step < len(steps):
        what, space, first, last, place = steps[step]
        if what == RUN:
            end = run_what_is_compiled(rows, row if row >= 0 else first, last, *parts)
            if end != last:
                return step, end
            row = np.int64(-1)
        else:
            held = _bytes_of(space, parts)[first:last]
            if what == POISON:
                held[:] = POISON_BYTE
            elif what == LEAVE:
                aside[place : place + last - first] = held
            else:
                held[:] = aside[place : place + last - first]
        step += 1
    return step, np.int64(0)
