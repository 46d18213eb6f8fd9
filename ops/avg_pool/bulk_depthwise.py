"""The additions of a convolution's input gradient with one channel a group and a constant weight, without its rows."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.dtypes.bulk_jit import decode_fp16, encode_fp16
from npu_sim.dtypes.formats import RoundMode

LANES = 16
INFINITE = 0x7C00
"""Exponent of FP16's infinities and NaNs."""


@jit
def all_finite(codes):
    """Return whether no element is an infinity or a NaN.

    Parameters
    ----------
    codes : uint16[:]
        FP16 patterns.
    """
    found = 0
    for i in range(len(codes)):
        found |= np.int64((codes[i] & INFINITE) == INFINITE)
    return found == 0


@jit
def _add_windows(grads, sums, value, axes):
    """Add every window to the pixels under it, in ascending order of windows; one rounding an addition."""
    h, w, oh, ow, kh, kw, sh, sw, ph, pw = axes
    for row in range(oh):
        top = max(row * sh - ph, 0)
        bottom = min(row * sh - ph + kh, h)
        for column in range(ow):
            left = max(column * sw - pw, 0)
            right = min(column * sw - pw + kw, w)
            grad = grads[(row * ow + column) * LANES : (row * ow + column + 1) * LANES]
            for lane in range(LANES):
                grad[lane] = grad[lane] * value
            for y in range(top, bottom):
                total = sums[(y * w + left) * LANES : max(y * w + right, y * w + left) * LANES]
                for at in range(0, len(total), LANES):
                    for lane in range(LANES):
                        total[at + lane] = total[at + lane] + grad[lane]


@jit
def _copy_windows(grads, dx, value, axes, saturate):
    """Write every window, rounded once, to the pixels under it; windows do not overlap, so each sum has one term."""
    h, w, oh, ow, kh, kw, sh, sw, ph, pw = axes
    term = np.empty(LANES, np.float32)
    codes = np.empty(LANES, np.uint16)
    for i in range(len(dx)):
        dx[i] = 0
    for row in range(oh):
        top = max(row * sh - ph, 0)
        bottom = min(row * sh - ph + kh, h)
        for column in range(ow):
            left = max(column * sw - pw, 0)
            right = min(column * sw - pw + kw, w)
            at = (row * ow + column) * LANES
            for lane in range(LANES):
                term[lane] = np.float32(0.0) + grads[at + lane] * value
            encode_fp16(term.view(np.uint32), codes, RoundMode.RINT, saturate)
            for y in range(top, bottom):
                for x in range(left, right):
                    pixel = dx[(y * w + x) * LANES : (y * w + x + 1) * LANES]
                    for lane in range(LANES):
                        pixel[lane] = codes[lane]


@jit
def spread_planes(dy, dx, value, axes, first, end, saturate):
    """Compute planes ``first`` to ``end``.

    Parameters
    ----------
    dy : uint16[planes, Ho * Wo * 16]
        FP16 patterns, finite.
    dx : uint16[planes, H * W * 16]
        Written.
    value : float32
        The weight; its product with an FP16 number is exact.
    axes : tuple of int64
        H, W, Ho, Wo, kernel, stride and leading pads, each (h, w).
    first, end : int64
    saturate : int64
        Whether the final rounding clamps.
    """
    words = np.empty(dy.shape[1], np.uint32)
    sums = np.empty(dx.shape[1], np.float32)
    apart = axes[6] >= axes[4] and axes[7] >= axes[5]
    for plane in range(first, end):
        decode_fp16(dy[plane], words)
        if apart:
            _copy_windows(words.view(np.float32), dx[plane], value, axes, saturate)
            continue
        sums[:] = np.float32(0.0)
        _add_windows(words.view(np.float32), sums, value, axes)
        encode_fp16(sums.view(np.uint32), dx[plane], RoundMode.RINT, saturate)
