"""Zeros of A that Mmad leaves out: which there are, and whether leaving them out changes a bit.

Padding makes whole rows of zeros, the zeros that a stride inserts are in every other row, and both depend on the tap,
so on the fractal of k. Adding the product of a zero changes what is -0, and a zero times Inf or NaN is NaN. So nothing
is left out unless B is finite, no accumulator is -0 at the start and none can become -0: what cancels becomes +0, only
what underflows could round to -0.

Rows go in halves of 8: of a fractal its first 8 and its last 8, or if zeros are in every other row its even and its odd
ones. Halves next to each other with zeros in the same fractals of k are one run.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.lanes import awkward_lanes, fragile_lanes, nonzero_lanes, separate_lanes, tiny_lanes

_WIDE_ENOUGH = 64
"""Columns from which on looking for rows of zeros costs a small part of the products."""

_RUN_COST = 3
"""Runs that take as long as the products of 8 rows with a fractal of k."""


@jit
def find_runs(a, a_at, a_row, a_step, m, n, k, k0):
    """Find the halves of fractals of A that are zero in all k of a fractal; a NaN is not zero.

    Only whole fractals of rows are looked at, and nothing is found in a product too narrow to be worth the look.

    Returns
    -------
    runs : int64[r, 5]
        First half, halves, first fractal of k, fractals of k, how far these are apart: what has to be multiplied, for
        each half in ascending k. One that is all zeros has one run without a fractal of k. None if nothing is zero.
    apart : bool
        Half h is the even rows of fractal h, and behind all those come the odd ones; else 2 h and 2 h + 1 are the
        first and the last rows of fractal h.
    """
    fractals, chunks = m // 16, (k + k0 - 1) // k0
    if n < _WIDE_ENOUGH or n % 16 != 0 or fractals == 0:
        return np.empty((0, 5), np.int64), False
    held = np.empty(fractals * chunks, np.int64)
    together, apart = np.int64(0), np.int64(0)
    for f in range(fractals):
        lanes = np.int64(0)
        for c in range(chunks):
            # dense rows leave after the first fractal
            if lanes != 0xFFFF:
                lanes = np.int64(nonzero_lanes(a, a_at + f * a_row + c * a_step, min(k0, k - c * k0)))
            held[f * chunks + c] = lanes
            together += np.int64(lanes & 0xFF != 0) + np.int64(lanes & 0xFF00 != 0)
            apart += np.int64(lanes & 0x5555 != 0) + np.int64(lanes & 0xAAAA != 0)
    saved = 2 * fractals * chunks - min(apart, together)
    if saved == 0:
        return np.empty((0, 5), np.int64), False
    runs = _list_runs(held, fractals, chunks, apart < together)
    if len(runs) > _RUN_COST * saved:
        return runs[:0], False
    return runs, apart < together


@jit
def _holds(held, fractals, chunks, apart, half, chunk):
    """Return whether any of 8 rows holds something in a fractal of k."""
    if apart:
        return held[half % fractals * chunks + chunk] & (0x5555 << half // fractals) != 0
    return held[(half >> 1) * chunks + chunk] & (0xFF << 8 * (half & 1)) != 0


@jit
def _list_runs(held, fractals, chunks, apart):
    runs = np.empty((2 * fractals * chunks, 5), np.int64)
    count = 0
    half = 0
    while half < 2 * fractals:
        end = half + 1
        while end < 2 * fractals and not (apart and end == fractals):
            chunk = 0
            while chunk < chunks and (
                _holds(held, fractals, chunks, apart, half, chunk) == _holds(held, fractals, chunks, apart, end, chunk)
            ):
                chunk += 1
            if chunk < chunks:
                break
            end += 1
        first = count
        for chunk in range(chunks):
            if not _holds(held, fractals, chunks, apart, half, chunk):
                continue
            step = 0
            if count > first:
                step = chunk - (runs[count - 1, 2] + (runs[count - 1, 3] - 1) * runs[count - 1, 4])
            if step != 0 and (runs[count - 1, 3] == 1 or runs[count - 1, 4] == step):
                runs[count - 1, 3] += 1
                runs[count - 1, 4] = step
            else:
                runs[count] = half, end - half, chunk, 1, 1
                count += 1
        if count == first:
            runs[count] = half, end - half, 0, 0, 1
            count += 1
        half = end
    return runs[:count]


@jit
def put_apart(a, a_at, a_row, a_step, m, k, k0, moved, moved_at, moved_row):
    """Copy the whole fractals of A with even rows before odd ones; ``moved`` may be A itself."""
    for f in range(m // 16):
        for c in range((k + k0 - 1) // k0):
            separate_lanes(
                a, a_at + f * a_row + c * a_step, moved, moved_at + f * moved_row + c * 256, min(k0, k - c * k0)
            )


@jit
def rows_of_half(half, fractals, apart):
    """Return where the 8 rows of a half lie: the fractal, the first lane once put apart, and in C the first row."""
    if apart:
        return half % fractals, 8 * (half // fractals), 16 * (half % fractals) + half // fractals
    return half >> 1, 8 * (half & 1), 8 * half


@jit
def never_underflow(a, a_at, a_row, a_step, b, b_at, m, n, k, k0):
    """Return whether the whole fractals of A and all of B have no product below 2^-102, and B only finite numbers.

    Numbers from 2^-51 on are multiples of 2^-74, so sums are multiples of 2^-148, and none but zero rounds to zero.
    """
    bad = np.int64(0)
    for c in range((k + k0 - 1) // k0):
        lines = min(k0, k - c * k0)
        for f in range(m // 16):
            bad |= tiny_lanes(a, a_at + f * a_row + c * a_step, lines)
        for j in range(n // 16):
            bad |= awkward_lanes(b, b_at + 256 * (c * (n // 16) + j), lines)
    return bad == 0


@jit
def keeps_zero_products(c, c_at, c_column, rows, n):
    """Return whether adding zeros leaves the first ``rows`` of C as they are (`fragile_lanes`)."""
    bad = np.int64(0)
    for j in range(n // 16):
        bad |= fragile_lanes(c, c_at + j * c_column, rows)
    return bad == 0


@jit
def clear(c, c_at, c_row, rows, columns):
    """Make some adjacent columns of rows of C zero."""
    for r in range(rows):
        c[c_at + c_row * r : c_at + c_row * r + columns] = np.float32(0)
