"""What a call leaves behind: outputs that are not filled, workspace of others, state that stays on."""

from __future__ import annotations

import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import run_hazards
from npu_sim.isa.op import Data, Op, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind
from ops.studies.checking import check_launches
from tests.oracles.faults import Bench

PRODUCT = get_product("910b")


def _stores(*ranges, dtype=Data.NONE):
    """Return a program that stores zeros to the byte ranges of a tensor, adding them if ``dtype`` says so."""
    builder = ProgramBuilder(PRODUCT)
    builder.duplicate(dst=0, dtype=Data.FP32, count=256, value_bits=0)
    builder.join(Pipe.V, Pipe.MTE3)
    if dtype:
        builder.set_atomic(dtype=dtype)
    for start, end in ranges:
        builder.data_copy_pad(
            dst_space=Space.GM, dst=start, src_space=Space.UB, src=0, block_len=end - start, dtype=dtype or Data.FP32,
            tensor=0,
        )  # fmt: skip
    return builder


def _memory():
    gm = GlobalMemory()
    gm.add("y", 300, initialised=False, is_output=True)
    return gm


def test_outputs_that_are_filled_are_silent():
    gm = _memory()
    assert run_hazards(_stores((0, 100), (100, 300)).launch(gm), PRODUCT, outputs=["y"]) == []


def test_outputs_with_a_hole_name_its_bytes():
    [found] = run_hazards(_stores((0, 100), (110, 290)).launch(_memory()), PRODUCT)
    assert (found.kind, found.row, found.start, found.length) == (Kind.OUTPUT_HOLE, -1, 100, 200)
    assert str(found) == (
        "OutputHole GM[100:300] 20 of 300 bytes of output y are never written, the first is byte 100, the last byte "
        "299; the store next to them is DataCopyPad"
    )
    assert (found.other_core, found.other_site) == (0, 0)


@pytest.mark.parametrize("stores", [((0, 64), (96, 300)), ((64, 128), (128, 300)), ((0, 40), (64, 300))])
def test_holes_name_the_store_before_them_else_the_one_behind(stores):
    builder = _stores(*stores)
    rows = builder.rows
    rows["site"] = np.arange(len(rows)) + 10
    [first] = np.flatnonzero((rows["op"] == Op.DATA_COPY_PAD) & (rows["dst"] == stores[0][0]))
    [found] = run_hazards(builder.launch(_memory()), PRODUCT)
    assert (found.other_core, found.other_site) == (0, 10 + first)


@pytest.mark.parametrize("seed", range(8))
def test_holes_of_long_outputs_are_those_of_a_search_byte_by_byte(seed):
    rng = np.random.default_rng(seed)
    cuts = np.unique(np.append(rng.integers(0, 640, 40), np.arange(0, 641, 32))) * 32
    pieces = np.column_stack([cuts[:-1], cuts[1:]])
    gone = np.flatnonzero(cuts == 64 * 32 * seed) if seed % 2 else rng.permutation(len(pieces))[: 1 + seed % 3]
    kept = np.delete(pieces, gone, axis=0)
    written = np.zeros(cuts[-1], bool)
    for start, end in kept:
        written[start:end] = True
    missing = np.flatnonzero(~written)
    before = np.flatnonzero(kept[:, 1] <= missing[0])
    builder, gm = _stores(*kept.tolist()), GlobalMemory()
    gm.add("y", int(cuts[-1]), initialised=False, is_output=True)
    rows = builder.rows
    rows["site"] = np.arange(len(rows))
    stores = np.flatnonzero(rows["op"] == Op.DATA_COPY_PAD)
    [found] = run_hazards(builder.launch(gm), PRODUCT)
    assert (found.start, found.start + found.length) == (missing[0], missing[-1] + 1)
    assert f" {len(missing)} of {cuts[-1]} bytes " in str(found)
    assert found.other_site == stores[before[-1] if len(before) else 0]


def test_outputs_nobody_writes_are_holes_if_they_are_asked_for():
    launch = _stores().launch(_memory())
    assert run_hazards(launch, PRODUCT) == []
    assert [v.length for v in run_hazards(launch, PRODUCT, outputs=["y"])] == [300]
    _, findings = check_launches((launch,), PRODUCT)
    assert [(f.violation.kind, f.windows) for f in findings] == [(Kind.OUTPUT_HOLE, ())]


def test_outputs_lose_bytes_with_every_store_of_a_matrix_product_that_is_dropped():
    a = np.ones((64, 64), np.float16)
    launch = ops.matrix_product(a, a, product="910b").plan.calls.launches[0]
    bench = Bench(launch, PRODUCT)
    places = list(bench.rows_of(Op.FIXPIPE))
    assert places
    for place in places:
        assert Kind.OUTPUT_HOLE in {v.kind for v in bench.findings(bench.without(*place))}


def test_outputs_state_that_stays_on_is_named_at_the_row_that_switched_it():
    gm = GlobalMemory()
    gm.add("y", 300, initialised=True)
    builder = _stores((0, 300), dtype=Data.FP32)
    at = int(np.flatnonzero(builder.rows["op"] == Op.SET_ATOMIC)[0])
    [found] = run_hazards(builder.launch(gm, core_kind="vector"), PRODUCT)
    assert (found.kind, found.row) == (Kind.STATE_LEFT, at)
    builder.set_atomic(dtype=Data.NONE)
    assert run_hazards(builder.launch(gm, core_kind="vector"), PRODUCT) == []


def test_outputs_workspace_of_an_earlier_launch_is_not_the_tensor_that_is_placed_there_now():
    gm = GlobalMemory()
    gm.add("first", 512, initialised=False)
    gm.add("second", 512, initialised=False, address=0)
    writer = _stores((0, 512)).launch(gm)
    reader = ProgramBuilder(PRODUCT)
    reader.data_copy(dst_space=Space.UB, dst=0, src_space=Space.GM, src=0, block_len=16, dtype=Data.FP32, tensor=1)
    assert [v.kind for v in run_hazards([writer, reader.launch(gm)], PRODUCT)] == [Kind.READ_UNINITIALISED]
    reader.rows["tensor"] = 0
    assert run_hazards([writer, reader.launch(gm)], PRODUCT) == []
