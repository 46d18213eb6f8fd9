"""Emitter of Transpose [rows][columns] -> [columns][rows]: tiles through UB, 16 rows per TransDataTo5HD."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import (
    emit_set_flag,
    emit_trans_data_to_5hd,
    emit_wait_flag,
    set_dst_address,
    set_src_address,
)
from npu_sim.isa.op import Pipe
from ops.common.kernel_parts import BLOCK, core_share
from ops.vector.kernel_frame import hand_to_store, hand_to_vector, load_rows, prime_halves, store_rows

LOAD, TURN, STORE, SYNC = range(4)
SITES = {LOAD: "LOAD", TURN: "TURN", STORE: "STORE", SYNC: "SYNC"}
STAGE, AT, END, TILE = 2, 3, 4, 5
START, WORK, DONE = range(3)
SIDE = 16
"""Rows that one TransDataTo5HD turns."""


@jit
def _turn(rows, n, p, source, target, valid_rows, blocks, tile):
    """Transpose a tile in UB, 16 rows at a time; rows beyond the last are read as copies of it."""
    item = p["item"]
    pitch, height = p["tile_columns"] * item, p["tile_rows"] * item
    for first in range(0, valid_rows, SIDE):
        for i in range(SIDE):
            set_src_address(rows, n, i, source + min(first + i, valid_rows - 1) * pitch)
            if item == 2:
                set_dst_address(rows, n, i, target + i * height + first * item)
            else:
                set_dst_address(rows, n, i, target + i // 2 * height + first * item + i % 2 * BLOCK)
        dst_step, src_step = np.int64(p["tile_rows"]), np.int64(1)
        if blocks == 1:
            dst_step, src_step = np.int64(0), np.int64(0)
        n = emit_trans_data_to_5hd(rows, n, p["data"], blocks, dst_step, src_step, TURN, tile)
    return n


@jit
def _task(rows, n, p, task, tile):
    """Transpose one tile through half ``tile & 1``."""
    half, item = tile & 1, p["item"]
    first_row = task // p["column_tiles"] * p["tile_rows"]
    first_column = task % p["column_tiles"] * p["tile_columns"]
    height = np.int64(min(p["tile_rows"], p["rows"] - first_row))
    width = np.int64(min(p["tile_columns"], p["columns"] - first_column))
    blocks = np.int64((width * item + BLOCK - 1) // BLOCK)
    source, target = half * p["half"], p["target"] + half * p["half"]
    n = emit_wait_flag(rows, n, Pipe.V, Pipe.MTE2, half, LOAD, tile)
    n = load_rows(
        rows,
        n,
        source,
        p["src"] + (first_row * p["columns"] + first_column) * item,
        height,
        np.int64(width * item),
        np.int64(p["tile_columns"] * item),
        np.int64(p["columns"] * item),
        1,
        p["data"],
        p["src_tensor"],
        LOAD,
        tile,
    )
    n = hand_to_vector(rows, n, half, LOAD, TURN, tile)
    n = _turn(rows, n, p, source, target, height, blocks, tile)
    n = hand_to_store(rows, n, half, TURN, STORE, tile)
    n = store_rows(
        rows,
        n,
        p["dst"] + (first_column * p["rows"] + first_row) * item,
        target,
        width,
        np.int64(height * item),
        np.int64(p["rows"] * item),
        np.int64(p["tile_rows"] * item),
        0,
        1,
        p["data"],
        p["dst_tensor"],
        STORE,
        tile,
    )
    return emit_set_flag(rows, n, Pipe.MTE3, Pipe.V, half, STORE, tile)


@jit
def emit(rows, params, state):
    """Write the next rows of core ``state[0]``.

    Parameters
    ----------
    rows : INSTR[:]
        Buffer.
    params : `transpose.TRANSPOSE_PARAMS`[1]
        Extents in elements, places in bytes.
    state : int64[STATE_LENGTH]
        2 stage, 3 next task, 4 end, 5 tasks done.

    Returns
    -------
    int
        Rows written; 0 when the phase is over.
    """
    p = params[0]
    s = state
    n = 0
    if s[STAGE] == START:
        s[AT], s[END] = core_share(p["tasks"], p["cores"], s[0])
        s[STAGE] = WORK if s[AT] < s[END] else DONE
        if s[STAGE] == WORK:
            n = prime_halves(rows, n, 0, SYNC)
    while s[STAGE] == WORK and n + p["step_rows"] <= len(rows):
        if s[AT] == s[END]:
            n = prime_halves(rows, n, 1, SYNC)
            s[STAGE] = DONE
        else:
            n = _task(rows, n, p, s[AT], s[TILE])
            s[AT] += 1
            s[TILE] += 1
    return n
