"""Histograms and maps of errors in ULPs, against loops over single elements."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from npu_sim.report.precision import OUTPUT_FORMATS, element_errors, format_of
from npu_sim.report.ulps import HIGHEST_EXPONENT, LOWEST_EXPONENT, UlpHistogram, UlpMap

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}


def ulps_of(actual, golden, form):
    """The error of one element, from the definition."""
    if (math.isnan(actual) and math.isnan(golden)) or actual == golden:
        return 0.0
    if not (math.isfinite(actual) and math.isfinite(golden)):
        return math.inf
    exponent = form.min_exponent if golden == 0 else max(math.frexp(golden)[1] - 1, form.min_exponent)
    return abs(actual - golden) / 2.0 ** (exponent - form.mantissa_bits)


def pair(name, shape, seed):
    rng = np.random.default_rng(seed)
    golden = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 4, shape)
    golden[rng.random(shape) < 0.1] = 0.0
    actual = golden * (1 + rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 8, shape)) + 1e-12
    actual[rng.random(shape) < 0.05] = np.nan
    with np.errstate(over="ignore"):
        actual = actual.astype(DTYPES[name])
    golden[rng.random(shape) < 0.03] = np.inf
    same = rng.random(shape) < 0.2
    golden[same] = actual[same].astype(np.float64)
    return actual, golden


@pytest.mark.parametrize(("name", "seed"), tuple(product(DTYPES, range(5))))
def test_histogram_is_that_of_a_loop(name, seed):
    actual, golden = pair(name, (31, 17), seed)
    errors = element_errors(actual, golden)
    form = OUTPUT_FORMATS[name]
    ulps = [ulps_of(float(a), float(g), form) for a, g in zip(actual.ravel(), errors.golden, strict=True)]
    found = UlpHistogram.of(errors)
    same = [not math.isfinite(g) for g, one in zip(errors.golden, ulps, strict=True) if one == 0]
    assert (found.exact, found.special) == (same.count(False), same.count(True))
    assert found.infinite == ulps.count(math.inf) == errors.special_mismatches
    bins = {}
    for one in ulps:
        if 0 < one < math.inf:
            exponent = min(max(math.floor(math.log2(one)), LOWEST_EXPONENT), HIGHEST_EXPONENT)
            bins[exponent] = bins.get(exponent, 0) + 1
    assert {found.lowest_exponent + i: count for i, count in enumerate(found.counts) if count} == bins
    assert found.counts[0]
    assert found.counts[-1]
    assert found.exact + found.infinite + found.special + sum(found.counts) == actual.size


def test_histogram_is_bounded_and_may_be_empty():
    actual = np.array([1e-38, 3e38, 0.0], np.float32)
    far = UlpHistogram.of(element_errors(actual, np.array([3e38, 1e-38, 1e-300])))
    assert (far.lowest_exponent, len(far.counts), sum(far.counts)) == (LOWEST_EXPONENT, 64, 3)
    none = UlpHistogram.of(element_errors(np.zeros(0, np.float32), np.zeros(0)))
    assert (none.exact, none.counts, none.infinite, none.special) == (0, (), 0, 0)


@pytest.mark.parametrize("overflow", ["inf_nan", "saturate"])
def test_histogram_counts_nan_and_inf_of_the_golden_apart_from_exact_elements(overflow):
    golden = np.array([np.nan, np.inf, -1e300, 1e300, 0.0, 2.0, 3.0])
    made = np.array([np.nan, np.inf, -np.inf, 1.0, 0.0, 2.0, 4.0], np.float32)
    if overflow == "saturate":
        made = np.nan_to_num(made, nan=0.0)
    found = UlpHistogram.of(element_errors(made, golden, overflow=overflow))
    # what saturates of a finite golden is a number like another
    assert (found.special, found.exact) == ((2, 3) if overflow == "saturate" else (3, 2))
    assert found.infinite + sum(found.counts) == 2


@pytest.mark.parametrize(
    ("shape", "row_axes"), [((5, 3, 2, 2), 1), ((2, 9, 4, 5), 2), ((40,), 0), ((1, 1), 1), ((17, 33), 1)]
)
def test_map_is_that_of_a_loop(shape, row_axes):
    actual, golden = pair("fp16", shape, 7)
    errors = element_errors(actual, golden)
    rows = math.prod(shape[:row_axes])
    matrix = [
        [ulps_of(float(a), float(g), format_of(actual)) for a, g in zip(*line, strict=True)]
        for line in zip(actual.reshape(rows, -1), errors.golden.reshape(rows, -1), strict=True)
    ]
    found = UlpMap.of(errors, shape, row_axes)
    columns = len(matrix[0])
    down, across = min(rows, 8), min(columns, 16)
    for i, j in product(range(down), range(across)):
        own = range(i * rows // down, (i + 1) * rows // down), range(j * columns // across, (j + 1) * columns // across)
        assert found.max_ulp[i][j] == max(matrix[row][column] for row in own[0] for column in own[1])
    assert (len(found.max_ulp), {len(line) for line in found.max_ulp}) == (down, {across})
    assert (found.shape, found.row_axes) == (shape, row_axes)


def test_map_of_nothing_has_no_cells():
    errors = element_errors(np.zeros((4, 0), np.float32), np.zeros((4, 0)))
    assert UlpMap.of(errors, (4, 0), 1).max_ulp == ()
