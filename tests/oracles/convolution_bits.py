"""Input gradients and forward convolutions in the Cube's order of additions, bit for bit.

One float32 sum per element over depth taps, then (channel block, window row, window column, channel), in groups of a
Cube model that never reach across a channel block; one rounding to the stored type. Every inserted zero is written out.
Small groups are summed alone, at the places their channels have in a merged group: what merging adds to finite sums are
zeros. Nothing of the kernels, tilings, layouts or engines is used.
"""

from __future__ import annotations

import math

import numpy as np


def gradient_sums(geometry, dy, weight, c0, group, inner, bias=None):
    """dx as float32 (n, cin, d, h, w) before the last rounding; ``inner`` is "exact" or "serial".

    "serial" needs products that float32 holds exactly. ``bias``: what the sums of a channel start from, else 0.
    """
    g = geometry
    planes = {}
    for d in range(g.di):
        taps = []
        for kd in range(g.kd):
            t = d + g.pad[0] - kd * g.dilation[0]
            if t >= 0 and t % g.stride[0] == 0 and t // g.stride[0] < g.do:
                taps.append((kd, t // g.stride[0]))
        planes[d] = taps
    lead = [(k - 1) * step - pad for k, step, pad in zip((g.kh, g.kw), g.dilation[1:], g.pad[2::2], strict=True)]
    flipped = weight[:, :, :, ::-1, ::-1].transpose(1, 0, 2, 3, 4)  # (cin / groups, cout, kd, kh, kw)
    size = (g.di, g.hi, g.wi)
    return _sums(g, dy, flipped, planes, size, lead, g.stride[1:], (1, 1), c0, group, inner, True, bias)


def forward_sums(geometry, x, weight, c0, group, inner, bias=None):
    """y as float32 (n, cout, d, h, w) before the last rounding; see `gradient_sums`."""
    g = geometry
    planes = {
        d: [
            (kd, d * g.stride[0] - g.pad[0] + kd * g.dilation[0])
            for kd in range(g.kd)
            if 0 <= d * g.stride[0] - g.pad[0] + kd * g.dilation[0] < g.di
        ]
        for d in range(g.do)
    }
    size = (g.do, g.ho, g.wo)
    return _sums(g, x, weight, planes, size, g.pad[2::2], (1, 1), g.stride[1:], c0, group, inner, False, bias)


def _sums(g, a, weight, planes, size, lead, expand, step, c0, group, inner, gradient, bias):
    cin_group, cout_group = g.cin // g.groups, g.cout // g.groups
    k_group, n_group = (cout_group, cin_group) if gradient else (cin_group, cout_group)
    merge = min(
        math.lcm(math.lcm(cin_group, c0) // cin_group, math.lcm(cout_group, 16) // cout_group),
        g.groups,
    )
    result = np.zeros((g.n, g.groups * n_group, *size), np.float32)
    for q in range(g.groups):
        own = a[:, q * k_group : (q + 1) * k_group].astype(np.float32)
        if gradient:
            w = weight[:, q * k_group : (q + 1) * k_group].astype(np.float32)
        else:
            w = weight[q * n_group : (q + 1) * n_group].astype(np.float32)
        places = [(q % merge) * k_group + i for i in range(k_group)]
        for d, taps in planes.items():
            acc = np.zeros((g.n, n_group, *size[1:]), np.float32)
            if bias is not None:
                acc += bias.astype(np.float32)[q * n_group : (q + 1) * n_group, None, None]
            for kd, plane in taps:
                acc = _add_plane(g, acc, own[:, :, plane], w[:, :, kd], places, lead, expand, step, c0, group, inner)
            result[:, q * n_group : (q + 1) * n_group, d] = acc
    return result


def _add_plane(g, acc, own, w, places, lead, expand, step, c0, group, inner):
    height, width = own.shape[2] * expand[0], own.shape[3] * expand[1]
    reach = (g.kh * g.dilation[1], g.kw * g.dilation[2])
    room = [abs(lead[a]) + reach[a] + acc.shape[2 + a] * step[a] for a in range(2)]
    wide = np.zeros((*own.shape[:2], height + 2 * room[0], width + 2 * room[1]), np.float32)
    wide[:, :, room[0] : room[0] + height : expand[0], room[1] : room[1] + width : expand[1]] = own
    wider = np.float64 if inner == "exact" else np.float32
    for c1 in sorted({place // c0 for place in places}):
        for th in range(g.kh):
            for tw in range(g.kw):
                y = room[0] - lead[0] + th * g.dilation[1]
                x = room[1] - lead[1] + tw * g.dilation[2]
                for part in range(c0 // group if inner == "exact" else 1):
                    lanes = group if inner == "exact" else c0
                    first = c1 * c0 + part * lanes
                    total = acc.astype(wider)
                    for i, place in enumerate(places):
                        if not first <= place < first + lanes:
                            continue
                        seen = wide[
                            :,
                            i,
                            y : y + (acc.shape[2] - 1) * step[0] + 1 : step[0],
                            x : x + (acc.shape[3] - 1) * step[1] + 1 : step[1],
                        ]
                        factor = w[:, i, th, tw].astype(wider)
                        total = total + factor[None, :, None, None] * seen[:, None].astype(wider)
                    acc = total.astype(np.float32)
    return acc
