"""What plans of this package consist of: layouts of the tensors and what the engines need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from npu_sim.isa.op import Data
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from ops.common.geometry import ConvGeometry

STATUS_TILING = 561103
"""aclnn status of a tiling that fails (acl_base, ACLNN_ERR_INNER_TILING_ERROR)."""

ITEM_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "hf32": 4}
"""Bytes of one element in global memory by compute type, of operands and result alike."""

DATA_OF_COMPUTE = {"fp16": Data.FP16, "bf16": Data.BF16, "fp32": Data.FP32, "hf32": Data.FP32}


class Tiling(Protocol):
    """What every tiling can tell."""

    @property
    def origin(self) -> str:
        """Where its numbers come from, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputGradientPlan:
    """What one input gradient runs.

    Attributes
    ----------
    geometry : ConvGeometry
        The convolution.
    product : Product
        Where it runs.
    compute_dtype : str
        What the Cube multiplies: "fp16", "bf16", "hf32" or "fp32". Operands and result lie in memory in the type of the
        same width: fp16, bf16 resp. fp32.
    tiling : Tiling
        How the work is cut.
    launches : tuple of Launch
        In stream order.
    private_bytes : int
        Workspace the kernels ask the library for (16 MiB of the system included, where it is part of the request).
    dy_layout, weight_layout, dx_layout : ActivationLayout, WeightLayout, ActivationLayout
        NDC1HWC0, FRACTAL_Z_3D and NDC1HWC0 (with depth 1 the same bytes as NC1HWC0 and FRACTAL_Z).
    """

    geometry: ConvGeometry
    product: Product
    compute_dtype: str
    tiling: Tiling
    launches: tuple[Launch, ...]
    private_bytes: int
    dy_layout: ActivationLayout
    weight_layout: WeightLayout
    dx_layout: ActivationLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPlan:
    """What one forward convolution y = conv(x, weight) runs.

    Attributes are those of `InputGradientPlan`, with ``x_layout`` and ``y_layout`` for ``dy_layout`` and ``dx_layout``.
    """

    geometry: ConvGeometry
    product: Product
    compute_dtype: str
    tiling: Tiling
    launches: tuple[Launch, ...]
    private_bytes: int
    x_layout: ActivationLayout
    weight_layout: WeightLayout
    y_layout: ActivationLayout


def block_channels(compute_dtype: str) -> int:
    """Return C0: 16 for 16-bit operands, 8 for 32-bit ones."""
    return 32 // ITEM_BYTES[compute_dtype]


def input_layout(geometry: ConvGeometry, compute_dtype: str) -> ActivationLayout:
    """Return the NDC1HWC0 image of the forward input: dx of an input gradient, x of a forward convolution."""
    g = geometry
    return ActivationLayout(n=g.n, c=g.cin, d=g.di, h=g.hi, w=g.wi, c0=block_channels(compute_dtype))


def output_layout(geometry: ConvGeometry, compute_dtype: str) -> ActivationLayout:
    """Return the NDC1HWC0 image of the forward output: dy of an input gradient, y of a forward convolution."""
    g = geometry
    return ActivationLayout(n=g.n, c=g.cout, d=g.do, h=g.ho, w=g.wo, c0=block_channels(compute_dtype))


def weight_layout(geometry: ConvGeometry, compute_dtype: str) -> WeightLayout:
    """Return the FRACTAL_Z_3D image of the weight, with groups merged."""
    g = geometry
    return WeightLayout(
        cout=g.cout,
        cin_per_group=g.cin // g.groups,
        groups=g.groups,
        kd=g.kd,
        kh=g.kh,
        kw=g.kw,
        c0=block_channels(compute_dtype),
    )
