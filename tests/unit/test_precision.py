"""The error metrics against a naive twin in exact rational arithmetic."""

import json
import math
import re
from dataclasses import asdict, replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from npu_sim.errors import DTypeError, ShapeError
from npu_sim.report.precision import OUTPUT_FORMATS, element_errors, measure

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
# name: stored mantissa bits, exponent of the smallest normal, small value, its error
FACTS = {
    "fp16": (10, -14, Fraction(1, 2**11), Fraction(1, 2**16)),
    "bf16": (7, -126, Fraction(1, 2**8), Fraction(1, 2**16)),
    "fp32": (23, -126, Fraction(1, 2**14), Fraction(1, 2**30)),
}


def naive_golden(value, name, overflow):
    """The golden as the format can hold it: Inf from half an ULP above the largest number on, or clamped."""
    bits, low, _, _ = FACTS[name]
    largest = (2 - Fraction(1, 2**bits)) * 2 ** (1 - low)
    if overflow == "saturate":
        if math.isnan(value):
            return 0.0
        if math.isinf(value) or abs(Fraction(value)) > largest:
            return math.copysign(float(largest), value)
        return value
    if math.isfinite(value) and abs(Fraction(value)) >= largest + Fraction(2 ** (1 - low), 2 ** (bits + 1)):
        return math.copysign(math.inf, value)
    return value


def naive_exponent(value):
    """floor(log2 value) of a positive rational, by counting."""
    exponent = 0
    while value >= 2:
        value /= 2
        exponent += 1
    while value < 1:
        value *= 2
        exponent -= 1
    return exponent


def naive_metrics(actual, golden, name, overflow):
    """Every metric by plain loops; sums are exact and rounded once."""
    bits, low, small_value, small_error = FACTS[name]
    errors, relatives, ulps, pairs = [], [], [], []
    mismatches = above = below = small = small_wrong = 0
    for a, raw in zip(actual, golden, strict=True):
        g = naive_golden(raw, name, overflow)
        if math.isfinite(a) and math.isfinite(g):
            error = abs(float(Fraction(a) - Fraction(g)))
            pairs.append((a, g))
            above += a > g
            below += a < g
        elif (math.isnan(a) and math.isnan(g)) or a == g:
            error = 0.0
        else:
            error = math.inf
            mismatches += 1
        errors.append(error)
        relatives.append(error / (abs(g) + 1e-7) if math.isfinite(g) else error)
        if math.isfinite(error) and math.isfinite(g):
            exponent = max(naive_exponent(abs(Fraction(g))), low) if g else low
            ulps.append(float(Fraction(error) * Fraction(2) ** (bits - exponent)))
        else:
            ulps.append(error)
        if math.isfinite(a) and math.isfinite(g) and abs(Fraction(g)) < small_value:
            small += 1
            small_wrong += Fraction(error) > small_error

    def total(values):
        return math.inf if math.inf in values else float(sum(map(Fraction, values), Fraction(0)))

    count = len(errors)
    squares = [error * error for error in errors]
    golden_norm = math.sqrt(total([g * g for _, g in pairs]))
    golden_square, actual_square = total([g * g for _, g in pairs]), total([a * a for a, _ in pairs])
    error_norm = math.sqrt(total(squares))
    if golden_square == 0 or actual_square == 0:
        cosine = 1.0 if golden_square == actual_square else 0.0
    else:
        cosine = min(1.0, total([a * g for a, g in pairs]) / math.sqrt(actual_square * golden_square))
    specials = sum(not math.isfinite(raw) or not math.isfinite(naive_golden(raw, name, overflow)) for raw in golden)
    figures = {
        "golden_max_abs": max((abs(g) for _, g in pairs), default=0.0),
        "max_abs": max(errors, default=0.0),
        "rmse": math.sqrt(total(squares) / count) if count else 0.0,
        "relative_l2": 0.0 if error_norm == 0 else error_norm / golden_norm if golden_norm else math.inf,
        "mean_rel": total(relatives) / count if count else 0.0,
        "max_rel": max(relatives, default=0.0),
        "mean_ulp": total(ulps) / count if count else 0.0,
        "max_ulp": max(ulps, default=0.0),
        "share_above_1_ulp": sum(u > 1 for u in ulps) / count if count else 0.0,
        "share_above_32_ulp": sum(u > 32 for u in ulps) / count if count else 0.0,
        "cosine": cosine,
        "error_balance": abs(above - below) / count if count else 0.0,
    }
    if count and specials == count and not mismatches:
        figures = dict.fromkeys(figures)
    return figures | {
        "dtype": name,
        "count": count,
        "special_mismatches": mismatches,
        "golden_specials": specials,
        "small_values": small,
        "small_value_errors": small_wrong,
    }


