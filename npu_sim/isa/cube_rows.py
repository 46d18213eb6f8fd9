"""Rows of A that Mmad need not multiply: which there are, and whether leaving them out changes a bit.

Padding makes whole rows of zeros, the zeros that a stride inserts are in every other row, and both depend on the tap,
so on the fractal of k. Adding the product of a zero changes what is -0, and a zero times Inf or NaN is NaN. So nothing
is left out unless B is finite, no accumulator is -0 at the start and none can become -0: what cancels becomes +0, only
what underflows could round to -0. Rows with something in the same fractals of k are a group: they are copied to be
adjacent, and multiplied by these fractals alone.

Windows behind the last one of a map are NaN, at the end of the last fractal: what they add up to is NaN.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.lanes import (
    awkward_lanes,
    compress_lanes,
    fragile_lanes,
    minus_zero_lanes,
    nan_lanes,
    nonzero_lanes,
    tiny_lanes,
)
from npu_sim.isa.microkernel import TILE_ROWS
from npu_sim.reinterpret import reinterpret

_WIDE_ENOUGH = 64
"""Columns from which on looking for rows of zeros costs a small part of the products."""

_MOST_GROUPS = 12
_MOST_CHUNKS = 60


@jit
def live_rows(a, a_at, a_row, m):
    """Return how many rows are left without those at the end whose first element is NaN."""
    while m > 0 and (np.int64(nan_lanes(a, a_at + ((m - 1) >> 4) * a_row, 1)) >> ((m - 1) & 15)) & 1:
        m -= 1
    return m


@jit
def _held_lanes(a, a_at, a_row, a_step, m, k, k0, held):
    """Set ``held[f, c]`` to the bits of the rows of a fractal that are not all zeros; return whether all are."""
    dense = True
    for f in range((m + 15) // 16):
        every = (np.int64(1) << min(np.int64(16), m - 16 * f)) - 1
        for c in range((k + k0 - 1) // k0):
            at = a_at + f * a_row + c * a_step
            lanes = np.int64(nonzero_lanes(a, at, 1)) & every
            if lanes != every:
                lanes = np.int64(nonzero_lanes(a, at, min(k0, k - c * k0))) & every
                dense = dense and lanes == every
            held[f, c] = lanes
    return dense


@jit
def _bits_in(word):
    count = np.int64(0)
    while word != 0:
        word &= word - 1
        count += 1
    return count


@jit
def _no_groups():
    return np.empty((0, 4), np.int64), np.empty((0, 0), np.int64), np.empty(0, np.int64)


@jit
def _add_rows(held, m, groups, masks):
    """Put all rows into groups; return how many there are, or -1 if they are too many."""
    count = np.int64(0)
    chunks = held.shape[1]
    for f in range(held.shape[0]):
        left = (np.int64(1) << min(np.int64(16), m - 16 * f)) - 1
        while left != 0:
            first = left & -left
            alike, bits = left, np.int64(0)
            for c in range(chunks):
                if held[f, c] & first != 0:
                    alike &= held[f, c]
                    bits |= np.int64(1) << c
                else:
                    alike &= ~held[f, c]
            g = np.int64(0)
            while g < count and groups[g, 3] != bits:
                g += 1
            if g == count:
                if count == _MOST_GROUPS:
                    return np.int64(-1)
                groups[g, 1], groups[g, 3] = 0, bits
                masks[g, :] = 0
                count += 1
            masks[g, f] = alike
            groups[g, 1] += _bits_in(alike)
            left &= ~alike
    return count


@jit
def group_rows(a, a_at, a_row, a_step, m, n, k, k0):
    """Group rows by the fractals of k in which they are not all zeros; a NaN is not zero.

    Returns
    -------
    groups : int64[g, 4]
        First slot, rows, slots (whole tiles) and the bits of the fractals of k. None if too little is zero, or the
        product is too narrow to be worth the look. All packed rows take less than 7/8 of A.
    masks : int64[g, f]
        The rows of each group as bits of each fractal of rows.
    places : int64[slots]
        Where the rows begin in C, in ascending order within a group; what fills its last tile is its last row again.
    """
    fractals, chunks = (m + 15) // 16, (k + k0 - 1) // k0
    if n < _WIDE_ENOUGH or n % 16 != 0 or chunks > _MOST_CHUNKS or m == 0:
        return _no_groups()
    held = np.empty((fractals, chunks), np.int64)
    if _held_lanes(a, a_at, a_row, a_step, m, k, k0, held):
        return _no_groups()
    groups, masks = np.empty((_MOST_GROUPS, 4), np.int64), np.empty((_MOST_GROUPS, fractals), np.int64)
    count = _add_rows(held, m, groups, masks)
    slots, cost = np.int64(0), np.int64(0)
    for g in range(count):
        groups[g, 0] = slots
        groups[g, 2] = (groups[g, 1] + TILE_ROWS - 1) // TILE_ROWS * TILE_ROWS
        slots += groups[g, 2]
        cost += groups[g, 2] * _bits_in(groups[g, 3])
    # packing takes a part of what is saved
    if count < 0 or 8 * cost > 7 * m * chunks:
        return _no_groups()
    places = np.empty(slots, np.int64)
    for g in range(count):
        slot = groups[g, 0]
        for f in range(fractals):
            left = masks[g, f]
            while left != 0:
                places[slot] = 256 * f + 16 * _bits_in((left & -left) - 1)
                slot += 1
                left &= left - 1
        for spare in range(slot, groups[g, 0] + groups[g, 2]):
            places[spare] = places[slot - 1]
    return groups[:count], masks, places


@jit
def pack_group(a, a_at, a_row, a_step, k, k0, group, masks, packed, packed_at):
    """Copy the rows of a group to be adjacent, one k behind the other; return how many k there are."""
    count, slots, held = group[1], group[2], group[3]
    parts = np.empty((len(masks), 3), np.int64)
    used, before = 0, np.int64(0)
    for f in range(len(masks)):
        if masks[f] != 0:
            parts[used, 0], parts[used, 1], parts[used, 2] = f * a_row, masks[f], before
            before += _bits_in(masks[f])
            used += 1
    at = packed_at
    for c in range((k + k0 - 1) // k0):
        if (held >> c) & 1 == 0:
            continue
        for i in range(min(k0, k - c * k0)):
            source = a_at + c * a_step + 16 * i
            for p in range(used):
                compress_lanes(a, source + parts[p, 0], parts[p, 1], packed, at + parts[p, 2])
            for slot in range(count, slots):
                packed[at + slot] = packed[at + count - 1]
            at += slots
    return (at - packed_at) // slots


@jit
def next_run(held, chunk):
    """Return (first, count, distance) of the next bits of ``held`` at equal distances, from ``chunk`` on.

    There is one. What comes next begins behind its last bit.
    """
    while (held >> chunk) & 1 == 0:
        chunk += 1
    last, count, distance = chunk, np.int64(1), np.int64(1)
    following = chunk + 1
    while held >> following != 0:
        if (held >> following) & 1:
            if count > 1 and following - last != distance:
                break
            distance = following - last
            last = following
            count += 1
        following += 1
    return chunk, count, distance


@jit
def never_underflow(packed, packed_at, count, b, b_at, n, k, k0):
    """Return whether packed rows of A and B have no product below 2^-102, and B only finite numbers.

    Numbers from 2^-51 on are multiples of 2^-74, so sums are multiples of 2^-148, and none but zero rounds to zero.
    What is behind the ``count`` packed elements is overwritten up to a whole vector of 16.
    """
    for i in range(packed_at + count, packed_at + (count + 15) // 16 * 16):
        packed[i] = 0
    bad = np.int64(tiny_lanes(packed, packed_at, (count + 15) // 16))
    for c in range((k + k0 - 1) // k0):
        lines = min(k0, k - c * k0)
        for j in range(n // 16):
            bad |= awkward_lanes(b, b_at + 256 * (c * (n // 16) + j), lines)
    return bad == 0


@jit
def keeps_zero_products(c, c_at, c_column, rows, n):
    """Return whether adding zeros in groups leaves the first ``rows`` of C as they are (`fragile_lanes`)."""
    bad = np.int64(0)
    for j in range(n // 16):
        bad |= fragile_lanes(c, c_at + j * c_column, rows)
    return bad == 0


@jit
def has_no_minus_zero(c, c_at, c_column, rows, n):
    """Return whether adding zeros leaves the first ``rows`` of C as they are in float32 itself."""
    bad = np.int64(0)
    for j in range(n // 16):
        bad |= minus_zero_lanes(c, c_at + j * c_column, rows)
    return bad == 0


@jit
def all_places(count):
    """Return where each of the first ``count`` rows of C begins."""
    places = np.empty(count, np.int64)
    for r in range(count):
        places[r] = 16 * r
    return places


@jit
def _fill(c, c_at, c_column, place, columns, word):
    """Give the first ``columns`` of the row of C (uint32) at ``place`` one value."""
    for j in range((columns + 15) // 16):
        at = c_at + j * c_column + place
        for i in range(min(16, columns - 16 * j)):
            c[at + i] = np.uint32(word)


@jit
def settle_rows(c, c_at, c_column, live, m, columns):
    """Make the rows of C whose windows do not exist NaN."""
    words = reinterpret(c, np.uint32)
    for r in range(live, m):
        _fill(words, c_at, c_column, 16 * r, columns, 0x7FFFFFFF)


@jit
def clear_empty(groups, places, c, c_at, c_column, columns):
    """Make the rows of C zero that have no product."""
    words = reinterpret(c, np.uint32)
    for g in range(len(groups)):
        if groups[g, 3] == 0:
            for slot in range(groups[g, 0], groups[g, 0] + groups[g, 1]):
                _fill(words, c_at, c_column, places[slot], columns, 0)
