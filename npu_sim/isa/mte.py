"""Sizes and copies that the data movers share. Addresses and strides in bytes."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Flag, Int, jit
from npu_sim.dtypes.formats import DTYPE_OF_DATA
from npu_sim.isa.codes import Data
from npu_sim.isa.lanes import copy_bytes
from npu_sim.units import BLOCK_BYTES, FRACTAL_BYTES

BLOCK, FRACTAL = BLOCK_BYTES, FRACTAL_BYTES


ITEM_BYTES_OF_CODE = np.zeros(256, np.int64)
for _data, _dtype in DTYPE_OF_DATA.items():
    ITEM_BYTES_OF_CODE[_data] = _dtype.item_bytes


@jit
def item_bytes(dtype: Int) -> Int:
    """Return the bytes of one element of a `Data` code; 0 for a code that names no type."""
    # not from the table: known sizes make divisions shifts, 7 % of a Cube kernel's time
    if dtype == Data.FP32 or dtype == Data.INT32:
        return 4
    if dtype == Data.FP16 or dtype == Data.BF16 or dtype == Data.INT16:
        return 2
    if dtype == Data.INT8 or dtype == Data.UINT8:
        return 1
    return 8 if dtype == Data.INT64 else 0


@jit
def copy_blocks(
    dst: np.ndarray,
    dst_at: Int,
    src: np.ndarray,
    src_at: Int,
    block_count: Int,
    block_bytes: Int,
    src_step: Int,
    dst_step: Int,
) -> None:
    """Copy ``block_count`` blocks of ``block_bytes`` between two uint8 arenas (disjoint ranges)."""
    for i in range(block_count):
        copy_bytes(dst, dst_at + i * dst_step, src, src_at + i * src_step, block_bytes)


@jit
def is_carried(dtype: Int) -> Flag:
    """Return whether L0A and L0B can hold elements of ``dtype``: floats and raw 32-bit words."""
    return dtype == Data.FP16 or dtype == Data.BF16 or dtype == Data.FP32 or dtype == Data.INT32
