"""The operator's basic-block tiling (tiling keys 1 to 4) for A2 and A3.

Source, restated: ops-nn ``conv/conv3d_backprop_filter_v2/op_host/op_tiling/arch22/
conv3d_backprop_filter_v2_basic_block_tiling.cpp``. Every unit-test vector that this template produces is reproduced
field by field (``tests/golden``).
"""

from __future__ import annotations

import math
from dataclasses import replace

from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_data import (
    ORIGIN_BASIC_BLOCK,
    ORIGIN_OURS,
    ORIGIN_PARTS,
    ORIGIN_TAPS,
    DwTiling,
    Split,
    StreamK,
    element_bytes,
)
from ops.conv3d_backprop_filter.tiling_parts import part_problem, tap_problem
from ops.conv3d_backprop_filter.tiling_public import Buffers, assemble, matrix_problem
from ops.conv3d_backprop_filter.tiling_search import CUBE, BlockSearch, SearchRules

_WINDOW_TAPS = (4, 9, 16)
_SMALLEST_MATRIX = 128
_TAIL_TOLERANCE = 2


def basic_block_applies(geometry: ConvGeometry, compute_dtype: str, deterministic: bool = False) -> bool:
    """Return whether the operator takes its basic-block template.

    Deterministic mode takes it for every dtype (x stored as NDC1HWC0, as it always is here). Otherwise: 16-bit
    operands, one merged group, no dilation in depth, and a plane of 1 tap, or of 4, 9 or 16 taps with M and N at
    least 128.
    """
    if deterministic:
        return True
    item_bytes = element_bytes(compute_dtype)
    merged = geometry.merged_groups(BLOCK_BYTES // item_bytes)
    if item_bytes != 2 or merged.real_g != 1 or geometry.single_tap_dilation[0] != 1:
        return False
    taps = geometry.kh * geometry.kw
    n_extent = taps * geometry.kd * merged.cin1_g * (BLOCK_BYTES // item_bytes)
    big_enough = merged.cout_g >= _SMALLEST_MATRIX and n_extent >= _SMALLEST_MATRIX
    return taps == 1 or (taps in _WINDOW_TAPS and big_enough)


def basic_block_tiling(
    geometry: ConvGeometry, compute_dtype: str, cores: int, buffers: Buffers, deterministic: bool = False
) -> DwTiling:
    """Return the operator's tiling of a convolution for which `basic_block_applies`.

    Parameters
    ----------
    geometry, compute_dtype, cores
        As of `tiling_base.base_tiling`.
    buffers : Buffers
        Capacities of the core.
    deterministic : bool
        Whether sums over cores must have a fixed order: M and N are split, and tail blocks are shared (stream-K).

    Returns
    -------
    DwTiling
        Whether it fits is not checked here, as in the operator: `tiling.overflows` tells.
    """
    geometry = replace(geometry, dilation=geometry.single_tap_dilation)
    c0 = BLOCK_BYTES // element_bytes(compute_dtype)
    merged = geometry.merged_groups(c0)
    dk_merged = merged.real_g == 1 and geometry.dilation[0] == 1 and not deterministic
    problem = matrix_problem(geometry, compute_dtype, cores, buffers)
    if dk_merged:
        problem = replace(problem, n=problem.n * geometry.kd, items=problem.items // geometry.kd)
    if deterministic:
        problem = replace(problem, items=merged.real_g * geometry.kd)
    search = BlockSearch(problem, SearchRules(k_step=CUBE, bound_c0=c0, checks_l0=False))
    if not deterministic:
        search.run()
        search.used = min(search.used, search.total)
        return assemble(search, geometry, compute_dtype, ORIGIN_BASIC_BLOCK, dk_merged)
    search.split_mn(Split.MN_STREAM_K)
    stream_k = _share_blocks(search, geometry.n * geometry.do, merged.cin1_g)
    return assemble(search, geometry, compute_dtype, ORIGIN_BASIC_BLOCK, stream_k=stream_k)


def deterministic_fallback_tiling(
    geometry: ConvGeometry,
    compute_dtype: str,
    cores: int,
    buffers: Buffers,
    *,
    w_parts: int = 1,
    tap_by_tap: bool = False,
) -> DwTiling:
    """Return a deterministic tiling of our own, for shapes whose operator tiling overflows a buffer or has no load.

    The operator's search does not look at L0, and counts more of x than the kernel loads. Parameters are those of
    `basic_block_tiling`; ``w_parts`` and ``tap_by_tap`` as in `DwTiling`.
    """
    geometry = replace(geometry, dilation=geometry.single_tap_dilation)
    merged = geometry.merged_groups(BLOCK_BYTES // element_bytes(compute_dtype))
    problem, origin = matrix_problem(geometry, compute_dtype, cores, buffers), ORIGIN_OURS
    items = merged.real_g * geometry.kd
    if tap_by_tap:
        items *= problem.khw
        problem, origin = tap_problem(problem, geometry), ORIGIN_TAPS
    elif w_parts > 1:
        problem, origin = part_problem(problem, geometry, w_parts), ORIGIN_PARTS
    rules = SearchRules(k_step=CUBE, bound_c0=problem.c0, checks_l0=True, exact_loads=True)
    search = BlockSearch(replace(problem, items=items), rules)
    search.split_mn(Split.MN_STREAM_K)
    search.make_fit()
    stream_k = _share_blocks(search, geometry.n * geometry.do * w_parts, merged.cin1_g)
    tiling = assemble(search, geometry, compute_dtype, origin, stream_k=stream_k)
    return replace(tiling, w_parts=w_parts, tap_by_tap=int(tap_by_tap))


def _share_blocks(search: BlockSearch, batch_items: int, cin1_g: int) -> tuple[StreamK, int]:
    """Balance the blocks of a deterministic search over the cores; ``batch_items`` are added to each of them."""
    _widen_single_n(search, cin1_g, batch_items)
    _fit_base_n(search)
    search.buffers_c = 2 if search.base_m * search.base_n * 8 <= search.problem.l0c_bytes else 1
    if search.used // 2 < search.total < search.used:
        search.used = search.total
    return _stream_k(search, batch_items)


def _widen_single_n(search: BlockSearch, cin1_g: int, batch_dout: int) -> None:
    """Give each core more of N when that makes the blocks a whole number of rounds, or a tail that can be shared."""
    problem, cores = search.problem, search.used
    if search.total % cores == 0 and search.single_n == problem.n:
        return
    rest = search.total // ceil_div(problem.n, search.single_n)
    channel_n = problem.khw * problem.c0

    def candidate(target: int) -> int:
        channels = ceil_div(cin1_g, target // math.gcd(rest, target))
        return max(min(channels * channel_n, problem.n), search.single_n)

    single_n = candidate(cores)
    if ceil_div(problem.n, single_n) * rest % cores == 0:
        search.single_n, search.total = single_n, ceil_div(problem.n, single_n) * rest
        return
    most = max(problem.k // search.base_k, batch_dout)
    if most <= 1 or search.total % cores + _TAIL_TOLERANCE >= cores:
        return
    for sharers in range(2, min(most, cores) + 1):
        single_n = candidate(cores // sharers)
        total = ceil_div(problem.n, single_n) * rest
        tail = total % cores
        if tail * sharers == cores or tail + _TAIL_TOLERANCE >= cores:
            search.single_n, search.total = single_n, total
            return


def _fit_base_n(search: BlockSearch) -> None:
    """Choose a base N of whole kernel windows when the last block of a core would be a sliver."""
    problem = search.problem
    padded_n = align_up(search.single_n, CUBE)
    search.base_n = min(search.base_n, padded_n)
    before = (search.base_m, search.base_n, search.base_k)
    blocks = search.base_n // CUBE
    tail = padded_n // CUBE % blocks
    if tail == 0 or tail > 2 or tail * 2 >= blocks:
        return
    most_blocks = max(blocks, CUBE)
    windows = ceil_div(blocks, problem.khw)
    if windows * problem.khw > most_blocks:
        windows = max(windows - 1, 1)
    if windows * problem.khw > most_blocks:
        return
    search.base_n = windows * problem.khw * CUBE
    most_m = min(problem.l0c_bytes // 4 // search.base_n, search.base_m)
    halved = search.base_m // 2 if search.base_m > 128 and most_m < search.base_m else most_m
    search.base_m = _at_least_one_fractal(min(most_m, halved))
    half_l0b = problem.l0b_bytes // problem.element_bytes // 2
    search.base_k = _at_least_one_fractal(half_l0b // max(search.base_m, search.base_n))
    while search.base_k > CUBE and search.is_invalid():
        search.base_k -= CUBE
    if search.is_invalid():
        search.base_m, search.base_n, search.base_k = before
        return
    search.update_steps(search.depth, search.depth)
    search.update_single()


def _at_least_one_fractal(extent: int) -> int:
    return max(extent // CUBE, 1) * CUBE


def _stream_k(search: BlockSearch, batch_dout: int) -> tuple[StreamK, int]:
    """Choose how cores share the blocks of the last, incomplete round; set the cores used."""
    cores, tail = search.used, search.total % search.used
    if tail == 0 or tail > cores // 2 or cores // tail <= 1:
        return StreamK.NONE, 0
    sharers = cores // tail
    part = ceil_div(batch_dout, sharers)
    parts = ceil_div(batch_dout, part)
    rows, wo = search.problem.ho, search.problem.wo
    pixels = rows * wo
    most_parts = ceil_div(pixels, max(wo, search.base_k))
    part_k = ceil_div(rows, max(min(sharers, most_parts), 1)) * wo
    parts_k = ceil_div(pixels, part_k)
    # The batch is split unless the rows give more parts, or a fuller last part.
    emptier_tail = batch_dout % part > 0 and (batch_dout % part) * part_k < (pixels % part_k) * part
    if parts < parts_k or emptier_tail:
        kind, count = StreamK.ROWS, parts_k
    else:
        kind, count = StreamK.BATCH_DOUT, parts
    if count == 1:
        kind, count = StreamK.NONE, 0
    if tail == search.total:
        wanted = search.total * count if kind else search.total
        search.used = max(min(wanted, search.problem.cores), 1)
    return kind, count
