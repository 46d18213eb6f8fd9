"""The network shapes for which the input gradient's base template has tilings of its own: fp32 and HF32 operands.

Source, values restated: ops-nn ``conv/conv3d_backprop_input_v2/op_host/op_tiling/arch22/
conv3d_backprop_input_v2_base_tiling.cpp``. Its tables for 16-bit operands name shapes that the basic-block template
takes first, and the two whose kernel is split by the stride (`tiling_dx_strided`).
"""

from __future__ import annotations

from typing import Any

from ops.conv3d_backprop_input.tiling_dx_data import ORIGIN_BASE, DxProblem, DxTiling

_Key = tuple[int, ...]
_FOUR_TAPS: _Key = (2, 4, 64, 18, 18, 3, 32, 17, 17, 4, 4, 4, 1, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 1)
_SEVEN_TAPS: _Key = (4, 6, 8, 112, 112, 17, 1, 229, 229, 7, 7, 7, 2, 2, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1)

_FOUR_TAPS_GRID = {
    "batch_dim": 2, "d_dim": 3, "single_core_m": 289, "base_m": 256, "base_k": 32, "base_d": 3, "step_ka": 48,
    "step_kb": 8, "is_block_driver": False,
}  # fmt: skip
_SEVEN_TAPS_BLOCKS = {
    "single_core_m": 46 * 229, "single_core_cin": 8, "base_m": 1024, "base_k": 8, "base_n": 16, "step_ka": 49,
    "step_kb": 196, "is_block_driver": True,
}  # fmt: skip
_TABLES: dict[tuple[int, _Key], dict[str, Any]] = {
    (24, _FOUR_TAPS): _FOUR_TAPS_GRID | {"core_num": 24, "n_dim": 4, "single_core_cin": 64, "base_n": 64},
    (20, _FOUR_TAPS): _FOUR_TAPS_GRID | {"core_num": 12, "n_dim": 2, "single_core_cin": 128, "base_n": 128},
    (24, _SEVEN_TAPS): _SEVEN_TAPS_BLOCKS | {"core_num": 24},
    (20, _SEVEN_TAPS): _SEVEN_TAPS_BLOCKS | {"core_num": 20},
}
"""By number of cores and (N, Do, Co1, Ho, Wo, Di, Ci1, Hi, Wi, kernel, strides, pads, dilations)."""


def table_tiling(problem: DxProblem, cores: int) -> DxTiling | None:
    """Return the tiling that the template has for exactly this problem of 32-bit operands, None if it has none."""
    g = problem.geometry
    y, x = (g.n, g.do, problem.cout1, g.ho, g.wo), (g.di, problem.cin1, g.hi, g.wi)
    key = (*y, *x, g.kd, g.kh, g.kw, *g.stride, *g.pad, *problem.dilation)
    if problem.item != 4 or problem.groups > 1 or (values := _TABLES.get((cores, key))) is None:
        return None
    return DxTiling(problem=problem, al1_pbuffer=2, bl1_pbuffer=2, origin=ORIGIN_BASE, **values)
