"""What the image-to-column loads of a tiling's walk would have to encode, held to what the instructions can."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.op import highest

Excess = tuple[str, int, int]
"""Operand, the largest value the walk needs, the largest value the instruction has."""


def largest_start(block: int, count: int, step: int, period: int) -> int:
    """Return the largest start a walk over ``count`` blocks gives a load, in elements.

    Blocks come in groups of ``step``. The buffer of a group begins at the last multiple of ``period`` at or before the
    group's first block, and the loads of the group's blocks are counted from there.

    Parameters
    ----------
    block, period : int
        Elements.
    count, step : int
        Blocks.
    """
    # Where groups begin within a period repeats after at most ``period`` groups, and a shorter last group starts no
    # load further in than a full one.
    cycle = period // np.gcd(step * block, period)
    first = np.arange(min(-(-count // step), cycle), dtype=np.int64) * step
    return int((first * block % period + (np.minimum(step, count - first) - 1) * block).max())


def excess(needs: tuple[tuple[int, str, int], ...]) -> tuple[Excess, ...]:
    """Return which of (opcode, operand, largest value of the walk) cannot be encoded; empty when all can."""
    bounds = ((name, value, highest(op, name)) for op, name, value in needs)
    return tuple(bound for bound in bounds if bound[1] > bound[2])
