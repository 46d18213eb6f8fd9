"""Rounding by definition, three times, without the bit arithmetic of `npu_sim.dtypes.convert_jit`.

* `round_fraction`: one value in exact rational arithmetic, any source, any format.
* `round_values`: arrays of float64, by looking up the two neighbours in the table of all values of the format.
* `word_runs`: all fp32 words, as runs of equal results between the values and midpoints of the format.

Modes are names (RINT FLOOR CEIL ROUND TRUNC ODD NONE), results are patterns without sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD", "NONE")


@dataclass(frozen=True)
class Format:
    """A binary float format with Inf and NaN: sign, ``exponent_bits``, ``mantissa_bits``."""

    name: str
    exponent_bits: int
    mantissa_bits: int

    @property
    def bias(self) -> int:
        return int(2 ** (self.exponent_bits - 1) - 1)

    @property
    def inf(self) -> int:
        """Pattern of Inf; all smaller ones are finite."""
        return int((2**self.exponent_bits - 1) * 2**self.mantissa_bits)

    @property
    def sign(self) -> int:
        return int(2 ** (self.exponent_bits + self.mantissa_bits))

    def value(self, code: int) -> Fraction:
        """Value of a finite pattern without sign, by the definition of the format."""
        exponent, mantissa = divmod(code, 2**self.mantissa_bits)
        if exponent == 0:
            return mantissa * Fraction(2) ** (1 - self.bias - self.mantissa_bits)
        return (2**self.mantissa_bits + mantissa) * Fraction(2) ** (exponent - self.bias - self.mantissa_bits)


FP16 = Format("fp16", 5, 10)
BF16 = Format("bf16", 8, 7)
HF32 = Format("hf32", 8, 11)
HF32_10 = Format("hf32_10", 8, 10)
FP32 = Format("fp32", 8, 23)


def _overflow(fmt: Format, negative: bool, mode: str, saturate: bool) -> int:
    """Pattern of a result whose magnitude is beyond the largest finite value (IEEE 754, 7.4)."""
    to_inf = {
        "RINT": True,
        "NONE": True,
        "ROUND": True,
        "TRUNC": False,
        "ODD": False,
        "CEIL": not negative,
        "FLOOR": negative,
    }[mode]
    return fmt.inf if to_inf and not saturate else fmt.inf - 1


def round_integer(value: Fraction, mode: str) -> int:
    """Round a rational to an integer."""
    low = value.numerator // value.denominator
    if value == low:
        return low
    rest = value - low
    toward_zero = low if value > 0 else low + 1
    away = low + 1 if value > 0 else low
    if mode == "FLOOR":
        return low
    if mode == "CEIL":
        return low + 1
    if mode == "TRUNC":
        return toward_zero
    if mode == "ODD":
        return low if low % 2 == 1 else low + 1
    if rest != Fraction(1, 2):
        return low if rest < Fraction(1, 2) else low + 1
    if mode == "ROUND":
        return away
    return low if low % 2 == 0 else low + 1


def round_fraction(value: Fraction, fmt: Format, mode: str, saturate: bool = False) -> int:
    """Round a non-zero rational to ``fmt``; the pattern without sign."""
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, 1 - fmt.bias)
    unit = Fraction(2) ** (exponent - fmt.mantissa_bits)
    result = abs(round_integer(value / unit, mode) * unit)
    if result > fmt.value(fmt.inf - 1):
        return _overflow(fmt, value < 0, mode, saturate)
    # The patterns of non-negative values are ordered as their values: bisect for the pattern.
    low, high = 0, fmt.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fmt.value(middle) <= result else (low, middle)
    assert fmt.value(low) == result
    return low


@lru_cache(maxsize=8)
def values(fmt: Format) -> npt.NDArray[np.float64]:
    """All non-negative finite values in the order of their patterns, then the power of two behind the largest."""
    exponent, mantissa = np.divmod(np.arange(fmt.inf + 1), 2**fmt.mantissa_bits)
    hidden = np.where(exponent > 0, 2.0**fmt.mantissa_bits, 0.0)
    return np.ldexp(hidden + mantissa, np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits)


def round_values(x: npt.NDArray[np.float64], fmt: Format, mode: str, saturate: bool = False) -> npt.NDArray[np.int64]:
    """Round float64 values to a format with a float64 table (not fp32); patterns without sign, -1 for NaN."""
    table = values(fmt)
    magnitude = np.abs(x)
    finite = np.isfinite(magnitude)
    inside = np.where(finite & (magnitude < table[-1]), magnitude, 0.0)
    low = np.searchsorted(table, inside, side="right") - 1
    middle = (table[low] + table[low + 1]) / 2
    code = low + _choose_upper(inside, low, table[low], middle, np.signbit(x), mode)
    negative = np.signbit(x)
    over = np.where(negative, _overflow(fmt, True, mode, saturate), _overflow(fmt, False, mode, saturate))
    code = np.where(finite & ((magnitude >= table[-1]) | (code >= fmt.inf)), over, code)
    code = np.where(np.isinf(magnitude), fmt.inf - 1 if saturate else fmt.inf, code)
    return np.where(np.isnan(x), 0 if saturate else -1, code).astype(np.int64)


def _choose_upper(
    x: npt.NDArray[np.float64],
    low: npt.NDArray[np.int64],
    below: npt.NDArray[np.float64],
    middle: npt.NDArray[np.float64],
    negative: npt.NDArray[np.bool_],
    mode: str,
) -> npt.NDArray[np.bool_]:
    """Whether the neighbour with the larger magnitude is the result; ``x`` is a magnitude."""
    exact = x == below
    even = low % 2 == 0
    match mode:
        case "TRUNC":
            up = np.zeros(x.shape, np.bool_)
        case "CEIL":
            up = ~negative
        case "FLOOR":
            up = negative
        case "ODD":
            up = even
        case "ROUND":
            up = x >= middle
        case _:
            up = (x > middle) | ((x == middle) & ~even)
    return up & ~exact


@dataclass(frozen=True)
class WordRuns:
    """Results for the fp32 words 0, 1, .. 2^31 - 1: run ``i`` starts at word ``starts[i]`` and gives ``codes[i]``."""

    starts: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]

    def results(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """Results of the words first .. last - 1."""
        begin = int(np.searchsorted(self.starts, first, side="right")) - 1
        end = int(np.searchsorted(self.starts, last, side="left"))
        edges = np.clip(np.append(self.starts[begin:end], last), first, last)
        return np.repeat(self.codes[begin:end], np.diff(edges))


NAN_CODE = -1


def word_runs(fmt: Format, negative: bool, mode: str, saturate: bool = False) -> WordRuns:
    """Results of rounding every fp32 word of one sign to ``fmt``; ``mode`` may also be a HF32 tie rule.

    fp32 words without sign are ordered as their values. So the results between a value of the format and the midpoint
    to the next one are equal, and so are those between the midpoint and the next value: four runs per value (the value
    itself, below the midpoint, the midpoint, above it). All values and midpoints are fp32 values.
    """
    table = values(fmt)
    value_words = _fp32_words(table)
    middle_words = _fp32_words((table[:-1] + table[1:]) / 2)
    starts = np.empty((fmt.inf, 4), np.int64)
    starts[:, 0] = value_words[:-1]
    starts[:, 1] = value_words[:-1] + 1
    starts[:, 2] = middle_words
    starts[:, 3] = middle_words + 1
    low = np.arange(fmt.inf)
    codes = np.repeat(low[:, None], 4, axis=1)
    codes[:, 1] += _below_is_up(low, negative, mode)
    codes[:, 2] += _tie_is_up(low, negative, mode)
    codes[:, 3] += _above_is_up(low, negative, mode)
    over = _overflow(fmt, negative, mode if mode in MODES else "RINT", saturate)
    codes[codes == fmt.inf] = over
    inf_word = 0x7F800000
    tail_starts = [int(value_words[-1]), inf_word, inf_word + 1]
    tail_codes = [over, fmt.inf - 1 if saturate else fmt.inf, 0 if saturate else NAN_CODE]
    all_starts = np.append(starts.ravel(), tail_starts)
    all_codes = np.append(codes.ravel(), tail_codes)
    # Runs without words (a value next to the midpoint) would start where the following run starts.
    kept = np.append(np.diff(all_starts) > 0, True)
    return WordRuns(starts=all_starts[kept], codes=all_codes[kept])


def _fp32_words(x: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    assert np.all((single.astype(np.float64) == x) | (x == 2.0**128))
    return single.view(np.uint32).astype(np.int64)


def _below_is_up(low: npt.NDArray[np.int64], negative: bool, mode: str) -> npt.NDArray[np.int64]:
    if mode == "ODD":
        return (low % 2 == 0).astype(np.int64)
    return np.full(low.shape, int((mode == "CEIL" and not negative) or (mode == "FLOOR" and negative)))


def _tie_is_up(low: npt.NDArray[np.int64], negative: bool, mode: str) -> npt.NDArray[np.int64]:
    if mode in ("RINT", "NONE", "EVEN"):
        return (low % 2 == 1).astype(np.int64)
    if mode in ("ROUND", "AWAY"):
        return np.ones(low.shape, np.int64)
    return _below_is_up(low, negative, mode)


def _above_is_up(low: npt.NDArray[np.int64], negative: bool, mode: str) -> npt.NDArray[np.int64]:
    if mode in ("RINT", "NONE", "ROUND", "EVEN", "AWAY", "TOWARD_ZERO"):
        return np.ones(low.shape, np.int64)
    return _below_is_up(low, negative, mode)
