"""Weights of 8 bits of which every four in a column of k keep two, and the indices that say which.

A column of B with k elements is stored as k / 2, two for each four, with an index of 2 bits each: i and j of four are
the elements i and 1 + j of them (asc-devkit, MmadWithSparse). A fractal of B, 16 columns by 32 stored elements, has 128
bytes of indices in the same order: those of a column are 8 bytes one behind the other, the first index in the lowest
bits (LoadDataWithSparse). Indices lie in a buffer of their own, a quarter of L0B. ASSUMED: those of the fractal at an
address of L0B begin at a quarter of it; the documents say that nobody gives their address, and that they lie as B does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.isa.footprint_boxes import IDX, L0A, L0B, NO_FOOTPRINT, NONE, ONCE, OPERAND_BITS, READ, box, fractal_rows
from npu_sim.isa.integer_panels import multiply_panels, store_sums
from npu_sim.isa.l0_bytes import KEPT
from npu_sim.isa.mte import FRACTAL
from npu_sim.reinterpret import reinterpret

INDEX_FRACTAL = np.int64(128)
"""Bytes of the indices of a fractal."""
LINE = np.int64(8)
"""Bytes of the indices of one column of a fractal."""
_PER_BYTE = 4


@jit
def index_address(address: Int) -> Int:
    """Return where the indices of a fractal at an address of L0B begin."""
    return np.int64(address) // 4


@jit
def _indices(out: np.ndarray, count: Int, start: Int, n: Int, stored: Int, step: Int) -> Int:
    """Note the indices of ``n`` columns of ``stored`` elements; fractals that follow along k are ``step`` apart."""
    length = (stored + _PER_BYTE - 1) // _PER_BYTE
    full_k, tail_k = length // LINE, length % LINE
    full, tail = n // 16, n % 16
    count = box(out, count, IDX, READ, start, INDEX_FRACTAL, full_k, step, full, INDEX_FRACTAL, ONCE, NONE)
    rest = start + full * INDEX_FRACTAL
    count = box(out, count, IDX, READ, rest, tail * LINE, full_k, step, ONCE, NONE, ONCE, NONE)
    at = start + full_k * step
    count = box(out, count, IDX, READ, at, tail_k, np.int64(16), LINE, full, INDEX_FRACTAL, ONCE, NONE)
    return box(out, count, IDX, READ, at + full * INDEX_FRACTAL, tail_k, tail, LINE, ONCE, NONE, ONCE, NONE)


@jit
def operands(row: Any, out: np.ndarray) -> Int:
    """Note what a row may read of L0A, and what of L0B and of the indices; return how many boxes that is."""
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    if m <= 0 or n <= 0 or k <= 0:
        return 0
    if (m | n | k) >> OPERAND_BITS != 0:
        return NO_FOOTPRINT
    a, b, n1 = np.int64(row["src0"]), np.int64(row["src1"]), (n + 15) // 16
    count = fractal_rows(out, NONE, L0A, a, m, (k + 31) // 32 * FRACTAL, k, FRACTAL, ONCE)
    count = fractal_rows(out, count, L0B, b, n, FRACTAL, k // 2, n1 * FRACTAL, ONCE)
    return _indices(out, count, index_address(b), n, k // 2, n1 * INDEX_FRACTAL)


@jit
def _spread(
    weights: np.ndarray, first: Int, idx: np.ndarray, at: Int, pairs: Int, columns: Int, panel: np.ndarray
) -> Flag:
    """Write up to 16 pairs of a fractal to the k they are of, each two of four; False for an index of 3."""
    for pair in range(pairs):
        for s in range(columns):
            bits = np.int64(idx[at + s * LINE + pair // 2]) >> np.int64(pair % 2 * 4)
            i, j = bits & 3, (bits >> np.int64(2)) & 3
            if i == 3 or j == 3:
                return False
            kept = first + 32 * pair + s
            panel[64 * pair + 16 * i + s] += weights[kept]
            # Where four have one element that is not 0, both indices may name its place: the second then counts to the
            # one before. Documented for 2 and 0; of 2 and 1, which no table has, ASSUMED by the same words.
            panel[64 * pair + 16 * max(i, j + 1) + s] += weights[kept + 16]
    return True


@jit
def multiply(l0a: np.ndarray, l0b: np.ndarray, l0c: np.ndarray, idx: np.ndarray, row: Any) -> Flag:
    """L0C[m, n] = (0 or L0C[m, n]) + L0A[m, k] B[k, n] in integers, for the B that ``k / 2`` elements of L0B stand for.

    Return False where an operand leaves its buffer or an index is none. Sums are exact and clamped once, to int32
    (ASSUMED, as of all integers).
    """
    m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
    if m == 0 or n == 0 or k == 0:
        return True
    m1, n1, k1, b1 = (m + 15) // 16, (n + 15) // 16, (k + 31) // 32, (k // 2 + 31) // 32
    a_at, b_at, c_at = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    if a_at % FRACTAL != 0 or b_at % FRACTAL != 0 or c_at % 4 != 0 or min(a_at, b_at, c_at, m, n, k) < 0 or k % 4 != 0:
        return False
    a, b, c = reinterpret(l0a, np.int8), reinterpret(l0b, np.int8), reinterpret(l0c, np.int32)
    idx_at = index_address(b_at)
    if (
        2 * a_at + m1 * k1 * KEPT > a.size
        or 2 * b_at + b1 * n1 * KEPT > b.size
        or idx_at + b1 * n1 * INDEX_FRACTAL > idx.size
        or c_at // 4 + 256 * m1 * n1 > c.size
    ):
        return False
    left, right, sums = np.empty(16 * k, np.int32), np.empty(16 * k, np.int32), np.empty(256, np.int32)
    for j in range(n1):
        right[:] = 0
        columns = min(np.int64(16), n - 16 * j)
        for f in range(b1):
            pairs = min(np.int64(16), k // 4 - 16 * f)
            fractal = f * n1 + j
            at, indices = 2 * b_at + fractal * KEPT, idx_at + fractal * INDEX_FRACTAL
            if not _spread(b, at, idx, indices, pairs, columns, right[1024 * f :]):
                return False
        for i in range(m1):
            for q in range(k):
                at = 2 * a_at + (i * k1 + q // 32) * KEPT + 16 * (q % 32)
                for r in range(16):
                    left[16 * q + r] = a[at + r]
            lines = min(np.int64(16), m - 16 * i)
            multiply_panels(left, right, k, lines, sums)
            store_sums(c, c_at // 4 + (j * m1 + i) * 256, sums, lines, columns, row)
    return True
