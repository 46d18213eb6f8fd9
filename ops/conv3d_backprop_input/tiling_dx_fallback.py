"""A tiling of our own for the kernels here whose tiling in CANN comes from a closed library.

The input gradient of grouped convolutions and of what the base template leaves, and every forward convolution. Of all
base blocks that fit the cheapest is taken, by a rough sum over the pipes and the rounds of the cores; as much of K is
in L1 as there is room. Where none fits, blocks become smaller until one does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npu_sim.products import CoreSpec
from npu_sim.units import align_up, ceil_div

K_BYTES = 256
"""Longest base K, bytes."""
_LONGEST_M = 512
_TRIED = 12
"""Sizes of a side that are tried, the largest."""

# Weights that only rank our own blocks against each other, bytes a cycle and cycles; no claim about hardware.
_WINDOW_RATE, _WEIGHT_RATE, _READ_RATE, _STORE_RATE = 115, 128, 134, 32
_MMAD_CYCLES, _LOAD_CYCLES = 15, 24
_NOT_HIDDEN = 0.3
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
    width : int
        Pixels of a row; the block of a core is whole rows.
    others : int
        Products of ``m`` x ``n``: batch items, depths and groups.
    cores : int
        Cores that share them.
    """

    m: int
    n: int
    k1: int
    window: int
    c0: int
    spare_k: int
    a_bytes: Callable[[int], int]
    pairs_b: bool
    width: int
    others: int
    cores: int


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
    return _cheapest(problem, core) or _largest(problem, core)


def _cheapest(p: BlockProblem, core: CoreSpec) -> Blocks | None:
    """Return the block that takes least time, None if none of those that are tried fits."""
    best: tuple[float, Blocks] | None = None
    depths = _k_candidates(p)
    for base_m in _row_blocks(p):
        for base_n in _column_blocks(p):
            for base_k in depths:
                if not _fits_l0(p, core, base_m, base_n, base_k):
                    continue
                steps = _l1_blocks(p, core, base_m, base_n, base_k)
                if steps is None:
                    continue
                blocks = _blocks(p, core, (base_m, base_n, base_k), steps)
                cycles = _cycles(p, blocks)
                if best is None or cycles < best[0]:
                    best = cycles, blocks
                break  # nothing but the steps depends on K, and a shorter one has no fewer
    return None if best is None else best[1]


def _row_blocks(p: BlockProblem) -> list[int]:
    """Return the base M worth trying: whole rows, or parts of one that is longer than a block."""
    if p.width > _LONGEST_M:
        return [align_up(ceil_div(p.width, ceil_div(p.width, m)), _ROWS) for m in (64, 128, 256)]
    rows = range(1, min(ceil_div(p.m, p.width), _LONGEST_M // p.width) + 1)
    return sorted({align_up(min(p.width * count, p.m), _ROWS) for count in rows})[-_TRIED:]


def _column_blocks(p: BlockProblem) -> list[int]:
    """Return the base N worth trying: parts of N of one size."""
    return sorted({align_up(ceil_div(p.n, parts), _ROWS) for parts in range(1, ceil_div(p.n, 32) + 1)})[-_TRIED:]


def _cycles(p: BlockProblem, blocks: Blocks) -> float:
    """Return the rough time of the busiest core."""
    item, k = 32 // p.c0, p.k1 * p.window
    m = min(max(blocks.base_m // p.width, 1) * p.width, p.m)
    columns = ceil_div(m, blocks.base_m)
    items = ceil_div(p.m, m) * ceil_div(p.n, blocks.base_n) * p.others
    steps = columns * ceil_div(k, blocks.base_k)
    cube = ceil_div(m, _ROWS) * ceil_div(blocks.base_n, _ROWS) * ceil_div(k, p.c0) + _MMAD_CYCLES * steps
    mte1 = (m / _WINDOW_RATE + columns * blocks.base_n / _WEIGHT_RATE) * k * item + _LOAD_CYCLES * steps
    mte2 = (p.a_bytes(blocks.base_m) * p.k1 + columns * blocks.base_n * k * item) / _READ_RATE
    fix = m * blocks.base_n * item / _STORE_RATE
    pipes = (cube, mte1, mte2, fix)
    cycles = max(pipes) + _NOT_HIDDEN * (sum(pipes) - max(pipes)) + (fix if blocks.cl0 == 1 else 0)
    return ceil_div(items, p.cores) * cycles


def _largest(problem: BlockProblem, core: CoreSpec) -> Blocks | None:
    """Return a block as large as fits, None if there is none."""
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
