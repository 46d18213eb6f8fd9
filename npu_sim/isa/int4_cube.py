"""Elements of 4 bits on the Cube: pairs in the bytes that L0A and L0B hold, the first in the low half.

A fractal has 16 rows of 64 elements, 32 bytes, so loads that move whole fractals are those of bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.integer_panels import multiply_panels, store_sums
from npu_sim.isa.l0_bytes import KEPT
from npu_sim.isa.mte import BLOCK, FRACTAL
from npu_sim.reinterpret import reinterpret

SIDE = 64
SQUARE = np.int64(4 * FRACTAL)
"""Bytes of a square of 64 x 64 elements."""


@jit
def _low(byte: Int) -> Int:
    """Return the first element of a byte, -8 to 7."""
    return ((np.int64(byte) & 15) ^ 8) - 8


@jit
def _high(byte: Int) -> Int:
    """Return the second one."""
    return (((np.int64(byte) >> 4) & 15) ^ 8) - 8


@jit
def load_turned(dst: np.ndarray, src: np.ndarray, row: Any) -> None:
    """Keep squares of 64 x 64, each four fractals, whose columns are their rows, as carriers."""
    data = reinterpret(dst, np.uint8)
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * SQUARE
    for i in range(np.int64(row["repeat"])):
        square = base + i * np.int64(row["src_stride"]) * SQUARE
        first = np.int64(row["dst"]) // FRACTAL + i * (np.int64(row["dst_gap"]) + 1)
        for j in range(SIDE // 16):
            kept = (first + j * (np.int64(row["dst_frac_gap"]) + 1)) * KEPT
            for pair in range(SIDE // 2):
                for line in range(16):
                    column = 16 * j + line
                    at, shift = square + 2 * pair * BLOCK + column // 2, np.int64(column % 2 * 4)
                    low, high = np.int64(src[at]) >> shift & 15, np.int64(src[at + BLOCK]) >> shift & 15
                    data[kept + 16 * pair + line] = low | high << 4


@jit
def _unpack(bytes_: np.ndarray, at: Int, step: Int, depth: Int, panel: np.ndarray) -> None:
    """Write 16 rows of ``depth`` bytes, whose fractals are ``step`` carriers' bytes apart, to a panel."""
    for q in range(depth):
        kept = at + q // 32 * step + 16 * (q % 32)
        for r in range(16):
            panel[32 * q + r] = _low(bytes_[kept + r])
            panel[32 * q + 16 + r] = _high(bytes_[kept + r])


@jit
def _unpack_vector(bytes_: np.ndarray, at: Int, depth: Int, panel: np.ndarray) -> None:
    """Write one row of ``depth`` bytes, which lie in a line, to the first row of a panel."""
    for q in range(depth):
        byte = bytes_[at + q // FRACTAL * KEPT + 16 * (q % 32) + q % FRACTAL // 32]
        panel[32 * q] = _low(byte)
        panel[32 * q + 16] = _high(byte)


@jit
def multiply(l0a: np.ndarray, l0b: np.ndarray, l0c: np.ndarray, row: Any) -> Flag:
    """L0C[m, n] = (0 or L0C[m, n]) + L0A[m, k] L0B[k, n] in integers; return False where an operand leaves its buffer.

    Sums are exact and clamped once, to int32 (ASSUMED, as of all integers). With m = 1 L0A is one vector.
    """
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    if m == 0 or n == 0 or k == 0:
        return True
    m1, n1, k1, depth = (m + 15) // 16, (n + 15) // 16, (k + 63) // 64, k // 2
    a_at, b_at, c_at = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    if a_at % FRACTAL != 0 or b_at % FRACTAL != 0 or c_at % 4 != 0 or min(a_at, b_at, c_at, m, n, k) < 0 or k % 2 != 0:
        return False
    a, b, c = reinterpret(l0a, np.uint8), reinterpret(l0b, np.uint8), reinterpret(l0c, np.int32)
    a_fractals = (depth + FRACTAL - 1) // FRACTAL if m == 1 else m1 * k1
    if (
        2 * a_at + a_fractals * KEPT > a.size
        or 2 * b_at + k1 * n1 * KEPT > b.size
        or c_at // 4 + 256 * m1 * n1 > c.size
    ):
        return False
    left, right, sums = np.empty(16 * k, np.int32), np.empty(16 * k, np.int32), np.empty(256, np.int32)
    for j in range(n1):
        _unpack(b, 2 * b_at + j * KEPT, n1 * KEPT, depth, right)
        for i in range(m1):
            if m == 1:
                _unpack_vector(a, 2 * a_at, depth, left)
            else:
                _unpack(a, 2 * a_at + i * k1 * KEPT, np.int64(KEPT), depth, left)
            lines = min(np.int64(16), m - 16 * i)
            multiply_panels(left, right, k, lines, sums)
            store_sums(c, c_at // 4 + (j * m1 + i) * 256, sums, lines, min(np.int64(16), n - 16 * j), row)
    return True
