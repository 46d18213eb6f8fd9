"""What every way of adding does with operands and accumulators of the Cube: carriers made ready, ragged tiles moved.

Jitted parts of `isa.cube`, which has the layouts.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp32_to_hf32
from npu_sim.dtypes.formats import TieRule
from npu_sim.isa import microkernel as mk
from npu_sim.reinterpret import reinterpret


@jit
def stage_hf32(src, src_at, fractals, carriers, drop, ties, dst, dst_at):
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
def stage_vector(src, src_at, k, k0, dst, dst_at):
    """Copy the k elements of a GEMV operand to row 0 of a k-major panel; the other rows become zero."""
    for i in range(16 * k):
        dst[dst_at + i] = np.float32(0)
    for kk in range(k):
        fractal = kk // (16 * k0)
        r = kk % (16 * k0) // k0
        dst[dst_at + 16 * kk] = src[src_at + 256 * fractal + 16 * (kk % k0) + r]


@jit
def tile_in(c, c_at, c_column, rows, first, last, init, tile, tile_at):
    """Copy columns ``first`` to ``last`` of some rows of L0C to a tile; the rest of the tile becomes zero."""
    for i in range(mk.TILE_FLOATS):
        tile[tile_at + i] = np.float32(0)
    if init == 0:
        for r in range(rows):
            for i in range(first, last):
                at = c_at + (i >> 4) * c_column + 16 * r + (i & 15)
                tile[tile_at + 256 * (i >> 4) + 16 * r + (i & 15)] = c[at]


@jit
def tile_out(c, c_at, c_column, rows, first, last, tile, tile_at):
    """Copy the valid part of a tile back to L0C."""
    for r in range(rows):
        for i in range(first, last):
            at = c_at + (i >> 4) * c_column + 16 * r + (i & 15)
            c[at] = tile[tile_at + 256 * (i >> 4) + 16 * r + (i & 15)]
