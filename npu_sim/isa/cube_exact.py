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
from npu_sim.isa.cube_tiles import tile_in, tile_out
from npu_sim.isa.cube_tree import LARGEST, saturated, settled
from npu_sim.isa.cube_zeros import clear, find_runs, keeps_zero_products, put_apart, rows_of_half
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
def _exact_tiles(
    fast, vectors, wide, a_at, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles, a_tile,
    a_skip, b_skip,
):  # fmt: skip
    """Run the kernel for as many vectors of columns; operands as in `microkernel`."""
    if vectors == mk.FULL_VECTORS:
        if fast:
            mk.fast_full(
                wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles, a_tile,
                a_skip, b_skip,
            )  # fmt: skip
        else:
            mk.exact_full(
                wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles, a_tile,
                a_skip, b_skip,
            )  # fmt: skip
    elif fast:
        mk.fast_rest(
            wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles, a_tile, a_skip,
            b_skip,
        )  # fmt: skip
    else:
        mk.exact_rest(
            wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles, a_tile, a_skip,
            b_skip,
        )  # fmt: skip


@jit
def _exact_run(
    runs, i, apart, fast, vectors, wide, b_wide, c, c_at, half, c_column, m, k, k0, group, limit, floor, init
):
    """Multiply run ``i`` of `find_runs` by a panel of B: the zeros too if the panel is not ``fast``."""
    first, count, chunk, chunks, step = runs[i, 0], runs[i, 1], runs[i, 2], runs[i, 3], runs[i, 4]
    is_new = i == 0 or runs[i - 1, 0] != first
    if not fast:
        if not is_new:
            return
        chunk, chunks, step = np.int64(0), (k + k0 - 1) // k0, np.int64(1)
    c_row = np.int64(32) if apart else np.int64(16)
    at = c_at + 16 * rows_of_half(first, m // 16, apart)[2]
    start = init if is_new else np.int64(0)
    if chunks == 0 and start:
        for v in range(vectors):
            clear(c, at + ((half + v) >> 1) * c_column + 8 * ((half + v) & 1), c_row, 8 * count, 8)
    # the kernel leaves something out behind each group: all fractals of k in one go if these are the groups
    once = step == 1 or group == k0
    skip = (step - 1) * k0 if once else np.int64(0)
    for part in range(min(chunks, 1) if once else chunks):
        k_first = (chunk + part * step) * k0
        last = chunk + (chunks - 1) * step if once else chunk + part * step
        length = (chunks - 1 if once else np.int64(0)) * k0 + min(k0, k - last * k0)
        _exact_tiles(
            fast, vectors, wide, 8 * first * k + k_first * mk.TILE_ROWS, b_wide + k_first * 8 * vectors, c, at, half,
            c_column, c_row, length, group, limit, floor, start, count * 8 // mk.TILE_ROWS, k * mk.TILE_ROWS,
            skip * mk.TILE_ROWS, skip * 8 * vectors,
        )  # fmt: skip
        start = np.int64(0)


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
    moved_at,
    moved_row,
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
    tile = reinterpret(wide, np.float32)
    tile_at = small + 24
    # what is left out has to be whole groups
    runs, apart = find_runs(a, a_at, a_row, a_step, m, n if k0 % group == 0 else np.int64(0), k, k0)
    left_out = len(runs) > 0 and (init or keeps_zero_products(l0c, c_at, c_column, m // 16 * 16, n))
    apart = apart and left_out
    above = m // 16 * 16 if left_out else np.int64(0)
    if apart:
        put_apart(a, a_at, a_row, a_step, m, k, k0, tile, moved_at, moved_row)

    _reset_ranges(ranges)
    for r in range(0, m, mk.TILE_ROWS):
        if apart and r < above:
            f, lane, _ = rows_of_half(r >> 3, m // 16, apart)
            lane += r & 7
            mk.widen_rows(
                tile, moved_at + f * moved_row + lane, k, k0, 256, m - r, wide, r * k, np.int64(mk.TILE_ROWS), ranges
            )
        else:
            a_tile = a_at + (r >> 4) * a_row + (r & 15)
            mk.widen_rows(a, a_tile, k, k0, a_step, m - r, wide, r * k, np.int64(mk.TILE_ROWS), ranges)
    a_top, a_grain = _top_and_grain(ranges)
    if a_top == 255 and largest != 0:
        _saturate(wide, 0, (m + mk.TILE_ROWS - 1) // mk.TILE_ROWS * mk.TILE_ROWS * k, largest)
    _reset_ranges(ranges)
    if init == 0:
        for j in range(n1):
            mk.scan(l0c, c_at + j * c_column, m, n - 16 * j, ranges)
            if n - 16 * j > 8:
                mk.scan(l0c, c_at + j * c_column + 8, m, n - 16 * j - 8, ranges)
    c_top, c_grain = _top_and_grain(ranges)
    if c_top == 255 or c_grain < finest:
        settle(l0c, c_at, m, n, flushes, largest != 0)
    all_finite = a_top < 255 and c_top < 255
    simple = round == AccumulatorRound.RNE and a_top < 255 and c_top <= 252 and c_grain >= finest

    vectors_total = (n + 7) // 8
    j = 0
    while j < vectors_total:
        vectors = mk.vectors_of_panel(vectors_total - j)
        _reset_ranges(ranges)
        for v in range(vectors):
            b_from = b_at + 256 * ((j + v) >> 1) + 8 * ((j + v) & 1)
            valid = n - 8 * (j + v)
            mk.widen_columns(b, b_from, k, k0, 256 * n1, valid, wide, b_wide + 8 * v, 8 * vectors, ranges)
        b_top, b_grain = _top_and_grain(ranges)
        all_finite &= b_top < 255
        if b_top == 255 and largest != 0:
            _saturate(wide, b_wide, 8 * vectors * k, largest)
        # 4096 products below 2^(a_top + b_top - 252) and an accumulator below 2^126 stay below 2^127 and a little.
        # Float64 rounds multiples of 2^-149 or 2^-126 to such multiples, and so does float32.
        fast = simple and b_top < 255 and a_top + b_top <= 366 and a_grain + b_grain >= finest
        half = j & 1
        cj = c_at + (j >> 1) * c_column
        last = min(8 * (half + vectors), n - 8 * (j - half))
        if left_out:
            # fast sums are exact where they cancel, to +0 then
            for i in range(len(runs)):
                _exact_run(
                    runs, i, apart, fast, vectors, wide, b_wide, l0c, cj, half, c_column, m, k, k0, group, limit, floor,
                    init,
                )  # fmt: skip
        # the whole tiles of a panel are one run of the kernel
        tiles = (m - above) // mk.TILE_ROWS if last == 8 * (half + vectors) else np.int64(0)
        if tiles > 0:
            _exact_tiles(
                fast, vectors, wide, above * k, b_wide, l0c, cj + 16 * above, half, c_column, np.int64(16), k, group,
                limit, floor, init, tiles, k * mk.TILE_ROWS, np.int64(0), np.int64(0),
            )  # fmt: skip
        for r in range(above + tiles * mk.TILE_ROWS, m, mk.TILE_ROWS):
            c_tile, rows = cj + 16 * r, min(np.int64(mk.TILE_ROWS), m - r)
            tile_in(l0c, c_tile, c_column, np.int64(16), rows, 8 * half, last, init, tile, tile_at)
            _exact_tiles(
                fast, vectors, wide, r * k, b_wide, tile, tile_at, half, np.int64(256), np.int64(16), k, group, limit,
                floor, np.int64(0), np.int64(1), np.int64(0), np.int64(0), np.int64(0),
            )  # fmt: skip
            tile_out(l0c, c_tile, c_column, np.int64(16), rows, 8 * half, last, tile, tile_at)
        j += vectors
    if not all_finite:
        settle(l0c, c_at, m, n, flushes, False)


@jit
def exact(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, wide, b_wide, staged, small):
    """Run the exact model in blocks of k that end with a group: L0C holds the accumulator in between."""
    block = _BLOCK_K if _BLOCK_K % add[0] == 0 else k
    n1 = (n + 15) // 16
    moved_row = 256 * ((k + k0 - 1) // k0)
    for start in range(0, k, block):
        at_a = a_at + start // k0 * a_step
        moved_at = staged + start // k0 * 256
        at_b = b_at + start // k0 * 256 * n1
        length = min(block, k - start)
        first = init if start == 0 else 0
        _exact_block(
            a, at_a, a_row, a_step, b, at_b, l0c, c_at, m, n, length, k0, first, add, largest, wide, b_wide,
            moved_at, moved_row, small,
        )  # fmt: skip
