"""Semantics of every general form: the count form's own compiled code, called by its address.

Where the active lanes are adjacent in all operands it runs on UB itself: once, where all repeats are, or repeat by
repeat. Else the lanes of a repeat are gathered, it runs on the copies, and the active lanes of the result are put back.
So this is compiled once for all instructions, and holds none of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import JIT_ENABLED, Flag, Int, jit
from npu_sim.isa.footprint_boxes import BLOCK
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.machine import call_row, machine, run_as_python
from npu_sim.isa.mask import (
    elements_in_a_row,
    elements_of,
    is_counter,
    lanes_of,
    leading_lanes,
    mask_of_repeat,
    put,
    repeats_of,
    take,
)
from npu_sim.isa.mte import item_bytes
from npu_sim.isa.op import SPEC_OF_OP, by_opcode
from npu_sim.isa.row import INSTR
from npu_sim.isa.vector_apart import semantics_of
from npu_sim.reinterpret import reinterpret
from npu_sim.units import REPEAT_BYTES

_COUNT_FORM = by_opcode(lambda instruction: instruction.general_form_of, dtype=np.uint8)
_SOURCES = by_opcode(lambda instruction: instruction.inputs, dtype=np.uint8)
_HAS_OWN_RESULT = by_opcode(lambda instruction: "dst_dtype" in instruction.fields, dtype=np.bool_)

_STAGED = 4096
"""Where in ``staging`` copies of the operands lie: behind what the semantics of count forms use of it."""
_WORDS = 3 * REPEAT_BYTES // 4


def _reads_dst(instruction: Instruction) -> bool:
    count_form = SPEC_OF_OP.get(instruction.general_form_of)
    return count_form is not None and count_form.reads_dst


_READS_DST = by_opcode(_reads_dst, dtype=np.bool_)

if JIT_ENABLED:
    _table = machine

    @jit
    def _run_count_form(table: Int, rows: Any, addresses: np.ndarray) -> Flag:
        """Carry out the row of a count form, which `dispatch` compiled before."""
        return call_row(addresses[rows[0]["op"]], table, rows[0])

else:

    def _table(*parts: np.ndarray) -> tuple[np.ndarray, ...]:
        return parts

    def _run_count_form(table: Any, rows: Any, addresses: np.ndarray) -> Flag:
        return run_as_python(semantics_of(SPEC_OF_OP[int(rows[0]["op"])]), rows[0], *table)


@jit
def _is_row(blk: Int, width: Int) -> Flag:
    """Return whether the ``width`` bytes of a repeat are adjacent with that stride of blocks."""
    return blk == 1 or width <= BLOCK


@jit
def _may_run_on_ub(sources: Int, d: Int, a: Int, b: Int, count: Int, result_item: Int, item: Int) -> Flag:
    """Return whether each source of ``count`` elements is the result, element for element, or apart from it."""
    end = d + count * result_item
    a_is = sources < 1 or (a == d and item == result_item) or a >= end or a + count * item <= d
    return a_is and (sources < 2 or (b == d and item == result_item) or b >= end or b + count * item <= d)


@jit
def run_general_form(
    row: Any,
    gm: np.ndarray,
    l1: np.ndarray,
    l0a: np.ndarray,
    l0b: np.ndarray,
    l0c: np.ndarray,
    ub: np.ndarray,
    bt: np.ndarray,
    fb: np.ndarray,
    idx: np.ndarray,
    config: np.ndarray,
    scratch: np.ndarray,
    staging: np.ndarray,
    sink: np.ndarray,
    log_runs: np.ndarray,
    log_bytes: np.ndarray,
    addresses: np.ndarray,
) -> Flag:
    """Carry out an instruction in its general form; ``staging``: float32 scratch, at least 8192."""
    op = row["op"]
    item = np.int64(item_bytes(row["dtype"]))
    result_item = np.int64(item_bytes(row["dst_dtype"])) if _HAS_OWN_RESULT[op] else item
    if item == 0 or result_item == 0:
        return False
    lanes = lanes_of(max(item, result_item))
    copies = reinterpret(staging[_STAGED : _STAGED + _WORDS], np.uint8)
    dst = copies[:REPEAT_BYTES]
    x, y = copies[REPEAT_BYTES : 2 * REPEAT_BYTES], copies[2 * REPEAT_BYTES : 3 * REPEAT_BYTES]
    rows = np.empty(1, INSTR)
    rows[0]["op"], rows[0]["mode"] = _COUNT_FORM[op], 0
    rows[0]["dtype"], rows[0]["dst_dtype"], rows[0]["round_mode"] = row["dtype"], row["dst_dtype"], row["round_mode"]
    rows[0]["value"] = row["value"]
    sources = _SOURCES[op]
    d, a, b = np.int64(row["dst"]), np.int64(row["src0"]), np.int64(row["src1"])
    d_blk, d_step = np.int64(row["dst_blk_stride"]), np.int64(row["dst_rep_stride"]) * BLOCK
    a_blk, a_step = np.int64(row["src_blk_stride"]), np.int64(row["src_rep_stride"]) * BLOCK
    b_blk, b_step = np.int64(row["src1_blk_stride"]), np.int64(row["src1_rep_stride"]) * BLOCK
    width, result_width = lanes * item, lanes * result_item
    in_rows = (
        _is_row(d_blk, result_width)
        and (sources < 1 or _is_row(a_blk, width))
        and (sources < 2 or _is_row(b_blk, width))
    )
    on_ub = _table(
        gm, l1, l0a, l0b, l0c, ub, bt, fb, idx, config, scratch, staging, sink, log_runs, log_bytes, addresses
    )
    if in_rows and d_step == result_width and (sources < 1 or a_step == width) and (sources < 2 or b_step == width):
        count = elements_in_a_row(row, lanes)
        if count >= 0 and _may_run_on_ub(sources, d, a, b, count, result_item, item):
            rows[0]["dst"], rows[0]["src0"], rows[0]["src1"], rows[0]["count"] = d, a, b, count
            return _run_count_form(on_ub, rows, addresses)
    on_copies = _table(
        gm, l1, l0a, l0b, l0c, copies, bt, fb, idx, config, scratch, staging, sink, log_runs, log_bytes, addresses
    )
    low, high = row["mask_low"], row["mask_high"]
    count = leading_lanes(low, high, lanes)
    for r in range(repeats_of(row, lanes)):
        if is_counter(row):
            low, high = mask_of_repeat(row, r, lanes)
            count = min(elements_of(row) - r * lanes, lanes)
        if in_rows and count >= 0 and _may_run_on_ub(sources, d, a, b, count, result_item, item):
            rows[0]["dst"], rows[0]["src0"], rows[0]["src1"], rows[0]["count"] = d, a, b, count
            if not _run_count_form(on_ub, rows, addresses):
                return False
        else:
            if sources > 0:
                take(ub, a, item, lanes, a_blk, low, high, x)
            if sources > 1:
                take(ub, b, item, lanes, b_blk, low, high, y)
            if _READS_DST[op]:
                take(ub, d, result_item, lanes, d_blk, low, high, dst)
            rows[0]["dst"], rows[0]["src0"], rows[0]["src1"] = 0, REPEAT_BYTES, 2 * REPEAT_BYTES
            rows[0]["count"] = lanes
            if not _run_count_form(on_copies, rows, addresses):
                return False
            put(ub, d, result_item, lanes, d_blk, low, high, dst)
        d, a, b = d + d_step, a + a_step, b + b_step
    return True
