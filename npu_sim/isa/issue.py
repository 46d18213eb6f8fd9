"""What the scalar unit does between emission and the engines: core state becomes part of the rows.

SetAtomicAdd, Max and Min, SetHF32Mode and the instructions that write the vector mask or its meaning set states of the
core, which later instructions obey in program order. Copying them into the rows once keeps every engine, in whatever
order it runs the rows, from having to track them. The type of an addition is that of SetAtomicAdd, so it replaces the
``dtype`` of a DataCopy or DataCopyPad to GM, which has no type of its own on the hardware.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.codes import Data, Mode, Space
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.op import MMADS, Op, by_opcode

CORE_STATE_LENGTH = 8
"""int64 words: 0 = atomic data type (`Data`, NONE is off), 1 = HF32 mode, 2 and 3 = low and high half of the vector
mask, inverted (a core starts with all ones), 4 = `Mode.COUNTER` or 0, 5 = `Mode.MASK_SET` or 0, 6 = `Mode.ATOMIC_MAX`,
`Mode.ATOMIC_MIN` or 0."""

_PLAIN, _STATE, _MMAD, _MASKED = 0, 1, 2, 3


def _kind(instruction: Instruction) -> int:
    if "mask_low" in instruction.fields and instruction.routes:
        return _MASKED
    return _MMAD if instruction.op in MMADS else _STATE if instruction.op in _SETTERS else _PLAIN


_ATOMICS = (Op.SET_ATOMIC, Op.SET_ATOMIC_MAX, Op.SET_ATOMIC_MIN)
_SETTERS = (*_ATOMICS, Op.SET_HF32, Op.SET_VECTOR_MASK, Op.RESET_MASK, Op.SET_MASK_COUNT, Op.SET_MASK_NORM)
_KIND = by_opcode(_kind, dtype=np.uint8)
_ADDS = by_opcode(lambda instruction: instruction.adds, dtype=np.bool_)
"""Whether stores to GM obey SetAtomicAdd; those of the scalar unit do not."""
_TAKES_TYPE = by_opcode(
    lambda i: i.adds and "dtype" in i.fields and "dst_dtype" not in i.fields, dtype=np.bool_
)  # fmt: skip
"""Whether ``dtype`` is the type of the addition, and not that of what is converted."""
_OF_MASKS = np.int64(Mode.COUNTER | Mode.MASK_SET)


@jit
def _set_state(row, state):  # type: ignore[no-untyped-def]
    """Carry out an instruction that sets core state."""
    op = row["op"]
    if op == Op.SET_ATOMIC or op == Op.SET_ATOMIC_MAX or op == Op.SET_ATOMIC_MIN:
        state[0] = row["dtype"]
        state[6] = 0
        if op != Op.SET_ATOMIC:
            state[6] = Mode.ATOMIC_MAX if op == Op.SET_ATOMIC_MAX else Mode.ATOMIC_MIN
    elif op == Op.SET_HF32:
        state[1] = row["value"]
    elif op == Op.SET_MASK_COUNT:
        state[4] = Mode.COUNTER
    elif op == Op.SET_MASK_NORM:
        state[4] = 0
    else:
        is_reset = op == Op.RESET_MASK
        state[2] = 0 if is_reset else ~row["mask_low"]
        state[3] = 0 if is_reset else ~row["mask_high"]
        state[5] = Mode.MASK_SET


@jit
def issue(rows: np.ndarray, n: Int, core_state: np.ndarray) -> None:
    """Apply core state to ``rows[:n]`` in place and carry it on in ``core_state``."""
    for i in range(n):
        row = rows[i]
        op = row["op"]
        kind = _KIND[op]
        if kind == _PLAIN:
            if core_state[0] != Data.NONE and row["dst_space"] == Space.GM and _ADDS[op]:
                row["mode"] |= Mode.ATOMIC | core_state[6]
                if _TAKES_TYPE[op]:
                    row["dtype"] = core_state[0]
        elif kind == _MMAD:
            if core_state[1] != 0 and row["dtype"] == Data.FP32:
                row["mode"] |= Mode.HF32
        elif kind == _MASKED:
            row["mask_low"] = ~core_state[2]
            row["mask_high"] = ~core_state[3]
            row["mode"] = (row["mode"] & ~_OF_MASKS) | core_state[4] | core_state[5]
            core_state[5] = 0
        else:
            _set_state(row, core_state)
