"""The weights' way from global memory into L0B on unified cores.

Forward: FRACTAL_Z is (group, c1, kh, kw, output channel, c0): with the output channels as N, K fractal after K fractal,
that is the order of L0B itself (asc-devkit ``docs/zh/api/SIMD-API``, matrix fractal formats).
Input gradient: output channels are rows, but here they are K. So each 16 x 16 fractal is transposed on its way to L0B,
and tap t of K is tap ``kh * kw - 1 - t`` of the kernel
(CANN 8.1.RC1 ``tbe/dsl/compute/conv2d_backprop_input_general_compute.py``).
"""

from __future__ import annotations

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_load_2d
from npu_sim.isa.op import Data, Mode, Space
from ops.common.kernel_parts import BLOCK, copy_runs
from ops.conv3d_backprop_input.kernel_unified_work import LOAD_B, LOAD_L0B


@jit
def load_b1(rows, n, p, item, part, dst):
    """Copy ``part`` of the weights to L1: [K fractal][N rows][16]; input gradient: [c1][taps][K rows][16]."""
    row = item.n_index * p.base_n
    if not p.transposed:
        plane = item.group * p.k_c1 + part.plane
        tap, pieces, blocks, length = part.tap, 1, part.planes * part.taps, item.n_blocks * 16
    else:
        plane, row = item.group * p.n_c1 + row // 16, part.plane * 16
        tap, length = p.window - part.tap - part.taps, part.planes * 16
        # some taps of each N block are a piece each, all taps of all N blocks are one
        pieces, blocks = item.n_blocks, part.taps
        if part.taps == p.window:
            pieces, blocks = 1, item.n_blocks * p.window
    src = p.weight + ((plane * p.window + tap) * p.weight_rows + row) * BLOCK
    for piece in range(pieces):
        n = copy_runs(
            rows, n, Space.L1, dst + piece * blocks * length * BLOCK, Space.GM,
            src + piece * p.window * p.weight_rows * BLOCK, blocks, length, src_step=p.weight_rows, dst_step=length,
            data=Data.FP16, tensor=p.weight_tensor, site=LOAD_B, tile=item.tile,
        )  # fmt: skip
    return n


@jit
def load_l0b(rows, n, p, item, part, src, fractal, k_len, dst):
    """Weights from K fractal ``fractal`` of the L1 step on to L0B, input gradient: each fractal transposed."""
    if not p.transposed:
        return emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst, src_space=Space.L1, src=src + fractal * item.n_blocks * 512,
            dtype=Data.FP16, start_index=0, repeat=k_len // 16 * item.n_blocks, src_stride=1, dst_gap=0, mode=0,
            tensor=-1, site=LOAD_L0B, tile=item.tile,
        )  # fmt: skip
    for j in range(k_len // 16):
        plane, tap = (fractal + j) // part.taps, (fractal + j) % part.taps
        n = emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst + j * item.n_blocks * 512, src_space=Space.L1,
            src=src + ((part.taps - 1 - tap) * part.planes + plane) * 512, dtype=Data.FP16, start_index=0,
            repeat=item.n_blocks, src_stride=part.taps * part.planes, dst_gap=0, mode=Mode.TRANSPOSE, tensor=-1,
            site=LOAD_L0B, tile=item.tile,
        )  # fmt: skip
    return n
