"""ResetMask: every lane of a repeat is active again."""

from __future__ import annotations

from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, Instruction

OP = 61


emit_reset_mask = emitter("reset_mask", OP, Pipe.S, "", "ResetMask: all 128 bits of the vector mask become 1.")


INSTRUCTION = Instruction(
    api="ResetMask",
    emit=emit_reset_mask,
    source=DEVKIT + "ResetMask",
    pipes=(Pipe.S,),
)
