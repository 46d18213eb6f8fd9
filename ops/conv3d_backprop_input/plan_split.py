"""Plans on dav-c220: tiling, parameters and launch of the Cube kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import CoreSpec, Product
from npu_sim.program.launch import BlockKernels, Launch
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES
from ops.common.generation import Generation
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Kernel
from ops.common.records import kernel_launch
from ops.conv3d_backprop_input import kernel_split, kernel_split_plain
from ops.conv3d_backprop_input.bias import core_beside_bias
from ops.conv3d_backprop_input.kernel_split_work import SITES
from ops.conv3d_backprop_input.limits import check_planes, loads_whole_rows
from ops.conv3d_backprop_input.operands import Operands
from ops.conv3d_backprop_input.params import (
    add_bias,
    dx_params,
    forward_params,
    plain_params,
    slot_bytes,
    streamed_params,
    strided_params,
)
from ops.conv3d_backprop_input.tiling_dx import dx_tiling, fallback_tiling
from ops.conv3d_backprop_input.tiling_dx_data import DxProblem, DxTiling
from ops.conv3d_backprop_input.tiling_dx_strided import strided_tiling
from ops.conv3d_backprop_input.tiling_forward import ForwardTiling, forward_tiling
from ops.conv3d_backprop_input.tiling_streamed import StreamedTiling, streamed_tiling

_SLOT_BYTES = 131072
"""Workspace of a Cube core for blocks of a plain result (ops-nn ``op_host/op_tiling/arch22``)."""


def split_input_gradient(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    at: Operands,
    generation: Generation = "published",
) -> Kernel:
    """Plan an input gradient; see `plan.input_gradient_launches`.

    Raises
    ------
    OperatorError
        561103: a plane has more pixels than an instruction can count.
    """
    check_planes(geometry, product, f"input gradient, {compute_dtype}")
    core = _core(product, geometry.cin, at.bias)
    tiling = _whole_rows_tiling(geometry, product, compute_dtype, core, generation, has_bias=at.bias is not None)
    if tiling is not None:
        return _kernel(tiling, dx_launch(tiling, product, at))
    streamed = streamed_tiling(DxProblem.of(geometry, compute_dtype), False, core, product.cube_core_count)
    return _kernel(streamed, streamed_launch(streamed, product, at))


def _whole_rows_tiling(
    geometry: ConvGeometry, product: Product, compute_dtype: str, core: CoreSpec, generation: Generation, has_bias: bool
) -> DxTiling | None:
    """Return the tiling of a kernel that loads whole rows, None if they do not fit."""
    if not loads_whole_rows(geometry, compute_dtype, forward=False):
        return None
    cores = product.cube_core_count
    problem = DxProblem.of(geometry, compute_dtype)
    # the operator has no bias: what starts from one is ours
    strided = None if has_bias else strided_tiling(problem, core, cores)
    if strided is not None:
        return strided
    if generation == "closed":
        return fallback_tiling(problem, core, cores)
    return dx_tiling(geometry, compute_dtype, core, cores)


def plain_tiling(geometry: ConvGeometry, product: Product, compute_dtype: str) -> DxTiling | None:
    """Return the tiling of the kernel that writes NCDHW itself, None if it does not do the shape."""
    tiling = _whole_rows_tiling(geometry, product, compute_dtype, product.core, "published", has_bias=False)
    return None if tiling is None or tiling.splits_kernel else tiling


def plain_input_gradient(
    tiling: DxTiling, product: Product, gm: GlobalMemory, dy: GmTensor, weight: GmTensor, dx: GmTensor
) -> Kernel:
    """Plan an input gradient of 16-bit elements that the vector cores write as NCDHW, with a `plain_tiling`.

    Raises
    ------
    OperatorError
        561103: a plane has more pixels than an instruction can count.
    """
    check_planes(tiling.problem.geometry, product, f"input gradient, {tiling.problem.compute_dtype}")
    blocks = tiling.core_num
    slots = gm.add(
        "Conv3DBackpropInputV2.slots", blocks * slot_bytes(tiling), initialised=False,
        data=DTYPES[tiling.problem.compute_dtype].data,
    )  # fmt: skip
    params = plain_params(tiling, product.core, dy, weight, dx, slots)
    launch = replace(
        _split_launch("Conv3DBackpropInputV2", params, gm),
        kernel=BlockKernels(blocks, kernel_split.convolve, kernel_split_plain.write),
        core_count=2 * blocks,
        vectors=1,
    )
    private = SYSTEM_WORKSPACE_BYTES + blocks * _SLOT_BYTES
    return Kernel(launches=(launch,), private_bytes=private, tiling=tiling)


def split_forward(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    at: Operands,
) -> Kernel:
    """Plan a forward convolution; see `plan.forward_launches`.

    Raises
    ------
    OperatorError
        561103: a plane has more pixels than an instruction can count.
    """
    check_planes(geometry, product, f"convolution, {compute_dtype}")
    core = _core(product, geometry.cout, at.bias)
    if loads_whole_rows(geometry, compute_dtype, forward=True):
        tiling = forward_tiling(geometry, compute_dtype, core, product.cube_core_count)
        if tiling is not None:
            return _kernel(tiling, forward_launch(tiling, product, at))
    streamed = streamed_tiling(DxProblem.of(geometry, compute_dtype), True, core, product.cube_core_count)
    return _kernel(streamed, streamed_launch(streamed, product, at))


def dx_launch(tiling: DxTiling, product: Product, at: Operands) -> Launch:
    """Return the launch of the kernel with ``tiling``."""
    make = strided_params if tiling.splits_kernel else dx_params
    params = make(tiling, product.core, at.source, at.weight, at.result)
    return _launch("Conv3DBackpropInputV2", tiling, params, product, tiling.problem.geometry.cin, at)


def forward_launch(tiling: ForwardTiling, product: Product, at: Operands) -> Launch:
    """Return the launch of the kernel with ``tiling``."""
    params = forward_params(tiling, product.core, at.source, at.weight, at.result)
    return _launch("Conv3D", tiling, params, product, tiling.geometry.cout, at)


def streamed_launch(tiling: StreamedTiling, product: Product, at: Operands) -> Launch:
    """Return the launch of the kernel with ``tiling``."""
    g = tiling.problem.geometry
    params = streamed_params(tiling, product.core, at.source, at.weight, at.result)
    name, channels = ("Conv3D", g.cout) if tiling.forward else ("Conv3DBackpropInputV2", g.cin)
    return _launch(name, tiling, params, product, channels, at)


def _core(product: Product, channels: int, bias: GmTensor | None) -> CoreSpec:
    """Return the product's core, with what a bias leaves of L1."""
    return product.core if bias is None else core_beside_bias(product.core, channels)


def _launch(
    name: str,
    tiling: DxTiling | ForwardTiling | StreamedTiling,
    params: np.ndarray,
    product: Product,
    channels: int,
    at: Operands,
) -> Launch:
    """Return the launch with the bias of its ``channels``, if there is one, among its parameters."""
    if at.bias is not None:
        add_bias(params, tiling, _core(product, channels, at.bias), at.bias)
    return _split_launch(name, params, at.gm)


def _split_launch(name: str, params: np.ndarray, gm: GlobalMemory) -> Launch:
    phases = 1 + int(params[0]["clear"])
    return kernel_launch(name, kernel_split.convolve, params, gm, SITES, phase_count=phases)


def _kernel(tiling: DxTiling | ForwardTiling | StreamedTiling, launch: Launch) -> Kernel:
    return Kernel(launches=(launch,), private_bytes=SYSTEM_WORKSPACE_BYTES, tiling=tiling)
