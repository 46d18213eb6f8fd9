"""For each race an order that runs the later row first; for what is ordered, none."""

from __future__ import annotations

import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import run_hazards_rows
from npu_sim.engines.reorder import order_that_bites
from npu_sim.errors import ShapeError
from npu_sim.isa.op import Op, Pipe
from npu_sim.isa.row import join_rows
from npu_sim.products import get_product
from npu_sim.program.violation import Kind
from tests.cases.fault_subjects import subjects
from tests.long.race_bites import run
from tests.oracles.faults import Bench
from tests.oracles.hazards import happens_before
from tests.oracles.programs import (
    GM_TABLE,
    PRODUCT_TABLE,
    double_buffered_product,
    random_program,
    waits_behind_their_sets,
)

PRODUCT = get_product("910b")
RACES = (Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD)


def _balanced(rows):
    """Return the rows without waits whose set is missing and sets nobody clears, which no order runs."""
    keep, left = waits_behind_their_sets(rows)
    keep[left] = False
    return rows[keep]


def _without_pair(rows, wait):
    """Return rows without a wait and the set that it clears."""
    row = rows[wait]
    sets = (rows["op"] == Op.SET_FLAG) & (rows["pipe"] == row["peer"]) & (rows["peer"] == row["pipe"])
    before = [at for at in np.flatnonzero(sets & (rows["event"] == row["event"])).tolist() if at < wait]
    return np.delete(rows, [wait, before[-1]])


def _check(rows, table):
    """Hold every race of a program to brute force; return how many there are."""
    before = happens_before(rows)
    races = {(v.other_row, v.row) for v in run_hazards_rows(rows, PRODUCT, table) if v.kind in RACES}
    for earlier, later in races:
        order = order_that_bites(rows, earlier, later)
        between = rows[earlier:later]
        if order is None:
            assert rows["pipe"][earlier] == Pipe.S
            assert ((between["op"] == Op.WAIT_FLAG) & (between["pipe"] == Pipe.S)).any()
            continue
        position = np.argsort(order)
        assert position[later] < position[earlier]
        for i, bits in enumerate(before):
            assert all(position[j] < position[i] for j in range(i) if bits >> j & 1)
    return len(races)


def test_reorder_races_of_random_programs_all_bite():
    rng = np.random.default_rng(21)
    assert sum(_check(_balanced(random_program(rng, 30, sync=0.5)), GM_TABLE) for _ in range(60)) > 60


def test_reorder_races_of_a_matrix_product_without_one_flag_all_bite():
    rows = double_buffered_product(3, 2)
    waits = np.flatnonzero(rows["op"] == Op.WAIT_FLAG).tolist()
    assert sum(_check(_without_pair(rows, wait), PRODUCT_TABLE) for wait in waits) > 10


def test_reorder_what_something_orders_has_no_other_order():
    rows = double_buffered_product(2, 2)
    before = happens_before(rows)
    ordered = [(j, i) for i, bits in enumerate(before) for j in range(i) if bits >> j & 1]
    for earlier, later in ordered[::7]:
        assert order_that_bites(rows, earlier, later) is None


def test_reorder_bite_of_a_dropped_flag_changes_the_result():
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((512, 512)).astype(np.float16) for _ in range(2))
    bench = Bench(ops.matrix_product(a, b, product="910b").plan.calls.launches[0], PRODUCT)
    rows, table = bench.programs[0][0], bench.launch.gm.table()
    changed = races = 0
    for wait in np.flatnonzero(rows["op"] == Op.WAIT_FLAG).tolist():
        broken = _without_pair(rows, wait)
        found = [v for v in run_hazards_rows(broken, PRODUCT, table) if v.kind in RACES]
        if not found:
            continue
        orders = [order_that_bites(broken, v.other_row, v.row) for v in found[:2]]
        permuted = [join_rows([broken[at : at + 1] for at in order.tolist()]) for order in orders]
        races += 1
        changed += any(bench.is_wrong([[program, *bench.programs[0][1:]]]) for program in permuted)
    assert races > 10
    assert changed >= 0.9 * races, (changed, races)


@pytest.mark.parametrize("pair", [(3, 3), (4, 3), (-1, 3), (0, 10**6)])
def test_reorder_rows_that_are_no_pair_are_refused(pair):
    with pytest.raises(ShapeError, match=r"^earlier and later must be two of \d+ rows in order, not "):
        order_that_bites(double_buffered_product(1, 1), *pair)


def test_orders_of_races_in_kernels_change_their_results():
    """Two executions: one in order, one with the later row first."""
    found = run(3, 24, subjects()[:2])
    assert found["first order changes the result"] >= 5
    assert found["missed"] == []
    assert found["in_two_executions"] == 1
