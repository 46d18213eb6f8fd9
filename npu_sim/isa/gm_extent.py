"""Where a row reaches GM, put together from the instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim._switch import switch
from npu_sim.isa.codes import Mode, Space
from npu_sim.isa.op import FROM_ROW, SPACE_OF_OPERAND, handlers

SRC, DST = 1, 2


@jit
def _nowhere() -> Any:
    return np.int64(0), np.int64(0)


_extent = switch(("row",), handlers("extent"), _nowhere)
_log_demand = switch(("row",), handlers("log_demand"), _nowhere)


@jit
def space_of(row: Any, operand: Int) -> Int:
    """Return the `Space` of operand 0 (dst), 1 (src0) or 2 (src1) of a row, NONE if it has none; 255 at most."""
    space = np.int64(SPACE_OF_OPERAND[row["op"], operand])
    if space == FROM_ROW:
        space = np.int64(row["dst_space"]) if operand == 0 else np.int64(row["src0_space"])
    return space


@jit
def gm_operands(row: Any) -> Int:
    """Return which operands of ``row`` are addresses in GM: `SRC`, `DST`, both or none (0)."""
    return (SRC if space_of(row, 1) == Space.GM else 0) | (DST if space_of(row, 0) == Space.GM else 0)


@jit
def note_stored(rows: np.ndarray, n: Int, stored: np.ndarray) -> None:
    """Set ``stored[tensor]`` for each tensor that ``rows[:n]`` name as their destination."""
    for i in range(n):
        tensor = rows[i]["tensor"]
        if space_of(rows[i], 0) == Space.GM and 0 <= tensor < len(stored):
            stored[tensor] = True


@jit
def gm_extent(row: Any) -> Any:
    """Return (first byte, byte behind the last) of what a row reads or writes in GM.

    Parameters
    ----------
    row : INSTR record
        A row that moves bytes between GM and a buffer. Operands that no instruction can hold give any two numbers.

    Returns
    -------
    (int64, int64)
        Addresses in the arena.
    """
    return _extent(row["op"], row)


@jit
def atomic_demand(rows: np.ndarray, n: Int, out: np.ndarray) -> None:
    """Add an upper bound of the log space that ``rows[:n]`` need: out[0] runs, out[1] bytes."""
    for i in range(n):
        row = rows[i]
        if row["mode"] & Mode.ATOMIC != 0:
            runs, total = _log_demand(row["op"], row)
            out[0] += runs
            out[1] += total
