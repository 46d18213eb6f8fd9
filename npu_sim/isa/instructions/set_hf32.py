"""SetHF32Mode: whether Mmad rounds float operands to HF32 first."""

from __future__ import annotations

from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, SPLIT, Instruction

OP = 5


emit_set_hf32 = emitter(
    "set_hf32",
    OP,
    Pipe.S,
    "enable=value",
    "SetHF32Mode(enable).",
)


INSTRUCTION = Instruction(
    api="SetHF32Mode",
    emit=emit_set_hf32,
    source=DEVKIT + "SetHF32Mode: core state CTRL[46]",
    archs=SPLIT,
    pipes=(Pipe.S,),
    ranges=(("value", 0, 1),),
    by_position=True,
)
