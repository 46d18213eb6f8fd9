"""A tiling of our own for calls that CANN's tilings refuse, or for which they overflow a buffer.

The public class's search gives the base block and the L1 steps; what is ours is the grid of core blocks. The search
may leave most cores idle (it chooses the two axes of M, N and K to cut before it looks at the cores, and cuts them in
units of its L1 block), so other grids over two axes are ranked by a rough cost and the best one is taken.

Where whole rows of x do not fit L1, the columns of y are cut into parts; where image-to-column cannot encode the
window, or not even a few columns fit, every tap of the window is work of its own (`cut_tilings`). CANN's operator
refuses both; the page allows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from npu_sim.units import align_up, ceil_div
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_data import (
    ORIGIN_OURS,
    ORIGIN_PARTS,
    ORIGIN_TAPS,
    DwTiling,
    Split,
)
from ops.conv3d_backprop_filter.tiling_parts import MOST_COLUMNS, column_parts, part_problem, tap_problem
from ops.conv3d_backprop_filter.tiling_public import Buffers, assemble, matrix_problem
from ops.conv3d_backprop_filter.tiling_search import CUBE, BlockSearch, Problem, SearchRules

_ROUNDS_ENOUGH = 4
"""Grids with more blocks per core than this are balanced well enough, whatever they are."""

# Weights that only rank our own grids against each other; no claim about hardware is made with them.
_GM_BYTES_PER_STEP = 64
_BLOCK_OVERHEAD_STEPS = 500

_COLUMNS = (MOST_COLUMNS, MOST_COLUMNS // 2, MOST_COLUMNS // 4)
"""Widths of parts that are tried: many channels, and 32-bit ones, leave L1 no room for two buffers of the widest."""

_Grid = tuple[int, int, int]


def fallback_tiling(
    geometry: ConvGeometry,
    compute_dtype: str,
    cores: int,
    buffers: Buffers,
    *,
    w_parts: int = 1,
    tap_by_tap: bool = False,
) -> DwTiling:
    """Return our tiling: merged groups and depth taps are separate work, and blocks fit L0A, L0B and L0C.

    Parameters are those of `tiling_basic_block.basic_block_tiling`; ``w_parts`` and ``tap_by_tap`` as in `DwTiling`.

    Returns
    -------
    DwTiling
        May still overflow L1 where no block fits: `tiling.overflows` tells. At least one of ``m_count``, ``n_count``
        and ``k_count`` is 1, and the tiling key says which, as in CANN's tilings.
    """
    geometry = replace(geometry, dilation=geometry.single_tap_dilation)
    problem = matrix_problem(geometry, compute_dtype, cores, buffers)
    origin = ORIGIN_OURS
    if tap_by_tap:
        problem, origin = tap_problem(problem, geometry), ORIGIN_TAPS
    elif w_parts > 1:
        problem, origin = part_problem(problem, geometry, w_parts), ORIGIN_PARTS
    rules = SearchRules(k_step=problem.c0, bound_c0=problem.c0, checks_l0=True, exact_loads=True)
    search = BlockSearch(problem, rules)
    search.run()
    search.make_fit()
    _choose_grid(search)
    if origin != ORIGIN_OURS:
        _lengthen_k(search)
    search.used = min(search.used, search.total)
    tiling = assemble(search, geometry, compute_dtype, origin)
    return replace(tiling, w_parts=w_parts, tap_by_tap=int(tap_by_tap))


def cut_tilings(
    make: Callable[..., DwTiling], geometry: ConvGeometry, l1_bytes: int, *, loadable: bool
) -> Iterator[DwTiling]:
    """Yield our tilings in parts of the columns of y, which may overflow L1, then the one tap by tap, which does not.

    First come those whose L1 has two buffers of a whole part each, then those that load a part again and again.

    Parameters
    ----------
    make : callable
        Gives the tiling for ``w_parts`` and ``tap_by_tap`` as in `DwTiling`, `fallback_tiling` for instance.
    geometry, l1_bytes
        As of `tiling_parts.column_parts`.
    loadable : bool
        Whether image-to-column can encode the window.
    """
    slower = []
    tried = set[int]()
    for most in _COLUMNS if loadable else ():
        for parts in column_parts(geometry, l1_bytes, most):
            if parts in tried:
                continue
            tried.add(parts)
            tiling = make(w_parts=parts)
            is_double = tiling.al1_pbuffer == tiling.bl1_pbuffer == 2
            if is_double and tiling.step_kb * tiling.base_k >= ceil_div(geometry.wo, parts):
                yield tiling
            else:
                slower.append(tiling)
    yield from slower
    yield make(tap_by_tap=True)


def _lengthen_k(search: BlockSearch) -> None:
    """Give the cores as much of K at once as leaves enough blocks: each block is added to dw by itself."""
    problem = search.problem
    blocks = _count(problem, (search.single_m, search.single_n, problem.k))
    parts = min(ceil_div(_ROUNDS_ENOUGH * problem.cores, blocks), problem.ho)
    search.single_k = max(search.single_k, ceil_div(problem.ho, parts) * problem.wo)
    search.total = _count(problem, (search.single_m, search.single_n, search.single_k))


def _choose_grid(search: BlockSearch) -> None:
    """Replace the search's grid of core blocks by a cheaper one, if there is one."""
    problem = search.problem
    if search.total >= _ROUNDS_ENOUGH * problem.cores:
        return
    start = (search.single_m, search.single_n, search.single_k)
    best = min(_grids(problem, start), key=lambda grid: _cost(problem, grid))
    if _cost(problem, best) >= _cost(problem, start):
        return
    before = (search.base_m, search.base_n, search.step_m, search.step_n, search.split)
    search.single_m, search.single_n, search.single_k = best
    # Base blocks of equal size instead of full ones and a sliver.
    search.base_m = align_up(ceil_div(best[0], ceil_div(best[0], search.base_m)), CUBE)
    search.base_n = min(search.base_n, align_up(best[1], CUBE))
    search.step_m = min(search.step_m, ceil_div(best[0], search.base_m))
    search.step_n = min(search.step_n, ceil_div(best[1], search.base_n))
    search.total = _count(problem, best)
    if best[1] >= problem.n:
        search.split = Split.MK
    else:
        search.split = Split.NK if best[0] >= problem.m else Split.MN
    # A shorter N can touch one channel block more, because it is no longer whole windows; then the old grid stays.
    if search.is_invalid():
        search.base_m, search.base_n, search.step_m, search.step_n, search.split = before
        search.single_m, search.single_n, search.single_k = start
        search.total = _count(problem, start)


