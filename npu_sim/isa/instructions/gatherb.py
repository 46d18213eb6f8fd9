"""Gatherb: blocks of 32 bytes of UB, each named by an offset."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, Data
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, box, line
from npu_sim.isa.instruction import BYTE, DEVKIT, Index, Instruction, Rows
from npu_sim.isa.instructions.gather import keep_offsets
from npu_sim.isa.lanes import copy_bytes
from npu_sim.isa.mte import BLOCK
from npu_sim.reinterpret import reinterpret

OP = 67
PER_REPEAT = 8
"""Blocks of a repeat."""
_STEP, _FIXED, _FURTHER, _START = 1_000, 10_000, 8_000, 11
"""Thousandths of a cycle of a repeat, beside the repeats, and of each further 8 repeats; cycles until it is complete
(MK streams of 1 to 32 repeats)."""


emit_gatherb = vector_emitter(
    "gatherb",
    OP,
    "dst src0 src1 src_bytes dtype repeat dst_blk_stride dst_rep_stride",
    """Gatherb: block 8 r + j is the 32 bytes ``src1[8 r + j]`` bytes behind ``src0``.

It goes to block ``r * dst_rep_stride + j * dst_blk_stride``, ``repeat`` times 8 blocks. ``src1`` holds uint32,
multiples of 32. ``src_bytes``: how far behind ``src0`` they may reach; an offset beyond ends the run, and so does a
block that has been replaced: the page has source and result in memory of their own.""",
)


@jit
def footprint(row, out):
    """All that may be gathered, 32 bytes of offsets a repeat, 8 blocks written."""
    repeats = np.int64(row["repeat"])
    if repeats <= 0:
        return 0
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), np.int64(row["src_bytes"]), ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["src1"]), repeats * BLOCK, ONCE, NONE)
    between, step = np.int64(row["dst_blk_stride"]) * BLOCK, np.int64(row["dst_rep_stride"]) * BLOCK
    eight = np.int64(PER_REPEAT)
    return box(out, count, UB, WRITE, np.int64(row["dst"]), BLOCK, eight, between, repeats, step, ONCE, NONE)


@jit
def _is_replaced(block, between, step, count):
    """Return whether the block that lies ``block`` behind the first result is one of the first ``count`` results."""
    for j in range(min(PER_REPEAT, count)):
        repeats = (count - j + PER_REPEAT - 1) // PER_REPEAT
        behind = block - j * between
        if behind == 0 or (behind > 0 and step > 0 and behind % step == 0 and behind // step < repeats):
            return True
    return False


@jit
def run(row, ub):
    """Look at all offsets before anything is written; a block that was replaced before it is taken is refused."""
    repeats, a, b, d = np.int64(row["repeat"]), np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    between, step = np.int64(row["dst_blk_stride"]), np.int64(row["dst_rep_stride"])
    offsets = reinterpret(ub[b : b + BLOCK * repeats], np.uint32)
    for i in range(len(offsets)):
        if offsets[i] % BLOCK != 0 or np.int64(offsets[i]) + BLOCK > np.int64(row["src_bytes"]):
            return False
        if _is_replaced((a + np.int64(offsets[i]) - d) // BLOCK, between, step, i):
            return False
    for r in range(repeats):
        for j in range(PER_REPEAT):
            source = a + np.int64(offsets[PER_REPEAT * r + j])
            copy_bytes(ub, d + (r * step + j * between) * BLOCK, ub, source, BLOCK)
    return True


@jit
def cost(row, cost):
    """A step a repeat, and more for each further 8."""
    repeats = np.int64(row["repeat"])
    if repeats <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    millicycles = _FIXED + repeats * _STEP + (repeats - 1) // 8 * _FURTHER
    return streamed(ONCE, millicycles, np.int64(_START), repeats * PER_REPEAT * BLOCK, cost)


def check(chunk: Rows, index: Index) -> None:
    chunk.rule(index, chunk.column(index, "dst_blk_stride") == 0, "dst_blk_stride", "at least 1")
    repeats = chunk.column(index, "repeat")
    last = (repeats - 1) * chunk.column(index, "dst_rep_stride") + 7 * chunk.column(index, "dst_blk_stride") + 1
    keep_offsets(chunk, index, np.where(repeats > 0, last * BLOCK, 0), repeats * BLOCK)


INSTRUCTION = Instruction(
    api="Gatherb",
    emit=emit_gatherb,
    source=DEVKIT + "Gatherb with GatherRepeatParams; only A2 and A3 have it",
    ranges=(("repeat", 0, BYTE), ("src_bytes", 0, 2**31 - 1), ("dst_blk_stride", 0, BYTE), ("dst_rep_stride", 0, BYTE)),
    dtypes={C220: frozenset({Data.INT16, Data.INT32})},
    own_types=("src1",),
    by_data="an offset in src1 a multiple of 32 and inside the first src_bytes bytes, of a block that is there still",
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
    defaults={"repeat": 1, "dst_blk_stride": 1, "dst_rep_stride": 8},
)
