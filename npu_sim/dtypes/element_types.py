"""Codes of the element types in memory. Nothing is imported here: errors name findings, which name such codes."""

from __future__ import annotations

from enum import IntEnum


class ElementType(IntEnum):
    """Element types by the codes that rows hold; ``isa.op.Data`` is the same enumeration."""

    NONE = 0
    """Of an instruction without elements; no format has it."""
    FP16 = 1
    BF16 = 2
    FP32 = 3
    INT32 = 4
    INT16 = 5
    INT8 = 6
    UINT8 = 7
    INT64 = 8
