"""Semantics of Mmad: L0C[m, n] (+)= L0A[m, k] L0B[k, n].

Layouts (asc-devkit, ``docs/zh/api/SIMD-API``, Mmad): L0A holds fractals in zZ order (M1, K1), L0B in nZ order (K1, N1),
L0C in zN order (N1, M1, 16, 16) as float32. In L0C all rows of one n1 are adjacent, 16 elements each, so row tiles need
not stop at fractals. Carriers of L0A and L0B: `memory.core`.

How the additions are done is an `accumulation.Accumulation`; ASSUMED: all of them, no public document states the order.
The exact model works on float64 copies of the operands. Its rounding to float32 has a fast form for sums that cannot
overflow, are not Inf or NaN, and are multiples of the smallest subnormal, 2^-149, as float32 itself is, or where
subnormals are flushed of 2^-126, so that there are none; the ranges of the operands, collected while they are copied,
tell. Either way the bits are those of the definition.

Zeros of A that come in whole rows (padding) or in every other row (inserted zeros of a stride) are left out where that
changes no bit: `_find_zeros`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npu_sim._jit import jit
from npu_sim.accumulation import AccumulatorRound, Inner
from npu_sim.dtypes.convert_jit import fp32_to_hf32, saturate_fp32
from npu_sim.dtypes.formats import TieRule
from npu_sim.isa import microkernel as mk
from npu_sim.isa.cube_tree import LARGEST, saturated, settled, tree
from npu_sim.isa.cube_zeros import clear, end_of_run, find_zeros, is_finite_panel, keeps_zero_products
from npu_sim.reinterpret import reinterpret

if TYPE_CHECKING:
    from npu_sim.products import CoreSpec

OK = 0
BAD_RANGE = 1
"""`mmad`: an operand does not lie in its buffer, an address is no multiple of 512 bytes, or k is above 4095."""

_MAX_K = 4095
_BLOCK_K = 128  # k at a time, so that a panel of L0B stays in the first-level cache
_LONG_CHAIN = 96  # k from which on a float32 chain takes longer than to see that its rows are zero
_SMALL_WORDS = 512  # ranges, the tree's stack, a tile


@jit
def scratch_words(l0a_size: int, l0b_size: int) -> int:
    """Return how many float64 `mmad` needs as ``scratch`` for carrier arrays of these sizes.

    The parts: float64 copy of A, float64 copy of a panel of B, float32 copies of A and B (HF32, m = 1), small things.
    """
    a_words = max(l0a_size, 8 * (_MAX_K + 1))
    return a_words + l0b_size + a_words + l0b_size // 2 + _SMALL_WORDS + 8


def scratch_floats(core: CoreSpec) -> int:
    """Return the length of the float64 workspace of `mmad` for one core.

    Parameters
    ----------
    core : CoreSpec
        Capacities of the core; carriers take two bytes of architectural capacity each.
    """
    return int(scratch_words(core.l0a_bytes // 2, core.l0b_bytes // 2))


@jit
def clamp_l0c(l0c: np.ndarray, c_addr: int, m: int, n: int) -> None:
    """Clamp L0C[m, n] as saturation mode does when a Mmad ends: Inf to the largest finite value, NaN to +0.

    Parameters
    ----------
    l0c : float32[:]
        Accumulators of the whole buffer, (N1, M1, 16, 16).
    c_addr : int
        Bytes.
    m, n : int
        True extents; nothing else changes.

    Notes
    -----
    asc-devkit, SetCtrlSpr, CTRL[48] = 0. ASSUMED: once, at the end of the Mmad, not within it.
    """
    words = reinterpret(l0c, np.uint32)
    column = 256 * ((m + 15) // 16)
    for j in range((n + 15) // 16):
        lanes = min(16, n - 16 * j)
        for r in range(m):
            at = c_addr // 4 + j * column + 16 * r
            for i in range(lanes):
                words[at + i] = saturate_fp32(words[at + i])


@jit
def _stage_hf32(src, src_at, fractals, carriers, drop, ties, dst, dst_at):
    """Copy ``fractals`` adjacent fractals, rounded to HF32; only the carriers in use.

    The default rounding has a loop of its own: with constants it becomes vector code, four times as fast.
    """
    before = reinterpret(src, np.uint32)
    after = reinterpret(dst, np.uint32)
    for f in range(fractals):
        shift = 256 * f
        x = before[src_at + shift : src_at + shift + carriers]
        y = after[dst_at + shift : dst_at + shift + carriers]
        if ties == TieRule.EVEN and drop == 12:
            for i in range(y.size):
                y[i] = fp32_to_hf32(x[i], 12, TieRule.EVEN)
        else:
            for i in range(y.size):
                y[i] = fp32_to_hf32(x[i], drop, ties)


@jit
def _stage_vector(src, src_at, k, k0, dst, dst_at):
    """Copy the k elements of a GEMV operand to row 0 of a k-major panel; the other rows become zero."""
    for i in range(16 * k):
        dst[dst_at + i] = np.float32(0)
    for kk in range(k):
        fractal = kk // (16 * k0)
        r = kk % (16 * k0) // k0
        dst[dst_at + 16 * kk] = src[src_at + 256 * fractal + 16 * (kk % k0) + r]


@jit
def _tile_in(c, c_at, c_column, c_row, rows, first, last, init, tile, tile_at):
    """Copy columns ``first`` to ``last`` of some rows of L0C to a tile; the rest of the tile becomes zero."""
    for i in range(mk.TILE_FLOATS):
        tile[tile_at + i] = np.float32(0)
    if init == 0:
        for r in range(rows):
            for i in range(first, last):
                at = c_at + (i >> 4) * c_column + c_row * r + (i & 15)
                tile[tile_at + 256 * (i >> 4) + 16 * r + (i & 15)] = c[at]


@jit
def _tile_out(c, c_at, c_column, c_row, rows, first, last, tile, tile_at):
    """Copy the valid part of a tile back to L0C."""
    for r in range(rows):
        for i in range(first, last):
            at = c_at + (i >> 4) * c_column + c_row * r + (i & 15)
            c[at] = tile[tile_at + 256 * (i >> 4) + 16 * r + (i & 15)]


@jit
def _serial_tiles(vectors, a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, c_column, c_row, init, tiles, a_row):
    """Run the kernel for as many vectors of columns; operands as in `microkernel`."""
    if vectors == 1:
        mk.serial_single(
            a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, 256, c_column, c_row, init, tiles, a_row
        )  # fmt: skip
    elif vectors == mk.FULL_VECTORS:
        mk.serial_full(
            a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, 256, c_column, c_row, init, tiles, a_row
        )  # fmt: skip
    else:
        mk.serial_rest(
            a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, 256, c_column, c_row, init, tiles, a_row
        )  # fmt: skip


@jit
def _serial(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, singles, staged, tile_at):
    """Run the float32 chain straight from the carriers: for a fixed k 16 m and 16 n are adjacent.

    Fractals of A that are zero in the rows of a tile are left out where that changes no bit.
    """
    n1, chunks = (n + 15) // 16, (k + k0 - 1) // k0
    c_column = 256 * ((m + 15) // 16)
    b_step = 256 * n1
    fractal = np.int64(256)
    none = np.int64(0)
    moved_row = 256 * chunks
    zeros, any_zero = find_zeros(a, a_at, a_row, a_step, m, n, k, k0, _LONG_CHAIN, singles, staged, moved_row)
    j = 0
    while j < n1:
        vectors = 1 if n1 == 1 else mk.vectors_of_panel(n1 - j)
        height = mk.SINGLE_ROWS if vectors == 1 else mk.TILE_ROWS
        columns = min(16 * vectors, n - 16 * j)
        bj = b_at + 256 * j
        finite = np.int64(-1)
        # without zeros the whole tiles of a panel are one run of the kernel
        first = m // height * height if not any_zero and columns == 16 * vectors else np.int64(0)
        if first > 0:
            _serial_tiles(
                vectors, a, a_at, b, bj, l0c, c_at + j * c_column, k, k0, a_step, b_step, c_column, np.int64(16), init,
                first // height, a_row,
            )  # fmt: skip
        for r in range(first, m, height):
            f, lane = r >> 4, r & 15
            base = f * (1 + chunks)
            source, ar, c_row = a, a_at + f * a_row + lane, np.int64(16)
            c_tile = c_at + j * c_column + 16 * r
            if any_zero and zeros[base] != 0:
                source, ar, c_row = singles, staged + f * moved_row + lane, np.int64(32)
                c_tile = c_at + j * c_column + 256 * f + 16 * (lane >> 3) + 32 * (lane & 7)
            rows = min(height, m - r)
            whole = rows == height and columns == 16 * vectors
            c, at, column, row, start = l0c, c_tile, c_column, c_row, init
            if not whole:
                _tile_in(l0c, c_tile, c_column, c_row, rows, none, columns, init, singles, tile_at)
                c, at, column, row, start = singles, tile_at, fractal, np.int64(16), none
            wanted = ((1 << rows) - 1) << lane
            chunk = np.int64(0)
            while chunk < chunks:
                end = chunks
                if any_zero and whole:
                    end = np.int64(end_of_run(zeros, base, chunk, chunks, wanted))
                    if zeros[base + 1 + chunk] & wanted == 0:
                        if finite < 0:
                            finite = np.int64(is_finite_panel(b, bj, k, k0, b_step, vectors))
                        if finite and (start or keeps_zero_products(c, at, column, row, rows, none, columns)):
                            chunk = end
                            continue
                length = min(k, end * k0) - chunk * k0
                ak, bk = ar + chunk * a_step, bj + chunk * b_step
                chunk = end
                _serial_tiles(
                    vectors, source, ak, b, bk, c, at, length, k0, a_step, b_step, column, row, start, np.int64(1), none
                )
                start = none
            if start:
                clear(c, at, column, row, rows, none, columns)
            if not whole:
                _tile_out(l0c, c_tile, c_column, c_row, rows, none, columns, singles, tile_at)
        j += vectors


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
def _settle(l0c, c_at, m, n, flushes, saturates):
    """Make accumulators what they count as, and results what they are (`settled`)."""
    words = reinterpret(l0c, np.uint32)
    column = 256 * ((m + 15) // 16)
    for j in range(n):
        for r in range(m):
            at = c_at + (j >> 4) * column + 16 * r + (j & 15)
            words[at] = settled(words[at], flushes, saturates)


@jit
def _exact(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, wide, b_wide, staged, small):
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


@jit
def _exact_tiles(fast, vectors, wide, a_at, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles):
    """Run the kernel for as many vectors of columns; operands as in `microkernel`."""
    if vectors == mk.FULL_VECTORS:
        if fast:
            mk.fast_full(
                wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles
            )  # fmt: skip
        else:
            mk.exact_full(
                wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles
            )  # fmt: skip
    elif fast:
        mk.fast_rest(wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles)
    else:
        mk.exact_rest(wide, a_at, wide, b_at, c, c_at, half, c_column, c_row, k, group, limit, floor, init, tiles)


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
    n1, chunks = (n + 15) // 16, (k + k0 - 1) // k0
    c_column = 256 * ((m + 15) // 16)
    ranges = reinterpret(wide, np.int32)[small : small + 24]
    tile = reinterpret(wide, np.float32)
    tile_at = small + 24
    zeros, any_zero = find_zeros(a, a_at, a_row, a_step, m, n, k, k0, 0, tile, moved_at, moved_row)
    # what is left out has to be whole groups
    divides = k0 % group == 0

    _reset_ranges(ranges)
    for r in range(0, m, mk.TILE_ROWS):
        f = r >> 4
        source, a_tile = a, a_at + f * a_row + (r & 15)
        if any_zero and zeros[f * (1 + chunks)] != 0:
            source, a_tile = tile, moved_at + f * moved_row + (r & 15)
        mk.widen_rows(source, a_tile, k, k0, a_step, m - r, wide, r * k, np.int64(mk.TILE_ROWS), ranges)
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
        _settle(l0c, c_at, m, n, flushes, largest != 0)
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
        last = min(8 * (half + vectors), n - 8 * (j - half))
        # without zeros the whole tiles of a panel are one run of the kernel
        above = m // mk.TILE_ROWS * mk.TILE_ROWS if not any_zero and last == 8 * (half + vectors) else np.int64(0)
        if above > 0:
            _exact_tiles(
                fast, vectors, wide, np.int64(0), b_wide, l0c, c_at + (j >> 1) * c_column, half, c_column, np.int64(16),
                k, group, limit, floor, init, above // mk.TILE_ROWS,
            )  # fmt: skip
        for r in range(above, m, mk.TILE_ROWS):
            f, lane = r >> 4, r & 15
            base = f * (1 + chunks)
            c_tile, c_row = c_at + (j >> 1) * c_column + 16 * r, np.int64(16)
            if any_zero and zeros[base] != 0:
                c_tile = c_at + (j >> 1) * c_column + 256 * f + 16 * (lane >> 3) + 32 * (lane & 7)
                c_row = np.int64(32)
            rows = min(mk.TILE_ROWS, m - r)
            whole = rows == mk.TILE_ROWS and last == 8 * (half + vectors)
            c, at, column, row, start = l0c, c_tile, c_column, c_row, init
            if not whole:
                _tile_in(l0c, c_tile, c_column, c_row, rows, 8 * half, last, init, tile, tile_at)
                c, at, column, row, start = tile, tile_at, np.int64(256), np.int64(16), np.int64(0)
            wanted = ((1 << rows) - 1) << lane
            chunk = np.int64(0)
            while chunk < chunks:
                end = chunks
                if any_zero and whole and b_top < 255:
                    run = np.int64(end_of_run(zeros, base, chunk, chunks, wanted))
                    if divides or (chunk == 0 and run == chunks):
                        end = run
                        if zeros[base + 1 + chunk] & wanted == 0 and (
                            start or keeps_zero_products(c, at, column, row, rows, 8 * half, last)
                        ):
                            chunk = end
                            continue
                first = chunk * k0
                length = min(k, end * k0) - first
                ak, bk = r * k + first * mk.TILE_ROWS, b_wide + first * 8 * vectors
                chunk = end
                _exact_tiles(
                    fast, vectors, wide, ak, bk, c, at, half, column, row, length, group, limit, floor, start,
                    np.int64(1),
                )  # fmt: skip
                start = np.int64(0)
            if start:
                clear(c, at, column, row, rows, 8 * half, last)
            if not whole:
                _tile_out(l0c, c_tile, c_column, c_row, rows, 8 * half, last, tile, tile_at)
        j += vectors
    if not all_finite:
        _settle(l0c, c_at, m, n, flushes, False)


@jit
def _chained(
    a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, scratch, a_words, staged, small
):
    singles = reinterpret(scratch, np.float32)
    if add[1] == Inner.TREE:
        tree(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, singles, small)
    else:
        _serial(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, singles, staged, small)


def _mmad_with(model):
    """Return Mmad with one way of adding: jitted code has no other, which makes it as short as it can be."""

    @jit
    def mmad(
        l0a: np.ndarray,
        l0b: np.ndarray,
        l0c: np.ndarray,
        a_addr: int,
        b_addr: int,
        c_addr: int,
        m: int,
        n: int,
        k: int,
        k0: int,
        k_align: int,
        init: int,
        hf32_drop: int,
        hf32_ties: int,
        group: int,
        inner: int,
        round: int,
        flushes: int,
        to_max: int,
        largest: float,
        scratch: np.ndarray,
    ) -> int:
        """L0C[m, n] = (0 or L0C[m, n]) + L0A[m, k] L0B[k, n] under one accumulation model.

        Parameters
        ----------
        l0a, l0b : float32[:]
            Carriers of the whole buffers, fractals (M1, K1) and (K1, N1).
        l0c : float32[:]
            Accumulators of the whole buffer, (N1, M1, 16, 16).
        a_addr, b_addr, c_addr : int
            Architectural bytes; multiples of 512 in L0A and L0B, of 4 in L0C.
        m, n, k : int
            True extents in elements, 0 to 4095; a zero makes the call a no-op. Elements of L0C outside m x n keep their
            value, carriers outside m x k and k x n have no influence (they may be poison).
        k0 : int
            k per fractal: 16 for 16-bit, 8 for 32-bit operands.
        k_align : int
            1: rows of L0A are 2 ceil(k / 16) fractals apart (kDirectionAlign), 0: ceil(k / k0).
        init : int
            1: start from zero without reading L0C, 0: accumulate.
        hf32_drop, hf32_ties : int
            Mantissa bits that operands lose first (12 or 13; 0: none), and the `TieRule` of that rounding.
        group, inner, round, flushes, to_max : int
            `Accumulation.codes`.
        largest : float
            Largest finite operand where the model saturates operands in the overflow mode; else 0.
        scratch : float64[:]
            Workspace of `scratch_floats` words; contents undefined before and after.

        Returns
        -------
        int
            `OK`, or `BAD_RANGE` and nothing is written.

        Notes
        -----
        With m = 1 L0A is one vector of k elements in memory order (asc-devkit, Mmad, GEMV mode).
        Saturation mode: call `clamp_l0c` afterwards.
        """
        if m == 0 or n == 0 or k == 0:
            return OK
        m1 = (m + 15) // 16
        n1 = (n + 15) // 16
        k1 = (k + k0 - 1) // k0
        k1_row = 2 * ((k + 15) // 16) if k_align else k1
        a_fractals = (k1 + 15) // 16 if m == 1 else (m1 - 1) * k1_row + k1
        if a_addr % 512 != 0 or b_addr % 512 != 0 or c_addr % 4 != 0 or k > _MAX_K:
            return BAD_RANGE
        if min(a_addr, b_addr, c_addr, m, n, k) < 0 or scratch.size < scratch_words(l0a.size, l0b.size):
            return BAD_RANGE
        a_at = a_addr // 2
        b_at = b_addr // 2
        c_at = c_addr // 4
        if a_at + 256 * a_fractals > l0a.size or b_at + 256 * k1 * n1 > l0b.size or c_at + 256 * m1 * n1 > l0c.size:
            return BAD_RANGE

        a_words = max(l0a.size, 8 * (_MAX_K + 1))
        singles = reinterpret(scratch, np.float32)
        staged_a = 2 * (a_words + l0b.size)
        staged_b = staged_a + 2 * a_words
        small = staged_b + l0b.size
        a = l0a
        b = l0b
        a_row = 256 * k1_row
        a_step = np.int64(256)
        if m == 1:
            a_step = np.int64(16 * k0)
            a_row = k1 * a_step
            _stage_vector(l0a, a_at, k, k0, singles, staged_a)
            if hf32_drop != 0:
                _stage_hf32(singles, staged_a, np.int64(1), 16 * k, hf32_drop, hf32_ties, singles, staged_a)
            a = singles
            a_at = staged_a
        elif hf32_drop != 0:
            for i in range(m1):
                _stage_hf32(l0a, a_at + i * a_row, k1, 16 * k0, hf32_drop, hf32_ties, singles, staged_a + 256 * k1 * i)
            a_row = 256 * k1
            a = singles
            a_at = staged_a
        if hf32_drop != 0:
            _stage_hf32(l0b, b_at, k1 * n1, 16 * k0, hf32_drop, hf32_ties, singles, staged_b)
            b = singles
            b_at = staged_b
        add = group, inner, round, flushes, to_max
        model(
            a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, scratch, a_words, staged_a,
            small,
        )  # fmt: skip
        return OK

    return mmad


mmad = _mmad_with(_exact)
"""Groups of exact products: the models of the products."""
mmad_chained = _mmad_with(_chained)
"""The serial chain and the tree, which only who asks for them needs."""
