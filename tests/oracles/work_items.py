"""Who computes what, in which order: the plain-Python twin of the kernels' drivers.

The jitted kernels decode the same block numbers; tests hold them to this enumeration.

Split products (`DwTiling`)
---------------------------
A *block* is ``single_core_m x single_core_n x single_core_k`` of one batch item ``bd = n * dout + do`` of one pair
``g * dk_count + kd`` of merged group and depth tap. The pair is the slowest digit of a block's number; the digits below
it, slowest first, are `BLOCK_DIGITS`: key 1 (k, bd, m) with N whole, key 2 (k, bd, n) with M whole, key 3 (m, bd, n)
with K whole. That is the order of the vendor's driver (ops-nn ``conv/conv3d_backprop_filter_v2/op_kernel/arch22/
conv3d_dw_v2_basic_block{,_split_mn}.h``, row first), which has one pair only; our fallback has more. With merged taps
there is one pair, and N runs over the taps.

Core c of ``used_core_num`` gets a contiguous range: ``total // used`` blocks, and the first ``total % used`` cores one
more. Every block adds to dw atomically.

Key 0 (base, ``conv3d_backprop_filter_v2.h``) gives each of ``group_dim * dk_dim * batch_dim * m_dim * n_dim * k_dim``
cores one block of M, N and K, ``single_core_cout x single_core_cin * kh * kw x single_core_ho * wo``, for contiguous
shares of the merged groups, of the batch items and of the depth taps (of one tap if they are merged), which it does in
this order, taps innermost. k is the fastest digit of the core's number, then n, m, the share of batch items, that of
taps and that of groups.

Key 4 (deterministic, ``conv3d_dw_v2_basic_block_split_mn_streamk.h``) numbers blocks (kd, g, m, n), and a core that
owns a block walks all its batch items, so each part of dw has one writer. If ``stream_k_type`` is not 0, the cores get
only ``total // used`` blocks each (core c starts at ``c * (total // used)``), and the blocks of the incomplete round
are shared: block ``t`` of the tail goes to cores ``t * core_stream_k + part``, which split its batch items or its rows
of y and sum into a workspace slot each (slot = core); `reductions` lists which slots are then added, in index order.

Cut maps
--------
Our own tilings for what image-to-column cannot do at once have more batch items or more taps. With ``w_parts`` above 1
bd is ``(n * dout + do) * w_parts + part``, and K the pixels of that part of the columns, in whole rows of the part; a
part whose windows all lie in the padding is left out. With ``tap_by_tap`` the pair is ``(g * dk_count + kd) * kh * kw +
position`` (of key 4 ``(kd * kh * kw + position) * groups + g``), N are the channels, and K the pixels whose tap
``position`` reads the map.

Unified products (`UnifiedTiling`)
----------------------------------
A *task* is one base block ``base_m x base_n`` of one pair and one share of the batch items, numbered
(share, g, kd, position, m, n), n fastest; ranges per core as above. The batch items of a task, each with its parts,
accumulate in L0C, and the task stores once, atomically if ``batch_parts > 1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from npu_sim.units import ceil_div
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_filter.tiling_data import DwTiling, Split, StreamK
from ops.conv3d_backprop_filter.tiling_unified import UnifiedTiling

BLOCK_DIGITS = {Split.MK: ("k", "bd", "m"), Split.NK: ("k", "bd", "n"), Split.MN: ("m", "bd", "n")}
"""Digits of a block number by tiling key, slowest first, below the pair of merged group and depth tap."""

NO_SLOT = -1
ALL_TAPS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One matrix product: a rectangle of dw from one depth plane of dy and of x.

    Attributes
    ----------
    core : int
        Core.
    block : int
        Number of the block (split products) or task (unified ones).
    group : int
        Merged group.
    kd : int
        Depth tap of N position 0. With merged taps N continues into the next ones.
    n, do : int
        Batch and output depth.
    di : int
        Depth plane of x that tap `kd` reads.
    m0, m_len : int
        Output channels of the merged group.
    n0, n_len : int
        N range, counted from tap `kd`. A rectangle that starts in the padding in front is moved to the first tap that
        exists, as the vendor's driver does; the result goes to dw at ``(kd, n0)``.
    k0, k_len : int
        Output pixels; whole rows of y. (With the two-column rewrite, of the rewritten y; of a cut map, of `pixels_of`.)
    slot : int
        Workspace slot the product is summed into, or `NO_SLOT`: into dw.
    part : int
        Part of the columns of y.
    position : int
        The only tap of the window, or `ALL_TAPS`.
    """

    core: int
    block: int
    group: int
    kd: int
    n: int
    do: int
    di: int
    m0: int
    m_len: int
    n0: int
    n_len: int
    k0: int
    k_len: int
    slot: int = NO_SLOT
    part: int = 0
    position: int = ALL_TAPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """Slots to add for one tail block of the deterministic kernel: ``slot0 + slot1 + ...`` in this order, into dw.

    Attributes
    ----------
    block, group, kd : int
        The block.
    m0, m_len, n0, n_len : int
        Its rectangle of dw.
    slots : tuple of int
        Workspace slots. A slot nothing was summed into holds zeros.
    position : int
        The only tap of the window, or `ALL_TAPS`.
    """

    block: int
    group: int
    kd: int
    m0: int
    m_len: int
    n0: int
    n_len: int
    slots: tuple[int, ...]
    position: int = ALL_TAPS


