"""What the Cube kernels of a convolution agree on: types they multiply, layouts of the operands, their workspace."""

from __future__ import annotations

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.products import Product
from npu_sim.units import MIB
from ops.common.geometry import ConvGeometry
from ops.common.status import PARAM_INVALID

COMPUTE_DTYPES = ("fp16", "bf16", "fp32", "hf32")
"""Types a kernel multiplies."""

SYSTEM_WORKSPACE_BYTES = 16 * MIB
"""Workspace the library reserves in every launch of a kernel (ops-nn, op_tiling of conv3d_backprop_filter_v2,
conv3d_backprop_input_v2 and avg_pool3_d_grad)."""


def check_compute_dtype(product: Product, compute_dtype: str) -> None:
    """Refuse a type that the product's Cube or every kernel lacks.

    Raises
    ------
    OperatorError
        161002.
    """
    allowed = sorted(product.cube_dtypes.intersection(COMPUTE_DTYPES))
    if compute_dtype not in allowed:
        raise OperatorError(
            f"compute dtype must be one of {', '.join(allowed)}, not {compute_dtype} "
            f"({product.name}, {product.series_name})",
            PARAM_INVALID,
        )


def input_layout(geometry: ConvGeometry, compute_dtype: str) -> ActivationLayout:
    """Return the NDC1HWC0 image of the forward input: dx of an input gradient, x of the others."""
    g = geometry
    return ActivationLayout(n=g.n, c=g.cin, d=g.di, h=g.hi, w=g.wi, c0=DTYPES[compute_dtype].block_elems)


def output_layout(geometry: ConvGeometry, compute_dtype: str) -> ActivationLayout:
    """Return the NDC1HWC0 image of the forward output: dy of a gradient, y of a forward convolution."""
    g = geometry
    return ActivationLayout(n=g.n, c=g.cout, d=g.do, h=g.ho, w=g.wo, c0=DTYPES[compute_dtype].block_elems)


def weight_layout(geometry: ConvGeometry, compute_dtype: str) -> WeightLayout:
    """Return the FRACTAL_Z_3D image of the weight, with groups merged."""
    g = geometry
    return WeightLayout(
        cout=g.cout, cin_per_group=g.cin // g.groups, groups=g.groups, kd=g.kd, kh=g.kh, kw=g.kw,
        c0=DTYPES[compute_dtype].block_elems,
    )  # fmt: skip
