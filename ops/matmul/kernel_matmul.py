"""The kernel of C = A B.

Cores divide batch, N and M; each takes its blocks of C one after the other. K runs through L1 in chunks, whose length
each operand has for itself, and through L0A and L0B in base blocks. What L1 holds is not read again while it is needed,
so an operand whose chunk is all of K stays for all blocks that share it. B may stay in L0B as well.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_fixpipe, emit_l0c_to_ub, emit_mmad, emit_pipe_barrier, emit_set_hf32
from npu_sim.isa.op import Mode, Pipe, Space
from npu_sim.program.limits import MMAD_BARRIER_ELEMS
from ops.common.kernel_parts import BLOCK, ceil_div, copy_runs, core_share
from ops.common.queues import Queue, alloc, close_queue, deque, enque, free, open_queue
from ops.matmul.kernel_matmul_operands import (
    END,
    FRACTAL,
    LOAD_A,
    LOAD_B,
    LOAD_L0,
    MMAD,
    SETUP,
    STORE,
    define_tails,
    fetch_a,
    fetch_b,
    load_a,
    load_b,
)

A1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value)
"""A chunk of K of A."""
B1 = Queue(producer=Pipe.MTE2.value, consumer=Pipe.MTE1.value, first_event=2)
"""A chunk of K of B."""
L0 = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value)
"""A base block of K of both operands in L0A and L0B, or of A alone."""
KEPT = Queue(producer=Pipe.MTE1.value, consumer=Pipe.M.value, first_event=2)
"""All of K of a block of B in L0B."""
L0C = Queue(producer=Pipe.M.value, consumer=Pipe.FIX.value)
"""A block of C on split cores."""
L0C_TO_UB = Queue(producer=Pipe.M.value, consumer=Pipe.V.value)
"""A block of C on unified cores."""
OUT = Queue(producer=Pipe.V.value, consumer=Pipe.MTE3.value)
"""Columns of it in UB."""


@jit
def _result_queue(p):
    """Return the queue of L0C."""
    return L0C_TO_UB if p.unified else L0C


@jit
def _store_strips(rows, n, p, batch, m_at, n_at, m, width, src, ub_half, tile):
    """Store a block of C by way of UB, in slices of strips of 16 columns; return the half of UB that is next, too."""
    m_cube, c_bytes = ceil_div(m, 16) * 16, 16 * p.c_item
    strip_bytes, strips = m_cube * c_bytes, ceil_div(width, 16)
    whole, pitch = ceil_div(p.m, 16) * 16, ceil_div(p.n, 16)
    for done in range(0, strips, p.ub_half // strip_bytes):
        count = min(p.ub_half // strip_bytes, strips - done)
        ub = ub_half * p.ub_half
        n = alloc(rows, n, OUT, ub_half, STORE, tile)
        n = emit_l0c_to_ub(
            rows, n, dst=ub, src=src + done * m_cube * 64, dst_dtype=p.c_data, block_count=count,
            block_len=m_cube // 16, src_gap=0, dst_gap=0, site=STORE, tile=tile,
        )  # fmt: skip
        n = enque(rows, n, OUT, ub_half, STORE, tile)
        n = deque(rows, n, OUT, ub_half, STORE, tile)
        for strip in range(count):
            at = n_at // 16 + done + strip
            if p.c_nz:
                lines, step = m_cube, np.int64(1)
                dst = p.c + ((batch * pitch + at) * whole + m_at) * c_bytes
            else:
                lines, step = m, pitch
                dst = p.c + ((batch * p.m + m_at) * pitch + at) * c_bytes
            n = copy_runs(
                rows, n, dst_space=Space.GM, dst=dst, src_space=Space.UB, src=ub + strip * strip_bytes, count=lines,
                length=c_bytes // BLOCK, src_step=c_bytes // BLOCK, dst_step=step * (c_bytes // BLOCK), data=p.c_data,
                tensor=p.c_tensor, site=STORE, tile=tile,
            )  # fmt: skip
        n = free(rows, n, OUT, ub_half, STORE, tile)
        ub_half = 1 - ub_half
    return n, ub_half


@jit
def _store(rows, n, p, batch, m_at, n_at, m, width, src, tile):
    """Store a block of C."""
    m_cube = ceil_div(m, 16) * 16
    if p.c_nz:
        whole = ceil_div(p.m, 16) * 16
        dst = p.c + (batch * ceil_div(p.n, 16) + n_at // 16) * whole * 16 * p.c_item + m_at * 16 * p.c_item
        return emit_fixpipe(
            rows, n, dst_space=Space.GM, dst=dst, src=src, dst_dtype=p.c_data, m_size=m_cube,
            n_size=ceil_div(width, 16) * 16, src_stride=m_cube, dst_stride=whole * 16 * p.c_item // BLOCK, nd_num=1,
            src_nd_stride=0, dst_nd_stride=0, mode=0, tensor=p.c_tensor, site=STORE, tile=tile,
        )  # fmt: skip
    return emit_fixpipe(
        rows, n, dst_space=Space.GM, dst=p.c + ((batch * p.m + m_at) * p.n + n_at) * p.c_item, src=src,
        dst_dtype=p.c_data, m_size=m, n_size=width, src_stride=m_cube, dst_stride=p.n, nd_num=1, src_nd_stride=0,
        dst_nd_stride=0, mode=Mode.NZ2ND, tensor=p.c_tensor, site=STORE, tile=tile,
    )  # fmt: skip


@jit
def _next(rows, n, queue, buffers, held, half, tile):
    """Give up what a buffer of L1 holds, if anything, and return the half that is filled next."""
    if held >= 0:
        n = free(rows, n, queue, half, LOAD_L0, tile)
    return n, (half + 1) % buffers


@jit
def _hold_a(rows, n, p, half, batch, m_at, m, chunk, tile):
    """Bring a chunk of K of A to a half of L1."""
    at = chunk * p.k_a
    k = min(p.k_a, p.k - at)
    n = alloc(rows, n, A1, half, LOAD_A, tile)
    n = fetch_a(rows, n, p, p.a1 + half * p.a1_bytes, batch, m_at, m, at, k, tile)
    return enque(rows, n, A1, half, LOAD_A, tile)


@jit
def _hold_b(rows, n, p, half, batch, n_at, width, chunk, tile):
    """Bring a chunk of K of B to a half of L1."""
    at = chunk * p.k_b
    k = min(p.k_b, p.k - at)
    n = alloc(rows, n, B1, half, LOAD_B, tile)
    n = fetch_b(rows, n, p, p.b1 + half * p.b1_bytes, batch, n_at, width, at, k, tile)
    return enque(rows, n, B1, half, LOAD_B, tile)


@jit
def _setup(rows, p, m_counts, n_counts):
    """Begin a core whose first and last blocks in L1 have those numbers of rows and columns of C."""
    # the rest of a last fractal must be defined: the Cube multiplies it
    n = 0
    for half in range(p.a1_buffers):
        for m in m_counts:
            n = define_tails(rows, n, p, p.a1 + half * p.a1_bytes, p.k_a, m, p.a_nz, p.a_transposed)
    for half in range(p.b1_buffers):
        for width in n_counts:
            n = define_tails(rows, n, p, p.b1 + half * p.b1_bytes, p.k_b, width, p.b_nz, 1 - p.b_transposed)
    if n:
        # the first loads go to where it writes
        n = emit_pipe_barrier(rows, n, Pipe.MTE2, SETUP, -1)
    if p.hf32:
        n = emit_set_hf32(rows, n, 1, SETUP, -1)
    n = open_queue(rows, n, A1, p.a1_buffers, SETUP)
    n = open_queue(rows, n, B1, p.b1_buffers, SETUP)
    n = open_queue(rows, n, L0, p.l0_buffers, SETUP)
    n = open_queue(rows, n, KEPT, p.keeps_b, SETUP)
    n = open_queue(rows, n, OUT, 2 * p.unified, SETUP)
    return open_queue(rows, n, _result_queue(p), p.l0c_buffers, SETUP)


@jit
def matmul(rows, params, core, phase):
    """Compute the blocks of C of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `plan.MATMUL_PARAMS`[1].
    """
    p = params[0]
    rest, m_core = divmod(core, p.cores_m)
    batch_core, n_core = divmod(rest, p.cores_n)
    m_first, m_end = core_share(ceil_div(p.m, p.base_m), p.cores_m, m_core)
    n_first, n_end = core_share(ceil_div(p.n, p.base_n), p.cores_n, n_core)
    batch_first, batch_end = core_share(p.batch, p.cores_batch, batch_core)
    m_groups, n_groups = ceil_div(m_end - m_first, p.blocks_a), ceil_div(n_end - n_first, p.blocks_b)
    m_last, n_last = m_first + (m_groups - 1) * p.blocks_a, n_first + (n_groups - 1) * p.blocks_b
    m_limit, n_limit = min(m_end * p.base_m, p.m), min(n_end * p.base_n, p.n)
    m_full = min(p.blocks_a * p.base_m, m_limit - m_first * p.base_m)
    n_full = min(p.blocks_b * p.base_n, n_limit - n_first * p.base_n)
    n = _setup(rows, p, (m_full, m_limit - m_last * p.base_m), (n_full, n_limit - n_last * p.base_n))

    # what the current halves hold: -1 nothing yet
    a_held, b_held, kept = -1, -1, -1
    a_coming, b_coming = -1, -1
    a_half, b_half, l0_half, c_half, ub_half = 0, 0, 0, 0, 0
    result = _result_queue(p)
    a_chunks, b_chunks = ceil_div(p.k, p.k_a), ceil_div(p.k, p.k_b)
    c0 = BLOCK // p.item
    inner = n_groups if p.m_outer else m_groups
    outer = m_groups if p.m_outer else n_groups
    tile = -1
    for group in range((batch_end - batch_first) * outer * inner):
        outer_at, inner_at = divmod(group, inner)
        batch, outer_at = divmod(outer_at, outer)
        batch += batch_first
        m_group, n_group = (outer_at, inner_at) if p.m_outer else (inner_at, outer_at)
        m_begin, n_begin = m_first + m_group * p.blocks_a, n_first + n_group * p.blocks_b
        m_stop, n_stop = min(m_begin + p.blocks_a, m_end), min(n_begin + p.blocks_b, n_end)
        m1, n1 = min(m_stop * p.base_m, p.m) - m_begin * p.base_m, min(n_stop * p.base_n, p.n) - n_begin * p.base_n
        a_part, b_part = batch * m_groups + m_group, (batch if p.b_batched else 0) * n_groups + n_group
        for block in range((m_stop - m_begin) * (n_stop - n_begin)):
            m_off, n_off = divmod(block, n_stop - n_begin)
            m_off, n_off, tile = m_off * p.base_m, n_off * p.base_n, tile + 1
            m, width = min(p.base_m, m1 - m_off), min(p.base_n, n1 - n_off)
            # whole fractals of rows: one row alone would switch the Cube to its vector mode
            m_cube, n_fractals = ceil_div(m, 16) * 16, ceil_div(width, 16)
            n_cube = n_fractals * 16 if p.c_nz or p.unified else width
            if n + p.step_rows > len(rows):
                yield n
                n = 0
            wanted = b_part * p.blocks_b + n_off // p.base_n
            if p.keeps_b and kept != wanted:
                if kept >= 0:
                    n = free(rows, n, KEPT, 0, MMAD, tile)
                kept = wanted
                n = alloc(rows, n, KEPT, 0, LOAD_L0, tile)
                for chunk in range(b_chunks):
                    if b_held != b_part * b_chunks + chunk:
                        n, b_half = _next(rows, n, B1, p.b1_buffers, b_held, b_half, tile)
                        b_held = b_part * b_chunks + chunk
                        n = _hold_b(rows, n, p, b_half, batch, n_begin * p.base_n, n1, chunk, tile)
                        n = deque(rows, n, B1, b_half, LOAD_L0, tile)
                    k = min(p.k_b, p.k - chunk * p.k_b)
                    n = load_b(
                        rows, n, p, chunk * p.k_b // c0 * n_fractals * FRACTAL, p.b1 + b_half * p.b1_bytes,
                        ceil_div(n1, 16), n_off // 16, k, 0, width, k, tile,
                    )  # fmt: skip
                n = enque(rows, n, KEPT, 0, LOAD_L0, tile)
                n = deque(rows, n, KEPT, 0, MMAD, tile)

            k_at = 0
            while k_at < p.k:
                if n + p.step_rows > len(rows):
                    yield n
                    n = 0
                a_chunk, b_chunk = k_at // p.k_a, k_at // p.k_b
                a_k, b_k = min(p.k_a, p.k - a_chunk * p.k_a), min(p.k_b, p.k - b_chunk * p.k_b)
                k = min(p.base_k, a_chunk * p.k_a + a_k - k_at)
                if a_held != a_part * a_chunks + a_chunk:
                    n, a_half = _next(rows, n, A1, p.a1_buffers, a_held, a_half, tile)
                    a_held = a_part * a_chunks + a_chunk
                    if a_coming != a_held:
                        n = _hold_a(rows, n, p, a_half, batch, m_begin * p.base_m, m1, a_chunk, tile)
                    n = deque(rows, n, A1, a_half, LOAD_L0, tile)
                    # the next chunk comes while this one is multiplied
                    if p.a1_buffers > 1 and a_chunk + 1 < a_chunks:
                        a_coming = a_held + 1
                        n = _hold_a(rows, n, p, 1 - a_half, batch, m_begin * p.base_m, m1, a_chunk + 1, tile)
                if not p.keeps_b:
                    k = min(k, b_chunk * p.k_b + b_k - k_at)
                    if b_held != b_part * b_chunks + b_chunk:
                        n, b_half = _next(rows, n, B1, p.b1_buffers, b_held, b_half, tile)
                        b_held = b_part * b_chunks + b_chunk
                        if b_coming != b_held:
                            n = _hold_b(rows, n, p, b_half, batch, n_begin * p.base_n, n1, b_chunk, tile)
                        n = deque(rows, n, B1, b_half, LOAD_L0, tile)
                        if p.b1_buffers > 1 and b_chunk + 1 < b_chunks:
                            b_coming = b_held + 1
                            n = _hold_b(rows, n, p, 1 - b_half, batch, n_begin * p.base_n, n1, b_chunk + 1, tile)

                l0a, l0b = l0_half * p.l0a_half, l0_half * p.l0b_half
                n = alloc(rows, n, L0, l0_half, LOAD_L0, tile)
                n = load_a(
                    rows, n, p, l0a, p.a1 + a_half * p.a1_bytes, ceil_div(m1, 16), m_off // 16, a_k,
                    k_at - a_chunk * p.k_a, m, k, tile,
                )  # fmt: skip
                if p.keeps_b:
                    l0b = k_at // c0 * n_fractals * FRACTAL
                else:
                    n = load_b(
                        rows, n, p, l0b, p.b1 + b_half * p.b1_bytes, ceil_div(n1, 16), n_off // 16, b_k,
                        k_at - b_chunk * p.k_b, width, k, tile,
                    )  # fmt: skip
                n = enque(rows, n, L0, l0_half, LOAD_L0, tile)

                n = deque(rows, n, L0, l0_half, MMAD, tile)
                starts = k_at == 0
                if starts:
                    n = alloc(rows, n, result, c_half, MMAD, tile)
                n = emit_mmad(
                    rows, n, dst=c_half * p.l0c_half, src_a=l0a, src_b=l0b, dtype=p.data, m=m_cube, n_elems=n_cube, k=k,
                    mode=(Mode.INIT if starts else 0) | (Mode.K_ALIGN if p.item == 4 else 0), site=MMAD, tile=tile,
                )  # fmt: skip
                if m_cube * width < MMAD_BARRIER_ELEMS:
                    n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
                n = free(rows, n, L0, l0_half, MMAD, tile)
                l0_half = (l0_half + 1) % p.l0_buffers
                k_at += k

            # the step of the last block has room for it
            n = enque(rows, n, result, c_half, MMAD, tile)
            n = deque(rows, n, result, c_half, STORE, tile)
            m_at, n_at, l0c = m_begin * p.base_m + m_off, n_begin * p.base_n + n_off, c_half * p.l0c_half
            if p.unified:
                n, ub_half = _store_strips(rows, n, p, batch, m_at, n_at, m, width, l0c, ub_half, tile)
            else:
                n = _store(rows, n, p, batch, m_at, n_at, m, width, l0c, tile)
            n = free(rows, n, result, c_half, STORE, tile)
            c_half = (c_half + 1) % p.l0c_buffers

    n = _close(rows, n, p, a_held, a_half, b_held, b_half, kept)
    yield n


@jit
def _close(rows, n, p, a_held, a_half, b_held, b_half, kept):
    """End a core: give up what is held, and leave no flag set."""
    n, _ = _next(rows, n, A1, p.a1_buffers, a_held, a_half, -1)
    n, _ = _next(rows, n, B1, p.b1_buffers, b_held, b_half, -1)
    if kept >= 0:
        n = free(rows, n, KEPT, 0, MMAD, -1)
    n = close_queue(rows, n, A1, p.a1_buffers, END)
    n = close_queue(rows, n, B1, p.b1_buffers, END)
    n = close_queue(rows, n, L0, p.l0_buffers, END)
    n = close_queue(rows, n, KEPT, p.keeps_b, END)
    n = close_queue(rows, n, _result_queue(p), p.l0c_buffers, END)
    n = close_queue(rows, n, OUT, 2 * p.unified, END)
    if p.hf32:
        n = emit_set_hf32(rows, n, 0, END, -1)
    return n
