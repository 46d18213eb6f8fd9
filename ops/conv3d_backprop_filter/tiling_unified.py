"""Tiling of the weight gradient on the products with unified cores.

The vendor's tiling for these products comes from a repository of tuned shapes and a closed cost model; this one is ours
and obeys the capacity formulas of its static schedule (CANN 8.1.RC1 and its predecessors,
``opp/built-in/op_impl/ai_core/tbe``: conv3d_backprop_filter schedule, conv2d_backprop_filter likewise).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npu_sim.dtypes.formats import FP16
from npu_sim.errors import DTypeError, OperatorError, ProductError, ShapeError
from npu_sim.isa.op import Op, highest
from npu_sim.units import align_up, ceil_div
from ops.common.geometry import ConvGeometry, MergedGroups
from ops.common.status import NO_KERNEL
from ops.conv3d_backprop_filter.encoding import Excess, excess, largest_start
from ops.conv3d_backprop_filter.tiling import check_load3d, load3d_excess, refuse_unencodable
from ops.conv3d_backprop_filter.tiling_parts import column_parts, part_columns

if TYPE_CHECKING:
    from npu_sim.products import Product

C0 = 16
"""Channel block and fractal edge; only 16-bit operands exist."""


LOAD3D_LIMITS = {
    "stride": highest(Op.LOAD_3D_V1, "stride_h"),
    "dilation": highest(Op.LOAD_3D_V1, "dilation_h"),
    "pad": highest(Op.LOAD_3D_V1, "pad_top"),
    "kernel": highest(Op.LOAD_3D_V1, "filter_h"),
}
"""Ranges of the operator on these products, those of load3d v1 on both (CANN 8.1.RC1, Conv3DBackpropFilterD checks)."""

_ELEMENT_BYTES = FP16.item_bytes
_MOST_M, _MOST_N, _MOST_K, _MOST_STEPS = 128, 256, 64, 16

# Weights that only rank our own blocks against each other; no claim about hardware is made with them.
_STEP_CYCLES, _BLOCK_CYCLES, _READ_RATE = 60, 1000, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class UnifiedTiling:
    """How the kernel of unified cores cuts one weight gradient.

    M is the output channel of a merged group, N is (c1, kh, kw, c0) of one depth tap, K the output pixel.

    Attributes
    ----------
    base_m, base_n, base_k : int
        One L0 block, elements, multiples of 16.
    step_k : int
        Base blocks of K in one L1 buffer, for both operands.
    al1_pbuffer, bl1_pbuffer : int
        L1 buffers of dy and of x.
    al0_pbuffer, bl0_pbuffer, cl0_pbuffer : int
        L0 buffers: L0A and L0B are used as two halves, L0C holds two blocks.
    a1_bytes, b1_bytes : int
        One L1 buffer of dy and of x.
    b1_rows, b1_channels : int
        Rows of x and channel blocks of 16 that one buffer of x holds.
    wo, pixels : int
        Columns of y as the kernel sees them, and the largest K: of y, or of a part of it. With `two_column`, wo is 2.
    stride_w, pad_right : int
        As the kernel sees them.
    two_column : int
        1: y has one column, which image-to-column cannot produce when y has more than one row; the kernel computes two,
        and the second reads only padding.
    m_extent, n_extent : int
        M and N of a full merged group.
    tail_m, tail_n : int
        M and N of the last merged group that exist in the tensors, multiples of 16.
    m_count, n_count : int
        Blocks of a full merged group.
    group, kd, batch_dout : int
        Merged groups, depth taps, and batch items (n, do, part of the columns).
    cin1_g, cout1_g : int
        Channel blocks of x and of dy of a merged group.
    batch_parts : int
        Parts the batch items are split into when there are fewer tasks than cores. Above 1, stores are atomic adds.
    task_count : int
        ``batch_parts * group * kd * m_count * n_count``.
    block_dim : int
        Cores launched.
    load_2d : int
        1: x is one pixel like the kernel and y, so L0B is filled by plain fractal loads instead of image-to-column.
    load3d_v1 : int
        1: image-to-column by load3d v1 also where there is v2, whose first column counts to 65535 only (windows of more
        than 4096 pixels).
    w_parts : int
        Parts of the columns of y, equal but for one column, that are batch items of their own because whole rows of x
        do not fit L1.
    tap_by_tap : int
        1: each tap of the window is work of its own, a window of one tap on the pixels that it multiplies, which are
        gathered, because image-to-column cannot do it.
    """

    base_m: int
    base_n: int
    base_k: int
    step_k: int
    al1_pbuffer: int
    bl1_pbuffer: int
    al0_pbuffer: int
    bl0_pbuffer: int
    cl0_pbuffer: int
    a1_bytes: int
    b1_bytes: int
    b1_rows: int
    b1_channels: int
    wo: int
    pixels: int
    stride_w: int
    pad_right: int
    two_column: int
    m_extent: int
    n_extent: int
    tail_m: int
    tail_n: int
    m_count: int
    n_count: int
    group: int
    kd: int
    batch_dout: int
    cin1_g: int
    cout1_g: int
    batch_parts: int
    task_count: int
    block_dim: int
    load_2d: int = 0
    load3d_v1: int = 0
    w_parts: int = 1
    tap_by_tap: int = 0

    @property
    def origin(self) -> str:
        """Where the tiling comes from, for reports."""
        cut = ", tap by tap" if self.tap_by_tap else ", W in parts" if self.w_parts > 1 else ""
        return f"not CANN's tiling (our schedule for unified cores{cut})"

    @property
    def taps_apart(self) -> int:
        """Taps of one depth plane that are work of their own."""
        return self.task_count // (self.batch_parts * self.group * self.kd * self.m_count * self.n_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """What image-to-column sees of a convolution: of all of it, of a part of the columns, or of single pixels.

    ``wo`` are the columns of y in the widest part and ``least_wo`` in the narrowest, ``wi`` those of x under the
    widest; ``reach`` is the dilated height of the window, ``w_parts`` and ``taps_apart`` say how often there is one.
    """

    wo: int
    least_wo: int
    pixels: int
    hi: int
    wi: int
    kernel: tuple[int, int]
    reach: int
    stride_h: int
    stride_w: int
    pad_left: int
    pad_right: int
    two_column: bool = False
    w_parts: int = 1
    taps_apart: int = 1
    tap_by_tap: bool = False

    @property
    def taps(self) -> int:
        """Taps of the window."""
        return self.kernel[0] * self.kernel[1]


def _whole_load(geometry: ConvGeometry, two_column: bool) -> _Load:
    g = geometry
    stride_w, pad_right, wo = g.stride[2], g.pad[5], g.wo
    if two_column:
        # The next column starts where the padded row ends, so it reads nothing but the widened right padding.
        stride_w, pad_right, wo = g.wi + g.pad[4] + g.pad[5], g.pad[5] + g.kernel_width, 2
    return _Load(
        wo=wo, least_wo=wo, pixels=g.ho * wo, hi=g.hi, wi=g.wi, kernel=(g.kh, g.kw), reach=g.kernel_height,
        stride_h=g.stride[1], stride_w=stride_w, pad_left=g.pad[4], pad_right=pad_right, two_column=two_column,
    )  # fmt: skip


def _cut_loads(geometry: ConvGeometry, product: Product) -> Iterator[_Load]:
    """Yield parts of the columns, where image-to-column can do the window, then single pixels."""
    whole = _whole_load(geometry, two_column=False)
    if load3d_excess(geometry, LOAD3D_LIMITS) is None:
        for parts in column_parts(geometry, product.core.l1_bytes):
            wo, least_wo, wi = part_columns(geometry, parts)
            yield replace(whole, wo=wo, least_wo=least_wo, pixels=geometry.ho * wo, wi=wi, w_parts=parts)
    yield replace(
        whole, wo=1, least_wo=1, hi=whole.pixels, wi=1, kernel=(1, 1), reach=1, stride_h=1, taps_apart=whole.taps,
        tap_by_tap=True,
    )  # fmt: skip


def unified_tiling(
    geometry: ConvGeometry, product: Product, compute_dtype: str = "fp16", *, merged: MergedGroups | None = None
) -> UnifiedTiling:
    """Return the tiling of a weight gradient on a product with unified cores.

    Whole rows of x or parts of the columns, whichever is done sooner, where L1 holds them and image-to-column can do
    the window, else the window tap by tap, which always fits.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution.
    product : Product
        Capacities, cores and the img2col restriction are read.
    compute_dtype : str
        ``"fp16"``; nothing else exists there.
    merged : MergedGroups or None
        How the channels of ``geometry`` are cut into merged groups; None: as its groups merge.

    Returns
    -------
    UnifiedTiling
        Fits every buffer.

    Raises
    ------
    ProductError
        If the product's cores are of the split kind.
    DTypeError
        If ``compute_dtype`` is not fp16.
    """
    if product.core.is_split:
        raise ProductError(f"product cores must be unified, not split ({product.name}, {product.series_name})")
    if compute_dtype != "fp16":
        raise DTypeError(f"compute_dtype must be fp16, not {compute_dtype!r} ({product.name})")
    if merged is None:
        merged = geometry.merged_groups(C0)
    found = []
    with suppress(OperatorError):
        found.append(whole_map_tiling(geometry, product, merged))
    *parts, taps = _cut_loads(geometry, product)
    for load in parts:
        with suppress(OperatorError):
            found.append(_tiling(geometry, product, merged, load))
            break
    return min(found, key=_cycles) if found else _tiling(geometry, product, merged, taps)


def _cycles(tiling: UnifiedTiling) -> int:
    """Return the rough time of the busiest core.

    All columns of a row, or of a part, are loaded for each step of K: whole rows take their square, and rows that are
    shared by cores are done sooner.
    """
    t = tiling
    items = ceil_div(t.task_count, t.block_dim) * ceil_div(t.batch_dout, t.batch_parts)
    loads = ceil_div(t.pixels, t.base_k * t.step_k)
    m, n, k = t.base_m // C0, t.base_n // C0, ceil_div(t.pixels, C0)
    moved = loads * (t.a1_bytes + t.b1_bytes) // _READ_RATE
    computed = m * n * k + 2 * (m + n) * k + _STEP_CYCLES * ceil_div(t.pixels, t.base_k)
    return items * (max(moved, computed) if t.bl1_pbuffer > 1 else moved + computed) + _BLOCK_CYCLES


def single_writer(tiling: UnifiedTiling) -> UnifiedTiling:
    """Return ``tiling`` with all batch items of a block on one core, which stores it once: no core adds to dw.

    ASSUMED: how the closed schedule of these products gives its additions one order is not published.
    """
    tasks = tiling.task_count // tiling.batch_parts
    return replace(tiling, batch_parts=1, task_count=tasks, block_dim=min(tiling.block_dim, tasks))


def whole_map_tiling(
    geometry: ConvGeometry, product: Product, merged: MergedGroups, *, load_2d: bool = False
) -> UnifiedTiling:
    """Return the tiling for whole rows of x, which fits every buffer.

    Parameters
    ----------
    geometry, product, merged
        As of `unified_tiling`.
    load_2d : bool
        Fill L0B by plain fractal loads, which the TBE schedule does where x, y and the kernel are one pixel each.

    Raises
    ------
    OperatorError
        With status 561103 if image-to-column cannot encode the convolution or no block fits.
    ShapeError
        If ``load_2d`` is asked for and an extent is not 1.
    """
    if load_2d and (geometry.hi, geometry.wi, geometry.ho, geometry.wo, geometry.kh, geometry.kw) != (1,) * 6:
        raise ShapeError(f"height and width of x, y and kernel must be 1 for load_2d, not those of {geometry}")
    check_load3d(geometry, product, LOAD3D_LIMITS)
    load = _whole_load(geometry, needs_two_columns(geometry, product))
    for name, value, most in (
        ("width of the padded input", load.stride_w, LOAD3D_LIMITS["stride"]),
        ("padRight plus kernel width", load.pad_right, LOAD3D_LIMITS["pad"]),
    ):
        if value > most:
            rule = f"at most {most} when the output has one column and several rows"
            message = f"{name} must be {rule}, not {value} (weight gradient, {product.name})"
            raise OperatorError(message, NO_KERNEL)
    return _tiling(geometry, product, merged, load, load_2d)


def _tiling(
    geometry: ConvGeometry, product: Product, merged: MergedGroups, load: _Load, load_2d: bool = False
) -> UnifiedTiling:
    """Return the tiling for what image-to-column sees; refuse what does not fit."""
    blocks = _fit(product, _start(load, merged, load_2d))
    n_extent = merged.cin1_g * load.taps * C0
    m_count, n_count = ceil_div(merged.cout_g, blocks.base_m), ceil_div(n_extent, blocks.base_n)
    tasks = merged.real_g * geometry.kd * load.taps_apart * m_count * n_count
    batch_dout = geometry.n * geometry.do * load.w_parts
    parts = max(min(batch_dout, product.cube_core_count // tasks), 1)
    last = merged.real_g - 1
    tiling = UnifiedTiling(
        base_m=blocks.base_m,
        base_n=blocks.base_n,
        base_k=blocks.base_k,
        step_k=blocks.step_k,
        al1_pbuffer=blocks.al1,
        bl1_pbuffer=blocks.bl1,
        al0_pbuffer=2,
        bl0_pbuffer=2,
        cl0_pbuffer=2,
        a1_bytes=blocks.a1_bytes,
        b1_bytes=blocks.b1_bytes,
        b1_rows=blocks.b1_rows,
        b1_channels=blocks.b1_channels,
        wo=2 if load.two_column else geometry.wo,
        pixels=load.pixels,
        stride_w=load.stride_w,
        pad_right=load.pad_right,
        two_column=int(load.two_column),
        m_extent=merged.cout_g,
        n_extent=n_extent,
        tail_m=max(align_up(geometry.cout, C0) - last * merged.cout_g, 0),
        tail_n=max(ceil_div(geometry.cin, C0) - last * merged.cin1_g, 0) * load.taps * C0,
        m_count=m_count,
        n_count=n_count,
        group=merged.real_g,
        kd=geometry.kd,
        batch_dout=batch_dout,
        cin1_g=merged.cin1_g,
        cout1_g=merged.cout_g // C0,
        batch_parts=parts,
        task_count=parts * tasks,
        block_dim=min(product.cube_core_count, parts * tasks),
        load_2d=int(load_2d),
        w_parts=load.w_parts,
        tap_by_tap=int(load.tap_by_tap),
    )
    found = unencodable(tiling, load, product.core.has_load3d_v2)
    if found and not unencodable(tiling, load, False):
        return replace(tiling, load3d_v1=1)
    refuse_unencodable(found, f"weight gradient, fp16, {product.name}")
    return tiling


def needs_two_columns(geometry: ConvGeometry, product: Product) -> bool:
    """Return whether y is computed with a second column, because image-to-column cannot make only one."""
    return product.core.load3d_cannot_make_width_one and geometry.wo == 1 and geometry.ho > 1


def unencodable(tiling: UnifiedTiling, load: _Load, has_load3d_v2: bool) -> tuple[Excess, ...]:
    """Return the operands of the image-to-column load that the walk of ``tiling`` needs larger than they can be.

    Load3d v2 gets the first column and the first pixel of a block, v1 the corner of the first pixel's window.

    Returns
    -------
    tuple of (str, int, int)
        Operand, largest value needed, largest value there is; empty when the kernel can run the tiling.
    """
    t = tiling
    if t.load_2d:
        return ()
    m_start = largest_start(t.base_k, ceil_div(t.pixels, t.base_k), t.step_k, load.wo)
    if has_load3d_v2:
        columns = largest_start(t.base_n, t.n_count, 1, load.taps * C0)
        return excess(((Op.LOAD_3D, "k_start", columns), (Op.LOAD_3D, "m_start", m_start)))
    # Steps of K start at multiples of base_k, wherever the L1 buffer starts.
    column = largest_start(t.base_k, ceil_div(t.pixels, t.base_k), 1, load.wo)
    return excess(
        (
            (Op.LOAD_3D_V1, "left_top_w", column * load.stride_w - load.pad_left),
            (Op.LOAD_3D_V1, "left_top_h", m_start // load.wo * load.stride_h),
        )
    )


@dataclass(slots=True)
class _Blocks:
    """Blocks under construction."""

    load: _Load
    cin1_g: int
    base_m: int
    base_n: int
    base_k: int
    step_k: int
    al1: int = 2
    bl1: int = 2
    load_2d: bool = False

    @property
    def b1_rows(self) -> int:
        k, wo, load = self.step_k * self.base_k, self.load.least_wo, self.load
        if wo % k == 0 and wo == load.wo:
            rows = 1
        elif k % wo == 0 and wo == load.wo:
            rows = k // wo
        else:
            rows = k // wo + 2
        return min((rows - 1) * load.stride_h + load.reach, load.hi)

    @property
    def b1_channels(self) -> int:
        blocks, taps = self.base_n // C0, self.load.taps
        aligned = blocks % taps == 0 or taps % blocks == 0
        return min(self.cin1_g, ceil_div(blocks, taps) + (0 if aligned else 1))

    @property
    def a1_bytes(self) -> int:
        return self.step_k * self.base_k * self.base_m * _ELEMENT_BYTES

    @property
    def b1_bytes(self) -> int:
        if self.load_2d:  # the pixel of a channel block stands in a fractal of its own
            return C0 * self.b1_channels * C0 * _ELEMENT_BYTES
        return self.b1_rows * self.load.wi * self.b1_channels * C0 * _ELEMENT_BYTES

    @property
    def l1_bytes(self) -> int:
        return self.al1 * self.a1_bytes + self.bl1 * self.b1_bytes

    def shrink(self) -> bool:
        """Take the next step of the ladder; False at its end."""
        if self.step_k > 1:
            self.step_k //= 2
        elif self.bl1 > 1:
            self.bl1 = 1
        elif self.al1 > 1:
            self.al1 = 1
        elif self.base_n > C0:
            self.base_n = max(self.base_n // 2 // C0, 1) * C0
        elif self.base_k > C0:
            self.base_k -= C0
        elif self.base_m > C0:
            self.base_m = max(self.base_m // 2 // C0, 1) * C0
        else:
            return False
        return True


def _start(load: _Load, merged: MergedGroups, load_2d: bool) -> _Blocks:
    """Return the top of the ladder; L0 holds its blocks."""
    padded_k = align_up(load.pixels, C0)
    base_k = min(padded_k, _MOST_K)
    return _Blocks(
        load=load,
        cin1_g=merged.cin1_g,
        base_m=min(merged.cout_g, _MOST_M),
        base_n=min(merged.cin1_g * load.taps * C0, _MOST_N),
        base_k=base_k,
        step_k=min(ceil_div(padded_k, base_k), _MOST_STEPS),
        load_2d=load_2d,
    )


def _fit(product: Product, blocks: _Blocks) -> _Blocks:
    """Return the largest blocks of the ladder that L1 holds."""
    while blocks.l1_bytes > product.core.l1_bytes:
        needed = blocks.l1_bytes
        if not blocks.shrink():
            message = (
                f"L1 use of the smallest block must be at most {product.core.l1_bytes} bytes, not {needed} "
                f"(weight gradient, fp16, {product.name})"
            )
            raise OperatorError(message, NO_KERNEL)
    return blocks
