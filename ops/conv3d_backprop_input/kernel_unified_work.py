"""What the unified cores work on: a core's part of the loops, its items, and what an L1 buffer has of K."""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from ops.common.kernel_parts import core_share

PROLOGUE, LOAD_A, DILATE, LOAD_B, LOAD_L0A, LOAD_L0B, MMAD, DRAIN, STORE, EPILOGUE = range(10)
SITES = {
    PROLOGUE: "PROLOGUE", LOAD_A: "LOAD_A", DILATE: "DILATE", LOAD_B: "LOAD_B", LOAD_L0A: "LOAD_L0A",
    LOAD_L0B: "LOAD_L0B", MMAD: "MMAD", DRAIN: "DRAIN", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip


class Share(NamedTuple):
    """A core's part of the four loops, of which M is innermost, and the number of ``items`` in it."""

    group: int
    group_count: int
    n: int
    n_count: int
    batch: int
    batch_count: int
    m: int
    m_count: int
    items: int


class Item(NamedTuple):
    """A block: ``m_len`` pixels from ``m`` on, ``n_blocks`` channel blocks of N block ``n_index``.

    There is nothing to do if ``n_blocks`` is not positive. K has ``k_planes`` channel blocks; ``tile`` is the item's
    number.
    """

    tile: int
    batch: int
    group: int
    n_index: int
    n_blocks: int
    k_planes: int
    m: int
    m_len: int


NO_ITEM = Item(tile=-1, batch=0, group=0, n_index=0, n_blocks=0, k_planes=0, m=0, m_len=0)


class KPart(NamedTuple):
    """What an L1 buffer has of K: ``taps`` from ``tap`` on of each of ``planes`` channel blocks from ``plane`` on."""

    plane: int
    planes: int
    tap: int
    taps: int


@jit
def share_of(p, core):
    """Divide the four loops among the cores, the batch outermost."""
    n, n_end = core_share(p.n_count, p.n_dim, core % p.n_dim)
    core //= p.n_dim
    group, group_end = core_share(p.groups, p.group_dim, core % p.group_dim)
    core //= p.group_dim
    m, m_end = core_share(p.m_count, p.m_dim, core % p.m_dim)
    batch, batch_end = core_share(p.batch, p.batch_dim, core // p.m_dim)
    return Share(
        group=group, group_count=group_end - group, n=n, n_count=n_end - n, batch=batch,
        batch_count=batch_end - batch, m=m, m_count=m_end - m,
        items=(group_end - group) * (n_end - n) * (batch_end - batch) * (m_end - m),
    )  # fmt: skip


@jit
def item_of(p, share, tile):
    """Return item ``tile`` of a core's share."""
    m_index, rest = share.m + tile % share.m_count, tile // share.m_count
    batch, rest = share.batch + rest % share.batch_count, rest // share.batch_count
    n_index, group = share.n + rest % share.n_count, share.group + rest // share.n_count
    n_planes = min(p.n_c1, p.dst_c1 - group * p.n_c1) - n_index * (p.base_n // 16)
    if p.by_row:
        column = m_index % p.m_per_row * p.base_m
        m, m_len = m_index // p.m_per_row * p.out_w + column, min(p.base_m, p.out_w - column)
    else:
        m = m_index * p.base_m
        m_len = min(p.base_m, p.m_total - m)
    return Item(
        tile=tile, batch=batch, group=group, n_index=n_index, n_blocks=min(p.base_n // 16, n_planes),
        k_planes=min(p.k_c1, p.src_c1 - group * p.k_c1), m=m, m_len=m_len,
    )  # fmt: skip


@jit
def in_step(p, k, steps):
    """Return how far L0 step ``k`` is into its L1 step of ``steps``: of whole channel blocks, or in each one anew."""
    if steps < p.plane_steps:
        k %= p.plane_steps
    return k % steps


@jit
def k_part(p, item, k, steps):
    """Return what the L1 step of ``steps`` has of K that begins with L0 step ``k``."""
    per_plane = p.window * 16
    plane = k * p.base_k // per_plane
    planes = min(max(steps * p.base_k // per_plane, 1), item.k_planes - plane)
    if steps >= p.plane_steps:
        return KPart(plane=plane, planes=planes, tap=0, taps=p.window)
    tap = k % p.plane_steps * p.base_k // 16
    return KPart(plane=plane, planes=planes, tap=tap, taps=min(steps * p.base_k // 16, p.window - tap))
