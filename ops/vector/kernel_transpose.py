"""Kernel of Transpose [rows][columns] -> [columns][rows]: tiles through UB, 16 rows per TransDataTo5HD.

There is one input and one output buffer: the pipes of profiled transposes work one after the other, as those of
TransData do (their busy times add up to nine tenths of the core time).
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import set_dst_address, set_src_address
from ops.common.kernel_parts import BLOCK, ceil_div, core_share
from ops.common.queues import alloc, close_queues, deque, enque, free, open_queues
from ops.vector.kernel_frame import IN, NO_END, OUT, load_rows, store_rows, turn

LOAD, TURN, STORE, SYNC = range(4)
SITES = {LOAD: "LOAD", TURN: "TURN", STORE: "STORE", SYNC: "SYNC"}
BUFFER = 0
"""Event of the only buffer of IN and of OUT."""
SIDE = 16
"""Rows that one TransDataTo5HD turns."""


@jit
def _turn(rows, n, p, source, target, height, width, tile):
    """Transpose a tile in UB, 16 rows at a time; rows beyond the last are read as copies of it."""
    blocks = ceil_div(width * p.item, BLOCK)
    src_pitch, dst_pitch = p.tile_columns * p.item, p.tile_rows * p.item
    for first in range(0, height, SIDE):
        for i in range(SIDE):
            set_src_address(rows, n, i, source + min(first + i, height - 1) * src_pitch)
            if p.item == 2:
                set_dst_address(rows, n, i, target + i * dst_pitch + first * p.item)
            else:
                set_dst_address(rows, n, i, target + i // 2 * dst_pitch + first * p.item + i % 2 * BLOCK)
        n = turn(rows, n, p.data, blocks, p.tile_rows, 1, TURN, tile)
    return n


@jit
def _tile(rows, n, p, task, tile):
    """Transpose one tile."""
    source, target = 0, p.target
    row, column = task // p.column_tiles * p.tile_rows, task % p.column_tiles * p.tile_columns
    height, width = min(p.tile_rows, p.rows - row), min(p.tile_columns, p.columns - column)

    n = alloc(rows, n, IN, BUFFER, LOAD, tile)
    n = load_rows(
        rows, n, ub=source, gm=p.src + (row * p.columns + column) * p.item, count=height, length=width * p.item,
        ub_step=p.tile_columns * p.item, gm_step=p.columns * p.item, exact=1, dtype=p.data, tensor=p.src_tensor,
        site=LOAD, tile=tile,
    )  # fmt: skip
    n = enque(rows, n, IN, BUFFER, LOAD, tile)

    n = deque(rows, n, IN, BUFFER, TURN, tile)
    n = alloc(rows, n, OUT, BUFFER, TURN, tile)
    n = _turn(rows, n, p, source, target, height, width, tile)
    n = free(rows, n, IN, BUFFER, TURN, tile)
    n = enque(rows, n, OUT, BUFFER, TURN, tile)

    n = deque(rows, n, OUT, BUFFER, STORE, tile)
    n = store_rows(
        rows, n, gm=p.dst + (column * p.rows + row) * p.item, ub=target, count=width, length=height * p.item,
        gm_step=p.rows * p.item, ub_step=p.tile_rows * p.item, end=NO_END, exact=1, dtype=p.data, tensor=p.dst_tensor,
        site=STORE, tile=tile,
    )  # fmt: skip
    return free(rows, n, OUT, BUFFER, STORE, tile)


@jit
def transpose(rows, params, core, phase):
    """Turn the tiles of ``core``; see `npu_sim.program.launch.Launch`.

    ``params``: `transpose.TRANSPOSE_PARAMS`[1], extents in elements, places in bytes.
    """
    p = params[0]
    first, end = core_share(p.tasks, p.cores, core)
    if first == end:
        return
    n = open_queues(rows, 0, (IN, OUT), 1, SYNC)
    for tile in range(end - first):
        if n + p.step_rows > len(rows):
            yield n
            n = 0
        n = _tile(rows, n, p, first + tile, tile)
    yield close_queues(rows, n, (IN, OUT), 1, SYNC)
