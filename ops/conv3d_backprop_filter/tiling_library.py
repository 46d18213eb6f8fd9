"""The search of CANN's tiling library for a weight gradient on dav-c220, whose numbers tiling key 0 is made of.

Source, restated: cann-ops ``src/common/op_host/op_tiling/cube`` (``algorithm/calculator/cycle_calculator.cc``,
``conv3d_dw_cycle_calculator.cc``, ``algorithm/dw_cache_tiling_impl.cc``, ``util/cube_util.cc``, ``util/math_util.cc``,
``impl/cube_tiling_param.cc``). Newer releases load the library compiled (``libophost_comm_legacy.so``, ops-nn
``common/src/op_host/tbe_tiling_api.cpp``); every number that the operator's published tests expect of it follows.

The library splits batch, depth, groups, taps, N and M over the cores by factors, gives the rest to K, finds a block of
a core with all of dy in L1 and one with neither operand whole, and keeps what its cycle model likes best.

ASSUMED: a call's tiling is the first one of its process. The library also tries to keep all of x in L1, but only where
N equals the N of the last share that it looked at for the call before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.geometry import CUBE_ROWS, ConvGeometry
from ops.conv3d_backprop_filter.tiling_cycles import (
    L1_BYTES,
    Block,
    CoreShare,
    Extents,
    a_bytes,
    b_bytes,
    channels_of_x,
    cycles,
    double_buffers,
    fits,
    holds_a,
    holds_b,
)
from ops.conv3d_backprop_filter.tiling_data import element_bytes
from ops.conv3d_backprop_filter.tiling_factors import factor_at_most, factors, looks_prime, part, parts

_L0_FRACTALS, _L0C_FRACTALS = 64, 128
"""Of half an L0A or L0B, and of an L0C that is not halved."""

_BALANCED, _MOST_HELD_M = 16, 32
_MOST_K_START = 65535
_CORES_USED = (4, 5)


@dataclass(frozen=True, slots=True)
class LibraryTiling:
    """What the library answers: the share of a core and its block."""

    share: CoreShare
    block: Block


def library_tiling(geometry: ConvGeometry, compute_dtype: str, cores: int) -> LibraryTiling | None:
    """Return the library's choice for a call as of `tiling_base.base_tiling`.

    None where the library refuses the call: a few rows of x do not fit L1, or the search gets stuck.
    """
    p = _extents(geometry, compute_dtype)
    if not _smallest_block_fits(p):
        return None
    try:
        best = _search(p, cores)
    except _StuckError:
        return None
    if best is not None:
        _drop_idle_buffers(p, best)
    return best


def _search(p: Extents, cores: int) -> LibraryTiling | None:
    """Return the first of the fastest; splits that leave cores idle count only if no other has a block."""
    may_hold_a = _may_hold_a(p, cores)
    best: LibraryTiling | None = None
    least = 0
    many_items = p.batch * p.dout >= cores
    for most_cores_only in (True, False) if many_items else (False,):
        for share in _shares(p, cores, most_cores_only):
            tries = (_with_all_of_a, _streamed) if may_hold_a and share.group == share.batch == 1 else (_streamed,)
            for find in tries:
                block = find(p, share, best is None)
                if block is None:
                    continue
                double_buffers(p, share, block)
                time = cycles(p, share, block)
                if best is None or time < least:
                    best, least = LibraryTiling(share, block), time
        if best is not None:
            break
    return best


def _extents(geometry: ConvGeometry, compute_dtype: str) -> Extents:
    g, item = geometry, element_bytes(compute_dtype)
    k0 = BLOCK_BYTES // item
    merged = g.merged_groups(k0)
    _, dilation_h, dilation_w = g.single_tap_dilation
    return Extents(
        batch=g.n, dout=g.do, ho=g.ho, wo=g.wo, hi=g.hi, wi=g.wi, kd=g.kd, taps=g.kh * g.kw,
        kernel_height=(g.kh - 1) * dilation_h + 1, kernel_width=(g.kw - 1) * dilation_w + 1, stride_h=g.stride[1],
        stride_w=g.stride[2], depth_padded=any(g.pad[:2]), groups=g.groups, real_g=merged.real_g,
        m=merged.cout_g // CUBE_ROWS, k=align_up(g.ho * g.wo, CUBE_ROWS) // k0,
        cin1=ceil_div(merged.cin1_g * k0, CUBE_ROWS), k0=k0, item_bytes=item,
        mmad_cycles=2 if compute_dtype == "fp32" else 1,
    )  # fmt: skip


def _least_k(p: Extents) -> int:
    return 2 if p.is_32_bit else 1


def _smallest_block_fits(p: Extents) -> bool:
    """Return whether L1 holds one fractal of dy and the rows of x under it, as the library counts them."""
    if p.wo >= CUBE_ROWS:
        rows = p.kernel_height + (p.stride_h if p.wo % CUBE_ROWS else 0)
        pixels = rows * p.wi
    else:
        rows_of_y = ceil_div(CUBE_ROWS, p.wo) + int(CUBE_ROWS % p.wo != 0)
        pixels = align_up((p.kernel_height + (rows_of_y - 1) * p.stride_h) * p.wi, CUBE_ROWS)
    return (pixels + CUBE_ROWS) * _least_k(p) * BLOCK_BYTES <= L1_BYTES


def _may_hold_a(p: Extents, cores: int) -> bool:
    """Return whether all of dy fits L1 when M has all cores that batch and groups leave."""
    if p.groups * p.batch > cores:
        return False
    k = _least_k(p)
    return fits(p, Block(k=k, m_l1=ceil_div(p.m, cores // (p.groups * p.batch)), k_al1=p.k, k_bl1=k))


def _shares(p: Extents, cores: int, most_cores_only: bool) -> Iterator[CoreShare]:
    """Yield the splits over the cores in the library's order; only those that use 80 % of the cores, if so asked."""
    least = ceil_div(cores * _CORES_USED[0], _CORES_USED[1]) if most_cores_only else 1
    batch_dims, m_dims = parts(p.batch, cores), parts(p.m, cores)
    n_dims = parts(p.cin1, cores) if p.kd == 1 else factors(p.cin1, cores)
    for d_dim in factors(p.dout, cores):
        for tap_dim in factors(p.kd, cores // d_dim):
            for group_dim in factors(p.real_g, cores // (d_dim * tap_dim)):
                for batch_dim in batch_dims:
                    if d_dim > 1 and not _whole_depths(ceil_div(p.batch, batch_dim) * (p.dout // d_dim), p.dout):
                        continue
                    outer = d_dim * tap_dim * group_dim * batch_dim
                    for n_dim in n_dims:
                        for m_dim in m_dims:
                            used = outer * n_dim * m_dim
                            k_dim = _k_parts(p, cores // used)
                            if k_dim == 0 or used * k_dim < least:
                                continue
                            window = p.taps * (part(p.cin1, n_dim, cores) if p.kd == 1 else p.cin1 // n_dim)
                            n = window * (p.kd // tap_dim)
                            apart = p.kd > 1 and p.real_g > 1
                            yield CoreShare(
                                batch=ceil_div(p.batch, batch_dim) * (p.dout // d_dim),
                                group=p.real_g // group_dim, m=part(p.m, m_dim, cores), n=n,
                                k=ceil_div(p.k, k_dim), n_l1=window if apart else n,
                                n_l0=window if apart or (p.kd > 1 and p.depth_padded) else n, batch_dim=batch_dim,
                                d_dim=d_dim, group_dim=group_dim, m_dim=m_dim, n_dim=n_dim * tap_dim, k_dim=k_dim,
                            )  # fmt: skip


def _whole_depths(items: int, dout: int) -> bool:
    return items % dout == 0 if items > dout else dout % items == 0


def _k_parts(p: Extents, most: int) -> int:
    """Return how many parts of K at most ``most`` cores get; of 32-bit operands parts are pairs of fractals."""
    parts = min(most, p.k)
    while p.is_32_bit and parts and ceil_div(p.k, parts) % 2:
        parts -= 1
    return parts


class _StuckError(Exception):
    """The search found no block where it expects one."""


def _with_all_of_a(p: Extents, s: CoreShare, _: bool) -> Block | None:
    """Return the block with all of the core's dy in L1; None if it does not fit."""
    k = _least_k(p)
    b = Block(k=k, m_l1=s.m, k_al1=s.k, k_bl1=k)
    if not fits(p, b):
        return None
    b.m = factor_at_most(s.m, _MOST_HELD_M)
    b.m_l1 = s.m // b.m
    b.k = b.k_bl1 = _longest_k(p, s, b, _L0_FRACTALS // b.m, held_a=True)
    b.n = _widest(p, s, b, min(_BALANCED, _L0_FRACTALS // b.k, _L0C_FRACTALS // b.m))
    _lengthen_b(p, s, b)
    _widen_b(p, s, b)
    return b


def _streamed(p: Extents, s: CoreShare, is_first: bool) -> Block | None:
    """Return the block with both operands in parts of K; None where the library does not look for one."""
    k = _least_k(p)
    b = Block(k=k, k_al1=k, k_bl1=k)
    b.m, b.n = _base_block(p, s)
    if not is_first and s.k * max(b.m, b.n) > _L0_FRACTALS and looks_prime(s.k):
        return None
    b.k = b.k_al1 = b.k_bl1 = _longest_k(p, s, b, _L0_FRACTALS // max(b.m, b.n), held_a=False)
    _lengthen_b(p, s, b)
    _lengthen_a(p, s, b)
    if not _divide(b):
        if b.k_al1 > b.k_bl1:
            while not _divide(b) or s.k % b.k_al1 or not fits(p, b):
                b.k_al1 -= b.k
        else:
            while not _divide(b) or s.k % b.k_bl1 or not fits(p, b):
                b.k_bl1 -= b.k
    return b


def _divide(b: Block) -> bool:
    """Return whether a stretch of one operand is a whole number of those of the other."""
    return max(b.k_al1, b.k_bl1) % min(b.k_al1, b.k_bl1) == 0


def _longest_k(p: Extents, s: CoreShare, block: Block, most: int, *, held_a: bool) -> int:
    """Return the longest part of K of which L0 holds one and L1 one of each operand that it does not hold whole."""
    for k in reversed(factors(s.k, most)):
        if p.is_32_bit and k % 2:
            continue
        if fits(p, replace(block, k=k, k_al1=block.k_al1 if held_a else k, k_bl1=k)):
            return k
    raise _StuckError


def _widest(p: Extents, s: CoreShare, block: Block, most: int) -> int:
    """Return the widest N of a base block."""
    for n in reversed(factors(s.n_l0, most)):
        if fits(p, replace(block, n=n)):
            return n
    raise _StuckError


def _tallest(p: Extents, s: CoreShare, block: Block, most: int) -> int:
    """Return the tallest M of a base block."""
    for m in reversed(factors(s.m, most)):
        if fits(p, replace(block, m=m)):
            return m
    raise _StuckError


def _base_block(p: Extents, s: CoreShare) -> tuple[int, int]:
    """Return M and N of a base block: one at most 16 fractals, so that loads keep up, the other what L0 then holds."""
    k = _least_k(p)
    start = Block(k=k, k_al1=k, k_bl1=k)
    most = _L0_FRACTALS // k
    wide = replace(start, n=_widest(p, s, start, _BALANCED))
    first = (_tallest(p, s, wide, min(_L0C_FRACTALS // wide.n, most)), wide.n)
    tall = replace(start, m=_tallest(p, s, start, _BALANCED))
    second = (tall.m, _widest(p, s, tall, min(_L0C_FRACTALS // tall.m, most)))
    return max(first, second, key=lambda block: (block[0] * block[1], -abs(block[0] - block[1]), -block[0]))


def _lengthen_b(p: Extents, s: CoreShare, b: Block) -> None:
    """Let L1 hold as much of K of x as there is room for, in whole parts."""
    room = L1_BYTES - a_bytes(p, b)
    row_bytes = p.wi * channels_of_x(p, b.n_l1 * b.n) * CUBE_ROWS * p.item_bytes
    most = s.k // b.k
    spare = room // row_bytes - p.kernel_height
    times = most
    if spare > -p.stride_h:
        rows = max(spare, 0) // p.stride_h + 1
        times = factor_at_most(most, max(min(ceil_div(rows * p.wo, p.k0) // b.k, most), 1))
    b.k_bl1 = times * b.k
    while b_bytes(p, b) > room:
        times = factor_at_most(most, times - 1)
        b.k_bl1 = times * b.k


def _lengthen_a(p: Extents, s: CoreShare, b: Block) -> None:
    """Let L1 hold as much of K of dy as there is room for, in whole parts."""
    most = (L1_BYTES - b_bytes(p, b)) // (b.m_l1 * b.m * CUBE_ROWS * p.k0 * p.item_bytes)
    b.k_al1 = factor_at_most(s.k // b.k, most // b.k) * b.k


def _widen_b(p: Extents, s: CoreShare, b: Block) -> None:
    """Let L1 hold as many base blocks of x along N as there is room for, if it holds all of K."""
    if s.batch != 1 or b.k_bl1 != s.k:
        return
    most = min((L1_BYTES - a_bytes(p, b)) // b_bytes(p, b), _MOST_K_START // (b.n * CUBE_ROWS))
    b.n_l1 = factor_at_most(ceil_div(s.n_l1, b.n), most)


def _drop_idle_buffers(p: Extents, found: LibraryTiling) -> None:
    """Take the second buffer back from an operand of which all stays in L1."""
    share, block = found.share, found.block
    if holds_a(share, block):
        block.buffers_a = 1
    columns = p.cin1_k0 * p.taps
    if holds_b(share, block) and (not p.is_32_bit or columns <= share.n_dim * block.n_l1 * block.n):
        block.buffers_b = 1
