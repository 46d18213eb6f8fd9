"""Whole matrix products of Cubes that are ours and of Cubes that are not, in plain NumPy.

`product_of` is the second, quick twin of `mmad.mmad` (without an accumulator to start from): all elements of C at once,
each addition of a model as one array operation. The others are Cubes that no `Accumulation` describes.
"""

from __future__ import annotations

import numpy as np

LARGEST = np.float32(np.finfo(np.float32).max)
LEAST_NORMAL = np.float32(2.0**-126)


def toward_zero(total, lost):
    """Round float64 to float32 toward zero; ``lost`` is the exact sum less ``total``, of which the sign counts."""
    near = total.astype(np.float32)
    above = np.where(near == total, lost, total - near) * np.sign(near) < 0
    back = np.nextafter(near, np.float32(0))
    back = np.where(np.isinf(near) & np.isfinite(total), np.copysign(LARGEST, near), back)
    return np.where(above & np.isfinite(total), back, near)


def two_sum_error(x, y, total):
    back = total - x
    return (x - (total - back)) + (y - back)


def saturated(values, largest):
    return np.where(np.isnan(values), np.copysign(0, values), np.clip(values, -largest, largest)).astype(np.float32)


def planes(a, b, first, last):
    """Return the exact products float64[M, N] of each k from ``first`` on."""
    return [np.multiply.outer(a[:, k].astype(np.float64), b[k].astype(np.float64)) for k in range(first, last)]


def neighbours(level):
    while len(level) > 1:
        level = [x + y for x, y in zip(level[::2], level[1::2], strict=False)] + level[len(level) // 2 * 2 :]
    return level[0]


def product_of(a, b, group, inner, rounding, *, flush=False, to_max=False, largest=None):
    """Return float32 A B of a model; ``largest``: the largest operand where operands saturate."""
    with np.errstate(all="ignore"):
        if inner == "serial":
            return chain(a, b)
        if largest is not None:
            a, b, to_max = saturated(a, largest), saturated(b, largest), True
        acc = np.zeros((len(a), b.shape[1]), np.float32)
        for first in range(0, a.shape[1], group):
            acc = acc if largest is None else saturated(acc, LARGEST)
            terms = planes(a, b, first, min(first + group, a.shape[1]))
            lost = np.zeros(acc.shape)
            if inner == "exact":
                total = acc.astype(np.float64)
                for term in terms:
                    total = total + term
                finite = np.isfinite(total)
            else:
                value = neighbours([term.astype(np.float32) for term in terms])
                finite = np.isfinite(acc) & np.isfinite(value)
                x, y = acc.astype(np.float64), value.astype(np.float64)
                total = x + y
                lost = two_sum_error(x, y, total)
            if rounding == "rz":
                result = toward_zero(total, lost)
            else:
                # float64 may have rounded to the middle of two float32, which a sum of two float32 is then not
                result = total.astype(np.float32) if inner == "exact" else acc + value
            if to_max:
                result = np.where(np.isinf(result) & finite, np.copysign(LARGEST, result), result)
            if flush:
                result = np.where(np.abs(result) < LEAST_NORMAL, np.copysign(0, result), result)
            acc = result.astype(np.float32)
        return acc


def fused(term, acc):
    """Return float32 of float64 ``term`` plus float32 ``acc`` with one rounding: to odd first, which loses nothing."""
    wide = acc.astype(np.float64)
    total = term + wide
    lost = two_sum_error(term, wide, total)
    bits = total.view(np.int64)
    away = (lost > 0) == (total > 0)
    odd = np.where((lost != 0) & np.isfinite(lost) & (bits % 2 == 0), bits + np.where(away, 1, -1), bits)
    return odd.view(np.float64).astype(np.float32)


def chain(a, b):
    """One fused float32 multiply-add per k."""
    acc = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for term in planes(a, b, 0, a.shape[1]):
            acc = fused(term, acc)
    return acc


def in_double(a, b):
    """Everything added in float64, rounded once at the end."""
    with np.errstate(all="ignore"):
        return sum(planes(a, b, 0, a.shape[1])).astype(np.float32)


def halves_of_8(a, b):
    """Groups of 8 float32 products; each level of the tree adds the second half to the first."""
    acc = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for first in range(0, a.shape[1], 8):
            level = [term.astype(np.float32) for term in planes(a, b, first, first + 8)]
            while len(level) > 1:
                level = [x + y for x, y in zip(level[: len(level) // 2], level[len(level) // 2 :], strict=True)]
            acc = acc + level[0]
    return acc


def aligned(a, b, group, extra_bits):
    """Terms and accumulator cut off ``extra_bits`` below the last bit of the largest, added, cut off to float32.

    What is published of several GPUs.
    """
    acc = np.zeros((len(a), b.shape[1]))
    with np.errstate(all="ignore"):
        for first in range(0, a.shape[1], group):
            terms = [acc, *planes(a, b, first, min(first + group, a.shape[1]))]
            finite = np.isfinite(sum(terms))
            exponent = np.max([np.frexp(np.where(np.isfinite(term), term, 0))[1] for term in terms], axis=0)
            place = np.ldexp(1.0, exponent - 24 - extra_bits)
            cut = sum(np.trunc(term / place) * place for term in terms)
            acc = np.where(finite, toward_zero(cut, np.zeros(cut.shape)), sum(terms)).astype(np.float64)
    return acc.astype(np.float32)


def hf32(values, drop=12, ties="even"):
    """Round float32 to HF32."""
    words = np.ascontiguousarray(values).view(np.uint32)
    sign, size = words & np.uint32(0x80000000), (words & np.uint32(0x7FFFFFFF)).astype(np.int64)
    kept, lost = size >> drop, size & ((1 << drop) - 1)
    twice, middle = 2 * lost, 1 << drop
    up = (twice > middle) | ((twice == middle) & ((ties == "away") | ((ties == "even") & (kept % 2 == 1))))
    rounded = np.where(size >= 0x7F800000, size, (kept + up) << drop).astype(np.uint32)
    return (sign | rounded).view(np.float32)
