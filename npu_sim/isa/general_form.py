"""Semantics of every general form: the count form on copies of one repeat after the other.

The lanes of a repeat are gathered, the count form's own compiled code is called by its address on them, and the active
lanes of its result are put back. So this is compiled once for all instructions, and holds none of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_sim._jit import JIT_ENABLED, Flag, jit
from npu_sim.isa.footprint_boxes import BLOCK
from npu_sim.isa.instruction import Instruction
from npu_sim.isa.machine import call_row, machine, run_as_python
from npu_sim.isa.mask import lanes_of, mask_of_repeat, put, repeats_of, take
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

    @jit
    def _run_count_form(  # type: ignore[no-untyped-def]
        rows, gm, l1, l0a, l0b, l0c, ub, bt, fb, idx, config, scratch, staging, sink, log_runs, log_bytes, addresses
    ):
        """Carry out the row of a count form, which `dispatch` compiled before."""
        table = machine(
            gm, l1, l0a, l0b, l0c, ub, bt, fb, idx, config, scratch, staging, sink, log_runs, log_bytes, addresses
        )
        return call_row(addresses[rows[0]["op"]], table, rows[0])

else:

    def _run_count_form(rows: np.ndarray, *parts: np.ndarray) -> bool:
        return run_as_python(semantics_of(SPEC_OF_OP[int(rows[0]["op"])]), rows[0], *parts)


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
    rows[0]["value"], rows[0]["count"] = row["value"], lanes
    rows[0]["dst"], rows[0]["src0"], rows[0]["src1"] = 0, REPEAT_BYTES, 2 * REPEAT_BYTES
    for r in range(repeats_of(row, lanes)):
        low, high = mask_of_repeat(row, r, lanes)
        if _SOURCES[op] > 0:
            at = row["src0"] + r * np.int64(row["src_rep_stride"]) * BLOCK
            take(ub, at, item, lanes, np.int64(row["src_blk_stride"]), low, high, x)
        if _SOURCES[op] > 1:
            at = row["src1"] + r * np.int64(row["src1_rep_stride"]) * BLOCK
            take(ub, at, item, lanes, np.int64(row["src1_blk_stride"]), low, high, y)
        if _READS_DST[op]:
            at = row["dst"] + r * np.int64(row["dst_rep_stride"]) * BLOCK
            take(ub, at, result_item, lanes, np.int64(row["dst_blk_stride"]), low, high, dst)
        parts = (
            gm, l1, l0a, l0b, l0c, copies, bt, fb, idx, config, scratch, staging, sink, log_runs, log_bytes, addresses,
        )  # fmt: skip
        if not _run_count_form(rows, *parts):
            return False
        at = row["dst"] + r * np.int64(row["dst_rep_stride"]) * BLOCK
        put(ub, at, result_item, lanes, np.int64(row["dst_blk_stride"]), low, high, dst)
    return True
