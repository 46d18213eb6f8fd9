"""What only the input gradient does on unified cores: weights transposed with reversed taps, results spread with zeros.

The weight lies in FRACTAL_Z as (group, c1, kh, kw, output channel, c0): output channels are rows, but here they are K.
So each 16 x 16 fractal is transposed on its way to L0B, and tap t of K is tap ``kh * kw - 1 - t`` of the kernel
(CANN 8.1.RC1 ``tbe/dsl/compute/conv2d_backprop_input_general_compute.py``).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_duplicate, emit_load_2d
from npu_sim.isa.op import Data, Mode, Space
from ops.common.kernel_parts import BLOCK, ceil_div
from ops.conv3d_backprop_input.kernel_windows_unified import (
    B_PLANES,
    B_TAP,
    B_TAPS,
    DRAIN,
    GROUP,
    ITEM,
    LOAD_L0B,
    N_BLOCKS,
    N_INDEX,
    strew,
)


@jit
def weight_address(p, s, plane):
    """Return where the weights of an L1 step that begins in K plane ``plane`` are.

    That is the address, pieces ``window`` blocks apart, blocks in one, and a block's length in rows of the weight: one
    piece if the step has all taps, else one for each N block.
    """
    block = s[GROUP] * p["n_c1"] + s[N_INDEX] * (p["base_n"] // 16)
    first = block * p["window"] + p["window"] - s[B_TAP] - s[B_TAPS]
    pieces, blocks = s[N_BLOCKS], s[B_TAPS]
    if blocks == p["window"]:
        pieces, blocks = np.int64(1), s[N_BLOCKS] * p["window"]
    return p["weight"] + (first * p["weight_rows"] + plane * 16) * BLOCK, pieces, blocks, s[B_PLANES] * 16


@jit
def load_l0b(rows, n, p, s, dst, src, fractal, k_use):
    """L1 [c1][taps][K rows][16] to L0B: per K fractal all N blocks, each transposed."""
    length, taps = s[B_PLANES], s[B_TAPS]
    for j in range(k_use // 16):
        plane, tap = (fractal + j) // taps, (fractal + j) % taps
        n = emit_load_2d(
            rows,
            n,
            Space.L0B,
            dst + j * s[N_BLOCKS] * 512,
            Space.L1,
            src + ((taps - 1 - tap) * length + plane) * 512,
            Data.FP16,
            0,
            s[N_BLOCKS],
            taps * length,
            0,
            Mode.TRANSPOSE,
            -1,
            LOAD_L0B,
            s[ITEM],
        )
    return n


@jit
def result_pixel(p, pixel):
    """Return the pixel of the result where source pixel ``pixel`` stands; behind the last one that is its end."""
    if pixel == p["src_hw"]:
        return p["out_hw"]
    return pixel // p["src_w"] * p["expand_h"] * p["out_w"] + pixel % p["src_w"] * p["expand_w"]


@jit
def spread_extent(p, begin, count):
    """Return the first pixel of the result that ``count`` source pixels from ``begin`` on own, and how many they own.

    A pixel owns everything up to the next one, the first one also what stands before it (nothing).
    """
    at = result_pixel(p, begin)
    return at, result_pixel(p, begin + count) - at


@jit
def spread(rows, n, p, dst, src, begin, count, planes, tile):
    """Insert the zeros around ``count`` pixels of ``planes`` channel blocks that came from L0C to UB."""
    padded = ceil_div(count, 16) * 16
    at, span = spread_extent(p, begin, count)
    n = emit_duplicate(rows, n, dst, Data.FP16, planes * span * 16, 0, DRAIN, tile)
    for plane in range(planes):
        done = np.int64(0)
        while done < count:
            pixel = begin + done
            length = min(count - done, p["src_w"] - pixel % p["src_w"])
            n = strew(
                rows,
                n,
                dst + (plane * span + result_pixel(p, pixel) - at) * BLOCK,
                src + (plane * padded + done) * BLOCK,
                length,
                p["expand_w"],
                DRAIN,
                tile,
            )
            done += length
    return n
