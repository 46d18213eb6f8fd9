"""The launch AvgPool3DGrad: the pooling gradient on vector cores of dav-c220.

Source of tasks, split, buffers and phases: ops-nn ``pooling/avg_pool3_d_grad/op_kernel`` and
``op_host/avg_pool_3d_grad_tiling.cpp``. ASSUMED: the order of atomic additions of different cores is that of the cores
(free on a device unless deterministic).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import ProductError, ShapeError
from npu_sim.isa.op import Data
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from npu_sim.units import BLOCK_BYTES, align_up, ceil_div
from ops.avg_pool import kernel_avg_pool3d_grad as kernel
from ops.avg_pool.call import PoolAxis
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.records import int_fields, record
from ops.vector.frame import has_byte_copies, vector_launch

UB_RESERVED_BYTES = 20480
"""UB this kernel leaves alone."""

AVG_POOL_PARAMS = int_fields(
    "src", "dst", "sum", "src_tensor", "dst_tensor", "sum_tensor", "data", "item", "sum_data", "sum_item", "overlap",
    "deterministic", "lanes", "pieces", "count", "tail", "pitch", "group", "tasks", "cores", "calc", "out",
    "clear_bytes", "cast_elems", "cast_out", "h", "w", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "include_pad",
    "divisor",
)  # fmt: skip
"""What `kernel_avg_pool3d_grad` reads: extents and ``pitch`` in elements, places in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgPoolTiling:
    """Split of one pooling gradient over cores and UB.

    Attributes
    ----------
    origin : str
        For reports.
    overlap : bool
        Windows overlap: products are added atomically.
    lanes : int
        N * C, the innermost axis.
    pieces, count, tail : int
        Pieces of the lanes, lanes of a piece and of the last one.
    pitch : int
        Elements of a UB line.
    group : int
        Tasks that share UB, each with a line of its own.
    tasks, cores : int
        Gradient pixels times pieces, and how many cores run them.
    core_tasks, last_core_tasks : int
        Tasks of each core but the last, and of the last, which takes all that an equal share leaves over.
    """

    origin: str
    overlap: bool
    lanes: int
    pieces: int
    count: int
    tail: int
    pitch: int
    group: int
    tasks: int
    cores: int
    core_tasks: int
    last_core_tasks: int


def avg_pool_tiling(
    axes: tuple[PoolAxis, ...], lanes: int, item_bytes: int, product: Product, deterministic: bool = False
) -> AvgPoolTiling:
    """Return the split of a pooling gradient with ``lanes`` = N * C."""
    h, w = axes
    overlap = h.stride < h.kernel or w.stride < w.kernel
    parts = 2 if item_bytes == 4 else (3 if overlap else 4)
    block = BLOCK_BYTES // item_bytes
    most = (product.core.ub_bytes - UB_RESERVED_BYTES) // parts // BLOCK_BYTES * BLOCK_BYTES // item_bytes
    if lanes > most:
        pieces, count, pitch, group = ceil_div(lanes, most), most, most, 1
    else:
        pieces, count, pitch = 1, lanes, align_up(lanes, block)
        group = most // pitch
    pixels = h.y * w.y
    cores = 1 if deterministic and overlap else min(product.vector_core_count, pixels)
    share = pixels * pieces // cores
    return AvgPoolTiling(
        origin="CANN's tiling",
        overlap=overlap,
        lanes=lanes,
        pieces=pieces,
        count=count,
        tail=lanes - (pieces - 1) * count,
        pitch=pitch,
        group=group,
        tasks=pixels * pieces,
        cores=cores,
        core_tasks=share,
        last_core_tasks=pixels * pieces - (cores - 1) * share,
    )


def sums_bytes(axes: tuple[PoolAxis, ...], lanes: int, item_bytes: int) -> int:
    """Return the bytes of the float32 sums that 16-bit tensors with overlapping windows need besides the output."""
    h, w = axes
    overlap = h.stride < h.kernel or w.stride < w.kernel
    return 4 * h.x * w.x * lanes if item_bytes == 2 and overlap else 0


def private_bytes(axes: tuple[PoolAxis, ...], lanes: int, item_bytes: int) -> int:
    """Return the kernel's own workspace."""
    h, w = axes
    return SYSTEM_WORKSPACE_BYTES + (4 * h.x * w.x * lanes if item_bytes == 2 else 0)


