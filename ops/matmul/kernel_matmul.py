"""The kernel of C = A B for row-major matrices (either optionally stored transposed) on dav-c220: ND2NZ in, NZ2ND out.

Blocks of C go row-major over the cores. K runs through L1 in chunks with two buffers for each operand, and through L0A
and L0B in halves; L0C has two halves as well. 32-bit operands whose rows become columns lie in L1 in bands of 16 rows,
so that the two fractals of a LoadDataWithTranspose square are neighbours.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_fill,
    emit_fixpipe,
    emit_load_2d,
    emit_load_transpose,
    emit_mmad,
    emit_nd2nz,
    emit_pipe_barrier,
    emit_set_hf32,
)
from npu_sim.isa.op import Data, Mode, Pipe, Space
from ops.common.kernel_parts import BLOCK, MAX_FIELD, MMAD_BARRIER_ELEMS, ceil_div, core_share
from ops.common.queues import Queue, alloc, close_queues, deque, enque, free, open_queues

SETUP, LOAD_A, LOAD_B, LOAD_L0, MMAD, STORE, END = range(7)
SITES = {
    SETUP: "SETUP", LOAD_A: "LOAD_A", LOAD_B: "LOAD_B", LOAD_L0: "LOAD_L0", MMAD: "MMAD", STORE: "STORE", END: "END",
}  # fmt: skip
FRACTAL = 512

L1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value)
"""A chunk of K of both operands."""
L0 = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value)
"""A base block of K of both operands, in L0A and L0B."""
L0C = Queue(producer=Pipe.M.value, consumer=Pipe.FIX.value)
"""A block of C."""


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
def _fetch_to_transpose(rows, n, p, l1, address, row_elems, height, width, tensor, site, tile):
    """Copy rows that become columns: 16-bit ones as NZ, 32-bit ones as [band of 16 rows][NZ column][row].

    In bands, columns side by side are fractals side by side.
    """
    if p.item == 2:
        pitch = ceil_div(height, 16) * 16
        return _fetch(rows, n, p, l1, address, row_elems, height, width, pitch, tensor, site, tile)
    band_bytes = 2 * ceil_div(width, 16) * FRACTAL
    for band in range(ceil_div(height, 16)):
        lines = min(16, height - band * 16)
        at = address + band * 16 * row_elems * p.item
        n = _fetch(rows, n, p, l1 + band * band_bytes, at, row_elems, lines, width, 16, tensor, site, tile)
    return n


@jit
def _fetch_a(rows, n, p, l1, batch, m_at, m, k_at, k, tile):
    """Bring m x k of A to L1."""
    base = p.a + batch * p.m * p.k * p.item
    if p.a_transposed:
        address = base + (k_at * p.m + m_at) * p.item
        return _fetch_to_transpose(rows, n, p, l1, address, p.m, k, m, p.a_tensor, LOAD_A, tile)
    address = base + (m_at * p.k + k_at) * p.item
    return _fetch(rows, n, p, l1, address, p.k, m, k, ceil_div(m, 16) * 16, p.a_tensor, LOAD_A, tile)


@jit
def _fetch_b(rows, n, p, l1, batch, n_at, width, k_at, k, tile):
    """Bring k x n of B to L1."""
    base = p.b + (batch * p.k * p.n * p.item if p.b_batched else 0)
    if p.b_transposed:
        address = base + (n_at * p.k + k_at) * p.item
        return _fetch(rows, n, p, l1, address, p.k, width, k, ceil_div(width, 16) * 16, p.b_tensor, LOAD_B, tile)
    address = base + (k_at * p.n + n_at) * p.item
    return _fetch_to_transpose(rows, n, p, l1, address, p.n, k, width, p.b_tensor, LOAD_B, tile)


@jit
def _load_a(rows, n, p, dst, l1, chunk, k_at, m, k, tile):
    """Load m x k of A, from ``k_at`` of a chunk of ``chunk``, to L0A in zZ order."""
    c0 = BLOCK // p.item
    m1, k1 = ceil_div(m, 16), ceil_div(k, 16)
    band_bytes = k1 * FRACTAL * (16 // c0)
    first_row, columns = k_at // c0 * m1, ceil_div(k, c0)
    for i in range(m1):
        to = dst + i * band_bytes
        if not p.a_transposed:
            n = emit_load_2d(
                rows, n, dst_space=Space.L0A, dst=to, src_space=Space.L1, src=l1, dtype=p.data,
                start_index=first_row + i, repeat=columns, src_stride=m1, dst_gap=0, mode=0, tensor=0, site=LOAD_L0,
                tile=tile,
            )  # fmt: skip
        elif p.item == 4:
            n = emit_load_transpose(
                rows, n, dst_space=Space.L0A, dst=to, src=l1, dtype=p.data, start_index=k_at // 16 * m1 + i, repeat=k1,
                src_stride=m1, dst_gap=1, dst_frac_gap=0, site=LOAD_L0, tile=tile,
            )  # fmt: skip
        else:
            n = emit_load_2d(
                rows, n, dst_space=Space.L0A, dst=to, src_space=Space.L1, src=l1, dtype=p.data,
                start_index=i * ceil_div(chunk, 16) + k_at // 16, repeat=k1, src_stride=1, dst_gap=0,
                mode=Mode.TRANSPOSE, tensor=0, site=LOAD_L0, tile=tile,
            )  # fmt: skip
    return n


@jit
def _load_b(rows, n, p, dst, l1, chunk, k_at, width, k, tile):
    """Load k x n of B, from ``k_at`` of a chunk of ``chunk``, to L0B in nZ order."""
    n1 = ceil_div(width, 16)
    if p.b_transposed:
        # columns of c0 in L1 are what nZ has
        c0 = BLOCK // p.item
        return emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst, src_space=Space.L1, src=l1, dtype=p.data,
            start_index=k_at // c0 * n1, repeat=ceil_div(k, c0) * n1, src_stride=1, dst_gap=0, mode=0, tensor=0,
            site=LOAD_L0, tile=tile,
        )  # fmt: skip
    for j in range(ceil_div(k, 16)):
        if p.item == 4:
            n = emit_load_transpose(
                rows, n, dst_space=Space.L0B, dst=dst + 2 * j * n1 * FRACTAL, src=l1, dtype=p.data,
                start_index=(k_at // 16 + j) * n1, repeat=n1, src_stride=1, dst_gap=0, dst_frac_gap=n1 - 1,
                site=LOAD_L0, tile=tile,
            )  # fmt: skip
        else:
            n = emit_load_2d(
                rows, n, dst_space=Space.L0B, dst=dst + j * n1 * FRACTAL, src_space=Space.L1, src=l1, dtype=p.data,
                start_index=k_at // 16 + j, repeat=n1, src_stride=ceil_div(chunk, 16), dst_gap=0, mode=Mode.TRANSPOSE,
                tensor=0, site=LOAD_L0, tile=tile,
            )  # fmt: skip
    return n


@jit
def matmul(rows, params, core, phase):
    """Compute the blocks of C of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `plan.MATMUL_PARAMS`[1].
    """
    p = params[0]
    # the rest of a last fractal must be defined: the Cube multiplies it
    n = emit_fill(
        rows, 0, dst_space=Space.L1, dst=0, dtype=Data.FP16, repeat=p.l1_bytes // BLOCK // 1024, block_num=1024,
        dst_gap=0, value_bits=0, site=SETUP, tile=-1,
    )  # fmt: skip
    # the first loads go to where it writes
    n = emit_pipe_barrier(rows, n, Pipe.MTE2, SETUP, -1)
    if p.hf32:
        n = emit_set_hf32(rows, n, 1, SETUP, -1)
    n = open_queues(rows, n, (L1, L0, L0C), 2, SETUP)

    l1_half, l0_half, c_half = 0, 0, 0
    n_count, m_count = ceil_div(p.n, p.base_n), ceil_div(p.m, p.base_m)
    first, last = core_share(m_count * n_count * p.batch, p.cores, core)
    for tile in range(first, last):
        row, column = divmod(tile, n_count)
        batch, row = divmod(row, m_count)
        m_at, n_at = row * p.base_m, column * p.base_n
        width = min(p.base_n, p.n - n_at)
        m = min(p.base_m, p.m - m_at)
        # whole fractals of rows: one row alone would switch the Cube to its vector mode
        m_cube = ceil_div(m, 16) * 16

        for k_at in range(0, p.k, p.chunk_k):
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            chunk = min(p.chunk_k, p.k - k_at)
            a1, b1 = p.a1 + l1_half * p.a1_bytes, p.b1 + l1_half * p.b1_bytes
            n = alloc(rows, n, L1, l1_half, LOAD_A, tile)
            n = _fetch_a(rows, n, p, a1, batch, m_at, m, k_at, chunk, tile)
            n = _fetch_b(rows, n, p, b1, batch, n_at, width, k_at, chunk, tile)
            n = enque(rows, n, L1, l1_half, LOAD_B, tile)

            n = deque(rows, n, L1, l1_half, LOAD_L0, tile)
            for k0 in range(0, chunk, p.base_k):
                k = min(p.base_k, chunk - k0)
                l0a, l0b = l0_half * p.l0a_half, l0_half * p.l0b_half
                n = alloc(rows, n, L0, l0_half, LOAD_L0, tile)
                n = _load_a(rows, n, p, l0a, a1, chunk, k0, m, k, tile)
                n = _load_b(rows, n, p, l0b, b1, chunk, k0, width, k, tile)
                if k0 + k == chunk:
                    n = free(rows, n, L1, l1_half, LOAD_L0, tile)
                n = enque(rows, n, L0, l0_half, LOAD_L0, tile)

                n = deque(rows, n, L0, l0_half, MMAD, tile)
                starts = k_at + k0 == 0
                if starts:
                    n = alloc(rows, n, L0C, c_half, MMAD, tile)
                n = emit_mmad(
                    rows, n, dst=c_half * p.l0c_half, src_a=l0a, src_b=l0b, dtype=p.data, m=m_cube, n_elems=width, k=k,
                    mode=(Mode.INIT if starts else 0) | (Mode.K_ALIGN if p.item == 4 else 0), site=MMAD, tile=tile,
                )  # fmt: skip
                if m_cube * width < MMAD_BARRIER_ELEMS:
                    n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
                n = free(rows, n, L0, l0_half, MMAD, tile)
                l0_half = 1 - l0_half
            l1_half = 1 - l1_half

        # the step of the last chunk has room for it
        n = enque(rows, n, L0C, c_half, MMAD, tile)
        n = deque(rows, n, L0C, c_half, STORE, tile)
        n = emit_fixpipe(
            rows, n, dst_space=Space.GM, dst=p.c + ((batch * p.m + m_at) * p.n + n_at) * p.c_item,
            src=c_half * p.l0c_half, dst_dtype=p.c_data, m_size=m, n_size=width, src_stride=m_cube, dst_stride=p.n,
            nd_num=1, src_nd_stride=0, dst_nd_stride=0, mode=Mode.NZ2ND, tensor=p.c_tensor, site=STORE, tile=tile,
        )  # fmt: skip
        n = free(rows, n, L0C, c_half, STORE, tile)
        c_half = 1 - c_half

    n = close_queues(rows, n, (L1, L0, L0C), 2, END)
    if p.hf32:
        n = emit_set_hf32(rows, n, 0, END, -1)
    yield n
