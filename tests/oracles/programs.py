"""Small programs for the checkers: random ones, and a double-buffered matrix product that is free of hazards."""

from __future__ import annotations

import numpy as np

from npu_sim.isa import emit
from npu_sim.isa.issue import CORE_STATE_LENGTH, issue
from npu_sim.isa.op import Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows

GM_TABLE = np.array([[0, 1000, 1536, 1], [1536, 500, 1024, 0]], np.int64)
"""One input and one output that nobody has written yet."""

SYNC_OPS = (Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER)
_PIPES = (Pipe.MTE2, Pipe.MTE1, Pipe.M, Pipe.FIX, Pipe.V, Pipe.MTE3)


def issued(rows):
    """Return a copy of ``rows`` after `issue`."""
    rows = rows.copy()
    issue(rows, len(rows), np.zeros(CORE_STATE_LENGTH, np.int64))
    return rows


def waits_behind_their_sets(rows):
    """Return (which rows stay without sets of set flags and waits for unset ones, places of sets nobody clears)."""
    keep, held = np.ones(len(rows), np.bool_), {}
    for i, row in enumerate(rows):
        if row["op"] == Op.SET_FLAG:
            key = int(row["pipe"]), int(row["peer"]), int(row["event"])
            keep[i] = key not in held
            held.setdefault(key, i)
        elif row["op"] == Op.WAIT_FLAG:
            keep[i] = held.pop((int(row["peer"]), int(row["pipe"]), int(row["event"])), None) is not None
    return keep, list(held.values())


def _pick(rng, options):
    return options[int(rng.integers(len(options)))]


def _gm_place(rng, length):
    tensor = int(rng.integers(2))
    address, byte_count, _, _ = GM_TABLE[tensor].tolist()
    return tensor, address + int(rng.integers(0, byte_count + 31 - length))


