"""The inputs of the rounded golden against rational arithmetic."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ops.studies.rounding import cast, round_to_hf32


def nearest(value, bits, low, ties):
    """The neighbours of a rational among numbers of ``bits`` stored mantissa bits, and the choice between them."""
    sign, value = (-1 if value < 0 else 1), abs(value)
    exponent = max(value.numerator.bit_length() - value.denominator.bit_length(), low)
    if value < Fraction(2) ** exponent and exponent > low:
        exponent -= 1
    step = Fraction(2) ** (exponent - bits)
    below = value // step
    rest = value - below * step
    up = rest * 2 > step or (rest * 2 == step and (ties == "away" or (ties == "even" and below % 2 == 1)))
    return sign * (below + up) * step


def interesting_words(rng, bits):
    """Random float32 words, every kind of tie, subnormals and the ends of binades; all finite."""
    step = 1 << (23 - bits)
    kept = rng.integers(0, 0x7F800000 // step, 300)
    words = np.concatenate(
        [kept * step + step // 2, kept * step + step // 2 + 1, kept * step + step // 2 - 1, kept * step,
         rng.integers(0, 0x7F800000, 300), rng.integers(0, 1 << 23, 100), [0, 1, 0x7F7FF000, 0x00800000]]
    )  # fmt: skip
    return np.concatenate([words, words | 0x80000000]).astype(np.uint32)


@pytest.mark.parametrize("ties", ["even", "away", "toward_zero"])
@pytest.mark.parametrize("bits", [10, 11])
def test_round_to_hf32_finite_words_give_the_nearest(bits, ties):
    values = interesting_words(np.random.default_rng(1), bits).view(np.float32)
    rounded = round_to_hf32(values, mantissa_bits=bits, ties=ties)
    for value, found in zip(values.tolist(), rounded.tolist(), strict=True):
        expected = nearest(Fraction(value), bits, -126, ties)
        if abs(expected) >= 2**128:
            assert np.isinf(found)
        else:
            assert Fraction(found) == expected
    assert np.array_equal(np.signbit(values), np.signbit(rounded))


def test_round_to_hf32_known_ties_of_eleven_bits():
    words = np.array([0x3F800800, 0x3F801800], np.uint32).view(np.float32)
    assert round_to_hf32(words, mantissa_bits=11).view(np.uint32).tolist() == [0x3F800000, 0x3F802000]
    away = round_to_hf32(words, mantissa_bits=11, ties="away")
    assert away.view(np.uint32).tolist() == [0x3F801000, 0x3F802000]


def test_round_to_hf32_infinity_and_nan_keep_their_words():
    words = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF], np.uint32)
    assert np.array_equal(round_to_hf32(words.view(np.float32), mantissa_bits=11).view(np.uint32), words)


@pytest.mark.parametrize(("name", "bits", "low"), [("fp16", 10, -14), ("bf16", 7, -126)])
def test_cast_float32_gives_the_nearest(name, bits, low):
    rng = np.random.default_rng(2)
    values = np.ldexp(rng.normal(size=3000), rng.integers(low - bits - 2, 15, 3000)).astype(np.float32)
    for value, found in zip(values.tolist(), cast(values, name).astype(np.float64).tolist(), strict=True):
        assert Fraction(found) == nearest(Fraction(value), bits, low, "even")


def test_cast_beyond_the_largest_number_follows_the_overflow_mode():
    values = np.array([65519.0, 65520.0, -1e9, np.inf, -np.inf, np.nan, 1.0], np.float32)
    ieee = cast(values, "fp16").astype(np.float64)
    assert np.array_equal(ieee, [65504, np.inf, -np.inf, np.inf, -np.inf, np.nan, 1], equal_nan=True)
    assert cast(values, "fp16", overflow="saturate").tolist() == [65504, 65504, -65504, 65504, -65504, 0, 1]
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    huge = np.array([3.4e38, -3.4e38], np.float32)
    assert cast(huge, "bf16", overflow="saturate").astype(np.float64).tolist() == [largest, -largest]


def test_cast_between_sixteen_bit_types_goes_through_float32():
    values = np.array([1.0 + 2.0**-7, 3e38, 2.0**-20], ml_dtypes.bfloat16)
    assert cast(values, "fp16").tolist() == [1.0 + 2.0**-7, np.inf, 2.0**-20]
    assert cast(np.array([1.0 + 2.0**-10], np.float16), "bf16").astype(np.float64).tolist() == [1.0]


def test_cast_to_its_own_type_returns_the_tensor_unchanged():
    values = np.array([np.inf, np.nan], np.float16)
    assert cast(values, "fp16", overflow="saturate") is values
