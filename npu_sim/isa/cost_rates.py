"""Arithmetic that all cost rules share."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Flag, Int, jit

UNKNOWN_OPCODE = -1
"""Occupancy answered for an opcode without a rule."""
UNSUPPORTED = -2
"""Occupancy answered for a data type or path that the parameter set does not have."""
OUT_OF_RANGE = -3
"""Occupancy answered for operands that no instruction can hold."""
AMOUNT_LIMIT = np.int64(1) << 49
"""Where `amount` stops: more than any legal instruction moves, and small enough for what the rules multiply it by."""


@jit
def fits(operands: Any) -> Flag:
    """Return whether operands, joined by ``|``, are 16-bit numbers: one look instead of two for each."""
    return np.uint64(operands) <= np.uint64(0xFFFF)


@jit
def amount(first: Int, second: Int, third: Int) -> Int:
    """Return the product of three counts of a row (each below 2^40), 0 if one is not positive, at most `AMOUNT_LIMIT`.

    The fields of a row are 32-bit numbers that nobody may have checked: their product can leave int64.
    """
    if fits(first | second | third):
        return first * second * third
    if first <= 0 or second <= 0 or third <= 0:
        return np.int64(0)
    if np.float64(first) * np.float64(second) * np.float64(third) > np.float64(AMOUNT_LIMIT):
        return AMOUNT_LIMIT
    return first * second * third


@jit
def divide_up(value: Int, divisor: Int) -> Int:
    """Return ``value / divisor`` rounded up, for value >= 0 and divisor >= 1 (int64)."""
    return np.int64((np.uint64(value) + np.uint64(divisor) - np.uint64(1)) // np.uint64(divisor))


@jit
def transfer_cycles(byte_count: Int, millibytes_per_cycle: Int) -> Int:
    """Return the cycles of ``byte_count`` bytes at a rate in thousandths of bytes per cycle, rounded up."""
    return divide_up(byte_count * 1000, millibytes_per_cycle)
