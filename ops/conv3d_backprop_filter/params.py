"""From a tiling to what the jitted kernels read: one record of plain integers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.isa.op import Data
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.geometry import ConvGeometry
from ops.common.kernel_parts import MAX_FIELD, copy_pixels_rows
from ops.common.records import record, tensor_fields
from ops.conv3d_backprop_filter.tiling_data import DwTiling, Split, StreamK
from ops.conv3d_backprop_filter.tiling_unified import UnifiedTiling
from ops.vector.frame import usable_ub_bytes

_CLEAR_UNIT_ELEMS = 256
"""Cores clear shares of dW in multiples of this (ops-nn, conv3d_backprop_filter_v2 op_kernel/arch22)."""

_SHAPE = (
    "n", "dout", "ho", "wo", "di", "hi", "wi", "dk", "hk", "wk", "stride_d", "stride_h", "stride_w", "pad_front",
    "pad_up", "pad_down", "pad_left", "pad_right", "dilation_d", "dilation_h", "dilation_w", "c0", "cin1_g", "cout_g",
    "c1_x", "c1_dy",
)  # fmt: skip
_ADDRESSES = ("x", "dy", "dw", "x_tensor", "dy_tensor", "dw_tensor", "data")
_SPLIT = (
    "single_m", "single_n", "single_ho", "m_count", "n_count", "k_count", "key", "group", "merge_dk", "items", "cores",
    "per_core", "core_group", "core_batch", "core_dk", "batch_dim", "dk_dim", "base_m", "base_n", "base_k", "step_m",
    "step_n", "step_ka", "step_kb", "al1", "bl1", "cl0", "order_n", "a1", "a1_bytes", "b1", "b1_bytes", "l0_buffers",
    "l0a_half", "l0b_half", "l0c_half", "hf32", "dw_bytes", "clear_share", "clear_buffer", "step_rows",
)  # fmt: skip

_APART = (
    "w_parts", "tap_by_tap", "taps", "taps_w", "tap_stride_h", "tap_stride_w", "tap_dilation_h", "tap_dilation_w",
    "tap_pad_h", "tap_pad_w",
)  # fmt: skip
"""Parts of the columns of y, and the window whose taps are work of their own; its load is that of one tap then."""

_STREAM_K = ("tail", "sharers", "by_rows", "share", "slots", "slots_tensor", "slot_bytes", "sum_bytes")
"""How many blocks of dW cores share, how many share one, whether its rows or its batch items, how many of these a core
has; its slot. All are 0 where no cores share a block."""

_UNIFIED = (
    "base_m", "base_n", "base_k", "k_l1", "al1", "bl1", "m_count", "n_count", "groups", "parts", "items", "cores",
    "dy_hw", "double_w", "a1", "a1_bytes", "b1", "b1_bytes", "l0a_half", "l0b_half", "l0c_half", "ub_half", "has_v2",
    "load_2d", "step_rows",
)  # fmt: skip

UNIFIED_PARAMS = np.dtype([(name, "i8") for name in _SHAPE + _ADDRESSES + _UNIFIED + _APART])
"""What `kernel_unified` reads; ``wo`` is that of the widened output where width 1 is widened."""

SPLIT_PARAMS = np.dtype([(name, "i8") for name in _SHAPE + _ADDRESSES + _SPLIT + _APART + _STREAM_K])
"""What `kernel_split`, `kernel_stream_k` and `walk_split` read: extents in elements, ``*_bytes``, places and
halves in bytes."""


def split_params(
    tiling: DwTiling,
    product: Product,
    x: GmTensor,
    dy: GmTensor,
    dw: GmTensor,
    compute_dtype: str,
    slots: GmTensor | None = None,
) -> np.ndarray:
    """Return the parameters of `kernel_split` or `kernel_stream_k` for tensors in NDC1HWC0 and FRACTAL_Z_3D.

    ``slots`` has `DwTiling.slots_bytes` for the sums of the cores that share a block; None where no cores do.
    """
    t = tiling
    item = t.element_bytes
    c1_x = ceil_div(t.cin, t.channel_size)
    c1_dy = ceil_div(t.cout, t.channel_size)
    outer = t.group * (1 if t.dk_merged else t.dk)
    blocks = outer * t.taps_apart * t.m_count * t.n_count
    per_core = t.single_core_group * t.single_core_batch * t.single_core_dk
    items = blocks * t.k_count * t.batch_items
    if t.tiling_key == Split.BASE:
        items = t.cores * per_core
    elif t.tiling_key == Split.MN_STREAM_K:
        items = blocks
    elif t.tiling_key == Split.K:
        items = t.cores
    a1_bytes = t.step_m * t.base_m * t.step_ka * t.base_k * item
    b1_bytes = t.bl1_bound * item
    a_blocks = t.step_m * t.base_m // t.channel_size
    b_planes = t.step_n * t.base_n // t.channel_size + 2
    shape = {name: getattr(t, name) for name in _SHAPE if name not in ("n", "c0", "cout_g", "c1_x", "c1_dy")}
    copies = _copies(shape, t, (a_blocks, t.step_ka * t.base_k), (b_planes, t.step_kb * t.base_k))
    values = {
        "n": t.batch, "c0": t.channel_size, "cout_g": t.m_extent, "c1_x": c1_x, "c1_dy": c1_dy,
        **shape, **_taps_apart(shape, t), **_stream_k(t, items, slots, product),
        **tensor_fields(x=x, dy=dy, dw=dw), "data": int(DTYPES[compute_dtype].data),
        "single_m": t.block_m, "single_n": t.block_n, "single_ho": ceil_div(t.block_k, t.load_wo),
        "per_core": per_core, "core_group": t.single_core_group, "core_batch": t.single_core_batch,
        "core_dk": t.single_core_dk, "batch_dim": t.batch_dim, "dk_dim": t.dk_dim,
        "m_count": t.m_count, "n_count": t.n_count, "k_count": t.k_count, "key": t.tiling_key, "group": t.group,
        "merge_dk": t.dk_merged,
        "items": items, "cores": t.cores,
        "base_m": t.base_m, "base_n": t.base_n, "base_k": t.base_k, "step_m": t.step_m, "step_n": t.step_n,
        "step_ka": t.step_ka, "step_kb": t.step_kb, "al1": t.al1_pbuffer, "bl1": t.bl1_pbuffer, "cl0": t.cl0_pbuffer,
        "order_n": t.iterate_order, "a1": 0, "a1_bytes": a1_bytes, "b1": t.al1_pbuffer * a1_bytes,
        "b1_bytes": b1_bytes, "l0_buffers": 2,
        "l0a_half": product.core.l0a_bytes // 2, "l0b_half": product.core.l0b_bytes // 2,
        "l0c_half": t.base_m * t.base_n * 4, "hf32": int(compute_dtype == "hf32"), "dw_bytes": dw.byte_count,
        "clear_share": align_up(ceil_div(dw.byte_count // 4, t.cores), _CLEAR_UNIT_ELEMS) * 4,
        "clear_buffer": t.total_l1_size, "step_rows": 64 + copies,
    }  # fmt: skip
    return record(SPLIT_PARAMS, values)


def _stream_k(tiling: DwTiling, blocks: int, slots: GmTensor | None, product: Product) -> dict[str, int]:
    """Return the fields of `_STREAM_K`."""
    t = tiling
    if slots is None:
        return dict.fromkeys(_STREAM_K, 0)
    rows = t.load_pixels // t.load_wo
    by_rows = t.stream_k_type == StreamK.ROWS
    return {
        "tail": blocks % t.cores, "sharers": t.core_stream_k, "by_rows": int(by_rows),
        "share": ceil_div(rows if by_rows else t.batch_items, t.core_stream_k),
        **tensor_fields(slots=slots), "slot_bytes": t.slot_bytes,
        "sum_bytes": usable_ub_bytes(product) // 2 // BLOCK_BYTES * BLOCK_BYTES,
    }  # fmt: skip


def _copies(shape: Mapping[str, int], tiling: DwTiling | UnifiedTiling, dy: tuple[int, int], x: tuple[int, int]) -> int:
    """Return how many copies bring dy and x to L1 at most, each given as its channel blocks and pixels of y."""
    (a_blocks, a_pixels), (b_planes, b_pixels) = dy, x
    if tiling.tap_by_tap:
        # rows may be of one pixel, and only neighbours are copied together
        x_step = shape["stride_h"] * shape["wi"] if shape["stride_w"] == 1 else MAX_FIELD + 1
        return copy_pixels_rows(a_blocks, a_pixels, shape["wo"]) + copy_pixels_rows(b_planes, b_pixels, x_step)
    if tiling.w_parts > 1:
        columns = shape["wo"] // tiling.w_parts
        x_rows = (b_pixels // columns + 1) * shape["stride_h"] + (shape["hk"] - 1) * shape["dilation_h"] + 1
        x_copies = copy_pixels_rows(b_planes, min(x_rows, shape["hi"]), shape["wi"])
        return copy_pixels_rows(a_blocks, a_pixels // columns, shape["wo"]) + x_copies
    return a_blocks + b_planes


def _taps_apart(shape: Mapping[str, int], tiling: DwTiling | UnifiedTiling) -> dict[str, int]:
    """Return the fields of `_APART`, and the window that image-to-column sees instead of the one in ``shape``."""
    window = {"tap_stride": "stride", "tap_dilation": "dilation"}
    values = {
        "w_parts": tiling.w_parts, "tap_by_tap": tiling.tap_by_tap, "taps": 1, "taps_w": 1,
        **{f"{ours}_{axis}": shape[f"{given}_{axis}"] for ours, given in window.items() for axis in "hw"},
        "tap_pad_h": shape["pad_up"], "tap_pad_w": shape["pad_left"],
    }  # fmt: skip
    if tiling.tap_by_tap:
        values |= {"taps": shape["hk"] * shape["wk"], "taps_w": shape["wk"]}
        values |= dict.fromkeys(("hk", "wk", "stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
        values |= dict.fromkeys(("pad_up", "pad_down", "pad_left", "pad_right"), 0)
    return values


def unified_params(
    tiling: UnifiedTiling, geometry: ConvGeometry, product: Product, x: GmTensor, dy: GmTensor, dw: GmTensor
) -> np.ndarray:
    """Return the parameters of `kernel_unified.weight_gradient` for tensors in NDC1HWC0 and FRACTAL_Z_3D, C0 = 16."""
    t, g = tiling, geometry
    core = product.core
    m_blocks = t.base_m // 16
    pixels = t.step_k * t.base_k
    dy_copies = 2 * m_blocks * (1 + ceil_div(16, g.ho * g.wo)) + 2
    shape = {
        "ho": g.ho, "wo": t.wo, "hi": g.hi, "wi": g.wi, "hk": g.kh, "wk": g.kw, "stride_h": g.stride[1],
        "stride_w": t.stride_w, "pad_up": g.pad[2], "pad_down": g.pad[3], "pad_left": g.pad[4],
        "pad_right": t.pad_right, "dilation_h": g.dilation[1], "dilation_w": g.dilation[2],
    }  # fmt: skip
    values = {
        "n": g.n, "dout": g.do, "di": g.di, "dk": g.kd, "stride_d": g.stride[0], "pad_front": g.pad[0],
        "dilation_d": g.dilation[0], "c0": 16, "cin1_g": t.cin1_g, "cout_g": t.m_extent, "c1_x": ceil_div(g.cin, 16),
        "c1_dy": ceil_div(g.cout, 16),
        **shape, **_taps_apart(shape, t), **tensor_fields(x=x, dy=dy, dw=dw), "data": int(Data.FP16),
        "base_m": t.base_m, "base_n": t.base_n, "base_k": t.base_k, "k_l1": pixels,
        "al1": t.al1_pbuffer, "bl1": t.bl1_pbuffer, "m_count": t.m_count, "n_count": t.n_count, "groups": t.group,
        "parts": t.batch_parts, "items": t.task_count, "cores": t.block_dim, "dy_hw": g.ho * g.wo,
        "double_w": t.two_column, "a1": 0, "a1_bytes": t.a1_bytes, "b1": t.al1_pbuffer * t.a1_bytes,
        "b1_bytes": t.b1_bytes, "l0a_half": core.l0a_bytes // 2, "l0b_half": core.l0b_bytes // 2,
        "l0c_half": core.l0c_bytes // 2, "ub_half": core.ub_bytes // 2,
        "has_v2": int(core.has_load3d_v2 and not t.load3d_v1), "load_2d": t.load_2d,
        "step_rows": 96 + dy_copies + t.base_n // 16 * 2 + 16 * t.load_2d
        + _copies(shape, t, (m_blocks, pixels), (t.b1_channels, pixels)),
    }  # fmt: skip
    return record(UNIFIED_PARAMS, values)
