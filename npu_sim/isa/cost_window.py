"""Cost of img2col: which image rows the fractals of a window matrix touch."""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.codes import Space
from npu_sim.isa.cost_rates import divide_up, transfer_cycles


@jit
def output_width(row):
    """Return the output width of a load3d row, at least 1."""
    stride = np.int64(row["stride_w"])
    span = (np.int64(row["filter_w"]) - 1) * np.int64(row["dilation_w"]) + 1
    room = np.int64(row["l1_w"]) + np.int64(row["pad_left"]) + np.int64(row["pad_right"]) - span
    if room <= 0:
        return np.int64(1)
    if stride <= 1:
        return room + 1
    return np.int64(np.uint64(room) // np.uint64(stride)) + 1


@jit
def crossings(first, width, fractals):
    """Count the fractals of 16 outputs that touch one image row more than they must.

    Parameters
    ----------
    first : int64
        First output in its image row, in [0, width).
    width : int64
        Outputs per image row.
    fractals : int64
        Number of consecutive fractals.

    Returns
    -------
    (base, count)
        ``count`` fractals touch ``base + 1`` rows, the others ``base``.
    """
    if width > 16:
        base, rest, step = np.int64(1), np.int64(15), np.int64(16)
    else:
        base = np.int64(15) // width + 1
        rest = np.int64(15) % width
        step = np.int64(16) % width
    count = np.int64(0)
    at = first
    for _ in range(fractals):
        if at + rest >= width:
            count += 1
        at += step
        if at >= width:
            at -= width
    return base, count


@jit
def piece_reads(first, width, fractals, stride):
    """Count the 512-byte reads of ``fractals`` fractals under the rule of dav-c100 and dav-m200.

    Each image row inside the 16 outputs, and each run of 16 / strideW outputs of it, is one piece and one read; with
    a stride of 8 or none of 1, 2, 4 the 16 outputs are read one by one (TIK load3d evaluator).
    """
    if stride == 1:
        base, count = crossings(first, width, fractals)
        return fractals * base + count
    if stride != 2 and stride != 4:
        return fractals * 16
    reads = np.int64(0)
    at = first
    for _ in range(fractals):
        left = np.int64(16)
        while left > 0:
            run = min(left, width - at)
            reads += (run * stride + 15) // 16
            left -= run
            at += run
            if at == width:
                at = np.int64(0)
    return reads


@jit
def img2col_cycles(row, first, width, fractals, depth, cost):
    """Cycles of ``fractals`` groups of 16 outputs times ``depth`` blocks of C0 channels."""
    stride = np.int64(row["stride_w"])
    to_l0b = np.int64(row["dst_space"] == Space.L0B)
    if cost["img2col_pieces"] != 0:
        whole = width >= 64 or width % 16 == 0
        if whole and width == np.int64(row["l1_w"]) and row["filter_h"] == 1:
            reads = fractals * stride
        else:
            reads = piece_reads(first, width, fractals, stride)
        rate = cost["l1_to_l0b_millibytes_per_cycle"] if to_l0b else cost["l1_to_l0a_millibytes_per_cycle"]
        return transfer_cycles(reads * depth * 512, rate)
    if stride <= 1:
        group = 0
    elif stride == 2:
        group = 1
    elif stride == 4:
        group = 2
    elif stride == 8:
        group = 3
    else:
        group = 4
    base, count = crossings(first, width, fractals)
    table = cost["img2col_millicycles"]
    total = (fractals - count) * table[to_l0b, group, base]
    if count > 0:
        total += count * table[to_l0b, group, base + 1]
    return divide_up(total * depth, 1000)
