"""Footprints of the vector instructions, of DataCopyPad and of the scalar unit's element moves."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.footprint_boxes import BLOCK, NONE, ONCE, READ, UB, WRITE, box, line, store_access
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import Op, Space
from npu_sim.isa.vector_kind import has_two_inputs
from npu_sim.units import REPEAT_BYTES


@jit
def vector(row, out):
    """Count-style vector instructions: consecutive elements, Cast with a type of its own for the result."""
    op = row["op"]
    elements = np.int64(row["count"])
    src_bytes = elements * item_bytes(row["dtype"])
    count = NONE
    if op != Op.DUPLICATE:
        count = line(out, count, UB, READ, np.int64(row["src0"]), src_bytes, ONCE, NONE)
    if has_two_inputs(op):
        count = line(out, count, UB, READ, np.int64(row["src1"]), src_bytes, ONCE, NONE)
    dst_bytes = elements * item_bytes(row["dst_dtype"]) if op == Op.CAST else src_bytes
    return line(out, count, UB, WRITE, np.int64(row["dst"]), dst_bytes, ONCE, NONE)


@jit
def data_copy_pad(row, out):
    """DataCopyPad: exact bytes in GM, whole 32-byte blocks in UB when they are written, exact bytes when read."""
    length = np.int64(row["block_len"])
    blocks = np.int64(row["block_count"])
    if length <= 0:
        return 0
    src, dst = np.int64(row["src0"]), np.int64(row["dst"])
    src_gap, dst_gap = np.int64(row["src_gap"]), np.int64(row["dst_gap"])
    if row["src0_space"] == Space.GM:
        item = item_bytes(row["dtype"])
        padded = (np.int64(row["left_padding"]) + np.int64(row["right_padding"])) * item + length
        taken = (padded + BLOCK - 1) // BLOCK * BLOCK
        count = line(out, NONE, np.int64(Space.GM), READ, src, length, blocks, length + src_gap)
        return line(out, count, UB, WRITE, dst, taken, blocks, taken + dst_gap * BLOCK)
    taken = (length + BLOCK - 1) // BLOCK * BLOCK
    count = line(out, NONE, UB, READ, src, length, blocks, taken + src_gap * BLOCK)
    return line(out, count, np.int64(Space.GM), store_access(row), dst, length, blocks, length + dst_gap)


@jit
def scalar_copy(row, out):
    """Note one element read and one written."""
    item = np.int64(item_bytes(row["dtype"]))
    count = line(out, NONE, np.int64(row["src0_space"]), READ, np.int64(row["src0"]), item, ONCE, NONE)
    return line(out, count, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), item, ONCE, NONE)


@jit
def reduce_repeat(row, out):
    """Note the blocks under the mask of every repeat, the last one in part; one element per repeat."""
    item = np.int64(item_bytes(row["dtype"]))
    repeats = np.int64(row["repeat"])
    taken = min(np.int64(row["mask"]) * item, REPEAT_BYTES)
    if taken <= 0:
        return 0
    src = np.int64(row["src0"])
    between, step = np.int64(row["src_blk_stride"]) * BLOCK, np.int64(row["src_rep_stride"]) * BLOCK
    full = taken // BLOCK
    count = box(out, NONE, UB, READ, src, BLOCK, full, between, repeats, step, ONCE, NONE)
    count = line(out, count, UB, READ, src + full * between, taken % BLOCK, repeats, step)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), item, repeats, np.int64(row["dst_rep_stride"]) * item)


@jit
def _list_boxes(out, count, access, blocks, shift, repeats, step):
    """Note the blocks of an address list; addresses at one distance from each other become one box."""
    first = np.int64(0)
    while first < 16:
        start = np.int64(blocks[first])
        last = first
        distance = np.int64(0)
        if first < 15:
            distance = np.int64(blocks[first + 1]) - start
            last = first + 1
            while last < 15 and np.int64(blocks[last + 1]) - np.int64(blocks[last]) == distance:
                last += 1
        count = box(
            out,
            count,
            UB,
            access,
            start * BLOCK + shift,
            BLOCK,
            last - first + 1,
            distance * BLOCK,
            repeats,
            step,
            ONCE,
            NONE,
        )
        first = last + 1
    return count


@jit
def trans_data_to_5hd(row, out):
    """Note the blocks of the address lists and, every stride, those of the other repeats."""
    repeats = np.int64(row["repeat"])
    src_step, dst_step = np.int64(row["src_rep_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    src_shift = src_step if repeats == 1 else NONE
    dst_shift = dst_step if repeats == 1 else NONE
    count = _list_boxes(out, NONE, READ, row["src_list"], src_shift, repeats, src_step)
    return _list_boxes(out, count, WRITE, row["dst_list"], dst_shift, repeats, dst_step)
