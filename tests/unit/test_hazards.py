from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_sim.engines import hazards, hazards_book
from npu_sim.engines.hazards import run_hazards_programs
from npu_sim.engines.hazards_checker import Checker
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Op, Pipe, Space
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product
from npu_sim.program.violation import Kind
from tests.oracles.hazards import analyse
from tests.oracles.programs import GM_TABLE, PRODUCT_TABLE, SYNC_OPS, double_buffered_product, random_program

A2 = get_product("910b")
PRODUCT = replace(A2, core=replace(A2.core, barrier_pipes=()))
"""Pipes order their own rows: `test_hazards_lives` has the barriers."""
HAZARDS = {Kind.SYNC_READ_HAZARD: "read", Kind.SYNC_WRITE_HAZARD: "write"}


def _key_of_row(programs):
    """Return {(core, row number through the phases): key}."""
    keys, rows_of_core = {}, {}
    for phase, cores in enumerate(programs):
        for core, rows in enumerate(cores):
            first = rows_of_core.get(core, 0)
            keys.update({(core, first + i): (phase, core, i) for i in range(len(rows))})
            rows_of_core[core] = first + len(rows)
    return keys


def _other_core(violation):
    if " core " in violation.detail and violation.detail.endswith(" in the same phase"):
        return int(violation.detail.split(" core ")[1].split()[0])
    return violation.core


def check_against_oracle(programs, table):
    """Compare the engine with brute force; return whether the program had a conflicting pair."""
    expected = analyse(programs, table)
    found = run_hazards_programs(programs, PRODUCT, table)
    keys = _key_of_row(programs)
    pairs, kinds = set(), {}
    for violation in found:
        key = keys[violation.core, violation.row]
        kinds.setdefault(violation.kind, set()).add(key)
        if violation.kind in HAZARDS:
            pairs.add((key, keys[_other_core(violation), violation.other_row], HAZARDS[violation.kind]))
    assert pairs <= expected.pairs
    assert bool(pairs) == bool(expected.pairs)
    if expected.pairs:
        # Nothing is lost before the first conflict, so the first row in one must be found as well.
        assert min(key for key, _, _ in pairs) == min(key for key, _, _ in expected.pairs)
    assert kinds.get(Kind.READ_UNINITIALISED, set()) == set(expected.uninitialised)
    spans = {}
    for violation in found:
        if violation.kind is Kind.READ_UNINITIALISED:  # several of a row where loads leave bytes open
            span = spans.setdefault((keys[violation.core, violation.row], violation.space), set())
            span.update((violation.start, violation.start + violation.length))
    for (key, space), span in spans.items():
        here = {byte for at, byte in expected.uninitialised[key] if at == space}
        assert (min(span), max(span)) == (min(here), max(here) + 1)
    doubles = {(keys[v.core, v.row], keys[v.core, v.other_row]) for v in found if v.kind is Kind.SYNC_DUPLICATE}
    assert doubles == expected.double_sets
    assert kinds.get(Kind.SYNC_UNPAIRED, set()) == expected.unset_waits | expected.left_set
    kinds.pop(Kind.READ_STALE, None)  # `test_hazards_lives` has them
    assert set(kinds) <= {*HAZARDS, Kind.READ_UNINITIALISED, Kind.SYNC_DUPLICATE, Kind.SYNC_UNPAIRED}
    return bool(expected.pairs)


def test_hazards_random_programs_of_one_core_agree_with_brute_force():
    rng = np.random.default_rng(1)
    outcomes = []
    for _ in range(250):
        length = int(rng.integers(3, 34))
        outcomes.append(check_against_oracle([[random_program(rng, length)]], GM_TABLE))
    assert 40 < sum(outcomes) < 230


def test_hazards_random_programs_with_much_order_agree_with_brute_force():
    rng = np.random.default_rng(2)
    outcomes = [check_against_oracle([[random_program(rng, 30, sync=0.75)]], GM_TABLE) for _ in range(120)]
    assert 10 < sum(outcomes) < 110


def test_hazards_random_programs_of_several_cores_and_phases_agree_with_brute_force():
    rng = np.random.default_rng(3)
    outcomes = []
    for _ in range(80):
        phases, cores = int(rng.integers(1, 3)), int(rng.integers(2, 5))
        programs = [
            [random_program(rng, int(rng.integers(1, 9)), sync=0.3) for _ in range(cores)] for _ in range(phases)
        ]
        outcomes.append(check_against_oracle(programs, GM_TABLE))
    assert 20 < sum(outcomes) < 80


def test_hazards_matrix_product_is_clean():
    rows = double_buffered_product(3, 3)
    assert run_hazards_programs([[rows]], PRODUCT, PRODUCT_TABLE) == []
    assert not analyse([[rows]], PRODUCT_TABLE).pairs


