"""Atomic additions: at once and by way of the log, in every type."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim._jit import JIT_ENABLED
from npu_sim.isa.atomic import SINK_LENGTH, add_to_gm, apply_log, atomic_kind
from npu_sim.isa.gm_extent import atomic_demand
from npu_sim.isa.op import Data, Mode, Op, Space
from tests.oracles import semantics
from tests.oracles.instances import Emulated, candidates, random_elements, random_memories
from tests.oracles.semantics import ITEM

TYPES = (Data.FP32, Data.FP16, Data.BF16, Data.INT32, Data.INT16, Data.INT8)
ROUNDS, INSTANCES = (20, 240) if JIT_ENABLED else (4, 60)
PIECES = ((7, 0, 40), (503, 64, 1), (11, 3, 25), (511, 200, 0), (15, 100, 40))
"""(GM offset, source offset, elements): misaligned, overlapping in GM by whole elements, empty."""


def _sink(saturate, logging):
    sink = np.zeros(SINK_LENGTH, np.int64)
    sink[0], sink[3] = logging, saturate
    return sink


def _same(got, want, dtype):
    if dtype not in semantics.FORMATS:
        return np.array_equal(got, want)
    return bool(np.array_equal(semantics.decode(got, dtype), semantics.decode(want, dtype), equal_nan=True))


@np.errstate(all="ignore")
def _add(gm, source, dtype, sink, runs, data, how=0):
    for at, source_at, count in PIECES:
        add_to_gm(gm, at, source, source_at, count, atomic_kind(how, dtype), sink, runs, data)


def _expected(gm, source, dtype, saturate, how):
    gm = gm.copy()
    for at, source_at, count in PIECES:
        there, given = gm[at : at + count * ITEM[dtype]], source[source_at : source_at + count * ITEM[dtype]]
        if how:
            there[:] = semantics.keep_extremes(there, given, dtype, how == Mode.ATOMIC_MAX)
        else:
            there[:] = semantics.add_elements(there, given, dtype, saturate)
    return gm


@pytest.mark.parametrize("how", [0, Mode.ATOMIC_MAX, Mode.ATOMIC_MIN], ids=["add", "max", "min"])
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_direct_and_logged_stores_equal_the_elementwise_definition(dtype, saturate, how):
    rng = np.random.default_rng([1, dtype, saturate])
    for _ in range(ROUNDS):
        gm = np.roll(random_elements(rng, 4096 // ITEM[dtype], dtype), 7)
        source = random_elements(rng, 4096 // ITEM[dtype], dtype)
        want = _expected(gm, source, dtype, bool(saturate), how)
        direct = gm.copy()
        _add(direct, source, dtype, _sink(saturate, 0), np.zeros((0, 4), np.int64), np.zeros(0, np.uint8), how)
        logged = gm.copy()
        sink, runs, data = _sink(saturate, 1), np.zeros((8, 4), np.int64), np.zeros(4096, np.uint8)
        _add(logged, source, dtype, sink, runs, data, how)
        assert np.array_equal(logged, gm)  # nothing happens before the turn
        assert sink[1] == len(PIECES)
        source[:] = 0xEE  # the log has its own copy
        with np.errstate(all="ignore"):
            apply_log(logged, runs, data, sink)
        assert sink[1:3].tolist() == [0, 0]
        assert np.array_equal(direct, logged)
        for at, _, count in PIECES:
            size = count * ITEM[dtype]
            assert _same(direct[at : at + size], want[at : at + size], dtype)
        touched = np.zeros(4096, np.bool_)
        for at, _, count in PIECES:
            touched[at : at + count * ITEM[dtype]] = True
        assert np.array_equal(direct[~touched], gm[~touched])


def test_log_is_applied_in_its_order():
    # 2^24 + 1 + 1 in float32 depends on the order: the two ones vanish one by one
    gm = np.array([1], np.float32).view(np.uint8)
    sink, runs, data = _sink(0, 1), np.zeros((3, 4), np.int64), np.zeros(64, np.uint8)
    for value in (1.0, 2.0**24, 1.0):
        source = np.array([value], np.float32).view(np.uint8)
        add_to_gm(gm, 0, source, 0, 1, Data.FP32, sink, runs, data)
    apply_log(gm, runs, data, sink)
    assert gm.view(np.float32)[0] == np.float32(np.float32(2.0 + 2.0**24) + np.float32(1))


def test_specials_of_half_depend_on_the_overflow_mode():
    def total(x, y, saturate):
        gm, source = np.array([x], np.float16).view(np.uint8), np.array([y], np.float16).view(np.uint8)
        with np.errstate(all="ignore"):
            add_to_gm(
                gm, 0, source, 0, 1, Data.FP16, _sink(saturate, 0), np.zeros((0, 4), np.int64), np.zeros(0, np.uint8)
            )
        return gm.view(np.float16)[0]

    assert total(65504, 65504, 0) == np.inf
    assert total(65504, 65504, 1) == 65504
    assert total(-65504, -16, 1) == -65504
    assert np.isnan(total(np.inf, -np.inf, 0))
    assert total(np.nan, 1, 1) == 0
    assert total(2048, 1, 0) == 2048  # tie to even
    assert total(2050, 1, 0) == 2052


@pytest.mark.parametrize(
    "op", [Op.DATA_COPY, Op.FIXPIPE, Op.FIXPIPE_QUANT, Op.FIXPIPE_SCALES, Op.DATA_COPY_PAD], ids=lambda op: op.name
)
def test_instructions_with_a_log_equal_direct_ones_and_fit_the_demand(op):
    rng = np.random.default_rng([2, op])
    logged = 0
    for instance in candidates(op, 4, INSTANCES):
        rows = instance.rows
        if not rows[-1]["mode"] & Mode.ATOMIC:
            continue
        contents = instance.with_planted(random_memories(rng, instance.memory, l0=instance.l0))
        try:
            semantics.run(rows[-1], semantics.Machine(contents))
        except semantics.OutsideMemoryError:
            continue
        saturate = bool(rng.integers(2))
        direct, late = Emulated.of(contents, instance.l0), Emulated.of(contents, instance.l0)
        assert direct.run(rows, saturate=saturate) == -1
        demand = np.zeros(2, np.int64)
        atomic_demand(rows, len(rows), demand)
        sink, runs, data = _sink(int(saturate), 1), np.zeros((demand[0], 4), np.int64), np.zeros(demand[1], np.uint8)
        assert late.run(rows, saturate=saturate, log=(sink, runs, data)) == -1
        assert np.array_equal(late.gm, contents[Space.GM])
        assert sink[1] <= demand[0]
        assert sink[2] <= demand[1]
        with np.errstate(all="ignore"):
            apply_log(late.gm, runs, data, sink)
        assert all(x.tobytes() == y.tobytes() for x, y in zip(direct.buffers(), late.buffers(), strict=True))
        logged += 1
    assert logged >= INSTANCES // 12


def test_demand_counts_atomic_rows_only():
    plain = [instance.rows for instance in candidates(Op.DATA_COPY, 6, 40)]
    rows = np.concatenate([part[part["mode"] & Mode.ATOMIC == 0] for part in plain])
    demand = np.array([3, 5], np.int64)
    atomic_demand(rows, len(rows), demand)
    assert demand.tolist() == [3, 5]
