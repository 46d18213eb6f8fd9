"""The serial chain: float32 multiply and add along K, straight from the carriers.

Jitted part of `isa.cube`, which has the layouts.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa import microkernel as mk
from npu_sim.isa.cube_rows import (
    all_places,
    clear_empty,
    group_rows,
    has_no_minus_zero,
    live_rows,
    never_underflow,
    next_run,
    pack_group,
    settle_rows,
)
from npu_sim.isa.cube_tiles import tile_in, tile_out


@jit
def _serial_tiles(
    vectors, a, a_at, b, b_at, c, c_at, rows, k, k0, a_line, a_step, b_step, c_column, init, tiles, a_row, lane, lanes
):
    """Run the kernel for as many vectors of columns; operands as in `microkernel`."""
    if vectors == 1:
        mk.serial_single(
            a, a_at, b, b_at, c, c_at, rows, k, k0, a_line, a_step, b_step, 256, c_column, init, tiles, a_row, lane,
            lanes,
        )  # fmt: skip
    elif vectors == mk.FULL_VECTORS:
        mk.serial_full(
            a, a_at, b, b_at, c, c_at, rows, k, k0, a_line, a_step, b_step, 256, c_column, init, tiles, a_row, lane,
            lanes,
        )  # fmt: skip
    else:
        mk.serial_rest(
            a, a_at, b, b_at, c, c_at, rows, k, k0, a_line, a_step, b_step, 256, c_column, init, tiles, a_row, lane,
            lanes,
        )  # fmt: skip


@jit
def _packed_tiles(groups, places, vectors, a, a_at, b, b_at, b_step, c, c_at, c_column, k, k0, init):
    """Multiply the groups of packed rows by a panel; ``places`` are where the rows begin in C."""
    at = a_at
    for g in range(len(groups)):
        first, slots, held = groups[g, 0], groups[g, 2], groups[g, 3]
        start, chunk = init, np.int64(0)
        while held >> chunk != 0:
            chunk, count, distance = next_run(held, chunk)
            last = chunk + (count - 1) * distance
            length = (count - 1) * k0 + min(k0, k - last * k0)
            _serial_tiles(
                vectors, a, at, b, b_at + chunk * b_step, c, c_at, places[first:], length, k0, slots, k0 * slots,
                distance * b_step, c_column, start, slots // mk.TILE_ROWS, np.int64(0), np.int64(0), slots,
            )  # fmt: skip
            at += length * slots
            start = np.int64(0)
            chunk = last + 1


@jit
def serial(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, singles, packed_at, tile_at):
    """Run the float32 chain straight from the carriers: for a fixed k 16 m and 16 n are adjacent.

    Rows are packed without the zeros of A where that saves time and changes no bit. ``singles`` has room for packed
    rows at ``packed_at`` and for a tile at ``tile_at``.
    """
    n1 = (n + 15) // 16
    c_column = 256 * ((m + 15) // 16)
    b_step = 256 * n1
    none, line = np.int64(0), np.int64(16)
    live = live_rows(a, a_at, a_row, m)
    groups, masks, rows = group_rows(a, a_at, a_row, a_step, live, n, k, k0)
    packed = len(groups) > 0 and (init or has_no_minus_zero(l0c, c_at, c_column, live, n))
    if packed:
        at = packed_at
        for g in range(len(groups)):
            if groups[g, 3] != 0:
                at += groups[g, 2] * pack_group(a, a_at, a_row, a_step, k, k0, groups[g], masks[g], singles, at)
        packed = never_underflow(singles, packed_at, at - packed_at, b, b_at, n, k, k0)
    if packed:
        if init:
            clear_empty(groups, rows, l0c, c_at, c_column, n)
    else:
        rows = all_places(max(m, mk.SINGLE_ROWS))
    j = 0
    while j < n1:
        vectors = 1 if n1 == 1 else mk.vectors_of_panel(n1 - j)
        height = mk.SINGLE_ROWS if vectors == 1 else mk.TILE_ROWS
        columns = min(16 * vectors, n - 16 * j)
        bj, cj = b_at + 256 * j, c_at + j * c_column
        j += vectors
        if packed:
            _packed_tiles(groups, rows, vectors, singles, packed_at, b, bj, b_step, l0c, cj, c_column, k, k0, init)
            continue
        # the whole tiles of a panel are one run of the kernel; rows of NaN fill the last one up
        computed = min(m, (live + height - 1) // height * height)
        tiles = computed // height if columns == 16 * vectors else none
        if tiles > 0:
            _serial_tiles(
                vectors, a, a_at, b, bj, l0c, cj, rows, k, k0, line, a_step, b_step, c_column, init, tiles, a_row, none,
                line,
            )  # fmt: skip
        for r in range(tiles * height, computed, height):
            c_tile, count = cj + 16 * r, min(height, m - r)
            tile_in(l0c, c_tile, c_column, count, none, columns, init, singles, tile_at)
            _serial_tiles(
                vectors, a, a_at + (r >> 4) * a_row + (r & 15), b, bj, singles, tile_at, rows, k, k0, line, a_step,
                b_step, np.int64(256), none, np.int64(1), none, none, line,
            )  # fmt: skip
            tile_out(l0c, c_tile, c_column, count, none, columns, singles, tile_at)
    settle_rows(l0c, c_at, c_column, live, m, n)
