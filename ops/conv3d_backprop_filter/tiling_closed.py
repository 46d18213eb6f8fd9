"""The tiling of the weight-gradient kernel before the published one, as far as profiles show it.

Profiles of Conv2DBackpropFilter in a training of AlexNet on an Ascend910B2 (msinsight, ``kernel_details.csv``) have the
busy time of each pipe. That of FIX is what adding all of dW once takes each of 24 cores: they divide K, and nothing
else, and a core sums all its pixels before it adds. That of MTE2 is what reading its part of both operands anew for
each 128 columns takes: base blocks have N = 128 and, as L0C allows, all of M up to 256; then L0C is one buffer.

ASSUMED from there: cores divide N too where that is shorter, by a rough sum, because K alone would not fill them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npu_sim.products import Product
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.geometry import CUBE_ROWS, ConvGeometry
from ops.conv3d_backprop_filter.tiling import LOAD3D_LIMITS, load3d_excess, overflows, unencodable
from ops.conv3d_backprop_filter.tiling_base import x_elements
from ops.conv3d_backprop_filter.tiling_data import (
    ORIGIN_CLOSED,
    DwTiling,
    Split,
    StreamK,
    element_bytes,
)

_BASE_M, _BASE_N = 256, 128


def closed_tiling(geometry: ConvGeometry, product: Product, compute_dtype: str) -> DwTiling | None:
    """Return the tiling on all cores of ``product``; None if image-to-column cannot load whole rows of it."""
    cores = product.cube_core_count
    if load3d_excess(geometry, LOAD3D_LIMITS) is not None:
        return None
    g = replace(geometry, dilation=geometry.single_tap_dilation)
    item = element_bytes(compute_dtype)
    c0 = BLOCK_BYTES // item
    merged = g.merged_groups(c0)
    window = g.kh * g.kw * c0
    base_m = min(align_up(merged.cout_g, CUBE_ROWS), _BASE_M)
    base_n = min(_BASE_N, align_up(merged.cin1_g * window, CUBE_ROWS))
    deepest = min(product.core.l0a_bytes // base_m, product.core.l0b_bytes // base_n) // (2 * item)
    base_k = min(deepest // CUBE_ROWS * CUBE_ROWS, align_up(g.ho * g.wo, CUBE_ROWS))
    n_parts = min(_divisions(g.n * g.do * g.ho, merged.cin1_g, cores), key=lambda pair: pair[1])[0]
    k_parts = min(cores // n_parts, g.n * g.do * g.ho)
    planes = ceil_div(merged.cin1_g, n_parts)
    n_parts = ceil_div(merged.cin1_g, planes)
    for step, buffers in _steps(ceil_div(g.ho * g.wo, base_k)):
        # of the channel blocks that a stretch of N may touch, no more than there are
        bound = min(x_elements(g, base_k * step, base_n, c0), planes * x_elements(g, base_k * step, window, c0))
        tiling = DwTiling(
            batch=g.n, cin=g.cin, cout=g.cout, cin1_g=merged.cin1_g, cout1_g=merged.cout_g // c0, dout=g.do, ho=g.ho,
            wo=g.wo, di=g.di, hi=g.hi, wi=g.wi, dk=g.kd, hk=g.kh, wk=g.kw, group=merged.real_g,
            stride_d=g.stride[0], stride_h=g.stride[1], stride_w=g.stride[2], pad_front=g.pad[0], pad_back=g.pad[1],
            pad_up=g.pad[2], pad_down=g.pad[3], pad_left=g.pad[4], pad_right=g.pad[5], dilation_d=g.dilation[0],
            dilation_h=g.dilation[1], dilation_w=g.dilation[2], channel_size=c0, al0_pbuffer=2, bl0_pbuffer=2,
            cl0_pbuffer=2 if 2 * base_m * base_n * 4 <= product.core.l0c_bytes else 1, al1_pbuffer=2,
            bl1_pbuffer=buffers,
            base_m=base_m, base_k=base_k, base_n=base_n, m0=CUBE_ROWS, k0=c0, n0=CUBE_ROWS, step_m=1, step_n=1,
            step_ka=step, step_kb=step, iterate_order=1, bl1_bound=bound,
            hf32_flag=int(compute_dtype == "hf32"), single_core_dk=g.kd, single_core_group=merged.real_g,
            single_core_cout=merged.cout_g, single_core_ho=g.ho, single_core_batch=g.n * g.do,
            single_core_cin=planes * c0, batch_dim=1, group_dim=1, m_dim=1, k_dim=k_parts, n_dim=n_parts, dk_dim=1,
            total_l1_size=product.core.l1_bytes, core_bind_order=0, used_core_num=k_parts * n_parts,
            single_core_m=merged.cout_g, single_core_n=planes * window, single_core_k=g.ho * g.wo,
            stream_k_type=int(StreamK.NONE), core_stream_k=0, tiling_key=int(Split.K), dk_merged=0,
            block_dim=k_parts * n_parts, workspace_bytes=SYSTEM_WORKSPACE_BYTES, origin=ORIGIN_CLOSED,
        )  # fmt: skip
        if not overflows(tiling, product.core) and not unencodable(tiling):
            return tiling
    return None


def _steps(most: int) -> Iterator[tuple[int, int]]:
    """Yield (base blocks of K that L1 holds, buffers of x): the longest stretch first, two buffers where one fits."""
    for buffers in (2, 1):
        for step in range(most, 0, -1):
            yield step, buffers


def _divisions(rows: int, planes: int, cores: int) -> Iterator[tuple[int, int]]:
    """Yield (parts of N, rows of dY times planes of x of the fullest core)."""
    for n_parts in range(1, min(planes, cores) + 1):
        yield n_parts, ceil_div(rows, min(cores // n_parts, rows)) * ceil_div(planes, n_parts)
