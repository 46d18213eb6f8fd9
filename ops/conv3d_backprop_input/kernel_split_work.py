"""What the cores of dav-c220 work on: items, their base blocks, and what of the source one of these reads."""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from ops.common.kernel_parts import ceil_div, core_share

CLEAR, PROLOGUE, LOAD_A1, LOAD_B1, LOAD_L0A, LOAD_L0B, MMAD, STORE, EPILOGUE = range(9)
SITES = {
    CLEAR: "CLEAR", PROLOGUE: "PROLOGUE", LOAD_A1: "LOAD_A1", LOAD_B1: "LOAD_B1", LOAD_L0A: "LOAD_L0A",
    LOAD_L0B: "LOAD_L0B", MMAD: "MMAD", STORE: "STORE", EPILOGUE: "EPILOGUE",
}  # fmt: skip


class Item(NamedTuple):
    """Planes from ``d`` on, rows of M and columns of N of one batch item and merged group; nothing if ``blocks`` is 0.

    ``n_block`` counts channel blocks of the group, the other extents elements; ``*_steps`` base blocks.
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
    m_len = max(min(p.single_m, p.out_h * p.out_w - m), 0)
    n_block = n_index * p.single_n // p.c0
    n_len = max(min(p.single_n, (min(p.n1_g, p.out_c1 - group * p.n1_g) - n_block) * p.c0), 0)
    k_len = min(p.k1_g, p.a_c1 - group * p.k1_g) * p.kh * p.kw * p.c0
    m_steps, n_steps = ceil_div(m_len, p.base_m), ceil_div(n_len, p.base_n)
    return Item(
        group=group, batch=batch, d=d, m=m, m_len=m_len, n_block=n_block, n_len=n_len, k_len=k_len, m_steps=m_steps,
        n_steps=n_steps, k_steps=ceil_div(k_len, p.base_k), blocks=max(d_end - d, 0) * n_steps * m_steps,
    )  # fmt: skip


@jit
def block_of(p, item, number):
    """Return base block ``number`` of ``item``: planes, then N, then M, which is innermost."""
    m_step, rest = number % item.m_steps, number // item.m_steps
    n_step = rest % item.n_steps
    m, column = m_step * p.base_m, n_step * p.base_n
    return Block(
        d=item.d + rest // item.n_steps, m_step=m_step, n_step=n_step, m=item.m + m,
        m_len=min(p.base_m, item.m_len - m), n_block=item.n_block + n_step * (p.base_n // p.c0),
        n_len=min(p.base_n, item.n_len - column),
    )  # fmt: skip


@jit
def k_part(p, item, k, steps):
    """Return first and number of the channel blocks in the ``steps`` K steps of an L1 buffer from step ``k`` on."""
    window = p.kh * p.kw * p.c0
    start = k * p.base_k
    return start // window, min(steps * p.base_k, item.k_len - start) // window


@jit
def source_plane(p, d, tap):
    """Return the plane of the source that depth tap ``tap`` of plane ``d`` of the result reads, -1 if there is none."""
    if p.forward:
        plane = d * p.stride_d - p.pad_front + tap * p.dilation_d
        return plane if 0 <= plane < p.a_d else -1
    # the gradient has inserted planes of zeros between its own
    plane = d + p.pad_front - tap * p.dilation_d
    return plane // p.stride_d if 0 <= plane < p.a_d * p.stride_d and plane % p.stride_d == 0 else -1
