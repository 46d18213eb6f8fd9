"""What Sort32 and MrgSort share: elements of 8 bytes, score and index, in the order of falling scores.

Source: asc-devkit ``docs/zh/api/SIMD-API``, Sort32 and MrgSort. A float score has bytes 0 to 3, a half score bytes 0
and 1; the index, a uint32, has bytes 4 to 7. ASSUMED: NaN before all numbers, +0 and -0 equal, bytes 2 and 3 of a half
element 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Data
from npu_sim.reinterpret import reinterpret

ELEMENT = 8
"""Bytes of a score with its index."""
_ABOVE_ALL = np.int64(1) << 40


@jit
def rank(bits: Int, dtype: Int) -> Int:
    """Return a number that falls with the score of these bits: an element with the higher one comes first."""
    sign, infinity = (0x8000, 0x7C00) if dtype == Data.FP16 else (0x80000000, 0x7F800000)
    size = np.int64(bits) & (sign - 1)
    if size > infinity:
        return _ABOVE_ALL
    return -size if np.int64(bits) & sign != 0 else size


@jit
def rank_at(data: Any, at: Int, dtype: Int) -> Int:
    """Return the rank of the score at byte ``at``, a multiple of its size, of uint8[:]."""
    if dtype == Data.FP16:
        return rank(np.int64(reinterpret(data[at : at + 2], np.uint16)[0]), dtype)
    return rank(np.int64(reinterpret(data[at : at + 4], np.uint32)[0]), dtype)
