"""The tiling of input gradients and forward convolutions on dav-c220 whose rows, or taps, are too many for L1.

A base block lies in one row of the result, and L1 holds *lines* of what its windows read: of each channel block the
columns under one row of the kernel, or under one tap. So neither the width of the maps nor stride, padding, dilation
or extent of the kernel has a limit.

Ours: CANN's own splitting of W is closed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from npu_sim.isa.op import Op, highest
from npu_sim.products import CoreSpec
from npu_sim.units import align_up, ceil_div
from ops.conv3d_backprop_input.ladder import EDGE, MOST_BASE, Ladder, first_base
from ops.conv3d_backprop_input.tiling_dx_data import DxProblem, block_rows
from ops.conv3d_backprop_input.tiling_dx_fallback import K_BYTES
from ops.conv3d_backprop_input.tiling_forward import reads_only_padding

ORIGIN_PARTS = "not CANN's tiling (our fallback, W in parts)"
ORIGIN_TAPS = "not CANN's tiling (our fallback, tap by tap)"
_MOST_LINES = highest(Op.LOAD_3D, "filter_h")
_LAST_COLUMN = highest(Op.LOAD_3D, "k_start")
_SMALL_M = 64
# Weights that only rank our own blocks against each other; no claim about hardware is made with them.
_GM_BYTES_PER_STEP = 64
_LEAST_STEP = 100
_BLOCK_OVERHEAD_STEPS = 1000
_TAP_COPIES_WORTH = 2
"""A line under a row of the kernel may bring that many times the pixels of lines under taps: fewer, longer copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedTiling:
    """How one convolution is cut whose windows stream through L1 in lines.

    M is the pixel of the result, N its channel, K (c1 of the source, window, c0).

    Attributes
    ----------
    problem : DxProblem
        The convolution.
    forward : bool
        The forward convolution instead of the input gradient.
    line_taps : int
        Taps of one line: all of a row of the kernel, or 1.
    base_m, base_n, base_k : int
        Base block, elements; M within one row of the result.
    step_ka, step_kb : int
        Base K of one L1 load of the source resp. the weight: whole channel blocks, or a part of one.
    al1, bl1, cl0 : int
        Buffers in L1 and L0C.
    a1_bytes, b1_bytes : int
        One buffer in L1.
    single_m : int
        Base blocks along M that a core takes one after the other.
    core_num : int
        Cores launched.
    """

    problem: DxProblem
    forward: bool
    line_taps: int
    base_m: int
    base_n: int
    base_k: int
    step_ka: int
    step_kb: int
    al1: int
    bl1: int
    cl0: int
    a1_bytes: int
    b1_bytes: int
    single_m: int
    core_num: int

    @property
    def origin(self) -> str:
        """Ours."""
        return ORIGIN_PARTS if self.line_taps == self.problem.geometry.kw else ORIGIN_TAPS

    @property
    def width(self) -> int:
        """Columns of the result."""
        return self.problem.geometry.wo if self.forward else self.problem.geometry.wi

    @property
    def per_row(self) -> int:
        """Base blocks of one row of the result."""
        return ceil_div(self.width, self.base_m)

    @property
    def m_total(self) -> int:
        """Base blocks of one plane of the result."""
        return self.per_row * (self.problem.geometry.ho if self.forward else self.problem.geometry.hi)

    @property
    def m_count(self) -> int:
        """Core blocks along M."""
        return ceil_div(self.m_total, self.single_m)

    @property
    def line_columns(self) -> int:
        """Pixels of one line under a whole base block."""
        return line_columns(self.problem, self.forward, self.line_taps, self.base_m)

    @property
    def needs_clearing(self) -> bool:
        """Whether some base block reads nothing but padding and inserted zeros, and is not computed at all."""
        p, g = self.problem, self.problem.geometry
        before, behind = g.pad[4:]
        if self.forward:
            ends = g.kernel_width <= before or (g.wo - 1) * g.stride[2] - before >= g.wi
            return ends or reads_only_padding(g)
        ends = (g.wi + before + behind - p.reach[2]) % g.stride[2] > behind
        return ends or g.stride[2] > p.reach[2] or g.stride[0] > g.kd or p.needs_clearing

    @property
    def n_count(self) -> int:
        """Core blocks along N, per merged group."""
        return ceil_div((self.problem.cout1_g if self.forward else self.problem.cin1_g) * self.problem.c0, self.base_n)


def line_columns(problem: DxProblem, forward: bool, line_taps: int, base_m: int) -> int:
    """Return the pixels of one line of ``line_taps`` taps under ``base_m`` windows."""
    if line_taps == 1:
        return base_m
    step = problem.geometry.stride[2] if forward else 1
    return (base_m - 1) * step + problem.reach[2]


