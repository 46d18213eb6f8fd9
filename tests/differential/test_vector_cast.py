"""Cast launches against exact rounding: rows, shortcut and every legal order leave the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.errors import DTypeError, ProductError, ShapeError
from npu_sim.memory.gm import GlobalMemory
from ops.vector import kernel_cast
from ops.vector.cast import cast_launch, conversions
from tests.differential.vector_runs import PRODUCTS, assert_sound, assert_untouched_elsewhere, patterns_of, run, ways
from tests.oracles import vector_kernels as oracle
from tests.oracles.series import SERIES, UNIFIED

PAIRS = {
    "310p": [("fp32", "fp16"), ("fp16", "fp32")],
    "910": [("fp32", "fp16"), ("fp16", "fp32")],
    "910b": [(a, b) for a in ("fp32", "fp16", "bf16") for b in ("fp32", "fp16", "bf16") if a != b],
}
PAIRS["910_93"] = PAIRS["910b"]
CASES = [(series, *pair) for series in SERIES for pair in PAIRS[series]]
ITEM = {"fp32": 4, "fp16": 2, "bf16": 2}
COUNTS = (1, 7, 8, 15, 16, 17, 511, 512, 513, 1031)


def patterns(rng, count, dtype):
    """Random patterns (NaN, Inf and subnormals among them), ordinary values, and ties of the 16-bit types."""
    code = np.dtype(f"u{ITEM[dtype]}")
    raw = rng.integers(0, 1 << (8 * code.itemsize), count, dtype=np.uint64).astype(code)
    usual = rng.standard_normal(count).astype(np.float32)
    if dtype == "fp32":
        usual = (usual.view(np.uint32) & np.uint32(0xFFFFE000)) | rng.choice([0, 0x1000, 0x0FFF, 0x8000], count).astype(
            np.uint32
        )
    else:
        usual = usual.astype(oracle.STORAGE[dtype]).view(code)
    values = np.where(rng.random(count) < 0.5, raw, usual)
    if dtype == "fp32":
        special = [0x7F800000, 0xFF800000, 0x7FC00001, 0x477FF000, 0xC77FEFFF, 0x33000000, 0x33000001, 1, 0x80000000]
        at = rng.integers(0, count, len(special))
        values[at] = np.array(special, np.uint32)
    return values


def launch_of(series, src_dtype, dst_dtype, count, rng):
    gm = GlobalMemory()
    src = gm.add("src", count * ITEM[src_dtype], initialised=True)
    dst = gm.add("dst", count * ITEM[dst_dtype], initialised=False)
    gm.add("guard", 64, initialised=True)
    launch = cast_launch(gm, src, dst, count, src_dtype, dst_dtype, PRODUCTS[series])
    return launch, src, dst, patterns(rng, count, src_dtype)


@pytest.mark.parametrize(("series", "src_dtype", "dst_dtype"), CASES)
def test_cast_every_way_gives_the_patterns_of_exact_rounding(series, src_dtype, dst_dtype):
    product = PRODUCTS[series]
    rng = np.random.default_rng([SERIES.index(series), ITEM[src_dtype], ITEM[dst_dtype]])
    for count in COUNTS:
        launch, src, dst, values = launch_of(series, src_dtype, dst_dtype, count, rng)
        for overflow in product.overflow_modes:
            expected = oracle.cast(values, src_dtype, dst_dtype, overflow == "saturate")
            for way, arena in ways(launch, product, {src: values}, seeds=(count,), overflow=overflow):
                got = patterns_of(arena, dst, expected.dtype)
                np.testing.assert_array_equal(got, expected, f"{count} {way}")
                assert_untouched_elsewhere(arena, launch, {src: values}, dst, byte_exact=series not in UNIFIED)


@pytest.mark.parametrize(("series", "src_dtype", "dst_dtype"), CASES)
def test_cast_rows_are_legal_and_free_of_hazards_for_ragged_and_long_tensors(series, src_dtype, dst_dtype):
    product = PRODUCTS[series]
    rng = np.random.default_rng(3)
    for count in (0, 1, 17, 513, 300_001):
        launch, _, _, _ = launch_of(series, src_dtype, dst_dtype, max(count, 1), rng)
        assert assert_sound(launch, product)


@pytest.mark.parametrize(("series", "src_dtype", "dst_dtype"), [("310p", "fp16", "fp32"), ("910b", "bf16", "fp16")])
def test_cast_of_many_tiles_per_core_agrees_in_rows_and_shortcut(series, src_dtype, dst_dtype):
    product = PRODUCTS[series]
    count = 3 * 24_576 * product.vector_core_count + 12_345
    launch, src, dst, values = launch_of(series, src_dtype, dst_dtype, count, np.random.default_rng(5))
    tile = int(launch.params["tile"][0])
    assert count > 2 * tile * launch.core_count
    expected = oracle.cast(values, src_dtype, dst_dtype, series in UNIFIED)
    for shortcuts in (True, False):
        arena = run(launch, product, {src: values}, shortcuts=shortcuts, threads=2)
        np.testing.assert_array_equal(patterns_of(arena, dst, expected.dtype), expected)


def test_cast_of_nothing_runs_no_row():
    gm = GlobalMemory()
    src, dst = gm.add("src", 0, initialised=True), gm.add("dst", 0, initialised=False)
    launch = cast_launch(gm, src, dst, 0, "fp32", "fp16", PRODUCTS["910b"])
    assert assert_sound(launch, PRODUCTS["910b"]) == 0
    assert launch.core_count == 1


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(("src_dtype", "dst_dtype"), [("fp32", "fp16"), ("fp16", "fp32")])
def test_cast_tile_fills_half_of_ub_in_steps_of_256_elements(series, src_dtype, dst_dtype):
    launch, _, _, _ = launch_of(series, src_dtype, dst_dtype, 5000, np.random.default_rng(1))
    usable = PRODUCTS[series].core.ub_bytes - 1024
    tile = int(launch.params["tile"][0])
    assert tile % 256 == 0
    assert 2 * 6 * tile <= usable < 2 * 6 * (tile + 256)


def test_cast_gives_no_core_less_than_1024_elements():
    launch, _, _, _ = launch_of("910", "fp32", "fp16", 1024 * 20 + 1, np.random.default_rng(1))
    assert launch.core_count == 21
    assert kernel_cast.SITES[0] == "LOAD"


def test_cast_between_16_bit_formats_goes_through_fp32_with_one_rounding():
    names = [(a, b, mode.name) for a, b, mode in conversions("fp16", "bf16", PRODUCTS["910b"])]
    assert names == [("fp16", "fp32", "NONE"), ("fp32", "bf16", "RINT")]
    assert [mode.name for _, _, mode in conversions("fp32", "fp16", PRODUCTS["910"])] == ["NONE"]
    assert [mode.name for _, _, mode in conversions("fp32", "fp16", PRODUCTS["910_93"])] == ["RINT"]


@pytest.mark.parametrize("series", UNIFIED)
def test_cast_to_bf16_without_bf16_is_refused(series):
    with pytest.raises(ProductError, match=r"^Cast from fp32 must be to fp16, .*, not to bf16 \(mode NONE, dav-"):
        launch_of(series, "fp32", "bf16", 10, np.random.default_rng(1))


def test_cast_names_what_it_refuses():
    product = PRODUCTS["310p"]
    gm = GlobalMemory()
    src, dst = gm.add("a", 400, initialised=True), gm.add("b", 200, initialised=False)
    cases = [
        (DTypeError, (4, "fp8", "fp16"), "src_dtype must be one of fp32, fp16, bf16, not 'fp8' (Cast, Ascend310P3)"),
        (
            DTypeError,
            (4, "fp16", "fp16"),
            "dst_dtype must be another type than src_dtype, not 'fp16' twice (Cast, Ascend310P3)",
        ),
        (ShapeError, (-1, "fp32", "fp16"), "count must be at least 0, not -1 (Cast, Ascend310P3)"),
        (
            ShapeError,
            (101, "fp32", "fp16"),
            "count must be at most the 400 bytes of a, not 404 bytes (Cast, src, Ascend310P3)",
        ),
        (
            ShapeError,
            (5, "fp32", "fp16"),
            "count must be all of b or a multiple of 32 bytes, not 10 bytes (Cast, dst, Ascend310P3)",
        ),
    ]
    for error, (count, a, b), text in cases:
        with pytest.raises(error) as caught:
            cast_launch(gm, src, dst, count, a, b, product)
        assert str(caught.value) == text
