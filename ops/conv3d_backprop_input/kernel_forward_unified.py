"""What only the forward convolution does on unified cores: the weight needs no transposition.

FRACTAL_Z is (group, c1, kh, kw, output channel, c0): with the output channels as N, K fractal after K fractal, that is
the order of L0B itself (asc-devkit ``docs/zh/api/SIMD-API``, matrix fractal formats).
"""

from __future__ import annotations

import numpy as np

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_load_2d
from npu_sim.isa.op import Data, Space
from ops.common.kernel_parts import BLOCK
from ops.conv3d_backprop_input.kernel_windows_unified import (
    B_PLANES,
    B_TAP,
    B_TAPS,
    GROUP,
    ITEM,
    LOAD_L0B,
    N_BLOCKS,
    N_INDEX,
)


@jit
def weight_address(p, s, plane):
    """Return where the weights of an L1 step are, as one piece; see `kernel_dx_unified.weight_address`."""
    first = (s[GROUP] * p["k_c1"] + plane) * p["window"] + s[B_TAP]
    row = s[N_INDEX] * p["base_n"]
    address = p["weight"] + (first * p["weight_rows"] + row) * BLOCK
    return address, np.int64(1), s[B_PLANES] * s[B_TAPS], s[N_BLOCKS] * 16


@jit
def load_l0b(rows, n, p, s, dst, src, fractal, k_use):
    """L1 [K fractal][N rows][16] to L0B, all fractals of the step as they stand."""
    count = k_use // 16 * s[N_BLOCKS]
    return emit_load_2d(
        rows,
        n,
        Space.L0B,
        dst,
        Space.L1,
        src + fractal * s[N_BLOCKS] * 512,
        Data.FP16,
        0,
        count,
        1,
        0,
        0,
        -1,
        LOAD_L0B,
        s[ITEM],
    )
