"""SetSignal: what a core stored to a word of global memory is there, for those who look at that word.

No instruction of a device: it stands for the stores themselves, behind which other cores may find the new value
(`npu_sim.program.cross_core`).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import EVERY_PIPE, Instruction
from npu_sim.isa.names import pipe_name

OP = 242


emit_set_signal = emitter(
    "set_signal",
    OP,
    None,
    "pipe=pipe word=value",
    "What earlier instructions of ``pipe`` stored to word ``word`` is there (`npu_sim.program.cross_core`).",
)


@jit
def cost(cost):
    """Nothing: the stores have theirs."""
    return np.int64(0), np.int64(0), np.int64(0)


def text(row):
    """``SetSignal<PIPE_name>(word)``."""
    return f"SetSignal<PIPE_{pipe_name(int(row['pipe']))}>({int(row['value'])})"


INSTRUCTION = Instruction(
    api="SetSignal",
    emit=emit_set_signal,
    source="assumed: a word of global memory that cores poll orders them as a flag does",
    pipes=EVERY_PIPE,
    ranges=(("value", 0, 2**31 - 1),),
    cost=cost,
    text=text,
    by_position=True,
)
