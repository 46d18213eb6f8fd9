"""Gather, GatherMask, Sort32 and the like on documented cases: values, refusals, cycles."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.accumulation import Accumulation
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.errors import ProgramError
from npu_sim.isa.cost import rows_cost
from npu_sim.isa.footprint import WRITE, empty_runs, footprint_at
from npu_sim.isa.instructions.gather_mask import kept
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.products.cost_record import cost_record
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.recorded import launch_of
from npu_sim.program.verify import verify
from tests.oracles.instances import SIZES, Emulated

A2, UNIFIED = get_product("910b"), get_product("310p")


def _after(builder, **regions):
    """Return UB after the rows of ``builder``; ``regions``: a<address>=array that lies there before."""
    contents = {space: np.zeros(size, np.uint8) for space, size in SIZES.items()}
    for name, data in regions.items():
        at = int(name[1:])
        contents[Space.UB][at : at + data.nbytes] = data.view(np.uint8)
    emulated = Emulated.of(contents, Data.FP16)
    assert verify(builder.rows, builder.product) == []
    assert emulated.run(builder.rows.copy()) == -1
    return emulated.ub


def test_gather_mask_takes_the_odd_ones_of_70_elements_of_each_of_two_repeats():
    # the example of the GatherMask page: pattern 2, reduceMode true, mask 70, repeatTimes 2, strides 1 and 8
    builder = ProgramBuilder(A2)
    builder.gather_mask(dst=1024, src0=0, src1=2048, dtype=Data.INT16, pattern=2, count=70, repeat=2)
    found = _after(builder, a0=np.arange(256, dtype=np.int16))[1024:].view(np.int16)
    want = [*range(1, 70, 2), *range(129, 198, 2)]
    assert found[: len(want)].tolist() == want
    assert found[len(want)] == 0
    assert 2 * kept(2, 70) == len(want) == 70


def test_gather_mask_in_place_never_overtakes_what_it_reads():
    builder = ProgramBuilder(A2)
    builder.gather_mask(dst=0, src0=0, src1=2048, dtype=Data.FP32, pattern=0, repeat=2, src1_rep_stride=1)
    bits = np.zeros(64, np.uint8)
    bits[[0, 7, 32]] = 0x81, 0x80, 0x03
    found = _after(builder, a0=np.arange(128, dtype=np.float32), a2048=bits).view(np.float32)
    assert found[:5].tolist() == [0, 7, 63, 64, 65]
    assert [kept(0, 64, bits[:8]), kept(0, 64, bits[32:40])] == [3, 2]


@pytest.mark.parametrize(("pattern", "want"), [(1, 5), (2, 4), (3, 3), (4, 2), (5, 2), (6, 2), (7, 9)])
def test_kept_counts_what_a_fixed_pattern_marks_of_nine(pattern, want):
    assert kept(pattern, 9) == want


def test_sort32_keeps_the_order_of_equal_scores_and_puts_nan_first():
    scores = np.zeros(32, np.float32)
    scores[[3, 9, 20, 21]] = 5, 7, 7, np.nan
    scores[31] = -0.0
    builder = ProgramBuilder(A2)
    builder.sort32(dst=1024, src0=0, src1=512, dtype=Data.FP32)
    pairs = _after(builder, a0=scores, a512=np.arange(100, 132, dtype=np.uint32))[1024:1280].view(np.uint32)
    assert pairs[1::2].tolist() == [121, 109, 120, 103, *(100 + i for i in range(32) if i not in (3, 9, 20, 21))]


def test_sorting_by_sort32_and_mrg_sort_is_a_stable_sort_of_it_all():
    scores = np.random.default_rng(3).integers(-9, 9, 512).astype(np.float16)
    builder = ProgramBuilder(A2)
    builder.sort32(dst=8192, src0=0, src1=2048, dtype=Data.FP16, repeat=16)
    builder.mrg_sort(
        dst=16384, src0=8192, src1=8448, src2=8704, src3=8960, dtype=Data.FP16, length0=32, length1=32, length2=32,
        length3=32, repeat=4,
    )  # fmt: skip
    lists = {f"src{i}": 16384 + 1024 * i for i in range(4)} | {f"length{i}": 128 for i in range(4)}
    builder.mrg_sort(dst=24576, dtype=Data.FP16, **lists)
    pairs = _after(builder, a0=scores, a2048=np.arange(512, dtype=np.uint32))[24576:28672].view(np.uint32)
    assert pairs[1::2].tolist() == np.argsort(-scores, kind="stable").tolist()
    assert pairs[::2].astype(np.uint16).view(np.float16).tolist() == np.sort(scores)[::-1].tolist()


def test_transpose_in_place():
    builder = ProgramBuilder(A2)
    builder.transpose(dst=512, src=512, dtype=Data.INT16)
    square = np.arange(256, dtype=np.int16)
    assert np.array_equal(_after(builder, a512=square)[512:1024].view(np.int16), square.reshape(16, 16).T.ravel())


def _bad_offset(builder, offset):
    builder.duplicate(dst=512, dtype=Data.INT32, count=8, value_bits=offset)
    builder.pipe_barrier(pipe=1)


@pytest.mark.parametrize("offset", [1, 62, 64, 2**31 - 4])
def test_gather_of_an_offset_outside_ends_the_run_before_anything_is_written(offset):
    builder = ProgramBuilder(A2)
    _bad_offset(builder, offset)
    builder.gather(dst=1024, src0=0, src1=512, src_bytes=64, dtype=Data.FP32, count=8)
    launch = launch_of("gathers", [[builder.rows]], GlobalMemory(), core_kind="vector")
    text = "with an offset in src1 a multiple of the bytes of an element and inside the first src_bytes bytes"
    with pytest.raises(ProgramError, match=text):
        execute(launch, A2, ExecuteOptions(accumulation=Accumulation(1, "serial", "rne")))


@pytest.mark.parametrize(
    ("product", "emit", "refusal"),
    [
        (A2, {"repeat": 2}, "repeat must be 1 unless four lists of one length lie side by side, not 2"),
        (A2, {"src2": 1028, "length2": 4}, "src2 must be a multiple of 8, not 1028"),
    ],
)
def test_mrg_sort_refuses_lists_that_no_call_can_have(product, emit, refusal):
    builder = ProgramBuilder(product)
    operands = {"dst": 2048, "src0": 0, "src1": 512, "dtype": Data.FP32, "length0": 4, "length1": 4} | emit
    builder.mrg_sort(**operands)
    assert [v.detail for v in verify(builder.rows, product)] == [f"MrgSort {refusal} ({product.name})"]


def test_gather_mask_has_fewer_forms_on_310p():
    builder = ProgramBuilder(UNIFIED)
    builder.gather_mask(dst=1024, src0=0, src1=2048, dtype=Data.INT16, pattern=7)
    builder.gather_mask(dst=1024, src0=0, src1=2048, dtype=Data.INT16, pattern=1, count=8, repeat=2)
    pattern, repeat = (v.detail for v in verify(builder.rows, UNIFIED))
    assert pattern == "GatherMask pattern must be one of 0 to 6 on dav-m200, not 7 (Ascend310P3)"
    assert "repeat must be 1 where count is given: on dav-m200 count is that of all repeats, not 2" in repeat


def _cycles(builder):
    out = np.zeros((1, 3), np.int64)
    rows_cost(builder.rows[-1:].copy(), 1, cost_record(builder.product.cost, 1, 1_000_000_000), out)
    return int(out[0, 0])


def test_results_that_would_overwrite_the_offsets_are_refused():
    builder = ProgramBuilder(A2)
    builder.gather(dst=512, src0=0, src1=512, src_bytes=64, dtype=Data.FP16, count=8)
    builder.gather(dst=512, src0=0, src1=480, src_bytes=64, dtype=Data.FP32, count=16)
    builder.gather_masked(dst=480, src0=0, src1=512, src_bytes=64, dtype=Data.FP32)
    builder.gather_masked(dst=512, src0=0, src1=512, src_bytes=64, dtype=Data.FP32, repeat=2, dst_rep_stride=9)
    builder.gatherb(dst=288, src0=0, src1=512, src_bytes=64, dtype=Data.INT32)
    builder.gatherb(dst=256, src0=0, src1=512, src_bytes=64, dtype=Data.INT32)
    own = ", or, for elements of 4 bytes, in their place"
    cases = (
        ("Gather", own, 512),
        ("Gather", own, 512),
        ("Gather", own, 480),
        ("Gather", own, 512),
        ("Gatherb", "", 288),
    )
    assert [v.detail for v in verify(builder.rows, A2)] == [
        f"{name} dst must be apart from the offsets{but}, not {at} ({A2.name})" for name, but, at in cases
    ]


MEASURED = [
    # cycles in a stream on 910B1 (mskpp); repeats of 256 bytes, of 32 elements where lists are merged
    ("gatherb", {1: 11.03, 2: 12.02, 8: 18.02, 9: 26.03, 16: 34.03, 17: 42.03, 32: 67.03}),
    ("gather_mask", {1: 14.03, 2: 28.03, 8: 112.04, 16: 224.04}),
    ("mrg_sort", {1: 22.01, 2: 38.02, 8: 134.02, 16: 262.02}),
]


@pytest.mark.parametrize(("name", "points"), MEASURED, ids=[name for name, _ in MEASURED])
def test_cycles_of_a_stream_are_those_measured(name, points):
    for repeat, measured in points.items():
        builder = ProgramBuilder(A2)
        operands = {
            "gatherb": {"src_bytes": 32, "dtype": Data.INT32, "repeat": repeat},
            "gather_mask": {"dtype": Data.INT16, "pattern": 0, "repeat": repeat},
            "mrg_sort": {"dtype": Data.FP32, "length0": 16 * repeat, "length1": 16 * repeat},
        }[name]
        getattr(builder, name)(dst=0, src0=8192, src1=16384, **operands)
        assert abs(_cycles(builder) - measured) <= 2


@pytest.mark.parametrize(("dst_bytes", "end"), [(0, 256), (8, 8), (9, 8), (1, 0)])
def test_gather_mask_writes_no_more_than_it_says(dst_bytes, end):
    builder = ProgramBuilder(A2)
    builder.gather_mask(dst=1024, src0=0, src1=2048, dtype=Data.FP32, pattern=0, dst_bytes=dst_bytes)
    runs = empty_runs()
    count = int(footprint_at(builder.rows, 0, runs))
    assert sum(run[3] * run[4] for run in runs[:count].tolist() if run[1] == WRITE) == end


def test_gather_mask_that_keeps_more_than_it_says_ends_the_run():
    builder = ProgramBuilder(A2)
    builder.duplicate(dst=0, dtype=Data.FP32, count=64, value_bits=0)
    builder.duplicate(dst=2048, dtype=Data.INT32, count=8, value_bits=7)
    builder.pipe_barrier(pipe=1)
    builder.gather_mask(dst=1024, src0=0, src1=2048, dtype=Data.FP32, pattern=0, dst_bytes=20)
    launch = launch_of("marks", [[builder.rows]], GlobalMemory(), core_kind="vector")
    with pytest.raises(
        ProgramError, match="with no more elements that the bits in src1 mark than dst_bytes have room for"
    ):
        execute(launch, A2, ExecuteOptions(accumulation=Accumulation(1, "serial", "rne")))
