"""The base tiling of the input gradient on dav-c220: fp32 and HF32 operands, one merged group.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_host/op_tiling/arch22/conv3d_backprop_input_v2_base_tiling.cpp``. The
published part ends where a closed library takes over (grouped shapes, blocks that do not fit), of which only headers
are published; `tiling_dx_fallback` serves those. Exact network shapes have tables (`tiling_dx_tables`).
"""

from __future__ import annotations

from math import gcd

from npu_sim.units import align_up, ceil_div
from ops.conv3d_backprop_input.tiling_dx_basic_block import base_steps, common_steps
from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_BASE, DxProblem, DxTiling

_L1_BYTES = 524160
_L0_HALF_BYTES = 65536 // 2
_L0C_BYTES = 131072
_K_BYTES = 128
_LEAST_N_PER_CORE = 256
_LEAST_M_PER_CORE = 128

Split = tuple[int, int, int, int]
"""Cores along batch, M, N and depth."""


def base_applies(problem: DxProblem) -> bool:
    """Return whether the template can be the one the operator uses."""
    return problem.item == 4 and problem.groups == 1


def base_tiling(problem: DxProblem, cores: int) -> DxTiling | None:
    """Return the tiling on ``cores`` Cube cores, None where the closed library would be asked."""
    split = core_split(problem, cores)
    if split is None:
        return None
    batch_dim, m_dim, n_dim, d_dim = split
    p, g = problem, problem.geometry
    single_m = ceil_div(g.hi, m_dim) * g.wi
    single_cin = ceil_div(p.cin1_g, n_dim) * p.c0
    base_m, base_n = (256, 128) if single_m > single_cin else (128, 256)
    base_m, base_n = min(base_m, align_up(single_m, 16)), min(base_n, align_up(single_cin, 16))
    base_k = _base_k(p)
    al1, bl1, ka, kb = _l1_steps(p, base_m, base_n, base_k)
    if not _fits(p, (base_m, base_n, base_k), (al1, bl1, ka, kb)):
        return None
    return DxTiling(
        problem=problem,
        base_m=base_m,
        base_n=base_n,
        base_k=base_k,
        step_ka=ka,
        step_kb=kb,
        al1_pbuffer=al1,
        bl1_pbuffer=bl1,
        single_core_m=single_m,
        single_core_cin=single_cin,
        single_core_din=ceil_div(g.di, d_dim),
        single_core_batch=ceil_div(g.n, batch_dim),
        batch_dim=batch_dim,
        m_dim=m_dim,
        n_dim=n_dim,
        d_dim=d_dim,
        core_num=batch_dim * m_dim * n_dim * d_dim,
        is_block_driver=False,
        origin=ORIGIN_BASE,
    )


def core_split(problem: DxProblem, cores: int) -> Split | None:
    """Return how the cores share batch, M, N and depth, None if the published rule finds nothing."""
    g = problem.geometry
    for used in range(cores, 0, -1):
        if used < int(0.6 * cores):
            break
        factors = [factor for factor in range(used, 0, -1) if used % factor == 0]

        def largest(extent: int, factors: list[int] = factors) -> int:
            return next(factor for factor in factors if extent % factor == 0)

        depth, batch = largest(g.di), largest(g.n)
        if depth * batch % used == 0:
            return used // depth, 1, 1, depth
        outer = largest(depth * batch)
        pair = _share_plane(problem, used // outer, largest(problem.m), largest(problem.cin1))
        if pair is not None:
            d_dim = gcd(depth, outer)
            rows = ceil_div(g.hi, pair[0])
            return outer // d_dim, ceil_div(g.hi, rows), pair[1], d_dim
    return None


def _share_plane(problem: DxProblem, rest: int, most_m: int, most_n: int) -> tuple[int, int] | None:
    """Return how ``rest`` cores share M and N."""
    if most_m * most_n % rest == 0:
        m, n = gcd(most_m, rest), gcd(most_n, rest)
        for m_dim, n_dim in ((m, rest // m), (rest // n, n)):
            wide = n_dim == 1 or problem.n >= _LEAST_N_PER_CORE * n_dim
            tall = m_dim == 1 or problem.m >= _LEAST_M_PER_CORE * m_dim
            if wide and tall:
                return m_dim, n_dim
    elif problem.m >= _LEAST_M_PER_CORE * rest:
        return rest, 1
    return None


def _base_k(problem: DxProblem) -> int:
    window, line = problem.window, problem.geometry.kw * problem.c0
    widest = _K_BYTES // problem.item
    if widest % window == 0:
        k = widest
    elif window < widest:
        k = window
    else:
        k = line
    k = min(k, problem.k)
    return k if problem.k % k == 0 else line


def _l1_steps(p: DxProblem, base_m: int, base_n: int, base_k: int) -> tuple[int, int, int, int]:
    """Return the L1 buffers and steps (al1, bl1, ka, kb): a quarter of L1 for each of four halves."""
    al1 = bl1 = 2
    share_a = share_b = _L1_BYTES // 4
    column = p.window * base_n * p.item
    paired = p.khw > 1
    cb = max(1, share_b // column)
    if paired:
        # the weight comes in blocks of 16 output channels, two channel blocks of dy
        if cb == 1:
            cb = 2
            share_a -= 2 * column - share_b
        else:
            cb -= cb % 2
    ca = max(1, share_a // p.a1_block_bytes(base_m))
    if ca >= p.cout1_g:
        ca, al1 = p.cout1_g, 1
    if cb >= p.cout1_g:
        cb, bl1 = p.cout1_g, 1
    if paired and ca > cb:
        lowered_a = ca // cb * cb
        lowered_b = next((step for step in range(cb - cb % 2, 0, -2) if ca % step == 0), 0)
        if lowered_a * cb >= ca * lowered_b:
            ca = lowered_a
        else:
            cb = lowered_b
    else:
        ca, cb = common_steps(ca, cb)
    ka, kb = base_steps(p, base_k, ca, cb)
    if bl1 == 1 or p.cout1_g * 8 % 16 != 0 or (p.khw == 1 and base_k < 16):
        kb = align_up(kb * base_k, p.khw * 16) // base_k
    while ka > 1 and ka % kb and kb % ka:
        ka -= 1
    return al1, bl1, ka * base_k // p.window * p.window // base_k, kb


def _fits(p: DxProblem, base: tuple[int, int, int], l1: tuple[int, int, int, int]) -> bool:
    (m, n, k), (al1, bl1, ka, kb) = base, l1
    if ka < 1 or kb < 1 or (ka % kb and kb % ka) or (p.window % k and k % p.window):
        return False
    if ka * k % p.window or kb * k % p.window:
        return False
    spare = p.c0 if p.khw > 1 else 0
    if 2 * m * k * p.item > 2 * _L0_HALF_BYTES or 2 * n * (k + spare) * p.item > 2 * _L0_HALF_BYTES:
        return False
    if m * n * 4 > _L0C_BYTES:
        return False
    a1 = al1 * (ka * k // p.window) * p.a1_block_bytes(m)
    b1 = bl1 * n * ceil_div(kb * k // p.window, 2) * p.khw * 16 * 4
    return a1 + b1 <= _L1_BYTES
