"""Reductions under the vector mask on documented cases: values, forms, refusals, cycles."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.isa.cost import rows_cost
from npu_sim.isa.op import Data, Space
from npu_sim.isa.reductions import INDEX_VALUE, ONLY_INDEX, ONLY_VALUE, VALUE_INDEX
from npu_sim.products import get_product
from npu_sim.products.cost_record import cost_record
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.verify import verify
from tests.oracles.instances import SIZES, Emulated, issued

A2, UNIFIED, TRAINING = get_product("910b"), get_product("310p"), get_product("910")
INF, NAN = np.inf, np.nan


def _reduced(name, values, *, mask=(-1, -1), saturate=False, **operands):
    """Return what one repeat of ``values`` at 0 becomes at 1024, as elements."""
    builder = ProgramBuilder(A2)
    builder.set_vector_mask(*mask)
    kinds = {np.dtype(np.float16): Data.FP16, np.dtype(np.float32): Data.FP32}
    getattr(builder, name)(dst=1024, src=0, dtype=kinds[values.dtype], **operands)
    contents = {space: np.full(size, 0xAB, np.uint8) for space, size in SIZES.items()}
    contents[Space.UB][: values.nbytes] = values.view(np.uint8)
    emulated = Emulated.of(contents, Data.FP16)
    assert verify(issued(builder), A2) == []
    assert emulated.run(issued(builder), saturate=saturate) == -1
    return emulated.ub[1024:]


def _halves(*special):
    """Return 128 halves: these, and ones."""
    return np.array([*special, *[1] * (128 - len(special))], np.float16)


@pytest.mark.parametrize(("special", "total"), [((NAN,), 126), ((-INF,), -65376), ((-INF, NAN), 126)])
def test_sums_in_saturation_mode_are_those_of_the_boundary_table(special, total):
    # a pair with a NaN is 0, one with an infinity the largest half
    found = _reduced("reduce_repeat_masked", _halves(*special), saturate=True).view(np.float16)[0]
    assert found == np.float16(total)


def test_largest_of_a_half_repeat_in_each_form():
    # the example of the page: lane 52 is the largest of 11
    values = np.ones(128, np.float16)
    values[52] = 11
    pair = {VALUE_INDEX: [0x4980, 0x34], INDEX_VALUE: [0x34, 0x4980], ONLY_VALUE: [0x4980], ONLY_INDEX: [0x34, 0]}
    for order, want in pair.items():
        found = _reduced("whole_reduce_max_masked", values, order=order).view(np.uint16)
        assert found[: len(want)].tolist() == want
        assert found[len(want)] == 0xABAB


def test_of_equal_lanes_the_first_and_of_nan_any_wins():
    values = np.zeros(64, np.float32)
    values[[9, 40]] = 3, 3
    assert _reduced("whole_reduce_max_masked", values, order=ONLY_INDEX).view(np.uint32)[0] == 9
    assert _reduced("whole_reduce_min", values, order=ONLY_INDEX).view(np.uint32)[0] == 0
    values[50] = NAN
    found = _reduced("whole_reduce_min", values, order=VALUE_INDEX)
    assert np.isnan(found.view(np.float32)[0])
    assert found.view(np.uint32)[1] == 50


def test_bits_8_and_2_of_a_mask_are_lanes_3_and_65():
    values = np.arange(128).astype(np.float16)
    found = _reduced("whole_reduce_max_masked", values, mask=(8, 2), order=VALUE_INDEX)
    assert (found.view(np.float16)[0], found.view(np.uint16)[1]) == (65, 65)
    assert _reduced("reduce_repeat_masked", values, mask=(8, 2)).view(np.float16)[0] == 68


def test_blocks_and_pairs_without_active_lanes_keep_what_their_results_held():
    values = np.arange(64).astype(np.float32)
    kept = np.frombuffer(b"\xab" * 4, np.float32)[0]
    found = _reduced("block_reduce_sum", values, mask=(0xFF00FE, 0)).view(np.float32)
    assert found[:4].tolist() == [28, kept, 156, kept]
    found = _reduced("pair_reduce_sum", values, mask=(0b100111, 0)).view(np.float32)
    assert found[:4].tolist() == [1, 2, 5, kept]
    assert _reduced("block_reduce_max", values, mask=(6, 0)).view(np.float32)[:2].tolist() == [2, kept]
    assert _reduced("block_reduce_min", values, mask=(6, 0)).view(np.float32)[:2].tolist() == [1, kept]


def test_a_mask_of_no_lane_does_nothing():
    for name in ("reduce_repeat_masked", "block_reduce_sum", "pair_reduce_sum", "whole_reduce_min"):
        order = {"order": 0} if name == "whole_reduce_min" else {}
        assert set(_reduced(name, np.ones(64, np.float32), mask=(0, -1), **order).tolist()) == {0xAB}


@pytest.mark.parametrize(
    ("product", "operands", "refusal"),
    [
        (UNIFIED, {"order": 2}, "order must be one of 0, 1 on dav-m200, not 2"),
        (TRAINING, {"order": 1}, "order must be one of 0 on dav-c100, not 1"),
        (TRAINING, {"order": 0, "dst_rep_stride": 0}, "dst_rep_stride must be at least 1 on dav-c100, not 0"),
        (A2, {"order": 0, "dst": 1026}, "dst must be a multiple of the bytes of a result, not 1026"),
    ],
)
def test_whole_reduce_min_refuses_what_a_product_does_not_have(product, operands, refusal):
    builder = ProgramBuilder(product)
    builder.whole_reduce_min(**({"dst": 1024, "src": 0, "dtype": Data.FP16} | operands))
    assert [v.detail for v in verify(builder.rows, product)] == [f"WholeReduceMin {refusal} ({product.name})"]


MEASURED = [
    # cycles in a stream on 910B1 (mskpp), by repeats
    ("whole_reduce_max_masked", Data.FP16, {1: 7.08, 2: 14.07, 8: 56.08, 16: 112.08}),
    ("whole_reduce_min", Data.FP32, {1: 7.03, 2: 14.04, 8: 56.04, 16: 112.03}),
    ("block_reduce_max", Data.FP32, {1: 3.03, 2: 3.03, 8: 8.03, 16: 16.03}),
    ("pair_reduce_sum", Data.FP16, {1: 4.03, 2: 4.03, 8: 8.03, 16: 16.04}),
]


@pytest.mark.parametrize(("name", "dtype", "points"), MEASURED, ids=[name for name, *_ in MEASURED])
def test_cycles_of_a_stream_are_those_measured(name, dtype, points):
    record = cost_record(A2.cost, 1, 1_000_000_000)
    for repeat, measured in points.items():
        builder = ProgramBuilder(A2)
        order = {"order": 0} if "whole" in name else {}
        getattr(builder, name)(dst=0, src=8192, dtype=dtype, repeat=repeat, **order)
        out = np.zeros((1, 3), np.int64)
        rows_cost(issued(builder), 1, record, out)
        assert abs(out[0, 0] - measured) <= 1.1
