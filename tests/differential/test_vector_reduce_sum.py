"""ReduceSum launches against the definition, addition by addition: rows, shortcut and every legal order."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows
from npu_sim.errors import DTypeError, ProductError, ShapeError
from npu_sim.isa.op import Op
from npu_sim.memory.gm import GlobalMemory
from ops.vector.reduce_sum import accumulator_lanes, reduce_sum_launch
from tests.differential.vector_runs import (
    PRODUCTS,
    assert_sound,
    assert_untouched_elsewhere,
    patterns_of,
    run,
    ways,
    with_one_nan,
)
from tests.oracles import vector_kernels as oracle
from tests.oracles.series import SERIES, UNIFIED

ITEM = {"fp32": 4, "fp16": 2, "bf16": 2}
DTYPES = {"310p": ("fp32", "fp16"), "910": ("fp32", "fp16"), "910b": ("fp32", "fp16", "bf16")}
DTYPES["910_93"] = DTYPES["910b"]
CASES = [(series, dtype) for series in SERIES for dtype in DTYPES[series]]
SHAPES = [
    (1, 1, 1),
    (2, 3, 5),
    (3, 17, 1),
    (37, 70, 1),
    (2, 1, 1),
    (2, 33, 49),
    (1, 9, 64),
    (3, 2, 65),
    (2, 5, 129),
    (1, 2, 2049),
    (2, 20, 200),
]


def patterns(rng, count, dtype):
    """Values of very different size, so that every other order of the additions shows; few specials."""
    values = (rng.standard_normal(count) * 2.0 ** rng.integers(-8, 9, count)).astype(np.float32)
    code = np.dtype(f"u{ITEM[dtype]}")
    return values.astype(oracle.STORAGE[dtype]).view(code).copy()


def launch_of(series, dtype, shape):
    n, c, r = shape
    gm = GlobalMemory()
    src = gm.add("x", n * c * r * ITEM[dtype], initialised=True)
    dst = gm.add("y", c * ITEM[dtype], initialised=False)
    gm.add("guard", 64, initialised=True)
    return reduce_sum_launch(gm, src, dst, n, c, r, dtype, PRODUCTS[series]), src, dst


def same(got, expected, dtype):
    if dtype == "fp32":
        got, expected = with_one_nan(got), with_one_nan(expected)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("series", "dtype"), CASES)
def test_reduce_sum_every_way_gives_the_bits_of_the_definition(series, dtype):
    product = PRODUCTS[series]
    rng = np.random.default_rng([SERIES.index(series), ITEM[dtype], 1])
    for shape in SHAPES:
        launch, src, dst = launch_of(series, dtype, shape)
        x = patterns(rng, src.byte_count // ITEM[dtype], dtype)
        expected = oracle.reduce_sum(x, *shape, dtype, series in UNIFIED)
        for _, arena in ways(launch, product, {src: x}, seeds=(shape[1],)):
            same(patterns_of(arena, dst, expected.dtype), expected, dtype)
            assert_untouched_elsewhere(arena, launch, {src: x}, dst, byte_exact=series not in UNIFIED)


@pytest.mark.parametrize(("series", "dtype"), CASES)
def test_reduce_sum_of_specials_overflow_and_subnormals(series, dtype):
    product = PRODUCTS[series]
    n, c, r = shape = (2, 19, 70)
    launch, src, dst = launch_of(series, dtype, shape)
    fmt = {"fp32": (0x7F800000, 0x7F7FFFFF), "fp16": (0x7C00, 0x7BFF), "bf16": (0x7F80, 0x7F7F)}[dtype]
    inf, largest = fmt
    sign = 1 << (8 * ITEM[dtype] - 1)
    x = np.zeros((n, c, r), f"u{ITEM[dtype]}")
    x[0, 0, 3] = inf
    x[0, 1, 3], x[1, 1, 60] = inf, inf | sign
    x[1, 2, 69] = inf + 5
    x[:, 3] = largest
    x[:, 4] = largest | sign
    x[0, 5, :4] = 1
    x[:, 6] = sign
    x[0, 7, 0], x[0, 7, 1] = largest, largest | sign
    x[0, 8] = 1 | sign
    flat = x.reshape(-1)
    for overflow in product.overflow_modes:
        expected = oracle.reduce_sum(flat, *shape, dtype, overflow == "saturate")
        for _, arena in ways(launch, product, {src: flat}, seeds=(4,), overflow=overflow):
            same(patterns_of(arena, dst, expected.dtype), expected, dtype)
        assert expected[6] == 0  # -0 added to +0
        if overflow == "saturate" and dtype != "fp32":
            assert (expected[0], expected[1], expected[2]) == (largest, 0, 0)


@pytest.mark.parametrize(("series", "dtype"), CASES)
def test_reduce_sum_rows_are_legal_and_free_of_hazards(series, dtype):
    product = PRODUCTS[series]
    for shape in (*SHAPES[1:6], (2, 40, 1024), (1, 500, 3136), (3, 16, 4100)):
        launch, _, _ = launch_of(series, dtype, shape)
        assert assert_sound(launch, product)


@pytest.mark.parametrize(("series", "dtype"), [("310p", "fp32"), ("310p", "fp16"), ("910", "fp16")])
def test_reduce_sum_of_more_channels_than_ub_holds_goes_piece_by_piece(series, dtype):
    product = PRODUCTS[series]
    n, c, _ = shape = (17, 4000 * product.vector_core_count + 3, 1)
    launch, src, dst = launch_of(series, dtype, shape)
    assert launch.params["piece"][0] < launch.params["share"][0]
    x = patterns(np.random.default_rng(11), n * c, dtype)
    expected = oracle.reduce_sum(x, *shape, dtype, True)
    for shortcuts in (True, False):
        arena = run(launch, product, {src: x}, shortcuts=shortcuts, threads=2)
        same(patterns_of(arena, dst, expected.dtype), expected, dtype)
    assert assert_sound(launch, product)


@pytest.mark.parametrize("series", SERIES)
def test_reduce_sum_of_integers_is_exact(series):
    rng = np.random.default_rng(9)
    shape = (3, 21, 2500)
    launch, src, dst = launch_of(series, "fp32", shape)
    x = rng.integers(-50, 51, shape).astype(np.float32)
    for shortcuts in (True, False):
        arena = run(launch, PRODUCTS[series], {src: x}, shortcuts=shortcuts, threads=2)
        np.testing.assert_array_equal(patterns_of(arena, dst, np.float32), x.sum(axis=(0, 2), dtype=np.float64))


def test_reduce_sum_bits_are_those_of_every_product_and_dtype_width():
    rng = np.random.default_rng(10)
    shape = (2, 30, 3000)
    x = patterns(rng, 2 * 30 * 3000, "fp32")
    results = []
    for series in SERIES:
        launch, src, dst = launch_of(series, "fp32", shape)
        for shortcuts in (True, False):
            arena = run(launch, PRODUCTS[series], {src: x}, shortcuts=shortcuts)
            results.append(patterns_of(arena, dst, np.uint32).tolist())
    assert all(result == results[0] for result in results)
    plain = x.view(np.float32).reshape(shape).transpose(1, 0, 2).reshape(30, -1).cumsum(axis=1, dtype=np.float32)[:, -1]
    assert results[0] != plain.view(np.uint32).tolist()


@pytest.mark.parametrize(
    ("r", "lanes"), [(1, 64), (64, 64), (65, 128), (128, 128), (1025, 2048), (2048, 2048), (9999, 2048)]
)
def test_reduce_sum_lanes_are_the_power_of_two_that_holds_a_row_up_to_2048(r, lanes):
    assert accumulator_lanes(r) == lanes == oracle.lanes(r)


@pytest.mark.parametrize(
    ("series", "dtype", "r", "group"),
    [("910b", "fp32", 1024, 8), ("910b", "fp32", 1025, 1), ("910", "fp32", 4000, 8), ("910b", "fp16", 512, 16),
     ("910b", "fp16", 513, 1), ("310p", "fp16", 1024, 16), ("310p", "fp16", 1025, 1)],
)  # fmt: skip
def test_reduce_sum_takes_a_unit_at_once_only_if_ub_holds_it(series, dtype, r, group):
    launch, _, _ = launch_of(series, dtype, (1, 48 * 48, r))
    assert launch.params["group"][0] == group
    assert launch.params["out"][0] + 64 <= PRODUCTS[series].core.ub_bytes - 1024


@pytest.mark.parametrize("series", UNIFIED)
def test_reduce_sum_shares_channels_out_in_blocks_of_32_bytes(series):
    launch, _, dst = launch_of(series, "fp16", (1, 16 * 5 + 3, 10))
    assert launch.core_count == 6
    for core in range(6):
        assert _stores(launch, core) == [dst.address + 32 * core]


@pytest.mark.parametrize(
    ("channels", "dtype", "cores", "unit"),
    # the first three are profiled: 32, 43 and 47 blocks
    [(64, "fp32", 32, 2), (256, "fp32", 43, 6), (4096, "fp32", 47, 8), (1, "fp16", 1, 1), (83, "bf16", 42, 2)],
)
def test_reduce_sum_shares_single_channels_out_where_bytes_can_be_stored(channels, dtype, cores, unit):
    launch, _, dst = launch_of("910b", dtype, (1, channels, 10))
    assert launch.core_count == cores
    stores = [at for core in range(cores) for at in _stores(launch, core)]
    item = 4 if dtype == "fp32" else 2
    assert stores == list(range(dst.address, dst.address + channels * item, unit * item))


def _stores(launch, core):
    rows = emit_rows(launch, core)
    stores = rows[np.isin(rows["op"], (Op.DATA_COPY, Op.DATA_COPY_PAD)) & (rows["pipe"] == 5)]
    return stores["dst"].tolist()


@pytest.mark.parametrize("shape", [(0, 5, 7), (3, 5, 0)])
def test_reduce_sum_over_nothing_is_positive_zero(shape):
    launch, src, dst = launch_of("910b", "bf16", shape)
    for _, arena in ways(launch, PRODUCTS["910b"], {src: np.zeros(0, np.uint16)}):
        assert patterns_of(arena, dst, np.uint16).tolist() == [0] * 5


def test_reduce_sum_of_no_channels_runs_no_row():
    launch, _, _ = launch_of("910b", "fp32", (2, 0, 3))
    assert assert_sound(launch, PRODUCTS["910b"]) == 0


def test_reduce_sum_names_what_it_refuses():
    gm = GlobalMemory()
    x, y = gm.add("x", 48, initialised=True), gm.add("y", 8, initialised=False)
    with pytest.raises(
        DTypeError, match=r"^dtype must be one of fp32, fp16, bf16, not 'int8' \(ReduceSum, Ascend910A\)$"
    ):
        reduce_sum_launch(gm, x, y, 2, 4, 3, "int8", PRODUCTS["910"])
    with pytest.raises(
        ProductError, match=r"^Cast from bf16 must be to no format, not to fp32 \(mode NONE, dav-c100\)$"
    ):
        reduce_sum_launch(gm, x, y, 2, 4, 3, "bf16", PRODUCTS["910"])
    with pytest.raises(ShapeError) as caught:
        reduce_sum_launch(gm, x, y, 2, 4, 2, "fp16", PRODUCTS["910"])
    assert (
        str(caught.value) == "src must be [n, c, r] = [2, 4, 2] elements of fp16, not 48 bytes (ReduceSum, Ascend910A)"
    )
    with pytest.raises(ShapeError) as caught:
        reduce_sum_launch(gm, x, y, 4, 2, 3, "fp16", PRODUCTS["910"])
    assert str(caught.value) == "dst must be 2 elements of fp16, not 8 bytes (ReduceSum, Ascend910A)"
