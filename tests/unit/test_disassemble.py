from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim.isa import emit
from npu_sim.isa.op import OPS, Data, Mode, Op, Pipe, Space
from npu_sim.isa.row import empty_rows
from npu_sim.program.disassemble import disassemble, listing, name_of


def _row(emitter, *args):
    rows = empty_rows(1)
    emitter(rows, 0, *args)
    return rows[0]


CASES = [
    (emit.emit_set_flag, (Pipe.MTE2, Pipe.MTE1, 3, 0, 0), "MTE2 SetFlag<MTE2_MTE1>(3)"),
    (emit.emit_wait_flag, (Pipe.MTE2, Pipe.MTE1, 3, 0, 0), "MTE1 WaitFlag<MTE2_MTE1>(3)"),
    (emit.emit_pipe_barrier, (Pipe.ALL, 0, 0), "ALL  PipeBarrier<PIPE_ALL>"),
    (emit.emit_set_atomic, (Data.FP32, 0, 0), "S    SetAtomicAdd<float>"),
    (emit.emit_set_atomic, (Data.NONE, 0, 0), "S    SetAtomicNone"),
    (emit.emit_set_atomic_max, (Data.BF16, 0, 0), "S    SetAtomicMax<bfloat16_t>"),
    (emit.emit_set_atomic_min, (Data.INT8, 0, 0), "S    SetAtomicMin<int8_t>"),
    (emit.emit_set_hf32, (1, 0, 0), "S    SetHF32Mode value 0x1"),
    (
        emit.emit_data_copy,
        (Space.L1, 32, Space.GM, 0x200, 4, 8, 1, 2, Data.FP16, 5, 0, 0),
        "MTE2 DataCopy L1[0x20], GM[0x200] tensor 5, block_count 4, block_len 8, src_gap 1, dst_gap 2, dtype half",
    ),
    (
        emit.emit_mmad,
        (1024, 0, 512, Data.BF16, 17, 33, 5, Mode.INIT, 0, 0),
        "M    Mmad L0C[0x400], L0A[0x0], L0B[0x200], dtype bfloat16_t, m 17, n 33, k 5, mode init",
    ),
    (
        emit.emit_add,
        (0, 32, 64, Data.FP32, 9, 0, 0),
        "V    Add UB[0x0], UB[0x20], UB[0x40], dtype float, count 9",
    ),
    (
        emit.emit_duplicate,
        (64, Data.FP32, 9, -1, 0, 0),
        "V    Duplicate UB[0x40], dtype float, count 9, value 0xffffffff",
    ),
]


@pytest.mark.parametrize(("emitter", "args", "text"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_disassemble_known_row_is_the_line(emitter, args, text):
    assert disassemble(_row(emitter, *args)) == text


@pytest.mark.parametrize("spec", OPS, ids=lambda spec: spec.name)
def test_disassemble_every_operand_of_the_table_changes_the_line(spec):
    """A field left out of the line would let two different instructions look the same."""
    rows = empty_rows(1)
    row = rows[0]
    row["op"] = spec.op
    row["pipe"] = spec.pipes[0]
    row["dst_space"], row["src0_space"], row["dtype"] = Space.L1, Space.GM, Data.FP32
    before = disassemble(row)
    assert "\n" not in before
    for field in spec.fields:
        changed = rows.copy()[0]
        changed[field] = Data.FP16 if field.endswith("dtype") else Space.UB if field.endswith("space") else 2
        assert disassemble(changed) != before, field


def test_disassemble_atomic_bit_shows_on_stores():
    row = _row(emit.emit_data_copy, Space.GM, 0, Space.UB, 0, 1, 1, 0, 0, Data.FP32, 0, 0, 0)
    row["mode"] |= Mode.ATOMIC
    assert disassemble(row).endswith(", dtype float, mode atomic")


def test_disassemble_garbage_never_fails():
    rng = np.random.default_rng(7)
    raw = rng.integers(0, 256, (500, 128), dtype=np.uint8)
    rows = raw.reshape(-1).view(empty_rows(1).dtype)
    rows["op"][:200] = rng.integers(0, 20, 200)
    for row in rows:
        assert "\n" not in disassemble(row)


def test_name_of_unknown_opcode_is_its_number():
    row = empty_rows(1)[0]
    row["op"] = 99
    assert name_of(row) == "Op<99>"
    row["op"] = Op.NOP
    assert name_of(row) == "Nop"


def test_listing_numbers_rows_and_names_sites():
    rows = empty_rows(2)
    emit.emit_set_flag(rows, 0, Pipe.M, Pipe.FIX, 0, 1, 12)
    emit.emit_wait_flag(rows, 1, Pipe.M, Pipe.FIX, 0, 2, 12)
    lines = listing(rows, first=40, sites={1: "DRAIN"}).splitlines()
    assert re.fullmatch(r" +40  tile 12   DRAIN       M    SetFlag<M_FIX>\(0\)", lines[0])
    assert re.fullmatch(r" +41  tile 12   2           FIX  WaitFlag<M_FIX>\(0\)", lines[1])