def values_of(kind, name, rng):
    """Goldens of one kind, and results near them."""
    bits, low, small_value, _ = FACTS[name]
    largest = float((2 - Fraction(1, 2**bits)) * 2 ** (1 - low))
    golden = {
        "normal": rng.normal(size=200),
        "tiny": np.ldexp(rng.normal(size=200), low - 3),
        "around small value": float(small_value) * (1 + rng.choice([-(2.0**-20), 0.0, 2.0**-20], 200)),
        "powers of two": np.ldexp(rng.choice([-1.0, 1.0], 200), rng.integers(low - bits, -low, 200)),
        "specials": rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, largest, -largest * 1.001, 1e300], 200),
        "zeros": np.zeros(50),
        "only nan": np.full(50, np.nan),
        "empty": np.zeros(0),
    }[kind]
    with np.errstate(over="ignore", invalid="ignore"):
        near = golden * (1 + rng.normal(size=golden.size) * 2.0**-bits)
        if kind == "specials":
            near = rng.permutation(near) * rng.choice([1.0, 1.0, 0.5], golden.size)
        return golden, near.astype(np.float32).astype(DTYPES[name])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("overflow", ["inf_nan", "saturate"])
@pytest.mark.parametrize(
    "kind", ["normal", "tiny", "around small value", "powers of two", "specials", "zeros", "only nan", "empty"]
)
def test_measure_any_values_equals_naive_twin(name, overflow, kind):
    golden, actual = values_of(kind, name, np.random.default_rng(7))
    found = asdict(measure(element_errors(actual, golden, overflow=overflow)))
    expected = naive_metrics(actual.astype(np.float64).tolist(), golden.tolist(), name, overflow)
    assert found == expected


def test_measure_each_special_pair_counts_as_the_standard_says():
    nan, inf = np.nan, np.inf
    pairs = [(nan, nan, 0), (inf, inf, 0), (-inf, -inf, 0), (inf, -inf, 1), (nan, inf, 1), (nan, 1, 1), (1, nan, 1),
             (inf, 1, 1), (1, -inf, 1), (inf, 1e39, 0), (3.4e38, 3.4e38, 0), (-inf, 1e39, 1)]  # fmt: skip
    for actual, golden, mismatches in pairs:
        metrics = measure(element_errors(np.array([actual], np.float32), np.array([golden], np.float64)))
        assert metrics.special_mismatches == mismatches, (actual, golden)
        assert (metrics.max_abs == inf) == bool(mismatches), (actual, golden)


def test_measure_saturating_product_clamped_value_is_right():
    golden = np.array([1e6, -np.inf, np.nan])
    actual = np.array([65504.0, -65504.0, 0.0], np.float16)
    assert measure(element_errors(actual, golden, overflow="saturate")).max_abs == 0.0
    assert measure(element_errors(actual, golden)).special_mismatches == 3


@pytest.mark.parametrize("name", DTYPES)
def test_overflow_threshold_is_where_conversion_gives_infinity(name):
    # the conversion of NumPy (float16) and ml_dtypes (bfloat16) from float32 decides; float32's own from float64
    threshold = OUTPUT_FORMATS[name].overflow_threshold
    wide = np.float64 if name == "fp32" else np.float32
    below = np.nextafter(wide(threshold), wide(0))
    infinite = np.array([np.inf, np.inf], DTYPES[name])
    assert element_errors(infinite, np.array([threshold, float(below)])).special_mismatches == 1
    with np.errstate(over="ignore"):
        assert np.isinf(wide(threshold).astype(DTYPES[name]))
        assert float(below.astype(DTYPES[name])) == OUTPUT_FORMATS[name].largest


