"""The launch AvgPool3D: average pooling on vector cores of dav-c220.

ASSUMED, the library's kernels not being read: one task for each pixel of the result, sums in float32 in the order of
the window's rows, one multiplication by the reciprocal divisor and one rounding; how UB is divided.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_sim.dtypes.formats import DTYPES
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.avg_pool.avg_pool3d_grad import UB_RESERVED_BYTES, check_pixels
from ops.avg_pool.call import PoolAxis
from ops.avg_pool_forward import kernel_avg_pool3d as kernel
from ops.common.records import int_fields, record, tensor_fields
from ops.vector.frame import cores_for, vector_launch

_MOST_LANES = 4096
"""Lanes of a piece: longer ones hide no more of an instruction's start."""

AVG_POOL3D_PARAMS = int_fields(
    "src", "dst", "src_tensor", "dst_tensor", "data", "item", "lanes", "pieces", "count", "tail", "pitch", "pixels",
    "tasks", "cores", "in_half", "wide", "sums", "sums_half", "out", "out_half", "h", "w", "oh", "ow", "kh", "kw", "sh",
    "sw", "ph", "pw", "include_pad", "divisor", "step_rows",
)  # fmt: skip
"""What `kernel_avg_pool3d` reads: extents and ``pitch`` in elements, places in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgPool3dTiling:
    """Split of one pooling over cores and UB.

    Attributes
    ----------
    origin : str
        For reports.
    lanes : int
        N * C, the innermost axis.
    pieces, count, tail : int
        Pieces of the lanes, lanes of a piece and of the last one.
    pitch : int
        Elements of a UB line.
    pixels : int
        Pixels of a load.
    tasks, cores : int
        Pixels of the result times pieces, and how many cores run them.
    """

    origin: str
    lanes: int
    pieces: int
    count: int
    tail: int
    pitch: int
    pixels: int
    tasks: int
    cores: int


def avg_pool3d_tiling(axes: tuple[PoolAxis, ...], lanes: int, item_bytes: int, product: Product) -> AvgPool3dTiling:
    """Return the split of a pooling with ``lanes`` = N * C."""
    h, w = axes
    count = min(lanes, _MOST_LANES)
    pitch = align_up(count, BLOCK_BYTES // item_bytes)
    pieces = ceil_div(lanes, count)
    rest = product.core.ub_bytes - UB_RESERVED_BYTES - pitch * (3 * 4 + 2 * item_bytes)
    tasks = h.y * w.y * pieces
    return AvgPool3dTiling(
        origin="not CANN's tiling (ours)",
        lanes=lanes,
        pieces=pieces,
        count=count,
        tail=lanes - (pieces - 1) * count,
        pitch=pitch,
        pixels=max(min(rest // 2 // (pitch * item_bytes), w.kernel, w.x), 1),
        tasks=tasks,
        cores=cores_for(product, tasks),
    )


def avg_pool3d_launch(
    gm: GlobalMemory,
    src: GmTensor,
    dst: GmTensor,
    axes: tuple[PoolAxis, ...],
    lanes: int,
    dtype: str,
    divisor_override: int,
    count_include_pad: bool,
    product: Product,
) -> Launch:
    """Return the launch that writes the means of windows, [Ho * Wo][lanes], of an input [H * W][lanes].

    Parameters and errors as of `ops.avg_pool.avg_pool3d_grad.avg_pool3d_grad_launch`.
    """
    h, w = axes
    item = DTYPES[dtype].item_bytes
    check_pixels("AvgPool3D", ((src, h.x * w.x), (dst, h.y * w.y)), lanes * item, product)
    t = avg_pool3d_tiling(axes, lanes, item, product)
    in_half = t.pixels * t.pitch * item
    wide, line = 2 * in_half, t.pitch * 4
    values = {
        **tensor_fields(src=src, dst=dst), "data": int(DTYPES[dtype].data), "item": item, "lanes": lanes,
        "pieces": t.pieces, "count": t.count, "tail": t.tail, "pitch": t.pitch, "pixels": t.pixels, "tasks": t.tasks,
        "cores": t.cores, "in_half": in_half, "wide": wide, "sums": wide + line, "sums_half": line,
        "out": wide + 3 * line, "out_half": t.pitch * item, "h": h.x, "w": w.x, "oh": h.y, "ow": w.y, "kh": h.kernel,
        "kw": w.kernel, "sh": h.stride, "sw": w.stride, "ph": h.pad, "pw": w.pad,
        "include_pad": int(count_include_pad), "divisor": divisor_override, "step_rows": 32 + 5 * t.pixels,
    }  # fmt: skip
    params = record(AVG_POOL3D_PARAMS, values)
    return vector_launch("AvgPool3D", kernel.average, params, gm, kernel.SITES)
