"""Windows of pooling gradients added on NCHW planes, without the rows of a kernel.

Tensors are flat words of 16 and of 32 bits; a function gets both views of the same memory and a `Data` that says which
one is meant (the other may be empty). Windows are half-open ranges ``top[oh]:bottom[oh]`` of rows and
``left[ow]:right[ow]`` of columns, in ascending order. All sums are float32.
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.bulk_jit import decode_bf16, decode_fp16, nearest_bf16, nearest_fp16
from npu_sim.isa.op import Data
from npu_sim.layouts.transform_jit import SCRATCH_STEP, blocked_from_planes, chunks_of_plane, planes_from_blocked
from npu_sim.reinterpret import reinterpret
from ops.avg_pool.lanes import LANES, sum_lanes

SCRATCH_WORDS = (LANES + 1) * SCRATCH_STEP
"""Words of scratch of the transforms."""
PIECE = 4096
"""Windows that do not overlap are scaled about as many at a time."""
CHUNK_PIXELS = 256
"""Pixels of sums made at a time, at least one row of them: the sums of all lanes stay in the first cache."""
_HALF_INFINITY = 0x7C00
PLAIN, CUBE, CUBE_ROUNDED = range(3)
"""How a term is made: gradient times factor; that times the Cube's weight; that rounded to FP16 before."""


@jit
def _decode(halves, words, data, first, floats):
    """Read ``len(floats)`` elements from the ``first`` on."""
    count = len(floats)
    if data == Data.FP32:
        source = reinterpret(words[first : first + count], np.float32)
        for i in range(count):
            floats[i] = source[i]
    elif data == Data.FP16:
        decode_fp16(halves[first : first + count], reinterpret(floats, np.uint32))
    else:
        decode_bf16(halves[first : first + count], reinterpret(floats, np.uint32))


@jit
def _encode(floats, halves, words, data, first, saturate):
    """Write all of ``floats`` from element ``first`` on, rounded to nearest even."""
    count = len(floats)
    if data == Data.FP32:
        target = reinterpret(words[first : first + count], np.float32)
        for i in range(count):
            target[i] = floats[i]
    elif data == Data.FP16:
        nearest_fp16(reinterpret(floats, np.uint32), halves[first : first + count], saturate)
    else:
        nearest_bf16(reinterpret(floats, np.uint32), halves[first : first + count], saturate)


@jit
def _round_to_half(floats, codes, saturate):
    """Round to FP16 in place; ``codes`` is scratch of the same length."""
    nearest_fp16(reinterpret(floats, np.uint32), codes, saturate)
    decode_fp16(codes, reinterpret(floats, np.uint32))


@jit
def all_halves_finite(halves, words, data, saturate):
    """Return whether no element, rounded to FP16, is an infinity or a NaN.

    Parameters
    ----------
    halves, words : uint16[:], uint32[:]
        Two views of a tensor.
    data : int
        `Data` of its elements.
    saturate : int
        Whether rounding clamps.
    """
    found = 0
    if data == Data.FP16:
        for i in range(len(halves)):
            found |= np.int64((halves[i] & _HALF_INFINITY) == _HALF_INFINITY)
        return found == 0
    total = len(words) if data == Data.FP32 else len(halves)
    floats, codes = np.empty(PIECE, np.float32), np.empty(PIECE, np.uint16)
    for first in range(0, total, PIECE):
        count = min(PIECE, total - first)
        _decode(halves, words, data, first, floats[:count])
        nearest_fp16(reinterpret(floats[:count], np.uint32), codes[:count], saturate)
        for i in range(count):
            found |= np.int64((codes[i] & _HALF_INFINITY) == _HALF_INFINITY)
    return found == 0


@jit
def _terms(halves, words, data, first, floats, factors, weight, mode, codes, saturate):
    """Read windows from element ``first``, whole planes of ``factors``, and scale them to what a pixel gets.

    On the Cube a term comes from an accumulator that was +0.
    """
    _decode(halves, words, data, first, floats)
    windows = len(factors)
    for plane in range(0, len(floats), windows):
        terms = floats[plane : plane + windows]
        for i in range(windows):
            terms[i] = terms[i] * factors[i]
    if mode == CUBE_ROUNDED:
        _round_to_half(floats, codes[: len(floats)], saturate)
    if mode != PLAIN:
        for i in range(len(floats)):
            floats[i] = np.float32(0.0) + floats[i] * weight


@jit
def _spread(codes, first, target, plane_elems, width, planes, bounds):
    """Write ``codes`` of windows that do not overlap, plane by plane, to the pixels under them; others get 0.

    ``codes`` are words like those of ``target``; plane ``i`` of them begins at element ``(first + i) * plane_elems``.
    """
    top, bottom, left, right = bounds
    at = 0
    full = len(top) == 1 and len(left) == 1 and right[0] - left[0] == plane_elems and top[0] == 0
    for plane in range(planes):
        base = (first + plane) * plane_elems
        pixels = target[base : base + plane_elems]
        if full:
            code = codes[at]
            for i in range(plane_elems):
                pixels[i] = code
            at += 1
            continue
        for i in range(plane_elems):
            pixels[i] = 0
        for oh in range(len(top)):
            if top[oh] >= bottom[oh]:
                at += len(left)
                continue
            row = pixels[top[oh] * width : (top[oh] + 1) * width]
            for ow in range(len(left)):
                code = codes[at]
                at += 1
                for x in range(left[ow], right[ow]):
                    row[x] = code
            for y in range(top[oh] + 1, bottom[oh]):
                copy = pixels[y * width : (y + 1) * width]
                for x in range(width):
                    copy[x] = row[x]


