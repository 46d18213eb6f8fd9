"""SetAtomicMin: stores from UB to GM leave the smaller of what is there and what is stored, until SetAtomicNone."""

from __future__ import annotations

from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instructions.set_atomic import keeping

OP = 44


emit_set_atomic_min = emitter(
    "set_atomic_min",
    OP,
    Pipe.S,
    "dtype",
    "SetAtomicMin<dtype>: GM keeps the smaller element; SetAtomicNone ends it.",
)


INSTRUCTION = keeping("SetAtomicMin", emit_set_atomic_min)
