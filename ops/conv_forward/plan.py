"""From a checked call to its launches: conversions, one kernel of the Cube, bias, copy into a strided output.

Source of the order and of the routes: ops-nn ``conv/convolution_forward/op_host/op_api/aclnn_convolution.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from npu_sim.dtypes.cube_math import promote
from npu_sim.dtypes.formats import DTYPES
from npu_sim.memory.gm import GlobalMemory, GmTensor
from ops.common.arguments import argument_of
from ops.common.conv_plan import geometry_on, without_kernel
from ops.common.cube_operands import input_layout, output_layout, weight_layout
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Buffer, CallPlan, Kernel, Step, plan_steps
from ops.common.plan import OperatorPlan
from ops.conv3d_backprop_input.bias import bias_dtype, bias_layout
from ops.conv3d_backprop_input.plan import forward_launches, input_gradient_launches
from ops.conv_forward.call import ConvolutionCall
from ops.conv_forward.resolve import Resolved
from ops.conv_forward.route import Route, choose_route
from ops.matmul.plan import matmul_launches
from ops.matmul.tiling import MatmulShape
from ops.vector.elementwise import add_launch, broadcast_launch
from ops.vector.steps import StepList, blocked_shape

TENSORS = ("input", "weight", "bias", "output")
"""Fields of the caller's tensors, in the order of the interface."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConvolutionPlan(OperatorPlan):
    """What one call runs; attributes as of `OperatorPlan`."""

    resolved: Resolved
    route: Route


def geometry_of(call: ConvolutionCall) -> ConvGeometry:
    """Return the convolution; of a transposed one, that whose input gradient it is.

    A 1D axis stands in W; in H where the library puts it for a long result of few channels.

    Raises
    ------
    OperatorError
        561103 if the extents do not fit each other.
    """
    assert call.input is not None
    assert call.output is not None
    assert call.weight is not None
    assert call.stride is not None
    x, y, w = call.input.shape, call.output.shape, call.weight.shape
    if call.transposed:
        x, y = y, x
    stride, dilation, pads = call.stride, call.dilation or (), call.pads
    if call.rank == 3:
        at = 2 if _stands_in_height(call) else 3
        x, y, w = (_with_axis(shape, at) for shape in (x, y, w))
        stride, dilation = ((*v, 1) if at == 2 else (1, *v) for v in (stride, dilation))
        pads = (*pads, (0, 0)) if at == 2 else ((0, 0), *pads)
    # rows of a transposed result behind the last window: only the bias
    behind = tuple(
        more // step * step for more, step in zip(call.output_padding or (), call.stride, strict=False)
    ) if call.transposed else ()  # fmt: skip
    if call.rank == 3 and behind:
        behind = (*behind, 0) if _stands_in_height(call) else (0, *behind)
    if any(behind):
        x = (*x[:2], *(extent - more for extent, more in zip(x[2:], behind, strict=True)))
    flat = tuple(pad for pair in pads for pad in pair) if len(pads) == 2 else tuple(pad for pad, _ in pads)
    geometry = geometry_on(call.product, x, y, w, stride, flat, dilation, call.groups)
    return _longer(geometry, (0,) * (3 - len(behind)) + behind) if any(behind) else geometry


