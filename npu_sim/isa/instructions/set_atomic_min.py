"""SetAtomicMin: stores from UB to GM leave the smaller of what is there and what is stored, until SetAtomicNone."""

from __future__ import annotations

from npu_sim.isa.codes import C220, Data, Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, SPLIT, Instruction
from npu_sim.isa.instructions.set_atomic import INSTRUCTION as SET_ATOMIC
from npu_sim.isa.names import type_name

OP = 44


emit_set_atomic_min = emitter(
    "set_atomic_min",
    OP,
    Pipe.S,
    "dtype",
    "SetAtomicMin<dtype>: GM keeps the smaller element; SetAtomicNone ends it.",
)


def text(row):
    """``SetAtomicMin<type>``."""
    return f"SetAtomicMin<{type_name(int(row['dtype']))}>"


INSTRUCTION = Instruction(
    api="SetAtomicMin",
    emit=emit_set_atomic_min,
    source=DEVKIT + "atomics: core state; for transfers from VECOUT to GM",
    archs=SPLIT,
    pipes=(Pipe.S,),
    dtypes={C220: SET_ATOMIC.dtypes[C220] - {Data.NONE}},
    text=text,
    by_position=True,
)
