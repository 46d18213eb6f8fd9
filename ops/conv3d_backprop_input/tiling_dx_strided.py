"""The two network shapes whose input gradient on dav-c220 splits its kernel by the stride.

The rows and columns of dx that have one remainder by the stride, a *phase*, need only every second tap of the kernel:
each phase is a convolution of dy itself, without inserted zeros, with a smaller kernel. Phases follow each other within
a batch item; each block of one leaves L0C with a stride.

Source, restated: ops-nn ``conv/conv3d_backprop_input_v2``: op_host/op_tiling/arch22 ``conv3d_backprop_input_v2_base_
tiling.cpp`` (CheckKernelSplitEnable, tables), op_kernel/arch22 ``conv3d_bp_kernel_split.h``. The operator does so for
these shapes alone, with 20 or 24 cores. It does not look at the type of the operands; fp32 operands are not split here,
because its kernel then takes their weights the way it takes whole kernels'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npu_sim.products import CoreSpec
from npu_sim.units import align_up
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_BASE, DxProblem, DxTiling, block_rows

_TWO_BY_TWO = (4, 4, 4, 2, 2, 2, 3, 3, 3, 3, 3, 3, 1, 1, 1)
_SMALL = (1, 62, 16, 66, 66, 120, 16, 128, 128, *_TWO_BY_TWO)
_LARGE = (1, 122, 16, 130, 130, 240, 1, 256, 256, *_TWO_BY_TWO)
_SMALL_BLOCK = {
    "single_core_cin": 256, "cl0_pbuffer": 2, "al1_pbuffer": 2, "base_m": 128, "base_n": 128, "step_ka": 8,
    "step_kb": 8,
}  # fmt: skip
_LARGE_BLOCK = {
    "single_core_cin": 16, "cl0_pbuffer": 2, "al1_pbuffer": 1, "base_m": 256, "base_n": 16, "step_ka": 16,
    "step_kb": 32,
}  # fmt: skip
_TABLES: dict[tuple[int, tuple[int, ...]], dict[str, Any]] = {
    (24, _SMALL): _SMALL_BLOCK | {"m_dim": 8, "d_dim": 3, "single_core_m": 2048, "single_core_din": 40},
    (20, _SMALL): _SMALL_BLOCK | {"m_dim": 4, "d_dim": 5, "single_core_m": 4096, "single_core_din": 24},
    (24, _LARGE): _LARGE_BLOCK | {"m_dim": 8, "d_dim": 3, "single_core_m": 8192, "single_core_din": 80},
    (20, _LARGE): _LARGE_BLOCK | {"m_dim": 4, "d_dim": 5, "single_core_m": 16384, "single_core_din": 48},
}
"""By number of cores and (N, Do, Co1, Ho, Wo, Di, Ci1, Hi, Wi, kernel, strides, pads, dilations)."""


def strided_tiling(problem: DxProblem, core: CoreSpec, cores: int) -> DxTiling | None:
    """Return the tiling of a problem whose kernel is split, None for any other."""
    g = problem.geometry
    y, x = (g.n, g.do, problem.cout1, g.ho, g.wo), (g.di, problem.cin1, g.hi, g.wi)
    key = (*y, *x, g.kd, g.kh, g.kw, *g.stride, *g.pad, *problem.dilation)
    if problem.item != 2 or problem.groups > 1 or (values := _TABLES.get((cores, key))) is None:
        return None
    tiling = DxTiling(
        problem=problem, base_k=64, bl1_pbuffer=2, core_num=cores, is_block_driver=False, splits_kernel=1,
        origin=ORIGIN_BASE, **values,
    )  # fmt: skip
    return tiling if strided_fits(tiling, core) else None


def phase_geometry(geometry: ConvGeometry) -> ConvGeometry:
    """Return the convolution of one phase: rows and columns of dx a stride apart, dy from the phase's first on.

    All phases have the same, for kernels that the stride divides and no padding of the dilated gradient.
    """
    g = geometry
    _, step_h, step_w = g.stride
    hi, wi, kh, kw = g.hi // step_h, g.wi // step_w, g.kh // step_h, g.kw // step_w
    return replace(
        g, hi=hi, wi=wi, kh=kh, kw=kw, ho=hi + kh - 1, wo=wi + kw - 1, stride=(g.stride[0], 1, 1),
        pad=(*g.pad[:2], kh - 1, kh - 1, kw - 1, kw - 1),
    )  # fmt: skip


def strided_fits(tiling: DxTiling, core: CoreSpec) -> bool:
    """Return whether the buffers of ``core`` hold a tiling of a split kernel."""
    t, part = tiling, phase_geometry(tiling.problem.geometry)
    window = part.kh * part.kw * t.problem.c0
    rows = min(block_rows(t.base_m, part.wi) - 1 + part.kh, part.ho)
    a1 = t.step_ka * t.base_k // window * rows * part.wo * 32
    b1 = t.base_n * t.step_kb * t.base_k * t.problem.item
    padded_n = align_up(t.base_n, 16)
    return (
        t.al1_pbuffer * a1 + t.bl1_pbuffer * b1 <= core.l1_bytes
        and 2 * t.base_m * t.base_k * t.problem.item <= core.l0a_bytes
        and 2 * padded_n * t.base_k * t.problem.item <= core.l0b_bytes
        and t.cl0_pbuffer * t.base_m * padded_n * 4 <= core.l0c_bytes
    )
