"""Naive Mmad on logical matrices, and carriers placed element by element.

Nothing here comes from `npu_sim`. Sums that the models call exact or fused are computed with rational numbers and
rounded by `rounded`, which knows no floating-point hardware.

Parts of a model are keywords: ``flush`` (subnormal accumulators and results), ``to_max`` (finite sums that overflow),
``largest`` (the largest finite operand, where operands, accumulators and results of groups saturate).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

LARGEST = 2**128 - 2**104
LEAST_NORMAL = np.float32(2.0**-126)
POISON = np.uint32(0x7FBADBAD)  # a signalling NaN
SENTINEL = np.uint32(0xC2F0CACA)


def rounded(value, *, toward_zero=False, negative_zero=False):
    """Round a Fraction to float32, to nearest even or toward zero; the sign of an exact zero is given."""
    if value == 0:
        return np.float32(-0.0 if negative_zero else 0.0)
    size, unit = abs(value.numerator), value.denominator
    exponent = size.bit_length() - unit.bit_length()
    if unit << max(exponent, 0) > size << max(-exponent, 0):
        exponent -= 1
    place = max(exponent - 23, -149)
    unit <<= max(place, 0)
    count, rest = divmod(size << max(-place, 0), unit)
    if not toward_zero and (2 * rest > unit or (2 * rest == unit and count % 2 == 1)):
        count += 1
    if count << max(place, 0) <= LARGEST:
        magnitude = np.float32(math.ldexp(count, place))
    else:
        magnitude = np.float32(LARGEST) if toward_zero else np.float32(np.inf)
    return np.float32(-magnitude if value < 0 else magnitude)


def fma(a, b, c):
    """a * b + c in float32 with one rounding, IEEE 754 specials included."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        with np.errstate(all="ignore"):
            product = np.float64(a) * np.float64(b)  # cannot overflow: Inf only from Inf
            return np.float32(product + np.float64(c))
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    product_negative = np.signbit(a) != np.signbit(b)
    return rounded(exact, negative_zero=bool(product_negative and np.signbit(c) and (a == 0 or b == 0)))


def to_float32(total, *, toward_zero):
    """Round a Python float to float32."""
    if not np.isfinite(total):
        return np.float32(total)
    negative = bool(np.signbit(total))
    value = rounded(Fraction(total), toward_zero=toward_zero, negative_zero=negative)
    return np.copysign(value, np.float32(-1 if negative else 1))


def hf32(word, drop, ties):
    """Round an fp32 bit pattern to HF32; ``ties``: "even", "away" or "toward_zero"."""
    word = int(word)
    sign, magnitude = word & 0x80000000, word & 0x7FFFFFFF
    if magnitude >= 0x7F800000:
        return word
    kept, lost = divmod(magnitude, 1 << drop)
    twice = 2 * lost - (1 << drop)
    up = twice > 0 or (twice == 0 and (ties == "away" or (ties == "even" and kept % 2 == 1)))
    return sign | ((kept + up) << drop)


def hf32_matrix(values, drop, ties="even"):
    """Round a float32 matrix to HF32 word by word."""
    words = [hf32(word, drop, ties) for word in values.view(np.uint32).ravel()]
    return np.array(words, np.uint32).view(np.float32).reshape(values.shape)


def neighbour_tree(values):
    """Sum float32 values level by level: pairs of neighbours, an odd last one moves up unchanged."""
    level = values
    while len(level) > 1:
        even = len(level) // 2 * 2
        level = np.concatenate([level[:even:2] + level[1:even:2], level[even:]])
    return level[0]


def add_toward_zero(a, b):
    """a + b in float32, rounded toward zero."""
    if not (np.isfinite(a) and np.isfinite(b)):
        return np.float32(a + b)
    both_negative = bool(np.signbit(a) and np.signbit(b))
    return rounded(Fraction(float(a)) + Fraction(float(b)), toward_zero=True, negative_zero=both_negative)


def saturated(value, largest):
    """Operands or an accumulator as saturation mode takes them: Inf becomes ``largest``, NaN zero; the sign stays."""
    kept = np.where(np.isnan(value), np.float32(0), np.where(np.isinf(value), np.float32(largest), value))
    return np.copysign(kept, value)


def settled(value, addends, *, flush, to_max):
    """The float32 sum of a group: Inf becomes the largest number if no addend is infinite, subnormals become zero.

    NaN has a sign that does not depend on the host.
    """
    if np.isnan(value):
        return np.float32(np.nan)
    if to_max and np.isinf(value) and np.isfinite(addends).all():
        value = np.copysign(np.float32(LARGEST), value)
    if flush and abs(value) < LEAST_NORMAL:
        value = np.copysign(np.float32(0), value)
    return value


