"""ReadGmByPassDCache: the scalar unit reads an element of GM past its data cache, as cores do that poll a word.

GetValue behind the cleaning of its line is one too. Other cores may store such an element at the same time, so it is no
race: whether its value says anything about other bytes is what SetSignal and WaitSignal are for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.footprint_boxes import NONE, ONCE, READ, line
from npu_sim.isa.instruction import DEVKIT
from npu_sim.isa.instructions.scalar_load import INSTRUCTION as SCALAR_LOAD
from npu_sim.isa.mte import item_bytes

OP = 112


emit_scalar_look = emitter(
    "scalar_look",
    OP,
    Pipe.S,
    "src=src0 dtype tensor",
    """ReadGmByPassDCache: the scalar unit reads an element of ``dtype`` of GM into a register, which no row shows.

``tensor`` is the GM tensor (-1: none).""",
    dst_space=Space.NONE,
    src0_space=Space.GM,
)


@jit
def footprint(row, out):
    """Note one element read of GM."""
    return line(out, NONE, Space.GM, READ, np.int64(row["src0"]), np.int64(item_bytes(row["dtype"])), ONCE, NONE)


@jit
def cost(row, cost):
    """A fixed time."""
    return cost["scalar_gm_cycles"], np.int64(0), np.int64(item_bytes(row["dtype"]))


INSTRUCTION = replace(
    SCALAR_LOAD,
    api="ReadGmByPassDCache",
    emit=emit_scalar_look,
    source=DEVKIT + "ReadGmByPassDCache; DataCacheCleanAndInvalid before GetValue",
    routes={(Space.NONE, Space.GM): Pipe.S},
    fields=(),  # those of its own emitter
    footprint=footprint,
    cost=cost,
)
