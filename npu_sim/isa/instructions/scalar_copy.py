"""GetValue and SetValue: the scalar unit moves one element."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, Data, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, WRITE, line
from npu_sim.isa.instruction import ANY, DEVKIT, ITEM, Instruction
from npu_sim.isa.mte import item_bytes

OP = 21


emit_scalar_copy = emitter(
    "scalar_copy",
    OP,
    Pipe.S,
    "dst_space dst src_space=src0_space src=src0 dtype tensor",
    """GetValue and SetValue: the scalar unit moves one element of ``dtype`` inside UB or between UB and GM.

``tensor`` is the GM tensor of the GM side (-1: none).""",
)


@jit
def footprint(row, out):
    """Note one element read and one written."""
    item = np.int64(item_bytes(row["dtype"]))
    count = line(out, NONE, np.int64(row["src0_space"]), READ, np.int64(row["src0"]), item, ONCE, NONE)
    return line(out, count, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), item, ONCE, NONE)


@jit
def extent(row):
    """Bytes in GM."""
    first = np.int64(row["src0"]) if row["src0_space"] == Space.GM else np.int64(row["dst"])
    return first, first + np.int64(item_bytes(row["dtype"]))


@jit
def _copy(dst, src, row):
    """GetValue and SetValue: one element, bits unchanged."""
    item = item_bytes(row["dtype"])
    to, at = np.int64(row["dst"]), np.int64(row["src0"])
    value = np.int64(0)
    for i in range(item):
        value |= np.int64(src[at + i]) << (8 * i)
    for i in range(item):
        dst[to + i] = (value >> (8 * i)) & 0xFF


@jit
def run(row, gm, ub):
    """Move the element."""
    _copy(gm if row["dst_space"] == Space.GM else ub, gm if row["src0_space"] == Space.GM else ub, row)
    return True


@jit
def cost(row, cost):
    """A fixed time, longer when GM is involved."""
    in_gm = row["src0_space"] == Space.GM or row["dst_space"] == Space.GM
    size = np.int64(item_bytes(row["dtype"]))
    return cost["scalar_gm_cycles"] if in_gm else cost["scalar_ub_cycles"], np.int64(0), size


INSTRUCTION = Instruction(
    api="GetValue/SetValue",
    emit=emit_scalar_copy,
    source=DEVKIT + "LocalTensor and GlobalTensor GetValue, SetValue: the scalar unit moves one element",
    routes={
        (Space.UB, Space.UB): Pipe.S,
        (Space.UB, Space.GM): Pipe.S,
        (Space.GM, Space.UB): Pipe.S,
    },
    dtypes=dict.fromkeys(ARCHS, ANY - {Data.NONE}),
    alignment={"dst": ITEM, "src0": ITEM},
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    extent=extent,
    defaults={"tensor": -1},
)
