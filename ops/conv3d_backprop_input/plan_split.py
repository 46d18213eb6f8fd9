"""Plans on dav-c220: tiling, parameters and launch of the Cube kernel."""

from __future__ import annotations

import numpy as np

from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import CoreSpec, Product
from npu_sim.program.launch import Launch
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Kernel
from ops.common.records import kernel_launch
from ops.common.status import NO_KERNEL
from ops.conv3d_backprop_input import kernel_split
from ops.conv3d_backprop_input.bias import core_beside_bias
from ops.conv3d_backprop_input.kernel_split_work import SITES
from ops.conv3d_backprop_input.limits import check_forward, check_input_gradient
from ops.conv3d_backprop_input.params import add_bias, dx_params, forward_params
from ops.conv3d_backprop_input.tiling_dx import dx_tiling
from ops.conv3d_backprop_input.tiling_dx_data import DxTiling
from ops.conv3d_backprop_input.tiling_forward import ForwardTiling, forward_tiling


def split_input_gradient(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    gm: GlobalMemory,
    dy: GmTensor,
    weight: GmTensor,
    dx: GmTensor,
    bias: GmTensor | None = None,
) -> Kernel:
    """Plan an input gradient; see `plan.input_gradient_launches`.

    Raises
    ------
    OperatorError
        561103: an operand the instructions cannot encode, or no block fits L1.
    """
    check_input_gradient(geometry, product, compute_dtype)
    core = _core(product, geometry.cin, bias)
    tiling = dx_tiling(geometry, compute_dtype, core, product.cube_core_count)
    if tiling is None:
        raise _too_large(product, f"input gradient, {compute_dtype}")
    return _kernel(tiling, dx_launch(tiling, product, gm, dy, weight, dx, bias))


def split_forward(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    gm: GlobalMemory,
    x: GmTensor,
    weight: GmTensor,
    y: GmTensor,
    bias: GmTensor | None = None,
) -> Kernel:
    """Plan a forward convolution; see `plan.forward_launches`.

    Raises
    ------
    OperatorError
        561103: an operand the instructions cannot encode, or no block fits L1.
    """
    check_forward(geometry, product, compute_dtype)
    core = _core(product, geometry.cout, bias)
    tiling = forward_tiling(geometry, compute_dtype, core, product.cube_core_count)
    if tiling is None:
        raise _too_large(product, f"convolution, {compute_dtype}")
    return _kernel(tiling, forward_launch(tiling, product, gm, x, weight, y, bias))


def dx_launch(
    tiling: DxTiling,
    product: Product,
    gm: GlobalMemory,
    dy: GmTensor,
    weight: GmTensor,
    dx: GmTensor,
    bias: GmTensor | None = None,
) -> Launch:
    """Return the launch of the kernel with ``tiling``."""
    params = dx_params(tiling, product.core, dy, weight, dx)
    if bias is not None:
        add_bias(params, tiling, _core(product, tiling.problem.geometry.cin, bias), bias)
    return _launch("Conv3DBackpropInputV2", params, gm)


def forward_launch(
    tiling: ForwardTiling,
    product: Product,
    gm: GlobalMemory,
    x: GmTensor,
    weight: GmTensor,
    y: GmTensor,
    bias: GmTensor | None = None,
) -> Launch:
    """Return the launch of the kernel with ``tiling``."""
    params = forward_params(tiling, product.core, x, weight, y)
    if bias is not None:
        add_bias(params, tiling, _core(product, tiling.geometry.cout, bias), bias)
    return _launch("Conv3D", params, gm)


def _core(product: Product, channels: int, bias: GmTensor | None) -> CoreSpec:
    """Return the product's core, with what a bias leaves of L1."""
    return product.core if bias is None else core_beside_bias(product.core, channels)


def _launch(name: str, params: np.ndarray, gm: GlobalMemory) -> Launch:
    phases = 1 + int(params[0]["clear"])
    return kernel_launch(name, kernel_split.convolve, params, gm, SITES, phase_count=phases)


def _kernel(tiling: DxTiling | ForwardTiling, launch: Launch) -> Kernel:
    return Kernel(launches=(launch,), private_bytes=SYSTEM_WORKSPACE_BYTES, tiling=tiling)


def _too_large(product: Product, what: str) -> OperatorError:
    return OperatorError(
        f"Smallest block must be one that fits L1 of {product.core.l1_bytes} bytes, not a larger one "
        f"({what}, {product.name})",
        NO_KERNEL,
    )
