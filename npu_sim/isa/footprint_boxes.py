"""Boxes of bytes, the pieces a footprint is put together from, and how they become runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import SPACES, Mode, Space
from npu_sim.units import BLOCK_BYTES, FRACTAL_BYTES

# NumPy integers, not Python ones: Numba compiles a function once more for every literal argument it sees.
READ = np.int64(0)
WRITE = np.int64(1)
ATOMIC_ADD = np.int64(2)

TOO_MANY_RUNS = -1
NO_FOOTPRINT = -2

REACH_BYTES = np.int64(1 << 48)
"""How far from the start of its space a box may lie; no GM is larger (device addresses have 48 bits)."""
OPERAND_BITS = 16
"""Width of the widest operand that is multiplied by other operands before it meets a box (`limits.RANGES`)."""

BLOCK, FRACTAL = np.int64(BLOCK_BYTES), np.int64(FRACTAL_BYTES)

NONE = np.int64(0)
ONCE = np.int64(1)
L1, L0A, L0B, L0C, UB, BT, FB, IDX = (
    np.int64(space) for space in (Space.L1, Space.L0A, Space.L0B, Space.L0C, Space.UB, Space.BT, Space.FB, Space.IDX)
)


@jit
def box(
    out: np.ndarray,
    count: Int,
    space: Int,
    access: Int,
    start: Int,
    length: Int,
    n0: Int,
    s0: Int,
    n1: Int,
    s1: Int,
    n2: Int,
    s2: Int,
) -> Int:
    """Note ``n0 x n1 x n2`` repetitions of ``length`` bytes with the given strides as box number ``count``.

    Boxes take two rows each at the end of ``out``, last box first; `melt` turns them into runs. One expansion behind
    all instructions, instead of one at each of these calls, is what keeps the compile time in seconds.

    Returns
    -------
    int
        New count (unchanged for an empty box), or `TOO_MANY_RUNS`; a negative ``count`` is passed on.
    """
    if count < 0 or length <= 0 or n0 <= 0 or n1 <= 0 or n2 <= 0:
        return count
    at = len(out) - 2 * (count + 1)
    if at < 0:
        return TOO_MANY_RUNS
    out[at, 0] = space
    out[at, 1] = access
    out[at, 2] = start
    out[at, 3] = length
    out[at, 4] = n0
    out[at, 5] = s0
    out[at + 1, 0] = n1
    out[at + 1, 1] = s1
    out[at + 1, 2] = n2
    out[at + 1, 3] = s2
    return count + 1


@jit
def melt(out: np.ndarray, boxes: np.ndarray) -> Int:
    """Turn the noted boxes into runs from row 0 on, as few as possible; return their number.

    A box must lie in a space that exists and reach at most `REACH_BYTES` from its start, so that no sum or product
    behind this check wraps around; else all of it is `NO_FOOTPRINT`. What led to the box is an address plus numbers
    below 2^60 (a row field times a size, or products of at most three fields of `OPERAND_BITS` bits). Such a sum may
    wrap, but then ``start`` lies more than 2^62 from zero. The reach is taken in floating point, unless all sizes are
    below 2^22: three products of those and half the reach add up to less than the reach.

    Returns
    -------
    int
        Runs, `NO_FOOTPRINT`, or `TOO_MANY_RUNS`.
    """
    count = np.int64(0)
    for number in range(boxes):
        at = len(out) - 2 * (number + 1)
        space, access, start, length = out[at, 0], out[at, 1], out[at, 2], out[at, 3]
        n0, s0 = out[at, 4], out[at, 5]
        n1, s1, n2, s2 = out[at + 1, 0], out[at + 1, 1], out[at + 1, 2], out[at + 1, 3]
        if space <= Space.NONE or space >= SPACES:
            return NO_FOOTPRINT
        if (length | n0 | s0 | n1 | s1 | n2 | s2) >> 22 != 0 or (start + (REACH_BYTES >> 1)) >> 48 != 0:
            far = abs(float(start)) + float(length) + float(n0 - 1) * abs(float(s0))
            far += float(n1 - 1) * abs(float(s1)) + float(n2 - 1) * abs(float(s2))
            if far > REACH_BYTES:
                return NO_FOOTPRINT
        if s0 < 0:
            start, s0 = start + (n0 - 1) * s0, -s0
        if s1 < 0:
            start, s1 = start + (n1 - 1) * s1, -s1
        if s2 < 0:
            start, s2 = start + (n2 - 1) * s2, -s2
        if s0 == 0:
            n0 = 1
        if s1 == 0:
            n1 = 1
        if s2 == 0:
            n2 = 1
        # Smallest stride first, dimensions of one repetition last, so that neighbours can melt together.
        for _ in range(2):
            if n0 == 1 or (n1 > 1 and s1 < s0):
                n0, s0, n1, s1 = n1, s1, n0, s0
            if n1 == 1 or (n2 > 1 and s2 < s1):
                n1, s1, n2, s2 = n2, s2, n1, s1
        for _ in range(3):
            if n0 > 1 and s0 <= length:
                length += (n0 - 1) * s0
                n0, s0, n1, s1, n2, s2 = n1, s1, n2, s2, 1, 0
            elif n1 > 1 and s1 == n0 * s0:
                n0, n1, s1, n2, s2 = n0 * n1, n2, s2, 1, 0
            elif n2 > 1 and s2 == n1 * s1:
                n1, n2, s2 = n1 * n2, 1, 0
        # The longest dimension becomes the repetition.
        if n1 > n0:
            n0, s0, n1, s1 = n1, s1, n0, s0
        if n2 > n0:
            n0, s0, n2, s2 = n2, s2, n0, s0
        limit = len(out) if number == boxes - 1 else len(out) - 2 * boxes
        if count + n1 * n2 > limit:
            return TOO_MANY_RUNS
        for i in range(n2):
            for j in range(n1):
                out[count, 0] = space
                out[count, 1] = access
                out[count, 2] = start + i * s2 + j * s1
                out[count, 3] = length
                out[count, 4] = n0
                out[count, 5] = s0 if n0 > 1 else length
                count += 1
    return count


@jit
def line(
    out: np.ndarray, count: Int, space: Int, access: Int, start: Int, length: Int, repeats: Int, stride: Int
) -> Int:
    """Note one dimension of repetitions."""
    return box(out, count, space, access, start, length, repeats, stride, ONCE, NONE, ONCE, NONE)


@jit
def store_access(row: Any) -> Int:
    """Return how a store to ``dst_space`` touches it: GM adds when the core is in atomic mode."""
    if row["dst_space"] == Space.GM and row["mode"] & Mode.ATOMIC != 0:
        return ATOMIC_ADD
    return WRITE


@jit
def fractal_rows(
    out: np.ndarray, count: Int, space: Int, start: Int, lines: Int, outer_step: Int, k: Int, k_step: Int, item: Int
) -> Int:
    """Append the valid bytes of an L0 operand: ``lines`` rows (m or n) by ``k`` elements, in 16-row fractals.

    Fractals that are neighbours along the rows are ``outer_step`` bytes apart, along k ``k_step``.
    """
    full_k, tail_k = k * item // BLOCK, k * item % BLOCK
    full, tail = lines // 16, lines % 16
    count = box(out, count, space, READ, start, FRACTAL, full_k, k_step, full, outer_step, ONCE, NONE)
    count = box(
        out, count, space, READ, start + full * outer_step, tail * BLOCK, full_k, k_step, ONCE, NONE, ONCE, NONE
    )
    at = start + full_k * k_step
    count = box(out, count, space, READ, at, tail_k, np.int64(16), BLOCK, full, outer_step, ONCE, NONE)
    return box(out, count, space, READ, at + full * outer_step, tail_k, tail, BLOCK, ONCE, NONE, ONCE, NONE)


@jit
def accumulator(
    out: np.ndarray,
    count: Int,
    access: Int,
    start: Int,
    m: Int,
    n: Int,
    column_step: Int,
    matrices: Int,
    matrix_step: Int,
) -> Int:
    """Append m x n elements of L0C: columns of 16, 64 bytes a row, ``column_step`` bytes from column to column."""
    full, tail = n // 16, n % 16
    count = box(out, count, L0C, access, start, m * 64, full, column_step, matrices, matrix_step, ONCE, NONE)
    at = start + full * column_step
    return box(out, count, L0C, access, at, tail * 4, m, np.int64(64), matrices, matrix_step, ONCE, NONE)
