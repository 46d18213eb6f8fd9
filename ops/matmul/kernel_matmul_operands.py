"""Pieces of the matrix product kernel: operands from GM to L1, and from L1 to L0A and L0B.

A row-major operand comes by ND2NZ, on unified cores strip by strip, one that lies in fractals (FRACTAL_NZ) by plain
copies; both lie in L1 as [column of C0][row][C0]. 32-bit operands whose rows become columns lie there in bands of 16
rows, so that the two fractals of a LoadDataWithTranspose square are neighbours.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_fill, emit_load_2d, emit_load_transpose, emit_nd2nz
from npu_sim.isa.op import Data, Mode, Space
from ops.common.kernel_parts import BLOCK, MAX_FIELD, ceil_div, copy_runs

SETUP, LOAD_A, LOAD_B, LOAD_L0, MMAD, STORE, END = range(7)
SITES = {
    SETUP: "SETUP", LOAD_A: "LOAD_A", LOAD_B: "LOAD_B", LOAD_L0: "LOAD_L0", MMAD: "MMAD", STORE: "STORE", END: "END",
}  # fmt: skip
FRACTAL = 512


@jit
def _fetch(rows, n, p, l1, address, row_elems, height, width, pitch, tensor, site, tile):
    """Copy ``height`` rows of ``width`` elements, ``row_elems`` apart in GM, to NZ columns of ``pitch`` rows in L1.

    Rows too far apart for the instruction's field come one by one.
    """
    fits = row_elems <= MAX_FIELD
    lines, apart = (height, row_elems) if fits else (1, 1)
    for row in range(1 if fits else height):
        n = emit_nd2nz(
            rows, n, dst=l1 + row * BLOCK, src=address + row * row_elems * p.item, dtype=p.data, nd_num=1,
            n_value=lines, d_value=width, src_nd_stride=0, src_d_value=apart, dst_c0_stride=pitch, dst_n_stride=1,
            dst_nd_stride=0, tensor=tensor, site=site, tile=tile,
        )  # fmt: skip
    return n


@jit
def _fetch_operand(
    rows, n, p, l1, base, is_nz, turns, extent, row_elems, at, height, column, width, tensor, site, tile
):
    """Bring ``height`` x ``width`` of a stored matrix of ``extent`` rows to L1, from row ``at`` and ``column`` on.

    ``turns``: its rows become columns on the way to L0.
    """
    pitch = ceil_div(height, 16) * 16
    c0 = BLOCK // p.item
    if is_nz:
        whole = ceil_div(extent, 16) * 16
        return copy_runs(
            rows, n, dst_space=Space.L1, dst=l1, src_space=Space.GM, src=base + (column // c0 * whole + at) * BLOCK,
            count=ceil_div(width, c0), length=pitch, src_step=whole, dst_step=pitch, data=p.data, tensor=tensor,
            site=site, tile=tile,
        )  # fmt: skip
    if p.unified:
        return _fetch_strips(rows, n, p, l1, base, row_elems, at, height, column, width, tensor, site, tile)
    address = base + (at * row_elems + column) * p.item
    if p.item == 2 or not turns:
        return _fetch(rows, n, p, l1, address, row_elems, height, width, pitch, tensor, site, tile)
    band_bytes = 2 * ceil_div(width, 16) * FRACTAL
    for band in range(ceil_div(height, 16)):
        lines = min(16, height - band * 16)
        source = address + band * 16 * row_elems * p.item
        n = _fetch(rows, n, p, l1 + band * band_bytes, source, row_elems, lines, width, 16, tensor, site, tile)
    return n


@jit
def _fetch_strips(rows, n, p, l1, base, row_elems, at, height, column, width, tensor, site, tile):
    """As `_fetch_operand` without ND2NZ: strips of 16 columns of rows that lie whole blocks apart.

    The last fractal is filled up with rows that are there: the Cube multiplies it.
    """
    pitch, step = ceil_div(height, 16) * 16, ceil_div(row_elems, 16)
    for strip in range(ceil_div(width, 16)):
        source = base + ((at * step + strip) * 16 + column) * p.item
        done = 0
        while done < pitch:
            count = min(height, pitch - done)
            n = copy_runs(
                rows, n, dst_space=Space.L1, dst=l1 + (strip * pitch + done) * BLOCK, src_space=Space.GM, src=source,
                count=count, length=1, src_step=step, dst_step=1, data=p.data, tensor=tensor, site=site, tile=tile,
            )  # fmt: skip
            done += count
    return n


@jit
def stored_bytes(p, is_nz, height, width):
    """Return the bytes of one stored matrix."""
    if is_nz:
        return ceil_div(height, 16) * 16 * ceil_div(width, 16) * 16 * p.item
    return height * (ceil_div(width, 16) * 16 if p.unified else width) * p.item


@jit
def fetch_a(rows, n, p, l1, batch, m_at, m, k_at, k, tile):
    """Bring m x k of A to L1."""
    if p.a_transposed:
        base = p.a + batch * stored_bytes(p, p.a_nz, p.k, p.m)
        return _fetch_operand(
            rows, n, p, l1, base, p.a_nz, True, p.k, p.m, k_at, k, m_at, m, p.a_tensor, LOAD_A, tile
        )  # fmt: skip
    base = p.a + batch * stored_bytes(p, p.a_nz, p.m, p.k)
    return _fetch_operand(rows, n, p, l1, base, p.a_nz, False, p.m, p.k, m_at, m, k_at, k, p.a_tensor, LOAD_A, tile)


@jit
def fetch_b(rows, n, p, l1, batch, n_at, width, k_at, k, tile):
    """Bring k x n of B to L1."""
    if p.b_transposed:
        base = p.b + (batch * stored_bytes(p, p.b_nz, p.n, p.k) if p.b_batched else 0)
        return _fetch_operand(
            rows, n, p, l1, base, p.b_nz, False, p.n, p.k, n_at, width, k_at, k, p.b_tensor, LOAD_B, tile
        )  # fmt: skip
    base = p.b + (batch * stored_bytes(p, p.b_nz, p.k, p.n) if p.b_batched else 0)
    return _fetch_operand(rows, n, p, l1, base, p.b_nz, True, p.k, p.n, k_at, k, n_at, width, p.b_tensor, LOAD_B, tile)


@jit
def _define_tail(rows, n, p, l1, is_nz, turns, height, width):
    """Fill what ND2NZ leaves of the last fractals of ``height`` rows and ``width`` columns: the Cube multiplies it."""
    if is_nz or p.unified:
        return n
    lines, columns = height % 16, ceil_div(width, BLOCK // p.item)
    at, pitch = l1 + height * BLOCK, ceil_div(height, 16) * 16
    if turns and p.item == 4:
        pairs = 2 * ceil_div(width, 16)
        if columns < pairs:
            n = emit_fill(
                rows, n, dst_space=Space.L1, dst=l1 + columns * FRACTAL, dtype=Data.FP16, repeat=ceil_div(height, 16),
                block_num=16, dst_gap=16 * pairs - 16, value_bits=0, site=SETUP, tile=-1,
            )  # fmt: skip
        columns, pitch = pairs, 16
        at = l1 + height // 16 * columns * FRACTAL + lines * BLOCK
    if lines:
        n = emit_fill(
            rows, n, dst_space=Space.L1, dst=at, dtype=Data.FP16, repeat=columns, block_num=16 - lines,
            dst_gap=pitch - 16 + lines, value_bits=0, site=SETUP, tile=-1,
        )  # fmt: skip
    return n


@jit
def define_tails(rows, n, p, l1, chunk, extent, is_nz, turns):
    """Fill the tails of a buffer of L1 at ``l1`` for blocks of ``extent`` rows or columns of C and ``chunk`` of K.

    ``turns``: the operand is stored with K as rows. Its last chunk of K may be shorter than the others.
    """
    rest = (p.k - 1) % chunk + 1
    for length in (min(chunk, p.k), rest):
        if turns:
            n = _define_tail(rows, n, p, l1, is_nz, turns, length, extent)
        else:
            n = _define_tail(rows, n, p, l1, is_nz, turns, extent, length)
    return n


@jit
def load_a(rows, n, p, dst, l1, pitch, first, chunk, k_at, m, k, tile):
    """Load m x k of A to L0A in zZ order.

    In L1 the operand has ``pitch`` fractals along M, of which these are from ``first`` on, and ``chunk`` of K, from
    ``k_at`` on. The fewest instructions that can say it.
    """
    c0 = BLOCK // p.item
    m1, k1 = ceil_div(m, 16), ceil_div(k, 16)
    band = k1 * (16 // c0)
    if p.a_transposed and p.item == 4:
        for i in range(m1):
            n = emit_load_transpose(
                rows, n, dst_space=Space.L0A, dst=dst + i * band * FRACTAL, src=l1, dtype=p.data,
                start_index=k_at // 16 * pitch + first + i, repeat=k1, src_stride=pitch, dst_gap=1, dst_frac_gap=0,
                site=LOAD_L0, tile=tile,
            )  # fmt: skip
        return n
    if p.a_transposed:
        mode, columns, along_m, along_k = np.int64(Mode.TRANSPOSE), k1, ceil_div(chunk, 16), 1
        at = first * along_m + k_at // 16
    else:
        mode, columns, along_m, along_k = np.int64(0), ceil_div(k, c0), 1, pitch
        at = k_at // c0 * pitch + first
    if m1 <= columns or p.unified:
        for i in range(m1):
            n = emit_load_2d(
                rows, n, dst_space=Space.L0A, dst=dst + i * band * FRACTAL, src_space=Space.L1, src=l1, dtype=p.data,
                start_index=at + i * along_m, repeat=columns, src_stride=along_k, dst_gap=0, mode=mode, tensor=0,
                site=LOAD_L0, tile=tile,
            )  # fmt: skip
        return n
    for j in range(columns):
        n = emit_load_2d(
            rows, n, dst_space=Space.L0A, dst=dst + j * FRACTAL, src_space=Space.L1, src=l1, dtype=p.data,
            start_index=at + j * along_k, repeat=m1, src_stride=along_m, dst_gap=band - 1, mode=mode, tensor=0,
            site=LOAD_L0, tile=tile,
        )  # fmt: skip
    return n


@jit
def load_b(rows, n, p, dst, l1, pitch, first, chunk, k_at, width, k, tile):
    """Load k x n of B to L0B in nZ order; as `load_a`, with N for M."""
    c0 = BLOCK // p.item
    n1, k1 = ceil_div(width, 16), ceil_div(k, 16)
    if not p.b_transposed and p.item == 4:
        for j in range(k1):
            n = emit_load_transpose(
                rows, n, dst_space=Space.L0B, dst=dst + 2 * j * n1 * FRACTAL, src=l1, dtype=p.data,
                start_index=(k_at // 16 + j) * pitch + first, repeat=n1, src_stride=1, dst_gap=0, dst_frac_gap=n1 - 1,
                site=LOAD_L0, tile=tile,
            )  # fmt: skip
        return n
    if p.b_transposed:
        mode, columns, along_n, along_k = np.int64(0), ceil_div(k, c0), 1, pitch
        at = k_at // c0 * pitch + first
    else:
        mode, columns, along_n, along_k = np.int64(Mode.TRANSPOSE), k1, ceil_div(chunk, 16), 1
        at = first * along_n + k_at // 16
    if p.b_transposed and n1 == pitch:
        return emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst, src_space=Space.L1, src=l1, dtype=p.data, start_index=at,
            repeat=columns * n1, src_stride=1, dst_gap=0, mode=mode, tensor=0, site=LOAD_L0, tile=tile,
        )  # fmt: skip
    if columns <= n1 or p.unified:
        for j in range(columns):
            n = emit_load_2d(
                rows, n, dst_space=Space.L0B, dst=dst + j * n1 * FRACTAL, src_space=Space.L1, src=l1, dtype=p.data,
                start_index=at + j * along_k, repeat=n1, src_stride=along_n, dst_gap=0, mode=mode, tensor=0,
                site=LOAD_L0, tile=tile,
            )  # fmt: skip
        return n
    for i in range(n1):
        n = emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst + i * FRACTAL, src_space=Space.L1, src=l1, dtype=p.data,
            start_index=at + i * along_n, repeat=columns, src_stride=along_k, dst_gap=n1 - 1, mode=mode, tensor=0,
            site=LOAD_L0, tile=tile,
        )  # fmt: skip
    return n
