"""The table of instructions: every module of `npu_sim.isa.instructions`, found by itself, and its opcode.

Opcodes are numbers without meaning: what holds for some instructions and not for others is in their records.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from enum import IntEnum
from importlib import import_module
from typing import Any

import numpy as np

from npu_sim.isa import instructions
from npu_sim.isa.codes import ARCHS, C100, C220, M200, Data, Mode, Pipe, Space
from npu_sim.isa.instruction import Instruction

__all__ = [
    "ARCHS",
    "C100",
    "C220",
    "FROM_ROW",
    "M200",
    "OPS",
    "SPACE_OF_OPERAND",
    "SPEC_OF_OP",
    "Data",
    "Mode",
    "Op",
    "Pipe",
    "Space",
    "by_opcode",
    "handlers",
    "highest",
]

_OPCODES = 256


def _collect() -> tuple[Instruction, ...]:
    """Return the instructions in the order of their opcodes."""
    found: dict[int, Instruction] = {}
    for module in pkgutil.iter_modules(instructions.__path__):
        own: Instruction = import_module(f"{instructions.__name__}.{module.name}").INSTRUCTION
        if own.name != module.name.upper():
            raise ValueError(f"{module.name}: its emitter must be called emit_{module.name}")
        for instruction in (own,) if own.masked is None else (own, own.masked):
            if not 0 < instruction.op < _OPCODES - 1 or instruction.op in found:
                raise ValueError(f"{module.name}: opcode {instruction.op} is not free")
            found[instruction.op] = instruction
    return tuple(found[op] for op in sorted(found))


OPS = _collect()
"""Every instruction, once."""

# Its members are found at run time, which no type checker sees.
_enumeration: Any = IntEnum
Op: Any = _enumeration("Op", {"NOP": 0} | {instruction.name: instruction.op for instruction in OPS}, module=__name__)
"""Opcodes."""

SPEC_OF_OP: dict[int, Instruction] = {instruction.op: instruction for instruction in OPS}


def handlers(name: str) -> dict[int, Any]:
    """Return the functions that the records call ``name``, an attribute of `Instruction`, by opcode."""
    return {instruction.op: getattr(instruction, name) for instruction in OPS if getattr(instruction, name) is not None}


def by_opcode(of: Callable[[Instruction], Any], *, default: Any = 0, dtype: Any = np.int64) -> np.ndarray:
    """Return an array [256, ...] of what ``of`` gives for each instruction, ``default`` for numbers that are none."""
    table = np.full((_OPCODES, *np.shape(default)), default, dtype)
    for instruction in OPS:
        table[instruction.op] = of(instruction)
    return table


def highest(op: int, field: str) -> int:
    """Return the largest value of an operand that every architecture can encode."""
    return SPEC_OF_OP[op].highest(field)


FROM_ROW = 255
"""In `SPACE_OF_OPERAND`: the row has a field for the space."""


def _spaces(instruction: Instruction) -> list[int]:
    spaces: Mapping[str, int] = instruction.spaces
    return [
        int(spaces[name]) if name in spaces else FROM_ROW if f"{name}_space" in instruction.fields else int(Space.NONE)
        for name in ("dst", "src0", "src1")
    ]


SPACE_OF_OPERAND = by_opcode(_spaces, default=[0, 0, 0], dtype=np.uint8)
"""uint8[256, 3]: the `Space` of dst, src0 and src1, NONE for what is no operand, or `FROM_ROW`."""

MMADS = tuple(instruction.op for instruction in OPS if instruction.routes and instruction.pipes == (Pipe.M,))
"""What multiplies on the Cube."""
IS_MMAD = by_opcode(lambda instruction: instruction.op in MMADS, dtype=np.bool_)
