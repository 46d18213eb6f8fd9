"""GetValue: the scalar unit reads one element."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, Data, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, line
from npu_sim.isa.instruction import ANY, DEVKIT, ITEM, Instruction
from npu_sim.isa.mte import item_bytes

OP = 110


emit_scalar_load = emitter(
    "scalar_load",
    OP,
    Pipe.S,
    "src_space=src0_space src=src0 dtype tensor",
    """GetValue: the scalar unit reads an element of ``dtype`` of UB or GM into a register, which no row shows.

``tensor`` is the GM tensor of the GM side (-1: none).""",
    dst_space=Space.NONE,
)


@jit
def footprint(row, out):
    """Note one element read."""
    item = np.int64(item_bytes(row["dtype"]))
    return line(out, NONE, np.int64(row["src0_space"]), READ, np.int64(row["src0"]), item, ONCE, NONE)


@jit
def extent(row):
    """Bytes in GM."""
    first = np.int64(row["src0"])
    return first, first + np.int64(item_bytes(row["dtype"]))


@jit
def cost(row, cost):
    """A fixed time, longer from GM."""
    size = np.int64(item_bytes(row["dtype"]))
    in_gm = row["src0_space"] == Space.GM
    return cost["scalar_gm_cycles"] if in_gm else cost["scalar_ub_cycles"], np.int64(0), size


INSTRUCTION = Instruction(
    api="GetValue",
    emit=emit_scalar_load,
    source=DEVKIT + "LocalTensor and GlobalTensor GetValue",
    routes={(Space.NONE, Space.UB): Pipe.S, (Space.NONE, Space.GM): Pipe.S},
    dtypes=dict.fromkeys(ARCHS, ANY - {Data.NONE}),
    alignment={"src0": ITEM},
    footprint=footprint,
    cost=cost,
    extent=extent,
    defaults={"tensor": -1},
)
