"""Steps of `engines.replay`, carried out."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Space
from npu_sim.isa.dispatch import run_what_is_compiled
from npu_sim.memory.core import POISON_BYTE

RUN, POISON, LEAVE, TAKE = range(4)
"""Rows; and bytes of a buffer: overwrite them, put them aside, take them back."""
STEP_FIELDS = 5
"""What; the space; first row or byte and the one behind the last; place of the bytes that are put aside."""


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
