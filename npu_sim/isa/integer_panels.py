"""Products of integers whose operands a Cube does not multiply as they lie: made ready in panels, k-major by 16.

Element (row, k) of a panel is at ``16 k + row``. Sums of 32 bits are exact: 4095 products of at most 2^15 each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Mode


@jit
def multiply_panels(left: np.ndarray, right: np.ndarray, k: Int, lines: Int, sums: np.ndarray) -> None:
    """Write left[line, k] right[column, k] to ``sums[16 line + column]`` for 16 columns."""
    sums[:] = 0
    for q in range(k):
        for r in range(lines):
            factor = left[16 * q + r]
            for s in range(16):
                sums[16 * r + s] += factor * right[16 * q + s]


@jit
def store_sums(c: np.ndarray, target: Int, sums: np.ndarray, lines: Int, columns: Int, row: Any) -> None:
    """Write the sums of a fractal of L0C (int32) at element ``target``, or add them to what is there; clamp once."""
    for r in range(lines):
        at = target + 16 * r
        for s in range(columns):
            old = np.int64(0) if row["mode"] & Mode.INIT else np.int64(c[at + s])
            c[at + s] = min(max(old + sums[16 * r + s], np.int64(-(2**31))), np.int64(2**31 - 1))
