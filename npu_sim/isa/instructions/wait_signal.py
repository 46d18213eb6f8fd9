"""WaitSignal: the core has seen a word of global memory as other cores left it, and issues nothing more before that.

No instruction of a device: it stands for polling a word of global memory until it has changed
(`npu_sim.program.cross_core`).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import Instruction

OP = 243


emit_wait_signal = emitter(
    "wait_signal",
    OP,
    Pipe.S,
    "word=value count",
    "The core issues what follows when word ``word`` has been set ``count`` times (`npu_sim.program.cross_core`).",
)


@jit
def cost(cost):
    """Nothing: looking at the word has its own."""
    return np.int64(0), np.int64(0), np.int64(0)


def text(row):
    """``WaitSignal(word, count)``."""
    return f"WaitSignal({int(row['value'])}, {int(row['count'])})"


INSTRUCTION = Instruction(
    api="WaitSignal",
    emit=emit_wait_signal,
    source="assumed: a word of global memory that cores poll orders them as a flag does",
    pipes=(Pipe.S,),
    ranges=(("value", 0, 2**31 - 1), ("count", 1, 2**31 - 1)),
    cost=cost,
    text=text,
    by_position=True,
)
