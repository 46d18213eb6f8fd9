"""The micro-kernels of `cube`: which shapes exist, and what their arguments mean.

A tile is a block of L0C held in registers for a whole Mmad: ``TILE_ROWS`` rows and ``FULL_VECTORS`` or ``REST_VECTORS``
vectors of columns. All of it is read before any is written, so a row may be in it twice, with the same A. The shapes
fit the host's registers; no shape changes a bit. All offsets count elements of the array
before them; every loop of k runs upwards.

serial: ``(a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row,
       lane, lanes)``
    c = fma(a, b, c) for each k. ``a`` and ``b`` float32, in ``a`` one k ``a_line`` behind the other, in ``b`` 16; after
    ``chunk`` k the next one starts ``a_step`` or ``b_step`` behind the start of this one. Columns in vectors of 16,
    ``b_column`` and ``c_column`` apart; ``rows`` (int64) has where the rows begin, from ``c_at`` on. ``init`` != 0
    starts from zero without reading ``c``. ``tiles`` >= 1, one below the other, of which the next ``lanes`` - ``lane``
    rows, and then ``lanes`` at a time, are adjacent in ``a``; such stretches are ``a_row`` apart.
exact: ``(a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip)``
    float64 sums of ``group`` k from the accumulator on, then one rounding to float32: to nearest, but toward zero where
    that is above ``limit`` (float64: Inf, the largest finite float32 or a negative number); results whose bits are then
    below ``floor`` become zeros. ``a`` float64[k][rows], ``b`` float64[k][vectors][8]. Columns in vectors of 8, two per
    16 of ``c``; ``half`` = 1 starts with the second. The fast variant is for operands whose sums are finite multiples
    of 2^-149, or of 2^-126 where ``floor`` counts, but not -0 (`cube_exact`), and rounds to nearest only. ``tiles`` >=
    1, one below the other, in ``a`` ``a_tile`` apart; behind each group ``b_skip`` elements of ``b`` are left out.
widen: ``(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, dst_part)``
    float32 to float64, some adjacent lanes of each k; one k is ``line`` behind the other and a chunk ``step``. Lanes
    from ``valid`` on become zero. Lanes of several tiles go to places ``dst_part`` apart.
scan: ``(src, src_at, row_count, valid, ranges)``
    Looks at 8 adjacent float32 in each of some rows of 16; lanes from ``valid`` on count as zero. ``ranges``
    int32[3, 8] collects per lane the largest magnitude, the smallest nonzero one less 1, and the OR of all (bits).
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from npu_sim._jit import JIT_ENABLED, jit
from npu_sim.isa.host import host_has

if JIT_ENABLED:
    from npu_sim.isa import microkernel_ir as _kernels
else:
    from npu_sim.isa import microkernel_twin as _kernels


# 32 vector registers of 512 bits
_WIDE = host_has("avx512f")
TILE_ROWS = 8 if _WIDE else 4
FULL_VECTORS = 3 if _WIDE else 1
REST_VECTORS = 2 if _WIDE else 1
SINGLE_ROWS = 16 if _WIDE else 4
"""Rows of a serial tile with one vector of columns: one vector needs more rows to keep the multipliers busy."""
TILE_FLOATS = 16 * 16 * 3
"""Room for any tile of L0C: at most 16 rows and 3 vectors of 16 columns."""

_serial_full = _kernels.serial_tile(TILE_ROWS, FULL_VECTORS)
_serial_rest = _kernels.serial_tile(TILE_ROWS, REST_VECTORS)
_serial_single = _kernels.serial_tile(SINGLE_ROWS, 1)
_exact_full = _kernels.exact_tile(TILE_ROWS, FULL_VECTORS, fast=False)
_exact_rest = _kernels.exact_tile(TILE_ROWS, REST_VECTORS, fast=False)
_fast_full = _kernels.exact_tile(TILE_ROWS, FULL_VECTORS, fast=True)
_fast_rest = _kernels.exact_tile(TILE_ROWS, REST_VECTORS, fast=True)
_widen_rows = _kernels.widen(TILE_ROWS, 1)
_widen_fractal = _kernels.widen(16, 16 // TILE_ROWS)
_widen_columns = _kernels.widen(8, 1)
_scan = _kernels.scan(8)


@jit
def vectors_of_panel(left):
    """Return how many vectors of columns the next panel takes when ``left`` remain: never a last one alone."""
    return FULL_VECTORS if left >= FULL_VECTORS and left != FULL_VECTORS + 1 else REST_VECTORS


@jit
def serial_full(
    a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane,
    lanes,
):  # fmt: skip
    """Run serial tiles: TILE_ROWS rows, FULL_VECTORS vectors of 16 columns."""
    _serial_full(
        a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane,
        lanes,
    )  # fmt: skip


@jit
def serial_rest(
    a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane,
    lanes,
):  # fmt: skip
    """Run serial tiles: TILE_ROWS rows, REST_VECTORS vectors of 16 columns."""
    _serial_rest(
        a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane,
        lanes,
    )  # fmt: skip


@jit
def serial_single(
    a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane,
    lanes,
):  # fmt: skip
    """Run serial tiles: SINGLE_ROWS rows, one vector of 16 columns."""
    _serial_single(
        a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane,
        lanes,
    )  # fmt: skip


@jit
def exact_full(
    a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
):  # fmt: skip
    """Run exact tiles: TILE_ROWS rows, FULL_VECTORS vectors of 8 columns."""
    _exact_full(
        a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
    )  # fmt: skip


@jit
def exact_rest(
    a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
):  # fmt: skip
    """Run exact tiles: TILE_ROWS rows, REST_VECTORS vectors of 8 columns."""
    _exact_rest(
        a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
    )  # fmt: skip


@jit
def fast_full(
    a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
):  # fmt: skip
    """Run exact tiles with fast rounding: TILE_ROWS rows, FULL_VECTORS vectors of 8 columns."""
    _fast_full(
        a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
    )  # fmt: skip


@jit
def fast_rest(
    a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
):  # fmt: skip
    """Run exact tiles with fast rounding: TILE_ROWS rows, REST_VECTORS vectors of 8 columns."""
    _fast_rest(
        a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
    )  # fmt: skip


@jit
def widen_rows(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step):
    """Widen TILE_ROWS lanes of A."""
    _widen_rows(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, np.int64(0))


@jit
def widen_fractal(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, dst_part):
    """Widen 16 lanes of A, to tiles of TILE_ROWS."""
    _widen_fractal(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, dst_part)


@jit
def widen_columns(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step):
    """Widen 8 lanes of B."""
    _widen_columns(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, np.int64(0))


@jit
def scan(src, src_at, row_count, valid, ranges):
    """Collect the range of 8 lanes."""
    _scan(src, src_at, row_count, valid, ranges)
