"""Sizes and the integer arithmetic of alignment. Nothing else lives here."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

BLOCK_BYTES = 32
"""One data block, the addressing unit of UB and L1 (asc-devkit, general constraints of DataCopy)."""

FRACTAL_BYTES = 512
"""One L0A/L0B fractal: 16 rows of one data block."""

REPEAT_BYTES = 256
"""One repeat of a vector instruction: 8 data blocks (asc-devkit, SIMD computation)."""


def ceil_div(value: int, divisor: int) -> int:
    """Return ``value / divisor`` rounded up, for non-negative integers."""
    return -(-value // divisor)


def align_up(value: int, alignment: int) -> int:
    """Return the smallest multiple of ``alignment`` that is not below ``value``."""
    return -(-value // alignment) * alignment
