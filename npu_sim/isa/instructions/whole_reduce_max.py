"""WholeReduceMax, the value alone: every repeat of 256 bytes becomes its largest element under a mask."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.convert_jit import fp32_to_fp16
from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.codes import C220, Data, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import BYTE, DEVKIT, FLOATS, ITEM, SPLIT, WORD, Index, Instruction, Rows
from npu_sim.isa.instructions.max import larger_float
from npu_sim.isa.instructions.reduce_repeat import REPEAT_BYTES, cost, footprint
from npu_sim.isa.lanes import decode_rows
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.isa.reductions import extreme_of_repeats
from npu_sim.reinterpret import reinterpret

OP = 38


emit_whole_reduce_max = emitter(
    "whole_reduce_max",
    OP,
    Pipe.V,
    "dst src=src0 dtype mask repeat dst_rep_stride src_blk_stride src_rep_stride",
    """WholeReduceMax, ONLY_VALUE: each repeat of 256 bytes becomes one element, the largest of its first ``mask``.

``dst_rep_stride`` in elements, ``src_blk_stride`` (between the 8 blocks of a repeat) and ``src_rep_stride`` in
32-byte blocks. A NaN wins; +0 is above -0.""",
    dst_space=Space.UB,
    src0_space=Space.UB,
)


@jit
def run(row, ub, staging, config):
    """Compare floats; ``staging``: float32 scratch, at least 128."""
    dtype = row["dtype"]
    if dtype != Data.FP16 and dtype != Data.FP32:
        return False
    item = item_bytes(dtype)
    mask = min(np.int64(row["mask"]), REPEAT_BYTES // item)
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
        for i in range(1, mask):
            values[0] = larger_float(values[0], values[i])
        dst = np.int64(row["dst"]) // item + r * np.int64(row["dst_rep_stride"])
        if dtype == Data.FP32:
            singles[dst] = values[0]
        else:
            halves[dst] = fp32_to_fp16(words[0], RoundMode.RINT, config[3])
    return True


def check(chunk: Rows, index: Index) -> None:
    lanes = REPEAT_BYTES // chunk.item_bytes(index)
    chunk.rule(index, chunk.column(index, "mask") > lanes, "mask", f"within the {REPEAT_BYTES} bytes of a repeat")


_MASKED = extreme_of_repeats("WholeReduceMax", 166, "whole_reduce_max_masked", largest=True)

INSTRUCTION = Instruction(
    op=OP,
    api="WholeReduceMax",
    emit=emit_whole_reduce_max,
    source=DEVKIT + "WholeReduceMax with ORDER_ONLY_VALUE (A2 and A3), mask of leading elements",
    archs=SPLIT,
    routes={(Space.UB, Space.UB): Pipe.V},
    spaces={"dst": Space.UB, "src0": Space.UB},
    ranges=(
        ("mask", 0, 128),
        ("repeat", 0, BYTE),
        ("dst_rep_stride", 0, WORD),
        ("src_blk_stride", 0, WORD),
        ("src_rep_stride", 0, WORD),
    ),
    dtypes={C220: FLOATS},
    alignment={"dst": ITEM},
    unit="vector",
    footprint=footprint,
    run=run,
    apart=True,
    cost=cost,
    check=check,
    masked=_MASKED,
    defaults={"repeat": 1, "dst_rep_stride": 1, "src_blk_stride": 1, "src_rep_stride": 8},
)
