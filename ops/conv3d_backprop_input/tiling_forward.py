"""The tiling of a forward convolution on dav-c220: ours, because CANN's comes from a closed library."""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.dtypes.formats import DTYPES
from npu_sim.products import CoreSpec
from npu_sim.units import ceil_div
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_OURS, block_rows
from ops.conv3d_backprop_input.tiling_dx_fallback import BlockProblem, Blocks, fallback_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardTiling:
    """How one forward convolution is cut.

    M is the output pixel, N the output channel, K (c1 of x, window, c0).

    Attributes
    ----------
    geometry, compute_dtype, c0, groups
        As of `tiling_dx_data.DxProblem`.
    cin1, cout1 : int
        Channel blocks of x and y.
    cin1_g, cout1_g : int
        Channel blocks of a merged group.
    blocks : Blocks
        Base block and buffers.
    single_m, single_n : int
        Block of one core, elements; M in whole rows.
    core_num : int
        Cores launched.
    """

    geometry: ConvGeometry
    compute_dtype: str
    c0: int
    groups: int
    cin1: int
    cout1: int
    cin1_g: int
    cout1_g: int
    blocks: Blocks
    single_m: int
    single_n: int
    core_num: int

    @property
    def origin(self) -> str:
        """Ours."""
        return ORIGIN_OURS

    @property
    def m_count(self) -> int:
        """Core blocks along M."""
        return ceil_div(self.geometry.pixels, self.single_m)

    @property
    def n_count(self) -> int:
        """Core blocks along N, per merged group."""
        return ceil_div(self.cout1_g * self.c0, self.single_n)

    def rows(self, pixels: int) -> int:
        """Return the rows of x, padding included, under a block of ``pixels``."""
        return _rows(self.geometry, pixels)

    @property
    def needs_clearing(self) -> bool:
        """Whether some output reads nothing but padding along depth or height, and is not computed at all."""
        return reads_only_padding(self.geometry)


def reads_only_padding(geometry: ConvGeometry) -> bool:
    """Return whether some output plane or row lies wholly under windows over padding."""
    g = geometry
    planes = any(all(g.input_depth(d, tap) is None for tap in range(g.kd)) for d in range(g.do))
    first = g.kernel_height - g.pad[2] <= 0
    last = (g.ho - 1) * g.stride[1] - g.pad[2] >= g.hi
    return planes or first or last


def _rows(geometry: ConvGeometry, pixels: int) -> int:
    return (block_rows(pixels, geometry.wo) - 1) * geometry.stride[1] + geometry.kernel_height


def forward_tiling(geometry: ConvGeometry, compute_dtype: str, core: CoreSpec, cores: int) -> ForwardTiling | None:
    """Return the tiling on ``cores`` Cube cores, None if no block fits."""
    g, c0 = geometry, DTYPES[compute_dtype].block_elems
    merged = g.merged_groups(c0)
    cin1, cout1 = ceil_div(g.cin, c0), ceil_div(g.cout, c0)
    single = merged.real_g == 1
    cin1_g, cout1_g = (cin1, cout1) if single else (merged.cin1_g, merged.cout_g // c0)
    problem = BlockProblem(
        m=g.pixels,
        n=cout1_g * c0,
        k1=cin1_g,
        window=g.kh * g.kw * c0,
        c0=c0,
        spare_k=0,
        a_bytes=lambda pixels: min(_rows(g, pixels), g.hi) * g.wi * 32,
        pairs_b=False,
        width=g.wo,
        others=merged.real_g * g.n * g.do,
        cores=cores,
    )
    blocks = fallback_blocks(problem, core)
    if blocks is None:
        return None
    single_m = max(blocks.base_m // g.wo, 1) * g.wo
    items = ceil_div(g.pixels, single_m) * ceil_div(cout1_g * c0, blocks.base_n) * merged.real_g * g.n * g.do
    return ForwardTiling(
        geometry=g,
        compute_dtype=compute_dtype,
        c0=c0,
        groups=merged.real_g,
        cin1=cin1,
        cout1=cout1,
        cin1_g=cin1_g,
        cout1_g=cout1_g,
        blocks=blocks,
        single_m=single_m,
        single_n=blocks.base_n,
        core_num=min(items, cores),
    )
