"""Semantics of TransDataTo5HD and of the sums inside repeats (ReduceRepeat).

Sources: asc-devkit ``docs/zh/api/SIMD-API``, TransDataTo5HD (address lists, repeats, 16- and 32-bit figures),
ReduceRepeat and ReduceDataBlock (binary tree of neighbours). Elements behind the mask count as zeros (ASSUMED).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp16_to_fp32, fp32_to_fp16
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.lanes import decode_rows, transpose_blocks
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.isa.op import Data
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES


@jit
def trans_data_to_5hd(ub, row, staging):
    """TransDataTo5HD: transposes of 16 blocks of 32 bytes anywhere in UB, all read before any is written.

    Parameters
    ----------
    ub : uint8[:]
    row : INSTR record
        16 or 32-bit ``dtype``.
    staging : float32[:]
        Scratch, at least 64.

    Returns
    -------
    bool
        False, with nothing done, if an address is outside UB.
    """
    repeats = np.int64(row["repeat"])
    if repeats == 0:
        return True
    sources, targets = row["src_list"], row["dst_list"]
    src_step, dst_step = np.int64(row["src_rep_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    # A single repeat starts one stride behind the addresses (TransDataTo5HD page).
    src_shift, dst_shift = (src_step, dst_step) if repeats == 1 else (np.int64(0), np.int64(0))
    addresses = reinterpret(staging[:64], np.int64)
    last = np.int64(0)
    for i in range(16):
        addresses[i] = np.int64(sources[i]) * BLOCK + src_shift
        addresses[16 + i] = np.int64(targets[i]) * BLOCK + dst_shift
        last = max(last, addresses[i] + (repeats - 1) * src_step, addresses[16 + i] + (repeats - 1) * dst_step)
    if last + BLOCK > len(ub):
        return False
    wide = item_bytes(row["dtype"]) == 4
    for r in range(repeats):
        transpose_blocks(wide, ub, addresses, r * src_step, r * dst_step)
    return True


@jit
def reduce_repeat(ub, row, staging, saturate):
    """ReduceRepeat<SUM> of half or float: ((a0 + a1) + (a2 + a3)) + .., every sum rounded to the element type.

    ``staging``: float32 scratch, at least 128. Lanes of the last block behind the mask are decoded but not used.
    """
    dtype = row["dtype"]
    item = item_bytes(dtype)
    lanes = REPEAT_BYTES // item
    mask = min(np.int64(row["mask"]), lanes)
    if mask <= 0:
        return
    per_block = BLOCK // item
    blocks = (mask + per_block - 1) // per_block
    values = staging[:128]
    words = reinterpret(values, np.uint32)
    singles, halves = reinterpret(ub, np.float32), reinterpret(ub, np.uint16)
    for r in range(np.int64(row["repeat"])):
        src = np.int64(row["src0"]) + r * np.int64(row["src_rep_stride"]) * BLOCK
        decode_rows(dtype, ub, src, np.int64(row["src_blk_stride"]) * BLOCK, values, 0, per_block, blocks)
        values[mask:lanes] = 0.0
        width = lanes
        while width > 1:
            width //= 2
            for i in range(width):
                values[i] = values[2 * i] + values[2 * i + 1]
            if dtype != Data.FP32:
                for i in range(width):
                    words[i] = fp16_to_fp32(fp32_to_fp16(words[i], RoundMode.RINT, saturate))
        dst = np.int64(row["dst"]) // item + r * np.int64(row["dst_rep_stride"])
        if dtype == Data.FP32:
            singles[dst] = values[0]
        else:
            halves[dst] = fp32_to_fp16(words[0], RoundMode.RINT, saturate)
