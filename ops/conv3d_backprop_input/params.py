"""From a tiling to what the jitted kernel of dav-c220 reads: one record of plain integers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.memory.gm import GmTensor
from npu_sim.products import CoreSpec
from npu_sim.units import align_up, ceil_div
from ops.common.kernel_parts import MAX_BLOCK_COUNT, MAX_FIELD
from ops.common.records import int_fields, record, tensor_fields
from ops.conv3d_backprop_input.bias import BIAS_FIELDS, bias_fields
from ops.conv3d_backprop_input.kernel_split_plain import STEP_ROWS
from ops.conv3d_backprop_input.tiling_dx_data import DxProblem, DxTiling, block_rows
from ops.conv3d_backprop_input.tiling_dx_strided import phase_geometry
from ops.conv3d_backprop_input.tiling_forward import ForwardTiling
from ops.conv3d_backprop_input.tiling_streamed import StreamedTiling

_NAMES = (
    # extents: out is the result (M its pixels), a the activations that are multiplied, in blocks of C0 channels
    "batch", "out_d", "out_h", "out_w", "out_c1", "n1_g", "a_d", "a_h", "a_w", "a_c1", "k1_g", "kd", "kh", "kw",
    "cout_g", "cin1_g", "groups", "c0", "forward",
    # geometry of the windows: image is what L1 holds, with zeros inserted between rows and columns of a
    "stride_d", "dilation_d", "pad_front", "window_step_h", "window_step_w", "dilation_h", "dilation_w", "image_up",
    "image_left", "image_right", "image_rows", "image_w", "insert_h", "insert_w", "first_column", "column_at",
    "columns", "base_rows",
    # phases of a split kernel: its taps among all of a depth plane, its pixels among all of the result
    "all_taps", "first_tap", "tap_step_h", "tap_step_w", "out_first", "out_step_h", "out_step_w",
    # streamed windows: lines of the map, blocks within one row of the result
    "per_row", "line_taps", "row_lines", "line_step", "load_step_w", "load_dilation_w",
    "pads_lines",
    # tensors
    "a", "weight", "out", "a_tensor", "weight_tensor", "out_tensor", "data", "out_data", "hf32", "clear",
    "clear_share", "out_blocks", "out_rest",
    # a plain result: its channels, and a place in memory for a block of each core
    "plain", "out_c", "slots", "slots_tensor", "slot_bytes", "ub_out",
    *BIAS_FIELDS,
    # tiling
    "base_m", "base_n", "base_k", "plane_steps", "step_ka", "step_kb", "al1", "bl1", "cl0", "b_full", "m_total",
    "m_unit", "single_m", "single_n", "m_count", "n_count", "items", "cores", "grid", "n_dim", "m_dim", "batch_dim",
    "d_dim", "single_d", "single_batch",
    "a1", "a1_bytes", "b1", "b1_bytes", "l0a_half", "l0b_half", "l0c_half", "l0c_rows", "step_rows",
)  # fmt: skip

SPLIT_PARAMS = int_fields(*_NAMES)
"""What `kernel_split.convolve` reads: extents in elements, addresses, ``*_bytes`` and halves in bytes."""

_WHOLE_ROWS = dict.fromkeys(
    ("per_row", "line_taps", "row_lines", "line_step", "load_step_w", "load_dilation_w", "pads_lines"), 0
)
_WHOLE_KERNEL = {"first_tap": 0, "tap_step_h": 0, "tap_step_w": 0, "out_first": 0, "out_step_h": 1, "out_step_w": 1}
_BLOCKED = dict.fromkeys(("plain", "out_c", "slots", "slots_tensor", "slot_bytes", "ub_out"), 0)
_NO_GRID = {"grid": 0, "n_dim": 1, "m_dim": 1, "batch_dim": 1, "d_dim": 1, "single_d": 1, "single_batch": 1}
_BASE = ("base_m", "base_n", "base_k", "step_ka", "step_kb")


@dataclass(frozen=True, slots=True)
class _Image:
    """What L1 holds of one plane of activations.

    Attributes
    ----------
    up, left, right : int
        Pads of the window walk; ``up`` may be negative (rows left out), the others are clipped at 0.
    rows, width : int
        Rows of the whole plane with inserted zeros; columns of it that are kept.
    first_column, column_at, columns : int
        First column of the activations that is kept, where it lands, and how many are.
    """

    up: int
    left: int
    right: int
    rows: int
    width: int
    first_column: int
    column_at: int
    columns: int


def _dilated_image(tiling: DxTiling) -> _Image:
    """Return the image of the dilated gradient; columns under negative pads are dropped."""
    p, g = tiling.problem, tiling.problem.geometry
    pads, step = p.back_pads, g.stride[2]
    height, width = p.dilated_extent
    cut_left, cut_right = max(-pads.left, 0), max(-pads.right, 0)
    first = ceil_div(cut_left, step)
    last = (width - 1 - cut_right) // step
    return _Image(
        up=pads.up,
        left=max(pads.left, 0),
        right=max(pads.right, 0),
        rows=height,
        width=max(width - cut_left - cut_right, 0),
        first_column=first,
        column_at=first * step - cut_left,
        columns=max(last - first + 1, 0),
    )


def dx_params(tiling: DxTiling, core: CoreSpec, dy: GmTensor, weight: GmTensor, dx: GmTensor) -> np.ndarray:
    """Return the parameters for an input gradient of tensors in NDC1HWC0 and FRACTAL_Z_3D."""
    t, p, g = tiling, tiling.problem, tiling.problem.geometry
    image = _dilated_image(t)
    # nothing is computed where no column of the gradient is left
    has_work = image.width > 0
    items = g.n * g.di * t.m_count * t.n_count * p.groups if has_work else 0
    clear = p.needs_clearing or g.stride[0] > g.kd or not has_work
    numbers = {
        "base_rows": block_rows(t.base_m, g.wi) - 1 + p.reach[1], "m_total": p.m, "m_unit": t.base_m,
        "single_m": t.single_core_m, "single_n": t.single_core_cin, "m_count": t.m_count, "n_count": t.n_count,
        "items": items, "cores": t.core_num, "grid": int(not t.is_block_driver), "n_dim": t.n_dim, "m_dim": t.m_dim,
        "batch_dim": t.batch_dim, "d_dim": t.d_dim, "single_d": t.single_core_din,
        "single_batch": t.single_core_batch if has_work else 0, "clear": int(clear),
        **{name: getattr(t, name) for name in _BASE}, "al1": t.al1_pbuffer, "bl1": t.bl1_pbuffer, "cl0": t.cl0_pbuffer,
    }  # fmt: skip
    values = _gradient_shape(p) | numbers | _common(t.problem, image, p.dilation) | _WHOLE_ROWS
    return _record(values | _image_buffers(values, p.c0 == 8), core, p.compute_dtype, dy, weight, dx)


def plain_params(
    tiling: DxTiling, core: CoreSpec, dy: GmTensor, weight: GmTensor, dx: GmTensor, slots: GmTensor
) -> np.ndarray:
    """Return the parameters for a result in NCDHW, of which blocks wait for the vector cores in ``slots``."""
    t, g = tiling, tiling.problem.geometry
    params = dx_params(t, core, dy, weight, dx)
    elems = g.n * g.cin * g.di * g.hi * g.wi
    values = tensor_fields(slots=slots) | {
        "plain": 1, "out_c": g.cin, "slot_bytes": slot_bytes(t), "ub_out": core.ub_bytes // 2,
        "out_blocks": elems // 16, "out_rest": elems % 16,
        "clear_share": align_up(ceil_div(elems, t.core_num), 32) // 16,
        "step_rows": max(int(params[0]["step_rows"]), STEP_ROWS),
    }  # fmt: skip
    for name, value in values.items():
        params[name] = value
    return params


def slot_bytes(tiling: DxTiling) -> int:
    """Return the bytes of a block of 16-bit elements."""
    return tiling.base_m * tiling.base_n * 2


def strided_params(tiling: DxTiling, core: CoreSpec, dy: GmTensor, weight: GmTensor, dx: GmTensor) -> np.ndarray:
    """Return the parameters for an input gradient whose kernel is split by the stride, a record for each phase."""
    t, p, g = tiling, tiling.problem, tiling.problem.geometry
    part = phase_geometry(g)
    phases = []
    for row, column in product(range(g.stride[1]), range(g.stride[2])):
        image = _Image(
            up=-row, left=0, right=0, rows=g.ho, width=part.wo, first_column=column, column_at=0, columns=part.wo
        )
        numbers = {
            "base_rows": block_rows(t.base_m, part.wi) - 1 + part.kh, "m_total": part.hi * part.wi,
            "m_unit": t.base_m, "single_m": t.single_core_m // (g.stride[1] * g.stride[2]),
            "single_n": t.single_core_cin, "m_count": t.m_count, "n_count": t.n_count, "items": 0,
            "cores": t.core_num, "grid": 1, "n_dim": t.n_dim, "m_dim": t.m_dim, "batch_dim": t.batch_dim,
            "d_dim": t.d_dim, "single_d": t.single_core_din, "single_batch": t.single_core_batch, "clear": 0,
            **{name: getattr(t, name) for name in _BASE}, "al1": t.al1_pbuffer, "bl1": t.bl1_pbuffer,
            "cl0": t.cl0_pbuffer,
        }  # fmt: skip
        apart = {
            "out_h": part.hi, "out_w": part.wi, "kh": part.kh, "kw": part.kw, "insert_h": 1, "insert_w": 1,
            "first_tap": (g.stride[1] - 1 - row) * g.kw + g.stride[2] - 1 - column, "tap_step_h": g.stride[1] * g.kw,
            "tap_step_w": g.stride[2], "out_first": row * g.wi + column, "out_step_h": g.stride[1],
            "out_step_w": g.stride[2],
        }  # fmt: skip
        values = _gradient_shape(p) | numbers | _common(p, image, p.dilation) | _WHOLE_ROWS | apart
        phases.append(_record(values | _image_buffers(values, False), core, p.compute_dtype, dy, weight, dx))
    return np.concatenate(phases)


def add_bias(
    params: np.ndarray, tiling: DxTiling | ForwardTiling | StreamedTiling, core: CoreSpec, bias: GmTensor
) -> None:
    """Let every block of the result start from ``bias``, so that nothing needs to be cleared.

    ``core``: with as much of L1 as the tiling took, see `bias.core_beside_bias`.
    """
    values = bias_fields(bias, "fp32", core.l1_bytes) | {"clear": 0}
    if isinstance(tiling, DxTiling) and params[0]["image_w"] == 0:
        # no column of the gradient is left, but blocks to be stored
        t, g = tiling, tiling.problem.geometry
        items = g.n * g.di * t.m_count * t.n_count * t.problem.groups
        values |= {"kd": 0, "items": items, "single_batch": t.single_core_batch}
    for name, value in values.items():
        params[name] = value


def forward_params(tiling: ForwardTiling, core: CoreSpec, x: GmTensor, weight: GmTensor, y: GmTensor) -> np.ndarray:
    """Return the parameters for a forward convolution of tensors in NDC1HWC0 and FRACTAL_Z_3D."""
    t, g, blocks = tiling, tiling.geometry, tiling.blocks
    image = _Image(
        up=g.pad[2], left=g.pad[4], right=g.pad[5], rows=g.hi, width=g.wi, first_column=0, column_at=0, columns=g.wi
    )
    numbers = {
        "base_rows": t.rows(blocks.base_m), "m_total": g.pixels, "m_unit": blocks.base_m, "single_m": t.single_m,
        "single_n": t.single_n, "m_count": t.m_count, "n_count": t.n_count,
        "items": g.n * g.do * t.m_count * t.n_count * t.groups, "cores": t.core_num, "clear": int(t.needs_clearing),
        **{name: getattr(blocks, name) for name in _BASE}, "al1": blocks.al1, "bl1": blocks.bl1, "cl0": blocks.cl0,
    }  # fmt: skip
    values = _forward_shape(t) | numbers | _NO_GRID | _common(t, image, g.dilation) | _WHOLE_ROWS
    return _record(values | _image_buffers(values, False), core, t.compute_dtype, x, weight, y)


def streamed_params(tiling: StreamedTiling, core: CoreSpec, a: GmTensor, weight: GmTensor, out: GmTensor) -> np.ndarray:
    """Return the parameters for either operator with windows that stream through L1 in lines."""
    t, p, g = tiling, tiling.problem, tiling.problem.geometry
    by_row = t.line_taps > 1
    if t.forward:
        shape, up, left, rows, columns = _forward_shape(p), g.pad[2], g.pad[4], g.hi, g.wi
    else:
        shape, up, left, (rows, columns) = _gradient_shape(p), p.back_pads.up, p.back_pads.left, p.dilated_extent
    # all of the map: lines take their columns of it themselves, and nothing is padded
    image = _Image(up=up, left=left, right=0, rows=rows, width=columns, first_column=0, column_at=0, columns=0)
    taps = min(t.step_kb * t.base_k // p.c0, p.khw)
    step_w, n1 = shape["window_step_w"], t.base_n // p.c0
    line = {
        "per_row": t.per_row, "line_taps": t.line_taps, "row_lines": 1 if by_row else g.kw,
        "line_step": 1 if by_row else step_w, "load_step_w": step_w if by_row else 1,
        "load_dilation_w": p.dilation[2] if by_row else 1,
    }  # fmt: skip
    line["pads_lines"] = int(line["row_lines"] == line["line_step"] == shape["insert_h"] == shape["insert_w"] == 1)
    columns = t.line_columns
    copies_a = (
        t.a1_bytes // (32 * columns) * (columns if line["line_step"] > MAX_FIELD else columns // MAX_BLOCK_COUNT + 1)
    )
    numbers = {
        "base_rows": 0, "m_total": t.m_total, "m_unit": 1, "single_m": t.single_m, "single_n": t.base_n,
        "m_count": t.m_count, "n_count": t.n_count, "cores": t.core_num, "clear": int(t.needs_clearing),
        "items": g.n * shape["out_d"] * t.m_count * t.n_count * p.groups,
        **{name: getattr(t, name) for name in (*_BASE, "al1", "bl1", "cl0", "a1_bytes", "b1_bytes")},
        "copies": copies_a + (max(n1, max(t.step_kb * t.base_k // p.window, 1)) + 1) * taps,
    }  # fmt: skip
    values = shape | numbers | _NO_GRID | _common(p, image, p.dilation) | line
    return _record(values, core, p.compute_dtype, a, weight, out)


def _gradient_shape(p: DxProblem) -> dict[str, int]:
    g = p.geometry
    return {
        "batch": g.n, "out_d": g.di, "out_h": g.hi, "out_w": g.wi, "out_c1": p.cin1, "n1_g": p.cin1_g, "a_d": g.do,
        "a_h": g.ho, "a_w": g.wo, "a_c1": p.cout1, "k1_g": p.cout1_g, "forward": 0, "window_step_h": 1,
        "window_step_w": 1, "insert_h": g.stride[1], "insert_w": g.stride[2],
    }  # fmt: skip


def _forward_shape(p: DxProblem | ForwardTiling) -> dict[str, int]:
    g = p.geometry
    return {
        "batch": g.n, "out_d": g.do, "out_h": g.ho, "out_w": g.wo, "out_c1": p.cout1, "n1_g": p.cout1_g, "a_d": g.di,
        "a_h": g.hi, "a_w": g.wi, "a_c1": p.cin1, "k1_g": p.cin1_g, "forward": 1, "window_step_h": g.stride[1],
        "window_step_w": g.stride[2], "insert_h": 1, "insert_w": 1,
    }  # fmt: skip


def _common(problem: DxProblem | ForwardTiling, image: _Image, dilation: tuple[int, int, int]) -> dict[str, int]:
    g = problem.geometry
    merged = g.merged_groups(problem.c0)
    return {
        "kd": g.kd, "kh": g.kh, "kw": g.kw, "all_taps": g.kh * g.kw, **_WHOLE_KERNEL, "cout_g": merged.cout_g,
        "cin1_g": merged.cin1_g, "groups": problem.groups,
        "c0": problem.c0, "stride_d": g.stride[0], "dilation_d": dilation[0], "pad_front": g.pad[0],
        "dilation_h": dilation[1], "dilation_w": dilation[2], "image_up": image.up, "image_left": image.left,
        "image_right": image.right, "image_rows": image.rows, "image_w": image.width,
        "first_column": image.first_column, "column_at": image.column_at, "columns": image.columns,
    }  # fmt: skip


def _image_buffers(v: dict[str, int], pairs: bool) -> dict[str, int]:
    """Return the bytes of an L1 buffer of whole rows and of weights, and a bound of the copies that fill both."""
    window = v["kh"] * v["kw"] * v["c0"]
    k_a, k_b = v["step_ka"] * v["base_k"] // window, v["step_kb"] * v["base_k"] // window
    image_rows = min(v["base_rows"], v["image_rows"])
    # weight rows of 32 bytes: per tap and channel block of the side that is not K, C0 (fp32 dx: 16 in pairs) rows
    k_rows = align_up(k_b, 2) * v["c0"] if pairs else k_b * v["c0"]
    copies_a = k_a * (ceil_div(image_rows, v["insert_h"]) if v["insert_w"] > 1 else 1) * (v["columns"] // 4095 + 1)
    copies_b = (v["base_n"] // v["c0"] + k_b) * v["kh"] * v["kw"]
    return {
        "a1_bytes": k_a * image_rows * v["image_w"] * 32,
        "b1_bytes": v["base_n"] // v["c0"] * v["kh"] * v["kw"] * k_rows * 32,
        "copies": copies_a + image_rows // 4095 * k_a + copies_b,
    }


def _record(
    values: dict[str, int], core: CoreSpec, compute_dtype: str, a: GmTensor, weight: GmTensor, out: GmTensor
) -> np.ndarray:
    """Add what follows from the rest: buffers, tensors and the room of a step."""
    v = values
    window = v["kh"] * v["kw"] * v["c0"]
    whole_k = v["step_kb"] * v["base_k"] >= v["k1_g"] * window
    blocks = out.byte_count // 32
    loads = v["base_k"] // v["c0"] * (1 + v["base_n"] // 16)
    data = DTYPES[compute_dtype].data
    v |= {
        **tensor_fields(a=a, weight=weight, out=out), "data": int(data), "out_data": int(data),
        "hf32": int(compute_dtype == "hf32"), "out_blocks": blocks, "out_rest": 0, **_BLOCKED,
        **dict.fromkeys(BIAS_FIELDS, 0),
        "clear_share": align_up(ceil_div(blocks * v["c0"], v["cores"]), 32) // v["c0"],
        "plane_steps": max(window // v["base_k"], 1),
        "b_full": int(v["kd"] == 1 and v["bl1"] == 1 and whole_k and v["base_n"] >= v["single_n"]),
        "a1": 0, "b1": v["al1"] * v["a1_bytes"], "l0a_half": core.l0a_bytes // 2, "l0b_half": core.l0b_bytes // 2,
        "l0c_half": v["base_m"] * align_up(v["base_n"], 16) * 4, "l0c_rows": core.l0c_bytes // 64,
        "step_rows": 64 + v.pop("copies") + loads,
    }  # fmt: skip
    return record(SPLIT_PARAMS, v)
