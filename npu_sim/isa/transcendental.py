"""Exponential and logarithm of float32, correctly rounded, from float64 arithmetic alone.

No function of a C library takes part, so that every host gives the same bits. The float64 value is off by less than
2^-50 of itself; ``python -m tests.long.transcendental`` finds every float32 whose result lies closer than that to the
middle of two neighbours, and holds these to decimal arithmetic. All are right but five logarithms, which are listed.
Without branches and loops, so that loops over elements become vector code.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from npu_sim._jit import jit

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693147180369123816490
"""ln 2 to 33 bits, so that its products with exponents are exact."""
_LN2_LOW = 1.90821492927058770002e-10
_OVERFLOWS, _VANISHES = 88.8, -104.0
"""exp is infinite above the first, and 0 below the second."""
_EXP = tuple(1.0 / factorial(n) for n in range(13, -1, -1))
_LN = tuple(2.0 / n for n in range(25, 1, -2))
_HARD_LN = (
    (0x3C413D3A, 0xC08E158F),
    (0x41178FEB, 0x400FE5E7),
    (0x4C5D65A5, 0x418F034B),
    (0x65D890D3, 0x4254D1F9),
    (0x6F31A8EC, 0x42845A89),
)
"""Patterns whose logarithm lies closer to a middle than float64 can tell, and the patterns of their results."""
_MANTISSA, _ONE = np.int64((1 << 52) - 1), np.int64(1023 << 52)
_SQRT2 = 1.4142135623730951


@jit
def exp64(x: Any) -> Any:
    """Return e to the power of a float32, as a float64; beyond the range of float32 inf or 0."""
    wide = np.float64(x)
    held = min(max(wide if wide == wide else 0.0, _VANISHES), _OVERFLOWS)
    k = np.rint(held * _LOG2_E)
    r = (held - k * _LN2_HIGH) - k * _LN2_LOW
    total = _EXP[0] * r + _EXP[1]
    total = total * r + _EXP[2]
    total = total * r + _EXP[3]
    total = total * r + _EXP[4]
    total = total * r + _EXP[5]
    total = total * r + _EXP[6]
    total = total * r + _EXP[7]
    total = total * r + _EXP[8]
    total = total * r + _EXP[9]
    total = total * r + _EXP[10]
    total = total * r + _EXP[11]
    total = total * r + _EXP[12]
    total = total * r + _EXP[13]
    result: Any = total * np.int64((np.int64(np.int32(k)) + 1023) << 52).view(np.float64)
    result = np.float64(np.inf) if wide > _OVERFLOWS else result
    result = np.float64(0.0) if wide < _VANISHES else result
    return result if wide == wide else wide


@jit
def ln64(x: Any) -> Any:
    """Return the natural logarithm of a float32, as a float64: -inf of zeros, NaN of what is less."""
    wide = np.float64(x)
    bits = wide.view(np.int64)
    m = np.int64((bits & _MANTISSA) | _ONE).view(np.float64)
    is_high = m > _SQRT2
    m = m * 0.5 if is_high else m
    k = np.float64(np.int32((bits >> 52) - (1022 if is_high else 1023)))
    f = m - 1.0
    s = f / (2.0 + f)
    square = s * s
    total = _LN[0] * square + _LN[1]
    total = total * square + _LN[2]
    total = total * square + _LN[3]
    total = total * square + _LN[4]
    total = total * square + _LN[5]
    total = total * square + _LN[6]
    total = total * square + _LN[7]
    total = total * square + _LN[8]
    total = total * square + _LN[9]
    total = total * square + _LN[10]
    total = total * square + _LN[11]
    # ln(1 + f) = f - (h - s (h + square total)) with h = f^2 / 2: f is exact, and what is added to it is small
    half = 0.5 * f * f
    result = k * _LN2_HIGH - ((half - (s * (half + square * total) + k * _LN2_LOW)) - f)
    result = result if wide > 0 else np.float64(np.nan)
    result = np.float64(-np.inf) if wide == 0 else result
    return result if wide == wide and wide != np.inf else wide


@jit
def exp32(x: Any) -> Any:
    """Return e to the power of a float32, as a float32."""
    return np.float32(exp64(x))


@jit
def _corrected(pattern: Any, found: Any, hard: Any) -> Any:
    """Return the pattern of a logarithm; ``hard``: of an argument, and of what its logarithm is."""
    return np.uint32(hard[1]) if pattern == np.uint32(hard[0]) else found


@jit
def ln32(x: Any) -> Any:
    """Return the natural logarithm of a float32, as a float32."""
    pattern = np.float32(x).view(np.uint32)
    found = np.float32(ln64(x)).view(np.uint32)
    found = _corrected(pattern, found, _HARD_LN[0])
    found = _corrected(pattern, found, _HARD_LN[1])
    found = _corrected(pattern, found, _HARD_LN[2])
    found = _corrected(pattern, found, _HARD_LN[3])
    found = _corrected(pattern, found, _HARD_LN[4])
    return np.uint32(found).view(np.float32)


@jit
def to_odd(wide: Any) -> Any:
    """Return a float64 as a float32 that rounds to half as the float64 does: what is inexact gets an odd pattern."""
    near = np.float32(wide)
    pattern = np.int64(near.view(np.uint32))
    is_exact = np.float64(near) == wide or wide != wide or pattern & 1 != 0
    other = pattern + (1 if abs(wide) > abs(np.float64(near)) else -1)
    return np.uint32(pattern if is_exact else other).view(np.float32)


@jit
def exp_for_half(x: Any) -> Any:
    """Return e to the power of a half, to be rounded to half."""
    return to_odd(exp64(x))


@jit
def ln_for_half(x: Any) -> Any:
    """Return the natural logarithm of a half, to be rounded to half."""
    return to_odd(ln64(x))
