"""Plans of input gradients and forward convolutions on every product. Nothing is computed here."""

from __future__ import annotations

from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from ops.common.core_count import with_cores
from ops.common.cube_operands import check_compute_dtype
from ops.common.generation import Generation
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Kernel
from ops.conv3d_backprop_input.operands import Operands
from ops.conv3d_backprop_input.plan_split import split_forward, split_input_gradient
from ops.conv3d_backprop_input.plan_unified import unified_forward, unified_input_gradient


def input_gradient_launches(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    gm: GlobalMemory,
    dy: GmTensor,
    weight: GmTensor,
    dx: GmTensor,
    bias: GmTensor | None = None,
    *,
    generation: Generation = "published",
    block_dim: int | None = None,
) -> Kernel:
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
        In the layouts of `ops.common.cube_operands`, 2 bytes an element for fp16 and bf16, 4 for fp32 and hf32. dx may
        be uninitialised; all of it is written.
    bias : GmTensor or None
        What the sums of each channel of dx start from, plain on split cores and in `bias.bias_layout` on unified ones:
        with it this is the transposed convolution of dy.
    generation : {"published", "closed"}
        On split cores: CANN's published tiling where there is one, or one like that of the kernel before it, which
        profiles of Conv2DBackpropInput are of: cores take smaller blocks, and all of them are used. Bits are the same.
    block_dim : int or None
        Cube cores it may have; None: those of the product.

    Raises
    ------
    OperatorError
        161002 if the product's Cube does not multiply ``compute_dtype``; 561103 if the kernel cannot do the shape.
    """
    check_compute_dtype(product, compute_dtype)
    product = with_cores(product, block_dim)
    at = Operands(gm, dy, weight, dx, bias)
    if product.core.is_split:
        return split_input_gradient(geometry, product, compute_dtype, at, generation)
    return unified_input_gradient(geometry, product, at)


def forward_launches(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    gm: GlobalMemory,
    x: GmTensor,
    weight: GmTensor,
    y: GmTensor,
    bias: GmTensor | None = None,
    *,
    block_dim: int | None = None,
) -> Kernel:
    """Choose tiling and launches of y = conv(x, weight); parameters and errors as of `input_gradient_launches`.

    The input gradient of a transposed convolution is this, with its grad_output as x and its weight as it is.
    """
    check_compute_dtype(product, compute_dtype)
    product = with_cores(product, block_dim)
    at = Operands(gm, x, weight, y, bias)
    if product.core.is_split:
        return split_forward(geometry, product, compute_dtype, at)
    return unified_forward(geometry, product, at)
