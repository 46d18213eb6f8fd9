"""Brcb: every element of a source fills a block of 32 bytes."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, box, line
from npu_sim.isa.instruction import B16, B32, BYTE, DEVKIT, WORD, Index, Instruction, Rows
from npu_sim.isa.mte import BLOCK, item_bytes
from npu_sim.reinterpret import reinterpret

OP = 37
PER_REPEAT = 8
"""Elements of a repeat."""


emit_brcb = vector_emitter(
    "brcb",
    OP,
    "dst src=src0 dtype repeat dst_blk_stride dst_rep_stride",
    """Brcb: element 8 r + j of ``src`` fills the 32 bytes at block ``r * dst_rep_stride + j * dst_blk_stride``.

``repeat`` times 8 elements; strides in 32-byte blocks.""",
)


@jit
def footprint(row, out):
    """Consecutive elements read, a block written for each."""
    repeats = np.int64(row["repeat"])
    length = repeats * PER_REPEAT * item_bytes(row["dtype"])
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), length, ONCE, NONE)
    between, step = np.int64(row["dst_blk_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    eight = np.int64(PER_REPEAT)
    return box(out, count, UB, WRITE, np.int64(row["dst"]), BLOCK, eight, between, repeats, step, ONCE, NONE)


@jit
def run(row, ub):
    """Copy the bytes of each element again and again."""
    item = np.int64(item_bytes(row["dtype"]))
    if item != 2 and item != 4:
        return False
    src = np.int64(row["src0"])
    for r in range(np.int64(row["repeat"])):
        for j in range(PER_REPEAT):
            block = np.int64(row["dst"]) + BLOCK * (
                r * np.int64(row["dst_rep_stride"]) + j * np.int64(row["dst_blk_stride"])
            )
            there, element = ub[block : block + BLOCK], ub[src : src + item]
            if item == 4:
                reinterpret(there, np.uint32)[:] = reinterpret(element, np.uint32)[0]
            else:
                reinterpret(there, np.uint16)[:] = reinterpret(element, np.uint16)[0]
            src += item
    return True


@jit
def cost(row, cost):
    """One step a repeat: 8 elements in, 8 blocks out."""
    repeats = np.int64(row["repeat"])
    written = repeats * PER_REPEAT * BLOCK
    return streamed(repeats, cost["vector_step_millicycles"], cost["vector_duplicate_cycles"], written, cost)


def check(chunk: Rows, index: Index) -> None:
    chunk.rule(index, chunk.column(index, "dst_blk_stride") == 0, "dst_blk_stride", "at least 1")


INSTRUCTION = Instruction(
    api="Brcb",
    emit=emit_brcb,
    source=DEVKIT + "Brcb with BrcbRepeatParams; only A2 and A3 have it as one instruction",
    ranges=(("repeat", 0, BYTE), ("dst_blk_stride", 0, WORD), ("dst_rep_stride", 0, WORD)),
    dtypes={C220: B16 | B32},
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"repeat": 1, "dst_blk_stride": 1, "dst_rep_stride": 8},
)
