"""A tiling of our own for the kernels here whose tiling in CANN comes from a closed library.

The input gradient of grouped convolutions and of what the base template leaves, and every forward convolution. It is
the simplest rule that fits: a large base block, the longest base K that L0A and L0B hold twice, then as much of K in
L1 as there is room, less of it until everything fits, at last a smaller block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npu_sim.products import CoreSpec
from npu_sim.units import align_up

K_BYTES = 256
"""Longest base K, bytes."""
_ROWS = 16
_LONGEST_K = 32767
"""K of one L1 load, so that no start within it leaves the fields of a load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProblem:
    """What the search looks at.

    Attributes
    ----------
    m, n : int
        Extents of the product, elements; N a whole number of channel blocks.
    k1 : int
        Channel blocks along K.
    window : int
        K of one channel block, elements.
    c0 : int
        Channel block.
    spare_k : int
        K that L0B needs behind a base block.
    a_bytes : callable
        ``a_bytes(base_m)``: L1 bytes of one channel block under a base block.
    pairs_b : bool
        Whether the weight comes in pairs of channel blocks; any run of ``k`` of them touches ``ceil(k / 2)`` pairs
        if runs begin at multiples of ``k``.
    """

    m: int
    n: int
    k1: int
    window: int
    c0: int
    spare_k: int
    a_bytes: Callable[[int], int]
    pairs_b: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """A base block and its buffers: elements, base K per L1 load, and numbers of buffers."""

    base_m: int
    base_n: int
    base_k: int
    step_ka: int
    step_kb: int
    al1: int
    bl1: int
    cl0: int


def fallback_blocks(problem: BlockProblem, core: CoreSpec) -> Blocks | None:
    """Return a base block that fits the buffers of ``core``, None if there is none."""
    p = problem
    base_m, base_n = (256, 128) if p.m >= p.n else (128, 256)
    base_m, base_n = min(base_m, align_up(p.m, _ROWS)), min(base_n, align_up(p.n, _ROWS))
    while True:
        for base_k in _k_candidates(p):
            if not _fits_l0(p, core, base_m, base_n, base_k):
                continue
            steps = _l1_blocks(p, core, base_m, base_n, base_k)
            if steps is None:
                break
            return _blocks(p, core, (base_m, base_n, base_k), steps)
        else:
            # not even the shortest K fits L0A and L0B: the larger side gives way
            if max(base_m, base_n) <= _ROWS:
                return None
            if base_m >= base_n:
                base_m -= _ROWS
            else:
                base_n -= _ROWS
            continue
        if base_m > _ROWS and base_m >= base_n:
            base_m -= _ROWS
        elif base_n > _ROWS:
            base_n -= _ROWS
        elif base_m > _ROWS:
            base_m -= _ROWS
        else:
            return _shorter_k(p, core)


def _shorter_k(p: BlockProblem, core: CoreSpec) -> Blocks | None:
    """Try every base K for the smallest block."""
    for base_k in _k_candidates(p):
        if _fits_l0(p, core, _ROWS, _ROWS, base_k):
            steps = _l1_blocks(p, core, _ROWS, _ROWS, base_k)
            if steps is not None:
                return _blocks(p, core, (_ROWS, _ROWS, base_k), steps)
    return None


def _k_candidates(p: BlockProblem) -> list[int]:
    """Return the base K worth trying, longest first."""
    longest = min(max(K_BYTES * p.c0 // 32, p.c0), p.k1 * p.window)
    return [k for k in range(longest // p.c0 * p.c0, 0, -p.c0) if k % p.window == 0 or p.window % k == 0]


def _fits_l0(p: BlockProblem, core: CoreSpec, base_m: int, base_n: int, base_k: int) -> bool:
    item, depth = 32 // p.c0, align_up(base_k, 16)
    return (
        2 * base_m * depth * item <= core.l0a_bytes
        and 2 * base_n * (depth + p.spare_k) * item <= core.l0b_bytes
        and base_m * base_n * 4 <= core.l0c_bytes
    )


def _l1_blocks(
    p: BlockProblem, core: CoreSpec, base_m: int, base_n: int, base_k: int
) -> tuple[int, int, int, int] | None:
    """Return (kA, kB, al1, bl1) in channel blocks, None if the smallest does not fit L1."""
    least = max(base_k // p.window, 1)
    whole = align_up(p.k1, least)
    k_a = k_b = min(whole, max(_LONGEST_K // p.window // least * least, least))
    al1 = bl1 = 2
    a_bytes, b_bytes = p.a_bytes(base_m), base_n * p.window * 32 // p.c0
    while True:
        a = al1 * k_a * a_bytes
        b = bl1 * (align_up(k_b, 2) if p.pairs_b else k_b) * b_bytes
        if a + b <= core.l1_bytes:
            return k_a, k_b, al1, bl1
        if a >= b and k_a > least:
            k_a = max(k_a // 2 // least * least, least)
        elif k_b > least:
            k_b = max(k_b // 2 // least * least, least)
        elif k_a > least:
            k_a = max(k_a // 2 // least * least, least)
        elif bl1 == 2:
            bl1 = 1
        elif al1 == 2:
            al1 = 1
        else:
            return None


def _blocks(p: BlockProblem, core: CoreSpec, base: tuple[int, int, int], steps: tuple[int, int, int, int]) -> Blocks:
    base_m, base_n, base_k = base
    k_a, k_b, al1, bl1 = steps
    if k_a > k_b:
        k_a = k_a // k_b * k_b
    else:
        k_b = k_b // k_a * k_a
    return Blocks(
        base_m=base_m,
        base_n=base_n,
        base_k=base_k,
        step_ka=k_a * p.window // base_k,
        step_kb=k_b * p.window // base_k,
        al1=al1,
        bl1=bl1,
        cl0=2 if 2 * base_m * align_up(base_n, 16) * 4 <= core.l0c_bytes else 1,
    )
