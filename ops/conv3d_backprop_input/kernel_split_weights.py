"""The weights' way from global memory into L0B on dav-c220.

Input gradient: N = input channels, K = (c1 of dy, reversed window, c0). The weight lies in L1 as in global memory; its
fractals are transposed, and the taps reversed, on the way to L0B. Forward: N = output channels, K = (c1 of x, window,
c0). The weight's FRACTAL_Z image is the order of L0B already.

Source: ops-nn ``conv/conv3d_backprop_input_v2/op_kernel/arch22`` (conv_bp_sub_func: LoadToB1, LoadToB2).
ASSUMED: CANN's forward kernel is closed. This is the same machine code in the order that its formats suggest.
"""

from __future__ import annotations

from typing import NamedTuple

from npu_sim._jit import jit
from npu_sim.isa.emit import emit_load_2d, emit_load_3d, set_feature_map, set_window
from npu_sim.isa.op import Mode, Space
from ops.common.kernel_parts import BLOCK, ceil_div, copy_planes
from ops.conv3d_backprop_input.kernel_split_work import LOAD_B1, LOAD_L0B, k_part

MAX_REPEAT = 255
"""Fractals of one LoadData 2D (asc-devkit ``docs/zh/api/SIMD-API``, LoadData2DParams)."""


class Weights(NamedTuple):
    """What an L1 buffer has of K, see `KPart`: ``rows`` of 32 bytes in each of its planes."""

    first: int
    blocks: int
    tap: int
    taps: int
    rows: int


@jit
def weights_of(p, item, block, k):
    """Return what the L1 buffer holds that is filled for K step ``k``."""
    part = k_part(p, item, k, p.step_kb)
    if p.forward:
        rows = ceil_div(block.n_len, 16) * 16
    else:
        # fp32: rows come in whole fractals of 16, so a run may begin with half a fractal that it does not need
        rows = ceil_div((part.first + part.blocks) * p.c0, 16) * 16 - part.first * p.c0 // 16 * 16
    return Weights(part.first, part.blocks, part.tap, part.taps, rows)


@jit
def load_b1(rows, n, p, item, block, weights, tap, dst, tile):
    """Copy the weights of depth tap ``tap`` to L1.

    Input gradient: [input channel block][taps][rows][C0]; forward: [input channel block * taps][rows][C0].
    """
    khw = p.kh * p.kw
    if p.all_taps != khw:
        return _load_phase(rows, n, p, item, block, weights, tap, dst, tile)
    plane, pieces = (item.group * p.kd + tap) * p.cin1_g * khw, 1
    if p.forward:
        plane, row, planes = (
            plane + weights.first * khw + weights.tap,
            block.n_block * p.c0,
            weights.blocks * weights.taps,
        )
    else:
        plane, row = plane + block.n_block * khw + khw - weights.tap - weights.taps, weights.first * p.c0 // 16 * 16
        # some taps of each input channel block are a piece each, all taps of all of them are one
        pieces, planes = block.n_len // p.c0, weights.taps
        if weights.taps == khw:
            pieces, planes = 1, pieces * khw
    src = p.weight + (plane * p.cout_g + row) * BLOCK
    for piece in range(pieces):
        n = copy_planes(
            rows, n, dst + piece * planes * weights.rows * BLOCK, src + piece * khw * p.cout_g * BLOCK, planes,
            length=weights.rows, dst_plane=weights.rows, src_plane=p.cout_g, data=p.data, tensor=p.weight_tensor,
            site=LOAD_B1, tile=tile,
        )  # fmt: skip
    return n


