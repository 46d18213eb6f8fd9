"""What the cores of dav-c220 work on: items, their base blocks, and what of the source one of these reads."""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from ops.common.kernel_parts import ceil_div, core_share

CLEAR, PROLOGUE, LOAD_A1, LOAD_B1, LOAD_L0A, LOAD_L0B, MMAD, STORE, EPILOGUE, COPY_IN, TURN, COPY_OUT = range(12)
SITES = {
    CLEAR: "CLEAR", PROLOGUE: "PROLOGUE", LOAD_A1: "LOAD_A1", LOAD_B1: "LOAD_B1", LOAD_L0A: "LOAD_L0A",
    LOAD_L0B: "LOAD_L0B", MMAD: "MMAD", STORE: "STORE", EPILOGUE: "EPILOGUE", COPY_IN: "COPY_IN", TURN: "TURN",
    COPY_OUT: "COPY_OUT",
}  # fmt: skip

SLOT_FULL, SLOT_FREE = 6, 5
"""Flags between a Cube core and its vector core: a block lies in the slot, and has been read."""


class Item(NamedTuple):
    """Planes from ``d`` on, rows of M and columns of N of one batch item and merged group; nothing if ``blocks`` is 0.

    ``n_block`` counts channel blocks of the group, the other extents elements; ``*_steps`` base blocks, and so does
    ``m`` where base blocks lie within one row of the result.
    """

    group: int
    batch: int
    d: int
    m: int
    m_len: int
    n_block: int
    n_len: int
    k_len: int
    m_steps: int
    n_steps: int
    k_steps: int
    blocks: int


class Block(NamedTuple):
    """Base block (``m_step``, ``n_step``) of plane ``d`` of an item; ``n_block`` counts channel blocks of the group."""

    d: int
    m_step: int
    n_step: int
    m: int
    m_len: int
    n_block: int
    n_len: int


@jit
def items_of(p, core):
    """Return the items [first, end) of ``core``: a share of all, or the batch items of the core's part of the grid."""
    if not p.grid:
        return core_share(p.items, p.cores, core)
    first = core // (p.n_dim * p.m_dim) % p.batch_dim * p.single_batch
    return first, max(min(first + p.single_batch, p.batch), first)


@jit
def item_of(p, core, number):
    """Return item ``number`` of those of ``core``."""
    if p.grid:
        n_index, rest = core % p.n_dim, core // p.n_dim
        m_index, rest = rest % p.m_dim, rest // p.m_dim
        group, batch = 0, number
        d = rest // p.batch_dim % p.d_dim * p.single_d
        d_end = min(d + p.single_d, p.out_d)
    else:
        n_index, rest = number % p.n_count, number // p.n_count
        plane, rest = rest % (p.batch * p.out_d), rest // (p.batch * p.out_d)
        m_index, group = rest % p.m_count, rest // p.m_count
        batch, d = plane // p.out_d, plane % p.out_d
        d_end = d + 1
    m = m_index * p.single_m
    m_len = max(min(p.single_m, p.m_total - m), 0)
    n_block = n_index * p.single_n // p.c0
    n_len = max(min(p.single_n, (min(p.n1_g, p.out_c1 - group * p.n1_g) - n_block) * p.c0), 0)
    k_len = min(p.k1_g, p.a_c1 - group * p.k1_g) * p.kh * p.kw * p.c0
    m_steps, n_steps = ceil_div(m_len, p.m_unit), ceil_div(n_len, p.base_n)
    return Item(
        group=group, batch=batch, d=d, m=m, m_len=m_len, n_block=n_block, n_len=n_len, k_len=k_len, m_steps=m_steps,
        n_steps=n_steps, k_steps=ceil_div(k_len, p.base_k), blocks=max(d_end - d, 0) * n_steps * m_steps,
    )  # fmt: skip


@jit
def block_of(p, item, number):
    """Return base block ``number`` of ``item``: planes, then N, then M, which is innermost."""
    m_step, rest = number % item.m_steps, number // item.m_steps
    n_step = rest % item.n_steps
    if p.per_row:
        row, part = (item.m + m_step) // p.per_row, (item.m + m_step) % p.per_row
        m, m_len = row * p.out_w + part * p.base_m, min(p.base_m, p.out_w - part * p.base_m)
    else:
        m, m_len = item.m + m_step * p.base_m, min(p.base_m, item.m_len - m_step * p.base_m)
    return Block(
        d=item.d + rest // item.n_steps, m_step=m_step, n_step=n_step, m=m, m_len=m_len,
        n_block=item.n_block + n_step * (p.base_n // p.c0), n_len=min(p.base_n, item.n_len - n_step * p.base_n),
    )  # fmt: skip


class KPart(NamedTuple):
    """What an L1 buffer has of K: ``taps`` from ``tap`` on of each of ``blocks`` channel blocks from ``first`` on."""

    first: int
    blocks: int
    tap: int
    taps: int


@jit
def in_part(p, k, steps):
    """Return how far K step ``k`` is into its L1 buffer of ``steps``: of whole channel blocks, or in each one anew."""
    return (k if steps >= p.plane_steps else k % p.plane_steps) % steps


@jit
def part_number(p, k, steps):
    """Return the number of the L1 buffer of ``steps`` with K step ``k``."""
    if steps >= p.plane_steps:
        return k // steps
    return k // p.plane_steps * ceil_div(p.plane_steps, steps) + k % p.plane_steps // steps


@jit
def k_part(p, item, k, steps):
    """Return what the L1 buffer of ``steps`` has of K that begins with K step ``k``."""
    window = p.kh * p.kw * p.c0
    start = k * p.base_k
    if steps >= p.plane_steps:
        return KPart(start // window, min(steps * p.base_k, item.k_len - start) // window, 0, p.kh * p.kw)
    tap = start % window // p.c0
    return KPart(start // window, 1, tap, min(steps * p.base_k // p.c0, p.kh * p.kw - tap))


@jit
def source_plane(p, d, tap):
    """Return the plane of the source that depth tap ``tap`` of plane ``d`` of the result reads, -1 if there is none."""
    if p.forward:
        plane = d * p.stride_d - p.pad_front + tap * p.dilation_d
        return plane if 0 <= plane < p.a_d else -1
    # the gradient has inserted planes of zeros between its own
    plane = d + p.pad_front - tap * p.dilation_d
    return plane // p.stride_d if 0 <= plane < p.a_d * p.stride_d and plane % p.stride_d == 0 else -1
