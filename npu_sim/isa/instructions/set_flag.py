"""SetFlag: sets a flag when the earlier instructions of its pipe are complete."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emitter import emitter
from npu_sim.isa.flags import check_flag
from npu_sim.isa.instruction import DEVKIT, EVERY_PIPE, Instruction
from npu_sim.isa.names import pipe_name

OP = 1


emit_set_flag = emitter(
    "set_flag",
    OP,
    None,
    "src_pipe=pipe dst_pipe=peer event",
    "SetFlag<src_dst>(event): set when the earlier instructions of ``src_pipe`` are complete.",
)


@jit
def cost(cost):
    """Handing a flag over."""
    return cost["flag_cycles"], np.int64(0), np.int64(0)


def text(row):
    """``SetFlag<source_destination>(event)``."""
    pipe, peer = pipe_name(int(row["pipe"])), pipe_name(int(row["peer"]))
    return f"SetFlag<{pipe}_{peer}>({int(row['event'])})"


INSTRUCTION = Instruction(
    api="SetFlag",
    emit=emit_set_flag,
    source=DEVKIT + "synchronisation: runs in the source pipe after its earlier instructions",
    pipes=EVERY_PIPE,
    cost=cost,
    check=check_flag,
    text=text,
    by_position=True,
)
