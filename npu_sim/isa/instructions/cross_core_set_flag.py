"""CrossCoreSetFlag: tells other cores that the earlier instructions of a pipe are complete."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emitter import emitter
from npu_sim.isa.flags import CROSS_CORE_MODES, check_cross_core_flag
from npu_sim.isa.instruction import DEVKIT, EVERY_PIPE, SPLIT, Instruction
from npu_sim.isa.names import pipe_name

OP = 240


emit_cross_core_set_flag = emitter(
    "cross_core_set_flag",
    OP,
    None,
    "mode_id=value pipe=pipe flag_id=event",
    "CrossCoreSetFlag<mode_id, pipe>(flag_id): counts on other cores when the earlier instructions of ``pipe`` are "
    "complete and all who set it together have (`npu_sim.program.cross_core`).",
)


@jit
def cost(cost):
    """Handing a flag over; how long it is under way is not the pipe's time."""
    return cost["flag_cycles"], np.int64(0), np.int64(0)


def text(row):
    """``CrossCoreSetFlag<mode, PIPE_name>(id)``."""
    return f"CrossCoreSetFlag<{int(row['value'])}, PIPE_{pipe_name(int(row['pipe']))}>({int(row['event'])})"


INSTRUCTION = Instruction(
    api="CrossCoreSetFlag",
    emit=emit_cross_core_set_flag,
    source=DEVKIT + "synchronisation between cores: queued in its pipe, modes 0 to 2, 16 counters of each core",
    archs=SPLIT,
    pipes=EVERY_PIPE[1:],  # the scalar unit has no queue
    ranges=(("value", 0, CROSS_CORE_MODES - 1),),
    cost=cost,
    check=check_cross_core_flag,
    text=text,
    by_position=True,
)
