"""SetAtomicMax: stores from UB to GM leave the larger of what is there and what is stored, until SetAtomicNone."""

from __future__ import annotations

from npu_sim.isa.codes import Pipe
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instructions.set_atomic import keeping

OP = 43


emit_set_atomic_max = emitter(
    "set_atomic_max",
    OP,
    Pipe.S,
    "dtype",
    "SetAtomicMax<dtype>: GM keeps the larger element; SetAtomicNone ends it.",
)


INSTRUCTION = keeping("SetAtomicMax", emit_set_atomic_max)
