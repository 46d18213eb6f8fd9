"""The operator's base tiling (tiling key 0) for A2 and A3.

Source, restated: ops-nn ``conv/conv3d_backprop_filter_v2/op_host/op_tiling/arch22/
conv3d_backprop_filter_v2_base_tiling.cpp``. The template post-processes what a tiling library computes
(`tiling_library`), except for three exact shapes it has tables for and for bfloat16 on 20 cores, where it first tries a
split and blocks of its own. Every unit-test vector of the template is reproduced word by word (``tests/golden``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

import numpy as np

from npu_sim.units import BLOCK_BYTES, KIB, align_up, ceil_div
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.geometry import CUBE_ROWS, ConvGeometry
from ops.conv3d_backprop_filter.tiling_data import (
    ORIGIN_BASE,
    DwTiling,
    Split,
    StreamK,
    element_bytes,
)
from ops.conv3d_backprop_filter.tiling_library import library_tiling

_C0 = 16
_ITEM = 2
_CORES_OF_OPEN_SPLIT = 20
_CORES_USED = 0.8
_LEAST_BATCH_SPLIT = 4
_L1_BYTES = 512 * KIB
_L1_USABLE_BYTES = 512 * KIB - 128
_L0_BYTES = 64 * KIB
_BEST_M, _BEST_K, _BEST_N = 128, 128, 256
_SECOND_M, _SECOND_K, _SECOND_N = 64, 64, 512
_LEAST_STEP = 2
_KEPT = 1024
"""Shapes whose numbers are kept: several networks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """What the template decides: the grid, the block of one core, buffers, base block and steps."""

    batch_dim: int
    group_dim: int = 1
    dk_dim: int = 1
    m_dim: int
    k_dim: int
    n_dim: int
    single_batch: int
    single_group: int = 1
    single_dk: int = 1
    single_cout: int
    single_cin: int
    single_ho: int
    cl0: int = 1
    al1: int = 2
    bl1: int = 2
    base_m: int = 0
    base_k: int = 0
    base_n: int = 0
    step_m: int = 1
    step_n: int = 1
    step_ka: int = 1
    step_kb: int = 1
    bl1_bound: int = 0


_Key = tuple[int, ...]
_SQUARE = (3, 3, 3, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1)
_TABLES: dict[tuple[int, _Key], _Values] = {
    (20, (16, 20, 4, 128, 128, 4, 130, 130, *_SQUARE)): _Values(
        batch_dim=20, m_dim=1, k_dim=1, n_dim=1, single_batch=16, single_cout=64, single_cin=192, single_ho=128,
        base_m=64, base_k=64, base_n=256, step_ka=8, step_kb=8, bl1_bound=98304,
    ),
    (20, (16, 20, 8, 64, 64, 8, 66, 66, *_SQUARE)): _Values(
        batch_dim=20, m_dim=1, k_dim=1, n_dim=1, single_batch=16, single_cout=128, single_cin=384, single_ho=64,
        base_m=128, base_k=64, base_n=256, step_ka=4, step_kb=4, bl1_bound=131072,
    ),
    (24, (8, 20, 1, 128, 128, 4, 130, 130, *_SQUARE)): _Values(
        batch_dim=2, m_dim=1, k_dim=6, n_dim=2, single_batch=80, single_cout=16, single_cin=96, single_ho=22,
        cl0=2, bl1=1, base_m=16, base_k=16, base_n=864, step_ka=176, step_kb=44, bl1_bound=112320,
    ),
}  # fmt: skip
"""Exact shapes by number of cores: (N, Do, Co1, Ho, Wo, Ci1, Hi, Wi, kernel, strides, pads, dilations)."""

_STEPS_N: dict[_Key, int] = {
    (1, 1, 1, 27, 4, 1, 1, 1, 336, 135, 26, 53, 4, 52, 151, 151, 253, 253, 140, 140, 1, 3, 3): 390,
}
"""Exact shapes of which the template corrects one number of the library, after it has computed ``bl1Bound`` from it."""


def base_tiling(geometry: ConvGeometry, compute_dtype: str, cores: int) -> DwTiling | None:
    """Return the base template's tiling of a call whose windows image-to-column can encode.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution; attributes of an axis with one tap are normalised here.
    compute_dtype : str
        What the Cube multiplies.
    cores : int
        Cube cores.

    Returns
    -------
    DwTiling or None
        Tiling key 0; None where the tiling library refuses the call.
    """
    g = replace(geometry, dilation=geometry.single_tap_dilation)
    values = _values(g, compute_dtype, cores)
    return None if values is None else _structure(g, values, compute_dtype)