def work_items(tiling: DwTiling | UnifiedTiling, geometry: ConvGeometry) -> Iterator[WorkItem]:
    """Yield every item of work, core by core and in the order in which the core does it.

    Items that read only depth padding, or only channels that a partly filled last group does not have, are left out.
    """
    if isinstance(tiling, UnifiedTiling):
        yield from _unified_items(tiling, geometry)
    elif tiling.tiling_key == Split.BASE:
        for core in range(tiling.block_dim):
            yield from _one_block_per_core(tiling, geometry, core)
    elif tiling.tiling_key == Split.MN_STREAM_K:
        for core in range(tiling.used_core_num):
            yield from _full_rounds(tiling, geometry, core)
            yield from _shared_tail(tiling, geometry, core)
    else:
        for core in range(tiling.used_core_num):
            yield from _block_range(tiling, geometry, core)


def pixels_of(
    tiling: DwTiling | UnifiedTiling, geometry: ConvGeometry, part: int = 0, position: int = ALL_TAPS
) -> list[int]:
    """Return the output pixels (row * columns + column) of a part, or those that a tap multiplies, in their order."""
    columns = tiling.wo
    read = core_range(columns, tiling.w_parts, part)
    if position != ALL_TAPS:
        row, column = divmod(position, geometry.kw)
        return [
            pixel
            for pixel in range(geometry.ho * columns)
            if _reads(geometry, 1, pixel // columns, row) and _reads(geometry, 2, pixel % columns, column)
        ]
    first = read[0] * geometry.stride[2] - geometry.pad[4]
    end = read[-1] * geometry.stride[2] - geometry.pad[4] + geometry.kernel_width
    if tiling.w_parts > 1 and (end <= 0 or first >= geometry.wi):
        return []
    return [row * columns + column for row in range(geometry.ho) for column in read]


def _reads(geometry: ConvGeometry, axis: int, out: int, tap: int) -> bool:
    """Return whether a tap of an output reads the map and not its padding."""
    extent = (geometry.di, geometry.hi, geometry.wi)[axis]
    return 0 <= out * geometry.stride[axis] + tap * geometry.dilation[axis] - geometry.pad[2 * axis] < extent


def block_count(tiling: DwTiling) -> int:
    """Return the number of blocks, over all batch items except in the deterministic kernel."""
    blocks = tiling.group * tiling.dk_count * tiling.taps_apart * tiling.m_count * tiling.n_count
    if tiling.tiling_key == Split.MN_STREAM_K:
        return blocks
    return blocks * tiling.k_count * tiling.batch * tiling.dout * tiling.w_parts


def core_range(total: int, cores: int, core: int) -> range:
    """Return the contiguous share of ``core`` when the first ``total % cores`` cores get one more than the others."""
    share, rest = divmod(total, cores)
    start = core * share + min(core, rest)
    return range(start, start + share + (core < rest))


def reductions(tiling: DwTiling, geometry: ConvGeometry) -> Iterator[Reduction]:
    """Yield the sums over workspace slots with which the deterministic kernel ends."""
    first = _first_tail_block(tiling)
    if first is None:
        return
    for block in range(first, block_count(tiling)):
        group, kd, m_index, n_index, position = _deterministic_digits(tiling, block)
        m0, m_len = _m_range(tiling, group, m_index)
        n0, n_len = _n_range(tiling, geometry, group, kd, n_index, None)
        if m_len and n_len:
            start = (block - first) * tiling.core_stream_k
            slots = tuple(range(start, start + tiling.core_stream_k))
            yield Reduction(
                block=block, group=group, kd=kd, m0=m0, m_len=m_len, n0=n0, n_len=n_len, slots=slots,
                position=position if tiling.tap_by_tap else ALL_TAPS,
            )  # fmt: skip


def _block_range(tiling: DwTiling, geometry: ConvGeometry, core: int) -> Iterator[WorkItem]:
    """Keys 1 to 3."""
    counts = {
        "m": tiling.m_count,
        "n": tiling.n_count,
        "k": tiling.k_count,
        "bd": tiling.batch * tiling.dout * tiling.w_parts,
    }
    order = BLOCK_DIGITS[Split(tiling.tiling_key)]
    for block in core_range(block_count(tiling), tiling.used_core_num, core):
        digits, rest = {"m": 0, "n": 0, "k": 0}, block
        for name in reversed(order):
            rest, digits[name] = divmod(rest, counts[name])
        rest, position = divmod(rest, tiling.taps_apart)
        group, kd = divmod(rest, tiling.dk_count)
        bd, part = divmod(digits["bd"], tiling.w_parts)
        cut = {"part": part, "position": position if tiling.tap_by_tap else ALL_TAPS}
        # whole rows of the part, which may be a column narrower than the widest
        columns = 1 if tiling.tap_by_tap else len(core_range(tiling.wo, tiling.w_parts, part))
        most = ceil_div(tiling.block_k, tiling.load_wo) * columns
        k0 = digits["k"] * most
        k_len = min(most, len(pixels_of(tiling, geometry, **cut)) - k0)
        if k_len > 0:
            for item in _item(
                tiling, geometry, core, block, (group, kd, digits["m"], digits["n"]), bd, (k0, k_len), NO_SLOT
            ):
                yield replace(item, **cut)


def _one_block_per_core(tiling: DwTiling, geometry: ConvGeometry, core: int) -> Iterator[WorkItem]:
    """Key 0: digits of the core, slowest first, (shares of the groups, taps and batch items, m, n, k)."""
    t = tiling
    dims = (t.group_dim, t.dk_dim, t.batch_dim, t.m_dim, t.n_dim, t.k_dim)
    group_share, tap_share, share, m, n, k = [int(digit) for digit in np.unravel_index(core, dims)]
    rows = t.single_core_ho
    k_range = (k * rows * t.wo, min(rows, t.ho - k * rows) * t.wo)
    sizes = (t.single_core_group, t.single_core_batch, t.single_core_dk)
    for number, (i, j, tap) in enumerate(np.ndindex(sizes)):
        group, bd, kd = group_share * sizes[0] + i, share * sizes[1] + j, tap_share * sizes[2] + tap
        if group < t.group and bd < t.batch * t.dout and kd < t.dk_count:
            block = core * math.prod(sizes) + number
            yield from _item(t, geometry, core, block, (group, kd, m, n), bd, k_range, NO_SLOT)


def _full_rounds(tiling: DwTiling, geometry: ConvGeometry, core: int) -> Iterator[WorkItem]:
    """Key 4: the blocks a core has for itself."""
    total = block_count(tiling)
    if tiling.stream_k_type == StreamK.NONE:
        blocks = core_range(total, tiling.used_core_num, core)
    else:
        share = total // tiling.used_core_num
        blocks = range(core * share, (core + 1) * share)
    for block in blocks:
        yield from _added_up(tiling, geometry, core, block, None, None, NO_SLOT)


def _shared_tail(tiling: DwTiling, geometry: ConvGeometry, core: int) -> Iterator[WorkItem]:
    """Key 4: the part a core has in a block of the incomplete round."""
    first = _first_tail_block(tiling)
    if first is None:
        return
    tail, number = divmod(core, tiling.core_stream_k)
    block = first + tail
    if block >= block_count(tiling):
        return
    by_rows = tiling.stream_k_type == StreamK.ROWS
    rows = tiling.ho * tiling.wo if tiling.tap_by_tap else tiling.ho
    items = rows if by_rows else tiling.batch * tiling.dout * tiling.w_parts
    share = ceil_div(items, tiling.core_stream_k)
    own = range(number * share, min((number + 1) * share, items))
    yield from _added_up(tiling, geometry, core, block, None if by_rows else own, own if by_rows else None, core)


def _added_up(
    tiling: DwTiling,
    geometry: ConvGeometry,
    core: int,
    block: int,
    batch: range | None,
    rows: range | None,
    slot: int,
) -> Iterator[WorkItem]:
    """Yield what a core adds up of a block: these batch items (with their parts) and rows of y, None meaning all."""
    group, kd, m_index, n_index, position = _deterministic_digits(tiling, block)
    for item in range(tiling.batch * tiling.dout * tiling.w_parts) if batch is None else batch:
        batch_dout, part = divmod(item, tiling.w_parts)
        cut = {"part": part, "position": position if tiling.tap_by_tap else ALL_TAPS}
        pixels = len(pixels_of(tiling, geometry, **cut))
        columns = 1 if tiling.tap_by_tap else len(core_range(tiling.wo, tiling.w_parts, part))
        k0, end = (0, pixels) if rows is None else (rows.start * columns, min(rows.stop * columns, pixels))
        if end > k0:
            for one in _item(
                tiling, geometry, core, block, (group, kd, m_index, n_index), batch_dout, (k0, end - k0), slot
            ):
                yield replace(one, **cut)


def _first_tail_block(tiling: DwTiling) -> int | None:
    """Return the first block that cores share, None if there is none."""
    if tiling.tiling_key != Split.MN_STREAM_K or tiling.stream_k_type == StreamK.NONE:
        return None
    total = block_count(tiling)
    return total - total % tiling.used_core_num


def _deterministic_digits(tiling: DwTiling, block: int) -> tuple[int, int, int, int, int]:
    pair, local = divmod(block, tiling.m_count * tiling.n_count)
    tap, group = divmod(pair, tiling.group)
    kd, position = divmod(tap, tiling.taps_apart)
    m_index, n_index = divmod(local, tiling.n_count)
    return group, kd, m_index, n_index, position


def _m_range(tiling: DwTiling, group: int, index: int) -> tuple[int, int]:
    extent = min(tiling.m_extent, tiling.tail_cout) if group == tiling.group - 1 else tiling.m_extent
    start = index * tiling.block_m
    return start, max(min(tiling.block_m, extent - start), 0)


def _n_range(
    tiling: DwTiling, geometry: ConvGeometry, group: int, kd: int, index: int, do: int | None
) -> tuple[int, int]:
    """Return the N range; for merged taps only taps that exist at output depth ``do`` count, from tap ``kd`` on."""
    channels = min(tiling.cin1_g, tiling.tail_cin1) if group == tiling.group - 1 else tiling.cin1_g
    extent = channels * tiling.channel_size * tiling.khw
    if tiling.dk_merged and do is not None:
        extent *= sum(geometry.input_depth(do, tap) is not None for tap in range(kd, tiling.dk))
    start = index * tiling.block_n
    return start, max(min(tiling.block_n, extent - start), 0)


def _made(
    owner: tuple[int, int, int, int],
    depths: tuple[int, int, int],
    m_range: tuple[int, int],
    n_range: tuple[int, int],
    k_range: tuple[int, int],
    **more: int,
) -> WorkItem:
    """Return an item of (core, block, group, kd), of (n, do, di), and of ranges with their lengths."""
    (core, block, group, kd), (n, do, di) = owner, depths
    (m0, m_len), (n0, n_len), (k0, k_len) = m_range, n_range, k_range
    return WorkItem(
        core=core, block=block, group=group, kd=kd, n=n, do=do, di=di, m0=m0, m_len=m_len, n0=n0, n_len=n_len, k0=k0,
        k_len=k_len, **more,
    )  # fmt: skip


def _item(
    tiling: DwTiling,
    geometry: ConvGeometry,
    core: int,
    block: int,
    digits: tuple[int, int, int, int],
    batch_dout: int,
    k_range: tuple[int, int],
    slot: int,
) -> Iterator[WorkItem]:
    """Yield the item, unless there is nothing in it."""
    group, kd, m_index, n_index = digits
    n, do = divmod(batch_dout, tiling.dout)
    if tiling.dk_merged:
        kd = max(tiling.pad_front - do * tiling.stride_d, 0)
    di = geometry.input_depth(do, kd) if kd < tiling.dk else None
    if di is None:
        return
    m0, m_len = _m_range(tiling, group, m_index)
    n0, n_len = _n_range(tiling, geometry, group, kd, n_index, do)
    if m_len and n_len:
        yield _made((core, block, group, kd), (n, do, di), (m0, m_len), (n0, n_len), k_range, slot=slot)


def _unified_items(tiling: UnifiedTiling, geometry: ConvGeometry) -> Iterator[WorkItem]:
    for core in range(tiling.block_dim):
        for task in core_range(tiling.task_count, tiling.block_dim, core):
            rest, n_index = divmod(task, tiling.n_count)
            rest, m_index = divmod(rest, tiling.m_count)
            rest, position = divmod(rest, tiling.taps_apart)
            rest, kd = divmod(rest, tiling.kd)
            share, group = divmod(rest, tiling.group)
            last = group == tiling.group - 1
            m0, n0 = m_index * tiling.base_m, n_index * tiling.base_n
            m_len = min(tiling.base_m, (tiling.tail_m if last else tiling.m_extent) - m0)
            n_len = min(tiling.base_n, (tiling.tail_n if last else tiling.n_extent) - n0)
            if m_len <= 0 or n_len <= 0:
                continue
            for number in core_range(tiling.batch_dout, tiling.batch_parts, share):
                batch_dout, part = divmod(number, tiling.w_parts)
                n, do = divmod(batch_dout, geometry.do)
                di = geometry.input_depth(do, kd)
                cut = {"part": part, "position": position if tiling.tap_by_tap else ALL_TAPS}
                pixels = len(pixels_of(tiling, geometry, **cut))
                if di is not None and pixels:
                    yield _made((core, task, group, kd), (n, do, di), (m0, m_len), (n0, n_len), (0, pixels), **cut)
