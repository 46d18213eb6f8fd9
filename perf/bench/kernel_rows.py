"""Jitted emitter of the row benchmark; see `perf.bench.rows`."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_data_copy,
    emit_fixpipe,
    emit_load_2d,
    emit_load_3d,
    emit_mmad,
    emit_set_flag,
    emit_wait_flag,
    set_feature_map,
    set_window,
)
from npu_sim.isa.op import Data, Mode, Pipe, Space

STEPS = 16
"""k steps per output tile."""
ROWS_PER_STEP = 20
ROWS_PER_TILE = STEPS * ROWS_PER_STEP + 5


@jit
def prime_flags(rows: np.ndarray) -> int:
    """Write the rows that free both halves of L1 and L0 and the accumulator; return how many."""
    n = 0
    for half in range(2):
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, 0, 0)
        n = emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, half, 0, 0)
    return emit_set_flag(rows, n, Pipe.FIX, Pipe.M, 0, 0, 0)


@jit
def _emit_step(rows: np.ndarray, n: int, tile: int, step: int) -> int:
    half = step & 1
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, 1, tile)
    n = emit_data_copy(rows, n, Space.L1, half * 65536, Space.GM, step * 16384, 8, 64, 8, 0, Data.FP16, 0, 2, tile)
    n = emit_data_copy(
        rows, n, Space.L1, 131072 + half * 65536, Space.GM, step * 32768, 16, 64, 0, 0, Data.FP16, 1, 3, tile
    )
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, 4, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, 5, tile)
    for part in range(2):
        n = emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, part, 6, tile)
        n = emit_load_2d(
            rows, n, Space.L0A, part * 32768, Space.L1, half * 65536, Data.FP16, 0, 32, 1, 0, 0, -1, 7, tile
        )
        set_feature_map(rows, n, 16, 56, 1, 1, 1, 1)
        set_window(rows, n, 1, 1, 3, 3, 1, 1)
        n = emit_load_3d(
            rows, n, Space.L0B, part * 32768, 131072 + half * 65536, Data.FP16, 64, 64, 128, 64 * part, 64 * step, 0, 8,
            tile,
        )  # fmt: skip
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, part, 9, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, part, 10, tile)
        mode = Mode.INIT if step == 0 and part == 0 else 0
        n = emit_mmad(rows, n, 0, part * 32768, part * 32768, Data.FP16, 128, 64, 128, mode, 11, tile)
        if part == 1:
            n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, 12, tile)
        n = emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, part, 13, tile)
    return n


@jit
def emit_tiled(rows: np.ndarray, state: np.ndarray) -> int:
    """Fill ``rows`` with whole tiles; ``state[0]`` counts them. Return the rows written."""
    n = 0
    while n + ROWS_PER_TILE <= rows.shape[0]:
        tile = state[0]
        n = emit_wait_flag(rows, n, Pipe.FIX, Pipe.M, 0, 14, tile)
        for step in range(STEPS):
            n = _emit_step(rows, n, tile, np.int64(step))
        n = emit_set_flag(rows, n, Pipe.M, Pipe.FIX, 0, 15, tile)
        n = emit_wait_flag(rows, n, Pipe.M, Pipe.FIX, 0, 16, tile)
        n = emit_fixpipe(rows, n, Space.GM, 0, 0, Data.FP32, 128, 64, 128, 128, 1, 0, 0, Mode.ATOMIC, 2, 17, tile)
        n = emit_set_flag(rows, n, Pipe.FIX, Pipe.M, 0, 18, tile)
        state[0] = tile + 1
    return n
