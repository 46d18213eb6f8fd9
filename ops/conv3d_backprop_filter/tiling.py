"""The choice of a tiling for the A2/A3 weight-gradient kernel, and the checks every tiling must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from npu_sim.errors import OperatorError, ProductError
from npu_sim.isa.op import Op, highest
from npu_sim.units import align_up, ceil_div
from ops.common.geometry import ConvGeometry
from ops.common.status import NO_KERNEL
from ops.conv3d_backprop_filter.encoding import Excess, excess, largest_start
from ops.conv3d_backprop_filter.tiling_base import base_tiling
from ops.conv3d_backprop_filter.tiling_basic_block import (
    basic_block_applies,
    basic_block_tiling,
    deterministic_fallback_tiling,
)
from ops.conv3d_backprop_filter.tiling_data import (
    DwTiling,
)
from ops.conv3d_backprop_filter.tiling_fallback import cut_tilings, fallback_tiling
from ops.conv3d_backprop_filter.tiling_public import Buffers

if TYPE_CHECKING:
    from npu_sim.products import Product


LOAD3D_LIMITS = {
    "stride": highest(Op.LOAD_3D, "stride_h"),
    "dilation": highest(Op.LOAD_3D, "dilation_h"),
    "pad": highest(Op.LOAD_3D, "pad_top"),
    "kernel": highest(Op.LOAD_3D, "filter_h"),
}
"""Largest values the image-to-column load can encode on dav-c220 (conv3d_bp_filter_tiling_base checks the same)."""


def choose_tiling(
    geometry: ConvGeometry, product: Product, compute_dtype: str, deterministic: bool = False
) -> DwTiling:
    """Return the tiling the weight-gradient kernel runs with on a split product.

    CANN's basic-block tiling where the operator uses it, else its base tiling, if they fit; else our own
    (`DwTiling.origin` says which), because CANN refuses the call then, or its tiling overflows a buffer (the
    basic-block search does not look at L0) or an operand of the image-to-column load. Ours takes whole rows of x where
    it can, else parts of them, else the window tap by tap.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution.
    product : Product
        A2 or A3 product: capacities and Cube cores are read.
    compute_dtype : str
        What the Cube multiplies: ``"fp16"``, ``"bf16"``, ``"hf32"`` or ``"fp32"``.
    deterministic : bool
        Whether sums over cores must have a fixed order.

    Returns
    -------
    DwTiling
        Fits every buffer.

    Raises
    ------
    ProductError
        If the product's cores are unified.
    """
    if not product.core.is_split:
        raise ProductError(f"product cores must be split, not unified ({product.name}, {product.series_name})")
    own = deterministic_fallback_tiling if deterministic else fallback_tiling
    make = partial(own, geometry, compute_dtype, product.cube_core_count, product.core)
    loadable = load3d_excess(geometry, LOAD3D_LIMITS) is None
    cut = cut_tilings(make, geometry, product.core.l1_bytes, loadable=loadable)
    whole = _whole_rows(geometry, product, compute_dtype, deterministic, make) if loadable else ()
    return next(tiling for tiling in chain(whole, cut) if _fits(tiling, product))


def _whole_rows(
    geometry: ConvGeometry, product: Product, compute_dtype: str, deterministic: bool, make: Callable[..., DwTiling]
) -> Iterator[DwTiling]:
    """Yield the tilings for whole rows of x, CANN's if it is published, then ours; they may not fit."""
    cores = product.cube_core_count
    if basic_block_applies(geometry, compute_dtype, deterministic):
        yield basic_block_tiling(geometry, compute_dtype, cores, product.core, deterministic)
    elif (published := base_tiling(geometry, compute_dtype, cores)) is not None:
        yield published
    yield make()


def _fits(tiling: DwTiling, product: Product) -> bool:
    return not overflows(tiling, product.core) and not unencodable(tiling)


def overflows(tiling: DwTiling, buffers: Buffers) -> tuple[tuple[str, int, int], ...]:
    """Return what ``tiling`` needs too much of: (buffer, bytes needed, bytes there are); empty when it fits."""
    padded_k = align_up(tiling.base_k, tiling.m0)
    a1_elems = tiling.step_m * tiling.base_m * tiling.step_ka * tiling.base_k
    item = tiling.element_bytes
    needs = (
        ("L0A", tiling.al0_pbuffer * tiling.base_m * padded_k * item, buffers.l0a_bytes),
        ("L0B", tiling.bl0_pbuffer * tiling.base_n * padded_k * item, buffers.l0b_bytes),
        ("L0C", tiling.cl0_pbuffer * tiling.base_m * tiling.base_n * 4, buffers.l0c_bytes),
        ("L1", (tiling.al1_pbuffer * a1_elems + tiling.bl1_pbuffer * tiling.bl1_bound) * item, buffers.l1_bytes),
    )
    return tuple(need for need in needs if need[1] > need[2])


def unencodable(tiling: DwTiling) -> tuple[Excess, ...]:
    """Return the operands of the image-to-column load that the walk of ``tiling`` needs larger than they can be.

    Returns
    -------
    tuple of (str, int, int)
        Operand, largest value needed, largest value there is; empty when the kernel can run the tiling.
    """
    t = tiling
    window = t.khw * t.channel_size
    n = min(t.block_n // window, t.n_extent // window) * window
    k = min(t.block_k, t.load_pixels)
    columns = largest_start(t.base_n, ceil_div(n, t.base_n), t.step_n, window)
    return excess(
        (
            (Op.LOAD_3D, "k_start", columns),
            (Op.LOAD_3D, "m_start", largest_start(t.base_k, ceil_div(k, t.base_k), t.step_kb, t.load_wo)),
            (Op.LOAD_3D, "channel_size", ceil_div(columns + t.base_n, window) * t.channel_size),
        )
    )


def refuse_unencodable(found: tuple[Excess, ...], what: str) -> None:
    """Raise what `encoding.excess` found, if anything; ``what`` is the call, for the message.

    Raises
    ------
    OperatorError
        With status 561103.
    """
    for name, needed, there in found:
        message = f"{name} of the image-to-column load must be at most {there}, not {needed} ({what})"
        raise OperatorError(message, NO_KERNEL)


def load3d_excess(geometry: ConvGeometry, limits: dict[str, int]) -> Excess | None:
    """Return what the image-to-column load cannot encode of the window first: its name, its value and the largest.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution; only height and width matter.
    limits : dict of str to int
        Largest stride, dilation, pad and kernel extent.
    """
    named = (
        ("strideH", "stride", geometry.stride[1]),
        ("strideW", "stride", geometry.stride[2]),
        ("dilationH", "dilation", geometry.dilation[1]),
        ("dilationW", "dilation", geometry.dilation[2]),
        ("padUp", "pad", geometry.pad[2]),
        ("padDown", "pad", geometry.pad[3]),
        ("padLeft", "pad", geometry.pad[4]),
        ("padRight", "pad", geometry.pad[5]),
        ("kernel height", "kernel", geometry.kh),
        ("kernel width", "kernel", geometry.kw),
    )
    return next(((name, value, limits[kind]) for name, kind, value in named if value > limits[kind]), None)


def check_load3d(geometry: ConvGeometry, product: Product, limits: dict[str, int]) -> None:
    """Refuse what the image-to-column load cannot encode.

    Raises
    ------
    OperatorError
        With status 561103.
    """
    if (found := load3d_excess(geometry, limits)) is not None:
        name, value, most = found
        message = f"{name} must be at most {most}, not {value} (weight gradient, {product.name})"
        raise OperatorError(message, NO_KERNEL)
