"""Ranges of bytes, (low, high), as extents of operands need them; None where there are none."""

from __future__ import annotations


def boxes(start, length, *dimensions):
    """Return (low, high) of ``length`` bytes repeated over (count, stride) dimensions, None if there are none."""
    if length <= 0 or any(count <= 0 for count, _ in dimensions):
        return None
    corners = [(count - 1) * stride for count, stride in dimensions]
    return start + sum(min(0, corner) for corner in corners), start + length + sum(max(0, c) for c in corners)


def join(*ranges):
    """Return the least range that holds all of ``ranges``."""
    present = [one for one in ranges if one is not None]
    return (min(low for low, _ in present), max(high for _, high in present)) if present else None
