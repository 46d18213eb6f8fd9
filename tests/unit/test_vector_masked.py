"""General forms of vector instructions: published examples, what is refused, what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.codes import Data, Space
from npu_sim.isa.cost import rows_cost
from npu_sim.products import get_product
from npu_sim.products.cost_record import cost_record
from npu_sim.program.builder import ProgramBuilder
from tests.oracles.instances import SIZES, Emulated, issued

A2, TRAINING = get_product("910b"), get_product("910")
HALF = {"dtype": Data.FP16}


def _after(builder, **operands):
    """UB as int16 after the program, with arrays of operands at their addresses."""
    contents = {space: np.zeros(size, np.uint8) for space, size in SIZES.items()}
    for address, values in operands.values():
        data = np.ascontiguousarray(values).view(np.uint8)
        contents[Space.UB][address : address + len(data)] = data
    emulated = Emulated.of(contents, Data.FP16)
    assert emulated.run(issued(builder)) == -1
    return emulated.ub


def test_bits_8_and_2_of_a_16_bit_mask_are_lanes_3_and_65_as_in_the_page():
    builder = ProgramBuilder(A2)
    builder.set_vector_mask(8, 2)
    builder.duplicate_masked(dst=0, dtype=Data.INT16, value_bits=7)
    assert np.flatnonzero(_after(builder).view(np.int16)).tolist() == [3, 65]


@pytest.mark.parametrize(("amount", "wanted"), [(1, 0xD555), (3, 0xF555)])
def test_shift_right_keeps_the_sign_as_in_the_page(amount, wanted):
    builder = ProgramBuilder(A2)
    builder.shift_right(dst=0, src=256, dtype=Data.INT16, count=4, value_bits=amount)
    got = _after(builder, src=(256, np.full(4, 0xAAAA, np.uint16)))
    assert got[:8].view(np.uint16).tolist() == [wanted] * 4


@pytest.mark.parametrize(("amount", "wanted"), [(1, 0xD554), (3, 0xD550), (16, 0x8000)])
def test_shift_left_keeps_the_sign_bit_as_in_the_page(amount, wanted):
    builder = ProgramBuilder(A2)
    builder.shift_left(dst=0, src=256, dtype=Data.INT16, count=4, value_bits=amount)
    got = _after(builder, src=(256, np.full(4, 0xAAAA, np.uint16)))
    assert got[:8].view(np.uint16).tolist() == [wanted] * 4


def test_leaky_relu_of_signed_zeros_and_infinities_as_in_the_page():
    builder = ProgramBuilder(A2)
    minus_one = int(np.array(-1, np.float16).view(np.uint16))
    builder.leaky_relu(dst=0, src=256, count=4, value_bits=minus_one, **HALF)
    builder.leaky_relu(dst=512, src=256, count=4, value_bits=0, **HALF)
    ub = _after(builder, src=(256, np.array([-0.0, 0.0, np.inf, -np.inf], np.float16)))
    assert ub[:8].view(np.uint16).tolist() == [0, 0, 0x7C00, 0x7C00]
    last = ub[512:520].view(np.float16)
    assert last[2] == np.inf
    assert np.isnan(last[3])


def test_products_of_composites_overflow_before_the_sum_as_in_the_page():
    largest = np.array([65504], np.float16)
    for name in ("mul_add_dst", "fused_mul_add"):
        builder = ProgramBuilder(A2)
        getattr(builder, name)(dst=0, src0=256, src1=512, count=1, **HALF)
        first, second = (largest, -np.array([np.inf], np.float16))
        places = {"mul_add_dst": (second, first, first), "fused_mul_add": (first, first, second)}[name]
        ub = _after(builder, **{f"x{i}": (256 * i, values) for i, values in enumerate(places)})
        assert np.isnan(ub[:2].view(np.float16)[0]), name


def test_counter_mode_takes_as_many_elements_as_the_mask_says():
    builder = ProgramBuilder(A2)
    builder.set_mask_count()
    builder.set_vector_mask(130, 0)
    builder.duplicate_masked(dst=0, dtype=Data.INT16, value_bits=1, repeat=0, dst_rep_stride=16)
    assert np.flatnonzero(_after(builder).view(np.int16)).tolist() == [*range(128), 256, 257]


@pytest.mark.parametrize(
    ("operands", "wrong"),
    [
        ({"dst": 0, "src0": 32, "src1": 4096}, "src0 must be the destination or apart from it within a repeat, not 32"),
        ({"dst": 256, "src0": 0, "src1": 4096, "repeat": 2},
         "src0 must be apart from the destination of the repeat before, not 0"),
        ({"dst": 0, "src0": 8192, "src1": 4096, "dst_blk_stride": 0},
         "dst_blk_stride must be at least 1 where the mask has lanes of several blocks, not 0"),
    ],
)  # fmt: skip
def test_overlap_that_is_undefined_is_refused(operands, wrong):
    builder = ProgramBuilder(A2)
    builder.add_masked(dtype=Data.FP32, **operands)
    assert wrong in str(builder.verify()[0])


@pytest.mark.parametrize("dst_blk_stride", [0, 1])
def test_what_does_not_repeat_overlaps_nothing(dst_blk_stride):
    """Lines shorter than a repeat are written as none of them and a tail."""
    builder = ProgramBuilder(A2)
    operands = {"dst": 0, "src0": 0, "src1": 32, "dtype": Data.FP32}
    builder.add_masked(**operands, repeat=0, dst_blk_stride=dst_blk_stride)
    builder.cast_masked(
        dst=0, src=32, src_dtype=Data.FP32, dst_dtype=Data.FP16, round_mode=RoundMode.NONE, repeat=0,
        dst_blk_stride=dst_blk_stride,
    )  # fmt: skip
    builder.set_vector_mask(15, 0)
    builder.add_masked(**operands)
    assert builder.verify() == []
    builder.reset_mask()
    builder.add_masked(**operands)
    assert "src1 must be the destination or apart" in str(builder.verify()[0])


def test_a_copy_counts_the_elements_of_each_repeat():
    builder = ProgramBuilder(A2)
    builder.set_mask_count()
    builder.set_vector_mask(70, 0)
    builder.copy(dst=0, src=4096, dtype=Data.FP32, repeat=2, src_blk_stride=2, dst_rep_stride=9, src_rep_stride=20)
    assert builder.verify() == []
    values = np.arange(1024, dtype=np.float32) + 1
    ub = _after(builder, src=(4096, values)).view(np.float32)
    blocks = values.reshape(-1, 2, 8)[:, 0]
    for repeat in range(2):
        first = ub[72 * repeat : 72 * repeat + 72]
        assert np.array_equal(first[:70], blocks[10 * repeat : 10 * repeat + 9].reshape(-1)[:70])
        assert not first[70:].any()
    assert not ub[144:1024].any()
    builder.copy(dst=0, src=4096, dtype=Data.FP32, dst_blk_stride=0)
    assert "dst_blk_stride must be at least 1 where a repeat has several blocks" in str(builder.verify()[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_gather_in_place_reads_a_repeat_before_it_writes_it(dtype):
    count = 512 // np.dtype(dtype).itemsize
    values, offsets = np.arange(count, dtype=dtype), (np.arange(count, dtype=np.uint32) ^ 1) * np.dtype(dtype).itemsize
    operands = {"dst": 0, "src0": 0, "src1": 4096, "src_bytes": 512}
    operands["dtype"] = Data.FP16 if dtype == np.float16 else Data.FP32
    for masked in (False, True):
        builder = ProgramBuilder(A2)
        if masked:
            builder.gather_masked(**operands, repeat=2)
        else:
            builder.gather(**operands, count=count)
        assert builder.verify() == []
        ub = _after(builder, values=(0, values), offsets=(4096, offsets))
        assert ub[:512].view(dtype).tolist() == values[np.arange(count) ^ 1].tolist()


def test_sums_may_gather_in_the_second_source():
    builder = ProgramBuilder(A2)
    builder.add_masked(dst=0, src0=4096, src1=0, dtype=Data.FP32, repeat=3, dst_rep_stride=0, src1_rep_stride=0)
    assert builder.verify() == []
    values = np.arange(192, dtype=np.float32)
    ub = _after(builder, src=(4096, values))
    assert ub[:256].view(np.float32).tolist() == values.reshape(3, 64).sum(axis=0).tolist()


def test_counting_masks_are_refused_on_the_910():
    builder = ProgramBuilder(TRAINING)
    builder.set_mask_count()
    assert "SetMaskCount must be on dav-c220, dav-m200, not dav-c100" in str(builder.verify()[0])


def _cycles(builder):
    rows = issued(builder)
    out = np.zeros((len(rows), 3), np.int64)
    rows_cost(rows, len(rows), cost_record(A2.cost, 1, 1_000_000_000), out)
    return out


def test_blocks_that_meet_in_one_bank_group_take_turns_and_a_new_mask_waits():
    """Block strides of 16 meet 8 times, of 8 four times (asc-devkit, bank conflicts); a call that sets the mask does
    not overlap with the one before."""
    builder = ProgramBuilder(A2)
    for stride in (1, 2, 8, 16):
        builder.muls_masked(dst=0, src=65536, repeat=10, dst_blk_stride=stride, value_bits=0, **HALF)
    builder.set_vector_mask(0xFFFF, 0)
    builder.muls_masked(dst=0, src=65536, repeat=10, value_bits=0, **HALF)
    cycles = _cycles(builder)
    call = cycles[0, 1]
    assert cycles[:4, 0].tolist() == [10, 10, 40, 80]
    assert cycles[5, 0] > 10 + call
    assert cycles[5].tolist()[1:] == [0, 10 * 16 * 2]
