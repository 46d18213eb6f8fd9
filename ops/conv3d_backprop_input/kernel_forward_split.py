"""Loads of the forward convolution on dav-c220 that differ from those of the input gradient: the weight and depth.

M = output pixels, N = output channels, K = (c1 of x, window, c0). The image-to-column load walks over the rows of x
with the real strides; the weight's FRACTAL_Z image is the order of L0B already.

ASSUMED: CANN's forward kernel is closed. This is the same machine code in the order that its formats suggest.
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_load_2d
from npu_sim.isa.op import Space
from ops.common.kernel_parts import BLOCK, ceil_div, copy_planes
from ops.conv3d_backprop_input.kernel_split_state import B_ROWS, GROUP, ITEM, LOAD_B1, LOAD_L0B, N1, N_START, K

MAX_REPEAT = 255
"""Fractals of one LoadData 2D (asc-devkit ``docs/zh/api/SIMD-API``, LoadData2DParams)."""


@jit
def load_b1(rows, n, p, s, tap, block0, blocks, n_use, dst):
    """Copy ``blocks`` channel blocks of input channels of the weight to L1, [cin1 * kh * kw][N][C0]."""
    khw = p["kh"] * p["kw"]
    s[B_ROWS] = ceil_div(n_use, 16) * 16
    n0 = s[N_START] * p["c0"] + s[N1] * p["base_n"]
    depth = (s[GROUP] * p["kd"] + tap) * p["cin1_g"] + block0
    src = p["weight"] + (depth * khw * p["cout_g"] + n0) * BLOCK
    return copy_planes(
        rows,
        n,
        dst,
        src,
        blocks * khw,
        s[B_ROWS],
        s[B_ROWS],
        p["cout_g"],
        p["data"],
        p["weight_tensor"],
        LOAD_B1,
        s[ITEM],
    )


@jit
def load_l0b(rows, n, p, s, src, dst, k_use):
    """Weight to L0B: the fractals of the step follow each other in L1."""
    n1 = s[B_ROWS] // 16
    count = k_use // p["c0"] * n1
    first = s[K] % p["step_kb"] * p["base_k"] // p["c0"] * n1
    done = 0
    while done < count:
        part = min(count - done, MAX_REPEAT)
        n = emit_load_2d(
            rows,
            n,
            Space.L0B,
            dst + done * 512,
            Space.L1,
            src + (first + done) * 512,
            p["data"],
            0,
            part,
            1,
            0,
            0,
            -1,
            LOAD_L0B,
            s[ITEM],
        )
        done += part
    return n


@jit
def depth_plane(p, d, tap):
    """Return the plane of x that depth tap ``tap`` of plane ``d`` of y reads, -1 inside the padding."""
    plane = d * p["stride_d"] - p["pad_front"] + tap * p["dilation_d"]
    return plane if 0 <= plane < p["a_d"] else -1
