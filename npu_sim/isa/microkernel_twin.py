"""Plain-Python twins of the micro-kernels, for runs with the JIT disabled (an LLVM intrinsic cannot be called then).

Element by element, with the same arguments and the same bits as `microkernel_ir`; slow.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

_LARGEST = np.float32(np.finfo(np.float32).max)


def fma32(a, b, c):
    """Return the float32 nearest to a * b + c, ties to even.

    The product of two float32 is exact in float64. The sum is rounded to odd there (its error is known from an exact
    two-sum), and 53 bits rounded to odd keep all that the final rounding to 24 bits needs (S. Boldo, G. Melquiond,
    "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE TC 2008).
    """
    with np.errstate(all="ignore"):
        product = np.float64(a) * np.float64(b)
        addend = np.float64(c)
        total = product + addend
        if not np.isfinite(total):
            return np.float32(total)
        back = total - product
        error = (product - (total - back)) + (addend - back)
        if error != 0:
            bits = total.view(np.int64)
            if bits & 1 == 0:
                outward = (error > 0) == (total > 0)
                total = np.int64(bits + 1 if outward else bits - 1).view(np.float64)
        return np.float32(total)


def round_to_float32(value, limit, floor):
    """Round a float64 to float32: to nearest even, but toward zero where that is above ``limit``; then flush.

    Results whose bits are below ``floor`` become a zero of their sign.
    """
    with np.errstate(all="ignore"):
        single = np.float32(value)
        if np.abs(np.float64(single)) > max(np.abs(value), limit):
            single = _LARGEST * np.sign(single) if np.isinf(single) else np.nextafter(single, np.float32(0))
        bits = int(np.float32(single).view(np.uint32))
        return np.copysign(np.float32(0), single) if bits & 0x7FFFFFFF < floor else np.float32(single)


def serial_tile(row_count, column_count):
    """Return the twin of `microkernel_ir.serial_tile`."""

    def tile(
        a, a_at, b, b_at, c, c_at, rows, k, chunk, a_line, a_step, b_step, b_column, c_column, init, tiles, a_row, lane,
        lanes,
    ):  # fmt: skip
        before = c
        for r in range(tiles * row_count):
            # a tile is read before it is written: a row may be in it twice
            if r % row_count == 0:
                before = c.copy()
            stretch, place = (lane + r) // lanes, (lane + r) % lanes - lane
            for column in range(16 * column_count):
                at = c_at + (column // 16) * c_column + rows[r] + column % 16
                acc = np.float32(0) if init else before[at]
                for kk in range(k):
                    outer, inner = kk // chunk, kk % chunk
                    x = a[a_at + stretch * a_row + place + outer * a_step + a_line * inner]
                    y = b[b_at + outer * b_step + 16 * inner + (column // 16) * b_column + column % 16]
                    acc = fma32(x, y, acc)
                c[at] = acc

    return tile


def exact_tile(row_count, vector_count, *, fast):
    """Return the twin of `microkernel_ir.exact_tile`; ``fast`` changes nothing, as it must."""
    del fast

    def tile(
        a, a_at, b, b_at, c, c_at, rows, half, c_column, k, group, limit, floor, init, tiles, a_tile, b_skip
    ):  # fmt: skip
        before = c
        for r in range(tiles * row_count):
            if r % row_count == 0:
                before = c.copy()
            first = a_at + r // row_count * a_tile + r % row_count
            for column in range(8 * vector_count):
                place = column + 8 * half
                at = c_at + (place // 16) * c_column + rows[r] + place % 16
                acc = np.float32(0) if init else before[at]
                for start in range(0, k, group):
                    total = np.float64(acc)
                    with np.errstate(all="ignore"):
                        for kk in range(start, min(start + group, k)):
                            x = a[first + kk * row_count]
                            total = total + x * b[b_at + kk * 8 * vector_count + column + kk // group * b_skip]
                    acc = round_to_float32(total, limit, floor)
                c[at] = acc

    return tile


def _look_at(word, lane, ranges):
    magnitude = int(word) & 0x7FFFFFFF
    found = ranges.view(np.uint32)
    found[lane] = max(int(found[lane]), magnitude)
    found[8 + lane] = min(int(found[8 + lane]), (magnitude - 1) & 0xFFFFFFFF)
    found[16 + lane] |= np.uint32(magnitude)


def widen(lanes, parts):
    """Return the twin of `microkernel_ir.widen`."""
    width = lanes // parts

    def convert(src, src_at, k, chunk, line, step, valid, dst, dst_at, dst_step, dst_part):
        for kk in range(k):
            for lane in range(lanes):
                at = src_at + (kk // chunk) * step + line * (kk % chunk) + lane
                place = dst_at + kk * dst_step + lane // width * dst_part + lane % width
                dst[place] = np.float64(src[at]) if lane < valid else 0.0

    return convert


def scan(lanes):
    """Return the twin of `microkernel_ir.scan`."""

    def look(src, src_at, row_count, valid, ranges):
        for r in range(row_count):
            for lane in range(lanes):
                value = src[src_at + 16 * r + lane] if lane < valid else np.float32(0)
                _look_at(value.view(np.int32), lane, ranges)

    return look
