"""Requests of the Cube's convolution kernels by themselves, and of gradients with the layouts around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from npu_sim.dtypes.formats import DTYPES
from npu_sim.memory.gm import GlobalMemory, GmTensor
from ops.common.cube_operands import input_layout, output_layout, weight_layout
from ops.common.generation import Generation
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Buffer, Kernel, Step
from ops.conv3d_backprop_filter.plan import weight_gradient_kernel
from ops.conv3d_backprop_filter.tiling_data import DwTiling
from ops.conv3d_backprop_input.plan import forward_launches, input_gradient_launches
from ops.studies.calls.launches import LaunchRequest, extents_text, input_buffer, output_argument
from ops.vector.steps import StepList, blocked_shape

ConvKernel = Literal["forward", "input", "filter"]
"""A convolution, the gradient of its input, the gradient of its weight."""
_NAMES: Mapping[ConvKernel, str] = {
    "forward": "Conv{}D",
    "input": "Conv{}DBackpropInput",
    "filter": "Conv{}DBackpropFilter",
}


def _launches_of(kernel: ConvKernel, generation: Generation, block_dim: int | None) -> Callable[..., Kernel]:
    """Return what plans the kernel; there is one generation of the forward one."""
    if kernel == "forward":
        return partial(forward_launches, block_dim=block_dim)
    launches = input_gradient_launches if kernel == "input" else weight_gradient_kernel
    return partial(launches, generation=generation, block_dim=block_dim)


def convolution_kernel_request(
    kernel: ConvKernel,
    geometry: ConvGeometry,
    compute_dtype: str,
    *,
    generation: Generation = "closed",
    block_dim: int | None = None,
    tiling: DwTiling | None = None,
) -> LaunchRequest:
    """Return a kernel of the Cube by itself, its operands in NC1HWC0 (NDC1HWC0) and FRACTAL_Z (FRACTAL_Z_3D).

    As a profiler lists it: the fill of a result that is added to is a kernel of its own, and the operands have just
    been converted.

    Parameters
    ----------
    kernel : {"forward", "input", "filter"}
        What is computed.
    geometry : ConvGeometry
        The convolution; of a gradient, that whose gradient it is.
    compute_dtype : {"fp16", "bf16", "hf32", "fp32"}
        What the Cube multiplies.
    generation : {"closed", "published"}
        Of a gradient's kernel on A2 and A3. The closed ones are those that were measured.
    block_dim : int or None
        Cube cores it may have; None: those of the product.
    tiling : DwTiling or None
        Of the published gradient of a weight; None: the one it chooses.
    """
    g = geometry
    stored = DTYPES[compute_dtype].stored_as
    x, y = (blocked_shape(layout(g, compute_dtype)) for layout in (input_layout, output_layout))
    w = weight_layout(g, compute_dtype).storage_shape
    operands = {"forward": (x, w, y), "input": (y, w, x), "filter": (x, y, w)}[kernel]
    first, second = (input_buffer(name, shape, stored) for name, shape in zip("ab", operands[:2], strict=True))
    result = output_argument("c", operands[2], "fp32" if kernel == "filter" else stored).buffer

    def launches(*operands: Any) -> Kernel:
        plan = _launches_of(kernel, generation, block_dim)
        made = plan(*operands) if tiling is None else plan(*operands, tiling=tiling)
        return replace(made, launches=tuple(launch for launch in made.launches if launch.name != "MemSet"))

    return LaunchRequest(
        name=convolution_name(g),
        words=_kernel_name(kernel, g),
        details=_convolution_facts(g, stored),
        steps=lambda steps: _add_convolution(steps, kernel, g, compute_dtype, first, second, result, launches),
        compute_dtype=compute_dtype,
        macs=_macs(g),
        inputs_in_l2=True,
    )


def convolution_operator_request(
    kernel: Literal["input", "filter"],
    geometry: ConvGeometry,
    compute_dtype: str,
    dtypes: tuple[str, str],
    *,
    generation: Generation = "closed",
    block_dim: int | None = None,
) -> LaunchRequest:
    """Return a gradient between plain tensors: layouts, the kernel, and the way back, as the operator in a graph runs.

    Unlike a call of aclnnConvolutionBackward it follows none of that call's rules and routes.

    Parameters
    ----------
    kernel, geometry, compute_dtype, generation, block_dim
        As of `convolution_kernel_request`.
    dtypes : (str, str)
        Of the operands and of the result.
    """
    g = geometry
    stored = DTYPES[compute_dtype].stored_as
    large, small, weight = (
        input_layout(g, compute_dtype),
        output_layout(g, compute_dtype),
        weight_layout(g, compute_dtype),
    )

    launches = _launches_of(kernel, generation, block_dim)

    def steps(found: StepList) -> None:
        dy = found.to_blocked(found.cast(input_buffer("dy", small.logical_shape, dtypes[0]), stored), small)
        if kernel == "input":
            w = found.to_fractal(found.cast(input_buffer("w", weight.logical_shape, dtypes[0]), stored), weight)
            result = Buffer(name="dx.NC1HWC0", shape=blocked_shape(large), dtype=stored, format="NC1HWC0")
            _add_convolution(found, kernel, g, compute_dtype, dy, w, result, launches)
            found.deliver_blocked(result, large, output_argument("dx", large.logical_shape, dtypes[1]))
            return
        x = found.to_blocked(found.cast(input_buffer("x", large.logical_shape, dtypes[0]), stored), large)
        result = Buffer(name="dw.FRACTAL_Z", shape=weight.storage_shape, dtype="fp32", format="FRACTAL_Z")
        _add_convolution(found, kernel, g, compute_dtype, x, dy, result, launches)
        found.deliver_fractal(result, weight, output_argument("dw", weight.logical_shape, dtypes[1]))

    return LaunchRequest(
        name=convolution_name(g),
        words=_kernel_name(kernel, g),
        details=_convolution_facts(g, dtypes[0]),
        steps=steps,
        compute_dtype=compute_dtype,
        macs=_macs(g),
        kernel_words="the kernel of the gradient",
    )


def _add_convolution(
    steps: StepList,
    kernel: ConvKernel,
    geometry: ConvGeometry,
    compute_dtype: str,
    first: Buffer,
    second: Buffer,
    result: Buffer,
    launches: Callable[..., Kernel],
) -> None:
    product = steps.product

    def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
        return launches(geometry, product, compute_dtype, gm, at(first), at(second), at(result))

    steps.add(Step(name=_kernel_name(kernel, geometry), reads=(first, second), writes=(result,), build=build))


def convolution_name(geometry: ConvGeometry) -> str:
    """Return the shape of the input, as a tensor of its axes has it."""
    g = geometry
    return extents_text((g.n, g.cin, *(g.di, g.hi, g.wi)[3 - g.spatial_rank :]))


def _kernel_name(kernel: ConvKernel, geometry: ConvGeometry) -> str:
    return _NAMES[kernel].format(3 if geometry.spatial_rank == 3 else 2)


def _macs(g: ConvGeometry) -> int:
    return g.n * g.cout * g.do * g.ho * g.wo * g.cin // g.groups * g.kd * g.kh * g.kw


def _convolution_facts(g: ConvGeometry, dtype: str) -> dict[str, Any]:
    return {
        "input_dtype": dtype,
        "n": g.n,
        "cin": g.cin,
        "cout": g.cout,
        "groups": g.groups,
        "input_extents": (g.di, g.hi, g.wi),
        "output_extents": (g.do, g.ho, g.wo),
        "kernel": (g.kd, g.kh, g.kw),
        "stride": g.stride,
        "pads": g.pad,
        "dilation": g.dilation,
    }
