"""Emitter of C = A B for row-major matrices (A optionally stored transposed) on dav-c220: ND2NZ in, NZ2ND out.

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
    emit_set_flag,
    emit_set_hf32,
    emit_wait_flag,
)
from npu_sim.isa.op import Data, Mode, Pipe, Space
from ops.common.kernel_parts import BLOCK, MAX_FIELD, MMAD_BARRIER_ELEMS, ceil_div, core_share, free_flag

SETUP, LOAD_A, LOAD_B, LOAD_L0, MMAD, STORE, END = range(7)
SITES = {
    SETUP: "SETUP",
    LOAD_A: "LOAD_A",
    LOAD_B: "LOAD_B",
    LOAD_L0: "LOAD_L0",
    MMAD: "MMAD",
    STORE: "STORE",
    END: "END",
}
STAGE, BLOCK_AT, BLOCK_END, K_AT, L1_TURN, L0_TURN, L0C_TURN = range(2, 9)
START, WORK, FINISH, DONE = range(4)
FRACTAL = 512


@jit
def _flags(rows, n, drain, site):
    """Prime (``drain`` 0) or drain (1) the flags that say a buffer is free."""
    for event in range(2):
        n = free_flag(rows, n, Pipe.MTE1, Pipe.MTE2, event, drain, site)
        n = free_flag(rows, n, Pipe.M, Pipe.MTE1, event, drain, site)
        n = free_flag(rows, n, Pipe.FIX, Pipe.M, event, drain, site)
    return n


@jit
def _fetch(rows, n, p, l1, address, row_elems, height, width, pitch, tensor, site, tile):
    """Copy ``height`` rows of ``width`` elements, ``row_elems`` apart in GM, to NZ columns of ``pitch`` rows in L1.

    Rows too far apart for the instruction's field come one by one.
    """
    if row_elems <= MAX_FIELD:
        return emit_nd2nz(
            rows, n, l1, address, p["data"], 1, height, width, 0, row_elems, pitch, 1, 0, tensor, site, tile
        )
    for row in range(height):
        at = address + row * row_elems * p["item"]
        n = emit_nd2nz(rows, n, l1 + row * BLOCK, at, p["data"], 1, 1, width, 0, 1, pitch, 1, 0, tensor, site, tile)
    return n


@jit
def _fetch_bands(rows, n, p, l1, address, row_elems, height, width, tensor, site, tile):
    """Copy rows to L1 as [band of 16 rows][NZ column][row], so that columns side by side are fractals side by side."""
    band_bytes = 2 * ceil_div(width, 16) * FRACTAL
    for band in range(ceil_div(height, 16)):
        lines = min(16, height - band * 16)
        at = address + band * 16 * row_elems * p["item"]
        n = _fetch(rows, n, p, l1 + band * band_bytes, at, row_elems, lines, width, 16, tensor, site, tile)
    return n


@jit
def _fetch_a(rows, n, p, l1, batch, m_at, m, k_at, k, tile):
    """Bring m x k of A to L1."""
    base = p["a"] + batch * p["m"] * p["k"] * p["item"]
    if p["a_transposed"] == 0:
        address = base + (m_at * p["k"] + k_at) * p["item"]
        return _fetch(rows, n, p, l1, address, p["k"], m, k, ceil_div(m, 16) * 16, p["a_tensor"], LOAD_A, tile)
    address = base + (k_at * p["m"] + m_at) * p["item"]
    if p["item"] == 4:
        return _fetch_bands(rows, n, p, l1, address, p["m"], k, m, p["a_tensor"], LOAD_A, tile)
    return _fetch(rows, n, p, l1, address, p["m"], k, m, ceil_div(k, 16) * 16, p["a_tensor"], LOAD_A, tile)


@jit
def _fetch_b(rows, n, p, l1, n_at, width, k_at, k, tile):
    """Bring k x n of B to L1."""
    address = p["b"] + (k_at * p["n"] + n_at) * p["item"]
    if p["item"] == 4:
        return _fetch_bands(rows, n, p, l1, address, p["n"], k, width, p["b_tensor"], LOAD_B, tile)
    return _fetch(rows, n, p, l1, address, p["n"], k, width, ceil_div(k, 16) * 16, p["b_tensor"], LOAD_B, tile)


@jit
def _load_a(rows, n, p, dst, l1, chunk, k_at, m, k, tile):
    """Load m x k of A, from ``k_at`` of a chunk of ``chunk``, to L0A in zZ order."""
    m1 = ceil_div(m, 16)
    data = p["data"]
    if p["item"] == 4:
        pitch = 2 * ceil_div(k, 16) * FRACTAL
        for i in range(m1):
            to = dst + i * pitch
            if p["a_transposed"] == 0:
                first = k_at // 8 * m1 + i
                n = emit_load_2d(
                    rows, n, Space.L0A, to, Space.L1, l1, data, first, ceil_div(k, 8), m1, 0, 0, 0, LOAD_L0, tile
                )
            else:
                first = k_at // 16 * m1 + i
                n = emit_load_transpose(
                    rows, n, Space.L0A, to, l1, data, first, ceil_div(k, 16), m1, 1, 0, LOAD_L0, tile
                )
        return n
    k1 = ceil_div(k, 16)
    for i in range(m1):
        to = dst + i * k1 * FRACTAL
        if p["a_transposed"] == 0:
            first = k_at // 16 * m1 + i
            n = emit_load_2d(rows, n, Space.L0A, to, Space.L1, l1, data, first, k1, m1, 0, 0, 0, LOAD_L0, tile)
        else:
            first = i * ceil_div(chunk, 16) + k_at // 16
            n = emit_load_2d(
                rows, n, Space.L0A, to, Space.L1, l1, data, first, k1, 1, 0, Mode.TRANSPOSE, 0, LOAD_L0, tile
            )
    return n


@jit
def _load_b(rows, n, p, dst, l1, chunk, k_at, width, k, tile):
    """Load k x n of B, from ``k_at`` of a chunk of ``chunk``, to L0B in nZ order."""
    n1 = ceil_div(width, 16)
    data = p["data"]
    for j in range(ceil_div(k, 16)):
        if p["item"] == 4:
            first = (k_at // 16 + j) * n1
            to = dst + 2 * j * n1 * FRACTAL
            n = emit_load_transpose(rows, n, Space.L0B, to, l1, data, first, n1, 1, 0, n1 - 1, LOAD_L0, tile)
        else:
            first = k_at // 16 + j
            to = dst + j * n1 * FRACTAL
            n = emit_load_2d(
                rows, n, Space.L0B, to, Space.L1, l1, data, first, n1, ceil_div(chunk, 16), 0, Mode.TRANSPOSE, 0,
                LOAD_L0, tile,
            )  # fmt: skip
    return n


@jit
def _setup(rows, n, p):
    """Clear the L1 buffers, so that the rest of a last fractal is defined, and prime the flags."""
    blocks = p["l1_bytes"] // BLOCK
    n = emit_fill(rows, n, Space.L1, 0, Data.FP16, blocks // 1024, 1024, 0, 0, SETUP, -1)
    n = emit_pipe_barrier(rows, n, Pipe.MTE2, SETUP, -1)
    if p["hf32"] != 0:
        n = emit_set_hf32(rows, n, 1, SETUP, -1)
    return _flags(rows, n, 0, SETUP)


@jit
def _multiply(rows, n, p, s, m, width, chunk, tile):
    """Multiply the chunk that L1 holds: all its base blocks of K."""
    half = s[L1_TURN]
    a, b = p["a1"] + half * p["a1_bytes"], p["b1"] + half * p["b1_bytes"]
    n = emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, LOAD_B, tile)
    n = emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, LOAD_L0, tile)
    for k_at in range(0, chunk, p["base_k"]):
        k = min(p["base_k"], chunk - k_at)
        turn = s[L0_TURN]
        n = emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, turn, LOAD_L0, tile)
        n = _load_a(rows, n, p, turn * p["l0a_half"], a, chunk, k_at, m, k, tile)
        n = _load_b(rows, n, p, turn * p["l0b_half"], b, chunk, k_at, width, k, tile)
        if k_at + k == chunk:
            n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, LOAD_L0, tile)
        n = emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, turn, LOAD_L0, tile)
        n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, turn, MMAD, tile)
        first = s[K_AT] == 0 and k_at == 0
        if first:
            n = emit_wait_flag(rows, n, Pipe.FIX, Pipe.M, s[L0C_TURN], MMAD, tile)
        # whole fractals of rows: one row alone would switch the Cube to its vector mode
        mode = (Mode.INIT if first else 0) | (Mode.K_ALIGN if p["item"] == 4 else 0)
        n = emit_mmad(
            rows, n, s[L0C_TURN] * p["l0c_half"], turn * p["l0a_half"], turn * p["l0b_half"], p["data"],
            ceil_div(m, 16) * 16, width, k,
            mode, MMAD, tile,
        )  # fmt: skip
        if ceil_div(m, 16) * 16 * width < MMAD_BARRIER_ELEMS:
            n = emit_pipe_barrier(rows, n, Pipe.M, MMAD, tile)
        n = emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, turn, MMAD, tile)
        s[L0_TURN] = 1 - turn
    return n


@jit
def _store(rows, n, p, s, batch, m_at, m, n_at, width, tile):
    """Write the finished block of C."""
    turn = s[L0C_TURN]
    n = emit_set_flag(rows, n, Pipe.M, Pipe.FIX, turn, MMAD, tile)
    n = emit_wait_flag(rows, n, Pipe.M, Pipe.FIX, turn, STORE, tile)
    address = p["c"] + ((batch * p["m"] + m_at) * p["n"] + n_at) * p["c_item"]
    n = emit_fixpipe(
        rows, n, Space.GM, address, turn * p["l0c_half"], p["c_data"], m, width, ceil_div(m, 16) * 16, p["n"], 1, 0, 0,
        Mode.NZ2ND, p["c_tensor"], STORE, tile,
    )  # fmt: skip
    n = emit_set_flag(rows, n, Pipe.FIX, Pipe.M, turn, STORE, tile)
    s[L0C_TURN] = 1 - turn
    return n


@jit
def _step(rows, n, p, s):
    """One chunk of K of one block of C."""
    tile = s[BLOCK_AT]
    n_count = ceil_div(p["n"], p["base_n"])
    m_count = ceil_div(p["m"], p["base_m"])
    n_at = tile % n_count * p["base_n"]
    m_at = tile // n_count % m_count * p["base_m"]
    batch = tile // n_count // m_count
    m, width = min(p["base_m"], p["m"] - m_at), min(p["base_n"], p["n"] - n_at)
    chunk = min(p["chunk_k"], p["k"] - s[K_AT])
    half = s[L1_TURN]
    n = emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, LOAD_A, tile)
    n = _fetch_a(rows, n, p, p["a1"] + half * p["a1_bytes"], batch, m_at, m, s[K_AT], chunk, tile)
    n = _fetch_b(rows, n, p, p["b1"] + half * p["b1_bytes"], n_at, width, s[K_AT], chunk, tile)
    n = _multiply(rows, n, p, s, m, width, chunk, tile)
    s[L1_TURN] = 1 - half
    s[K_AT] += chunk
    if s[K_AT] == p["k"]:
        n = _store(rows, n, p, s, batch, m_at, m, n_at, width, tile)
        s[K_AT] = 0
        s[BLOCK_AT] += 1
    return n


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]``.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer, at least ``step_rows`` long.
    params : `plan.MATMUL_PARAMS`[1]
        Extents, places and base blocks.
    state : int64[STATE_LENGTH]
        2 stage, 3 next block of C, 4 end, 5 next k, 6-8 buffers in turn.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == DONE:
        return n
    if s[STAGE] == START:
        blocks = ceil_div(p["m"], p["base_m"]) * ceil_div(p["n"], p["base_n"]) * p["batch"]
        s[BLOCK_AT], s[BLOCK_END] = core_share(blocks, p["cores"], s[0])
        n = _setup(rows, n, p)
        s[STAGE] = WORK
    while s[STAGE] == WORK:
        if s[BLOCK_AT] == s[BLOCK_END]:
            s[STAGE] = FINISH
        elif len(rows) - n < p["step_rows"]:
            return n
        else:
            n = _step(rows, n, p, s)
    if len(rows) - n < 16:
        return n
    n = _flags(rows, n, 1, END)
    if p["hf32"] != 0:
        n = emit_set_hf32(rows, n, 0, END, -1)
    s[STAGE] = DONE
    return n
