"""SetMaskCount: the vector mask is the number of elements of an instruction (COUNTER mode)."""

from __future__ import annotations

from npu_sim.isa.codes import C220, M200, Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, Instruction

OP = 62


emit_set_mask_count = emitter(
    "set_mask_count",
    OP,
    Pipe.S,
    "",
    "SetMaskCount: masked instructions take as many elements as the mask says, whatever their ``repeat``.",
)


INSTRUCTION = Instruction(
    api="SetMaskCount",
    emit=emit_set_mask_count,
    source=DEVKIT + "SetMaskCount: CTRL[56]; not on dav-c100",
    archs=frozenset({M200, C220}),
    pipes=(Pipe.S,),
)
