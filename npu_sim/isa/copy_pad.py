"""Semantics of DataCopyPad and of the scalar unit's element moves.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (DataCopyPad: lengths in bytes, padding, what fills the last block;
LocalTensor and GlobalTensor GetValue and SetValue).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.atomic import add_to_gm
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.isa.op import Mode

UNSPECIFIED_BYTE = 0xFF
"""What lanes hold whose contents the documents leave open: a NaN in every float format, so that a use shows."""


@jit
def _fill(ub, start, end, value, item):
    """Write the element ``value`` again and again from ``start`` to ``end``."""
    for at in range(start, end):
        ub[at] = (value >> (8 * ((at - start) % item))) & 0xFF


@jit
def copy_to_ub(ub, gm, row):
    """DataCopyPad GM to UB: each block is read byte-exact and written as whole 32-byte blocks."""
    item = item_bytes(row["dtype"])
    length = np.int64(row["block_len"])
    left, right = np.int64(row["left_padding"]) * item, np.int64(row["right_padding"]) * item
    taken = (left + length + right + BLOCK - 1) // BLOCK * BLOCK
    value = np.int64(row["value"])
    src_step = length + np.int64(row["src_gap"])
    dst_step = taken + np.int64(row["dst_gap"]) * BLOCK
    if length == 0:
        return
    for i in range(np.int64(row["block_count"])):
        src = np.int64(row["src0"]) + i * src_step
        dst = np.int64(row["dst"]) + i * dst_step
        data = dst + left
        copy_bytes(ub, data, gm, src, length)
        if left + right == 0:
            first = min(item, length)
            for at in range(data + length, dst + taken):
                ub[at] = gm[src + (at - data - length) % first]
        elif row["mode"] & Mode.PAD:
            _fill(ub, dst, data, value, item)
            _fill(ub, data + length, dst + taken, value, item)
        else:
            ub[dst:data] = UNSPECIFIED_BYTE
            ub[data + length : dst + taken] = UNSPECIFIED_BYTE


@jit
def copy_to_gm(gm, ub, row, sink, log_runs, log_bytes):
    """DataCopyPad UB to GM: exactly ``block_len`` bytes of each block, added when the row says so."""
    length = np.int64(row["block_len"])
    src_step = (length + BLOCK - 1) // BLOCK * BLOCK + np.int64(row["src_gap"]) * BLOCK
    dst_step = length + np.int64(row["dst_gap"])
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    if row["mode"] & Mode.ATOMIC:
        elements = length // item_bytes(row["dtype"])
        for i in range(np.int64(row["block_count"])):
            add_to_gm(
                gm,
                dst + i * dst_step,
                ub,
                src + i * src_step,
                elements,
                row["dtype"],
                sink,
                log_runs,
                log_bytes,
            )
    else:
        for i in range(np.int64(row["block_count"])):
            copy_bytes(gm, dst + i * dst_step, ub, src + i * src_step, length)


@jit
def scalar_copy(dst, src, row):
    """GetValue and SetValue: one element, bits unchanged."""
    item = item_bytes(row["dtype"])
    to, at = np.int64(row["dst"]), np.int64(row["src0"])
    value = np.int64(0)
    for i in range(item):
        value |= np.int64(src[at + i]) << (8 * i)
    for i in range(item):
        dst[to + i] = (value >> (8 * i)) & 0xFF
