"""CrossCoreWaitFlag: the core issues nothing more until another core has set a flag."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.flags import check_cross_core_flag
from npu_sim.isa.instruction import DEVKIT, SPLIT, Instruction

OP = 241


emit_cross_core_wait_flag = emitter(
    "cross_core_wait_flag",
    OP,
    Pipe.S,
    "flag_id=event",
    "CrossCoreWaitFlag(flag_id): the core issues what follows when its counter of the flag is above 0, and lowers it.",
)


@jit
def cost(cost):
    """Looking at a flag that is set."""
    return cost["flag_cycles"], np.int64(0), np.int64(0)


def text(row):
    """``CrossCoreWaitFlag(id)``."""
    return f"CrossCoreWaitFlag({int(row['event'])})"


INSTRUCTION = Instruction(
    api="CrossCoreWaitFlag",
    emit=emit_cross_core_wait_flag,
    source=DEVKIT + "synchronisation between cores: mode and pipe are ignored, the whole core waits",
    archs=SPLIT,
    pipes=(Pipe.S,),
    cost=cost,
    check=check_cross_core_flag,
    text=text,
    by_position=True,
)
