"""TransDataTo5HD of 8-bit elements: halves of 16 blocks of UB, anywhere, transposed into halves of 16 others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, Data, Pipe, Space
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, READ, WRITE
from npu_sim.isa.instruction import BYTE, DEVKIT, WORD
from npu_sim.isa.instructions.trans_data_to_5hd import INSTRUCTION as OF_WORDS
from npu_sim.isa.instructions.trans_data_to_5hd import list_boxes
from npu_sim.isa.mte import BLOCK
from npu_sim.reinterpret import reinterpret

OP = 113
HALF = BLOCK // 2
DST_HIGH, SRC_HIGH = 1, 2
"""Bits of ``halves``."""


emit_trans_data_bytes = emitter(
    "trans_data_bytes",
    OP,
    Pipe.V,
    "dtype repeat dst_rep_stride src_rep_stride halves=repeat_mode",
    """TransDataTo5HD of 8-bit elements; set the 16 + 16 addresses of row ``n`` first, as for others.

Element j of a half of destination i = element i of a half of source j; ``halves``: bit 0 the high half of every
destination (dstHighHalf), bit 1 that of every source (srcHighHalf). The other halves of the destinations stay as they
are (ASSUMED: the page shows it in a figure). A single repeat starts one stride behind the addresses, so its strides
are 0.""",
    dst_space=Space.UB,
    src0_space=Space.UB,
)


@jit
def footprint(row, out):
    """Note the halves of the blocks of the address lists and, every stride, those of the other repeats."""
    repeats = np.int64(row["repeat"])
    src_step, dst_step = np.int64(row["src_rep_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    src_shift = (src_step if repeats == 1 else NONE) + (HALF if row["repeat_mode"] & SRC_HIGH != 0 else NONE)
    dst_shift = (dst_step if repeats == 1 else NONE) + (HALF if row["repeat_mode"] & DST_HIGH != 0 else NONE)
    count = list_boxes(out, NONE, READ, row["src_list"], src_shift, HALF, repeats, src_step)
    return list_boxes(out, count, WRITE, row["dst_list"], dst_shift, HALF, repeats, dst_step)


@jit
def run(row, ub, staging):
    """Transpose repeat by repeat, all of it read before any is written; False for addresses outside UB."""
    repeats = np.int64(row["repeat"])
    if repeats == 0:
        return True
    sources, targets = row["src_list"], row["dst_list"]
    src_step, dst_step = np.int64(row["src_rep_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    first = np.int64(1) if repeats == 1 else np.int64(0)
    last = np.int64(0)
    for i in range(16):
        last = max(last, np.int64(sources[i]) * BLOCK + (first + repeats - 1) * src_step)
        last = max(last, np.int64(targets[i]) * BLOCK + (first + repeats - 1) * dst_step)
    if last + BLOCK > len(ub):
        return False
    source_half = HALF if row["repeat_mode"] & SRC_HIGH != 0 else NONE
    target_half = HALF if row["repeat_mode"] & DST_HIGH != 0 else NONE
    square = reinterpret(staging[: 16 * HALF // 4], np.uint8)
    for r in range(first, first + repeats):
        for j in range(16):
            at = np.int64(sources[j]) * BLOCK + r * src_step + source_half
            for i in range(HALF):
                square[i * 16 + j] = ub[at + i]
        for i in range(16):
            at = np.int64(targets[i]) * BLOCK + r * dst_step + target_half
            for j in range(HALF):
                ub[at + j] = square[i * 16 + j]
    return True


@jit
def cost(row, cost):
    """As of 16-bit elements (ASSUMED)."""
    repeats = np.int64(row["repeat"])
    return streamed(repeats, cost["vector_5hd_step_millicycles"], cost["vector_5hd_cycles"], repeats * 16 * HALF, cost)


INSTRUCTION = replace(
    OF_WORDS,
    emit=emit_trans_data_bytes,
    fields=("dst_list", "src_list", "dtype", "repeat", "dst_rep_stride", "src_rep_stride", "repeat_mode"),
    source=DEVKIT + "TransDataTo5HD; dstHighHalf and srcHighHalf",
    ranges=(
        ("repeat", 0, BYTE),
        ("dst_rep_stride", 0, WORD),
        ("src_rep_stride", 0, WORD),
        ("repeat_mode", 0, 3),
    ),
    dtypes=dict.fromkeys(ARCHS, frozenset({Data.INT8, Data.UINT8})),
    footprint=footprint,
    run=run,
    cost=cost,
    defaults={**OF_WORDS.defaults, "repeat_mode": 0},
)
