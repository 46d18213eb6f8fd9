"""From a checked call to its launches, one list of steps for each route.

Source of the order: ops-nn ``pooling/avg_pool3_d/op_api/aclnn_avgpool2d.cpp``. The constant weight and the matrix of
reciprocal divisors are computed on the host and lie in global memory as inputs.

ASSUMED: the library's Pooling is the convolution with one channel a group and a constant weight that its own weight
says; its ReduceMean adds in float32 and divides; its AvgPoolUpdate multiplies by reciprocals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from ops.avg_pool.call import divisors
from ops.avg_pool.planner import PoolingPlanner
from ops.avg_pool_forward.avg_pool3d import avg_pool3d_launch, avg_pool3d_tiling
from ops.avg_pool_forward.call import AvgPool2dCall
from ops.avg_pool_forward.route import Route, vector_route
from ops.avg_pool_forward.rules import Resolved
from ops.common.cube_operands import SYSTEM_WORKSPACE_BYTES, input_layout, output_layout, weight_layout
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Buffer, Kernel, Step
from ops.common.plan import OperatorPlan
from ops.common.status import AclnnStatus
from ops.conv3d_backprop_input.plan import forward_launches
from ops.vector.elementwise import div_launch, mul_launch
from ops.vector.reduce_sum import reduce_sum_launch
from ops.vector.steps import blocked_shape

_MOST_SHIFT = 15
"""Powers of two up to this are halves."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AvgPool2dPlan(OperatorPlan):
    """What one call runs; attributes as of `OperatorPlan`."""

    resolved: Resolved
    route: Route


def geometry_of(call: AvgPool2dCall) -> ConvGeometry:
    """Return the convolution with one channel a group that the pooling is; padded behind for clipped windows."""
    assert call.input is not None
    h, w = call.axes
    n, c = 1 if call.input.rank == 3 else call.input.shape[0], call.channels
    down, right = (max(axis.pad, axis.end_pad) for axis in (h, w))
    return ConvGeometry(
        n=n, cin=c, cout=c, groups=c, hi=h.x, wi=w.x, ho=h.y, wo=w.y, kh=h.kernel, kw=w.kernel,
        stride=(1, h.stride, w.stride), pad=(0, 0, h.pad, down, w.pad, right), spatial_rank=2,
    )  # fmt: skip


def shift_of(call: AvgPool2dCall, route: Route) -> int:
    """Return the power of two that sums are divided by in the Cube, and multiplied by behind it.

    Sums stored in half would pass its range although their mean does not; with F2 on they do, as the library's.
    """
    if route.compute_dtype != "fp16" or "F2" in route.active:
        return 0
    h, w = call.axes
    return min(round(math.log2(abs(call.divisor_override) or h.kernel * w.kernel)), _MOST_SHIFT)


def kernel_value(call: AvgPool2dCall, route: Route) -> float:
    """Return what every element of the constant weight is, before it is rounded to float32 or float16."""
    if route.name == "cube+mul":
        return 2.0 ** -shift_of(call, route)
    h, w = call.axes
    return 1.0 / (call.divisor_override or h.kernel * w.kernel)


def mean_matrix(call: AvgPool2dCall, route: Route) -> np.ndarray:
    """Return the matrix [Ho, Wo] that sums of windows are multiplied by: reciprocals of their divisors."""
    count = divisors(call, call.axes)
    factor = np.zeros(count.shape, np.float32)
    np.divide(np.float32(2.0 ** shift_of(call, route)), count.astype(np.float32), out=factor, where=count != 0)
    return factor


