"""ReadGmByPassDCache: the scalar unit reads an element of GM past its data cache, as cores do that poll a word.

GetValue behind the cleaning of its line is one too. Other cores may store such an element at the same time, so it is no
race: whether its value says anything about other bytes is what SetSignal and WaitSignal are for.
"""

from __future__ import annotations

from dataclasses import replace

from npu_sim.isa.codes import Pipe, Space
from npu_sim.isa.emitter import emitter
from npu_sim.isa.instruction import DEVKIT
from npu_sim.isa.instructions.scalar_load import INSTRUCTION as SCALAR_LOAD

OP = 112


emit_scalar_look = emitter(
    "scalar_look",
    OP,
    Pipe.S,
    "src=src0 dtype tensor",
    """ReadGmByPassDCache: the scalar unit reads an element of ``dtype`` of GM into a register, which no row shows.

``tensor`` is the GM tensor (-1: none).""",
    dst_space=Space.NONE,
    src0_space=Space.GM,
)


INSTRUCTION = replace(
    SCALAR_LOAD,
    api="ReadGmByPassDCache",
    emit=emit_scalar_look,
    source=DEVKIT + "ReadGmByPassDCache; DataCacheCleanAndInvalid before GetValue",
    routes={(Space.NONE, Space.GM): Pipe.S},
    fields=(),  # those of its own emitter
)
