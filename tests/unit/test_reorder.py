from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim.engines.reorder import legal_order
from npu_sim.errors import ProgramError, ShapeError
from npu_sim.isa import emit
from npu_sim.isa.op import Data, Op, Pipe, Space
from npu_sim.isa.row import empty_rows
from tests.oracles.hazards import analyse, happens_before
from tests.oracles.programs import (
    GM_TABLE,
    PRODUCT_TABLE,
    SITE_COPY,
    SITE_DRAIN,
    SITE_MMAD,
    double_buffered_product,
    random_program,
    waits_behind_their_sets,
)


def _runnable(rng, length):
    """Return a random program whose waits all have a set that is still there."""
    rows = random_program(rng, length, sync=0.6)
    keep, _ = waits_behind_their_sets(rows)
    return rows[keep]


def _assert_legal(rows, order):
    assert sorted(order.tolist()) == list(range(len(rows)))
    position = np.empty(len(rows), np.int64)
    position[order] = np.arange(len(rows))
    for i, bits in enumerate(happens_before(rows)):
        for j in range(i):
            if bits >> j & 1:
                assert position[j] < position[i], (j, i)


@pytest.mark.parametrize("order", ["late", 0, 1, 2**63 + 5], ids=str)
def test_reorder_random_programs_respect_every_edge(order):
    rng = np.random.default_rng(11)
    moved = 0
    for _ in range(60):
        rows = _runnable(rng, 40)
        result = legal_order(rows, order)
        _assert_legal(rows, result)
        moved += not np.array_equal(result, np.arange(len(rows)))
    assert moved > 40


def test_reorder_every_conflict_of_a_racy_program_is_turned_round_by_some_order():
    """Orders are not only legal but rich: a pair that is not ordered must come out both ways round."""
    rng = np.random.default_rng(12)
    racy = 0
    for _ in range(25):
        rows = _runnable(rng, 16)
        pairs = analyse([[rows]], GM_TABLE).pairs
        if not pairs:
            continue
        racy += 1
        turned = set()
        for order in ("late", *range(60)):
            position = np.argsort(legal_order(rows, order))
            turned |= {pair for pair in pairs if position[pair[0][2]] < position[pair[1][2]]}
        assert turned == pairs
    assert racy > 10


def test_reorder_program_order_is_the_identity():
    rows = double_buffered_product(2, 2)
    assert np.array_equal(legal_order(rows), np.arange(len(rows)))


def test_reorder_late_delays_copies_behind_all_computation_that_does_not_need_them():
    rows = double_buffered_product(3, 4)
    result = legal_order(rows, "late")
    _assert_legal(rows, result)
    sites = rows["site"][result]
    # On demand there is at most one step of prefetch: two copies, then the product that needs them.
    waiting = 0
    for site in sites:
        waiting += site == SITE_COPY
        if site == SITE_MMAD:
            waiting = 0
        assert waiting <= 2
    # Each result leaves when its buffer is needed again, two tiles later, not at once.
    mmads_before_drain = np.cumsum(sites == SITE_MMAD)[sites == SITE_DRAIN]
    assert mmads_before_drain.tolist() == [8, 12, 12]


def test_reorder_seeds_differ_and_repeat():
    rows = double_buffered_product(3, 4)
    orders = [legal_order(rows, seed) for seed in range(20)]
    for result in orders:
        _assert_legal(rows, result)
    assert len({result.tobytes() for result in orders}) == 20
    assert np.array_equal(legal_order(rows, 7), orders[7])
    assert not analyse([[rows]], PRODUCT_TABLE).pairs


def test_reorder_scalar_wait_holds_everything_behind_it():
    rows = empty_rows(4)
    n = emit.emit_data_copy(rows, 0, Space.UB, 0, Space.GM, 0, 1, 1, 0, 0, Data.FP16, 0, 0, 0)
    n = emit.emit_set_flag(rows, n, Pipe.MTE2, Pipe.S, 0, 0, 0)
    n = emit.emit_wait_flag(rows, n, Pipe.MTE2, Pipe.S, 0, 0, 0)
    emit.emit_duplicate(rows, n, 0, Data.FP16, 4, 0, 0, 0)
    for order in ("late", *range(10)):
        assert legal_order(rows, order).tolist() == [0, 1, 2, 3]


def test_reorder_deadlock_is_an_error_that_names_the_wait():
    rows = empty_rows(2)
    n = emit.emit_wait_flag(rows, 0, Pipe.MTE2, Pipe.MTE1, 1, 0, 0)
    emit.emit_load_2d(rows, n, Space.L0A, 0, Space.L1, 0, Data.FP16, 0, 1, 1, 0, 0, -1, 0, 0)
    text = r"^ErrorSync3 core 0 tile 0 row 0 MTE1 WaitFlag<MTE2_MTE1>\(1\) never runs: pipe MTE1 is blocked for ever$"
    for order in ("late", 3):
        with pytest.raises(ProgramError, match=text):
            legal_order(rows, order)


@pytest.mark.parametrize("order", ["early", -1, True, 1.5])
def test_reorder_unknown_order_is_refused(order):
    with pytest.raises(ShapeError, match=re.escape(f"not {order!r}") + "$"):
        legal_order(empty_rows(1), order)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"op": Op.MMAD, "pipe": 8}, "8    Mmad L0C[0x0], L0A[0x0], L0B[0x0], dtype none, m 0, n 0, k 0"),
        ({"op": Op.SET_FLAG, "pipe": 1, "peer": 12}, "V    SetFlag<V_12>(0)"),
        ({"op": Op.WAIT_FLAG, "pipe": 7, "peer": 1}, "ALL  WaitFlag<V_ALL>(0)"),
    ],
)
def test_legal_order_row_in_no_pipe_is_refused(fields, text):
    rows = empty_rows(3)
    for name, value in fields.items():
        rows[name][1] = value
    with pytest.raises(ProgramError, match=re.escape(f"row 1 {text} must be in a pipe that exists") + r"\Z"):
        legal_order(rows, "late")
    assert legal_order(rows).tolist() == [0, 1, 2]
