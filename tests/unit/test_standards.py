"""The mixed tolerance: its table, its boundaries, and data whose verdicts are known."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from npu_sim.report.precision import element_errors, measure
from npu_sim.report.standards import mixed_tolerance

# Written down a second time from the document, as exponents of two.
TABLE = {
    "fp16": ("FLOAT16", -9, -9, 0.1, np.float16, 10, -14),
    "bf16": ("BFLOAT16", -6, -6, 1.0, ml_dtypes.bfloat16, 7, -126),
    "fp32": ("FLOAT32", -10, -16, 0.01, np.float32, 23, -126),
    "hf32": ("HiFLOAT32", -9, -10, 0.1, np.float32, 11, -126),
}


def naive_verdict(actual, golden, row):
    """Matched elements and elements beyond the limit, in rational arithmetic."""
    _, rtol, atol, limit, _, bits, low = TABLE[row]
    matched = beyond = excused = 0
    for a, g in zip(actual, golden, strict=True):
        error = abs(Fraction(a) - Fraction(g))
        matched += error <= Fraction(2) ** atol + Fraction(2) ** rtol * abs(Fraction(g))
        exponent = max(math.frexp(g)[1] - 1, low) if g else low
        if error > Fraction(limit):
            within = error <= 32 * Fraction(2) ** (exponent - bits)
            excused += within
            beyond += not within
    return matched, beyond, excused


@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("scale", [2.0**-12, 1.0, 2.0**9])
def test_mixed_tolerance_random_values_equals_naive_twin(row, scale):
    dtype, bits = TABLE[row][4], TABLE[row][5]
    rng = np.random.default_rng(11)
    golden = rng.normal(size=600) * scale
    noise = rng.normal(size=600) * 2.0 ** rng.integers(-bits - 1, -bits + 9, 600)
    actual = (golden * (1 + noise)).astype(np.float32).astype(dtype)
    errors = element_errors(actual, golden)
    verdict = mixed_tolerance(errors, row=row, golden="original")
    matched, beyond, excused = naive_verdict(actual.astype(np.float64).tolist(), golden.tolist(), row)
    assert (verdict.matched_ratio, verdict.beyond_limit) == (matched / 600, beyond)
    assert verdict.ulp_clause_used == (excused > 0)
    assert verdict.meets_standard == (matched >= 594 and beyond == 0)
    assert (verdict.row, verdict.golden, verdict.limit) == (TABLE[row][0], "original", TABLE[row][3])


@pytest.mark.parametrize("row", TABLE)
def test_mixed_tolerance_error_at_and_above_the_bound(row):
    # golden 0 leaves atol alone, golden 2^k with 2^k * rtol = atol doubles it: both bounds are exact numbers
    _, rtol, atol, _, dtype, _, _ = TABLE[row]
    wide = {np.float16: np.float16, np.float32: np.float32}.get(dtype, np.float32)
    for golden, bound in [(0.0, 2.0**atol), (2.0 ** (atol - rtol), 2.0 ** (atol + 1))]:
        inside = np.array([golden + bound], wide).astype(dtype)
        assert float(inside[0]) == golden + bound
        outside = (inside.view(np.uint16 if inside.itemsize == 2 else np.uint32) + 1).view(inside.dtype)
        for value, passed in [(inside, True), (outside, False)]:
            verdict = mixed_tolerance(element_errors(value, np.array([golden])), row=row, golden="rounded")
            assert verdict.meets_standard is passed


@pytest.mark.parametrize(("wrong", "passed"), [(1, True), (2, False)])
def test_mixed_tolerance_99_percent_must_match(wrong, passed):
    golden = np.ones(100)
    actual = np.ones(100, np.float32)
    actual[:wrong] += np.float32(0.005)  # beyond the tolerance, within the limit
    verdict = mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded")
    assert verdict.meets_standard is passed
    assert verdict.beyond_limit == 0


def test_mixed_tolerance_one_element_beyond_the_limit_fails():
    golden = np.ones(1000)
    actual = np.ones(1000, np.float32)
    actual[0] += np.float32(0.02)
    verdict = mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded")
    assert (verdict.meets_standard, verdict.matched_ratio, verdict.beyond_limit) == (False, 0.999, 1)


@pytest.mark.parametrize(("ulps", "passed"), [(32, True), (33, False)])
def test_mixed_tolerance_large_value_is_excused_by_32_ulp_only(ulps, passed):
    golden = np.array([2.0**20])  # one float32 ULP is 0.125
    actual = (golden + ulps * 0.125).astype(np.float32)
    verdict = mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded")
    assert (verdict.meets_standard, verdict.ulp_clause_used, verdict.matched_ratio) == (passed, passed, 1.0)


def test_mixed_tolerance_hidden_special_fails_and_shared_special_passes():
    golden = np.ones(1000)
    golden[:2] = np.nan, np.inf
    actual = golden.astype(np.float32)
    assert mixed_tolerance(element_errors(actual, golden), row="fp32", golden="rounded").meets_standard
    for index, value in [(0, 1.0), (1, -np.inf), (1, 3e38), (5, np.nan), (5, np.inf)]:
        wrong = actual.copy()
        wrong[index] = value
        verdict = mixed_tolerance(element_errors(wrong, golden), row="fp32", golden="rounded")
        found = (verdict.meets_standard, verdict.special_mismatches, verdict.max_abs, verdict.matched_ratio)
        assert found == (False, 1, np.inf, 0.999), (index, value)


@pytest.mark.parametrize("row", TABLE)
def test_mixed_tolerance_zero_match_ratio_is_the_matched_ratio_of_zeros(row):
    _, rtol, atol, _, dtype, _, _ = TABLE[row]
    golden = np.random.default_rng(12).normal(size=500) * 2.0**atol
    golden[:4] = 0.0, np.inf, np.nan, -np.inf
    of_result, of_zeros = (
        mixed_tolerance(element_errors(actual, golden), row=row, golden="original")
        for actual in (golden.astype(np.float32).astype(dtype), np.zeros(500, dtype))
    )
    assert 0.5 < of_result.zero_match_ratio < 0.9
    assert of_result.zero_match_ratio == of_zeros.zero_match_ratio == of_zeros.matched_ratio
    assert (of_result.rtol, of_result.atol) == (2.0**rtol, 2.0**atol)


def test_mixed_tolerance_empty_result_passes():
    verdict = mixed_tolerance(element_errors(np.zeros(0, np.float32), np.zeros(0)), row="fp32", golden="rounded")
    assert (verdict.meets_standard, verdict.matched_ratio, verdict.max_abs) == (True, 1.0, 0.0)


def serial_product(a, b):
    """C = A B with one float32 rounding per k, ascending: a correct float32 kernel without a deep accumulator."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        c += a[:, k : k + 1] * b[k : k + 1]
    return c


