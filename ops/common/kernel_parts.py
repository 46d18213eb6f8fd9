"""Small jitted pieces that every kernel needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.emit import emit_data_copy
from npu_sim.isa.op import Op, Space, highest
from npu_sim.units import BLOCK_BYTES

BLOCK = BLOCK_BYTES
"""Bytes of one block: the unit of copies, and one pixel of one channel block."""

MAX_BLOCK_COUNT = highest(Op.DATA_COPY, "block_count")
MAX_FIELD = highest(Op.DATA_COPY, "block_len")
"""Largest number of blocks, and largest length or gap (in blocks), of a DataCopy."""


@jit
def ceil_div(a: Int, b: Int) -> Int:
    """Return a / b rounded up, for non-negative integers."""
    return (a + b - 1) // b


@jit
def core_share(items: Int, cores: Int, core: Int) -> Any:
    """Return the contiguous range [first, end) of ``core``; the first ``items % cores`` cores get one item more."""
    share, extra = items // cores, items % cores
    first = core * share + min(core, extra)
    return first, first + share + (1 if core < extra else 0)


@jit
def copy_planes(
    rows: np.ndarray,
    n: Int,
    dst: Int,
    src: Int,
    planes: Int,
    length: Int,
    dst_plane: Int,
    src_plane: Int,
    data: Int,
    tensor: Int,
    site: Int,
    tile: Int,
) -> Int:
    """Copy ``length`` pixels of each of ``planes`` channel planes from GM to L1.

    ``dst_plane`` and ``src_plane`` are the distances between planes in pixels. One row, or one row for each plane where
    a field would not hold the number of planes or the gap between two; ``length`` always fits, because L1 holds it.
    """
    apart = src_plane - length > MAX_FIELD or planes > MAX_BLOCK_COUNT
    calls, count = (planes, 1) if apart else (1, planes)
    src_gap, dst_gap = (0, 0) if apart else (src_plane - length, dst_plane - length)
    for c in range(calls):
        n = emit_data_copy(
            rows, n, dst_space=Space.L1, dst=dst + c * dst_plane * BLOCK, src_space=Space.GM,
            src=src + c * src_plane * BLOCK, block_count=count, block_len=length, src_gap=src_gap, dst_gap=dst_gap,
            dtype=data, tensor=tensor, site=site, tile=tile,
        )  # fmt: skip
    return n


@jit
def copy_runs(
    rows: np.ndarray,
    n: Int,
    dst_space: Int,
    dst: Int,
    src_space: Int,
    src: Int,
    count: Int,
    length: Int,
    src_step: Int,
    dst_step: Int,
    data: Int,
    tensor: Int,
    site: Int,
    tile: Int,
) -> Int:
    """DataCopy of any number of runs of ``length`` blocks that begin ``src_step`` and ``dst_step`` blocks apart.

    One row for every `MAX_BLOCK_COUNT` runs, or one for each where a field would not hold the gap between two.
    """
    fits = src_step - length <= MAX_FIELD and dst_step - length <= MAX_FIELD
    for first in range(0, count, MAX_BLOCK_COUNT if fits else 1):
        runs = min(count - first, MAX_BLOCK_COUNT) if fits else 1
        n = emit_data_copy(
            rows, n, dst_space=dst_space, dst=dst + first * dst_step * BLOCK,
            src_space=src_space, src=src + first * src_step * BLOCK, block_count=runs, block_len=length,
            src_gap=src_step - length if runs > 1 else 0, dst_gap=dst_step - length if runs > 1 else 0,
            dtype=data, tensor=tensor, site=site, tile=tile,
        )  # fmt: skip
    return n


@jit
def copy_pixels(
    rows: np.ndarray,
    n: Int,
    dst: Int,
    src: Int,
    planes: Int,
    first: Int,
    count: Int,
    columns: Int,
    row_step: Int,
    column_step: Int,
    dst_plane: Int,
    src_plane: Int,
    data: Int,
    tensor: Int,
    site: Int,
    tile: Int,
) -> Int:
    """Copy ``count`` pixels of a part of each of ``planes`` channel planes from GM to L1, where they are dense.

    The part has ``columns`` columns and begins at ``src``; its pixels are counted row by row, from ``first`` on. Its
    rows begin ``row_step`` and its columns ``column_step`` pixels apart, planes as in `copy_planes`. At most
    `copy_pixels_rows` rows.
    """
    row, column = divmod(first, columns)
    if column_step == 1 and (row_step == columns or column + count <= columns):
        return copy_planes(
            rows, n, dst=dst, src=src + (row * row_step + column) * BLOCK, planes=planes, length=count,
            dst_plane=dst_plane, src_plane=src_plane, data=data, tensor=tensor, site=site, tile=tile,
        )  # fmt: skip
    for plane in range(planes):
        done = 0
        while done < count:
            row, column = divmod(first + done, columns)
            # as many whole rows as there are, or what there is of one
            runs, length, step = (count - done) // columns, columns, row_step
            if column > 0 or runs == 0 or (column_step > 1 and columns > 1):
                runs, length = 1, min(columns - column, count - done)
                if column_step > 1:
                    runs, length, step = length, 1, column_step
            at = plane * src_plane + row * row_step + column * column_step
            n = copy_runs(
                rows, n, dst_space=Space.L1, dst=dst + (plane * dst_plane + done) * BLOCK, src_space=Space.GM,
                src=src + at * BLOCK, count=runs, length=length, src_step=step, dst_step=length, data=data,
                tensor=tensor, site=site, tile=tile,
            )  # fmt: skip
            done += runs * length
    return n


def copy_pixels_rows(planes: int, runs: int, step: int) -> int:
    """Return how many rows `copy_pixels` writes at most for ``runs`` rows of a part, ``step`` pixels apart."""
    return planes * (2 + (runs if step > MAX_FIELD else -(-runs // MAX_BLOCK_COUNT)))
