"""Which tiling an input gradient on dav-c220 gets."""

from __future__ import annotations

from npu_sim.products import CoreSpec
from npu_sim.units import align_up, ceil_div
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.tiling_dx_base import base_applies, base_tiling
from ops.conv3d_backprop_input.tiling_dx_basic_block import basic_block_applies, basic_block_tiling
from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_OURS, DxProblem, DxTiling
from ops.conv3d_backprop_input.tiling_dx_fallback import BlockProblem, fallback_blocks
from ops.conv3d_backprop_input.tiling_dx_tables import table_tiling


def dx_tiling(geometry: ConvGeometry, compute_dtype: str, core: CoreSpec, cores: int) -> DxTiling | None:
    """Return CANN's tiling where it is published, else ours; None if no block fits the buffers of ``core``."""
    problem = DxProblem.of(geometry, compute_dtype)
    found = None
    if basic_block_applies(problem):
        found = basic_block_tiling(problem, cores)
    elif base_applies(problem):
        found = table_tiling(problem, cores) or base_tiling(problem, cores)
    if found is not None and not overflows(found, core):
        return found
    return fallback_tiling(problem, core, cores)


def fallback_tiling(problem: DxProblem, core: CoreSpec, cores: int) -> DxTiling | None:
    """Return our tiling, None if no block fits."""
    p, g = problem, problem.geometry
    blocks = fallback_blocks(
        BlockProblem(
            m=p.m,
            n=p.n,
            k1=p.cout1_g,
            window=p.window,
            c0=p.c0,
            spare_k=p.c0 if p.item == 4 and p.khw > 1 else 0,
            a_bytes=p.a1_block_bytes,
            pairs_b=p.item == 4,
            width=g.wi,
            others=p.groups * g.n * g.di,
            cores=cores,
        ),
        core,
    )
    if blocks is None:
        return None
    single_m = max(blocks.base_m // g.wi, 1) * g.wi
    items = ceil_div(p.m, single_m) * ceil_div(p.n, blocks.base_n) * p.groups * g.n * g.di
    return DxTiling(
        problem=problem,
        base_m=blocks.base_m,
        base_n=blocks.base_n,
        base_k=blocks.base_k,
        step_ka=blocks.step_ka,
        step_kb=blocks.step_kb,
        al1_pbuffer=blocks.al1,
        bl1_pbuffer=blocks.bl1,
        cl0_pbuffer=blocks.cl0,
        single_core_m=single_m,
        single_core_cin=blocks.base_n,
        core_num=min(items, cores),
        is_block_driver=True,
        origin=ORIGIN_OURS,
    )


def overflows(tiling: DxTiling, core: CoreSpec) -> list[tuple[str, int, int]]:
    """Return (buffer, bytes needed, bytes there) of every buffer of ``core`` that ``tiling`` overflows."""
    t, p = tiling, tiling.problem
    depth = t.base_k  # a whole number of 32-byte rows
    spare = p.c0 if p.item == 4 and p.khw > 1 else 0
    blocks_a, blocks_b = t.step_ka * t.base_k // p.window, t.step_kb * t.base_k // p.window
    rows_b = align_up(blocks_b * p.c0, 16)
    l1 = t.al1_pbuffer * blocks_a * p.a1_block_bytes(t.base_m)
    l1 += t.bl1_pbuffer * (t.base_n // p.c0) * p.khw * rows_b * 32
    needs = (
        ("L1", l1, core.l1_bytes),
        ("L0A", 2 * t.base_m * depth * p.item, core.l0a_bytes),
        ("L0B", 2 * align_up(t.base_n, 16) * (depth + spare) * p.item, core.l0b_bytes),
        ("L0C", t.cl0_pbuffer * t.base_m * align_up(t.base_n, 16) * 4, core.l0c_bytes),
    )
    return [need for need in needs if need[1] > need[2]]
