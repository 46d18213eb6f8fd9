"""SetValue: the scalar unit writes one element."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import ARCHS, Data, Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, WRITE, line
from npu_sim.isa.instruction import ANY, DEVKIT, ITEM, Instruction
from npu_sim.isa.mte import item_bytes

OP = 111


emit_scalar_store = emitter(
    "scalar_store",
    OP,
    Pipe.S,
    "dst_space dst dtype value_bits=value tensor",
    """SetValue: the scalar unit writes the bit pattern ``value_bits`` as an element of ``dtype`` to UB or GM.

``tensor`` is the GM tensor of the GM side (-1: none).""",
)


@jit
def footprint(row, out):
    """Note one element written."""
    item = np.int64(item_bytes(row["dtype"]))
    return line(out, NONE, np.int64(row["dst_space"]), WRITE, np.int64(row["dst"]), item, ONCE, NONE)


@jit
def extent(row):
    """Bytes in GM."""
    first = np.int64(row["dst"])
    return first, first + np.int64(item_bytes(row["dtype"]))


@jit
def run(row, gm, ub):
    """Write the element."""
    item = item_bytes(row["dtype"])
    if item > 4:
        return False
    dst = gm if row["dst_space"] == Space.GM else ub
    at, value = np.int64(row["dst"]), np.int64(row["value"])
    for i in range(item):
        dst[at + i] = (value >> (8 * i)) & 0xFF
    return True


@jit
def cost(row, cost):
    """A fixed time, longer to GM."""
    size = np.int64(item_bytes(row["dtype"]))
    in_gm = row["dst_space"] == Space.GM
    return cost["scalar_gm_cycles"] if in_gm else cost["scalar_ub_cycles"], np.int64(0), size


INSTRUCTION = Instruction(
    api="SetValue",
    emit=emit_scalar_store,
    source=DEVKIT + "LocalTensor and GlobalTensor SetValue; 64-bit elements are two rows",
    routes={(Space.UB, Space.NONE): Pipe.S, (Space.GM, Space.NONE): Pipe.S},
    spaces={"src0": Space.NONE},
    dtypes=dict.fromkeys(ARCHS, ANY - {Data.NONE, Data.INT64}),
    alignment={"dst": ITEM},
    any_value=True,
    unit="vector",
    footprint=footprint,
    run=run,
    cost=cost,
    extent=extent,
    defaults={"value_bits": 0, "tensor": -1},
)
