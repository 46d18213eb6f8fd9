"""One slice of the Cube's additions in whole numbers: the accumulator and the products of one group, with the rounding.

The rules are those that `npu_sim.Accumulation` gives the default of A2 and A3, written case by case, as a public
emulator of dav-2201 by other authors describes them (eWloYW8/OpenAscendEmulator): nothing of the emulator here, nor
floating point, except to read and write bit patterns. Sums are exact, however far exponents lie apart.
"""

from __future__ import annotations

FRACTION_BITS = 23
NAN = 0x7FFFFFFF
INFINITY = 0x7F800000
LARGEST = 0x7F7FFFFF
LEAST_NORMAL = 0x00800000
SIGN = 0x80000000
_UNIT = 149
"""A float32 is a whole number of 2^-149, a product one of 2^-298."""


def is_nan(word):
    return word & ~SIGN > INFINITY


def is_infinite(word):
    return word & ~SIGN == INFINITY


def whole(word):
    """A finite float32 in units of 2^-149."""
    exponent, fraction = word >> FRACTION_BITS & 255, word & (1 << FRACTION_BITS) - 1
    size = fraction if exponent == 0 else (1 << FRACTION_BITS | fraction) << exponent - 1
    return -size if word & SIGN else size


def saturated(word, largest):
    """An operand or accumulator in saturation mode: Inf becomes ``largest``, NaN a zero; the sign stays."""
    if is_nan(word):
        return word & SIGN
    return word & SIGN | largest if is_infinite(word) else word


def rounded(size, *, overflow_to):
    """A positive number of units of 2^-298 as a float32, to nearest even; what stays subnormal becomes zero."""
    shift = max(size.bit_length() - 1 - FRACTION_BITS, _UNIT)
    kept, rest = divmod(size, 1 << shift)
    half = 1 << shift - 1
    kept += rest > half or (rest == half and kept & 1)
    if kept < 1 << FRACTION_BITS:
        return 0
    word = (shift - _UNIT << FRACTION_BITS) + kept
    if word < INFINITY:
        return word
    return LARGEST if overflow_to == "max" else INFINITY


def slice_sum(accumulator, pairs, *, overflow_to="inf", largest=None):
    """Return the bits of accumulator + sum of a * b, all float32 bit patterns.

    ``largest``: the largest finite operand, in a mode that saturates; results then overflow to the largest number.
    """
    if largest is not None:
        pairs = [tuple(saturated(word, largest) for word in pair) for pair in pairs]
        accumulator = saturated(accumulator, LARGEST)
        overflow_to = "max"
    words = [accumulator, *(word for pair in pairs for word in pair)]
    if any(map(is_nan, words)):
        return NAN
    infinite = {accumulator & SIGN} if is_infinite(accumulator) else set()
    for a, b in pairs:
        if is_infinite(a) or is_infinite(b):
            if 0 in (a & ~SIGN, b & ~SIGN):
                return NAN
            infinite.add((a ^ b) & SIGN)
    if infinite:
        return NAN if len(infinite) == 2 else infinite.pop() | INFINITY
    if accumulator & ~SIGN < LEAST_NORMAL:
        accumulator &= SIGN
    total = (whole(accumulator) << _UNIT) + sum(whole(a) * whole(b) for a, b in pairs)
    if total == 0:
        zeros = [accumulator & ~SIGN == 0, *(0 in (a & ~SIGN, b & ~SIGN) for a, b in pairs)]
        signs = [accumulator & SIGN, *((a ^ b) & SIGN for a, b in pairs)]
        return SIGN if all(zeros) and all(signs) else 0
    return (SIGN if total < 0 else 0) | rounded(abs(total), overflow_to=overflow_to)
