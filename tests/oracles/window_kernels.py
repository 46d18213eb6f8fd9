"""Input gradients and forward convolutions of unified cores: tensors packed by hand, sums in the machine's order.

Nothing of the layouts, kernels or tilings is used. `gradient_bits` and `forward_bits` follow the K order of the
published schedule (channel block, window row, window column, channel; the gradient's windows walk the kernel backwards)
over explicit maps with every inserted zero and all padding written out, one float32 rounding per 16 products;
operands that are not finite are saturated before.
"""

from __future__ import annotations

import math

import numpy as np

C0 = 16


def pack_activation(values):
    """(n, c, h, w) as NC1HWC0 with zero padding lanes."""
    n, c, h, w = values.shape
    padded = np.zeros((n, -(-c // C0) * C0, h, w), values.dtype)
    padded[:, :c] = values
    return np.ascontiguousarray(padded.reshape(n, -1, C0, h, w).transpose(0, 1, 3, 4, 2))


def unpack_activation(storage, channels):
    """NC1HWC0 as (n, channels, h, w)."""
    n, c1, h, w, c0 = storage.shape
    return storage.transpose(0, 1, 4, 2, 3).reshape(n, c1 * c0, h, w)[:, :channels]


def merged(cin_group, cout_group, groups):
    """Groups merged into one, merged groups, channel blocks of the input and rows of the output of one."""
    mag = min(
        math.lcm(math.lcm(cin_group, C0) // cin_group, math.lcm(cout_group, 16) // cout_group),
        groups,
    )
    return mag, -(-groups // mag), -(-mag * cin_group // C0), -(-mag * cout_group // 16) * 16


def block_diagonal(weight, groups):
    """(real groups, rows, c1 * 16, kh, kw): the weight with merged groups, zeros off the diagonal."""
    cout, cin_group, kh, kw = weight.shape
    cout_group = cout // groups
    mag, real, c1, rows = merged(cin_group, cout_group, groups)
    out = np.zeros((real, rows, c1 * C0, kh, kw), weight.dtype)
    for group in range(groups):
        at = group % mag
        out[group // mag, at * cout_group : (at + 1) * cout_group, at * cin_group : (at + 1) * cin_group] = weight[
            group * cout_group : (group + 1) * cout_group
        ]
    return out


def pack_weight(weight, groups):
    """FRACTAL_Z: (real groups, c1, kh, kw, rows, 16)."""
    dense = block_diagonal(weight, groups)
    real, rows, channels, kh, kw = dense.shape
    return np.ascontiguousarray(dense.reshape(real, rows, channels // C0, C0, kh, kw).transpose(0, 2, 4, 5, 1, 3))


def _windows(source, expand, lead, stride, dilation, kernel, out, reverse, dense_rows, source_of, result_of, groups):
    """Sum windows over maps; see the callers."""
    n = source.shape[0]
    k_channels, n_channels = source_of, result_of
    map_h, map_w = source.shape[2] * expand[0], source.shape[3] * expand[1]
    reach = [(kernel[a] - 1) * dilation[a] + 1 for a in range(2)]
    # a map with room on all sides; windows are looked up in it with an offset
    room = [max(lead[a], 0) + reach[a] + out[a] * stride[a] for a in range(2)]
    result = np.zeros((n, groups * n_channels, *out), np.float32)
    for item in range(n):
        for group in range(groups):
            block = source[item, group * k_channels : (group + 1) * k_channels].astype(np.float64)
            wide = np.zeros((k_channels, map_h + 2 * room[0], map_w + 2 * room[1]))
            wide[: len(block), room[0] : room[0] + map_h : expand[0], room[1] : room[1] + map_w : expand[1]] = block
            acc = np.zeros((n_channels, *out), np.float32)
            for c1 in range(-(-len(block) // C0)):
                for th in range(kernel[0]):
                    for tw in range(kernel[1]):
                        y, x = room[0] - lead[0] + th * dilation[0], room[1] - lead[1] + tw * dilation[1]
                        seen = wide[
                            c1 * C0 : (c1 + 1) * C0,
                            y : y + (out[0] - 1) * stride[0] + 1 : stride[0],
                            x : x + (out[1] - 1) * stride[1] + 1 : stride[1],
                        ]
                        tap = (kernel[0] - 1 - th, kernel[1] - 1 - tw) if reverse else (th, tw)
                        total = acc.astype(np.float64)
                        for c in range(C0):
                            factors = dense_rows(group, c1 * C0 + c)[:, tap[0], tap[1]].astype(np.float64)
                            total = total + factors[:, None, None] * seen[c]
                        acc = total.astype(np.float32)
            result[item, group * n_channels : (group + 1) * n_channels] = acc
    return result


def gradient_bits(dy, weight, input_shape, stride, padding, dilation, groups):
    """dx in float16, rounded once from the float32 sums and saturated; padding is (up, down, left, right)."""
    dy, weight = saturated_operand(dy), saturated_operand(weight)
    cin, size, out = input_shape[1], input_shape[2:], dy.shape[2:]
    kernel = weight.shape[2:]
    dense = block_diagonal(weight, groups)
    _, real, c1, rows = merged(weight.shape[1], weight.shape[0] // groups, groups)
    source = np.zeros((dy.shape[0], real * rows, *out), dy.dtype)
    source[:, : dy.shape[1]] = dy
    lead = [(kernel[a] - 1) * dilation[a] - padding[2 * a] for a in range(2)]
    sums = _windows(
        source, stride, lead, (1, 1), dilation, kernel, size, True,
        lambda group, channel: dense[group, channel], rows, c1 * C0, real,
    )  # fmt: skip
    return saturated(sums[:, :cin])


def forward_bits(x, weight, output_shape, stride, padding, dilation, groups):
    """y in float16; see `gradient_bits`."""
    x, weight = saturated_operand(x), saturated_operand(weight)
    dense = block_diagonal(weight, groups)
    _, real, c1, rows = merged(weight.shape[1], weight.shape[0] // groups, groups)
    source = np.zeros((x.shape[0], real * c1 * C0, *x.shape[2:]), x.dtype)
    source[:, : x.shape[1]] = x
    sums = _windows(
        source, (1, 1), (padding[0], padding[2]), stride, dilation, weight.shape[2:], output_shape[2:], False,
        lambda group, channel: dense[group, :, channel], c1 * C0, rows, real,
    )  # fmt: skip
    return saturated(sums[:, : output_shape[1]])


def saturated_operand(values):
    """float16 as saturation mode takes it: infinities become the largest number, NaN becomes 0."""
    return np.where(np.isnan(values), np.float16(0), np.clip(values, np.float16(-65504), np.float16(65504)))


def saturated(values):
    """float32 to float16, nearest even, clamped to the largest number."""
    with np.errstate(over="ignore"):
        return np.clip(values.astype(np.float16), np.float16(-65504), np.float16(65504))