def _scalar_row(rng, rows, n, dst_space, src_space):
    """One element moved by the scalar unit."""
    places, tensor = [], -1
    for space in (dst_space, src_space):
        place = int(rng.integers(48)) * 4
        if space == Space.GM:
            tensor, place = _gm_place(rng, 8)
        places.append(place // 4 * 4)
    return emit.emit_scalar_copy(rows, n, dst_space, places[0], src_space, places[1], Data.FP32, tensor, 9, n)


def _memory_row(rng, rows, n):
    tile = n
    kind = int(rng.integers(12))
    if kind <= 2:
        blocks = int(rng.integers(1, 4))
        tensor, address = _gm_place(rng, blocks * 32)
        near = _pick(rng, (Space.L1, Space.UB))
        place = int(rng.integers(0, 6)) * 32
        if kind == 2:
            return emit.emit_data_copy(
                rows, n, Space.GM, address, near, place, 1, blocks, 0, 0, Data.FP32, tensor, 1, tile
            )
        return emit.emit_data_copy(rows, n, near, place, Space.GM, address, 1, blocks, 0, 0, Data.FP32, tensor, 1, tile)
    if kind == 3:
        dst = _pick(rng, (Space.L0A, Space.L0B))
        return emit.emit_load_2d(
            rows, n, dst, int(rng.integers(2)) * 512, Space.L1, 0, Data.FP16, 0, 1, 1, 0, 0, -1, 2, tile
        )
    if kind == 4:
        m, size, k = (int(rng.integers(1, 17)) for _ in range(3))
        a, b, c = int(rng.integers(2)) * 512, int(rng.integers(2)) * 512, int(rng.integers(2)) * 1024
        return emit.emit_mmad(rows, n, c, a, b, Data.FP16, m, size, k, _pick(rng, (0, Mode.INIT)), 3, tile)
    if kind == 5:
        m, size = int(rng.integers(1, 5)), int(rng.integers(1, 9))
        tensor, address = _gm_place(rng, 4 * (m * 9 + size))
        return emit.emit_fixpipe(
            rows,
            n,
            Space.GM,
            address,
            int(rng.integers(2)) * 1024,
            Data.FP32,
            m,
            size,
            16,
            9,
            1,
            0,
            0,
            Mode.NZ2ND,
            tensor,
            4,
            tile,
        )
    if kind == 6:
        return emit.emit_duplicate(
            rows, n, int(rng.integers(0, 6)) * 32, Data.FP16, int(rng.integers(1, 70)), 0, 5, tile
        )
    if kind == 7:
        places = [int(rng.integers(0, 6)) * 32 for _ in range(3)]
        return emit.emit_add(rows, n, *places, Data.FP16, int(rng.integers(1, 70)), 6, tile)
    if kind == 8:
        paths = ((Space.UB, Space.UB), (Space.UB, Space.GM), (Space.GM, Space.UB))
        return _scalar_row(rng, rows, n, *_pick(rng, paths))
    if kind == 9:
        length = int(rng.integers(1, 70))
        tensor, address = _gm_place(rng, length)
        place = int(rng.integers(0, 6)) * 32
        dst, src = (Space.UB, place), (Space.GM, address)
        if rng.integers(2):
            dst, src = src, dst
        return emit.emit_data_copy_pad(rows, n, *dst, *src, 1, length, 0, 0, 0, 0, 0, 0, Data.INT8, tensor, 9, tile)
    if kind == 10:
        for name, first in (("set_src_address", 0), ("set_dst_address", int(rng.integers(2)) * 192)):
            for i in range(16):
                getattr(emit, name)(rows, n, i, first + 32 * int(rng.integers(6)))
        return emit.emit_trans_data_to_5hd(rows, n, Data.FP16, 1, 0, 0, 10, tile)
    return emit.emit_fill(rows, n, Space.L1, int(rng.integers(0, 6)) * 32, Data.FP16, 1, 2, 0, 0, 7, tile)


def random_program(rng, length, *, sync=0.45):
    """Return about ``length`` rows of random accesses to little memory, with random flags and barriers in between."""
    rows = empty_rows(length + 2)
    n = 0
    pending = []
    while n < length:
        if rng.random() >= sync:
            n = _memory_row(rng, rows, n)
            continue
        kind = rng.random()
        if pending and kind < 0.45:
            n = emit.emit_wait_flag(rows, n, *pending.pop(int(rng.integers(len(pending)))), 8, n)
        elif kind < 0.85:
            pipes = (*_PIPES, Pipe.S) if rng.random() < 0.4 else _PIPES
            src = _pick(rng, pipes)
            dst = _pick(rng, [pipe for pipe in pipes if pipe != src])
            flag = src, dst, int(rng.integers(2))
            n = emit.emit_set_flag(rows, n, *flag, 8, n)
            pending.append(flag)
        elif kind < 0.9:
            n = emit.emit_pipe_barrier(rows, n, _pick(rng, (Pipe.ALL, Pipe.M, Pipe.V)), 8, n)
        elif kind < 0.95:
            n = emit.emit_set_atomic(rows, n, _pick(rng, (Data.FP32, Data.NONE)), 8, n)
        else:
            src, dst = rng.permutation(len(_PIPES))[:2]
            n = emit.emit_wait_flag(rows, n, _PIPES[src], _PIPES[dst], int(rng.integers(2)), 8, n)
    return issued(rows[:n])


SITE_COPY, SITE_L0A, SITE_L0B, SITE_MMAD, SITE_DRAIN, SITE_SYNC = range(1, 7)
PRODUCT_TABLE = np.array([[0, 4096, 4608, 1], [4608, 4096, 4608, 1], [9216, 8192, 8704, 0]], np.int64)
"""A (steps x 16x16 half), B (the same), C (tiles x 16x16 float)."""


def double_buffered_product(tiles, steps):
    """Return the rows of ``tiles`` products of ``steps`` 16x16x16 steps: two buffers in L1, L0A, L0B and L0C each."""
    rows = empty_rows(40 * tiles * (steps + 2) + 40)
    n = 0
    for half in range(2):
        n = emit.emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, SITE_SYNC, -1)
        n = emit.emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, half, SITE_SYNC, -1)
        n = emit.emit_set_flag(rows, n, Pipe.FIX, Pipe.M, half, SITE_SYNC, -1)
    counter = 0
    for tile in range(tiles):
        out = tile & 1
        n = emit.emit_wait_flag(rows, n, Pipe.FIX, Pipe.M, out, SITE_SYNC, tile)
        for step in range(steps):
            half = counter & 1
            counter += 1
            at = half * 2048
            source = step % 8 * 512
            n = emit.emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, SITE_SYNC, tile)
            copy = (1, 16, 0, 0, Data.FP16)
            n = emit.emit_data_copy(rows, n, Space.L1, at, Space.GM, source, *copy, 0, SITE_COPY, tile)
            n = emit.emit_data_copy(rows, n, Space.L1, at + 512, Space.GM, 4608 + source, *copy, 1, SITE_COPY, tile)
            n = emit.emit_set_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, SITE_SYNC, tile)
            n = emit.emit_wait_flag(rows, n, Pipe.MTE2, Pipe.MTE1, half, SITE_SYNC, tile)
            n = emit.emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, half, SITE_SYNC, tile)
            load = (Data.FP16, 0, 1, 1, 0, 0, -1)
            n = emit.emit_load_2d(rows, n, Space.L0A, half * 512, Space.L1, at, *load, SITE_L0A, tile)
            n = emit.emit_load_2d(rows, n, Space.L0B, half * 512, Space.L1, at + 512, *load, SITE_L0B, tile)
            n = emit.emit_set_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, SITE_SYNC, tile)
            n = emit.emit_set_flag(rows, n, Pipe.MTE1, Pipe.M, half, SITE_SYNC, tile)
            n = emit.emit_wait_flag(rows, n, Pipe.MTE1, Pipe.M, half, SITE_SYNC, tile)
            mode = Mode.INIT if step == 0 else 0
            n = emit.emit_mmad(
                rows, n, out * 1024, half * 512, half * 512, Data.FP16, 16, 16, 16, mode, SITE_MMAD, tile
            )
            n = emit.emit_set_flag(rows, n, Pipe.M, Pipe.MTE1, half, SITE_SYNC, tile)
        n = emit.emit_set_flag(rows, n, Pipe.M, Pipe.FIX, out, SITE_SYNC, tile)
        n = emit.emit_wait_flag(rows, n, Pipe.M, Pipe.FIX, out, SITE_SYNC, tile)
        n = emit.emit_fixpipe(
            rows,
            n,
            Space.GM,
            9216 + tile % 8 * 1024,
            out * 1024,
            Data.FP32,
            16,
            16,
            16,
            32,
            1,
            0,
            0,
            0,
            2,
            SITE_DRAIN,
            tile,
        )
        n = emit.emit_set_flag(rows, n, Pipe.FIX, Pipe.M, out, SITE_SYNC, tile)
    for half in range(2):
        n = emit.emit_wait_flag(rows, n, Pipe.MTE1, Pipe.MTE2, half, SITE_SYNC, -1)
        n = emit.emit_wait_flag(rows, n, Pipe.M, Pipe.MTE1, half, SITE_SYNC, -1)
        n = emit.emit_wait_flag(rows, n, Pipe.FIX, Pipe.M, half, SITE_SYNC, -1)
    return rows[:n].copy()
