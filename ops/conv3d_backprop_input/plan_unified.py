"""Tilings and launches of input gradients and forward convolutions on unified cores. Nothing is computed here."""

from __future__ import annotations

from dataclasses import replace

from npu_sim.products import Product
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Kernel
from ops.common.records import kernel_launch
from ops.conv3d_backprop_input import kernel_unified
from ops.conv3d_backprop_input.kernel_unified_work import SITES
from ops.conv3d_backprop_input.operands import Operands
from ops.conv3d_backprop_input.params_unified import unified_params
from ops.conv3d_backprop_input.problem_unified import WindowProblem, forward_problem, input_gradient_problem
from ops.conv3d_backprop_input.tiling_unified import UnifiedTiling, unified_tiling


def unified_input_gradient(
    geometry: ConvGeometry,
    product: Product,
    at: Operands,
) -> Kernel:
    """Return tiling and launches of dx; every byte of dx is written.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution, without depth.
    product : Product
        One with unified cores.
    at : Operands
        fp16 in NC1HWC0, FRACTAL_Z (groups merged) and NC1HWC0, padding lanes of dy and weight zero; of the bias see
        `plan.forward_launches`.

    Raises
    ------
    OperatorError
        561103 if the convolution has a depth.
    """
    problem = replace(input_gradient_problem(geometry, product), has_bias=at.bias is not None)
    return kernel_of(problem, unified_tiling(problem, product), product, at)


def unified_forward(
    geometry: ConvGeometry,
    product: Product,
    at: Operands,
) -> Kernel:
    """Return tiling and launches of y = conv(x, weight); parameters as of `unified_input_gradient`."""
    problem = replace(forward_problem(geometry, product), has_bias=at.bias is not None)
    return kernel_of(problem, unified_tiling(problem, product), product, at)


def kernel_of(
    problem: WindowProblem,
    tiling: UnifiedTiling,
    product: Product,
    at: Operands,
) -> Kernel:
    """Return the launches that run ``problem`` as ``tiling`` says."""
    params = unified_params(problem, tiling, product, at)
    name = "Conv2DBackpropInput" if problem.transposed else "Conv2D"
    launch = kernel_launch(name, kernel_unified.convolve, params, at.gm, SITES, core_count=tiling.block_dim)
    return Kernel(launches=(launch,), tiling=tiling)
