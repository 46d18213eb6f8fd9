"""Elements of 8 bits in L0A and L0B.

Of the 1024 bytes that the carriers of a fractal take (`memory.core`) the first 512 hold its elements as they are,
k-major too: element (m, k) of an L0A fractal is byte ``16 k + m``, element (k, n) of an L0B fractal byte ``16 k + n``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.accumulation import AccumulatorRound, Inner
from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.isa.cube import places, scratch_words
from npu_sim.isa.img2col import output_extents
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import BLOCK, FRACTAL
from npu_sim.reinterpret import reinterpret

KEPT = 1024
"""Bytes that the carriers of a fractal take."""
UNSPECIFIED = np.uint8(0x80)
"""What a load leaves where nobody says what is there: the lowest integer."""
EXACT_K = 1024
"""Products of two bytes that float32 adds exactly, in whatever order: 2^24 is the largest sum."""
_ADD = (16, int(Inner.SERIAL), int(AccumulatorRound.RNE), 0, 0)
"""Codes of a way of adding: the one that is there may have another for sums within groups."""


@jit
def is_byte(dtype: Int) -> Flag:
    """Return whether L0A and L0B hold elements of a type so."""
    return dtype == Data.INT8


@jit
def _turned_fractal(dst: np.ndarray, kept: Int, src: np.ndarray, at: Int) -> None:
    """Keep a fractal of 16 rows of 32 bytes."""
    for row in range(16):
        for k in range(32):
            dst[kept + 16 * k + row] = src[at + 32 * row + k]


@jit
def copy_fractals(dst: np.ndarray, first: Int, gap: Int, src: np.ndarray, base: Int, step: Int, count: Int) -> None:
    """Keep ``count`` fractals, which are ``step`` bytes apart in ``src``, as carriers from number ``first`` on."""
    data = reinterpret(dst, np.uint8)
    for i in range(count):
        _turned_fractal(data, (first + i * gap) * KEPT, src, base + i * step)


@jit
def load_2d_bytes(dst: np.ndarray, src: np.ndarray, row: Any) -> None:
    """LoadData2D of whole fractals; ``dst``: carriers, ``src``: bytes."""
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    first, gap = np.int64(row["dst"]) // FRACTAL, np.int64(row["dst_gap"]) + 1
    copy_fractals(dst, first, gap, src, base, np.int64(row["src_stride"]) * FRACTAL, np.int64(row["repeat"]))


@jit
def load_transpose_bytes(dst: np.ndarray, src: np.ndarray, row: Any) -> None:
    """LoadDataWithTranspose of squares of 32 x 32, each two fractals: the columns of a square are their rows."""
    data = reinterpret(dst, np.uint8)
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * 2 * FRACTAL
    for i in range(np.int64(row["repeat"])):
        square = base + i * np.int64(row["src_stride"]) * 2 * FRACTAL
        first = np.int64(row["dst"]) // FRACTAL + i * (np.int64(row["dst_gap"]) + 1)
        for j in range(2):
            kept = (first + j * (np.int64(row["dst_frac_gap"]) + 1)) * KEPT
            for k in range(32):
                copy_bytes(data, kept + 16 * k, src, square + 32 * k + 16 * j, 16)


@jit
def load_3d_bytes(dst: np.ndarray, src: np.ndarray, row: Any) -> None:
    """LoadData3DV2: windows as rows of L0A, or as k of L0B, where 310P has that for 8 bits."""
    k_ext, m_ext = np.int64(row["k_ext"]), np.int64(row["m_ext"])
    filter_h, filter_w = np.int64(row["filter_h"]), np.int64(row["filter_w"])
    l1_h, l1_w = np.int64(row["l1_h"]), np.int64(row["l1_w"])
    if k_ext == 0 or m_ext == 0 or l1_h == 0 or l1_w == 0 or row["channel_size"] == 0:
        return
    if filter_h == 0 or filter_w == 0:
        return
    data = reinterpret(dst, np.uint8)
    ho, wo = output_extents(row)
    first, m_start = np.int64(row["dst"]) // FRACTAL, np.int64(row["m_start"])
    to_l0b = row["dst_space"] == Space.L0B or row["mode"] & Mode.TRANSPOSE != 0
    k_blocks, channel_lines = (k_ext + 31) // 32, (k_ext + 15) // 16
    points = (m_ext + 31) // 32 * 32 if to_l0b else (m_ext + 15) // 16 * 16
    for t in range(k_blocks):
        tap = np.int64(row["k_start"]) // 32 + t
        kw, kh = tap % filter_w, tap // filter_w % filter_h
        plane = np.int64(row["src0"]) + tap // (filter_w * filter_h) * l1_h * l1_w * BLOCK
        lanes = min(np.int64(32), k_ext - 32 * t)
        for m in range(points):
            window = m_start + m
            is_window = m < m_ext and window < ho * wo
            h = w = np.int64(-1)
            if is_window:
                h = window // wo * np.int64(row["stride_h"]) + kh * np.int64(row["dilation_h"]) - row["pad_top"]
                w = window % wo * np.int64(row["stride_w"]) + kw * np.int64(row["dilation_w"]) - row["pad_left"]
            is_inside = h >= 0 and h < l1_h and w >= 0 and w < l1_w
            at = plane + (h * l1_w + w) * BLOCK
            for lane in range(lanes):
                value = src[at + lane] if is_inside else np.uint8(0) if is_window else UNSPECIFIED
                if to_l0b:
                    k = 32 * t + lane
                    kept = (first + m // 32 * channel_lines + k // 16) * KEPT + 16 * (m % 32) + k % 16
                else:
                    kept = (first + m // 16 * k_blocks + t) * KEPT + 16 * lane + m % 16
                data[kept] = value


@jit
def _widened(src: np.ndarray, at: Int, dst: np.ndarray, to: Int) -> None:
    for i in range(256):
        dst[to + i] = src[at + i]


@jit
def _stage(
    a: np.ndarray,
    a_at: Int,
    b: np.ndarray,
    b_at: Int,
    m: Int,
    n1: Int,
    k: Int,
    singles: np.ndarray,
    left: Int,
    right: Int,
) -> None:
    """Copy A and B to ``singles``, as float32 in fractals of 16 k."""
    m1, k1 = (m + 15) // 16, (k + 31) // 32
    if m == 1:
        singles[left : left + 16 * k] = 0
        for q in range(k):
            singles[left + 16 * q] = a[a_at + q // FRACTAL * KEPT + 16 * (q % 32) + q % FRACTAL // 32]
    else:
        for fractal in range(m1 * k1):
            for half in range(2):
                _widened(a, a_at + fractal * KEPT + 256 * half, singles, left + 512 * fractal + 256 * half)
    for q in range(k1):
        for j in range(n1):
            for half in range(2):
                _widened(b, b_at + (q * n1 + j) * KEPT + 256 * half, singles, right + 256 * ((2 * q + half) * n1 + j))


@jit
def _store(c: np.ndarray, c_at: Int, sums: np.ndarray, m: Int, n: Int, init: Flag) -> None:
    """Write the sums, or add them to what is there; clamp once."""
    column = 256 * ((m + 15) // 16)
    for j in range((n + 15) // 16):
        for r in range(m):
            at = j * column + 16 * r
            for s in range(at, at + min(np.int64(16), n - 16 * j)):
                total = np.int64(sums[s]) + (np.int64(0) if init else np.int64(c[c_at + s]))
                c[c_at + s] = min(max(total, np.int64(-(2**31))), np.int64(2**31 - 1))


def mmad_bytes_with(model: Any) -> Any:
    """Return Mmad of bytes by the code of a way of adding floats (`cube.exact`, `cube.chained`), which is there."""

    @jit
    def mmad_bytes(l0a: np.ndarray, l0b: np.ndarray, l0c: np.ndarray, row: Any, scratch: np.ndarray) -> Flag:
        """L0C[m, n] = (0 or L0C[m, n]) + L0A[m, k] L0B[k, n] in integers; False where an operand leaves its buffer.

        Sums are exact and clamped once, to int32 (ASSUMED: no document says what becomes of a sum that int32 cannot
        hold). With m = 1 L0A is one vector of k elements in memory order. ``scratch``: of `cube.scratch_words`.
        """
        m, n, k = np.int64(row["m"]), np.int64(row["n"]), np.int64(row["k"])
        if m == 0 or n == 0 or k == 0:
            return True
        m1, n1, k1 = (m + 15) // 16, (n + 15) // 16, (k + 31) // 32
        a_at, b_at, c_at = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
        if a_at % FRACTAL != 0 or b_at % FRACTAL != 0 or c_at % 4 != 0 or min(a_at, b_at, c_at, m, n, k) < 0:
            return False
        a, b, c = reinterpret(l0a, np.int8), reinterpret(l0b, np.int8), reinterpret(l0c, np.int32)
        a_fractals = (k + FRACTAL - 1) // FRACTAL if m == 1 else m1 * k1
        if (
            2 * a_at + a_fractals * KEPT > a.size
            or 2 * b_at + k1 * n1 * KEPT > b.size
            or c_at // 4 + 256 * m1 * n1 > c.size
            or scratch.size < scratch_words(l0a.size, l0b.size)
        ):
            return False
        singles = reinterpret(scratch, np.float32)
        a_words, left, right, rows, products, small, _ = places(l0a.size, l0b.size)
        _stage(a, 2 * a_at, b, 2 * b_at, m, n1, k, singles, left, right)
        a_row = 16 * k if m == 1 else 512 * k1
        several = k > EXACT_K
        totals = np.zeros(256 * m1 * n1 if several else 0, np.int32)
        found = singles[products : products + 256 * m1 * n1]
        for first in range(0, k, EXACT_K):
            model(
                singles, left + 16 * first, a_row, np.int64(256), singles, right + 16 * first * n1, singles, products,
                m, n, min(k - first, EXACT_K), np.int64(16), np.int64(1), _ADD, 0.0, scratch, a_words, rows, small,
            )  # fmt: skip
            if several:
                for j in range(n1):
                    for at in range(256 * j * m1, 256 * j * m1 + 16 * m):
                        totals[at] += np.int32(found[at])
        init = row["mode"] & Mode.INIT != 0
        if several:
            _store(c, c_at // 4, totals, m, n, init)
        else:
            _store(c, c_at // 4, found, m, n, init)
        return True

    return mmad_bytes