def avg_pool3d_grad(rows: np.ndarray, params: np.ndarray, core: int, phase: int) -> Iterator[int]:
    """Write the rows of one core and phase, see `Launch.kernel`; each phase is a jitted generator of its own."""
    return (kernel.clear, kernel.scatter, kernel.round_sums)[phase](rows, params, core, phase)


def check_pixels(name: str, pixels: Iterable[tuple[GmTensor, int]], pixel_bytes: int, product: Product) -> None:
    """Refuse products without the kernel ``name``, and tensors of other sizes than so many pixels.

    Raises
    ------
    ProductError, ShapeError
    """
    if not has_byte_copies(product):
        raise ProductError(f"{name} must run on a product with DataCopyPad, not on {product.name}")
    for tensor, count in pixels:
        if tensor.byte_count != (wanted := count * pixel_bytes):
            raise ShapeError(f"{tensor.name} must be {wanted} bytes, not {tensor.byte_count} ({name}, {product.name})")


def avg_pool3d_grad_launch(
    gm: GlobalMemory,
    src: GmTensor,
    dst: GmTensor,
    sums: GmTensor | None,
    axes: tuple[PoolAxis, ...],
    lanes: int,
    dtype: str,
    divisor_override: int,
    count_include_pad: bool,
    product: Product,
    deterministic: bool = False,
) -> Launch:
    """Return the launch that writes the gradient of the input.

    Parameters
    ----------
    gm : GlobalMemory
        Holds the tensors, which are disjoint.
    src : GmTensor
        gradOutput, [Ho * Wo][lanes].
    dst : GmTensor
        Gradient of the input, [H * W][lanes].
    sums : GmTensor or None
        `sums_bytes` bytes, None where that is 0.
    axes : tuple of PoolAxis
        Height and width.
    lanes : int
        N * C.
    dtype : {"fp32", "fp16", "bf16"}
        Of both tensors.
    divisor_override : int
        0: none.
    count_include_pad : bool
        Positions in the padding count.
    product : Product
        With DataCopyPad (A2, A3).
    deterministic : bool
        One core where windows overlap, and a barrier after each task.

    Raises
    ------
    ProductError
        The product has no such kernel.
    ShapeError
        A tensor has another size.
    """
    h, w = axes
    item = DTYPES[dtype].item_bytes
    check_pixels("AvgPool3DGrad", ((src, h.y * w.y), (dst, h.x * w.x)), lanes * item, product)
    own = sums_bytes(axes, lanes, item)
    if own != (0 if sums is None else sums.byte_count):
        raise ShapeError(f"sums must be {own} bytes, not {sums} (AvgPool3DGrad, {product.name})")
    t = avg_pool_tiling(axes, lanes, item, product, deterministic)
    target = dst if sums is None else sums
    usable = product.core.ub_bytes - UB_RESERVED_BYTES
    cast_elems = usable // 2 // 3
    calc = t.group * t.pitch * item
    values = {
        "src": src.address, "dst": dst.address, "sum": target.address, "src_tensor": src.index,
        "dst_tensor": dst.index, "sum_tensor": target.index, "data": int(DTYPES[dtype].data), "item": item,
        "sum_data": int(Data.FP32 if sums is not None else DTYPES[dtype].data),
        "sum_item": 4 if sums is not None else item, "overlap": int(t.overlap), "deterministic": int(deterministic),
        "lanes": lanes, "pieces": t.pieces, "count": t.count, "tail": t.tail, "pitch": t.pitch, "group": t.group,
        "tasks": t.tasks, "cores": t.cores, "calc": calc, "out": calc + t.group * t.pitch * 4,
        "clear_bytes": usable // BLOCK_BYTES * BLOCK_BYTES, "cast_elems": cast_elems,
        "cast_out": align_up(cast_elems * 4, BLOCK_BYTES), "h": h.x, "w": w.x, "oh": h.y, "ow": w.y,
        "kh": h.kernel, "kw": w.kernel, "sh": h.stride, "sw": w.stride, "ph": h.pad, "pw": w.pad,
        "include_pad": int(count_include_pad), "divisor": divisor_override,
    }  # fmt: skip
    params = record(AVG_POOL_PARAMS, values)
    phases = 3 if sums is not None else 2
    return vector_launch(
        "AvgPool3DGrad", avg_pool3d_grad, params, gm, kernel.SITES, phase_count=phases, step_rows=kernel.STEP_ROWS
    )
