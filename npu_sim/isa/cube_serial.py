"""The serial chain: float32 multiply and add along K, straight from the carriers.

Jitted part of `isa.cube`, which has the layouts.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import microkernel as mk
from npu_sim.isa.cube_tiles import tile_in, tile_out
from npu_sim.isa.cube_zeros import clear, find_runs, keeps_zero_products, never_underflow, put_apart, rows_of_half


@jit
def _serial_tiles(
    vectors, a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, c_column, c_row, init, tiles, a_row, lane, lanes
):
    """Run the kernel for as many vectors of columns; operands as in `microkernel`."""
    if vectors == 1:
        mk.serial_single(
            a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, 256, c_column, c_row, init, tiles, a_row, lane, lanes
        )  # fmt: skip
    elif vectors == mk.FULL_VECTORS:
        mk.serial_full(
            a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, 256, c_column, c_row, init, tiles, a_row, lane, lanes
        )  # fmt: skip
    else:
        mk.serial_rest(
            a, a_at, b, b_at, c, c_at, k, k0, a_step, b_step, 256, c_column, c_row, init, tiles, a_row, lane, lanes
        )  # fmt: skip


@jit
def _serial_runs(runs, apart, vectors, a, a_at, a_row, a_step, b, b_at, b_step, c, c_at, c_column, m, k, k0, init):
    """Multiply what `find_runs` left of a panel."""
    c_row, lanes = (np.int64(32), np.int64(8)) if apart else (np.int64(16), np.int64(16))
    before = np.int64(-1)
    for i in range(len(runs)):
        half, count, chunk, chunks, step = runs[i, 0], runs[i, 1], runs[i, 2], runs[i, 3], runs[i, 4]
        fractal, lane, row = rows_of_half(half, m // 16, apart)
        at = c_at + 16 * row
        start = init if half != before else np.int64(0)
        before = half
        if chunks > 0:
            length = (chunks - 1) * k0 + min(k0, k - (chunk + (chunks - 1) * step) * k0)
            _serial_tiles(
                vectors, a, a_at + fractal * a_row + lane + chunk * a_step, b, b_at + chunk * b_step, c, at, length, k0,
                step * a_step, step * b_step, c_column, c_row, start, count * 8 // mk.TILE_ROWS, a_row,
                np.int64(0) if apart else lane, lanes,
            )  # fmt: skip
        elif start:
            for j in range(vectors):
                clear(c, at + j * c_column, c_row, 8 * count, 16)


@jit
def serial(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, singles, staged, tile_at):
    """Run the float32 chain straight from the carriers: for a fixed k 16 m and 16 n are adjacent.

    Fractals of A that are zero in 8 rows are left out of these where that changes no bit.
    """
    n1 = (n + 15) // 16
    c_column = 256 * ((m + 15) // 16)
    b_step = 256 * n1
    none, fractal = np.int64(0), np.int64(256)
    runs, apart = find_runs(a, a_at, a_row, a_step, m, n, k, k0)
    left_out = (
        len(runs) > 0
        and (init or keeps_zero_products(l0c, c_at, c_column, m // 16 * 16, n))
        and never_underflow(a, a_at, a_row, a_step, b, b_at, m, n, k, k0)
    )
    rows_a, rows_at, rows_row, rows_step = a, a_at, a_row, a_step
    if left_out and apart:
        put_apart(a, a_at, a_row, a_step, m, k, k0, singles, staged, fractal * ((k + k0 - 1) // k0))
        rows_a, rows_at, rows_row, rows_step = singles, staged, fractal * ((k + k0 - 1) // k0), fractal
    above = m // 16 * 16 if left_out else none
    j = 0
    while j < n1:
        vectors = 1 if n1 == 1 else mk.vectors_of_panel(n1 - j)
        height = mk.SINGLE_ROWS if vectors == 1 else mk.TILE_ROWS
        columns = min(16 * vectors, n - 16 * j)
        bj, cj = b_at + 256 * j, c_at + j * c_column
        if left_out:
            _serial_runs(
                runs, apart, vectors, rows_a, rows_at, rows_row, rows_step, b, bj, b_step, l0c, cj, c_column, m, k, k0,
                init,
            )  # fmt: skip
        # the whole tiles of a panel are one run of the kernel
        tiles = (m - above) // height if columns == 16 * vectors else none
        if tiles > 0:
            _serial_tiles(
                vectors, a, a_at + (above >> 4) * a_row, b, bj, l0c, cj + 16 * above, k, k0, a_step, b_step, c_column,
                np.int64(16), init, tiles, a_row, none, np.int64(16),
            )  # fmt: skip
        for r in range(above + tiles * height, m, height):
            c_tile, rows = cj + 16 * r, min(height, m - r)
            tile_in(l0c, c_tile, c_column, np.int64(16), rows, none, columns, init, singles, tile_at)
            _serial_tiles(
                vectors, a, a_at + (r >> 4) * a_row + (r & 15), b, bj, singles, tile_at, k, k0, a_step, b_step, fractal,
                np.int64(16), none, np.int64(1), none, none, np.int64(16),
            )  # fmt: skip
            tile_out(l0c, c_tile, c_column, np.int64(16), rows, none, columns, singles, tile_at)
        j += vectors
