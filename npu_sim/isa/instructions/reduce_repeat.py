"""ReduceRepeat<SUM>: every repeat of 256 bytes becomes the sum of its elements under a mask."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp32_to_nearest_fp16
from npu_sim.isa.codes import ARCHS, C100, Data
from npu_sim.isa.cost_vector import repeated
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, box, line
from npu_sim.isa.instruction import BYTE, DEVKIT, FLOATS, ITEM, WORD, Index, Instruction, Range, Rows
from npu_sim.isa.instructions.max import larger_float
from npu_sim.isa.lanes import decode_rows
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.isa.reductions import cost_of_sums, footprint_of_sums, reduction, run_sums, tree
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

OP = 28
RANGES: tuple[Range, ...] = (
    ("mask", 0, 128),
    ("repeat", 0, BYTE),
    ("dst_rep_stride", 0, WORD),
    ("src_blk_stride", 0, WORD),
    ("src_rep_stride", 0, WORD),
)
DEFAULTS = {"repeat": 1, "dst_rep_stride": 1, "src_blk_stride": 1, "src_rep_stride": 8}


emit_reduce_repeat = vector_emitter(
    "reduce_repeat",
    OP,
    "dst src=src0 dtype mask repeat dst_rep_stride src_blk_stride src_rep_stride",
    """ReduceRepeat<SUM>: each repeat of 256 bytes becomes one element, the sum of its first ``mask`` elements.

``dst_rep_stride`` in elements, ``src_blk_stride`` (between the 8 blocks of a repeat) and ``src_rep_stride`` in
32-byte blocks.""",
)


@jit
def footprint(row, out):
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
def fold_leading(row, ub, staging, config, largest):
    """Make one half or float of the first ``mask`` elements of each repeat: the largest, or the sum.

    A sum is ((a0 + a1) + (a2 + a3)) + .., each rounded to the element type. ``staging``: float32 scratch, at least 128.
    Lanes of the last block behind the mask are decoded but not used.
    """
    dtype, saturate = row["dtype"], config[3]
    if dtype != Data.FP16 and dtype != Data.FP32:
        return False
    item = item_bytes(dtype)
    lanes = REPEAT_BYTES // item
    mask = min(np.int64(row["mask"]), lanes)
    if mask <= 0:
        return True
    per_block = BLOCK // item
    blocks = (mask + per_block - 1) // per_block
    values = staging[:128]
    words = reinterpret(values, np.uint32)
    singles, halves = reinterpret(ub, np.float32), reinterpret(ub, np.uint16)
    for r in range(np.int64(row["repeat"])):
        src = np.int64(row["src0"]) + r * np.int64(row["src_rep_stride"]) * BLOCK
        decode_rows(dtype, ub, src, np.int64(row["src_blk_stride"]) * BLOCK, values, 0, per_block, blocks)
        if largest:
            for i in range(1, mask):
                values[0] = larger_float(values[0], values[i])
        else:
            values[mask:lanes] = 0.0
            tree(values, 0, lanes, dtype, saturate)
        dst = np.int64(row["dst"]) // item + r * np.int64(row["dst_rep_stride"])
        if dtype == Data.FP32:
            singles[dst] = values[0]
        else:
            halves[dst] = fp32_to_nearest_fp16(words[0], saturate)
    return True


@jit
def run(row, ub, staging, config):
    """Add floats."""
    return fold_leading(row, ub, staging, config, False)


@jit
def cost(row, cost):
    """One step a repeat, more for the call if the mask is not full."""
    size = np.int64(item_bytes(row["dtype"]))
    repeats = np.int64(row["repeat"])
    mask = np.int64(row["mask"])
    if mask <= 0:
        repeats = np.int64(0)
    call = cost["vector_reduce_cycles"]
    if size > 0 and mask < cost["vector_repeat_bytes"] // size:
        call += cost["vector_partial_cycles"]
    return repeated(repeats, cost["vector_reduce_step_millicycles"], call, repeats * size, cost)


def check_mask(chunk: Rows, index: Index) -> None:
    """Report masks of more elements than a repeat has."""
    lanes = REPEAT_BYTES // chunk.item_bytes(index)
    chunk.rule(index, chunk.column(index, "mask") > lanes, "mask", f"within the {REPEAT_BYTES} bytes of a repeat")


def check(chunk: Rows, index: Index) -> None:
    check_mask(chunk, index)
    if chunk.product.arch == C100:
        chunk.rule(index, chunk.column(index, "dst_rep_stride") == 0, "dst_rep_stride", f"at least 1 on {C100}")


# dav-c100: the ReduceRepeat page lists half only, the platform file of the chip float as well.
_DTYPES = dict.fromkeys(ARCHS, FLOATS)
_MASKED = reduction(
    "ReduceRepeat",
    156,
    "reduce_repeat_masked",
    "ReduceRepeat<SUM>, WholeReduceSum: each repeat of 256 bytes becomes one element, the sum of its lanes; "
    "``dst_rep_stride`` in elements.",
    dtypes=_DTYPES,
    footprint=footprint_of_sums,
    run=run_sums,
    cost=cost_of_sums,
)

INSTRUCTION = Instruction(
    api="ReduceRepeat",
    emit=emit_reduce_repeat,
    source=DEVKIT + "ReduceRepeat<SUM> (WholeReduceSum), mask of leading elements; order of ReduceDataBlock",
    ranges=RANGES,
    dtypes=_DTYPES,
    alignment={"dst": ITEM},
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    masked=_MASKED,
    defaults=DEFAULTS,
)