def _grids(problem: Problem, start: _Grid) -> Iterator[_Grid]:
    """Yield block sizes that cut two of M, N and K into at most a few rounds of the cores; K in whole rows of y."""
    yield start
    most = _ROUNDS_ENOUGH * problem.cores // problem.items
    window = problem.khw * problem.c0
    channels = problem.n // window
    for m_parts in range(1, min(most, problem.m // CUBE) + 1):
        single_m = align_up(ceil_div(problem.m, m_parts), CUBE)
        for n_parts in range(1, min(most // m_parts, channels) + 1):
            single_n = ceil_div(channels, n_parts) * window
            both = single_m < problem.m and single_n < problem.n
            most_k = 1 if both else min(most // (m_parts * n_parts), problem.ho)
            for k_parts in range(1, most_k + 1):
                yield single_m, single_n, ceil_div(problem.ho, k_parts) * problem.wo


def _count(problem: Problem, grid: _Grid) -> int:
    single_m, single_n, single_k = grid
    blocks = ceil_div(problem.m, single_m) * ceil_div(problem.n, single_n)
    return problem.items * blocks * ceil_div(problem.ho * problem.wo, single_k)


def _cost(problem: Problem, grid: _Grid) -> int:
    """Return the rough time of the fullest core: Cube steps or GM traffic of its blocks, whichever is longer."""
    m, n = min(grid[0], problem.m), min(grid[1], problem.n)
    k = min(grid[2], problem.ho * problem.wo)
    steps = ceil_div(m, CUBE) * ceil_div(n, CUBE) * ceil_div(k, problem.c0) * problem.element_bytes // 2
    x_elems = n // problem.khw * k * problem.stride_h * problem.stride_w
    traffic = (m * k + x_elems) * problem.element_bytes + m * n * 4
    block = max(steps, traffic // _GM_BYTES_PER_STEP) + _BLOCK_OVERHEAD_STEPS
    return ceil_div(_count(problem, grid), problem.cores) * block
