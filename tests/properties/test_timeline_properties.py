"""The one-pass timeline against the event-driven oracle, and what must hold for every program."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from npu_sim.engines import timeline_jit as jitted
from npu_sim.isa.cost import rows_cost
from npu_sim.isa.op import Op
from npu_sim.products import get_product
from npu_sim.products.cost_record import COST, cost_record
from tests.oracles.timeline import simulate
from tests.properties.random_rows import random_rows, steps_of

C220 = get_product("910b").cost
SEEDS = range(24)
NO_SPANS = np.zeros((0, 2), np.int64)


def _record(**changes):
    return cost_record(dataclasses.replace(C220, **changes), 24, 1_800_000_000)


def _advance(rows, cost, *, chunk=None):
    """Return (clocks, spans) after ``rows``, fed in chunks."""
    clocks = np.zeros(jitted.CLOCK_WORDS, np.int64)
    jitted.reset_clocks(clocks)
    spans = np.zeros((len(rows), 2), np.int64)
    for begin in range(0, len(rows), chunk or len(rows)):
        part = rows[begin : begin + (chunk or len(rows))]
        times = spans[begin : begin + len(part)]
        assert jitted.advance(part, len(part), cost, clocks, times) == (0, len(part))
    return clocks, spans


def _finish(clocks):
    parts = np.zeros(jitted.PARTS, np.int64)
    return int(jitted.finish(clocks, parts)), parts


def _costs(rows, cost):
    costs = np.zeros((len(rows), 3), np.int64)
    rows_cost(rows, len(rows), cost, costs)
    return costs


def _issue_cycles(cost):
    def cycles(op):
        if op in (Op.LOAD_3D, Op.LOAD_3D_V1):
            return int(cost["load3d_issue_cycles"][0])
        if op == Op.TRANS_DATA_TO_5HD:
            return int(cost["address_list_issue_cycles"][0])
        return int(cost["load2d_issue_cycles" if op == Op.LOAD_2D else "issue_cycles"][0])

    return cycles


def _simulate(rows, cost, costs=None):
    steps = steps_of(rows, _costs(rows, cost) if costs is None else costs, _issue_cycles(cost))
    depth, start = int(cost["queue_depth_rows"][0]), int(cost["mte1_start_cycles"][0])
    return simulate(steps, queue_depth=depth, mte1_start=start, mmad_start=int(cost["mmad_start_cycles"][0]))


def _busy(clocks):
    return clocks[jitted.AT_BUSY : jitted.AT_BUSY + 7]


def _stalls(clocks):
    return clocks[jitted.AT_STALL : jitted.AT_STALL + 8 * jitted.CAUSES].reshape(8, jitted.CAUSES)[:7]


VARIANTS = {
    "as_is": {},
    "short_queue": {"queue_depth_rows": 3},
    "slow_issue": {"issue_cycles": 9, "load2d_issue_cycles": 25, "flag_cycles": 2, "barrier_cycles": 3},
    "no_latency": {"gm_to_l1_isolated_cycles": 0, "mmad_isolated_cycles": 0, "load2d_isolated_cycles": 0},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_timeline_random_program_equals_event_driven_oracle(variant):
    cost = _record(**VARIANTS[variant])
    for seed in SEEDS:
        rows = random_rows(seed, 400)
        clocks, spans = _advance(rows, cost)
        expected = _simulate(rows, cost)
        np.testing.assert_array_equal(spans[:, 0], expected.start, err_msg=f"start, seed {seed}")
        np.testing.assert_array_equal(spans[:, 1], expected.end, err_msg=f"end, seed {seed}")
        np.testing.assert_array_equal(_busy(clocks), expected.busy, err_msg=f"busy, seed {seed}")
        assert _finish(clocks)[0] == expected.total


def test_random_programs_reach_every_stall_cause():
    # Otherwise the comparison above would prove less than it seems to. A flag of the scalar unit itself never makes
    # anyone wait: it is set before the scalar unit hands over the wait. Flags between cores: `test_mix_timeline`.
    seen = np.zeros(jitted.CAUSES, np.int64)
    for seed in SEEDS:
        seen += _stalls(_advance(random_rows(seed, 400), _record(queue_depth_rows=3))[0]).sum(axis=0)
    assert seen[0] == 0
    assert seen[jitted.CAUSE_CROSS] == 0
    assert (seen[1 : jitted.CAUSE_CROSS] > 0).all()


def test_timeline_parts_add_up_and_busy_and_stalls_fill_each_pipe():
    for seed in SEEDS:
        clocks, spans = _advance(random_rows(seed, 400), _record())
        total, parts = _finish(clocks)
        assert parts.sum() == total
        assert (parts >= 0).all()
        assert (parts[:7] <= _busy(clocks)).all()
        assert (_busy(clocks) <= total).all()
        assert spans.max() <= total
        free = clocks[jitted.AT_TIME + jitted.FREE : jitted.AT_TIME + jitted.FREE + 7]
        np.testing.assert_array_equal(_busy(clocks) + _stalls(clocks).sum(axis=1), free)
        assert (_stalls(clocks) >= 0).all()


@pytest.mark.parametrize("pipe", [1, 2, 3, 4, 5, 6, "latency"])
def test_timeline_critical_part_is_on_a_real_path(pipe):
    # A path stays a path when its instructions get slower, so doubling every occupancy of a pipe (or every latency)
    # lengthens the program by at least the part that the critical path claims to have spent there. A claim that is too
    # large breaks this; one that is too small makes another part too large, because they add up to the total.
    claimed = 0
    for seed in range(12):
        cost = _record(mte1_start_cycles=0, mmad_start_cycles=0)
        rows = random_rows(seed, 300)
        total, parts = _finish(_advance(rows, cost)[0])
        costs = _costs(rows, cost)
        if pipe == "latency":
            part = parts[jitted.LATENCY]
            costs[:, 1] *= 2
        else:
            part = parts[pipe]
            costs[rows["pipe"] == pipe, 0] *= 2
        assert _simulate(rows, cost, costs).total >= total + part
        claimed += part
    assert claimed > 0


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_timeline_chunk_size_changes_nothing(chunk):
    for seed in range(6):
        rows = random_rows(seed, 300)
        clocks, spans = _advance(rows, _record())
        chunked, chunked_spans = _advance(rows, _record(), chunk=chunk)
        np.testing.assert_array_equal(clocks, chunked)
        np.testing.assert_array_equal(spans, chunked_spans)


def test_timeline_without_spans_leaves_the_same_clocks():
    rows = random_rows(0, 300)
    clocks = np.zeros(jitted.CLOCK_WORDS, np.int64)
    jitted.reset_clocks(clocks)
    assert jitted.advance(rows, len(rows), _record(), clocks, NO_SPANS) == (0, len(rows))
    np.testing.assert_array_equal(clocks, _advance(rows, _record())[0])


RATES = [
    name
    for name in COST.names
    if name.endswith(("millibytes_per_cycle", "elements_per_cycle")) and "l1_to_gm" not in name
]


def test_timeline_more_bandwidth_is_never_slower():
    for seed in range(6):
        rows = random_rows(seed, 300)
        slow = _record()
        total = _finish(_advance(rows, slow)[0])[0]
        for name in RATES:
            fast = slow.copy()
            fast[name] = fast[name] * 3 // 2
            assert _finish(_advance(rows, fast)[0])[0] <= total, name
        every = slow.copy()
        for name in RATES:
            every[name] *= 4
        assert _finish(_advance(rows, every)[0])[0] < total


def test_timeline_is_independent_of_fields_that_are_not_operands():
    # Row buffers are never cleared, so undefined fields hold anything.
    rows = random_rows(3, 300)
    clocks, spans = _advance(rows, _record())
    dirty = rows.copy()
    raw = dirty.view(np.uint8).reshape(len(rows), 128)
    flags = np.isin(rows["op"], [Op.SET_FLAG, Op.WAIT_FLAG, Op.PIPE_BARRIER])
    raw[flags, 24:] = 0xA5  # flags and barriers have no operands behind the head
    dirty["src1"][rows["op"] != Op.ADD] = -1
    again, again_spans = _advance(dirty, _record())
    np.testing.assert_array_equal(spans, again_spans)
    np.testing.assert_array_equal(clocks, again)
