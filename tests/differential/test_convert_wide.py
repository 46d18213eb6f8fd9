"""float64 and integer sources against exact rational arithmetic, above all where two roundings differ from one."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.convert import cast
from npu_sim.dtypes.formats import DTYPES, RoundMode
from tests.oracles import rounding

ORACLE = {fmt.name: fmt for fmt in (rounding.FP16, rounding.BF16, rounding.FP32)}
FLOATS = ["fp16", "bf16", "fp32"]
INTEGERS = ["int8", "uint8", "int16", "int32", "int64"]


def exact_code(value, name, mode, saturate, negative_zero=False):
    """Stored pattern of a rational."""
    fmt = ORACLE[name]
    if value == 0:
        return fmt.sign if negative_zero else 0
    code = rounding.round_fraction(value, fmt, mode, saturate and name != "fp32")
    return code | fmt.sign if value < 0 else code


def stored(values, name, mode, overflow="inf_nan"):
    return cast(values, name, mode, overflow).view(DTYPES[name].code).tolist()


def trap_values(name):
    """float64 values a hair beside values and midpoints of the format, closer than fp32 can tell."""
    fmt = ORACLE[name]
    rng = np.random.default_rng(21)
    codes = np.unique(np.concatenate([np.arange(20), fmt.inf - 1 - np.arange(20), rng.integers(0, fmt.inf, 40)]))
    values = [float(fmt.value(int(code))) for code in codes]
    middles = [float((fmt.value(int(code)) + fmt.value(int(code) + 1)) / 2) for code in codes]
    points = np.array([*values, *middles, float(np.ldexp(1.0, fmt.bias + 1))])
    beside = np.concatenate([points, points * (1 + 2.0**-40), points * (1 - 2.0**-40), np.nextafter(points, np.inf)])
    beside = np.concatenate([beside, np.nextafter(beside, -np.inf), [5e-324, 1e-310, 1.7e308, 2.0**-1022]])
    return np.concatenate([beside, -beside])


@pytest.mark.parametrize("mode", list(RoundMode))
@pytest.mark.parametrize("name", FLOATS)
def test_cast_float64_equals_the_rational_rounding(name, mode):
    values = trap_values(name)
    fractions = [Fraction(value) for value in values.tolist()]
    signs = np.signbit(values).tolist()
    for overflow in ("inf_nan", "saturate"):
        if name != "fp32" or overflow == "inf_nan":  # the switch must change nothing for fp32
            expected = [
                exact_code(fraction, name, mode.name, overflow == "saturate", sign)
                for fraction, sign in zip(fractions, signs, strict=True)
            ]
        assert stored(values, name, mode, overflow) == expected


@pytest.mark.parametrize("mode", list(RoundMode))
@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_float64_traps_catch_a_rounding_through_fp32(name, mode):
    values = trap_values(name)
    with np.errstate(over="ignore", under="ignore"):
        through_fp32 = values.astype(np.float32)
    assert stored(values, name, mode) != stored(through_fp32, name, mode)


def test_cast_float64_where_ml_dtypes_rounds_twice():
    value = np.array([1 + 2.0**-8 + 2.0**-40])  # just above the midpoint of 1 and 1 + 2^-7
    assert value.astype(ml_dtypes.bfloat16).astype(float)[0] == 1.0
    assert cast(value, "bf16").astype(float)[0] == 1 + 2.0**-7


@pytest.mark.parametrize("name", FLOATS)
def test_cast_float64_specials(name):
    fmt = ORACLE[name]
    values = np.array([0.0, -0.0, np.inf, -np.inf])
    assert stored(values, name, "RINT") == [0, fmt.sign, fmt.inf, fmt.inf | fmt.sign]
    words = np.array([0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF], np.uint64)
    quiet = fmt.inf + 2 ** (fmt.mantissa_bits - 1)
    assert stored(words.view(np.float64), name, "RINT") == [quiet] * 3


def trap_integers(name):
    """int64 values at and one beside values and midpoints of the format, at every magnitude."""
    fmt = ORACLE[name]
    rng = np.random.default_rng(22)
    points = [0, 1, 2, 3, 2047, 2048, 2049, 65504, 65519, 65520, 65521, 65535, 65536, 2**63 - 1]
    for exponent in range(64):
        for mantissa in (0, 1, 2**fmt.mantissa_bits - 1, int(rng.integers(2, 2**fmt.mantissa_bits - 2))):
            double = (2 ** (fmt.mantissa_bits + 1) + 2 * mantissa + np.array([0, 1])).tolist()  # value, midpoint
            for twice in double:
                scaled = Fraction(int(twice)) * Fraction(2) ** (exponent - fmt.mantissa_bits - 1)
                points += [int(scaled) + offset for offset in (-1, 0, 1)]
    points = sorted({point for point in points if 0 <= point < 2**63})
    return np.array([*points, *(-point for point in points), -(2**63)], np.int64)


@pytest.mark.parametrize("mode", list(RoundMode))
@pytest.mark.parametrize("name", FLOATS)
def test_cast_int64_equals_the_rational_rounding(name, mode):
    values = trap_integers(name)
    for overflow in ("inf_nan", "saturate"):
        if name != "fp32" or overflow == "inf_nan":  # the switch must change nothing for fp32
            saturate = overflow == "saturate"
            expected = [exact_code(Fraction(value), name, mode.name, saturate) for value in values.tolist()]
        assert stored(values, name, mode, overflow) == expected


@pytest.mark.parametrize("mode", list(RoundMode))
def test_int64_traps_catch_a_rounding_through_fp32_or_float64(mode):
    values = trap_integers("bf16")
    direct = stored(values, "bf16", mode)
    assert direct != stored(values.astype(np.float32), "bf16", mode)
    assert direct != stored(values.astype(np.float64), "bf16", mode)


@pytest.mark.parametrize("name", FLOATS)
def test_cast_small_integers_equal_the_rational_rounding(name):
    for source in (np.int8, np.uint8, np.int16):
        info = np.iinfo(source)
        values = np.arange(info.min, int(info.max) + 1, 1 if info.bits == 8 else 331).astype(source)
        for mode in (RoundMode.RINT, RoundMode.CEIL, RoundMode.ODD):
            assert stored(values, name, mode) == [
                exact_code(Fraction(int(value)), name, mode.name, False) for value in values
            ]
    values = trap_integers(name)
    small = values[np.abs(values) < 2**31].astype(np.int32)
    assert stored(small, name, "RINT") == stored(small.astype(np.int64), name, "RINT")


def integer_sources():
    rng = np.random.default_rng(23)
    halves = np.arange(-1200, 1200) / 4
    edges = np.array([2.0**power for power in (7, 8, 15, 16, 22, 23, 24, 31, 32, 52, 53, 62, 63, 64, 100)])
    beside = np.concatenate([edges, edges - 0.5, edges - 1, np.nextafter(edges, 0), np.nextafter(edges, np.inf)])
    tiny = np.array([5e-324, 1e-45, 1e-40, 0.49999999, 0.5, 0.50000001, 0.0, -0.0, 1e300])
    random = rng.standard_normal(300) * 2.0 ** rng.integers(-5, 66, 300)
    return np.concatenate([halves, beside, tiny, random, -beside, -tiny])


@pytest.mark.parametrize("mode", list(RoundMode))
@pytest.mark.parametrize("source", ["fp16", "bf16", "fp32", "float64"])
def test_cast_float_to_integer_equals_the_rational_rounding(source, mode):
    with np.errstate(over="ignore", under="ignore"):
        values = integer_sources().astype(np.float64 if source == "float64" else DTYPES[source].storage)
    values = values[np.isfinite(values.astype(np.float64))]
    rounded = [rounding.round_integer(Fraction(value), mode.name) for value in values.astype(np.float64).tolist()]
    for target in INTEGERS:
        low, high = np.iinfo(target).min, np.iinfo(target).max
        expected = [min(max(value, int(low)), int(high)) for value in rounded]
        assert cast(values, target, mode).tolist() == expected