def test_hazards_matrix_product_with_any_sync_row_removed_agrees_with_brute_force():
    rows = double_buffered_product(3, 1)
    removable = np.flatnonzero(np.isin(rows["op"], SYNC_OPS)).tolist()
    broken = sum(check_against_oracle([[np.delete(rows, at)]], PRODUCT_TABLE) for at in removable)
    assert len(removable) > 30
    assert broken > 5


def test_hazards_parts_of_a_cell_have_histories_of_their_own():
    """Two writers of one 32-byte block at different bytes do not conflict; a third conflicts with the one it meets."""
    rng = np.random.default_rng(4)
    outcomes = [check_against_oracle([[random_program(rng, 14, sync=0.0)]], GM_TABLE) for _ in range(40)]
    assert any(outcomes)


def test_hazards_histories_of_parts_do_not_pile_up():
    """Overlapping partial writes of one place, again and again, must not need more and more memory."""
    rows = empty_rows(20000)
    rng = np.random.default_rng(6)
    for at in range(len(rows)):
        emit.emit_duplicate(rows, at, 0, Data.FP16, int(rng.integers(1, 60)), 0, 0, at)
    checker = Checker(PRODUCT, GM_TABLE, ["a", "b"])
    checker.begin(0, 0, 0)
    checker.check(rows, len(rows))
    free = int(checker.shadow.book[hazards_book.FREE_COUNT])
    assert int(checker.shadow.book[hazards_book.NODE_COUNT]) - free < 40
    assert len(checker.shadow.nodes) == 4096


@pytest.mark.parametrize("space", [Space.L1, Space.GM])
def test_hazards_spaces_enum_is_dense(space):
    """The engine indexes tables by space."""
    assert sorted(Space) == list(range(len(Space)))
    assert space in Space


def _findings_of(**fields):
    rows = empty_rows(1)
    for name, value in fields.items():
        rows[name] = value
    return [(v.kind, v.detail) for v in hazards.run_hazards_rows(rows, PRODUCT, np.array([[0, 1 << 26, 1 << 26, 1]]))]


@pytest.mark.parametrize("address", [2**63 - 32, 2**63 - 1, -(2**63), 2**62, -(2**62)])
def test_hazards_address_far_outside_is_reported(address):
    (found,) = _findings_of(op=Op.DUPLICATE, pipe=Pipe.V, dtype=Data.FP16, count=64, dst=address)
    row = f"V    Duplicate UB[{hex(address)}], dtype half, count 64, value 0x0"
    assert found == (Kind.CAPACITY, f"Operands must stay inside a memory, not reach as far as {row}")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        # (rows and columns far apart, none of which wraps around into the buffer)
        ({"op": Op.DATA_COPY_PAD, "block_count": 2**31 - 1, "block_len": 1, "src_gap": 1}, "at most 262144 blocks"),
        ({"op": Op.DATA_COPY, "block_count": 4, "block_len": 1 << 20, "dst_gap": -(1 << 20)}, "at most 262144 blocks"),
        ({"op": Op.DATA_COPY, "block_count": 2**31 - 1, "block_len": 2**31 - 1}, "Operands must stay inside a memory"),
    ],
)
def test_hazards_work_on_one_row_is_bounded(fields, text):
    copy = {"pipe": Pipe.MTE2, "dst_space": Space.UB, "src0_space": Space.GM, "dtype": Data.INT8}
    (found,) = _findings_of(**copy, **fields)
    assert found[0] is Kind.CAPACITY
    assert text in found[1]


def test_hazards_walk_over_a_window_is_bounded():
    window = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "filter_w", "l1_w"), 1)
    row = {"op": Op.LOAD_3D, "pipe": Pipe.MTE1, "dst_space": Space.L0A, "src0_space": Space.L1, "dtype": Data.FP16}
    for sizes in ({"m_ext": 65535, "k_ext": 65535, "filter_h": 511}, {"m_ext": 16, "k_ext": 16, "filter_h": 1 << 20}):
        found = _findings_of(**row, **window, l1_h=32767, channel_size=16, **sizes)
        assert [kind for kind, _ in found] == [Kind.CAPACITY]


def test_hazards_barrier_of_no_pipe_is_reported():
    assert [kind for kind, _ in _findings_of(op=Op.PIPE_BARRIER, pipe=8)] == [Kind.UNSUPPORTED]


def test_hazards_undefined_fields_of_a_fill_are_not_read():
    fill = {"op": Op.FILL, "pipe": Pipe.MTE1, "dst_space": Space.L0B, "dtype": Data.FP16, "repeat": 1, "block_num": 1}
    assert _findings_of(**fill, src0_space=255, src0=1) == []
