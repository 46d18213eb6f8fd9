"""Vector instructions with operands of their own: address lists, padding, masks; worked examples and legality."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa import emit, footprint
from npu_sim.isa.op import C100, C220, M200, Data, Mode, Op, Space
from npu_sim.isa.row import LIST_LENGTH
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.verify import verify
from npu_sim.program.violation import Kind
from tests.oracles.instances import SIZES, Emulated, issued
from tests.oracles.semantics import FRACTAL

A2, UNIFIED, TRAINING = get_product("910b"), get_product("310p"), get_product("910")
PRODUCTS = {C220: A2, M200: UNIFIED, C100: TRAINING}


def _memories(ub=None, gm=None):
    contents = {space: np.zeros(size, np.uint8) for space, size in SIZES.items()}
    for space, data in ((Space.UB, ub), (Space.GM, gm)):
        if data is not None:
            contents[space][: data.nbytes] = np.ascontiguousarray(data).view(np.uint8).ravel()
    assert len(contents[Space.L0A]) % FRACTAL == 0
    return Emulated.of(contents, Data.FP16)


def _run(builder, ub=None, gm=None, **options):
    memories = _memories(ub, gm)
    assert builder.verify() == []
    assert memories.run(issued(builder), **options) == -1
    return memories


def _lists(builder, dtype, src, dst, repeat=1, src_rep=0, dst_rep=0):
    item = 2 if dtype == Data.FP16 else 4
    builder.trans_data_to_5hd(
        dst_list=[item * at for at in dst], src_list=[item * at for at in src], dtype=dtype, repeat=repeat,
        src_rep_stride=src_rep, dst_rep_stride=dst_rep,
    )  # fmt: skip


# TransDataTo5HD: from planes to pixels with channels and back, by the address lists of a layout conversion -----------


@pytest.mark.parametrize("product", [A2, UNIFIED, TRAINING], ids=lambda product: product.name)
@pytest.mark.parametrize("pixels", [16, 48])
def test_trans_data_to_5hd_turns_16_planes_of_half_into_pixels_and_back(product, pixels):
    planes = np.arange(16 * pixels, dtype=np.uint16).reshape(16, pixels)
    repeat = pixels // 16
    forward = ProgramBuilder(product)
    steps = (1, 16) if repeat > 1 else (0, 0)
    _lists(forward, Data.FP16, [i * pixels for i in range(16)], [8192 + 16 * i for i in range(16)], repeat, *steps)
    ub = _run(forward, planes).ub.view(np.uint16)
    assert np.array_equal(ub[8192 : 8192 + 16 * pixels].reshape(pixels, 16), planes.T)
    backward = ProgramBuilder(product)
    steps = (16, 1) if repeat > 1 else (0, 0)
    _lists(backward, Data.FP16, [16 * i for i in range(16)], [8192 + i * pixels for i in range(16)], repeat, *steps)
    ub = _run(backward, planes.T).ub.view(np.uint16)
    assert np.array_equal(ub[8192 : 8192 + 16 * pixels].reshape(16, pixels), planes)


@pytest.mark.parametrize("pixels", [16, 32])
def test_trans_data_to_5hd_turns_8_planes_of_float_into_pixels_and_back(pixels):
    planes = np.arange(8 * pixels, dtype=np.uint32).reshape(8, pixels)
    repeat = pixels // 16
    forward = ProgramBuilder(A2)
    src = [i % 8 * pixels + i // 8 * 8 for i in range(16)]
    dst = [8192 + (i % 2 * 8 + i // 2) * 8 for i in range(16)]
    _lists(forward, Data.FP32, src, dst, repeat, *((2, 16) if repeat > 1 else (0, 0)))
    ub = _run(forward, planes).ub.view(np.uint32)
    assert np.array_equal(ub[8192 : 8192 + 8 * pixels].reshape(pixels, 8), planes.T)
    backward = ProgramBuilder(A2)
    dst = [8192 + i // 2 * pixels + i % 2 * 8 for i in range(16)]
    _lists(backward, Data.FP32, [8 * i for i in range(16)], dst, repeat, *((16, 2) if repeat > 1 else (0, 0)))
    ub = _run(backward, planes.T).ub.view(np.uint32)
    assert np.array_equal(ub[8192 : 8192 + 8 * pixels].reshape(8, pixels), planes)


def test_trans_data_to_5hd_in_place_reads_everything_first():
    square = np.random.default_rng(5).integers(0, 2**16, (16, 16), np.uint16)
    builder = ProgramBuilder(A2)
    places = [16 * i for i in range(16)]
    _lists(builder, Data.FP16, places, places)
    assert np.array_equal(_run(builder, square).ub.view(np.uint16)[:256].reshape(16, 16), square.T)


def test_trans_data_to_5hd_single_repeat_starts_one_stride_behind_its_addresses():
    # the page says so, and kernels must pass 0; verify tells them
    square = np.random.default_rng(6).integers(0, 2**16, (16, 16), np.uint16)
    builder = ProgramBuilder(A2)
    _lists(builder, Data.FP16, [16 * i for i in range(16)], [1024 + 16 * i for i in range(16)], 1, 2, 5)
    shifted = np.concatenate([np.zeros((2, 16), np.uint16), square])
    memories = _memories(shifted)
    assert memories.run(issued(builder)) == -1
    at = 1024 + 5 * 16
    assert np.array_equal(memories.ub.view(np.uint16)[at : at + 256].reshape(16, 16), square.T)
    texts = [violation.detail for violation in builder.verify()]
    assert texts == [
        "TransDataTo5HD dst_rep_stride must be 0 for a single repeat, not 5 (Ascend910B2)",
        "TransDataTo5HD src_rep_stride must be 0 for a single repeat, not 2 (Ascend910B2)",
    ]


@pytest.mark.parametrize("address", [31, 8, -32, 2**21])
def test_address_list_with_an_address_of_no_block_is_reported_and_stops_the_run(address):
    builder = ProgramBuilder(A2)
    _lists(builder, Data.FP16, [16 * i for i in range(16)], [1024 + 16 * i for i in range(16)])
    emit.set_src_address(builder._rows, 0, 7, address)
    assert builder.rows[0]["src_list"][7] == emit.block_number(address) == 0xFFFF
    [violation] = builder.verify()
    assert violation.kind is Kind.CAPACITY
    before, memories = _memories(), _memories()
    assert memories.run(issued(builder)) == 0
    assert np.array_equal(memories.ub, before.ub)


def test_address_lists_in_two_steps_equal_their_formula():
    rng = np.random.default_rng(7)
    for inner_count in (1, 2, 8, 16):
        base, inner, outer = (32 * int(value) for value in rng.integers(0, 60, 3))
        builder = ProgramBuilder(A2)
        builder.pipe_barrier()
        emit.set_src_addresses(builder._rows, 0, base, inner_count, inner, outer)
        emit.set_dst_addresses(builder._rows, 0, base, inner_count, outer, inner)
        for i in range(LIST_LENGTH):
            row = builder.rows[0]
            assert row["src_list"][i] * 32 == base + i % inner_count * inner + i // inner_count * outer
            assert row["dst_list"][i] * 32 == base + i % inner_count * outer + i // inner_count * inner


def test_trans_data_to_5hd_of_a_plain_list_has_two_runs():
    builder = ProgramBuilder(A2)
    _lists(builder, Data.FP16, [i * 640 for i in range(16)], [16 * i for i in range(16)], 40, 1, 16)
    runs = footprint.empty_runs()
    assert footprint.footprint_at(builder.rows, 0, runs) == 2


# DataCopyPad ---------------------------------------------------------------------------------------------------------


def _padded(left, right, mode):
    builder = ProgramBuilder(A2)
    builder.data_copy_pad(
        dst_space=Space.UB, dst=0, src_space=Space.GM, src=2, block_count=2, block_len=6, src_gap=2, dst_gap=1,
        left_padding=left, right_padding=right, mode=mode, value_bits=7, dtype=Data.INT16, tensor=0,
    )  # fmt: skip
    gm = np.arange(100, 150, dtype=np.int16)
    ub = _run(builder, np.full(64, 55, np.int16), gm).ub.view(np.int16)
    assert np.array_equal(ub[16:32], [55] * 16)
    assert np.array_equal(ub[48:64], [55] * 16)
    return ub[:16].tolist(), ub[32:48].tolist()


def test_data_copy_pad_without_padding_repeats_the_first_element_of_each_block():
    for mode in (0, Mode.PAD):
        assert _padded(0, 0, mode) == ([101, 102, 103] + [101] * 13, [105, 106, 107] + [105] * 13)


def test_data_copy_pad_with_padding_fills_all_around_the_data_with_the_value():
    assert _padded(2, 1, Mode.PAD) == ([7, 7, 101, 102, 103] + [7] * 11, [7, 7, 105, 106, 107] + [7] * 11)


def test_data_copy_pad_with_padding_of_any_value_leaves_nan_bits():
    assert _padded(2, 1, 0) == ([-1, -1, 101, 102, 103] + [-1] * 11, [-1, -1, 105, 106, 107] + [-1] * 11)


def test_data_copy_pad_to_gm_changes_exactly_its_bytes():
    builder = ProgramBuilder(A2)
    builder.data_copy_pad(
        dst_space=Space.GM, dst=3, src_space=Space.UB, src=32, block_count=3, block_len=5, src_gap=1, dst_gap=2,
        dtype=Data.INT8, tensor=0,
    )  # fmt: skip
    gm = _run(builder, np.arange(256, dtype=np.uint8), np.full(40, 250, np.uint8)).gm[:40]
    want = np.full(40, 250, np.uint8)
    for i in range(3):
        want[3 + 7 * i : 8 + 7 * i] = 32 + 64 * i + np.arange(5)
    assert np.array_equal(gm, want)


PADS = [
    ({"block_count": 0}, "block_count must be in [1, 4095], not 0"),
    ({"left_padding": 17}, "left_padding must be at most 32 bytes, not 17"),
    ({"right_padding": 17}, "right_padding must be at most 32 bytes, not 17"),
    ({"dst_gap": 65536}, "dst_gap must be in [0, 65535] blocks in UB, not 65536"),
]


@pytest.mark.parametrize(("fields", "text"), PADS, ids=lambda value: next(iter(value)) if value else None)
def test_verify_data_copy_pad_limits_are_reported(fields, text):
    builder = ProgramBuilder(A2)
    operands = {"block_count": 1, "block_len": 0} | fields
    builder.data_copy_pad(dst_space=Space.UB, dst=0, src_space=Space.GM, src=0, dtype=Data.FP16, **operands)
    assert [violation.detail for violation in builder.verify()] == [f"DataCopyPad {text} (Ascend910B2)"]


def test_verify_data_copy_pad_adds_whole_elements_only():
    builder = ProgramBuilder(A2)
    builder.set_atomic(Data.FP32)
    builder.data_copy_pad(dst_space=Space.GM, dst=0, src_space=Space.UB, src=0, block_len=6, dtype=Data.FP16, tensor=0)
    [violation] = verify(issued(builder), A2)
    assert violation.detail == "DataCopyPad block_len must be whole elements to add them, not 6 (Ascend910B2)"
    memories = _memories()
    assert memories.run(issued(builder)) == 1


# Reductions and scalars ----------------------------------------------------------------------------------------------


def test_reduce_repeat_adds_neighbours_first():
    # 2^24 absorbs single ones, so the order of additions shows in the result
    values = np.ones(64, np.float32)
    values[::8] = 2.0**24
    builder = ProgramBuilder(UNIFIED)
    builder.reduce_repeat(dst=1024 + 4, src=0, dtype=Data.FP32, mask=64)
    tree = values.copy()
    while len(tree) > 1:
        tree = tree[::2] + tree[1::2]
    chain = np.float32(0)
    for value in values:
        chain += value
    assert tree[0] != chain
    assert _run(builder, values).ub.view(np.float32)[257] == tree[0]


def test_verify_reduce_repeat_limits_are_those_of_the_architecture():
    builder = ProgramBuilder(TRAINING)
    builder.reduce_repeat(dst=2, src=0, dtype=Data.FP32, mask=65, dst_rep_stride=0)
    assert [violation.detail for violation in builder.verify()] == [
        "ReduceRepeat mask must be within the 256 bytes of a repeat, not 65 (Ascend910A)",
        "ReduceRepeat dst_rep_stride must be at least 1 on dav-c100, not 0 (Ascend910A)",
        "ReduceRepeat UB address must be a multiple of 4, not 2 (Ascend910A)",
    ]


@pytest.mark.parametrize("dtype", [Data.INT8, Data.FP16, Data.FP32, Data.INT64], ids=lambda dtype: dtype.name)
def test_scalar_copy_moves_one_element_and_is_aligned_to_it(dtype):
    item = {Data.INT8: 1, Data.FP16: 2, Data.FP32: 4, Data.INT64: 8}[dtype]
    source = np.random.default_rng(8).integers(0, 256, 64, np.uint8)
    builder = ProgramBuilder(TRAINING)
    builder.scalar_copy(dst_space=Space.GM, dst=5 * item, src_space=Space.UB, src=3 * item, dtype=dtype, tensor=0)
    gm = _run(builder, source).gm
    assert np.array_equal(gm[5 * item : 6 * item], source[3 * item : 4 * item])
    assert not gm[: 5 * item].any()
    assert not gm[6 * item :].any()
    if item > 1:
        builder.scalar_copy(dst_space=Space.UB, dst=item // 2, src_space=Space.UB, src=0, dtype=dtype)
        assert [violation.kind for violation in builder.verify()] == [Kind.WRITE_MISALIGNED]


def test_verify_scalar_copy_from_gm_to_gm_is_no_path():
    builder = ProgramBuilder(A2)
    builder.scalar_copy(dst_space=Space.GM, dst=0, src_space=Space.GM, src=4, dtype=Data.FP32, tensor=0)
    [violation] = builder.verify()
    assert violation.detail == "GetValue/SetValue path must exist on dav-c220, not GM->GM (Ascend910B2)"


# Legal types, transcribed from the pages of the instructions ---------------------------------------------------------

FOUR = {Data.FP16, Data.FP32, Data.INT16, Data.INT32}
FLOATS = {Data.FP16, Data.FP32}
ARITHMETIC = {C100: FOUR - {Data.INT16}, M200: FOUR, C220: FOUR}
TYPES = {
    **{op: ARITHMETIC for op in (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN)},
    Op.DIV: {C100: FLOATS, M200: FLOATS, C220: FLOATS},
    Op.ADDS: {C100: FLOATS, M200: FOUR, C220: FOUR},
    Op.TRANS_DATA_TO_5HD: {C100: {Data.FP16, Data.INT16}, M200: FOUR, C220: FOUR},
}


@pytest.mark.parametrize("arch", PRODUCTS)
@pytest.mark.parametrize("op", TYPES, ids=lambda op: op.name)
def test_verify_types_of_vector_instructions_follow_their_pages(op, arch):
    for dtype in Data:
        builder = ProgramBuilder(PRODUCTS[arch])
        name = op.name.lower()
        if op == Op.TRANS_DATA_TO_5HD:
            builder.trans_data_to_5hd(dst_list=[0] * 16, src_list=[0] * 16, dtype=dtype)
        elif op == Op.ADDS:
            builder.adds(dst=0, src=0, dtype=dtype, count=1, value_bits=0)
        else:
            getattr(builder, name)(dst=0, src0=0, src1=0, dtype=dtype, count=1)
        assert (builder.verify() == []) == (dtype in TYPES[op][arch]), dtype


# The conversions of the Cast kernel, on every product: mode, and what overflow and NaN become ------------------------

HALF_OVERFLOW = np.array([65519.0, 65520.0, -1e30, np.inf, np.nan, 2.0**-25, 3 * 2.0**-25, 1 + 2.0**-11], np.float32)
BRAIN_OVERFLOW = np.array([3.4e38, -3.4e38, np.inf, np.nan, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1e-45], np.float32)
STORAGE = {Data.FP16: np.dtype(np.float16), Data.BF16: np.dtype(ml_dtypes.bfloat16), Data.FP32: np.dtype(np.float32)}
CONVERSIONS = [
    (TRAINING, Data.FP32, Data.FP16, RoundMode.NONE, True),
    (UNIFIED, Data.FP32, Data.FP16, RoundMode.NONE, True),
    (A2, Data.FP32, Data.FP16, RoundMode.RINT, False),
    (A2, Data.FP32, Data.FP16, RoundMode.RINT, True),
    (A2, Data.FP32, Data.BF16, RoundMode.RINT, False),
    (A2, Data.FP32, Data.BF16, RoundMode.RINT, True),
]


@pytest.mark.parametrize(("product", "src", "dst", "mode", "saturate"), CONVERSIONS)
def test_cast_to_16_bit_floats_rounds_to_even_with_the_overflow_of_the_product(product, src, dst, mode, saturate):
    values = HALF_OVERFLOW if dst == Data.FP16 else BRAIN_OVERFLOW
    builder = ProgramBuilder(product)
    builder.cast(dst=1024, src=0, src_dtype=src, dst_dtype=dst, round_mode=mode, count=len(values))
    got = _run(builder, values, saturate=saturate).ub[1024 : 1024 + 2 * len(values)].view(STORAGE[dst])
    with np.errstate(all="ignore"):
        want = values.astype(STORAGE[dst]).astype(np.float64)
    if saturate:
        largest = float(ml_dtypes.finfo(STORAGE[dst]).max)
        want = np.where(np.isnan(want), 0, np.clip(want, -largest, largest))
    assert np.array_equal(got.astype(np.float64), want, equal_nan=True)


@pytest.mark.parametrize(
    ("product", "src"), [(TRAINING, Data.FP16), (UNIFIED, Data.FP16), (A2, Data.FP16), (A2, Data.BF16)]
)
def test_cast_to_float_is_exact_for_every_pattern(product, src):
    patterns = np.arange(0, 65536, 5, dtype=np.uint16)[:8000]
    builder = ProgramBuilder(product)
    builder.cast(dst=16384, src=0, src_dtype=src, dst_dtype=Data.FP32, count=len(patterns))
    got = _run(builder, patterns).ub[16384 : 16384 + 4 * len(patterns)].view(np.float32)
    with np.errstate(all="ignore"):
        assert np.array_equal(got, patterns.view(STORAGE[src]).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(("src", "dst"), [(Data.FP16, Data.BF16), (Data.BF16, Data.FP16)])
def test_cast_between_16_bit_floats_goes_through_float_only(src, dst):
    builder = ProgramBuilder(A2)
    builder.cast(dst=0, src=64, src_dtype=src, dst_dtype=dst, round_mode=RoundMode.RINT, count=1)
    assert [violation.kind for violation in builder.verify()] == [Kind.UNSUPPORTED]
