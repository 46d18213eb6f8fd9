"""Groups of exact products, on float64 copies of the operands.

The rounding to float32 has a fast form for sums that cannot overflow, are not Inf or NaN, and are multiples of the
smallest subnormal, 2^-149, as float32 itself is, or where subnormals are flushed of 2^-126, so that there are none; the
ranges of the operands, collected while they are copied, tell. Either way the bits are those of the definition.

Jitted part of `isa.cube`, which has the layouts.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.accumulation import AccumulatorRound
from npu_sim.isa import microkernel as mk
from npu_sim.isa.cube_rows import (
    all_places,
    clear_empty,
    group_rows,
    keeps_zero_products,
    live_rows,
    next_run,
    pack_group,
    settle_rows,
)
from npu_sim.isa.cube_tiles import tile_in, tile_out
from npu_sim.isa.cube_tree import LARGEST, saturated, settled
from npu_sim.isa.lanes import extreme_lanes, unusual_lanes
from npu_sim.reinterpret import reinterpret

_BLOCK_K = 128  # k at a time, so that a panel of L0B stays in the first-level cache


@jit
def _reset_ranges(ranges):
    for i in range(8):
        ranges[i] = 0
        ranges[8 + i] = -1
        ranges[16 + i] = 0


@jit
def _top_and_grain(ranges):
    """Return (top, grain) of the values in ``ranges``: each is below 2^(top - 126) and a multiple of 2^grain."""
    largest = np.int64(0)
    smallest = np.int64(0xFFFFFFFF)
    union = np.int64(0x800000)
    for i in range(8):
        largest = max(largest, np.int64(ranges[i]))
        smallest = min(smallest, np.int64(ranges[8 + i]) & 0xFFFFFFFF)
        union |= np.int64(ranges[16 + i]) & 0x7FFFFF
    if largest == 0:
        return np.int64(0), np.int64(200)
    trailing = np.int64(0)
    while (union >> trailing) & 1 == 0:
        trailing += 1
    return largest >> 23, max((smallest + 1) >> 23, 1) - 150 + trailing


@jit
def _saturate(wide, at, count, largest):
    """Make operands what saturation mode makes of them."""
    for i in range(at, at + count):
        wide[i] = saturated(wide[i], largest)


@jit
def settle(l0c, c_at, m, n, flushes, saturates):
    """Make accumulators what they count as, and results what they are (`settled`)."""
    words = reinterpret(l0c, np.uint32)
    column = 256 * ((m + 15) // 16)
    for j in range(n):
        for r in range(m):
            at = c_at + (j >> 4) * column + 16 * r + (j & 15)
            words[at] = settled(words[at], flushes, saturates)


@jit
def _range_of_panels(values, at, row, step, count, k, k0, ranges):
    """Return (top, grain) of ``count`` carriers per k: fractals of 16 are ``row`` apart, those of k ``step``."""
    _reset_ranges(ranges)
    for f in range((count + 15) // 16):
        for c in range((k + k0 - 1) // k0):
            for lane in range(0, min(16, count - 16 * f), 8):
                begin = at + f * row + c * step + lane
                mk.scan(values, begin, min(k0, k - c * k0), count - 16 * f - lane, ranges)
    return _top_and_grain(ranges)


@jit
def _operand_range(values, at, row, step, count, k, k0, ranges):
    """Return (top, grain) as of `_range_of_panels`, or bounds of them that do where no value is out of the usual."""
    bad = np.int64(0)
    for f in range((count + 15) // 16):
        lanes = np.int64(0)
        for c in range((k + k0 - 1) // k0):
            lanes |= unusual_lanes(values, at + f * row + c * step, min(k0, k - c * k0))
        bad |= lanes & ((np.int64(1) << min(np.int64(16), count - 16 * f)) - 1)
    if bad == 0:
        return np.int64(126 + 40), np.int64(-24 - 23)
    return _range_of_panels(values, at, row, step, count, k, k0, ranges)


@jit
def _accumulator_range(c, c_at, c_column, m, n, ranges):
    """Return (top, grain) of C[m, n], whether there is no -0, and whether no value is out of the usual.

    Of usual values these are bounds, and adding zeros leaves them as they are.
    """
    bad = np.int64(0)
    for j in range((n + 15) // 16):
        bad |= extreme_lanes(c, c_at + j * c_column, m) & ((np.int64(1) << min(np.int64(16), n - 16 * j)) - 1)
    if bad == 0:
        return np.int64(252), np.int64(-102 - 23), True, True
    _reset_ranges(ranges)
    for j in range((n + 7) // 8):
        mk.scan(c, c_at + (j >> 1) * c_column + 8 * (j & 1), m, n - 8 * j, ranges)
    top, grain = _top_and_grain(ranges)
    words = reinterpret(c, np.uint32)
    for j in range(n):
        for r in range(m):
            if words[c_at + (j >> 4) * c_column + 16 * r + (j & 15)] == np.uint32(0x80000000):
                return top, grain, False, False
    return top, grain, True, False


@jit
def _exact_tiles(
    fast, vectors, a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
):
    """Run the kernel for as many vectors of columns; operands as in `microkernel`."""
    if vectors == mk.FULL_VECTORS:
        if fast:
            mk.fast_full(
                a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
            )
        else:
            mk.exact_full(
                a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
            )
    elif fast:
        mk.fast_rest(
            a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
        )
    else:
        mk.exact_rest(
            a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
        )


@jit
def _packed_tiles(
    groups, places, fast, vectors, wide, b_wide, c, c_at, half, c_column, k, k0, group, limit, floor, init
):
    """Multiply the groups of packed rows by a panel; ``places`` are where the rows begin in C."""
    at = np.int64(0)
    for g in range(len(groups)):
        first, slots, held = groups[g, 0], groups[g, 2], groups[g, 3]
        start, chunk = init, np.int64(0)
        length = np.int64(0)
        a_tile = mk.TILE_ROWS * _lines_of(held, k, k0)
        while held >> chunk != 0:
            chunk, count, distance = next_run(held, chunk)
            # the kernel leaves something out behind each group: several fractals in one go if these are the groups
            if group != k0 and distance != 1:
                count, distance = np.int64(1), np.int64(1)
            last = chunk + (count - 1) * distance
            run = (count - 1) * k0 + min(k0, k - last * k0)
            _exact_tiles(
                fast, vectors, wide, at + mk.TILE_ROWS * length, wide, b_wide + 8 * vectors * chunk * k0, c, c_at,
                places[first:], half, c_column, run, group, limit, floor, start, slots // mk.TILE_ROWS, a_tile,
                8 * vectors * (distance - 1) * k0,
            )  # fmt: skip
            length += run
            start = np.int64(0)
            chunk = last + 1
        at += slots // mk.TILE_ROWS * a_tile


@jit
def _lines_of(held, k, k0):
    """Return how many k there are in some fractals of k."""
    lines = np.int64(0)
    for c in range((k + k0 - 1) // k0):
        lines += ((held >> c) & 1) * min(k0, k - c * k0)
    return lines


@jit
def _widen_stretch(src, at, count, lines, chunk, line, step, wide, wide_at):
    """Write ``count`` adjacent rows as tiles of float64, the last filled up by zeros; operands as in `microkernel`."""
    height, r = np.int64(mk.TILE_ROWS), np.int64(0)
    while count - r >= 16:
        mk.widen_fractal(
            src, at + r, lines, chunk, line, step, np.int64(16), wide, wide_at + r * lines, height, height * lines
        )
        r += 16
    while r < count:
        mk.widen_rows(src, at + r, lines, chunk, line, step, count - r, wide, wide_at + r * lines, height)
        r += height


@jit
def _widen_groups(a, a_at, a_row, a_step, k, k0, groups, masks, singles, packed_at, wide):
    """Write the packed rows of all groups as tiles of float64."""
    at = np.int64(0)
    for g in range(len(groups)):
        slots = groups[g, 2]
        if groups[g, 3] == 0:
            continue
        lines = pack_group(a, a_at, a_row, a_step, k, k0, groups[g], masks[g], singles, packed_at)
        _widen_stretch(singles, packed_at, slots, lines, lines, slots, np.int64(0), wide, at)
        at += slots * lines


@jit
def _exact_block(
    a,
    a_at,
    a_row,
    a_step,
    b,
    b_at,
    l0c,
    c_at,
    m,
    n,
    k,
    k0,
    init,
    add,
    largest,
    wide,
    b_wide,
    packed_at,
    small,
):
    group, _, round, flushes, to_max = add
    floor, finest = (np.int64(0x00800000), -126) if flushes else (np.int64(0), -149)
    limit = np.inf
    if round == AccumulatorRound.RZ:
        limit = -1.0
    elif to_max or largest != 0:
        limit = LARGEST
    n1 = (n + 15) // 16
    c_column = 256 * ((m + 15) // 16)
    ranges = reinterpret(wide, np.int32)[small : small + 24]
    singles = reinterpret(wide, np.float32)
    tile_at = small + 24
    live = live_rows(a, a_at, a_row, m) if largest == 0 else m

    a_top, a_grain = _operand_range(a, a_at, a_row, a_step, live, k, k0, ranges)
    b_top, b_grain = _operand_range(b, b_at, np.int64(256), 256 * n1, n, k, k0, ranges)
    c_top, c_grain, plain, usual = np.int64(0), np.int64(200), True, True
    if init == 0:
        c_top, c_grain, plain, usual = _accumulator_range(l0c, c_at, c_column, live, n, ranges)
        if c_top == 255 or c_grain < finest:
            settle(l0c, c_at, m, n, flushes, largest != 0)
    all_finite = a_top < 255 and b_top < 255 and c_top < 255
    # 4096 products below 2^(a_top + b_top - 252) and an accumulator below 2^126 stay below 2^127 and a little. Float64
    # rounds multiples of 2^-149 or 2^-126 to such multiples, and so does float32. Nothing is or becomes -0.
    fast = (
        round == AccumulatorRound.RNE
        and all_finite
        and a_top + b_top <= 366
        and c_top <= 252
        and min(a_grain + b_grain, c_grain) >= finest
        and plain
    )
    # what is left out has to be whole groups; fast sums are exact where they cancel, to +0 then
    look = fast and k0 % group == 0
    groups, masks, rows = group_rows(a, a_at, a_row, a_step, live, n if look else np.int64(0), k, k0)
    packed = len(groups) > 0 and (usual or keeps_zero_products(l0c, c_at, c_column, live, n))
    if packed:
        _widen_groups(a, a_at, a_row, a_step, k, k0, groups, masks, singles, packed_at, wide)
        if init:
            clear_empty(groups, rows, l0c, c_at, c_column, n)
    else:
        rows = all_places(max(m, mk.TILE_ROWS))
        for r in range(0, live, 16):
            _widen_stretch(
                a, a_at + (r >> 4) * a_row, min(live - r, np.int64(16)), k, k0, np.int64(16), a_step, wide, r * k
            )
        if a_top == 255 and largest != 0:
            _saturate(wide, 0, (m + mk.TILE_ROWS - 1) // mk.TILE_ROWS * mk.TILE_ROWS * k, largest)
    # rows of NaN fill the last tile up
    computed = min(m, (live + mk.TILE_ROWS - 1) // mk.TILE_ROWS * mk.TILE_ROWS)

    vectors_total = (n + 7) // 8
    j = 0
    while j < vectors_total:
        vectors = mk.vectors_of_panel(vectors_total - j)
        for v in range(vectors):
            b_from = b_at + 256 * ((j + v) >> 1) + 8 * ((j + v) & 1)
            mk.widen_columns(
                b, b_from, k, k0, np.int64(16), 256 * n1, n - 8 * (j + v), wide, b_wide + 8 * v, 8 * vectors
            )
        if b_top == 255 and largest != 0:
            _saturate(wide, b_wide, 8 * vectors * k, largest)
        half = j & 1
        cj = c_at + (j >> 1) * c_column
        last = min(8 * (half + vectors), n - 8 * (j - half))
        j += vectors
        if packed:
            _packed_tiles(
                groups, rows, fast, vectors, wide, b_wide, l0c, cj, half, c_column, k, k0, group, limit, floor, init
            )
            continue
        # the whole tiles of a panel are one run of the kernel
        tiles = computed // mk.TILE_ROWS if last == 8 * (half + vectors) else np.int64(0)
        if tiles > 0:
            _exact_tiles(
                fast, vectors, wide, np.int64(0), wide, b_wide, l0c, cj, rows, half, c_column, k, group, limit, floor,
                init, tiles, k * mk.TILE_ROWS, np.int64(0),
            )  # fmt: skip
        for r in range(tiles * mk.TILE_ROWS, computed, mk.TILE_ROWS):
            c_tile, count = cj + 16 * r, min(np.int64(mk.TILE_ROWS), m - r)
            tile_in(l0c, c_tile, c_column, count, 8 * half, last, init, singles, tile_at)
            _exact_tiles(
                fast, vectors, wide, r * k, wide, b_wide, singles, tile_at, rows, half, np.int64(256), k, group, limit,
                floor, np.int64(0), np.int64(1), np.int64(0), np.int64(0),
            )  # fmt: skip
            tile_out(l0c, c_tile, c_column, count, 8 * half, last, singles, tile_at)
    if not all_finite:
        settle(l0c, c_at, m, n, flushes, False)
    settle_rows(l0c, c_at, c_column, live, m, n)


@jit
def exact(
    a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, wide, b_wide, packed_at, small,
):  # fmt: skip
    """Run the exact model in blocks of k that end with a group: L0C holds the accumulator in between."""
    block = _BLOCK_K if _BLOCK_K % add[0] == 0 else k
    n1 = (n + 15) // 16
    for start in range(0, k, block):
        at_a = a_at + start // k0 * a_step
        at_b = b_at + start // k0 * 256 * n1
        length = min(block, k - start)
        first = init if start == 0 else 0
        _exact_block(
            a, at_a, a_row, a_step, b, at_b, l0c, c_at, m, n, length, k0, first, add, largest, wide, b_wide, packed_at,
            small,
        )  # fmt: skip
