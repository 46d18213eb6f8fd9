"""From a tiling for unified cores to what the jitted kernel reads: one record of plain integers."""

from __future__ import annotations

import numpy as np

from npu_sim.isa.op import Op, highest
from npu_sim.products import Product
from npu_sim.units import ceil_div
from ops.common.records import tensor_fields
from ops.conv3d_backprop_input.bias import BIAS_FIELDS, bias_fields
from ops.conv3d_backprop_input.operands import Operands
from ops.conv3d_backprop_input.problem_unified import C0, WindowProblem
from ops.conv3d_backprop_input.tiling_unified import Source, UnifiedTiling

_ADDRESSES = ("src", "dst", "weight", "src_tensor", "dst_tensor", "weight_tensor")
_SHAPE = (
    "batch", "groups", "src_c1", "dst_c1", "k_c1", "n_c1", "src_w", "src_hw", "out_w", "out_hw", "weight_rows", "kw",
    "window", "expand_h", "expand_w", "stride_h", "stride_w", "dil_h", "dil_w", "ke_w", "lead_h", "lead_w", "map_h",
    "map_w", "transposed",
)  # fmt: skip
_TILING = (
    "source", "spread", "by_row", "two_column", "load_w", "col0", "cols", "pad_left", "pad_right", "m_total",
    "m_per_row", "m_count", "n_count", "base_m", "base_n", "base_k", "plane_steps", "step_ka", "step_kb", "b_resident",
    "al1", "bl1", "cl0", "a1", "a1_bytes", "b1", "b1_bytes", "l0a_half", "l0b_half", "l0c_part", "ub_part", "ub_rows",
    "ub_cols", "ub_out", "ub_out_half", "slice_m", "slice_n", "has_v2", "batch_dim", "m_dim", "group_dim", "n_dim",
    "step_rows",
)  # fmt: skip

UNIFIED_PARAMS = np.dtype([(name, "i8") for name in _ADDRESSES + _SHAPE + _TILING + BIAS_FIELDS])
"""What `kernel_unified.convolve` reads: extents in pixels, planes of 16 channels and elements; addresses, ``*_bytes``,
halves and parts in bytes."""

_MOST_GAP = highest(Op.DATA_COPY, "dst_gap")
_MOST_BLOCKS = highest(Op.DATA_COPY, "block_count")


def unified_params(
    problem: WindowProblem,
    tiling: UnifiedTiling,
    product: Product,
    at: Operands,
) -> np.ndarray:
    """Return the parameters of the kernel for tensors in NC1HWC0 and FRACTAL_Z, C0 = 16.

    Parameters
    ----------
    problem : WindowProblem
        What is computed.
    tiling : UnifiedTiling
        How.
    product : Product
        Capacities, and which image-to-column load there is.
    at : Operands
        The tensors.

    Returns
    -------
    `UNIFIED_PARAMS`[1]
    """
    q, t, core = problem, tiling, product.core
    spread = t.source is Source.PIXELS and q.is_expanded
    a1_columns = t.a1_columns if not t.by_row else 0
    values = {
        **tensor_fields(src=at.source, dst=at.result, weight=at.weight),
        "batch": q.batch, "groups": q.groups, "src_c1": q.source_planes, "dst_c1": q.result_planes,
        "k_c1": q.k_planes, "n_c1": q.n_planes, "src_w": q.source[1], "src_hw": q.source[0] * q.source[1],
        "out_w": q.result[1], "out_hw": q.result[0] * q.result[1], "weight_rows": q.weight_rows, "kw": q.kernel[1],
        "window": q.taps, "expand_h": q.expand[0], "expand_w": q.expand[1],
        "stride_h": q.stride[0], "stride_w": q.stride[1], "dil_h": q.dilation[0], "dil_w": q.dilation[1],
        "ke_w": q.reach[1], "lead_h": q.lead[0], "lead_w": q.lead[1],
        "map_h": q.map_extent[0], "map_w": q.map_extent[1], "transposed": int(q.transposed),
        "source": int(t.source), "spread": int(spread), "by_row": t.by_row, "two_column": t.two_column,
        "load_w": t.load_columns, "col0": t.first_column, "cols": a1_columns, "pad_left": t.pad_left,
        "pad_right": t.pad_right, "m_total": t.m_total, "m_per_row": ceil_div(q.result[1], t.base_m),
        "m_count": t.m_count, "n_count": t.n_count, "base_m": t.base_m, "base_n": t.base_n, "base_k": t.base_k,
        "plane_steps": max(q.taps * C0 // t.base_k, 1), "step_ka": t.step_ka, "step_kb": t.step_kb,
        "b_resident": int(t.step_kb * t.base_k >= q.k_planes * q.taps * C0), "al1": t.al1_pbuffer,
        "bl1": t.bl1_pbuffer, "cl0": t.cl0_pbuffer, "a1": 0, "a1_bytes": t.a1_bytes,
        "b1": t.al1_pbuffer * t.a1_bytes, "b1_bytes": t.b1_bytes, "l0a_half": core.l0a_bytes // 2,
        "l0b_half": core.l0b_bytes // 2, "l0c_part": core.l0c_bytes // t.cl0_pbuffer, "ub_part": core.ub_bytes // 4,
        "ub_rows": t.ub_rows, "ub_cols": t.ub_columns, "ub_out": 0 if spread else core.ub_bytes // 2,
        "ub_out_half": core.ub_bytes // 2 if spread else core.ub_bytes // 4, "slice_m": t.slice_m,
        "slice_n": t.slice_n, "has_v2": int(core.has_load3d_v2), "batch_dim": t.batch_dim, "m_dim": t.m_dim,
        "group_dim": t.group_dim, "n_dim": t.n_dim, "step_rows": _step_rows(q, t, core.ub_bytes // 4),
        **dict.fromkeys(BIAS_FIELDS, 0),
    }  # fmt: skip
    if at.bias is not None:
        values |= bias_fields(at.bias, "fp16", t.al1_pbuffer * t.a1_bytes + t.bl1_pbuffer * t.b1_bytes)
    out = np.zeros(1, UNIFIED_PARAMS)
    for name in UNIFIED_PARAMS.names or ():
        out[name] = values[name]
    return out


def _step_rows(q: WindowProblem, t: UnifiedTiling, zero_bytes: int) -> int:
    """Return an upper bound of the rows of one indivisible step: of a pass of loading, a step of K, a slice."""
    planes = max(t.step_ka * t.base_k // (q.taps * C0), 1)
    taps = min(t.step_kb * t.base_k // C0, q.taps)
    weights = max(t.base_n // C0, t.step_kb * t.base_k // (q.taps * C0)) * taps
    if q.weight_rows <= _MOST_GAP:
        weights = ceil_div(weights, _MOST_BLOCKS) + (t.base_n // C0 if taps < q.taps else 0)
    lines = t.base_m // q.result[1] + 2
    load = {
        Source.MAP: planes + t.a1_rows,
        Source.DILATED: 2 * t.ub_rows,
        Source.GATHERED: lines + t.base_m + ceil_div(t.a1_bytes, zero_bytes),
        Source.PIXELS: (planes + 1) * (C0 + 1),
    }[t.source]
    fractals = ceil_div(max(t.base_m, t.base_k), C0) + ceil_div(t.base_k, C0)
    leave = t.slice_n * (t.slice_m // q.source[1] + 3)
    return 96 + weights + load + fractals + leave
