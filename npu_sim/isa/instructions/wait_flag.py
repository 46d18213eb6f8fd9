"""WaitFlag: its pipe waits until a flag is set, and clears it."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emitter import emitter
from npu_sim.isa.flags import check_flag
from npu_sim.isa.instruction import DEVKIT, EVERY_PIPE, Instruction
from npu_sim.isa.names import pipe_name

OP = 2


emit_wait_flag = emitter(
    "wait_flag",
    OP,
    None,
    "src_pipe=peer dst_pipe=pipe event",
    "WaitFlag<src_dst>(event): ``dst_pipe`` waits for the flag and clears it.",
)


@jit
def cost(cost):
    """Handing a flag over."""
    return cost["flag_cycles"], np.int64(0), np.int64(0)


def text(row):
    """``WaitFlag<source_destination>(event)``."""
    pipe, peer = pipe_name(int(row["pipe"])), pipe_name(int(row["peer"]))
    return f"WaitFlag<{peer}_{pipe}>({int(row['event'])})"


INSTRUCTION = Instruction(
    api="WaitFlag",
    emit=emit_wait_flag,
    source=DEVKIT + "synchronisation: blocks the destination pipe until the flag is set, and clears it",
    pipes=EVERY_PIPE,
    cost=cost,
    check=check_flag,
    text=text,
    by_position=True,
)
