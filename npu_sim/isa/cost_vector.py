"""Cost of the vector unit: repeats of 256 bytes, bank groups, and what streams.

An instruction occupies the pipe for its steps and is complete a start-up later, so that a stream of independent ones
pays the start-up once. Calls that set the vector mask do not stream: the mask is written when the pipe is empty, so
their start-up is part of the occupancy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.cost_rates import divide_up
from npu_sim.isa.mte import BLOCK


@jit
def add_step_millicycles(destination: Int, source0: Int, source1: Int, cost: Any) -> Int:
    """Return the time of one repeat of Add by the bank groups of its operands (byte addresses in UB).

    A repeat reads 8 consecutive blocks of each source, so the sources take different groups only when they start 8
    blocks apart (modulo 16). A destination that overlaps the 8 banks of a source partly delays the repeat; one that
    starts in the same bank does not, because the write happens one repeat later.
    """
    groups = cost["ub_bank_groups"]
    half = groups >> 1
    mask = groups - 1
    if (((source0 >> 5) - (source1 >> 5)) & mask) != half:
        return cost["vector_read_conflict_millicycles"]
    bank = cost["ub_bank_bytes"]
    for source in (source0, source1):
        shift = ((destination >> 5) - (source >> 5)) & mask
        if shift != 0 and shift != half and destination // bank == source // bank:
            return cost["vector_write_conflict_millicycles"]
    return cost["vector_step_millicycles"]


@jit
def block_conflicts(blk_stride: Int, groups: Int) -> Int:
    """Return how many of the 8 blocks of a repeat meet in one bank group; ``groups`` is a power of two.

    A stride of 0 is one block, read once.
    """
    if blk_stride <= 0:
        return np.int64(1)
    blk_stride = np.int64(blk_stride)
    return max(8 * min(blk_stride & -blk_stride, np.int64(groups)) // np.int64(groups), np.int64(1))


@jit
def whole_vector(count: Int, size: Int, step: Int, call: Int, written: Int, cost: Any) -> Any:
    """Count-style call, which sets the mask: ``call + step * repeats``, more where repeat or block are not full."""
    byte_count = count * size
    if byte_count <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    repeat_bytes = cost["vector_repeat_bytes"]
    repeats = divide_up(byte_count, repeat_bytes)
    occupancy = call + divide_up(repeats * step, 1000)
    if repeats * repeat_bytes != byte_count:
        occupancy += cost["vector_partial_cycles"]
        if written % BLOCK != 0:
            occupancy += cost["vector_partial_block_cycles"]
    return max(occupancy, cost["vector_minimum_cycles"]), np.int64(0), written


@jit
def repeated(repeats: Int, step: Int, call: Int, written: Int, cost: Any) -> Any:
    """Repeat-style call, which sets the mask: ``call + step * repeats``."""
    if repeats <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    occupancy = call + divide_up(repeats * step, 1000)
    return max(occupancy, cost["vector_minimum_cycles"]), np.int64(0), written


@jit
def streamed(repeats: Int, step: Int, start: Int, written: Int, cost: Any) -> Any:
    """Repeat-style instruction without a mask: ``step * repeats``, complete ``start`` cycles later."""
    if repeats <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    return max(divide_up(repeats * step, 1000), cost["vector_minimum_cycles"]), start, written