def one_element(row, column, acc, group, inner, rounding, *, flush=False, to_max=False, largest=None):
    """One element of C: ``acc`` plus the products of a row of A and a column of B, in order.

    Where ``largest`` is given, row and column are `saturated` already.
    """
    toward_zero = rounding == "rz"
    if inner == "serial":
        for a, b in zip(row, column, strict=True):
            acc = fma(a, b, acc)
        return acc
    if largest is not None:
        to_max = True
    if flush and abs(acc) < LEAST_NORMAL:
        acc = np.copysign(np.float32(0), acc)
    for first in range(0, len(row), group):
        if largest is not None and not np.isfinite(acc):
            acc = saturated(acc, LARGEST)
        some, others = row[first : first + group], column[first : first + group]
        if inner == "exact":
            total = float(acc)
            for a, b in zip(some.tolist(), others.tolist(), strict=True):
                total = total + a * b
            result, addends = to_float32(total, toward_zero=toward_zero), [total]
        else:
            total = neighbour_tree(some * others)
            result = add_toward_zero(acc, total) if toward_zero else np.float32(acc + total)
            addends = [acc, total]
        acc = settled(result, addends, flush=flush, to_max=to_max)
    return acc


def mmad(a, b, c, group, inner, rounding, **parts):
    """C + A B (``c`` None: zero) in float32: triple loop, one element after the other."""
    m, n = a.shape[0], b.shape[1]
    out = np.zeros((m, n), np.float32) if c is None else c.copy()
    if parts.get("largest") is not None and inner != "serial":
        a, b = (saturated(values, parts["largest"]) for values in (a, b))
    with np.errstate(all="ignore"):
        for i in range(m):
            for j in range(n):
                out[i, j] = one_element(a[i], b[:, j], out[i, j], group, inner, rounding, **parts)
    return out


def mmad_by_planes(a, b, c, group, inner, *, flush=False, to_max=False):
    """`mmad` for larger matrices: all elements of C at once, k in order, rounded by NumPy's cast to nearest.

    inner = "serial" needs products that float32 holds exactly (16-bit or HF32 operands, no underflow).
    """
    out = np.zeros((a.shape[0], b.shape[1]), np.float32) if c is None else _flushed(c, flush)
    for first in range(0, a.shape[1], group):
        total = out.astype(np.float64 if inner == "exact" else np.float32)
        for k in range(first, min(first + group, a.shape[1])):
            total = total + np.multiply.outer(a[:, k].astype(total.dtype), b[k].astype(total.dtype))
        out = total.astype(np.float32)
        if to_max:
            out = np.where(np.isinf(out) & np.isfinite(total), np.copysign(np.float32(LARGEST), out), out)
        out = _flushed(out, flush)
    return out


def _flushed(values, flush):
    return np.where(flush & (np.abs(values) < LEAST_NORMAL), np.copysign(np.float32(0), values), values)


def place_a(l0a, address, a, k0, *, k_align=False):
    """Write A to L0A carriers: fractals (M1, K1), element (m, k) of fractal f at 256 f + 16 k + m."""
    m, k = a.shape
    row = 2 * -(-k // 16) if k_align else -(-k // k0)
    for i in range(m):
        for kk in range(k):
            fractal = address // 512 + i // 16 * row + kk // k0
            l0a[256 * fractal + 16 * (kk % k0) + i % 16] = a[i, kk]


def place_vector(l0a, address, vector, k0):
    """Write the A of a GEMV: consecutive elements in memory order, whatever row of the fractal they fall into."""
    for kk, value in enumerate(vector):
        fractal, inside = divmod(kk, 16 * k0)
        r, c = divmod(inside, k0)
        l0a[256 * (address // 512 + fractal) + 16 * c + r] = value


def place_b(l0b, address, b, k0):
    """Write B to L0B carriers: fractals (K1, N1), element (k, n) of fractal f at 256 f + 16 k + n."""
    k, n = b.shape
    for kk in range(k):
        for j in range(n):
            fractal = address // 512 + kk // k0 * -(-n // 16) + j // 16
            l0b[256 * fractal + 16 * (kk % k0) + j % 16] = b[kk, j]


def index_of_c(address, m, n):
    """Return int[m, n]: where the elements of C lie in L0C, fractals (N1, M1) of 16 x 16 floats."""
    i, j = np.meshgrid(np.arange(m), np.arange(n), indexing="ij")
    return address // 4 + 256 * (j // 16 * -(-m // 16) + i // 16) + 16 * (i % 16) + j % 16


def same(got, want):
    """Whether two float32 arrays are equal bit for bit, any NaN equal to any NaN."""
    both = np.isnan(got) & np.isnan(want)
    return bool(np.all(both | (got.view(np.uint32) == want.view(np.uint32))))
