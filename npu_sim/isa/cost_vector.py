"""Cost rules of the vector unit and of the scalar unit's element moves."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.cost_rates import UNKNOWN_OPCODE, UNSUPPORTED, divide_up, item_bytes
from npu_sim.isa.op import Op, Space
from npu_sim.isa.vector_kind import has_scalar, has_two_inputs


@jit
def add_step_millicycles(destination, source0, source1, cost):
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
def _vector(count, size, step, call, written, cost):
    """Count-style vector instruction: ``call + step * repeats``, more if the last repeat is not full."""
    byte_count = count * size
    if byte_count <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    repeat_bytes = cost["vector_repeat_bytes"]
    repeats = divide_up(byte_count, repeat_bytes)
    occupancy = call + divide_up(repeats * step, 1000)
    if repeats * repeat_bytes != byte_count:
        occupancy += cost["vector_partial_cycles"]
    return max(occupancy, cost["vector_minimum_cycles"]), np.int64(0), written


@jit
def _repeats(repeats, step, call, written, cost):
    """Repeat-style vector instruction: ``call + step * repeats``."""
    if repeats <= 0:
        return cost["issue_cycles"], np.int64(0), np.int64(0)
    occupancy = call + divide_up(repeats * step, 1000)
    return max(occupancy, cost["vector_minimum_cycles"]), np.int64(0), written


@jit
def _reduce_repeat(row, size, cost):
    repeats = np.int64(row["repeat"])
    mask = np.int64(row["mask"])
    if mask <= 0:
        repeats = np.int64(0)
    call = cost["vector_reduce_cycles"]
    if size > 0 and mask < cost["vector_repeat_bytes"] // size:
        call += cost["vector_partial_cycles"]
    return _repeats(repeats, cost["vector_reduce_step_millicycles"], call, repeats * size, cost)


@jit
def vector_cost(row, cost):
    """Return (occupancy, latency, bytes) of a row of the vector or the scalar unit, as `cost.row_cost_bytes` does."""
    op = row["op"]
    size = np.int64(item_bytes(row["dtype"]))
    if op == Op.SCALAR_COPY:
        in_gm = row["src0_space"] == Space.GM or row["dst_space"] == Space.GM
        return cost["scalar_gm_cycles"] if in_gm else cost["scalar_ub_cycles"], np.int64(0), size
    if op == Op.TRANS_DATA_TO_5HD:
        if size != 2 and size != 4:
            return np.int64(UNSUPPORTED), np.int64(0), np.int64(0)
        repeats = np.int64(row["repeat"])
        return _repeats(repeats, cost["vector_5hd_step_millicycles"], cost["vector_5hd_cycles"], repeats * 512, cost)
    if op == Op.REDUCE_REPEAT:
        return _reduce_repeat(row, size, cost)
    count = np.int64(row["count"])
    step = cost["vector_step_millicycles"]
    if op == Op.DUPLICATE:
        return _vector(count, size, step, cost["vector_duplicate_cycles"], count * size, cost)
    if has_scalar(op):
        return _vector(count, size, step, cost["vector_muls_cycles"], count * size, cost)
    if op == Op.DIV:
        step = cost["vector_div_step_millicycles"]
        return _vector(count, size, step, cost["vector_div_cycles"], count * size, cost)
    if has_two_inputs(op):
        step = add_step_millicycles(row["dst"], row["src0"], row["src1"], cost)
        return _vector(count, size, step, cost["vector_add_cycles"], count * size, cost)
    if op == Op.CAST:
        target = np.int64(item_bytes(row["dst_dtype"]))
        return _vector(count, max(size, target), step, cost["vector_cast_cycles"], count * target, cost)
    return np.int64(UNKNOWN_OPCODE), np.int64(0), np.int64(0)
