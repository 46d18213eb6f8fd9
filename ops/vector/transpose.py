"""The Transpose launch: a matrix turned over, as the pooling gradient on vector cores needs it (NCDHW <-> NDHWC).

Source: asc-devkit ``docs/zh/api/SIMD-API``, TransDataTo5HD (16-bit and 32-bit figures). ASSUMED, because the library's
schedule is closed: tiles as square as UB allows; one tile a task.
"""

from __future__ import annotations

from functools import partial
from math import isqrt

import numpy as np

from npu_sim.crew import run_parts
from npu_sim.errors import ProductError, ShapeError
from npu_sim.isa.op import Data
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import align_up, ceil_div
from ops.common.records import int_fields, record, tensor_fields
from ops.vector import kernel_transpose
from ops.vector.frame import cores_for, has_byte_copies, usable_ub_bytes, vector_launch
from ops.vector.kernel_transpose import SIDE

_DATA = {2: Data.FP16, 4: Data.FP32}
_BULK_ROWS = 32
"""Rows the shortcut turns at a time: two cache lines of halves in the result."""

TRANSPOSE_PARAMS = int_fields(
    "src", "dst", "src_tensor", "dst_tensor", "data", "item", "rows", "columns", "tile_rows", "tile_columns",
    "column_tiles", "tasks", "cores", "target", "step_rows",
)  # fmt: skip
"""What `kernel_transpose` reads: extents in elements, places in bytes; the input is at 0."""


def tile_shape(rows: int, columns: int, item_bytes: int, product: Product) -> tuple[int, int]:
    """Return rows and columns of a tile, multiples of 16; one and its transpose fit UB.

    Square, because rows on either side are as long as a tile is wide or high; where one side is short, the other takes
    what that leaves. Less where cores would idle.
    """
    elems = usable_ub_bytes(product) // (2 * item_bytes)
    high, wide = (align_up(max(extent, 1), SIDE) for extent in (rows, columns))
    side = isqrt(elems) // SIDE * SIDE
    tile_columns = min(wide, max(side, elems // min(high, side) // SIDE * SIDE))
    tile_rows = min(high, max(side, elems // tile_columns // SIDE * SIDE))
    cores = product.vector_core_count
    if (beside := cores // ceil_div(wide, tile_columns)) > 1:
        tile_rows = min(tile_rows, align_up(ceil_div(high, beside), SIDE))
    if (beside := cores // ceil_div(high, tile_rows)) > 1:
        tile_columns = min(tile_columns, align_up(ceil_div(wide, beside), SIDE))
    return tile_rows, tile_columns


def transpose_launch(
    gm: GlobalMemory, src: GmTensor, dst: GmTensor, rows: int, columns: int, item_bytes: int, product: Product
) -> Launch:
    """Return the launch that writes ``src`` [rows][columns] into ``dst`` as [columns][rows].

    Parameters
    ----------
    src, dst : GmTensor
        rows * columns elements.
    rows, columns : int
        Extents of the source.
    item_bytes : {2, 4}
        Bytes of an element.
    product : Product
        One with DataCopyPad (A2, A3): only those have a kernel that needs the transpose.

    Raises
    ------
    ProductError
        The product has no DataCopyPad.
    ShapeError
        Extents or ``item_bytes`` do not match the tensors.
    """
    if not has_byte_copies(product):
        raise ProductError(f"Transpose must run on a product with DataCopyPad, not on {product.name}")
    if item_bytes not in _DATA:
        raise ShapeError(f"item_bytes must be one of 2, 4, not {item_bytes} (Transpose, {product.name})")
    for tensor in (src, dst):
        if min(rows, columns) < 0 or tensor.byte_count != rows * columns * item_bytes:
            rule = f"{rows} x {columns} elements of {item_bytes} bytes"
            raise ShapeError(f"{tensor.name} must be {rule}, not {tensor.byte_count} bytes (Transpose, {product.name})")
    tile_rows, tile_columns = tile_shape(rows, columns, item_bytes, product)
    column_tiles = ceil_div(columns, tile_columns)
    tasks = ceil_div(rows, tile_rows) * column_tiles
    values = {
        **tensor_fields(src=src, dst=dst),
        "data": int(_DATA[item_bytes]), "item": item_bytes, "rows": rows, "columns": columns, "tile_rows": tile_rows,
        "tile_columns": tile_columns, "column_tiles": column_tiles, "tasks": tasks, "cores": cores_for(product, tasks),
        "target": tile_rows * tile_columns * item_bytes, "step_rows": 16 + tile_rows + tile_rows // SIDE + tile_columns,
    }  # fmt: skip
    return vector_launch(
        "Transpose", kernel_transpose.transpose, record(TRANSPOSE_PARAMS, values), gm, kernel_transpose.SITES,
        fixed_cost="transpose",
        shortcut=partial(_transpose_all, src, dst, rows, columns, item_bytes),
    )  # fmt: skip


def _transpose_all(
    src: GmTensor,
    dst: GmTensor,
    rows: int,
    columns: int,
    item_bytes: int,
    memory: GlobalMemory,
    saturate: bool,
    threads: int,
) -> None:
    """Transpose with NumPy, a few rows at a time so that the lines they lie in stay in cache; only bytes move."""
    code = np.dtype(f"u{item_bytes}")
    source = memory.bytes_of(src).view(code).reshape(rows, columns)
    target = memory.bytes_of(dst).view(code).reshape(columns, rows)
    parts = max(1, min(threads, ceil_div(rows, _BULK_ROWS)))
    bounds = [ceil_div(rows * part // parts, _BULK_ROWS) * _BULK_ROWS for part in range(parts)] + [rows]

    def turn(part: int) -> None:
        for first in range(bounds[part], bounds[part + 1], _BULK_ROWS):
            end = min(first + _BULK_ROWS, bounds[part + 1])
            target[:, first:end] = source[first:end].T

    run_parts(turn, parts)
