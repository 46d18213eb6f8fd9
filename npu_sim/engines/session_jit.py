"""Rows that name places of several arrays, made ready for an executor that sees one array at a time."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Space
from npu_sim.isa.footprint import reach
from npu_sim.isa.gm_extent import DST, SRC, gm_operands, space_of

OPERANDS = 3


@jit
def spaces_named(rows: np.ndarray, n: Int) -> Int:
    """Return bits of the spaces that operands of ``rows[:n]`` name: all that they touch but tables and indices."""
    found = np.int64(0)
    for i in range(n):
        for operand in range(OPERANDS):
            found |= np.int64(1) << space_of(rows[i], operand)
    return found


@jit
def first_outside(rows: np.ndarray, n: Int, table: np.ndarray, runs: np.ndarray, ends: np.ndarray) -> Int:
    """Return the first of ``rows[:n]`` that leaves the part of its tensor it may touch, or -1.

    Parameters
    ----------
    rows : INSTR[:]
        Rows with addresses in the layout of the tensors.
    n : int
    table : int64[tensors, 3]
        Address of the tensor, first address a row may touch, address behind the last one.
    runs : int64[capacity, 6]
        Buffer of `isa.footprint`.
    ends : int64[1, SPACES, 2]
        Receives how far that row reaches in each space (`isa.footprint.reach`).
    """
    for i in range(n):
        if gm_operands(rows[i]) == 0:
            continue
        reach(rows[i : i + 1], runs, ends)
        low, high = ends[0, Space.GM, 0], ends[0, Space.GM, 1]
        if low == high and ends[0, 0, 0] == 0:
            continue
        tensor = np.int64(rows[i]["tensor"])
        known = tensor >= 0 and tensor < len(table)
        if low == high or not known or low < table[tensor, 1] or high > table[tensor, 2]:
            return np.int64(i)
    return np.int64(-1)


@jit
def localise(rows: np.ndarray, n: Int, table: np.ndarray, segments: np.ndarray) -> Int:
    """Count the GM addresses of ``rows[:n]`` from the start of their own tensor; cut where the tensor changes.

    Parameters
    ----------
    rows : INSTR[:]
        Checked by `first_outside`; changed in place.
    n : int
    table : int64[tensors, 3]
        As `first_outside`.
    segments : int64[n or more, 2]
        Receives (row behind the last of the segment, its tensor or -1).

    Returns
    -------
    int
        Segments.
    """
    count = np.int64(0)
    tensor = np.int64(-1)
    for i in range(n):
        operands = gm_operands(rows[i])
        if operands == 0:
            continue
        own = np.int64(rows[i]["tensor"])
        # an empty row may name any tensor
        if own < 0 or own >= len(table):
            continue
        if own != tensor:
            if tensor >= 0:
                segments[count, 0] = i
                segments[count, 1] = tensor
                count += 1
            tensor = own
        if operands & SRC:
            rows[i]["src0"] -= table[own, 0]
        if operands & DST:
            rows[i]["dst"] -= table[own, 0]
    segments[count, 0] = n
    segments[count, 1] = tensor
    return count + 1
