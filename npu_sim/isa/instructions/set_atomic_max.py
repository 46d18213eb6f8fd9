"""SetAtomicMax: stores from UB to GM leave the larger of what is there and what is stored, until SetAtomicNone."""

from __future__ import annotations

from npu_sim.isa.codes import C220, Data, Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, SPLIT, Instruction
from npu_sim.isa.instructions.set_atomic import INSTRUCTION as SET_ATOMIC
from npu_sim.isa.names import type_name

OP = 43


emit_set_atomic_max = emitter(
    "set_atomic_max",
    OP,
    Pipe.S,
    "dtype",
    "SetAtomicMax<dtype>: GM keeps the larger element; SetAtomicNone ends it.",
)


def text(row):
    """``SetAtomicMax<type>``."""
    return f"SetAtomicMax<{type_name(int(row['dtype']))}>"


INSTRUCTION = Instruction(
    api="SetAtomicMax",
    emit=emit_set_atomic_max,
    source=DEVKIT + "atomics: core state; for transfers from VECOUT to GM",
    archs=SPLIT,
    pipes=(Pipe.S,),
    dtypes={C220: SET_ATOMIC.dtypes[C220] - {Data.NONE}},
    text=text,
    by_position=True,
)