class _Planner(PoolingPlanner):
    """The steps of one call in the making."""

    def _global(self, source: Buffer) -> None:
        """Add up each plane, divide by its area, and make up for another divisor."""
        product, compute, override = self._product, self._route.compute_dtype, self._call.divisor_override
        h, w = self._call.axes
        planes, area = self._call.planes, h.x * w.x
        target = self.arguments["output"]
        wide = self.steps.cast(self.steps.cast(source, compute), "fp32")
        mean = Buffer(name="output.ReduceMean", shape=target.shape, dtype="fp32", format="ND")
        if compute == "fp32" and not override:
            mean = self.steps.plain_result("ReduceMean", target, "fp32")

        def reduce(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            sums = gm.add("ReduceMean.sums", 4 * planes, initialised=False)
            added = reduce_sum_launch(gm, at(wide), sums, 1, planes, area, "fp32", product)
            return Kernel(
                launches=(added, div_launch(gm, sums, at(mean), planes, 1, float(area), "fp32", product)),
                private_bytes=4 * planes,
            )

        self.steps.add(Step(name="ReduceMean", reads=(wide,), writes=(mean,), build=reduce))
        made = mean
        if override:
            factor = np.full((1, 1), area / override, np.float32)
            made = self._times(self.steps.cast(mean, compute), factor, "Muls")
        # rounded to the type that computes, unless that is the last step's own work
        rounded = made if target.buffer.dtype == compute else self.steps.cast(made, compute)
        self.steps.deliver_plain(rounded, target)

    def _times(self, source: Buffer, factors: np.ndarray, name: str) -> Buffer:
        """Multiply each plane by a matrix; return the product, the caller's tensor if it can be."""
        product, dtype, planes = self._product, source.dtype, self._call.planes
        matrix = self.steps.constant("mean", factors.shape, dtype, factors)
        made = self.steps.plain_result(name, self.arguments["output"], dtype)
        self.steps.launch(
            name, (source, matrix), made,
            lambda gm, src, matrix, dst: mul_launch(gm, src, matrix, dst, planes, factors.size, dtype, product),
        )  # fmt: skip
        return made

    def _cube(self, source: Buffer) -> None:
        """Run the convolution with one channel a group and a constant weight."""
        call, product, compute = self._call, self._product, self._route.compute_dtype
        geometry = geometry_of(call)
        h, w = call.axes
        value = np.array(kernel_value(call, self._route), np.float32)
        weight = self.steps.constant("weight", (geometry.cin, 1, h.kernel, w.kernel), compute, value)
        blocked = self.steps.to_blocked(self.steps.cast(source, compute), input_layout(geometry, compute))
        fractal = self.steps.to_fractal(weight, weight_layout(geometry, compute))
        layout = output_layout(geometry, compute)
        result = Buffer(name="output.NC1HWC0", shape=blocked_shape(layout), dtype=compute, format="NC1HWC0")

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            return forward_launches(geometry, product, compute, gm, at(blocked), at(fractal), at(result))

        self.steps.add(Step(name="Pooling", reads=(blocked, fractal), writes=(result,), build=build))
        if self._route.name == "cube":
            self.steps.deliver_blocked(result, layout, self.arguments["output"])
            return
        sums = self.steps.from_blocked(result, layout)
        made = self._times(sums, mean_matrix(call, self._route), "AvgPoolUpdate")
        self.steps.deliver_plain(made, self.arguments["output"])

    def _vector(self, source: Buffer) -> None:
        """Gather from pixels of lanes N * C to pixels of lanes."""
        product, call, dtype = self._product, self._call, source.dtype
        axes, lanes, item = call.axes, call.planes, DTYPES[source.dtype].item_bytes
        h, w = axes
        pixels = Buffer(name="input.NDHWC", shape=(1, 1, h.x, w.x, lanes), dtype=dtype, format="NDHWC")
        means = Buffer(name="output.NDHWC", shape=(1, 1, h.y, w.y, lanes), dtype=dtype, format="NDHWC")
        self.steps.transpose(source, pixels, lanes, h.x * w.x)

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            launch = avg_pool3d_launch(
                gm, at(pixels), at(means), axes, lanes, dtype, call.divisor_override, call.count_include_pad, product
            )
            tiling = avg_pool3d_tiling(axes, lanes, item, product)
            # ASSUMED: the library reserves for this kernel what it reserves for the others
            return Kernel(launches=(launch,), private_bytes=SYSTEM_WORKSPACE_BYTES, tiling=tiling)

        self.steps.add(Step(name="AvgPool3D", reads=(pixels,), writes=(means,), build=build))
        target = self.arguments["output"]
        made = self.steps.plain_result("Transpose", target, dtype)
        self.steps.transpose(means, made, h.y * w.y, lanes)
        self.steps.deliver_plain(made, target)


def plan_call(resolved: Resolved) -> AvgPool2dPlan:
    """Plan a checked call; touches no tensor data.

    What the Cube's kernel here cannot do goes over the vector cores where there is a kernel of theirs.

    Raises
    ------
    OperatorError
        561000 if no kernel can do the shape (the library wraps the failure).
    """
    planner = _Planner(resolved, "input", "output")
    try:
        calls = planner.plan()
    except OperatorError as error:
        if resolved.product.core.is_split and resolved.route.name.startswith("cube"):
            return plan_call(replace(resolved, route=vector_route(f"the Cube's kernel here cannot: {error}")))
        raise planner.refusal(error, AclnnStatus.ACLNN_ERR_INNER) from error
    return AvgPool2dPlan(
        resolved=resolved,
        route=resolved.route,
        calls=calls,
        arguments=planner.arguments,
        constants=planner.steps.constants,
    )
