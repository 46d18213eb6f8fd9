"""Gather: elements of UB, each named by an offset, one behind the other."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import C220, M200, Pipe, Space
from npu_sim.isa.cost_rates import divide_up
from npu_sim.isa.cost_vector import streamed
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, UB, WRITE, line
from npu_sim.isa.instruction import B16, B32, COUNT, DEVKIT, UNIFIED_B16, Instruction
from npu_sim.isa.mte import item_bytes
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

OP = 65
_STEP, _FIXED, _START = 12_000, 3_000, 24
"""Thousandths of a cycle of 64 elements and beside them, cycles until it is complete (MK streams; documented: 5
elements a cycle). ASSUMED: on 310P too."""


emit_gather = emitter(
    "gather",
    OP,
    Pipe.V,
    "dst src0 src1 src_bytes dtype count",
    """Gather: dst[i] is the element ``src1[i]`` bytes behind ``src0``, for ``count`` elements of 16 or 32 bits.

``src1`` holds uint32, multiples of the bytes of an element. ``src_bytes``: how far behind ``src0`` they may reach, in
bytes; an offset beyond ends the run. srcBaseAddr of Gather is part of ``src0`` here.""",
    dst_space=Space.UB,
    src0_space=Space.UB,
    src1_space=Space.UB,
)


@jit
def footprint(row, out):
    """All that may be gathered, an offset and a result for each element."""
    elements = np.int64(row["count"])
    if elements <= 0:
        return 0
    count = line(out, NONE, UB, READ, np.int64(row["src0"]), np.int64(row["src_bytes"]), ONCE, NONE)
    count = line(out, count, UB, READ, np.int64(row["src1"]), 4 * elements, ONCE, NONE)
    return line(out, count, UB, WRITE, np.int64(row["dst"]), elements * item_bytes(row["dtype"]), ONCE, NONE)


@jit
def inside(offsets, item, reach):
    """Return whether elements of ``item`` bytes at all ``offsets`` lie in the first ``reach`` bytes and in line."""
    for i in range(len(offsets)):
        offset = np.int64(offsets[i])
        if offset % item != 0 or offset + item > reach:
            return False
    return True


@jit
def run(row, ub):
    """Look at all offsets before anything is written."""
    item, count = np.int64(item_bytes(row["dtype"])), np.int64(row["count"])
    if item != 2 and item != 4:
        return False
    a, b, d = np.int64(row["src0"]), np.int64(row["src1"]), np.int64(row["dst"])
    offsets = reinterpret(ub[b : b + 4 * count], np.uint32)
    if not inside(offsets, item, np.int64(row["src_bytes"])):
        return False
    for i in range(count):
        for byte in range(item):
            ub[d + i * item + byte] = ub[a + np.int64(offsets[i]) + byte]
    return True


@jit
def gathering(count, size, cost):
    """Return the cost of elements that are gathered or scattered one by one."""
    if count <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    lanes = np.int64(REPEAT_BYTES // 4)
    millicycles = divide_up(count, lanes) * _STEP + _FIXED
    return streamed(ONCE, millicycles, np.int64(_START), count * size, cost)


@jit
def cost(row, cost):
    """A step for 64 elements of either size."""
    return gathering(np.int64(row["count"]), np.int64(item_bytes(row["dtype"])), cost)


INSTRUCTION = Instruction(
    op=OP,
    api="Gather",
    emit=emit_gather,
    source=DEVKIT + "Gather, count style",
    archs=frozenset({M200, C220}),
    routes={(Space.UB, Space.UB): Pipe.V},
    spaces={"dst": Space.UB, "src0": Space.UB, "src1": Space.UB},
    ranges=(*COUNT, ("src_bytes", 0, 2**31 - 1)),
    dtypes={M200: UNIFIED_B16 | B32, C220: B16 | B32},
    own_types=("src1",),
    by_data="an offset in src1 a multiple of the bytes of an element and inside the first src_bytes bytes",
    unit="vector",
    footprint=footprint,
    run=run,
    apart=True,
    cost=cost,
)
