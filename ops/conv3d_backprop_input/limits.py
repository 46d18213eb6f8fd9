"""What one load of dav-c220 can walk over, what no instruction can count, and what the published operator refuses.

Sources: asc-devkit ``docs/zh/api/SIMD-API`` (LoadData3DParamsV2, DataCopyParams, Fixpipe) for the operands; ops-nn
``conv/conv3d_backprop_input_v2/op_host/op_tiling`` for the checks of the operator.
"""

from __future__ import annotations

from npu_sim.errors import OperatorError
from npu_sim.products import Product
from npu_sim.units import ceil_div
from ops.common.geometry import ConvGeometry
from ops.common.status import NO_KERNEL
from ops.conv3d_backprop_input.tiling_dx_basic_block import basic_block_applies, basic_block_tiling
from ops.conv3d_backprop_input.tiling_dx_data import DxProblem

Limit = tuple[str, int, int]
"""What, its value, the largest value allowed."""

PAD_MAX = DILATION_MAX = 255
STRIDE_MAX = 63
KERNEL_MAX = 511
IMAGE_MAX = 32767
"""Rows and columns of an image in L1, and the largest first window of a load within a row."""
PLANE_MAX = 2**31 - 1
_ROW_MAX = 4096
_FILL_BYTES = 512


def check_planes(geometry: ConvGeometry, product: Product, what: str) -> None:
    """Refuse planes whose pixels no instruction can count.

    Raises
    ------
    OperatorError
        With status 561103.
    """
    g = geometry
    limits = [
        ("pixels of an input plane", g.hi * g.wi, PLANE_MAX),
        ("pixels of an output plane", g.ho * g.wo, PLANE_MAX),
    ]
    _refuse(limits, f"{what}, {product.name}")


def loads_whole_rows(geometry: ConvGeometry, compute_dtype: str, *, forward: bool) -> bool:
    """Return whether one image-to-column load can walk over whole rows of the map, and pad it."""
    g = geometry
    if forward:
        own = [*_stride_limits(g), ("input width", g.wi, IMAGE_MAX), ("output width", g.wo, IMAGE_MAX)]
    else:
        p = DxProblem.of(g, compute_dtype)
        # the windows walk over the dilated gradient with stride 1, so no instruction limits the stride
        own = [
            *_back_pad_limits(p),
            ("width of the dilated gradient", p.dilated_extent[1], IMAGE_MAX),
            ("input width", g.wi, IMAGE_MAX),
        ]
    return all(value <= most for _, value, most in (*_window_limits(g), *own))


def library_only_limits(geometry: ConvGeometry, product: Product, compute_dtype: str = "fp16") -> None:
    """Refuse an input gradient that the published operator refuses although the kernels here compute it.

    The published page allows these ranges. They are the checks of Conv3DBackpropInputV2, for all ranks; on products of
    unified cores there is nothing of the kind. 1D and 2D strides pass them, but in BF16, where the library dilates the
    gradient or the result with a kernel of its own and runs this one with stride 1.

    Raises
    ------
    OperatorError
        With status 561103.
    """
    if not product.core.is_split:
        return
    g, p = geometry, DxProblem.of(geometry, compute_dtype)
    reach_d, reach_h, _ = p.reach
    if g.wi > 16:
        rows = reach_h + 1
    elif 16 % g.wi == 0:
        rows = reach_h - 1 + 16 // g.wi
    else:
        rows = reach_h - 1 + 16 // g.wi + 2
    rows = min(rows, g.ho * g.stride[1])
    planes = min(ceil_div(g.kd - 1, g.stride[0]) + 1, g.do) if p.cout1 == 1 and reach_d != g.stride[0] else 1
    least = rows * g.wo * g.stride[2] * planes * 32 + p.khw * 16 * 32 + (_FILL_BYTES if p.item == 2 else 0)
    is_rewritten = g.spatial_rank < 3 and product.dilates_strided_gradients and compute_dtype != "bf16"
    limits = [
        *_window_limits(g),
        *_back_pad_limits(p),
        *(() if is_rewritten else _stride_limits(g)),
        *(
            (f"{out} * stride{axis}", extent * step, PLANE_MAX)
            for out, axis, extent, step in zip(("do", "ho", "wo"), "DHW", (g.do, g.ho, g.wo), g.stride, strict=True)
        ),
        ("strideD", g.stride[0], g.kd),
        ("strideD", g.stride[0], PAD_MAX),
        ("padFront", g.pad[0], PAD_MAX),
        ("padBack", g.pad[1], PAD_MAX),
        ("input width", g.wi, _ROW_MAX),
        ("wo * strideW", g.wo * g.stride[2], _ROW_MAX),
        ("L1 bytes of the smallest block", least, product.core.l1_bytes),
    ]
    context = f"input gradient, {compute_dtype}, library profile, {product.name}"
    _refuse(limits, context)
    if basic_block_applies(p) and basic_block_tiling(p, product.cube_core_count) is None:
        fits = f"one that fits L1 of {product.core.l1_bytes} bytes"
        message = f"Smallest block of the operator's tiling must be {fits}, not a larger one ({context})"
        raise OperatorError(message, NO_KERNEL)


def _window_limits(g: ConvGeometry) -> list[Limit]:
    """Return the limits of every image-to-column load; a dilation counts only where the kernel has taps."""
    dilation = g.single_tap_dilation
    return [
        ("kernel height", g.kh, KERNEL_MAX),
        ("kernel width", g.kw, KERNEL_MAX),
        *((f"dilation{axis}", step, DILATION_MAX) for axis, step in zip("DHW", dilation, strict=True)),
        *((f"pad{side}", pad, PAD_MAX) for side, pad in zip(("Up", "Down", "Left", "Right"), g.pad[2:], strict=True)),
    ]


def _back_pad_limits(p: DxProblem) -> list[Limit]:
    pads = p.back_pads
    sides = (("Up", pads.up), ("Down", pads.down), ("Left", pads.left), ("Right", pads.right))
    return [(f"backpropPad{side}", pad, PAD_MAX) for side, pad in sides]


def _stride_limits(g: ConvGeometry) -> list[Limit]:
    return [("strideH", g.stride[1], STRIDE_MAX), ("strideW", g.stride[2], STRIDE_MAX)]


def _refuse(limits: list[Limit], context: str) -> None:
    for name, value, most in limits:
        if value > most:
            raise OperatorError(f"{name} must be at most {most}, not {value} ({context})", NO_KERNEL)
