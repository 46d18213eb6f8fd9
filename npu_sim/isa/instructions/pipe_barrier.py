"""PipeBarrier: later instructions of a pipe wait for earlier ones."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, EVERY_PIPE, Instruction
from npu_sim.isa.names import pipe_name

OP = 3


emit_pipe_barrier = emitter(
    "pipe_barrier",
    OP,
    None,
    "pipe=pipe",
    "PipeBarrier<pipe>: later instructions of ``pipe`` (`Pipe.ALL`: of every pipe) wait for earlier ones.",
)


@jit
def cost(cost):
    """Handing a barrier over."""
    return cost["barrier_cycles"], np.int64(0), np.int64(0)


def text(row):
    """``PipeBarrier<PIPE_name>``."""
    return f"PipeBarrier<PIPE_{pipe_name(int(row['pipe']))}>"


INSTRUCTION = Instruction(
    api="PipeBarrier",
    emit=emit_pipe_barrier,
    source=DEVKIT + "synchronisation: later instructions of the pipe wait for earlier ones",
    pipes=(*EVERY_PIPE[1:], Pipe.ALL),  # the scalar unit has none of its own
    cost=cost,
    text=text,
    defaults={"pipe": Pipe.ALL},
    by_position=True,
)
