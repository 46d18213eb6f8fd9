"""The kernel of a weight gradient on tensors that exist: layouts, tiling and launches. Nothing is computed here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npu_sim.dtypes.formats import FP32
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch, PhaseKernels
from ops.common.core_count import with_cores
from ops.common.cube_operands import check_compute_dtype, input_layout, output_layout, weight_layout
from ops.common.generation import Generation
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Kernel
from ops.common.records import kernel_launch
from ops.conv3d_backprop_filter import kernel_closed, kernel_split, kernel_stream_k, kernel_unified, walk_split
from ops.conv3d_backprop_filter.params import split_params, unified_params
from ops.conv3d_backprop_filter.tiling import choose_tiling
from ops.conv3d_backprop_filter.tiling_closed import closed_tiling
from ops.conv3d_backprop_filter.tiling_data import DwTiling, Split
from ops.conv3d_backprop_filter.tiling_unified import single_writer, unified_tiling
from ops.vector.frame import vector_launch
from ops.vector.memset import memset_launch


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGradientLayouts:
    """Storage formats of the kernel's operands: NDC1HWC0 images of x and dy, FRACTAL_Z_3D image of dw in float32."""

    x: ActivationLayout
    dy: ActivationLayout
    dw: WeightLayout

    @classmethod
    def of(cls, geometry: ConvGeometry, compute_dtype: str) -> WeightGradientLayouts:
        """Return the layouts for operands of ``compute_dtype``."""
        return cls(
            x=input_layout(geometry, compute_dtype),
            dy=output_layout(geometry, compute_dtype),
            dw=weight_layout(geometry, compute_dtype),
        )


def unified_launches(params: np.ndarray, gm: GlobalMemory, dw: GmTensor, product: Product) -> tuple[Launch, Launch]:
    """Return the MemSet of ``dw`` and the kernel of the unified cores, in stream order.

    Parameters
    ----------
    params : `params.UNIFIED_PARAMS`[1]
        Of `params.unified_params`.
    gm, dw : GlobalMemory, GmTensor
        The tensors, and the result among them.
    product : Product
        Where it runs.
    """
    kernel = kernel_unified.weight_gradient
    launch = kernel_launch("Conv3DBackpropFilter", kernel, params, gm, kernel_unified.SITES)
    return memset_launch(gm, dw, product), launch


_ATOMIC_KERNEL = PhaseKernels(kernel_split.clear, kernel_split.compute)
_ORDERED_KERNEL = PhaseKernels(kernel_split.clear, kernel_stream_k.compute)


def closed_launches(params: np.ndarray, gm: GlobalMemory, dw: GmTensor, product: Product) -> tuple[Launch, Launch]:
    """Return the MemSet of ``dw`` and the closed kernel of split cores, in stream order.

    Parameters
    ----------
    params : `params.SPLIT_PARAMS`[1]
        Of `params.split_params` for a tiling of `tiling_closed`.
    gm, dw : GlobalMemory, GmTensor
        The tensors, and the result among them.
    product : Product
        Where it runs.
    """
    launch = kernel_launch("Conv3DBackpropFilter", kernel_closed.compute, params, gm, walk_split.SITES)
    return memset_launch(gm, dw, product), launch


def split_launches(
    params: np.ndarray, gm: GlobalMemory, product: Product, *, stream_k: bool
) -> tuple[Launch] | tuple[Launch, Launch]:
    """Return the kernel of the cube cores, and the sums of the vector cores where cube cores share blocks of dW.

    Parameters
    ----------
    params : `params.SPLIT_PARAMS`[1]
        Of `params.split_params`.
    gm : GlobalMemory
        The tensors.
    product : Product
        Where it runs.
    stream_k : bool
        Whether the tiling is one whose additions have one order (key 4).
    """
    kernel = _ORDERED_KERNEL if stream_k else _ATOMIC_KERNEL
    launch = kernel_launch("Conv3DBackpropFilterV2", kernel, params, gm, walk_split.SITES, phase_count=2)
    shared = int(params[0]["tail"])
    if not shared:
        return (launch,)
    workers = params.copy()
    workers["cores"] = shared * params["sharers"] * (product.vector_core_count // product.cube_core_count)
    sums = vector_launch("ReduceStreamK", kernel_stream_k.sum_slots, workers, gm, kernel_stream_k.SUM_SITES)
    return launch, sums


def weight_gradient_kernel(
    geometry: ConvGeometry,
    product: Product,
    compute_dtype: str,
    gm: GlobalMemory,
    x: GmTensor,
    dy: GmTensor,
    dw: GmTensor,
    deterministic: bool = False,
    generation: Generation = "published",
    block_dim: int | None = None,
    tiling: DwTiling | None = None,
) -> Kernel:
    """Choose tiling and launches for operands in ``gm``, stored as `WeightGradientLayouts` says; computes nothing.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution.
    product : Product
        Where it runs.
    compute_dtype : str
        What the Cube multiplies.
    gm : GlobalMemory
        Where the tensors lie.
    x, dy, dw : GmTensor
        Operands and result.
    deterministic : bool
        The additions to each element of ``dw`` have one order, whichever core is faster.
    generation : {"published", "closed"}
        On split cores: the kernel whose source is published, or the one before it (`tiling_closed`), which profiles of
        Conv2DBackpropFilter and Conv3DBackpropFilter are of. Their sums differ in order. What the closed one is not
        known to do (deterministic sums, windows that image-to-column cannot load as a whole) the published one does.
    block_dim : int or None
        Cube cores it may have; None: those of the product.
    tiling : DwTiling or None
        Of the published kernel on split cores, one of `tiling_space`; None: that of `tiling.choose_tiling`.

    Raises
    ------
    ShapeError
        ``block_dim`` is below 1.
    OperatorError
        161002 if the product's Cube does not multiply ``compute_dtype``.
    """
    check_compute_dtype(product, compute_dtype)
    product = with_cores(product, block_dim)
    if product.core.is_split:
        closed = None
        if generation == "closed" and not deterministic and tiling is None:
            closed = closed_tiling(geometry, product, compute_dtype)
        if closed is not None:
            params = split_params(closed, product, x, dy, dw, compute_dtype)
            both = closed_launches(params, gm, dw, product)
            return Kernel(launches=both, private_bytes=closed.workspace_bytes, tiling=closed)
        if tiling is None:
            tiling = choose_tiling(geometry, product, compute_dtype, deterministic)
        slots = None
        if tiling.slots_bytes:
            slots = gm.add("Conv3DBackpropFilterV2.slots", tiling.slots_bytes, initialised=False, data=FP32.data)
        params = split_params(tiling, product, x, dy, dw, compute_dtype, slots)
        launches = split_launches(params, gm, product, stream_k=tiling.tiling_key == Split.MN_STREAM_K)
        return Kernel(launches=launches, private_bytes=tiling.workspace_bytes, tiling=tiling)
    unified = unified_tiling(geometry, product)
    if deterministic:
        unified = single_writer(unified)
    params = unified_params(unified, geometry, product, x, dy, dw)
    return Kernel(launches=unified_launches(params, gm, dw, product), tiling=unified)