def to_hf32(values):
    """Nearest of 11 stored mantissa bits, ties away from zero (the data has none that matter)."""
    return ((values.view(np.uint32) + np.uint32(1 << 11)) & np.uint32(0xFFFFF000)).view(np.float32)


def test_mixed_tolerance_products_of_6272_terms_give_the_known_verdicts():
    """K = 6,272, 64 x 144, what a weight gradient of a 3x3 layer sums.

    A correct float32 chain passes on U[-5, 5]. HF32 operands match 94.8 % against unrounded inputs and all against
    rounded ones. On N(1, 1) every element matches, yet the largest error exceeds 1e-2 and 32 ULP.
    """
    rng = np.random.default_rng(0)
    a = rng.uniform(-5, 5, (64, 6272)).astype(np.float32)
    b = rng.uniform(-5, 5, (6272, 144)).astype(np.float32)
    golden = a.astype(np.float64) @ b.astype(np.float64)
    result = serial_product(a, b)
    assert mixed_tolerance(element_errors(result, golden), row="fp32", golden="original").meets_standard

    a_hf32, b_hf32 = to_hf32(a), to_hf32(b)
    result = serial_product(a_hf32, b_hf32)
    verdict = mixed_tolerance(element_errors(result, golden), row="hf32", golden="original")
    assert not verdict.meets_standard
    assert 0.93 < verdict.matched_ratio < 0.965
    rounded = a_hf32.astype(np.float64) @ b_hf32.astype(np.float64)
    assert mixed_tolerance(element_errors(result, rounded), row="hf32", golden="rounded").meets_standard

    a = rng.normal(1, 1, (64, 6272)).astype(np.float32)
    b = rng.normal(1, 1, (6272, 144)).astype(np.float32)
    errors = element_errors(serial_product(a, b), a.astype(np.float64) @ b.astype(np.float64))
    verdict = mixed_tolerance(errors, row="fp32", golden="original")
    assert (verdict.meets_standard, verdict.matched_ratio) == (False, 1.0)
    assert 1e-2 < verdict.max_abs < 6e-2
    assert measure(errors).max_ulp > 32


def test_mixed_tolerance_of_zeros_is_judged_as_a_result_of_zeros_would_be():
    rng = np.random.default_rng(12)
    for row in TABLE:
        dtype = np.float16 if row == "fp16" else np.float32
        for scale in (2.0**-30, 2.0**-11, 2.0**-7, 1.0):
            golden = rng.normal(size=200) * scale
            golden[:2] = rng.choice([0.0, np.nan, np.inf, 2.0**-5, 3.0], 2)
            verdict = mixed_tolerance(element_errors(golden.astype(dtype), golden), row=row, golden="rounded")
            zeros = mixed_tolerance(element_errors(np.zeros(200, dtype), golden), row=row, golden="rounded")
            found = (verdict.zeros_meet_standard, verdict.zero_match_ratio)
            assert found == (zeros.meets_standard, zeros.matched_ratio)
