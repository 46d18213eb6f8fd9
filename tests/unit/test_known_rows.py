from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa import emit
from npu_sim.isa.codes import Data, Space
from npu_sim.isa.op import SPEC_OF_OP
from npu_sim.isa.row import INSTR, ROW_BYTES, empty_rows
from npu_sim.products import get_product
from npu_sim.program import verify as verifying
from npu_sim.program.known_rows import CAPACITY, KnownRows, known_rows_of
from npu_sim.program.verify import verify
from tests.oracles.instances import GENERATORS, candidates

PRODUCT = get_product("910b")
pytestmark = pytest.mark.skipif(not JIT_ENABLED, reason="rows are not remembered where nothing is compiled")


def _copies(count, address=0):
    """Return loads from GM whose addresses are ``address`` and blocks behind it."""
    rows, number = empty_rows(count), np.arange(count)
    emit.emit_data_copy(rows, 0, Space.UB, 0, Space.GM, address, 1, 1, 0, 0, Data.FP16, 0, 0, 0)
    rows[:] = rows[0]
    rows["src0"] += 32 * number
    rows["tensor"], rows["site"], rows["tile"] = number % 7, number, number + 1
    return rows


def _bytes(rows):
    return rows.view(np.uint8).reshape(-1, ROW_BYTES)


@pytest.mark.parametrize("op", sorted(GENERATORS), ids=lambda op: SPEC_OF_OP[op].name)
def test_a_row_beside_known_ones_is_judged_as_without_them(op):
    rng = np.random.default_rng(op)
    wrong = 0
    for instance in candidates(op, 7, 12):
        rows, product = empty_rows(len(instance.rows)), instance.builder.product
        rows[:] = instance.rows
        assert verify(rows, product) == []
        others = []
        for trial in range(24):
            other = rows.copy()
            kind, offset, *_ = INSTR.fields[str(rng.choice([*SPEC_OF_OP[op].fields, "op", "pipe", "mode"]))]
            byte = offset + rng.integers(kind.itemsize) if trial % 2 else rng.integers(ROW_BYTES)
            row = rng.choice(np.flatnonzero(rows["op"] == op))
            _bytes(other)[row, byte] ^= 1 << rng.integers(8)
            others.append(other)
        # all at once, as each is judged by itself
        joined, count = empty_rows(len(others) * len(rows)), len(rows)
        joined.reshape(len(others), count)[:] = others
        found = verifying._violations(joined, product, None)
        for trial, other in enumerate(others):
            expected = [replace(one, row=one.row - trial * count) for one in found if one.row // count == trial]
            assert verify(other, product) == expected
            wrong += bool(expected)
    assert wrong


def test_each_kind_of_row_is_judged_once():
    known, seen = KnownRows(), []

    def judge(rows):
        seen.append(len(rows))
        return True

    assert known.are_right(_copies(64), judge)
    assert seen == [1]
    assert known.are_right(_copies(64, address=1 << 20), judge)
    assert seen == [1]
    longer = _copies(3)
    longer["block_len"][1] = 2
    assert known.are_right(longer, judge)
    assert seen == [1, 1]


@pytest.mark.parametrize("address", [2, 16, 1 << 40, -(1 << 41)])
def test_an_address_that_blocks_do_not_lead_to_is_another(address):
    known, seen = KnownRows(), []
    assert known.are_right(_copies(4), lambda rows: True)
    other = _copies(1)
    other["src0"] = address
    assert known.are_right(other, lambda rows: seen.append(rows["src0"].tolist()) is None)
    assert seen == [[address]]


def test_what_was_wrong_is_not_known():
    known = KnownRows()
    assert not known.are_right(_copies(2), lambda rows: False)
    assert not known.are_right(_copies(2), lambda rows: False)
    with pytest.raises(ZeroDivisionError):
        known.are_right(_copies(2), lambda rows: 1 // 0)
    assert not known.are_right(_copies(2), lambda rows: False)


def test_more_kinds_of_rows_than_there_is_room_for_are_all_judged():
    rows = _copies(CAPACITY + 1)
    rows["dst"] = 32 * (np.arange(len(rows)) % 6000)
    rows["block_len"] = 1 + np.arange(len(rows)) // 6000
    known = KnownRows()
    assert not known.are_right(rows, lambda some: True)
    assert known.are_right(rows[:CAPACITY], lambda some: len(some) == CAPACITY)
    assert known.are_right(rows[:CAPACITY], lambda some: False)
    assert not known.are_right(rows[CAPACITY:], lambda some: True)
    assert verify(rows, PRODUCT) == []
    rows["dst"][-1] = 31
    assert [found.row for found in verify(rows, PRODUCT)] == [CAPACITY]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that are copies")
def test_the_copy_of_a_process_that_judges_does_not_wait_for_it():
    table = known_rows_of((PRODUCT, None))
    with table._lock:  # another thread of this process is judging
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if verify(_copies(4), PRODUCT) == [] else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_machines_that_differ_know_rows_of_their_own():
    small = replace(PRODUCT, core=replace(PRODUCT.core, l1_bytes=1 << 12))
    rows = _copies(1)
    rows["dst_space"], rows["dst"] = Space.L1, 1 << 13
    assert verify(rows, PRODUCT) == []
    assert [found.row for found in verify(rows, small)] == [0]
    assert verify(rows, PRODUCT) == []
    assert known_rows_of((PRODUCT, None)) is known_rows_of((replace(PRODUCT), None))
    assert known_rows_of((PRODUCT, "cube")) is not known_rows_of((PRODUCT, "vector"))


def _of_scalar(op, bits):
    rows = empty_rows(1)
    if op == "adds":
        emit.emit_adds(rows, 0, 0, 4096, Data.FP32, 64, bits, 0, 0)
    else:
        emit.emit_shift_left(rows, 0, 0, 4096, Data.INT32, 64, bits, 0, 0)
    return rows


def test_numbers_that_no_rule_looks_at_make_no_new_row(monkeypatch):
    assert verify(_of_scalar("adds", 0x3F800000), PRODUCT) == []
    assert verify(_of_scalar("shift_left", 3), PRODUCT) == []
    judged = []
    monkeypatch.setattr(verifying, "_violations", lambda rows, *_: judged.append(rows) or [])
    assert verify(_of_scalar("adds", 0x40490FDB), PRODUCT) == []
    assert judged == []
    assert verify(_of_scalar("shift_left", 4), PRODUCT) == []
    assert len(judged) == 1
