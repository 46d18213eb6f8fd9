"""What the scalar unit does between emission and the engines: core state becomes part of the rows.

SetAtomicAdd and SetHF32Mode are states of the core that later instructions obey in program order. Copying them into
``mode`` once keeps every engine, in whatever order it runs the rows, from having to track them. The type of an addition
is that of SetAtomicAdd, so it replaces the ``dtype`` of a DataCopy or DataCopyPad to GM, which has no type of its own
on the hardware.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.isa.op import Op, by_opcode

CORE_STATE_LENGTH = 8
"""int64 words: 0 = atomic data type (`Data`, NONE is off), 1 = HF32 mode."""


_ADDS = by_opcode(lambda instruction: instruction.adds, dtype=np.bool_)
"""Whether stores to GM obey SetAtomicAdd; those of the scalar unit do not."""
_TAKES_TYPE = by_opcode(lambda instruction: instruction.adds and "dtype" in instruction.fields, dtype=np.bool_)
"""Whether ``dtype`` is the type of the addition."""


@jit
def issue(rows: np.ndarray, n: Int, core_state: np.ndarray) -> None:
    """Apply core state to ``rows[:n]`` in place and carry it on in ``core_state``."""
    atomic = core_state[0]
    hf32 = core_state[1]
    for i in range(n):
        row = rows[i]
        op = row["op"]
        if op == Op.SET_ATOMIC:
            atomic = row["dtype"]
        elif op == Op.SET_HF32:
            hf32 = row["value"]
        elif op == Op.MMAD:
            if hf32 != 0 and row["dtype"] == Data.FP32:
                row["mode"] |= Mode.HF32
        elif atomic != Data.NONE and row["dst_space"] == Space.GM and _ADDS[op]:
            row["mode"] |= Mode.ATOMIC
            if _TAKES_TYPE[op]:
                row["dtype"] = atomic
    core_state[0] = atomic
    core_state[1] = hf32