@jit
def _load_phase(rows, n, p, item, block, weights, tap, dst, tile):
    """Copy the taps of a phase of a split kernel, rows of taps one by one, in the layout of a whole kernel."""
    for piece in range(block.n_len // p.c0):
        plane = ((item.group * p.kd + tap) * p.cin1_g + block.n_block + piece) * p.all_taps + p.first_tap
        for row in range(p.kh):
            src = p.weight + ((plane + row * p.tap_step_h) * p.cout_g + weights.first * p.c0) * BLOCK
            to = dst + (piece * p.kh + row) * p.kw * weights.rows * BLOCK
            n = copy_planes(
                rows, n, to, src, p.kw, length=weights.rows, dst_plane=weights.rows,
                src_plane=p.tap_step_w * p.cout_g, data=p.data, tensor=p.weight_tensor, site=LOAD_B1, tile=tile,
            )  # fmt: skip
    return n


@jit
def load_l0b(rows, n, p, block, weights, src, k_start, k_len, dst, tile):
    """Weights from K element ``k_start`` of the L1 buffer on to L0B."""
    first, k_blocks = k_start // p.c0, k_len // p.c0
    if p.forward:
        return _load_as_is(rows, n, p, weights, src, first, k_blocks, dst, tile)
    if p.c0 == 16:
        return _load_transposed(rows, n, p, block, weights, src, first, k_blocks, dst, tile)
    return _load_transposed_32bit(rows, n, p, block, weights, src, first, k_blocks, dst, tile)


@jit
def _load_as_is(rows, n, p, weights, src, first, k_blocks, dst, tile):
    """Load the fractals of the step as they follow each other in L1."""
    n1 = weights.rows // 16
    for done in range(0, k_blocks * n1, MAX_REPEAT):
        n = emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst + done * 512, src_space=Space.L1, src=src + (first * n1 + done) * 512,
            dtype=p.data, start_index=0, repeat=min(k_blocks * n1 - done, MAX_REPEAT), src_stride=1, dst_gap=0, mode=0,
            tensor=-1, site=LOAD_L0B, tile=tile,
        )  # fmt: skip
    return n


@jit
def _weight_row(p, weights, q):
    """Return the row of a plane block in L1 of K block ``q`` of the buffer, (c1, tap counted from the end)."""
    # rows of the buffer's first fractal that lie before its first channel block
    before = weights.first * p.c0 % 16
    return (weights.taps - 1 - q % weights.taps) * weights.rows + before + q // weights.taps * p.c0


@jit
def _load_transposed(rows, n, p, block, weights, src, first, k_blocks, dst, tile):
    """Load for every (c1, tap) of the step the fractals of all N, transposed."""
    n1 = ceil_div(block.n_len, 16)
    for j in range(k_blocks):
        n = emit_load_2d(
            rows, n, dst_space=Space.L0B, dst=dst + j * n1 * 512, src_space=Space.L1,
            src=src + _weight_row(p, weights, first + j) * BLOCK, dtype=p.data, start_index=0, repeat=n1,
            src_stride=weights.taps * weights.rows // 16, dst_gap=0, mode=Mode.TRANSPOSE, tensor=-1, site=LOAD_L0B,
            tile=tile,
        )  # fmt: skip
    return n


@jit
def _load_transposed_32bit(rows, n, p, block, weights, src, first, k_blocks, dst, tile):
    """Load 16 rows at a time, which image-to-column transposes; windows above 1 x 1 use only the first 8 of them."""
    n1 = ceil_div(block.n_len, 16)
    height = weights.taps * weights.rows
    whole = p.kh * p.kw == 1
    for j in range(0, k_blocks, 2 if whole else 1):
        start = _weight_row(p, weights, first + j)
        points = min(16, height - start, (k_blocks - j) * 8 if whole else 16)
        set_feature_map(rows, n, 1, height, 0, 0, 0, 0)
        set_window(rows, n, 1, 1, 1, 1, 1, 1)
        n = emit_load_3d(
            rows, n, dst_space=Space.L0B, dst=dst + j * n1 * 512, src=src, dtype=p.data, channel_size=block.n_len,
            k_ext=block.n_len, m_ext=points, k_start=0, m_start=start, mode=0, site=LOAD_L0B, tile=tile,
        )  # fmt: skip
    return n
