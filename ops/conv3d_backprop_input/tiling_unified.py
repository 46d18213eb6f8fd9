"""Tiling of input gradients and forward convolutions on the products with unified cores.

The vendor's numbers for these products come from a repository of tuned shapes and a closed cost model; these are ours
and obey the capacities of its static schedule (CANN 8.1.RC1 ``tbe/dsl/static_schedule/
conv2d_backprop_input_general_schedule.py`` and ``tbe/dsl/compute/conv2d_backprop_input_*_compute.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod

from npu_sim.isa.op import Op, highest
from npu_sim.products import CoreSpec, Product
from npu_sim.units import align_up, ceil_div
from ops.conv3d_backprop_input.bias import EVENTS_WITH_BIAS, ROW_BYTES
from ops.conv3d_backprop_input.ladder import Ladder, first_base
from ops.conv3d_backprop_input.problem_unified import C0, WindowProblem

_PIXEL_BYTES = 2 * C0
_MOST_K = 128
_MOST_COLUMNS = 32767


WINDOW_LIMITS = {
    "stride": highest(Op.LOAD_3D_V1, "stride_h"),
    "dilation": highest(Op.LOAD_3D_V1, "dilation_h"),
    "pad": highest(Op.LOAD_3D_V1, "pad_top"),
    "kernel": highest(Op.LOAD_3D_V1, "filter_h"),
}
"""Largest window of the image-to-column load of either version; beyond, the windows are gathered by copies (the
``load2d``/DMA way out of CANN 8.1.RC1 ``tbe/dsl/compute/conv2d_backprop_input_compute.py``)."""


_BASES = tuple((m, n) for m in (256, 128, 64, 32) for n in (256, 128, 64, 32) if m * n <= 32768)
"""Sides of base blocks of input gradients that are tried beside the largest ones: profiled ones of small batches use
all cores, where forward convolutions do not."""

# Weights that only rank our own blocks against each other; no claim about hardware is made with them.
_STEP_CYCLES, _BLOCK_CYCLES, _READ_RATE = 60, 1000, 90


class Source(IntEnum):
    """How the windows get from global memory into L0A."""

    MAP = 0
    """Rows of the map are copied to L1, image-to-column load to L0A."""
    DILATED = 1
    """The same, but rows pass UB, where the vector unit inserts the zeros."""
    GATHERED = 2
    """Window by window copied to L1 as a matrix over zeros, fractal loads to L0A."""
    PIXELS = 3
    """1x1 windows of stride 1: the plane itself is the matrix. Zeros are inserted behind the Cube instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnifiedTiling:
    """How the kernels of unified cores cut one problem.

    Attributes
    ----------
    source : Source
        Way of the windows into L0A.
    by_row : int
        1: a block of M lies in one row and only its columns of the map are in L1 (always for 1D; else where whole rows
        do not fit). 0: blocks of consecutive pixels, whole rows in L1.
    two_column : int
        1: the result has one column, which image-to-column cannot produce when there are several rows; two are
        computed and every second one is dropped.
    base_m, base_n, base_k : int
        One L0 block, elements, multiples of 16.
    step_ka, step_kb : int
        L0 steps of K in one L1 buffer of windows and of weights: whole channel blocks or, where L1 does not hold one,
        any part of one (the last part of a channel block may be shorter).
    al1_pbuffer, bl1_pbuffer, cl0_pbuffer : int
        Buffers in L1 and L0C; L0A and L0B are used as two halves.
    a1_bytes, b1_bytes : int
        One L1 buffer.
    a1_rows, a1_columns : int
        Rows and columns of the map in one L1 buffer (gathered and plain pixels: 1 row of ``base_m``).
    load_columns, first_column, pad_left, pad_right : int
        Whole rows only: windows of one row as the load sees them, first column of the map kept, padding.
    m_total, m_count, n_count : int
        Pixels (windows) of one batch item, and blocks.
    group : int
        Merged groups.
    batch_dim, m_dim, group_dim, n_dim : int
        Parts of each loop that go to different cores.
    block_dim : int
        Cores launched, the product of the four.
    ub_rows, ub_columns : int
        Rows and columns of the dilated map that one pass through UB makes; 0 where none is made.
    slice_m, slice_n : int
        Pixels and channel blocks that leave L0C at a time.
    """

    source: Source
    by_row: int
    two_column: int
    base_m: int
    base_n: int
    base_k: int
    step_ka: int
    step_kb: int
    al1_pbuffer: int
    bl1_pbuffer: int
    cl0_pbuffer: int
    a1_bytes: int
    b1_bytes: int
    a1_rows: int
    a1_columns: int
    load_columns: int
    first_column: int
    pad_left: int
    pad_right: int
    m_total: int
    m_count: int
    n_count: int
    group: int
    batch_dim: int
    m_dim: int
    group_dim: int
    n_dim: int
    block_dim: int
    ub_rows: int
    ub_columns: int
    slice_m: int
    slice_n: int

    @property
    def origin(self) -> str:
        """Where the tiling comes from, for reports."""
        return "not CANN's tiling (our schedule for unified cores)"