def test_measure_one_ulp_apart_is_one_ulp_in_every_binade():
    for name, dtype in DTYPES.items():
        bits = FACTS[name][0]
        exponents = np.arange(OUTPUT_FORMATS[name].min_exponent, 1 - OUTPUT_FORMATS[name].min_exponent)
        golden = np.ldexp(1.0, exponents)
        actual = np.ldexp(1.0 + 2.0**-bits, exponents).astype(np.float32).astype(dtype)
        metrics = measure(element_errors(actual, golden))
        assert (metrics.max_ulp, metrics.mean_ulp, metrics.share_above_1_ulp) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("overflow", ["inf_nan", "saturate"])
def test_measure_nothing_finite_has_no_figures(overflow):
    actual = np.zeros(3, np.float32) if overflow == "saturate" else np.full(3, np.nan, np.float32)
    metrics = measure(element_errors(actual, np.full(3, np.nan), overflow=overflow))
    assert (metrics.golden_specials, metrics.special_mismatches, metrics.count) == (3, 0, 3)
    record = json.loads(metrics.to_json())
    assert [record[name] for name in ("max_abs", "rmse", "mean_rel", "max_ulp", "cosine", "golden_max_abs")] == [
        None
    ] * 6
    # one finite element is something to measure
    actual[0] = 1.0
    assert measure(element_errors(actual, np.array([1.0, np.nan, np.nan]), overflow=overflow)).max_abs == 0.0


def test_to_json_infinite_metric_is_strict_json():
    metrics = measure(element_errors(np.array([np.inf], np.float32), np.array([1.0])))
    record = json.loads(metrics.to_json(), parse_constant=lambda text: pytest.fail(f"not strict JSON: {text}"))
    assert record["max_abs"] == "inf"
    assert record["count"] == 1


@pytest.mark.parametrize(
    ("actual", "golden", "error", "message"),
    [
        (
            np.zeros((2, 3), np.float32),
            np.zeros((3, 2)),
            ShapeError,
            "The shape of the golden must be that of the result (2, 3), not (3, 2)",
        ),
        (
            np.zeros(2, np.float64),
            np.zeros(2),
            DTypeError,
            "The dtype of a result must be float16, bfloat16 or float32, not float64",
        ),
        (
            np.zeros(2, np.float32),
            np.zeros(2, np.float32),
            DTypeError,
            "The dtype of the golden must be float64, not float32",
        ),
    ],
)
def test_element_errors_wrong_arrays_are_refused(actual, golden, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        element_errors(actual, golden)


@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_errors_in_ulps_are_those_of_ldexp_at_the_ends_of_every_range(name):
    fmt = OUTPUT_FORMATS[name]
    numbers = [0.0, 5e-324, 2.0**-1022, 2.0**-149, 2.0**-126, 2.0**-14, 1 - 2.0**-53, 1.0, 65504.0, 1.7e308]
    golden, error = (axis.ravel() for axis in np.meshgrid([*numbers, np.inf, np.nan], [*numbers, np.inf]))
    given = element_errors(np.zeros(golden.size, np.float32), np.zeros(golden.size))
    for sign in (1, -1):
        own = replace(given, golden=sign * golden, error=error)
        wanted = []
        for g, e in zip(golden, error, strict=True):
            exponent = math.frexp(g if math.isfinite(g) else 1.0)[1] - 1 if g else fmt.min_exponent
            with np.errstate(over="ignore"):
                wanted.append(np.ldexp(e, fmt.mantissa_bits - max(exponent, fmt.min_exponent)))
        with np.errstate(over="ignore"):
            assert np.array_equal(own.in_ulps(fmt), wanted)