def _values(g: ConvGeometry, compute_dtype: str, cores: int) -> _Values | None:
    if element_bytes(compute_dtype) != _ITEM:
        return _library_values(g, compute_dtype, cores)
    merged = g.merged_groups(_C0)
    shape = (g.n, g.do, merged.cout_g // _C0, g.ho, g.wo, merged.cin1_g, g.hi, g.wi, g.kd, g.kh, g.kw)
    key = (*shape, *g.stride, *g.pad, *g.dilation)
    # the template does not look at the groups here, and would leave all but the first out
    if merged.real_g == 1 and (table := _TABLES.get((cores, key))) is not None:
        return table
    if compute_dtype == "bf16" and cores == _CORES_OF_OPEN_SPLIT and merged.real_g == 1 and g.dilation[0] == 1:
        values = _open_values(g, cores)
        if values is not None:
            return values
    values = _library_values(g, compute_dtype, cores)
    if values is not None and key in _STEPS_N:
        values = replace(values, step_n=_STEPS_N[key])
    return values


@lru_cache(maxsize=_KEPT)
def _library_values(g: ConvGeometry, compute_dtype: str, cores: int) -> _Values | None:
    """Return what the template makes of the library's numbers; None if the library has none.

    The search takes up to 100 ms, and a training asks for the same layers in every step.
    """
    found = library_tiling(g, compute_dtype, cores)
    if found is None:
        return None
    share, block = found.share, found.block
    c0 = BLOCK_BYTES // element_bytes(compute_dtype)
    merged = g.merged_groups(c0)
    dk_dim, single_dk, n_dim, planes = 1, 1, share.n_dim, merged.cin1_g * g.kd
    if not _merges_dk(g, merged.real_g):
        dk_dim = gcd(share.n_dim, g.kd)
        single_dk, n_dim, planes = ceil_div(g.kd, dk_dim), share.n_dim // dk_dim, merged.cin1_g
    single_planes = ceil_div(planes, n_dim)
    single_cout = align_up(ceil_div(merged.cout_g // c0, share.m_dim) * c0, CUBE_ROWS)
    single_ho = ceil_div(g.ho, share.k_dim)
    single_batch = ceil_div(g.n, share.batch_dim) * (g.do // share.d_dim)
    base_k, base_n = block.k * c0, block.n * CUBE_ROWS
    step_ka, step_kb = block.k_al1 // block.k, block.k_bl1 // block.k
    k_steps = ceil_div(single_ho * g.wo, base_k)
    al1 = 1 if step_ka >= k_steps else block.buffers_a
    bl1 = 1 if step_kb >= k_steps else block.buffers_b
    step_n = block.n_l1 if ceil_div(k_steps, step_kb) <= bl1 else 1
    return _Values(
        batch_dim=ceil_div(g.n * g.do, single_batch), group_dim=share.group_dim, dk_dim=dk_dim,
        m_dim=ceil_div(merged.cout_g, single_cout), k_dim=ceil_div(g.ho, single_ho),
        n_dim=ceil_div(planes, single_planes), single_batch=single_batch,
        single_group=ceil_div(merged.real_g, share.group_dim), single_dk=single_dk, single_cout=single_cout,
        single_cin=single_planes * c0, single_ho=single_ho, cl0=block.buffers_c, al1=al1, bl1=bl1,
        base_m=block.m * CUBE_ROWS, base_k=base_k, base_n=base_n, step_m=block.m_l1, step_n=step_n, step_ka=step_ka,
        step_kb=step_kb, bl1_bound=x_elements(g, base_k * step_kb, base_n * step_n, c0),
    )  # fmt: skip


def _merges_dk(g: ConvGeometry, real_g: int) -> bool:
    """Return whether N runs over the depth taps too."""
    return real_g == 1 and g.dilation[0] == 1


def _open_values(g: ConvGeometry, cores: int) -> _Values | None:
    """Split over the cores and choose blocks as the template itself does; None if it then asks the library."""
    values = _split(g, cores)
    used = values.batch_dim * values.m_dim * values.k_dim * values.n_dim
    if used < cores * _CORES_USED or used > cores:
        return None
    values = _with_blocks(g, values)
    values = _with_steps(g, values)
    values = replace(values, bl1_bound=x_elements(g, values.base_k * values.step_kb, values.base_n))
    fits_l0 = max(values.base_m, values.base_n) * values.base_k * _ITEM * 2 <= _L0_BYTES
    a1 = values.base_m * values.base_k * values.step_ka
    fits_l1 = (values.bl1_bound + a1) * 2 * _ITEM < _L1_USABLE_BYTES
    return values if fits_l0 and fits_l1 else None


def _split(g: ConvGeometry, cores: int) -> _Values:
    """Give the cores to batch and depth, and what is left to K or to N."""
    factors = [factor for factor in range(cores, 0, -1) if cores % factor == 0]

    def largest(value: int) -> int:
        return next(factor for factor in factors if value % factor == 0)

    merged = g.merged_groups(_C0)
    depth, batch = largest(g.do), largest(g.n)
    both = largest(depth * batch)
    d_dim = batch_dim = k_dim = n_dim = 1
    if both >= _LEAST_BATCH_SPLIT and depth * batch % cores == 0:
        d_dim, batch_dim = depth, cores // depth
    elif both >= _LEAST_BATCH_SPLIT:
        rest = cores // both
        most_k = g.ho * g.wo
        most_n = ceil_div(g.cin, _C0) * CUBE_ROWS * g.kd * g.kh * g.kw
        rows = ceil_div(g.ho, rest)
        planes = ceil_div(merged.cin1_g, rest)
        k_fits = most_k >= rest * (_BEST_K // _ITEM) and g.ho >= rest and ceil_div(g.ho, rows) == rest
        n_fits = most_n >= rest * _BEST_N and merged.cin1_g >= rest and ceil_div(merged.cin1_g, planes) == rest
        k_first = ceil_div(most_k, _BEST_K // _ITEM) >= ceil_div(most_n, _BEST_N)
        if k_fits or n_fits:
            d_dim = gcd(depth, both)
            batch_dim = both // d_dim
        if k_fits and (k_first or not n_fits):
            k_dim = rest
        elif n_fits:
            n_dim = rest
    single_ho, planes = ceil_div(g.ho, k_dim), ceil_div(merged.cin1_g, n_dim)
    return _Values(
        batch_dim=batch_dim * d_dim,
        m_dim=1,
        k_dim=ceil_div(g.ho, single_ho),
        n_dim=ceil_div(merged.cin1_g, planes),
        single_batch=ceil_div(g.n, batch_dim) * ceil_div(g.do, d_dim),
        single_cout=merged.cout_g,
        single_cin=planes * CUBE_ROWS * g.kd,
        single_ho=single_ho,
    )


def _with_blocks(g: ConvGeometry, values: _Values) -> _Values:
    """Choose the base block for the block of one core."""
    most_k, most_n = values.single_ho * g.wo, values.single_cin * g.kh * g.kw

    def pixels(wanted: int) -> int:
        return wanted if most_k > wanted else align_up(most_k, CUBE_ROWS)

    base_m, base_n = min(values.single_cout, _BEST_M), min(most_n, _BEST_N)
    base_k = _BEST_K // _ITEM
    for factor in (2, 4, 8):
        if max(base_m, base_n) * factor <= _BEST_N:
            base_k = pixels(_BEST_K // _ITEM * factor)
    if base_m <= _SECOND_M and most_k < most_n and most_n >= _SECOND_N:
        base_k, base_n = pixels(_SECOND_K // _ITEM), min(most_n, _SECOND_N)
    return replace(values, base_m=base_m, base_k=base_k, base_n=base_n)


def _with_steps(g: ConvGeometry, values: _Values) -> _Values:
    """Share L1 between dy and x by what a core needs of them, in whole rows."""
    kernel_rows = (g.kh - 1) * g.dilation[1] + 1
    channels = _channels(g, values.base_n)
    rows_x = min((values.single_ho - 1) * g.stride[1] + kernel_rows, g.hi)
    dy, x = values.single_ho * g.wo * values.base_m, g.wi * channels * rows_x
    # the template computes this in float32
    share = np.float32(dy) / np.float32(dy + x)
    a_bytes = int(np.float32(_L1_USABLE_BYTES) * share) // 2
    b_bytes = int(np.float32(_L1_USABLE_BYTES) * (np.float32(1) - share)) // 2
    rows_a = max(1, a_bytes // max(g.wo * values.base_m * _ITEM, 1))
    held = max(1, b_bytes // (g.wi * channels * _ITEM))
    # unsigned 32-bit arithmetic: too few rows for one window count as very many
    rows_b = max(1, (held - kernel_rows) % 2**32 // g.stride[1] + 1)
    most = ceil_div(values.single_ho * g.wo, values.base_k)
    step_a = min(most, max(_LEAST_STEP, rows_a * g.wo // values.base_k))
    step_b = min(most, max(_LEAST_STEP, rows_b * g.wo // values.base_k))
    if step_a > step_b:
        step_a = step_a // step_b * step_b
    else:
        step_b = step_b // step_a * step_a
    return replace(values, step_ka=step_a, step_kb=step_b)


def _channels(g: ConvGeometry, columns: int, c0: int = _C0) -> int:
    """Return the channels of x that a stretch of ``columns`` is taken to touch."""
    window, blocks = g.kh * g.kw, ceil_div(columns, c0)
    if window > blocks:
        more = int(window % blocks != 0)
    elif blocks % window == 0:
        more = 0
    else:
        more = 1 if 2 * blocks % window == 0 else 2
    return (ceil_div(blocks, window) + more) * c0


def x_elements(g: ConvGeometry, pixels: int, columns: int, c0: int = _C0) -> int:
    """Return the elements of x that the base template gives one B1 buffer (``bl1Bound``), whoever chose the blocks.

    Parameters
    ----------
    g : ConvGeometry
        The convolution.
    pixels : int
        Pixels of one buffer, ``baseK * stepKb``.
    columns : int
        Columns of one buffer, ``baseN * stepN``.
    c0 : int
        Channels of a block.
    """
    rows = ceil_div(pixels, g.wo) + int(pixels % g.wo != 0 and g.wo % pixels != 0)
    read = min((rows - 1) * g.stride[1] + (g.kh - 1) * g.dilation[1] + 1, g.hi)
    return read * g.wi * _channels(g, columns, c0)


def _structure(g: ConvGeometry, v: _Values, compute_dtype: str) -> DwTiling:
    c0 = BLOCK_BYTES // element_bytes(compute_dtype)
    merged = g.merged_groups(c0)
    dims = v.batch_dim * v.group_dim * v.dk_dim * v.m_dim * v.k_dim * v.n_dim
    return DwTiling(
        batch=g.n, cin=g.cin, cout=g.cout, cin1_g=merged.cin1_g, cout1_g=merged.cout_g // c0, dout=g.do, ho=g.ho,
        wo=g.wo, di=g.di, hi=g.hi, wi=g.wi, dk=g.kd, hk=g.kh, wk=g.kw, group=merged.real_g,
        stride_d=g.stride[0], stride_h=g.stride[1], stride_w=g.stride[2], pad_front=g.pad[0], pad_back=g.pad[1],
        pad_up=g.pad[2], pad_down=g.pad[3], pad_left=g.pad[4], pad_right=g.pad[5], dilation_d=g.dilation[0],
        dilation_h=g.dilation[1], dilation_w=g.dilation[2], channel_size=c0, al0_pbuffer=2, bl0_pbuffer=2,
        cl0_pbuffer=v.cl0, al1_pbuffer=v.al1, bl1_pbuffer=v.bl1, base_m=v.base_m, base_k=v.base_k, base_n=v.base_n,
        m0=CUBE_ROWS, k0=c0, n0=CUBE_ROWS, step_m=v.step_m, step_n=v.step_n, step_ka=v.step_ka, step_kb=v.step_kb,
        iterate_order=1, bl1_bound=v.bl1_bound, hf32_flag=int(compute_dtype == "hf32"), single_core_dk=v.single_dk,
        single_core_group=v.single_group, single_core_cout=v.single_cout, single_core_ho=v.single_ho,
        single_core_batch=v.single_batch, single_core_cin=v.single_cin, batch_dim=v.batch_dim, group_dim=v.group_dim,
        m_dim=v.m_dim, k_dim=v.k_dim, n_dim=v.n_dim, dk_dim=v.dk_dim, total_l1_size=_L1_BYTES, core_bind_order=0,
        used_core_num=0, single_core_m=0, single_core_n=0, single_core_k=0, stream_k_type=int(StreamK.NONE),
        core_stream_k=0, tiling_key=int(Split.BASE), dk_merged=int(_merges_dk(g, merged.real_g)), block_dim=dims,
        workspace_bytes=SYSTEM_WORKSPACE_BYTES, origin=ORIGIN_BASE,
    )  # fmt: skip
