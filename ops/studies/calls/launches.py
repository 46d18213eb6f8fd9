"""Requests of single kernels of the vector cores, between tensors that lie in global memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from npu_sim.dtypes.formats import DTYPES
from npu_sim.layouts.formats import ActivationLayout, WeightLayout
from npu_sim.memory.gm import GlobalMemory, GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import FixedCost, Launch
from ops.common.arguments import Argument
from ops.common.core_count import with_vector_cores
from ops.common.pipeline import Buffer, Kernel, Step, plan_steps
from ops.common.view import View
from ops.studies.calls.planned import PlannedCall
from ops.vector.copy import copy_launch
from ops.vector.elementwise import add_launch, mul_launch
from ops.vector.frame import has_byte_copies
from ops.vector.steps import StepList, blocked_shape
from ops.vector.stream import BINARY, stream_launch
from ops.vector.trans_data_plan import ActivationDirection, WeightDirection
from ops.vector.transpose import transpose_launch

PLANES: Mapping[str, Callable[..., Launch]] = {"Add": add_launch, "Mul": mul_launch}
"""Kernels of planes and one matrix."""


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
    block_dim : int or None
        Vector cores that its kernels may have; None: those of the product.
    """

    name: str
    words: str
    details: Mapping[str, Any]
    steps: Callable[[StepList], object]
    compute_dtype: str = ""
    macs: int = 0
    kernel_words: str = ""
    inputs_in_l2: bool = False
    block_dim: int | None = None
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
        steps = StepList(with_vector_cores(product, self.block_dim), code_in_l2=True)
        self.steps(steps)
        calls = plan_steps(product, steps.steps)
        multiplying = tuple(step for step in calls.steps if step.kernel.tiling is not None)
        # the fill of what a kernel writes is a kernel of its own
        moving = tuple(step for step in calls.steps if step.step.name != "MemSet")
        return PlannedCall(
            calls=calls,
            kernels=multiplying or moving or calls.steps,
            compute_dtype=self.compute_dtype,
            macs=self.macs,
            inputs_in_l2=self.inputs_in_l2,
        )


def input_buffer(name: str, shape: tuple[int, ...], dtype: str, storage_format: str = "ND") -> Buffer:
    """Return a tensor that is there before the step."""
    return Buffer(name=name, shape=shape, dtype=dtype, format=storage_format, role="input")


def output_argument(name: str, shape: tuple[int, ...], dtype: str) -> Argument:
    """Return a tensor that the step makes."""
    buffer = Buffer(name=name, shape=shape, dtype=dtype, format="ND", role="output")
    return Argument(buffer=buffer, shape=shape)


def extents_text(shape: tuple[int, ...]) -> str:
    """Return "4x5"."""
    return "x".join(map(str, shape)) or "1"


def cast_request(shape: tuple[int, ...], source_dtype: str, target_dtype: str) -> LaunchRequest:
    """Return a Cast of ``shape`` elements from one float type to another."""
    return LaunchRequest(
        name=extents_text(shape),
        words="Cast",
        details={"x_shape": shape, "input_dtype": source_dtype, "output_dtype": target_dtype},
        steps=lambda steps: steps.cast(input_buffer("x", shape, source_dtype), target_dtype),
    )


def fill_request(shape: tuple[int, ...], dtype: str) -> LaunchRequest:
    """Return a fill of ``shape`` elements."""
    return LaunchRequest(
        name=extents_text(shape),
        words="MemSet",
        details={"x_shape": shape, "input_dtype": dtype},
        steps=lambda steps: steps.clear(output_argument("x", shape, dtype)),
    )


def activation_request(layout: ActivationLayout, dtype: str, direction: ActivationDirection) -> LaunchRequest:
    """Return a TransData between NCHW or NCDHW and NC1HWC0 or NDC1HWC0."""

    def steps(found: StepList) -> None:
        if direction == "to_blocked":
            found.to_blocked(input_buffer("x", layout.logical_shape, dtype), layout)
        else:
            found.from_blocked(input_buffer("x", blocked_shape(layout), dtype, "NC1HWC0"), layout)

    return LaunchRequest(
        name=extents_text(layout.logical_shape),
        words="TransData",
        details={"x_shape": layout.logical_shape, "input_dtype": dtype, "direction": direction, "c0": layout.c0},
        steps=steps,
    )


