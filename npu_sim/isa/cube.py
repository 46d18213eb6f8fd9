"""Semantics of Mmad: L0C[m, n] (+)= L0A[m, k] L0B[k, n].

Layouts (asc-devkit, ``docs/zh/api/SIMD-API``, Mmad): L0A holds fractals in zZ order (M1, K1), L0B in nZ order (K1, N1),
L0C in zN order (N1, M1, 16, 16) as float32. In L0C all rows of one n1 are adjacent, 16 elements each, so row tiles need
not stop at fractals. Carriers of L0A and L0B: `memory.core`.

How the additions are done is an `accumulation.Accumulation`; ASSUMED: all of them, no public document states the order.
`cube_exact`, `cube_serial` and `cube_tree` are the ways; integers are exact (`l0_bytes`). Zeros of A that come
in whole rows (padding, inserted zeros of a stride) are left out where that changes no bit: `cube_rows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npu_sim._jit import Int, as_written, jit
from npu_sim.accumulation import Inner
from npu_sim.dtypes.convert_jit import saturate_fp32
from npu_sim.isa.cube_exact import exact
from npu_sim.isa.cube_serial import serial
from npu_sim.isa.cube_tiles import stage_hf32, stage_vector
from npu_sim.isa.cube_tree import tree
from npu_sim.reinterpret import reinterpret

if TYPE_CHECKING:
    from npu_sim.products import CoreSpec

OK = 0

BAD_RANGE = 1
"""`mmad`: an operand does not lie in its buffer, an address is no multiple of 512 bytes, or k is above 4095."""

_MAX_K = 4095

_SMALL_WORDS = 512  # ranges, the tree's stack, a tile


@jit
def places(l0a_size: Int, l0b_size: Int) -> tuple[Int, Int, Int, Int, Int, Int, Int]:
    """Return where the parts of the workspace begin behind the float64 copy of A, and its length in float64.

    For carrier arrays of these sizes: that of a panel of B in float64; float32 copies of A and B, rows of A without
    zeros, products of bytes and small things in float32. Carriers of bytes hold two elements.
    """
    a_words = max(l0a_size, 8 * (_MAX_K + 1))
    copy_a = 2 * (a_words + l0b_size)
    copy_b = copy_a + 2 * a_words
    rows = copy_b + 2 * l0b_size
    products = rows + 2 * a_words
    small = products + 2 * a_words
    return a_words, copy_a, copy_b, rows, products, small, small // 2 + _SMALL_WORDS + 8


@jit
def scratch_words(l0a_size: Int, l0b_size: Int) -> Int:
    """Return how many float64 `mmad` needs as ``scratch`` for carrier arrays of these sizes."""
    return places(l0a_size, l0b_size)[6]


def scratch_floats(core: CoreSpec) -> int:
    """Return the length of the float64 workspace of `mmad` for one core.

    Parameters
    ----------
    core : CoreSpec
        Capacities of the core; carriers take two bytes of architectural capacity each.
    """
    return int(as_written(places)(core.l0a_bytes // 2, core.l0b_bytes // 2)[6])


@jit
def _clamp(words):
    # of an array of its own this becomes vector code
    for i in range(words.size):
        words[i] = saturate_fp32(words[i])


@jit
def clamp_l0c(l0c: np.ndarray, c_addr: int, m: int, n: int) -> None:
    """Clamp L0C[m, n] as saturation mode does when a Mmad ends: Inf to the largest finite value, NaN to +0.

    Parameters
    ----------
    l0c : float32[:]
        Accumulators of the whole buffer, (N1, M1, 16, 16).
    c_addr : int
        Bytes.
    m, n : int
        True extents; nothing else changes.

    Notes
    -----
    asc-devkit, SetCtrlSpr, CTRL[48] = 0. ASSUMED: once, at the end of the Mmad, not within it.
    """
    words = reinterpret(l0c, np.uint32)
    column = 256 * ((m + 15) // 16)
    for j in range((n + 15) // 16):
        first = c_addr // 4 + j * column
        lanes = min(16, n - 16 * j)
        # all rows in one go where they are whole
        stretch = 16 * m if lanes == 16 else lanes
        for at in range(first, first + 16 * m, max(stretch, 16)):
            _clamp(words[at : at + stretch])


@jit
def chained(
    a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, scratch, a_words, packed, small
):
    """Add one product after the other, or as a tree."""
    singles = reinterpret(scratch, np.float32)
    if add[1] == Inner.TREE:
        tree(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, singles, small)
    else:
        serial(a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, singles, packed, small)


def _mmad_with(model):
    """Return Mmad with one way of adding: jitted code has no other, which makes it as short as it can be."""

    @jit
    def mmad(
        l0a: np.ndarray,
        l0b: np.ndarray,
        l0c: np.ndarray,
        a_addr: int,
        b_addr: int,
        c_addr: int,
        m: int,
        n: int,
        k: int,
        k0: int,
        k_align: int,
        init: int,
        hf32_drop: int,
        hf32_ties: int,
        group: int,
        inner: int,
        round: int,
        flushes: int,
        to_max: int,
        largest: float,
        scratch: np.ndarray,
    ) -> int:
        """L0C[m, n] = (0 or L0C[m, n]) + L0A[m, k] L0B[k, n] under one accumulation model.

        Parameters
        ----------
        l0a, l0b : float32[:]
            Carriers of the whole buffers, fractals (M1, K1) and (K1, N1).
        l0c : float32[:]
            Accumulators of the whole buffer, (N1, M1, 16, 16).
        a_addr, b_addr, c_addr : int
            Architectural bytes; multiples of 512 in L0A and L0B, of 4 in L0C.
        m, n, k : int
            True extents in elements, 0 to 4095; a zero makes the call a no-op. Elements of L0C outside m x n keep their
            value, carriers outside m x k and k x n have no influence (they may be poison).
        k0 : int
            k per fractal: 16 for 16-bit, 8 for 32-bit operands.
        k_align : int
            1: rows of L0A are 2 ceil(k / 16) fractals apart (kDirectionAlign), 0: ceil(k / k0).
        init : int
            1: start from zero without reading L0C, 0: accumulate.
        hf32_drop, hf32_ties : int
            Mantissa bits that operands lose first (12 or 13; 0: none), and the `TieRule` of that rounding.
        group, inner, round, flushes, to_max : int
            `Accumulation.codes`.
        largest : float
            Largest finite operand where the model saturates operands in the overflow mode; else 0.
        scratch : float64[:]
            Workspace of `scratch_floats` words; contents undefined before and after.

        Returns
        -------
        int
            `OK`, or `BAD_RANGE` and nothing is written.

        Notes
        -----
        With m = 1 L0A is one vector of k elements in memory order (asc-devkit, Mmad, GEMV mode).
        Saturation mode: call `clamp_l0c` afterwards.
        """
        if m == 0 or n == 0 or k == 0:
            return OK
        m1 = (m + 15) // 16
        n1 = (n + 15) // 16
        k1 = (k + k0 - 1) // k0
        k1_row = 2 * ((k + 15) // 16) if k_align else k1
        a_fractals = (k1 + 15) // 16 if m == 1 else (m1 - 1) * k1_row + k1
        if a_addr % 512 != 0 or b_addr % 512 != 0 or c_addr % 4 != 0 or k > _MAX_K:
            return BAD_RANGE
        if min(a_addr, b_addr, c_addr, m, n, k) < 0 or scratch.size < scratch_words(l0a.size, l0b.size):
            return BAD_RANGE
        a_at = a_addr // 2
        b_at = b_addr // 2
        c_at = c_addr // 4
        if a_at + 256 * a_fractals > l0a.size or b_at + 256 * k1 * n1 > l0b.size or c_at + 256 * m1 * n1 > l0c.size:
            return BAD_RANGE

        a_words, staged_a, staged_b, packed, _, small, _ = places(l0a.size, l0b.size)
        singles = reinterpret(scratch, np.float32)
        a = l0a
        b = l0b
        a_row = 256 * k1_row
        a_step = np.int64(256)
        if m == 1:
            a_step = np.int64(16 * k0)
            a_row = k1 * a_step
            stage_vector(l0a, a_at, k, k0, singles, staged_a)
            if hf32_drop != 0:
                stage_hf32(singles, staged_a, np.int64(1), 16 * k, hf32_drop, hf32_ties, singles, staged_a)
            a = singles
            a_at = staged_a
        elif hf32_drop != 0:
            for i in range(m1):
                stage_hf32(l0a, a_at + i * a_row, k1, 16 * k0, hf32_drop, hf32_ties, singles, staged_a + 256 * k1 * i)
            a_row = 256 * k1
            a = singles
            a_at = staged_a
        if hf32_drop != 0:
            stage_hf32(l0b, b_at, k1 * n1, 16 * k0, hf32_drop, hf32_ties, singles, staged_b)
            b = singles
            b_at = staged_b
        add = group, inner, round, flushes, to_max
        model(
            a, a_at, a_row, a_step, b, b_at, l0c, c_at, m, n, k, k0, init, add, largest, scratch, a_words, packed,
            small,
        )  # fmt: skip
        return OK

    return mmad


mmad = _mmad_with(exact)
"""Groups of exact products: the models of the products."""

mmad_chained = _mmad_with(chained)
"""The serial chain and the tree, which only who asks for them needs."""
