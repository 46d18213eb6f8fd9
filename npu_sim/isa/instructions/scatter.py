"""Scatter: consecutive elements of UB go to places that offsets name."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import M200
from npu_sim.isa.emitter import vector_emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import B32, COUNT, DEVKIT, UNIFIED_B16, Index, Instruction, Rows
from npu_sim.isa.instructions.gather import gathering, inside, keep_offsets
from npu_sim.isa.mte import item_bytes
from npu_sim.reinterpret import reinterpret

OP = 66


emit_scatter = vector_emitter(
    "scatter",
    OP,
    "dst src0 src1 dst_bytes dtype count",
    """Scatter: ``src0[i]`` goes ``src1[i]`` bytes behind ``dst``, for ``count`` elements of 16 or 32 bits.

``src1`` holds uint32, multiples of the bytes of an element. ``dst_bytes``: how far behind ``dst`` they may reach, in
bytes; an offset beyond ends the run. dstBaseAddr of Scatter is part of ``dst`` here. Of equal offsets the last element
stays here; on a device any may.""",
)


@jit
def footprint(row, out):
    """An element and an offset for each, and all bytes they may go to."""
    elements = np.int64(row["count"])
    if elements <= 0:
        return 0
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), elements * item_bytes(row["dtype"]), ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["src1"]), 4 * elements, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), np.int64(row["dst_bytes"]), ONCE, NONE)


@jit
def run(row, ub):
    """Look at all offsets before anything is written."""
    item, count = np.int64(item_bytes(row["dtype"])), np.int64(row["count"])
    if item != 2 and item != 4:
        return False
    a, b, d = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    offsets = reinterpret(ub[b : b + 4 * count], np.uint32)
    if not inside(offsets, item, np.int64(row["dst_bytes"])):
        return False
    for i in range(count):
        for byte in range(item):
            ub[d + np.int64(offsets[i]) + byte] = ub[a + i * item + byte]
    return True


@jit
def cost(row, cost):
    """ASSUMED: as Gather; no rate is published."""
    return gathering(np.int64(row["count"]), np.int64(item_bytes(row["dtype"])), cost)


def check(chunk: Rows, index: Index) -> None:
    keep_offsets(chunk, index, chunk.column(index, "dst_bytes"), 4 * chunk.column(index, "count"))


INSTRUCTION = Instruction(
    api="Scatter",
    emit=emit_scatter,
    source=DEVKIT + "Scatter, count style; only 310P has it",
    ranges=(*COUNT, ("dst_bytes", 0, 2**31 - 1)),
    dtypes={M200: UNIFIED_B16 | B32},
    own_types=("src1",),
    by_data="an offset in src1 a multiple of the bytes of an element and inside the first dst_bytes bytes",
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    check=check,
)
