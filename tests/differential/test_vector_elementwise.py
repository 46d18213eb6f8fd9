"""Mul, Add, Div and BroadcastTo launches against exact results rounded once: rows, shortcut and every legal order."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import DTypeError, ShapeError
from npu_sim.memory.gm import GlobalMemory
from ops.vector.elementwise import add_launch, broadcast_launch, div_launch, divisor_pattern, mul_launch
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
from tests.oracles.trans_data import machine

ITEM = {"fp32": 4, "fp16": 2}
CASES = [(series, dtype) for series in SERIES for dtype in ITEM]
SHAPES = [(1, 1), (37, 1), (70, 3), (5, 16), (100, 49), (3, 130), (300, 7)]


def patterns(rng, count, dtype):
    """Values of every size with specials; products and quotients overflow, underflow and are NaN."""
    code = np.dtype(f"u{ITEM[dtype]}")
    raw = rng.integers(0, 1 << (8 * code.itemsize), count, dtype=np.uint64).astype(code)
    usual = rng.standard_normal(count).astype(oracle.STORAGE[dtype]).view(code)
    return np.where(rng.random(count) < 0.3, raw, usual)


def mul_of(planes, elems, dtype, product, launch=mul_launch):
    gm = GlobalMemory()
    src = gm.add("src", planes * elems * ITEM[dtype], initialised=True)
    matrix = gm.add("matrix", elems * ITEM[dtype], initialised=True)
    dst = gm.add("dst", planes * elems * ITEM[dtype], initialised=False)
    gm.add("guard", 64, initialised=True)
    return launch(gm, src, matrix, dst, planes, elems, dtype, product), src, matrix, dst


def div_of(planes, elems, divisor, dtype, product):
    gm = GlobalMemory()
    src = gm.add("src", planes * ITEM[dtype], initialised=True)
    dst = gm.add("dst", planes * elems * ITEM[dtype], initialised=False)
    gm.add("guard", 64, initialised=True)
    return div_launch(gm, src, dst, planes, elems, divisor, dtype, product), src, dst


def same(got, expected, dtype, context=""):
    if dtype == "fp32":
        got, expected = with_one_nan(got), with_one_nan(expected)
    np.testing.assert_array_equal(got, expected, context)


@pytest.mark.parametrize("make", [mul_launch, add_launch])
@pytest.mark.parametrize(("series", "dtype"), CASES)
def test_mul_and_add_every_way_give_results_rounded_once(series, dtype, make):
    product = PRODUCTS[series]
    judge = oracle.mul_planes if make is mul_launch else oracle.add_planes
    rng = np.random.default_rng([SERIES.index(series), ITEM[dtype]])
    for planes, elems in SHAPES:
        launch, src, matrix, dst = mul_of(planes, elems, dtype, product, make)
        inputs = {src: patterns(rng, planes * elems, dtype), matrix: patterns(rng, elems, dtype)}
        expected = judge(inputs[src], inputs[matrix], dtype, series in UNIFIED)
        for way, arena in ways(launch, product, inputs, seeds=(planes,)):
            same(patterns_of(arena, dst, expected.dtype), expected, dtype, f"{planes} {elems} {way}")
            assert_untouched_elsewhere(arena, launch, inputs, dst, byte_exact=series not in UNIFIED)
        assert assert_sound(launch, product)


@pytest.mark.parametrize(("series", "dtype"), CASES)
def test_div_every_way_gives_the_quotient_of_every_element(series, dtype):
    product = PRODUCTS[series]
    rng = np.random.default_rng([SERIES.index(series), ITEM[dtype], 1])
    for planes, elems in (*SHAPES, (18, 8), (18, 9), (35, 1000)):
        divisor = int(rng.integers(1, 400))
        launch, src, dst = div_of(planes, elems, divisor, dtype, product)
        x = patterns(rng, planes, dtype)
        expected = oracle.div_planes(x, elems, divisor, dtype, series in UNIFIED)
        for way, arena in ways(launch, product, {src: x}, seeds=(planes,)):
            same(patterns_of(arena, dst, expected.dtype), expected, dtype, f"{planes} {elems} {way}")
            assert_untouched_elsewhere(arena, launch, {src: x}, dst, byte_exact=series not in UNIFIED)
        assert assert_sound(launch, product)


@pytest.mark.parametrize("series", ["310p", "910b"])
@pytest.mark.parametrize("dtype", ITEM)
def test_planes_longer_than_ub_are_cut(series, dtype):
    product = machine(series, cores=3, ub_bytes=8192)
    rng = np.random.default_rng(6)
    cut = set()
    for planes, elems in ((5, 3001), (4, 2405), (5, 1100)):
        launch, src, matrix, dst = mul_of(planes, elems, dtype, product)
        assert launch.params["pieces"][0] > 1
        assert launch.params["resident"][0] == (elems * ITEM[dtype] <= 7136 // 3)
        inputs = {src: patterns(rng, planes * elems, dtype), matrix: patterns(rng, elems, dtype)}
        expected = oracle.mul_planes(inputs[src], inputs[matrix], dtype, series in UNIFIED)
        spread, few, whole = div_of(planes * 9, elems, 7, dtype, product)
        x = patterns(rng, planes * 9, dtype)
        quotients = oracle.div_planes(x, elems, 7, dtype, series in UNIFIED)
        cut.add(elems * ITEM[dtype] > spread.params["half"][0])
        for shortcuts in (True, False):
            arena = run(launch, product, inputs, shortcuts=shortcuts)
            same(patterns_of(arena, dst, expected.dtype), expected, dtype)
            arena = run(spread, product, {few: x}, shortcuts=shortcuts)
            same(patterns_of(arena, whole, quotients.dtype), quotients, dtype)
        assert run_hazards(launch, product) == []
        assert run_hazards(spread, product) == []
    assert True in cut


@pytest.mark.parametrize(("series", "dtype"), CASES)
def test_broadcast_fills_planes_with_their_value(series, dtype):
    product = PRODUCTS[series]
    rng = np.random.default_rng([SERIES.index(series), ITEM[dtype], 7])
    gm = GlobalMemory()
    src = gm.add("src", 21 * ITEM[dtype], initialised=True)
    dst = gm.add("dst", 21 * 50 * ITEM[dtype], initialised=False)
    launch = broadcast_launch(gm, src, dst, 21, 50, dtype, product)
    values = rng.standard_normal(21).astype(oracle.STORAGE[dtype])
    expected = np.repeat(values, 50)
    for way, arena in ways(launch, product, {src: values.view(f"u{ITEM[dtype]}")}, seeds=(1,)):
        np.testing.assert_array_equal(patterns_of(arena, dst, expected.dtype), expected, way)
    assert launch.name == "BroadcastTo"


def test_div_rounds_the_divisor_to_the_operand_type_first():
    assert divisor_pattern(2049, "fp16", "inf_nan") == divisor_pattern(2048, "fp16", "inf_nan") == 0x6800
    assert divisor_pattern(100_000, "fp16", "inf_nan") == 0x7C00
    assert divisor_pattern(100_000, "fp16", "saturate") == 0x7BFF
    assert divisor_pattern(-1, "fp32", "inf_nan") == 0xBF800000
    launch, src, dst = div_of(3, 20, -4, "fp32", PRODUCTS["910b"])
    for shortcuts in (True, False):
        arena = run(launch, PRODUCTS["910b"], {src: np.float32([8, 1, -2])}, shortcuts=shortcuts)
        assert patterns_of(arena, dst, np.float32).reshape(3, 20)[:, 7].tolist() == [-2.0, -0.25, 0.5]


@pytest.mark.parametrize("series", SERIES)
def test_elementwise_of_nothing_runs_no_row(series):
    product = PRODUCTS[series]
    for planes, elems in ((0, 5), (5, 0)):
        launches = (mul_of(planes, elems, "fp16", product)[0], div_of(planes, elems, 3, "fp16", product)[0])
        for launch in launches:
            assert assert_sound(launch, product) == 0
            run(launch, product, {})


def test_elementwise_names_what_it_refuses():
    product = PRODUCTS["910"]
    gm = GlobalMemory()
    a, b = gm.add("a", 64, initialised=True), gm.add("b", 8, initialised=True)
    cases = [
        (DTypeError, lambda: mul_launch(gm, a, b, a, 4, 4, "bf16", product), "one of fp32, fp16, not 'bf16' (Mul,"),
        (ShapeError, lambda: mul_launch(gm, a, b, a, 4, 4, "fp32", product), "b must be 4 elements of fp32, not 8"),
        (ShapeError, lambda: div_launch(gm, b, a, 2, 4, 3, "fp32", product), "a must be 8 elements of fp32, not 64"),
    ]
    for error, call, text in cases:
        with pytest.raises(error) as caught:
            call()
        assert text in str(caught.value)
        assert str(caught.value).endswith("Ascend910A)")
