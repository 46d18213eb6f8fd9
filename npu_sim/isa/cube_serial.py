"""The serial chain: float32 multiply and add along K, straight from the carriers.

Jitted part of `isa.cube`, which has the layouts.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import microkernel as mk
from npu_sim.isa.cube_tiles import tile_in, tile_out
from npu_sim.isa.cube_zeros import clear, end_of_run, find_zeros, is_finite_panel, keeps_zero_products

_LONG_CHAIN = 96  # k from which on a float32 chain takes longer than to see that its rows are zero


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
def serial(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, singles, staged, tile_at):
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
                tile_in(l0c, c_tile, c_column, c_row, rows, none, columns, init, singles, tile_at)
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
                tile_out(l0c, c_tile, c_column, c_row, rows, none, columns, singles, tile_at)
        j += vectors
