"""Requests of single kernels, between tensors that lie in global memory: what a profiler lists as one kernel.

A gradient may come with the layout conversions around its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Literal

from npu_sim.dtypes.formats import DTYPES
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from ops.common.arguments import Argument
from ops.common.cube_operands import input_layout, output_layout, weight_layout
from ops.common.generation import Generation
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Buffer, Kernel, Step, plan_steps
from ops.common.view import View
from ops.conv3d_backprop_filter.plan import weight_gradient_kernel
from ops.conv3d_backprop_input.plan import forward_launches, input_gradient_launches
from ops.studies.calls.planned import PlannedCall
from ops.vector.copy import copy_launch
from ops.vector.frame import has_byte_copies
from ops.vector.steps import StepList, blocked_shape, one_launch_step
from ops.vector.trans_data_plan import ActivationDirection, WeightDirection
from ops.vector.transpose import transpose_launch

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One step by itself, or few.

    Attributes
    ----------
    name : str
        Name in reports.
    words : str
        The operator, as the library calls its kernel.
    details : mapping
        Shapes, types and attributes as plain data.
    steps : callable
        ``steps(list)`` appends the steps on the product of the `StepList`.
    compute_dtype : str
        What is multiplied, "" where nothing is.
    macs : int
        Multiply-adds.
    kernel_words : str
        What a scope of "kernel" means of it; "" where there is one kernel.
    inputs_in_l2 : bool
        As of `PlannedCall`.
    """

    name: str
    words: str
    details: Mapping[str, Any]
    steps: Callable[[StepList], object]
    compute_dtype: str = ""
    macs: int = 0
    kernel_words: str = ""
    inputs_in_l2: bool = False
    cube_math_type: None = field(default=None, init=False)
    batch: int = field(default=1, init=False)

    def with_batch(self, batch: int) -> LaunchRequest:
        """Return the request itself: its rows are counted as they are."""
        return self

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return self.details

    def plan(self, product: Product) -> PlannedCall:
        """Plan the steps; an `NpuSimError` says why it is refused."""
        steps = StepList(product)
        self.steps(steps)
        calls = plan_steps(product, steps.steps)
        multiplying = tuple(step for step in calls.steps if step.kernel.tiling is not None)
        return PlannedCall(
            calls=calls,
            kernels=multiplying or calls.steps,
            compute_dtype=self.compute_dtype,
            macs=self.macs,
            inputs_in_l2=self.inputs_in_l2,
        )


def _input(name: str, shape: tuple[int, ...], dtype: str, storage_format: str = "ND") -> Buffer:
    return Buffer(name=name, shape=shape, dtype=dtype, format=storage_format, role="input")


def _output(name: str, shape: tuple[int, ...], dtype: str) -> Argument:
    buffer = Buffer(name=name, shape=shape, dtype=dtype, format="ND", role="output")
    return Argument(buffer=buffer, shape=shape)


