"""From a checked call to its launches, one list of steps for each route.

Source of the order: ops-nn ``pooling/avg_pool3_d_grad/op_api``. The constant weight and the matrix of reciprocal
divisors are computed on the host and lie in global memory as inputs. Neutral rewrites are left out: the kernel itself
inserts the zeros of strides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from npu_sim.dtypes.formats import DTYPES
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import GlobalMemory, GmTensor
from ops.avg_pool.avg_pool3d_grad import avg_pool3d_grad_launch, avg_pool_tiling, private_bytes, sums_bytes
from ops.avg_pool.bulk import run_in_bulk
from ops.avg_pool.call import AvgPoolCall
from ops.avg_pool.divisors import kernel_divisor, kernel_value, mean_matrix
from ops.avg_pool.planner import PoolingPlanner
from ops.avg_pool.route import Route
from ops.avg_pool.rules import Resolved
from ops.common.cube_operands import input_layout, output_layout, weight_layout
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Buffer, Kernel, Step
from ops.common.plan import OperatorPlan
from ops.common.status import AclnnStatus
from ops.conv3d_backprop_input.plan import input_gradient_launches
from ops.vector.elementwise import div_launch, mul_launch
from ops.vector.steps import blocked_shape


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AvgPoolPlan(OperatorPlan):
    """What one call runs; attributes as of `OperatorPlan`."""

    resolved: Resolved
    route: Route

    def run_at_once(self, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> bool:
        """Execute the call in bulk, see `bulk`."""
        return run_in_bulk(self.resolved, tensors, options)


def geometry_of(call: AvgPoolCall) -> ConvGeometry:
    """Return the convolution with one channel a group whose input gradient is the pooling's."""
    assert call.input is not None
    h, w = call.axes
    n = 1 if call.input.rank == 3 else call.input.shape[0]
    c = call.channels
    return ConvGeometry(
        n=n, cin=c, cout=c, groups=c, hi=h.x, wi=w.x, ho=h.y, wo=w.y, kh=h.kernel, kw=w.kernel,
        stride=(1, h.stride, w.stride), pad=(0, 0, h.pad, h.end_pad, w.pad, w.end_pad), spatial_rank=2, may_crop=True,
    )  # fmt: skip


class _Planner(PoolingPlanner):
    """The steps of one call in the making."""

    def _global(self, gradient: Buffer) -> None:
        """Divide one value a plane by the area and spread it."""
        dtype, product, target = self._route.compute_dtype, self._product, self.arguments["grad_input"]
        source = self.steps.cast(gradient, dtype)
        h, w = self._call.axes
        planes, elems, area = self._call.planes, h.x * w.x, float(h.kernel * w.kernel)
        result = self.steps.plain_result("Div", target, dtype)
        self.steps.launch(
            "Div", (source,), result,
            lambda gm, src, dst: div_launch(gm, src, dst, planes, elems, area, dtype, product),
        )  # fmt: skip
        self.steps.deliver_plain(result, target)

    def _cube(self, gradient: Buffer) -> None:
        """Run the input gradient of a convolution with one channel a group and a constant weight."""
        compute, product, call = self._route.compute_dtype, self._product, self._call
        stored = DTYPES[compute].stored_as
        geometry = geometry_of(call)
        wide = "fp16" if gradient.dtype == "fp16" else "fp32"
        gradient = self.steps.cast(gradient, wide)
        if self._route.name == "cube+mul":
            gradient = self._times_mean(gradient)
        gradient = self.steps.cast(gradient, stored)
        h, w = call.axes
        value = np.array(kernel_value(call, self._route), np.float32)
        constant = self.steps.constant("weight", (geometry.cin, 1, h.kernel, w.kernel), wide, value)
        weight = self.steps.cast(constant, stored)
        blocked = self.steps.to_blocked(gradient, output_layout(geometry, compute))
        fractal = self.steps.to_fractal(weight, weight_layout(geometry, compute))
        layout = input_layout(geometry, compute)
        result = Buffer(name="grad_input.NC1HWC0", shape=blocked_shape(layout), dtype=stored, format="NC1HWC0")

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            return input_gradient_launches(geometry, product, compute, gm, at(blocked), at(fractal), at(result))

        self.steps.add(Step(name="Conv2DBackpropInput", reads=(blocked, fractal), writes=(result,), build=build))
        self.steps.deliver_blocked(result, layout, self.arguments["grad_input"])

    def _times_mean(self, gradient: Buffer) -> Buffer:
        """Multiply every plane of gradOutput by the matrix of reciprocal divisors."""
        product, dtype, planes = self._product, gradient.dtype, self._call.planes
        h, w = self._call.axes
        matrix = self.steps.constant("mean", (h.y, w.y), dtype, mean_matrix(self._call, self._route, dtype))
        product_of = Buffer(name="grad_output.Mul", shape=gradient.shape, dtype=dtype, format="ND")

        self.steps.launch(
            "Mul", (gradient, matrix), product_of,
            lambda gm, src, matrix, dst: mul_launch(gm, src, matrix, dst, planes, h.y * w.y, dtype, product),
        )  # fmt: skip
        return product_of

    def _vector(self, gradient: Buffer) -> None:
        """Scatter from pixels of lanes N * C to pixels of lanes."""
        product, call, dtype = self._product, self._call, gradient.dtype
        axes, lanes, item = call.axes, call.planes, DTYPES[gradient.dtype].item_bytes
        h, w = axes
        small, large = h.y * w.y, h.x * w.x
        source = Buffer(name="grad_output.NDHWC", shape=(1, 1, h.y, w.y, lanes), dtype=dtype, format="NDHWC")
        turned = Buffer(name="grad_input.NDHWC", shape=(1, 1, h.x, w.x, lanes), dtype=dtype, format="NDHWC")
        self.steps.transpose(gradient, source, lanes, small)
        divisor = kernel_divisor(call)

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            own = sums_bytes(axes, lanes, item)
            sums = gm.add("AvgPool3DGrad.sums", own, initialised=False) if own else None
            launch = avg_pool3d_grad_launch(
                gm, at(source), at(turned), sums, axes, lanes, dtype, divisor, call.count_include_pad, product,
                call.deterministic,
            )  # fmt: skip
            return Kernel(
                launches=(launch,),
                private_bytes=private_bytes(axes, lanes, item),
                tiling=avg_pool_tiling(axes, lanes, item, product, call.deterministic),
            )

        self.steps.add(Step(name="AvgPool3DGrad", reads=(source,), writes=(turned,), build=build))
        target = self.arguments["grad_input"]
        result = self.steps.plain_result("Transpose", target, dtype)
        self.steps.transpose(turned, result, large, lanes)
        self.steps.deliver_plain(result, target)


def plan_call(resolved: Resolved) -> AvgPoolPlan:
    """Plan a checked call; touches no tensor data.

    Raises
    ------
    OperatorError
        161002 if a kernel of the Cube or vector route cannot do the shape (the library wraps the failure), 561103 on
        the global route.
    """
    planner = _Planner(resolved, "grad_output", "grad_input")
    wrapped = (
        AclnnStatus.ACLNN_ERR_INNER_NULLPTR if resolved.route.name == "global" else AclnnStatus.ACLNN_ERR_PARAM_INVALID
    )
    try:
        calls = planner.plan()
    except OperatorError as error:
        raise planner.refusal(error, wrapped) from error
    return AvgPoolPlan(
        resolved=resolved,
        route=resolved.route,
        calls=calls,
        arguments=planner.arguments,
        constants=planner.steps.constants,
    )
