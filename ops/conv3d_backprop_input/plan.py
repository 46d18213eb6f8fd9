"""Plans of input gradients and forward convolutions on every product. Nothing is computed here."""

from __future__ import annotations

from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from ops.common.geometry import ConvGeometry
from ops.conv3d_backprop_input.plan_split import Planned, split_forward, split_input_gradient
from ops.conv3d_backprop_input.plan_unified import unified_forward, unified_input_gradient
from ops.conv3d_backprop_input.records import (
    ITEM_BYTES,
    ForwardPlan,
    InputGradientPlan,
    input_layout,
    output_layout,
    weight_layout,
)


def input_gradient_launches(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    gm: GlobalMemory,
    dy: GmTensor,
    weight: GmTensor,
    dx: GmTensor,
) -> InputGradientPlan:
    """Choose tiling and launches of dx = the gradient of conv's input; touches no tensor data.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution.
    product : Product
        Split cores (dav-c220) and unified ones have kernels of their own.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies.
    gm : GlobalMemory
        Where the tensors lie.
    dy, weight, dx : GmTensor
        In the layouts of `records.output_layout`, `records.weight_layout` and `records.input_layout`, 2 bytes an
        element for fp16 and bf16, 4 for fp32 and hf32. dx may be uninitialised; all of it is written.

    Raises
    ------
    OperatorError
        161002 if the product's Cube does not multiply ``compute_dtype``; 561103 if the kernel cannot do the shape.
    """
    _check_dtype(product, compute_dtype)
    planned: Planned
    if product.core.is_split:
        planned = split_input_gradient(geometry, product, compute_dtype, gm, dy, weight, dx)
    else:
        planned = unified_input_gradient(geometry, product, gm, dy, weight, dx)
    tiling, launches, private_bytes = planned
    return InputGradientPlan(
        geometry=geometry,
        product=product,
        compute_dtype=compute_dtype,
        tiling=tiling,
        launches=launches,
        private_bytes=private_bytes,
        dy_layout=output_layout(geometry, compute_dtype),
        weight_layout=weight_layout(geometry, compute_dtype),
        dx_layout=input_layout(geometry, compute_dtype),
    )


def forward_launches(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    gm: GlobalMemory,
    x: GmTensor,
    weight: GmTensor,
    y: GmTensor,
) -> ForwardPlan:
    """Choose tiling and launches of y = conv(x, weight); parameters as of `input_gradient_launches`.

    The input gradient of a transposed convolution is this, with its grad_output as x and its weight as it is.

    Raises
    ------
    OperatorError
        161002 if the product's Cube does not multiply ``compute_dtype``; 561103 if the kernel cannot do the shape.
    """
    _check_dtype(product, compute_dtype)
    planned: Planned
    if product.core.is_split:
        planned = split_forward(geometry, product, compute_dtype, gm, x, weight, y)
    else:
        planned = unified_forward(geometry, product, gm, x, weight, y)
    tiling, launches, private_bytes = planned
    return ForwardPlan(
        geometry=geometry,
        product=product,
        compute_dtype=compute_dtype,
        tiling=tiling,
        launches=launches,
        private_bytes=private_bytes,
        x_layout=input_layout(geometry, compute_dtype),
        weight_layout=weight_layout(geometry, compute_dtype),
        y_layout=output_layout(geometry, compute_dtype),
    )


def _check_dtype(product: Product, compute_dtype: str) -> None:
    if compute_dtype not in product.cube_dtypes or compute_dtype not in ITEM_BYTES:
        allowed = ", ".join(sorted(product.cube_dtypes & ITEM_BYTES.keys()))
        raise OperatorError(
            f"compute dtype must be one of {allowed}, not {compute_dtype} ({product.name}, {product.series_name})",
            161002,
        )
