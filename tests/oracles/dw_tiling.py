"""What the weight-gradient kernels do with a tiling, modelled without them: loads, coverage, and the numbers.

Written from the description of the vendor's kernel (asc-devkit ``impl/adv_api/detail/conv_backprop``), not from the
tilings under test.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npu_sim.products import Product, get_product
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_data import DwTiling
from ops.conv3d_backprop_filter.tiling_unified import UnifiedTiling
from tests.oracles.work_items import ALL_TAPS, WorkItem, core_range, pixels_of


def product_with_cores(name: str, cores: int) -> Product:
    """The product, cut to a number of Cube cores."""
    return replace(get_product(name), cube_core_count=cores)


def random_geometry(rng: np.random.Generator, large: bool = False) -> ConvGeometry:
    """Draw a convolution; small ones are cheap enough to compute, large ones fill L1."""
    while True:
        groups = int(rng.choice([1, 1, 1, 2, 3, 4, 17]))
        most = 40 if large else 12
        channels = (1, 3, 8, 16, 20, 48, 64, 130, 256) if large else (1, 3, 8, 16, 20, 33)
        kernel = [int(v) for v in rng.choice([1, 1, 2, 3, 4, 5, 7], 3)]
        stride = tuple(int(v) for v in rng.choice([1, 1, 2, 3], 3))
        dilation = tuple(int(v) for v in rng.choice([1, 1, 2, 3], 3))
        size = [int(rng.integers(1, 6)), *(int(v) for v in rng.integers(1, most, 2))]
        if large and rng.random() < 0.3:
            size[2] = int(rng.integers(100, 2000))
        pad = tuple(int(rng.integers(0, 1 + min(3, dilation[a // 2] * (kernel[a // 2] - 1)))) for a in range(6))
        out = []
        for axis in range(3):
            reach = size[axis] + pad[2 * axis] + pad[2 * axis + 1] - dilation[axis] * (kernel[axis] - 1) - 1
            out.append(reach // stride[axis] + 1 if reach >= 0 else 0)
        if min(out) < 1:
            continue
        return ConvGeometry(
            n=int(rng.integers(1, 4)),
            cin=groups * int(rng.choice(channels)) if groups < 5 else groups * int(rng.choice([1, 3])),
            cout=groups * int(rng.choice(channels)) if groups < 5 else groups * int(rng.choice([1, 2, 5])),
            groups=groups,
            di=size[0],
            hi=size[1],
            wi=size[2],
            do=out[0],
            ho=out[1],
            wo=out[2],
            kd=kernel[0],
            kh=kernel[1],
            kw=kernel[2],
            stride=stride,
            pad=pad,
            dilation=dilation,
        )


def tap_extent(tiling: DwTiling | UnifiedTiling) -> int:
    """N of one depth tap of a full merged group."""
    if isinstance(tiling, UnifiedTiling):
        return tiling.n_extent * tiling.taps_apart
    return tiling.cin1_g * tiling.channel_size * tiling.hk * tiling.wk


def coverage(tiling: DwTiling | UnifiedTiling, geometry: ConvGeometry, items: list[WorkItem], c0: int) -> np.ndarray:
    """Count how often each (n, do, group, M unit, tap, N unit, row) is computed; units are c0 elements."""
    group = tiling.group
    m_extent, tap_n = tiling.m_extent, tap_extent(tiling)
    shape = (geometry.n, geometry.do, group, m_extent // c0, geometry.kd * tap_n // c0, geometry.ho)
    counts = np.zeros(shape, np.int64)
    row = tiling.wo
    for item in items:
        start_n = item.kd * tap_n + item.n0
        assert item.m0 % c0 == item.m_len % c0 == start_n % c0 == item.n_len % c0 == 0
        assert item.k0 % row == item.k_len % row == 0
        counts[
            item.n,
            item.do,
            item.group,
            item.m0 // c0 : (item.m0 + item.m_len) // c0,
            start_n // c0 : (start_n + item.n_len) // c0,
            item.k0 // row : (item.k0 + item.k_len) // row,
        ] += 1
    return counts.reshape(*shape[:4], geometry.kd, tap_n // c0, geometry.ho)


def expected_coverage(tiling: DwTiling | UnifiedTiling, geometry: ConvGeometry, c0: int) -> np.ndarray:
    """Once where dy, x and the depth plane exist, else never."""
    tap_n = tap_extent(tiling)
    wanted = np.zeros(
        (geometry.n, geometry.do, tiling.group, tiling.m_extent // c0, geometry.kd, tap_n // c0, geometry.ho), np.int64
    )
    khw = geometry.kh * geometry.kw
    dy_blocks, x_blocks = -(-geometry.cout // c0), -(-geometry.cin // c0)
    for group in range(tiling.group):
        m_units = min(max(dy_blocks - group * tiling.m_extent // c0, 0), tiling.m_extent // c0)
        channels = min(max(x_blocks - group * tap_n // (khw * c0), 0), tap_n // (khw * c0))
        for do in range(geometry.do):
            for kd in range(geometry.kd):
                depth = do * geometry.stride[0] + kd * geometry.dilation[0] - geometry.pad[0]
                if 0 <= depth < geometry.di:
                    wanted[:, do, group, :m_units, kd, : channels * khw] = 1
    return wanted


def gradient_from_items(
    tiling: DwTiling | UnifiedTiling, geometry: ConvGeometry, items: list[WorkItem], x: np.ndarray, dy: np.ndarray
) -> np.ndarray:
    """Compute dw (cout, cin / groups, kd, kh, kw) by doing every item, on padded channel blocks."""
    unified = isinstance(tiling, UnifiedTiling)
    c0 = 16 if unified else tiling.channel_size
    tap_n, m_extent = tap_extent(tiling), tiling.m_extent
    kh, kw = geometry.kh, geometry.kw
    x_all = np.zeros((geometry.n, tiling.group * tap_n // (kh * kw), *x.shape[2:]), np.int64)
    x_all[:, : geometry.cin] = x
    dy_all = np.zeros((geometry.n, tiling.group * m_extent, *dy.shape[2:]), np.int64)
    dy_all[:, : geometry.cout] = dy
    stride_w, pad_right, wo = geometry.stride[2], geometry.pad[5], geometry.wo
    if unified:
        stride_w, pad_right, wo = tiling.stride_w, tiling.pad_right, tiling.wo
        if tiling.two_column:
            dy_all = np.repeat(dy_all, 2, axis=4)
    pads = ((0, 0), (0, 0), (0, 0), geometry.pad[2:4], (geometry.pad[4], pad_right))
    x_all = np.pad(x_all, pads)
    result = np.zeros((tiling.group, m_extent, geometry.kd * tap_n), np.int64)
    for item in items:
        rows = slice(item.group * m_extent + item.m0, item.group * m_extent + item.m0 + item.m_len)
        pixels = np.array(pixels_of(tiling, geometry, item.part, item.position))[item.k0 : item.k0 + item.k_len]
        left = dy_all[item.n, rows, item.do].reshape(item.m_len, -1)[:, pixels]
        for offset in range(item.n_len):
            n_place = item.n0 + offset
            if item.position != ALL_TAPS:
                n_place = (n_place // c0 * kh * kw + item.position) * c0 + n_place % c0
            tap, position = divmod(n_place, tap_n)
            block, rest = divmod(position, kh * kw * c0)
            row, column = divmod(rest // c0, kw)
            channel = item.group * (tap_n // (kh * kw)) + block * c0 + rest % c0
            plane = x_all[item.n, channel, item.di + tap]
            top, first = row * geometry.dilation[1], column * geometry.dilation[2]
            window = plane[
                top : top + (geometry.ho - 1) * geometry.stride[1] + 1 : geometry.stride[1],
                first : first + (wo - 1) * stride_w + 1 : stride_w,
            ]
            right = window.reshape(-1)[pixels]
            place = item.kd * tap_n + n_place
            result[item.group, item.m0 : item.m0 + item.m_len, place] += left @ right
    merged = geometry.merged_groups(c0)
    cin_g, cout_g = geometry.cin // geometry.groups, geometry.cout // geometry.groups
    dw = np.zeros(geometry.weight_shape, np.int64)
    for co in range(geometry.cout):
        small = co // cout_g
        group, lane = divmod(small, merged.mag)
        blocks = result[group, lane * cout_g + co % cout_g].reshape(geometry.kd, merged.cin1_g, kh, kw, c0)
        channels = np.moveaxis(blocks, 4, 2).reshape(geometry.kd, -1, kh, kw)
        dw[co] = np.moveaxis(channels[:, lane * cin_g : (lane + 1) * cin_g], 0, 1)
    return dw


def split_loads(tiling: DwTiling, item: WorkItem) -> tuple[int, int]:
    """Return the most elements one A1 and one B1 load of the item brings into L1 (LoadToA1 and LoadToB1)."""
    t = _seen_by_the_load(tiling, item)
    single_cin = item.n_len // t.khw
    single_ho = item.k_len // t.wo
    pixels = single_ho * t.wo
    k_blocks, m_blocks, n_blocks = (
        -(-pixels // t.base_k),
        -(-item.m_len // t.base_m),
        -(-item.n_len // t.base_n),
    )
    skd = (t.hk - 1) * t.dilation_h + 1 - t.stride_h
    start_row = item.k0 // t.wo
    single_hi = min(t.hi, single_ho * t.stride_h + skd)
    most_a = most_b = 0
    for m1 in range(0, m_blocks, t.step_m):
        rows = min(t.step_m * t.base_m, item.m_len - m1 * t.base_m)
        for step in range(-(-k_blocks // t.step_ka)):
            part = min(t.step_ka * t.base_k, pixels - step * t.step_ka * t.base_k)
            most_a = max(most_a, (rows + rows % 16) * part)
    for n1 in range(0, n_blocks, t.step_n):
        blocks = min(t.step_n, n_blocks - n1) * t.base_n // t.channel_size
        first = n1 * (t.base_n // t.channel_size) // t.khw
        copies = 1 if t.khw > blocks else -(-blocks // t.khw)
        if (t.khw > blocks and t.khw % blocks) or (t.khw <= blocks and (2 * blocks) % t.khw):
            copies += 1
        copies = min(copies, single_cin // t.channel_size - first)
        for step in range(-(-k_blocks // t.step_kb)):
            k_start = step * t.step_kb * t.base_k
            part = min(t.step_kb * t.base_k, pixels - k_start)
            top = (k_start // t.wo + start_row) * t.stride_h - t.pad_up
            start = start_row * t.stride_h - t.pad_up
            row_in = max(top, 0) - max(start, 0)
            length = load_rows(part, t.wo) * t.stride_h + skd
            length = min(length + min(top, 0), t.hi - max(top, 0), single_hi - row_in)
            most_b = max(most_b, length * t.wi * copies * t.channel_size)
    return most_a, most_b


def _seen_by_the_load(tiling: DwTiling, item: WorkItem) -> DwTiling:
    """Return ``tiling`` with the extents that image-to-column sees: of a part of the columns, or of single pixels."""
    if tiling.tap_by_tap:
        single = dict.fromkeys(("wo", "wi", "hk", "wk", "stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
        pixels = tiling.ho * tiling.wo
        return replace(tiling, **single, ho=pixels, hi=pixels, pad_up=0, pad_left=0)
    if tiling.w_parts > 1:
        wo = len(core_range(tiling.wo, tiling.w_parts, item.part))
        columns = (wo - 1) * tiling.stride_w + (tiling.wk - 1) * tiling.dilation_w + 1
        return replace(tiling, wo=wo, wi=min(columns, tiling.wi))
    return tiling


def load_rows(part: int, wo: int) -> int:
    """Rows of y that ``part`` pixels touch, as the kernel counts them."""
    if part == wo or wo % part == 0:
        return 1
    if part < wo:
        return 2
    rows = -(-part // wo)
    return rows if part == rows * wo or (2 * part) % wo == 0 else rows + 1
