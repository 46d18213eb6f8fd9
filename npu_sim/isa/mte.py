"""Semantics of the data movers: DataCopy, ND2NZ, LoadData 2D, LoadDataWithTranspose, InitConstValue.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (DataCopy, LoadData, LoadDataWithTranspose, InitConstValue) and its
reference scripts ``examples/.../load_data_l12l0/scripts``. Addresses and strides in bytes unless said otherwise.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.lanes import copy_bytes, decode_fractal_transposed, decode_rows
from npu_sim.isa.op import Data, Mode

BLOCK = 32
FRACTAL = 512


@jit
def item_bytes(dtype):
    """Return the bytes of one element of a `Data` code."""
    if dtype == Data.FP32 or dtype == Data.INT32:
        return 4
    if dtype == Data.INT8 or dtype == Data.UINT8:
        return 1
    if dtype == Data.INT64:
        return 8
    return 2


@jit
def copy_blocks(dst, dst_at, src, src_at, block_count, block_bytes, src_step, dst_step):
    """Copy ``block_count`` blocks of ``block_bytes`` between two uint8 arenas (disjoint ranges)."""
    for i in range(block_count):
        copy_bytes(dst, dst_at + i * dst_step, src, src_at + i * src_step, block_bytes)


@jit
def nd2nz(dst, dst_at, src, src_at, row):
    """DataCopy ND2NZ: row-major matrices in GM to [C0 column][row][C0] in L1; the last column's tail becomes 0."""
    item = item_bytes(row["dtype"])
    c0 = BLOCK // item
    d_value = np.int64(row["d_value"])
    n_value = np.int64(row["n_value"])
    src_row = np.int64(row["src_d_value"]) * item
    column = np.int64(row["dst_c0_stride"]) * BLOCK
    step = np.int64(row["dst_n_stride"]) * BLOCK
    columns = (d_value + c0 - 1) // c0
    for z in range(np.int64(row["nd_num"])):
        s0 = src_at + z * np.int64(row["src_nd_stride"]) * item
        d0 = dst_at + z * np.int64(row["dst_nd_stride"]) * item
        for r in range(n_value):
            for c in range(columns):
                d = d0 + c * column + r * step
                s = s0 + r * src_row + c * BLOCK
                valid = min(c0, d_value - c * c0) * item
                copy_bytes(dst, d, src, s, valid)
                for i in range(valid, BLOCK):
                    dst[d + i] = 0


@jit
def load_2d_to_l0(dst, src, row):
    """LoadData2D into L0A or L0B carriers: whole fractals, optionally transposed inside.

    Carriers are k-major while an architectural L0A fractal has m (L0B: n) as rows, so the *transposing* load is the
    straight copy here, and the plain one transposes.
    """
    dtype = row["dtype"]
    first = np.int64(row["dst"]) // FRACTAL
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    step = np.int64(row["src_stride"]) * FRACTAL
    gap = np.int64(row["dst_gap"]) + 1
    if row["mode"] & Mode.TRANSPOSE:
        for i in range(np.int64(row["repeat"])):
            decode_rows(dtype, src, base + i * step, BLOCK, dst, (first + i * gap) * 256, 16, 16)
    else:
        for i in range(np.int64(row["repeat"])):
            decode_fractal_transposed(dtype, src, base + i * step, dst, (first + i * gap) * 256)


@jit
def load_2d_to_l1(dst, src, row):
    """LoadData2D from GM into L1: whole fractals, bytes unchanged."""
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * FRACTAL
    step = np.int64(row["src_stride"]) * FRACTAL
    gap = (np.int64(row["dst_gap"]) + 1) * FRACTAL
    copy_blocks(dst, np.int64(row["dst"]), src, base, np.int64(row["repeat"]), FRACTAL, step, gap)


@jit
def load_transpose(dst, src, row):
    """LoadDataWithTranspose into carriers: squares of 16x16 elements.

    16-bit: one fractal a square. 32-bit: two fractals F0 (columns 0-7) and F1 (columns 8-15), which become the two
    fractals of the transposed square: k 0-7 and k 8-15 of the 16 source columns' rows.
    """
    dtype = row["dtype"]
    first = np.int64(row["dst"]) // FRACTAL
    wide = item_bytes(dtype) == 4
    square = 2 * FRACTAL if wide else FRACTAL
    base = np.int64(row["src0"]) + np.int64(row["start_index"]) * square
    step = np.int64(row["src_stride"]) * square
    for i in range(np.int64(row["repeat"])):
        s = base + i * step
        if wide:
            # square[r][c] = F(c // 8)[r][c % 8]; the transposed square's fractal j holds T[r][8 j + c], which is
            # square[8 j + c][r], so its carriers (k = c, m = r) are row 8 j + c of the source: 8 of F0, then 8 of F1
            for j in range(2):
                target = (first + i * (np.int64(row["dst_gap"]) + 1) + j * (np.int64(row["dst_frac_gap"]) + 1)) * 256
                decode_rows(dtype, src, s + j * 8 * BLOCK, BLOCK, dst, target, 16, 8)
                decode_rows(dtype, src, s + FRACTAL + j * 8 * BLOCK, BLOCK, dst, target + 8, 16, 8)
        else:
            target = (first + i * (np.int64(row["dst_gap"]) + 1)) * 256
            decode_rows(dtype, src, s, BLOCK, dst, target, 16, 16)


@jit
def fill_bytes(dst, row):
    """InitConstValue in L1: ``repeat`` runs of ``block_num`` 32-byte blocks, ``dst_gap`` blocks apart."""
    item = item_bytes(row["dtype"])
    value = np.int64(row["value"])
    length = np.int64(row["block_num"]) * BLOCK
    step = length + np.int64(row["dst_gap"]) * BLOCK
    for i in range(np.int64(row["repeat"])):
        at = np.int64(row["dst"]) + i * step
        if value == 0:
            dst[at : at + length] = 0
        else:
            for j in range(length):
                dst[at + j] = (value >> (8 * (j % item))) & 0xFF


@jit
def fill_l0(dst, row, scratch):
    """InitConstValue in L0A or L0B: the value decoded once, then whole fractals of carriers."""
    dtype = row["dtype"]
    item = item_bytes(dtype)
    value = np.int64(row["value"])
    block = np.zeros(BLOCK, np.uint8)
    for j in range(BLOCK):
        block[j] = (value >> (8 * (j % item))) & 0xFF
    decode_rows(dtype, block, 0, BLOCK, scratch, 0, 16, 1)
    carriers = 128 if item == 4 else 256
    count = np.int64(row["block_num"])
    for i in range(np.int64(row["repeat"])):
        fractal = np.int64(row["dst"]) // FRACTAL + i * (count + np.int64(row["dst_gap"]))
        for f in range(fractal, fractal + count):
            dst[f * 256 : f * 256 + carriers] = scratch[0]


@jit
def is_carried(dtype):
    """Return whether L0A and L0B can hold elements of ``dtype``: floats and raw 32-bit words."""
    return dtype == Data.FP16 or dtype == Data.BF16 or dtype == Data.FP32 or dtype == Data.INT32
