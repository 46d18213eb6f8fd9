"""The DSL's weight gradient by its definition on 6HD tensors of integers, and the meaning of its result.

Plain loops and sums over the compute graph's own element definitions; nothing of the operators or layouts is imported.
"""

from __future__ import annotations

import itertools
import math

import numpy as np


def result(x, dy, kernel, strides, pads, dilations, group):
    """Return int64 (real_g, KD * cin1_g * KH * KW, cout_g, 16) for integer-valued x, dy (N, D, C1, H, W, 16).

    Blocks that the tensors do not have give 0; a tap in the padding adds nothing. The sums are float64, which is exact
    (and fast) for integers below 2^53.
    """
    assert (x == np.rint(x)).all()
    assert (dy == np.rint(dy)).all()
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    assert np.abs(x).max() * np.abs(dy).max() * dy.size < 2**53
    _, di, c1_x, hi, wi, _ = x.shape
    _, do, c1_dy, ho, wo, _ = dy.shape
    kd, kh, kw = kernel
    real_g, cin1_g, cout_g = group["real_g"], group["cin1_g"], group["cout_g"]
    out = np.zeros((real_g, kd, cin1_g, kh, kw, cout_g // 16, 16, 16), np.int64)
    taps = itertools.product(range(real_g), range(kd), range(cin1_g), range(kh), range(kw), range(cout_g // 16))
    for g, d, c, h, w, m1 in taps:
        x_block, dy_block = g * cin1_g + c, g * (cout_g // 16) + m1
        if x_block >= c1_x or dy_block >= c1_dy:
            continue
        depths = _pairs(do, di, strides[0], d * dilations[0] - pads[0])
        rows = _pairs(ho, hi, strides[1], h * dilations[1] - pads[2])
        columns = _pairs(wo, wi, strides[2], w * dilations[2] - pads[4])
        a = dy[:, depths[0], dy_block, rows[0], columns[0]]
        b = x[:, depths[1], x_block, rows[1], columns[1]]
        out[g, d, c, h, w, m1] = a.reshape(-1, 16).T @ b.reshape(-1, 16)
    return out.reshape(real_g, kd * cin1_g * kh * kw, cout_g, 16)


def _pairs(outputs, inputs, stride, offset):
    """Output positions whose tap at ``offset`` lies inside the input, and where it lies."""
    inside = [o for o in range(outputs) if 0 <= o * stride + offset < inputs]
    if not inside:
        return slice(0), slice(0)
    first, end = inside[0], inside[-1] + 1
    return slice(first, end), slice(first * stride + offset, (end - 1) * stride + offset + 1, stride)


def to_blocks(tensor):
    """(N, C, D, H, W) as (N, D, C1, H, W, 16), zero behind the last channel."""
    n, c, d, h, w = tensor.shape
    out = np.zeros((n, d, -(-c // 16), h, w, 16), tensor.dtype)
    for channel in range(c):
        out[:, :, channel // 16, :, :, channel % 16] = tensor[:, channel]
    return out


def plain(values, kernel, cin, cout, groups, group):
    """The gradient (Cout, Cin / groups, KD, KH, KW), element by element from the result."""
    cg, og = cin // groups, cout // groups
    mag, cin1_g = group["mag_factor"], group["cin1_g"]
    out = np.zeros((cout, cg, *kernel), values.dtype)
    for co, ci, d, h, w in itertools.product(range(cout), range(cg), *map(range, kernel)):
        j = co // og
        g = j // mag
        m, n = co - g * mag * og, j * cg + ci - g * mag * cg
        out[co, ci, d, h, w] = values[g, ((d * cin1_g + n // 16) * kernel[1] + h) * kernel[2] + w, m, n % 16]
    return out


def mask(kernel, cin, cout, groups, group):
    """1 where input and output channel exist and share a group, element by element."""
    real_g, cin1_g, cout_g = group["real_g"], group["cin1_g"], group["cout_g"]
    out = np.zeros((real_g, kernel[0], cin1_g, kernel[1] * kernel[2], cout_g, 16), np.float32)
    for g, c, m, n in itertools.product(range(real_g), range(cin1_g), range(cout_g), range(16)):
        ci, co = (g * cin1_g + c) * 16 + n, g * cout_g + m
        out[g, :, c, :, m, n] = ci < cin and co < cout and ci // (cin // groups) == co // (cout // groups)
    return out.reshape(real_g, math.prod(kernel) * cin1_g, cout_g, 16)


def groups_of(cin, cout, groups):
    """``group_dict``: merge the fewest groups that fill whole blocks of both channels, if there are that many."""
    cg, og = cin // groups, cout // groups
    whole = next(mag for mag in itertools.count(1) if mag * cg % 16 == 0 and mag * og % 16 == 0)
    mag = min(whole, groups)
    return {
        "real_g": len(range(0, groups, mag)),
        "mag_factor": mag,
        "cin1_g": -(-mag * cg // 16),
        "cout_g": -(-mag * og // 16) * 16,
        "cin_ori": cin,
        "cout_ori": cout,
    }


def refusal(x, dy, kernel, strides, pads, dilations, series):
    """The code of the first published check that a call of fitting 6HD shapes fails, None if it fails none.

    The page has no ranges; these are canndev's ``conv3d_backprop_filter_compute.py``, in its order.
    """
    if 0 in x or 0 in dy or 0 in kernel:
        return "E62509"
    narrow = dy[4] == 1 and dy[3] != 1
    if narrow and series != "310" and x[4] + pads[4] + pads[5] > 63:
        return "E62006"
    if max(x[1], x[3], x[4], dy[1], dy[3], dy[4]) > 4096 or max(kernel) > 256 or max(strides) > 63:
        return "E60011"
    if max(dilations) > 255:
        return "E60011"
    if min(pads) < 0:
        return "E60011"
    reaches = [(kernel[a // 2] - 1) * dilations[a // 2] + 1 for a in range(6)]
    return "E60108" if any(pad >= reach for pad, reach in zip(pads, reaches, strict=True)) else None
