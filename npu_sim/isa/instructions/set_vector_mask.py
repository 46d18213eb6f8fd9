"""SetVectorMask: which lanes of a repeat masked vector instructions write, or (SetMaskCount) how many elements."""

from __future__ import annotations

from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT, Instruction

OP = 60


emit_set_vector_mask = emitter(
    "set_vector_mask",
    OP,
    Pipe.S,
    "mask_low mask_high",
    """SetVectorMask: lane l of a repeat is active if bit l of ``mask_high:mask_low`` is 1.

Behind SetMaskCount the low 32 bits of ``mask_low`` are the number of elements. It holds until it is set anew.""",
)


INSTRUCTION = Instruction(
    api="SetVectorMask",
    emit=emit_set_vector_mask,
    source=DEVKIT + "SetVectorMask: the 128-bit mask register",
    pipes=(Pipe.S,),
    by_position=True,
)
