"""SetMaskNorm: the vector mask says which lanes of a repeat are active (NORMAL mode, how a core starts)."""

from __future__ import annotations

from npu_sim.isa.codes import C220, M200, Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, Instruction

OP = 63


emit_set_mask_norm = emitter(
    "set_mask_norm",
    OP,
    Pipe.S,
    "",
    "SetMaskNorm: masked instructions repeat ``repeat`` times under a mask of lanes.",
)


INSTRUCTION = Instruction(
    api="SetMaskNorm",
    emit=emit_set_mask_norm,
    source=DEVKIT + "SetMaskNorm: CTRL[56]; not on dav-c100",
    archs=frozenset({M200, C220}),
    pipes=(Pipe.S,),
)