def _with_axis(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Return a 1D shape as a 2D one whose axis stands in place ``at``."""
    return (*shape[:2], shape[2], 1) if at == 2 else (*shape[:2], 1, shape[2])


def _stands_in_height(call: ConvolutionCall) -> bool:
    """Whether the library puts the axis of a transposed 1D convolution into H (ops-nn ``aclnn_convolution.cpp``)."""
    assert call.input is not None
    assert call.output is not None
    return call.transposed and call.output.shape[2] > 4096 and call.input.shape[0] == 1 and call.input.shape[1] <= 768


def _longer(g: ConvGeometry, behind: tuple[int, ...]) -> ConvGeometry:
    """Return ``g`` with rows behind each axis of its input that no window covers."""
    d, h, w = behind
    pad = (g.pad[0], g.pad[1] - d, g.pad[2], g.pad[3] - h, g.pad[4], g.pad[5] - w)
    return replace(g, di=g.di + d, hi=g.hi + h, wi=g.wi + w, pad=pad, may_crop=True)


class _Planner:
    """The steps of one call in the making."""

    def __init__(self, resolved: Resolved, route: Route, block_dim: int | None) -> None:
        self._resolved, self._route, self._call = resolved, route, resolved.call
        self._block_dim = block_dim
        self._compute, self._product = resolved.compute_dtype, resolved.product
        self._stored = DTYPES[resolved.compute_dtype].stored_as
        self._steps = StepList(resolved.product)
        self.arguments = {
            name: argument_of(name, desc, is_output=name == "output")
            for name in TENSORS
            if (desc := getattr(resolved.call, name)) is not None and route.name != "empty"
        }

    def plan(self) -> CallPlan:
        """Return the whole call."""
        if self._route.name == "whole map":
            self._whole_map()
        elif self._route.name != "empty":
            self._convolve(geometry_of(self._call))
        return plan_steps(self._product, self._steps.steps)

    def _operand(self, name: str, dtype: str) -> Buffer:
        return self._steps.cast(self._steps.contiguous(self.arguments[name]), dtype)

    def _bias(self, dtype: str) -> Buffer | None:
        """Return the bias in ``dtype``, by way of the type the library gives it; None without one."""
        if "bias" not in self.arguments:
            return None
        return self._steps.cast(self._operand("bias", self._resolved.bias_dtype), dtype)

    def _convolve(self, geometry: ConvGeometry) -> None:
        compute, product, transposed = self._compute, self._product, self._call.transposed
        large, small = input_layout(geometry, compute), output_layout(geometry, compute)
        source, target = (small, large) if transposed else (large, small)
        blocked = self._steps.to_blocked(self._operand("input", self._stored), source)
        fractal = self._steps.to_fractal(self._operand("weight", self._stored), weight_layout(geometry, compute))
        start = None if self._route.adds_bias else self._bias(bias_dtype(product))
        if start is not None and not product.core.is_split:
            start = self._steps.to_fractal(start, bias_layout(target.c, product))
        result = Buffer(
            name=f"output.{blocked.format}", shape=blocked_shape(target), dtype=self._stored, format=blocked.format
        )
        launches = input_gradient_launches if transposed else forward_launches

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            bias = None if start is None else at(start)
            operands = (geometry, product, compute, gm, at(blocked), at(fractal), at(result), bias)
            return launches(*operands, block_dim=self._block_dim)

        reads = (blocked, fractal) if start is None else (blocked, fractal, start)
        self._steps.add(Step(name=self._route.kernel, reads=reads, writes=(result,), build=build))
        if not self._route.adds_bias:
            self._steps.deliver_blocked(result, target, self.arguments["output"])
            return
        plain = self._steps.from_blocked(result, target)
        self._add_bias(plain, target.c, promote(self._stored, self._resolved.bias_dtype))

    def _whole_map(self) -> None:
        """y[N, Cout] = x[N, K] w[Cout, K]^T, the weight transposed by a launch of its own."""
        n, cout = self._resolved.output.shape[:2]
        k = prod(self._resolved.weight.shape[1:])
        compute, product, stored = self._compute, self._product, self._stored
        target = self.arguments["output"]
        x, w = self._operand("input", stored), self._operand("weight", stored)
        turned = Buffer(name="weight.Transpose", shape=(k, cout), dtype=stored, format="ND")
        self._steps.transpose(w, turned, cout, k)
        # with a bias the sum leaves unrounded, as the library's kernel adds the bias before it rounds
        dtype = stored if "bias" not in self.arguments else "fp32"
        made = Buffer(name="output.MatMul", shape=target.shape, dtype=dtype, format="ND")
        if "bias" not in self.arguments:
            made = self._steps.plain_result("MatMul", target, dtype)

        def multiply(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            shape = MatmulShape(m=n, n=cout, k=k)
            operands = (gm, at(x), at(turned), at(made))
            return matmul_launches(shape, product, compute, dtype, *operands, block_dim=self._block_dim)

        self._steps.add(Step(name=self._route.kernel, reads=(x, turned), writes=(made,), build=multiply))
        if "bias" in self.arguments:
            self._add_bias(made, cout, "fp32", stored)
        else:
            self._steps.deliver_plain(made, target)

    def _add_bias(self, source: Buffer, channels: int, dtype: str, rounded_to: str | None = None) -> None:
        """Add the bias to each channel of ``source``, [N][C][spatial], in ``dtype``; BF16 adds in FP32."""
        product, target = self._product, self.arguments["output"]
        wide = "fp32" if dtype == "bf16" else dtype
        values, bias = self._steps.cast(source, wide), self._bias(wide)
        assert bias is not None
        planes, length = target.shape[0], prod(target.shape[2:])
        matrix = bias
        if length > 1:
            matrix = Buffer(name="bias.BroadcastTo", shape=(channels, length), dtype=wide, format="ND")

            self._steps.launch(
                "BroadcastTo", (bias,), matrix,
                lambda gm, src, dst: broadcast_launch(gm, src, dst, channels, length, wide, product),
            )  # fmt: skip
        final = rounded_to or dtype
        made = Buffer(name="output.Add", shape=target.shape, dtype=wide, format="ND")
        if wide == final:
            made = self._steps.plain_result("Add", target, wide)
        self._steps.launch(
            "Add", (values, matrix), made,
            lambda gm, src, matrix, dst: add_launch(gm, src, matrix, dst, planes, channels * length, wide, product),
        )  # fmt: skip
        self._steps.deliver_plain(made if final == target.buffer.dtype else self._steps.cast(made, final), target)


def plan_call(resolved: Resolved, block_dim: int | None = None) -> ConvolutionPlan:
    """Plan a checked call, whose kernel may have ``block_dim`` Cube cores (None: all); touches no tensor data.

    Raises
    ------
    OperatorError
        561103 if a kernel cannot do the shape.
    """
    route = choose_route(resolved)
    planner = _Planner(resolved, route, block_dim)
    with without_kernel():
        calls = planner.plan()
    return ConvolutionPlan(resolved=resolved, route=route, calls=calls, arguments=planner.arguments)