def _extents(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "1"


def cast_request(shape: tuple[int, ...], source_dtype: str, target_dtype: str) -> LaunchRequest:
    """Return a Cast of ``shape`` elements from one float type to another."""
    return LaunchRequest(
        name=_extents(shape),
        words="Cast",
        details={"x_shape": shape, "input_dtype": source_dtype, "output_dtype": target_dtype},
        steps=lambda steps: steps.cast(_input("x", shape, source_dtype), target_dtype),
    )


def fill_request(shape: tuple[int, ...], dtype: str) -> LaunchRequest:
    """Return a fill of ``shape`` elements."""
    return LaunchRequest(
        name=_extents(shape),
        words="MemSet",
        details={"x_shape": shape, "input_dtype": dtype},
        steps=lambda steps: steps.clear(_output("x", shape, dtype)),
    )


def activation_request(layout: ActivationLayout, dtype: str, direction: ActivationDirection) -> LaunchRequest:
    """Return a TransData between NCHW or NCDHW and NC1HWC0 or NDC1HWC0."""

    def steps(found: StepList) -> None:
        if direction == "to_blocked":
            found.to_blocked(_input("x", layout.logical_shape, dtype), layout)
        else:
            found.from_blocked(_input("x", blocked_shape(layout), dtype, "NC1HWC0"), layout)

    return LaunchRequest(
        name=_extents(layout.logical_shape),
        words="TransData",
        details={"x_shape": layout.logical_shape, "input_dtype": dtype, "direction": direction, "c0": layout.c0},
        steps=steps,
    )


def weight_request(layout: WeightLayout, dtype: str, direction: WeightDirection) -> LaunchRequest:
    """Return a TransData between NCHW or NCDHW and FRACTAL_Z or FRACTAL_Z_3D."""

    def steps(found: StepList) -> None:
        if direction == "to_fractal":
            found.to_fractal(_input("x", layout.logical_shape, dtype), layout)
        else:
            source = _input("x", layout.storage_shape, dtype, "FRACTAL_Z")
            found.deliver_fractal(source, layout, _output("y", layout.logical_shape, dtype))

    return LaunchRequest(
        name=_extents(layout.logical_shape),
        words="TransData",
        details={
            "x_shape": layout.logical_shape,
            "input_dtype": dtype,
            "direction": direction,
            "c0": layout.c0,
            "groups": layout.groups,
        },
        steps=steps,
    )


def permuted_request(words: str, shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> LaunchRequest:
    """Return a copy of ``shape`` elements whose axes come in ``order``; the order of the axes itself is a plain copy.

    A matrix turned over is the Transpose of the vector cores; what moves whole rows is copied row by row.
    """
    target = tuple(shape[axis] for axis in order)
    strides = View.contiguous(shape).strides
    view = View(shape=target, strides=tuple(strides[axis] for axis in order))
    matrix = _turned_matrix(shape, order)
    source, output = _input("x", shape, dtype), _output("y", target, dtype)

    def steps(found: StepList) -> None:
        item, product = DTYPES[dtype].item_bytes, found.product

        def launch(gm: GlobalMemory, src: GmTensor, dst: GmTensor) -> Launch:
            if matrix is not None and has_byte_copies(product):
                return transpose_launch(gm, src, dst, *matrix, item, product)
            return copy_launch(gm, src, view, dst, View.contiguous(target), item, product)

        found.add(one_launch_step(words, source, output.buffer, launch))

    return LaunchRequest(
        name=_extents(shape),
        words=words,
        details={"x_shape": shape, "input_dtype": dtype, "order": order},
        steps=steps,
    )


def _turned_matrix(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, int] | None:
    """Return rows and columns if the axes split into two groups that change places."""
    real = [axis for axis in order if shape[axis] > 1]
    for cut in range(1, len(real)):
        if real == sorted(real[:cut]) + sorted(real[cut:]) and real[cut:] + real[:cut] == sorted(real):
            return prod(shape[axis] for axis in real[cut:]), prod(shape[axis] for axis in real[:cut])
    return None


def channel_sums_request(n: int, c: int, r: int, dtype: str) -> LaunchRequest:
    """Return a ReduceSum of [n][c][r] over its first and last axis."""
    return LaunchRequest(
        name=_extents((n, c, r)),
        words="ReduceSum",
        details={"x_shape": (n, c, r), "input_dtype": dtype},
        steps=lambda steps: steps.deliver_channel_sums(
            _input("x", (n, c, r), dtype), n, c, r, _output("y", (c,), dtype)
        ),
    )


def convolution_kernel_request(
    kernel: ConvKernel,
    geometry: ConvGeometry,
    compute_dtype: str,
    *,
    generation: Generation = "closed",
    block_dim: int | None = None,
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
    """
    g = geometry
    stored = DTYPES[compute_dtype].stored_as
    x, y = (blocked_shape(layout(g, compute_dtype)) for layout in (input_layout, output_layout))
    w = weight_layout(g, compute_dtype).storage_shape
    operands = {"forward": (x, w, y), "input": (y, w, x), "filter": (x, y, w)}[kernel]
    first, second = (_input(name, shape, stored) for name, shape in zip("ab", operands[:2], strict=True))
    result = _output("c", operands[2], "fp32" if kernel == "filter" else stored).buffer

    def launches(*operands: Any) -> Kernel:
        made = _launches_of(kernel, generation, block_dim)(*operands)
        return replace(made, launches=tuple(launch for launch in made.launches if launch.name != "MemSet"))

    return LaunchRequest(
        name=_extents((g.n, g.cin, g.di, g.hi, g.wi)),
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
        dy = found.to_blocked(found.cast(_input("dy", small.logical_shape, dtypes[0]), stored), small)
        if kernel == "input":
            w = found.to_fractal(found.cast(_input("w", weight.logical_shape, dtypes[0]), stored), weight)
            result = Buffer(name="dx.NC1HWC0", shape=blocked_shape(large), dtype=stored, format="NC1HWC0")
            _add_convolution(found, kernel, g, compute_dtype, dy, w, result, launches)
            found.deliver_blocked(result, large, _output("dx", large.logical_shape, dtypes[1]))
            return
        x = found.to_blocked(found.cast(_input("x", large.logical_shape, dtypes[0]), stored), large)
        result = Buffer(name="dw.FRACTAL_Z", shape=weight.storage_shape, dtype="fp32", format="FRACTAL_Z")
        _add_convolution(found, kernel, g, compute_dtype, x, dy, result, launches)
        found.deliver_fractal(result, weight, _output("dw", weight.logical_shape, dtypes[1]))

    return LaunchRequest(
        name=_extents((g.n, g.cin, g.di, g.hi, g.wi)),
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