@jit
def spread_planes(
    grads16, grads32, data, out16, out32, out_data, plane_elems, width, bounds, factors, weight, mode, saturate,
    first, end,
):  # fmt: skip
    """Compute planes ``first`` to ``end`` of windows that do not overlap: every pixel gets the term of its window.

    Parameters
    ----------
    grads16, grads32, out16, out32 : uint16[:], uint32[:]
        Two views of gradOutput, [planes][Ho * Wo], and of the result, [planes][H * W].
    data, out_data : int
        `Data` of each.
    plane_elems, width : int
        H * W and W.
    bounds : tuple of int64[:]
        top, bottom [Ho], left, right [Wo].
    factors : float32[Ho * Wo]
        What gradients are multiplied by.
    weight : float32
        The Cube's weight, an FP16 number; its product with another is exact.
    mode : int
        `PLAIN`, `CUBE` or `CUBE_ROUNDED`; sums of the Cube are rounded to FP16 before they are converted.
    saturate : int
        Whether rounding clamps.
    first, end : int
    """
    windows = len(factors)
    step = max(PIECE // windows, 1)
    floats = np.empty(step * windows, np.float32)
    codes = np.empty(step * windows, np.uint16)
    for plane in range(first, end, step):
        planes = min(step, end - plane)
        terms = floats[: planes * windows]
        _terms(grads16, grads32, data, plane * windows, terms, factors, weight, mode, codes, saturate)
        if mode != PLAIN and out_data != Data.FP16:
            _round_to_half(terms, codes[: len(terms)], saturate)
        if out_data == Data.FP32:
            _spread(reinterpret(terms, np.uint32), plane, out32, plane_elems, width, planes, bounds)
        else:
            _encode(terms, codes, out32, out_data, 0, saturate)
            _spread(codes, plane, out16, plane_elems, width, planes, bounds)


@jit
def _covering(first, end, place, windows):
    """Return the windows over ``place``, [low, high)."""
    low, high = windows
    while low < len(end) and end[low] <= place:
        low += 1
    high = max(low, high)
    while high < len(first) and first[high] <= place:
        high += 1
    return low, high


@jit
def _sum_rows(terms, sums, width, begin, end, bounds, low, high):
    """Sum the windows over rows ``begin`` to ``end``, [pixels][LANES], in ascending order of windows."""
    top, bottom, left, _ = bounds
    rows = _covering(top, bottom, begin, (0, 0))
    for y in range(begin, end):
        rows = _covering(top, bottom, y, rows)
        for x in range(width):
            at = ((y - begin) * width + x) * LANES
            start = (rows[0] * len(left) + low[x]) * LANES
            sum_lanes(sums, at, terms, start, rows[1] - rows[0], len(left) * LANES, high[x] - low[x])


@jit
def add_planes(
    grads16, grads32, data, out16, out32, out_data, plane_elems, width, bounds, factors, weight, mode, saturate,
    first, end,
):  # fmt: skip
    """Compute planes ``first`` to ``end`` of windows that overlap; parameters as in `spread_planes`."""
    windows = len(factors)
    floats = np.empty(LANES * windows, np.float32)
    terms = np.empty(LANES * windows, np.uint32)
    height = plane_elems // width
    rows = min(max(CHUNK_PIXELS // width, 1), height)
    sums = np.empty(LANES * rows * width, np.float32)
    codes16 = np.empty(LANES * max(windows, plane_elems), np.uint16)
    rounded = np.empty(len(sums), np.uint16)
    codes32 = np.empty(LANES * plane_elems if out_data == Data.FP32 else 0, np.uint32)
    scratch = np.empty(SCRATCH_WORDS, np.uint32)
    low, high = np.empty(width, np.int64), np.empty(width, np.int64)
    over = (0, 0)
    for x in range(width):
        over = _covering(bounds[2], bounds[3], x, over)
        low[x], high[x] = over
    for plane in range(first, end, LANES):
        lanes = min(LANES, end - plane)
        line = floats[: lanes * windows]
        _terms(grads16, grads32, data, plane * windows, line, factors, weight, mode, codes16, saturate)
        chunks = chunks_of_plane(windows)
        blocked_from_planes(reinterpret(line, np.uint32), terms, 0, chunks, scratch, lanes, 1, windows, LANES)
        for begin in range(0, height, rows):
            count = min(rows, height - begin)
            part = sums[: count * width * LANES]
            _sum_rows(reinterpret(terms, np.float32), part, width, begin, begin + count, bounds, low, high)
            if mode != PLAIN and out_data != Data.FP16:
                _round_to_half(part, rounded[: len(part)], saturate)
            _encode(part, codes16, codes32, out_data, begin * width * LANES, saturate)
        chunks = chunks_of_plane(plane_elems)
        at = plane * plane_elems
        if out_data == Data.FP32:
            planes_from_blocked(codes32, out32[at:], 0, chunks, scratch, lanes, 1, plane_elems, LANES)
        else:
            small = reinterpret(scratch, np.uint16)
            planes_from_blocked(codes16, out16[at:], 0, chunks, small, lanes, 1, plane_elems, LANES)