def unified_tiling(problem: WindowProblem, product: Product) -> UnifiedTiling:
    """Return a tiling of ``problem`` that fits every buffer of ``product``; there always is one.

    Whole channel blocks stream through L1 if it holds one, else parts of them. Windows that image-to-column cannot make
    even so are gathered: of those, one fractal is enough.
    """
    q = problem
    source, by_row, two_column = _way(q, product.core)
    ways = [(source, by_row, two_column)]
    if not by_row and source in (Source.MAP, Source.DILATED):
        ways.append((source, True, False))
    for cut in (False, True):
        for way in ways:
            bases = (None, *(_BASES if q.transposed else ()))
            found = [tiling for base in bases if (tiling := _fit(q, product, *way, cut=cut, base=base))]
            if found:
                return min(found, key=lambda tiling: _cycles(q, tiling))
    gathered = _fit(q, product, Source.GATHERED, by_row=False, two_column=False, cut=True)
    assert gathered is not None
    return gathered


def _cycles(q: WindowProblem, tiling: UnifiedTiling) -> int:
    """Return the rough time of the busiest core: pipes hardly overlap on unified cores."""
    t, k = tiling, q.k_planes * q.taps
    parts = ((q.batch, t.batch_dim), (t.m_count, t.m_dim), (q.groups, t.group_dim), (t.n_count, t.n_dim))
    blocks = prod(ceil_div(count, dim) for count, dim in parts)
    m, n = t.base_m // C0, t.base_n // C0
    steps = ceil_div(k * C0, t.base_k)
    moved = t.a1_rows * t.a1_columns * q.k_planes * _PIXEL_BYTES + t.base_n * k * C0 * 2
    return blocks * (m * n * k + 2 * (m + n) * k + _STEP_CYCLES * steps + moved // _READ_RATE + _BLOCK_CYCLES)


def _way(q: WindowProblem, core: CoreSpec) -> tuple[Source, bool, bool]:
    """Return the way of the windows, whether blocks lie in one row, and whether one column is made as two."""
    # zeros that UB inserts behind the Cube would lack a bias
    if _is_plain(q) and (not q.is_expanded or (_can_spread(q, core.ub_bytes) and not q.has_bias)):
        return Source.PIXELS, False, False
    two_column = core.load3d_cannot_make_width_one and q.result[1] == 1 and q.result[0] > 1
    pads = [max(pad, 0) for pad in (*q.lead, *q.tail)]
    if two_column:
        pads.append(_kept(q, True)[2])
    if (
        max(pads) > WINDOW_LIMITS["pad"]
        or max(q.kernel) > WINDOW_LIMITS["kernel"]
        or max(q.dilation) > WINDOW_LIMITS["dilation"]
        or max(q.stride) > WINDOW_LIMITS["stride"]
    ):
        return Source.GATHERED, False, False
    source = Source.DILATED if q.is_expanded else Source.MAP
    line = q.source[0] == q.result[0] == q.kernel[0] == 1
    wide = max(q.map_extent[1] + WINDOW_LIMITS["pad"], q.result[1]) > _MOST_COLUMNS
    return source, line or wide, two_column and not (line or wide)


def _kept(q: WindowProblem, two_column: bool) -> tuple[int, int, int]:
    """Return the first column of the map that is kept, how many are, and the padding behind them."""
    first = max(-q.lead[1], 0)
    # none where the only column of x is one that no window covers
    columns = max(q.map_extent[1] - first - max(-q.tail[1], 0), 0)
    pad_right = max(q.tail[1], 0)
    if two_column:
        # exactly one window more
        pad_right = q.reach[1] + q.stride[1] - columns - max(q.lead[1], 0)
    return first, columns, pad_right


def _is_plain(q: WindowProblem) -> bool:
    """Whether every source pixel stands at a pixel of its own in the result: 1x1 windows, no padding."""
    inside = all(-q.expand[axis] < q.tail[axis] <= 0 for axis in range(2))
    return q.transposed and q.taps == 1 and q.lead == (0, 0) and inside


def _can_spread(q: WindowProblem, ub_bytes: int) -> bool:
    """Whether UB can insert the zeros behind the Cube: the published schedule's condition, and room for our halves.

    Source of the condition: CANN 8.1.RC1 ``tbe/dsl/compute/conv2d_backprop_input_opti_compute.py``.
    """
    row = align_up(q.source[1], C0)
    lines = (ceil_div(row, q.source[1]) - 1) * q.expand[0] + 1 + q.result[0] - ((q.source[0] - 1) * q.expand[0] + 1)
    published = (row + q.result[1] * min(q.result[0], lines)) * _PIXEL_BYTES
    return published <= ub_bytes and _spread_bytes(q, C0) <= ub_bytes // 2


def _spread_bytes(q: WindowProblem, pixels: int) -> int:
    """Return the bytes of UB that ``pixels`` source pixels of one plane need, before and after zeros are inserted."""
    # From one pixel to the one that many further: rows that are begun on the way, then columns. What follows the last
    # pixel of a row, or the last row, belongs to it.
    rows = (pixels + q.source[1] - 1) // q.source[1]
    return (pixels + rows * q.expand[0] * q.result[1] + pixels * q.expand[1]) * _PIXEL_BYTES


def _touched(count: int, width: int) -> int:
    """Return the lines of ``width`` elements that any of the blocks of ``count`` consecutive elements may touch."""
    if count % width == 0:
        return count // width
    if width % count == 0:
        return 1
    return count // width + 2 if count > width else 2


@dataclass(slots=True, kw_only=True)
class _Blocks(Ladder):
    """Blocks of one way of the windows."""

    q: WindowProblem
    source: Source
    by_row: bool
    two_column: bool

    @property
    def k_planes(self) -> int:
        return self.q.k_planes

    @property
    def plane_k(self) -> int:
        return self.q.taps * C0

    @property
    def windows(self) -> int:
        """Windows of one row as the blocks see them."""
        return 2 if self.two_column else self.q.result[1]

    @property
    def m_total(self) -> int:
        if self.source is Source.PIXELS:
            return self.q.source[0] * self.q.source[1]
        return self.q.result[0] * self.windows

    @property
    def a1_extent(self) -> tuple[int, int]:
        """Rows and columns of the map under one block and one L1 step of K."""
        q = self.q
        taps = min(self.ka * self.base_k // C0, q.taps)
        if self.source is Source.PIXELS:
            return 1, self.base_m
        if self.source is Source.GATHERED:
            return 1, self.base_m * taps
        reach = (min(_touched(taps, q.kernel[1]), q.kernel[0]) - 1) * q.dilation[0] + 1
        if self.by_row:
            return min(reach, q.map_extent[0]), min((self.base_m - 1) * q.stride[1] + q.reach[1], q.map_extent[1])
        lines = _touched(self.base_m, self.windows)
        rows = (min(lines, q.result[0]) - 1) * q.stride[0] + reach
        return min(rows, q.map_extent[0]), _kept(q, self.two_column)[1]

    @property
    def a1_bytes(self) -> int:
        rows, columns = self.a1_extent
        return max(self.ka * self.base_k // (self.q.taps * C0), 1) * rows * columns * _PIXEL_BYTES

    @property
    def b1_bytes(self) -> int:
        return self.kb * self.base_k * self.base_n * 2

    @property
    def l1_bytes(self) -> int:
        bias_bytes = self.base_n * ROW_BYTES if self.q.has_bias else 0
        return self.al1 * self.a1_bytes + self.bl1 * self.b1_bytes + bias_bytes

    def most_bl1(self, core: CoreSpec) -> int:
        return 1 if self.q.has_bias and core.event_count < EVENTS_WITH_BIAS else 2

    @property
    def most_ka(self) -> int:
        columns, unit = self.q.taps * C0, self.planes_per_step
        planes = min(highest(Op.LOAD_3D, "k_start") // columns, highest(Op.LOAD_3D_V1, "c1_index")) // unit
        return max(planes, 1) * self.steps_per_plane

    @property
    def most_cut_ka(self) -> int:
        # a part begins anywhere in a row of the kernel
        if self.source is Source.GATHERED or self.q.taps * C0 <= highest(Op.LOAD_3D, "k_start"):
            return self.most_ka
        return (highest(Op.LOAD_3D, "k_start") - self.q.kernel[1] * C0) // self.base_k

    def base_ks(self, core: CoreSpec) -> list[int]:
        columns = self.plane_k
        most = min(
            _MOST_K, self.k_planes * columns, core.l0a_bytes // (4 * self.base_m), core.l0b_bytes // (4 * self.base_n)
        )
        return [k for k in range(C0, most + 1, C0) if columns % k == 0 or k % columns == 0]


def _fit(
    q: WindowProblem,
    product: Product,
    source: Source,
    by_row: bool,
    two_column: bool,
    *,
    cut: bool = False,
    base: tuple[int, int] | None = None,
) -> UnifiedTiling | None:
    """Return the tiling with the largest blocks that L1 holds, None if it does not hold the smallest; see `Ladder.fit`.

    ``base``: sides to begin with instead of the largest.
    """
    blocks = _Blocks(q=q, source=source, by_row=by_row, two_column=two_column, base_m=C0, base_n=C0)
    m = align_up(q.result[1] if by_row else blocks.m_total, C0)
    blocks.base_m, blocks.base_n = first_base(m, q.n_planes * C0)
    if base is not None:
        if base[0] >= blocks.base_m and base[1] >= blocks.base_n:
            return None
        blocks.base_m, blocks.base_n = min(base[0], m), min(base[1], q.n_planes * C0)
    return _finished(q, product, blocks) if blocks.fit(product.core, cut=cut) else None


def _finished(q: WindowProblem, product: Product, blocks: _Blocks) -> UnifiedTiling:
    core = product.core
    first, _, pad_right = _kept(q, blocks.two_column)
    per_row = ceil_div(q.result[1], blocks.base_m)
    m_count = q.result[0] * per_row if blocks.by_row else ceil_div(blocks.m_total, blocks.base_m)
    n_count = ceil_div(q.n_planes * C0, blocks.base_n)
    dims = split_over_cores((q.batch, m_count, q.groups, n_count), product.cube_core_count)
    spread = blocks.source is Source.PIXELS and q.is_expanded
    rows, a1_columns = blocks.a1_extent
    ub_rows, ub_columns = (0, 0)
    if blocks.source is Source.DILATED:
        ub_rows, ub_columns = dilation_pass(q, rows, a1_columns, core.ub_bytes // 4)
    slice_m, capacity, each = blocks.base_m, core.ub_bytes // 4, blocks.base_m * _PIXEL_BYTES
    if spread:
        capacity = core.ub_bytes // 2
        while _spread_bytes(q, slice_m) > capacity:
            slice_m -= C0
        each = _spread_bytes(q, slice_m)
    return UnifiedTiling(
        source=blocks.source, by_row=int(blocks.by_row), two_column=int(blocks.two_column), base_m=blocks.base_m,
        base_n=blocks.base_n, base_k=blocks.base_k, step_ka=blocks.ka, step_kb=blocks.kb, al1_pbuffer=blocks.al1,
        bl1_pbuffer=blocks.bl1, cl0_pbuffer=2 if 2 * blocks.base_m * blocks.base_n * 4 <= core.l0c_bytes else 1,
        a1_bytes=blocks.a1_bytes, b1_bytes=blocks.b1_bytes, a1_rows=rows, a1_columns=a1_columns,
        load_columns=blocks.windows, first_column=first, pad_left=max(q.lead[1], 0), pad_right=pad_right,
        m_total=blocks.m_total, m_count=m_count, n_count=n_count, group=q.groups, batch_dim=dims[0], m_dim=dims[1],
        group_dim=dims[2], n_dim=dims[3], block_dim=dims[0] * dims[1] * dims[2] * dims[3], ub_rows=ub_rows,
        ub_columns=ub_columns, slice_m=slice_m, slice_n=min(capacity // each, blocks.base_n // C0),
    )  # fmt: skip


def dilation_pass(q: WindowProblem, rows: int, columns: int, capacity: int) -> tuple[int, int]:
    """Return the rows and columns of the dilated map that ``capacity`` bytes of UB hold beside what they come from.

    Whole rows, as many as fit; columns of one row where not even one fits.
    """

    def needed(lines: int, width: int) -> int:
        return (lines * width + ceil_div(lines, q.expand[0]) * ceil_div(width, q.expand[1])) * _PIXEL_BYTES

    if needed(1, columns) > capacity:
        width = columns
        while needed(1, width) > capacity:
            width = width // 2
        return 1, width
    lines = 1
    while lines < rows and needed(lines + 1, columns) <= capacity:
        lines += 1
    return lines, columns


def split_over_cores(counts: tuple[int, int, int, int], cores: int) -> tuple[int, int, int, int]:
    """Return the parts of (batch, m, group, n) loops that go to different cores: least work on the busiest core.

    Among equals the fewest cores, then parts of the outer loops first.
    """
    batch, m, group, n = counts
    best: tuple[tuple[int, ...], tuple[int, int, int, int]] | None = None
    for b_dim in range(1, min(batch, cores) + 1):
        for m_dim in range(1, min(m, cores // b_dim) + 1):
            for g_dim in range(1, min(group, cores // (b_dim * m_dim)) + 1):
                n_dim = min(n, cores // (b_dim * m_dim * g_dim))
                n_dim = ceil_div(n, ceil_div(n, n_dim))
                work = ceil_div(batch, b_dim) * ceil_div(m, m_dim) * ceil_div(group, g_dim) * ceil_div(n, n_dim)
                key = (work, b_dim * m_dim * g_dim * n_dim, -b_dim, -m_dim, -g_dim)
                if best is None or key < best[0]:
                    best = key, (b_dim, m_dim, g_dim, n_dim)
    assert best is not None
    return best[1]