def weight_request(layout: WeightLayout, dtype: str, direction: WeightDirection) -> LaunchRequest:
    """Return a TransData between NCHW or NCDHW and FRACTAL_Z or FRACTAL_Z_3D."""

    def steps(found: StepList) -> None:
        if direction == "to_fractal":
            found.to_fractal(input_buffer("x", layout.logical_shape, dtype), layout)
        else:
            source = input_buffer("x", layout.storage_shape, dtype, "FRACTAL_Z")
            found.deliver_fractal(source, layout, output_argument("y", layout.logical_shape, dtype))

    return LaunchRequest(
        name=extents_text(layout.logical_shape),
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
    kernel: FixedCost = "transpose" if words == "Transpose" and order != tuple(sorted(order)) else "vector"
    source, output = input_buffer("x", shape, dtype), output_argument("y", target, dtype)

    def steps(found: StepList) -> None:
        item, product = DTYPES[dtype].item_bytes, found.product

        def launch(gm: GlobalMemory, src: GmTensor, dst: GmTensor) -> Launch:
            if matrix is not None and has_byte_copies(product):
                return transpose_launch(gm, src, dst, *matrix, item, product)
            launch = copy_launch(gm, src, view, dst, View.contiguous(target), item, product, fixed_cost=kernel)
            # a TransData that is timed as a copy is no better known than others
            return replace(launch, error_kind="trans_data") if words == "TransData" else launch

        found.launch(words, (source,), output.buffer, launch)

    return LaunchRequest(
        name=extents_text(shape),
        words=words,
        details={"x_shape": shape, "input_dtype": dtype, "order": order},
        steps=steps,
    )


def _turned_matrix(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, int] | None:
    """Return rows and columns if the axes, behind those that stay in front, split into two groups that change places.

    Several matrices are timed as one whose longer side is as long as theirs together: it has as many tiles.
    """
    real = [axis for axis in order if shape[axis] > 1]
    behind = sorted(real)
    matrices = 1
    while len(real) > 2 and real[0] == behind[0]:
        matrices *= shape[real[0]]
        real, behind = real[1:], behind[1:]
    for cut in range(1, len(real)):
        if real[cut:] + real[:cut] == behind:
            rows, columns = prod(shape[axis] for axis in real[cut:]), prod(shape[axis] for axis in real[:cut])
            return (rows * matrices, columns) if rows > columns else (rows, columns * matrices)
    return None


def channel_sums_request(n: int, c: int, r: int, dtype: str) -> LaunchRequest:
    """Return a ReduceSum of [n][c][r] over its first and last axis."""
    return LaunchRequest(
        name=extents_text((n, c, r)),
        words="ReduceSum",
        details={"x_shape": (n, c, r), "input_dtype": dtype},
        steps=lambda steps: steps.deliver_channel_sums(
            input_buffer("x", (n, c, r), dtype), n, c, r, output_argument("y", (c,), dtype)
        ),
    )


def elementwise_request(
    operation: str, shape: tuple[int, ...], dtype: str, fixed_cost: FixedCost = "vector"
) -> LaunchRequest:
    """Return an element-wise kernel of `ops.vector.stream` on ``shape`` elements, of two tensors where it has two."""
    sources = tuple(input_buffer(f"x{number}", shape, dtype) for number in range(1 + (operation in BINARY)))
    target = output_argument("y", shape, dtype).buffer

    def steps(found: StepList) -> None:
        product = found.product

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            places = tuple(at(source) for source in sources)
            launch = stream_launch(gm, operation, places, at(target), dtype, product, 1.0)
            return Kernel(launches=(replace(launch, fixed_cost=fixed_cost),))

        found.add(Step(name=operation, reads=sources, writes=(target,), build=build))

    return LaunchRequest(
        name=extents_text(shape), words=operation, details={"x_shape": shape, "input_dtype": dtype}, steps=steps
    )


def planes_request(operation: str, planes: int, elems: int, dtype: str) -> LaunchRequest:
    """Return one of `PLANES` of ``planes`` planes and one of ``elems`` elements, which is used for all."""
    launch = PLANES[operation]
    source, matrix = input_buffer("x0", (planes, elems), dtype), input_buffer("x1", (elems,), dtype)
    target = output_argument("y", (planes, elems), dtype).buffer

    def steps(found: StepList) -> None:
        product = found.product

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            places = (at(source), at(matrix), at(target))
            return Kernel(launches=(launch(gm, *places, planes, elems, dtype, product),))

        found.add(Step(name=operation, reads=(source, matrix), writes=(target,), build=build))

    return LaunchRequest(
        name=f"{planes}x{elems}",
        words=operation,
        details={"x_shape": (planes, elems), "input_dtype": dtype},
        steps=steps,
    )
