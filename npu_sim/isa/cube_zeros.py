"""Zeros of A that Mmad leaves out: which there are, and whether leaving them out changes a bit.

Padding makes whole rows of zeros, the zeros that a stride inserts are in every other row, and both depend on the tap,
so on the fractal of k. Adding the product of a zero changes what is -0, and a zero times Inf or NaN is NaN.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.lanes import fragile_lanes, infinite_lanes, nonzero_lanes, separate_lanes

_WIDE_ENOUGH = 64
"""Columns from which on looking for rows of zeros costs a small part of the products."""


@jit
def find_zeros(a, a_at, a_row, a_step, m, n, k, k0, shortest, moved, moved_at, moved_row):
    """Find the rows of A that are zero in all k of a fractal; a NaN is not zero.

    Inserted zeros come in every other row, so a fractal of 16 rows can be copied with its even rows before its odd ones
    where that leaves fewer halves of 8 rows that hold something.

    Parameters
    ----------
    shortest
        The k from which on leaving out is worth the look.
    moved, moved_at, moved_row
        Where the copy of the first 16 rows goes, and those of the next ones from there; it may be A itself.

    Returns
    -------
    zeros : int64[m1 * (1 + chunks)]
        For every 16 rows whether they were copied, then for every fractal of k the bits of the rows that hold
        something; of copied ones those of the halves.
    found : int
        0 if there are no zeros, or the product is too short to be worth the look; ``zeros`` is undefined then.
    """
    m1, chunks = (m + 15) // 16, (k + k0 - 1) // k0
    zeros = np.empty(m1 * (1 + chunks), np.int64)
    found = np.int64(0)
    if n < _WIDE_ENOUGH or k < shortest:
        return zeros, found
    for f in range(m1):
        base = f * (1 + chunks)
        zeros[base] = 0
        together, apart = 0, 0
        is_dense = False
        for c in range(chunks):
            held = np.int64(0xFFFF)
            if not is_dense:
                held = np.int64(nonzero_lanes(a, a_at + f * a_row + c * a_step, min(k0, k - c * k0)))
                # dense rows leave after the first fractal
                is_dense = held == 0xFFFF
            zeros[base + 1 + c] = held
            found |= held ^ 0xFFFF
            together += (held & 0xFF != 0) + (held & 0xFF00 != 0)
            apart += (held & 0x5555 != 0) + (held & 0xAAAA != 0)
        if is_dense or apart >= together or 16 * f + 16 > m:
            continue
        zeros[base] = 1
        for c in range(chunks):
            held = zeros[base + 1 + c]
            zeros[base + 1 + c] = (0xFF if held & 0x5555 else 0) | (0xFF00 if held & 0xAAAA else 0)
            at, to = a_at + f * a_row + c * a_step, moved_at + f * moved_row + c * 256
            separate_lanes(a, at, moved, to, min(k0, k - c * k0))
    return zeros, found


@jit
def end_of_run(zeros, base, chunk, chunks, wanted):
    """Return the first chunk from ``chunk`` on whose ``wanted`` rows are not like those of ``chunk``, zero or not."""
    holds = zeros[base + 1 + chunk] & wanted != 0
    chunk += 1
    while chunk < chunks and (zeros[base + 1 + chunk] & wanted != 0) == holds:
        chunk += 1
    return chunk


@jit
def is_finite_panel(b, b_at, k, k0, b_step, vectors):
    """Return whether all of B[k, 16 * vectors] is finite."""
    bad = np.int64(0)
    at = b_at
    for first in range(0, k, k0):
        for j in range(vectors):
            bad |= infinite_lanes(b, at + 256 * j, min(k0, k - first))
        at += b_step
    return bad == 0


@jit
def clear(c, c_at, c_column, c_row, rows, first, last):
    """Make columns ``first`` to ``last`` of some rows of C zero."""
    for r in range(rows):
        for i in range(first, last):
            c[c_at + (i >> 4) * c_column + c_row * r + (i & 15)] = np.float32(0)


@jit
def keeps_zero_products(c, c_at, c_column, c_row, rows, first, last):
    """Return whether adding zeros leaves columns of C as they are (`fragile_lanes`).

    ``c_at`` is the first of the rows in column 0; the whole columns of 16 are looked at.
    """
    bad = np.int64(0)
    for v in range(first >> 4, (last + 15) >> 4):
        bad |= fragile_lanes(c, c_at + v * c_column, rows, c_row)
    return bad == 0