@dataclass(slots=True, kw_only=True)
class _StreamedBlocks(Ladder):
    """Blocks under construction.

    Attributes
    ----------
    problem, forward, line_taps
        See `StreamedTiling`.
    """

    problem: DxProblem
    forward: bool
    line_taps: int

    @property
    def k_planes(self) -> int:
        return self.problem.cin1_g if self.forward else self.problem.cout1_g

    @property
    def plane_k(self) -> int:
        return self.problem.window

    @property
    def _lines(self) -> int:
        """Lines of a whole channel block."""
        return self.problem.khw // self.line_taps

    @property
    def a1_bytes(self) -> int:
        p = self.problem
        taps = min(self.ka * self.base_k // p.c0, p.khw)
        lines = min(block_rows(taps, self.line_taps), self._lines)
        columns = line_columns(p, self.forward, self.line_taps, self.base_m)
        return max(self.ka * self.base_k // p.window, 1) * lines * columns * 32

    @property
    def b1_bytes(self) -> int:
        p = self.problem
        planes, taps = max(self.kb * self.base_k // p.window, 1), min(self.kb * self.base_k // p.c0, p.khw)
        if self.pairs:
            planes = align_up(planes, 2)
        return self.base_n * planes * taps * 32

    @property
    def pairs(self) -> bool:
        """Whether the weights come in pairs of channel blocks (fp32, transposed)."""
        return not self.forward and self.problem.item == 4

    @property
    def loads_whole(self) -> bool:
        """Whether one load can walk over all lines of a channel block."""
        return self._lines <= _MOST_LINES and self.plane_k <= _LAST_COLUMN

    @property
    def most_ka(self) -> int:
        planes = _LAST_COLUMN // self.plane_k // self.planes_per_step
        return max(planes, 1) * self.steps_per_plane

    @property
    def most_cut_ka(self) -> int:
        if self.loads_whole:
            return self.most_ka
        # a part begins anywhere in a line
        columns = min(_LAST_COLUMN, (_MOST_LINES - 1) * self.line_taps * self.problem.c0)
        return max((columns - self.line_taps * self.problem.c0) // self.base_k, 1)

    def cost(self, core: CoreSpec) -> int:
        """Return the rough time of a base block, before it climbs down: Cube steps, or the loads of its lines."""
        p, base_k = self.problem, self.base_ks(core)[-1]
        fractals = ceil_div(self.base_m, EDGE) * ceil_div(self.base_n, EDGE) * base_k // p.c0
        steps = ceil_div(self.k_planes * p.window, base_k) * max(fractals * p.item // 2, _LEAST_STEP)
        pixels = self.k_planes * self._lines * line_columns(p, self.forward, self.line_taps, self.base_m)
        return max(steps, pixels * 32 // _GM_BYTES_PER_STEP) + _BLOCK_OVERHEAD_STEPS

    def base_ks(self, core: CoreSpec) -> list[int]:
        p = self.problem
        most = min(K_BYTES // p.item, self.k_planes * p.window)
        spare = p.c0 if self.pairs and p.khw > 1 else 0
        return [
            k
            for k in range(p.c0, most + 1, p.c0)
            if (p.window % k == 0 or k % p.window == 0)
            and 2 * self.base_m * align_up(k, EDGE) * p.item <= core.l0a_bytes
            and 2 * self.base_n * (align_up(k, EDGE) + spare) * p.item <= core.l0b_bytes
        ]


def streamed_tiling(problem: DxProblem, forward: bool, core: CoreSpec, cores: int) -> StreamedTiling:
    """Return a tiling on ``cores`` Cube cores that fits the buffers of ``core``; there always is one."""
    p, g = problem, problem.geometry
    planes, rows, width = (g.do, g.ho, g.wo) if forward else (g.di, g.hi, g.wi)
    n = (p.cout1_g if forward else p.cin1_g) * p.c0
    most_m, base_n = first_base(align_up(width, EDGE), align_up(n, EDGE))
    row_lines = [g.kw] if _has_row_lines(p, forward) else []
    others = g.n * planes * p.groups * ceil_div(n, base_n)

    def rank(base_m: int) -> int:
        blocks = _StreamedBlocks(problem=p, forward=forward, line_taps=(*row_lines, 1)[0], base_m=base_m, base_n=base_n)
        return ceil_div(others * rows * ceil_div(width, base_m), cores) * blocks.cost(core)

    # blocks of one size, the last one aside
    sizes = (
        align_up(ceil_div(width, ceil_div(width, m)), EDGE) for m in range(most_m, min(_SMALL_M, most_m) - 1, -EDGE)
    )
    base_m = min(dict.fromkeys(sizes), key=rank)
    for line_taps, cut in ((taps, cut) for taps in (*row_lines, 1) for cut in (False, True)):
        blocks = _StreamedBlocks(problem=p, forward=forward, line_taps=line_taps, base_m=base_m, base_n=base_n)
        if (cut or blocks.loads_whole) and blocks.fit(core, cut=cut):
            break
    holds_all = g.kd == 1 and blocks.kb * blocks.base_k >= blocks.k_planes * p.window
    tiling = StreamedTiling(
        problem=p,
        forward=forward,
        line_taps=blocks.line_taps,
        base_m=blocks.base_m,
        base_n=blocks.base_n,
        base_k=blocks.base_k,
        step_ka=blocks.ka,
        step_kb=blocks.kb,
        al1=blocks.al1,
        bl1=1 if holds_all else blocks.bl1,
        cl0=2 if 2 * blocks.base_m * blocks.base_n * 4 <= core.l0c_bytes else 1,
        a1_bytes=blocks.a1_bytes,
        b1_bytes=blocks.b1_bytes,
        single_m=1,
        core_num=1,
    )
    others = g.n * planes * p.groups * tiling.n_count

    def busiest(parts: int) -> tuple[int, int]:
        return ceil_div(others * parts, cores) * ceil_div(tiling.m_total, parts), parts

    single_m = ceil_div(tiling.m_total, min(range(1, min(tiling.m_total, cores) + 1), key=busiest))
    return replace(tiling, single_m=single_m, core_num=min(others * ceil_div(tiling.m_total, single_m), cores))


def _has_row_lines(p: DxProblem, forward: bool) -> bool:
    """Return whether lines under rows of the kernel are worth their pixels, and one load can walk over them."""
    kw, step = p.geometry.kw, p.geometry.stride[2] if forward else 1
    operands = (("filter_w", kw), ("stride_w", step), ("dilation_w", p.dilation[2]))
    pixels = (MOST_BASE - 1) * step + p.reach[2]
    return (
        kw > 1
        and all(value <= highest(Op.LOAD_3D, name) for name, value in operands)
        and pixels <= _TAP_COPIES_WORTH * kw * MOST_BASE
    )
