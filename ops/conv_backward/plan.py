"""From a checked call to its launches: bias gradient, input gradient, weight gradient, copies into strided outputs.

Source of the order and of the routes: ops-nn ``conv/convolution_backward/op_api/aclnn_convolution_backward.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from npu_sim.dtypes.formats import DTYPES
from npu_sim.memory.gm import GlobalMemory, GmTensor
from ops.common.arguments import Argument, argument_of
from ops.common.conv_plan import geometry_on, without_kernel
from ops.common.core_count import with_cores
from ops.common.cube_operands import (
    input_layout,
    output_layout,
    weight_layout,
)
from ops.common.generation import Generation
from ops.common.geometry import ConvGeometry
from ops.common.pipeline import Buffer, CallPlan, Kernel, Step, plan_steps
from ops.common.plan import OperatorPlan
from ops.common.view import View
from ops.conv3d_backprop_filter.plan import WeightGradientLayouts, weight_gradient_kernel
from ops.conv3d_backprop_filter.tiling_data import DwTiling
from ops.conv3d_backprop_input.limits import library_only_limits
from ops.conv3d_backprop_input.plan import forward_launches, input_gradient_launches
from ops.conv3d_backprop_input.plan_split import plain_input_gradient, plain_tiling
from ops.conv3d_backprop_input.tiling_dx_data import DxTiling
from ops.conv_backward.call import ConvBackwardCall
from ops.conv_backward.resolve import Resolved
from ops.conv_backward.route import Route, choose_route
from ops.matmul.plan import matmul_launches
from ops.matmul.tiling import MatmulShape
from ops.vector.steps import StepList, blocked_shape

_OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
"""In the order in which the library copies into strided ones."""

_IN_ORDER = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConvBackwardPlan(OperatorPlan):
    """What one call runs; attributes as of `OperatorPlan`."""

    resolved: Resolved
    route: Route

    @property
    def tiling_origin(self) -> str:
        """Where the tilings of `multiplying_steps` come from."""
        origins = (getattr(planned.kernel.tiling, "origin", "") for planned in self.multiplying_steps)
        return ", ".join(dict.fromkeys(origins))


def geometry_of(call: ConvBackwardCall) -> ConvGeometry:
    """Return the convolution whose gradients are asked for; of a transposed one, that which goes the other way.

    Raises
    ------
    OperatorError
        561103 if the extents do not fit each other.
    """
    assert call.input is not None
    assert call.grad_output is not None
    assert call.weight is not None
    x, y, w = call.input.shape, call.grad_output.shape, call.weight.shape
    stride, padding, dilation = (tuple(value or ()) for value in (call.stride, call.padding, call.dilation))
    if call.transposed:
        x, y = y, x
        if call.has_unread_end:
            # padded by hand, because behind x there is less padding than before it, or none
            x, padding = (*x[:2], *(axis.before + axis.read for axis in call.spatial_axes)), (0,) * len(padding)
        if len(x) == 3:
            # the library puts the axis of a transposed 1D convolution into W whatever its groups
            x, y, w = ((*shape[:2], 1, shape[2]) for shape in (x, y, w))
            stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    geometry = geometry_on(call.product, x, y, w, stride, padding, dilation, call.groups)
    return _of_what_is_read(geometry, call) if call.has_unread_end else geometry


def _of_what_is_read(geometry: ConvGeometry, call: ConvBackwardCall) -> ConvGeometry:
    """Return ``geometry``, whose x has its padding in it, with the part of x that windows read and padding around."""
    axes = call.spatial_axes
    extents = (1,) * (3 - len(axes)) + tuple(min(axis.x, axis.read) for axis in axes)
    pads = [0] * (6 - 2 * len(axes))
    for axis in axes:
        pads += [axis.before, axis.read - min(axis.x, axis.read)]
    front, back, up, down, left, right = pads
    di, hi, wi = extents
    return replace(geometry, di=di, hi=hi, wi=wi, pad=(front, back, up, down, left, right))


class _Planner:
    """The steps of one call in the making."""

    def __init__(
        self,
        resolved: Resolved,
        route: Route,
        generation: Generation,
        block_dim: int | None,
        dw_tiling: DwTiling | None,
    ) -> None:
        self._resolved, self._route = resolved, route
        self._generation, self._block_dim, self._dw_tiling = generation, block_dim, dw_tiling
        self._call = resolved.call
        self._compute = resolved.compute_dtype
        self._product = resolved.product
        self._steps = StepList(resolved.product, _OUTPUTS)
        self.arguments: dict[str, Argument] = {}

    def plan(self) -> CallPlan:
        """Return the whole call."""
        if self._resolved.is_empty:
            for name in ("grad_weight", "grad_bias"):
                desc = self._resolved.wanted_outputs.get(name)
                if desc is not None and desc.elems:
                    self._steps.clear(self._argument(name))
        else:
            self._add_gradients()
        return plan_steps(self._product, self._steps.steps)

    def _add_gradients(self) -> None:
        call, route = self._call, self._route
        if call.wants(2):
            self._bias_gradient()
        if not call.wants_convolution:
            return
        if call.has_unread_end and min(axis.read for axis in call.spatial_axes) < 1:
            # every window lies in the padding
            for name in ("grad_input", "grad_weight"):
                if name in self._resolved.wanted_outputs:
                    self._steps.clear(self._argument(name))
            return
        geometry = geometry_of(call)
        if call.wants(0):
            if route.input_gradient_matmul == "whole map":
                self._whole_map_input_gradient()
            elif route.input_gradient_matmul == "blocks":
                self._blocks_input_gradient(geometry)
            else:
                self._input_gradient(geometry)
        if call.wants(1):
            if route.weight_gradient_matmul:
                self._whole_map_weight_gradient()
            else:
                self._weight_gradient(geometry)

    def _argument(self, name: str) -> Argument:
        if name not in self.arguments:
            desc = getattr(self._call, name)
            self.arguments[name] = argument_of(name, desc, is_output=name in _OUTPUTS)
        return self.arguments[name]

    def _operand(self, name: str, compute: str) -> Buffer:
        """Return a contiguous input in the type the Cube loads; of a transposed gradOutput what windows read."""
        argument = self._argument(name)
        if name == "grad_output" and self._call.transposed and self._call.has_unread_end:
            shape = (*argument.shape[:2], *(min(axis.x, axis.read) for axis in self._call.spatial_axes))
            view = argument.view or View.contiguous(argument.shape)
            argument = replace(argument, shape=shape, view=replace(view, shape=shape))
        return self._steps.cast(self._steps.contiguous(argument), DTYPES[compute].stored_as)

    def _bias_gradient(self) -> None:
        argument = self._argument("grad_output")
        source = self._steps.contiguous(argument)
        n, c, *spatial = argument.shape
        self._steps.deliver_channel_sums(source, n, c, prod(spatial), self._argument("grad_bias"))

    def _input_gradient(self, geometry: ConvGeometry) -> None:
        compute, product = self._compute, self._product
        if self._call.profile == "library" and not self._call.transposed:
            library_only_limits(geometry, product, compute)
        small, large = output_layout(geometry, compute), input_layout(geometry, compute)
        source, target = (large, small) if self._call.transposed else (small, large)
        fractal_layout = weight_layout(geometry, compute)
        gradient = self._operand("grad_output", compute)
        weight = self._operand("weight", compute)
        blocked = self._steps.to_blocked(gradient, source)
        fractal = self._steps.to_fractal(weight, fractal_layout)
        name = f"Conv{self._dimension}" if self._call.transposed else f"Conv{self._dimension}BackpropInput"
        stored, delivered = DTYPES[compute].stored_as, self._argument("grad_input")
        plain = self._plain_tiling(geometry)
        if plain is not None:
            own = self._kernel_result("grad_input", delivered.shape, stored, "NCDHW")
            result = self._steps.direct_target(delivered, stored) or own
        else:
            result = self._kernel_result("grad_input", blocked_shape(target), stored, blocked.format)

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            tensors = gm, at(blocked), at(fractal), at(result)
            if plain is not None:
                return plain_input_gradient(plain, product, *tensors)
            if self._call.transposed:
                return forward_launches(geometry, product, compute, *tensors, block_dim=self._block_dim)
            generation, block_dim = self._generation, self._block_dim
            return input_gradient_launches(
                geometry, product, compute, *tensors, generation=generation, block_dim=block_dim
            )

        self._steps.add(Step(name=name, reads=(blocked, fractal), writes=(result,), build=build))
        if plain is None:
            self._steps.deliver_blocked(result, target, delivered)
        else:
            self._steps.deliver_plain(result, delivered)

    def _plain_tiling(self, geometry: ConvGeometry) -> DxTiling | None:
        """Return the tiling of the kernel that writes NCDHW itself, None where the call takes another."""
        if not self._route.plain_input_gradient or self._generation != "published":
            return None
        return plain_tiling(geometry, with_cores(self._product, self._block_dim), self._compute)

    def _weight_gradient(self, geometry: ConvGeometry) -> None:
        compute, product, deterministic = self._compute, self._product, self._call.deterministic
        layouts = WeightGradientLayouts.of(geometry, compute)
        x_name, dy_name = ("grad_output", "input") if self._call.transposed else ("input", "grad_output")
        x = self._steps.to_blocked(self._operand(x_name, compute), layouts.x)
        dy = self._steps.to_blocked(self._operand(dy_name, compute), layouts.dy)
        result = self._kernel_result("grad_weight", layouts.dw.storage_shape, "fp32", self._fractal_format)

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            operands = (geometry, product, compute, gm, at(x), at(dy), at(result))
            return weight_gradient_kernel(
                *operands, deterministic, self._generation, self._block_dim, self._dw_tiling
            )  # fmt: skip

        name = f"Conv{self._dimension}BackpropFilter"
        self._steps.add(Step(name=name, reads=(x, dy), writes=(result,), build=build))
        # quirk Q1: the library casts a grouped 16-bit result before its layout conversion
        rounded_first = "Q1" in self._call.quirks and geometry.groups > 1 and compute in ("fp16", "bf16")
        final = self._steps.cast(result, compute) if rounded_first else result
        self._steps.deliver_fractal(final, layouts.dw, self._argument("grad_weight"))

    def _whole_map_input_gradient(self) -> None:
        """dx[N, Cin k] = g[N, Cout] w[Cout, Cin k]."""
        n, cout = self._resolved.grad_output.shape[:2]
        columns = prod(self._resolved.weight.shape[1:])
        self._matmul("grad_input", ("grad_output", "weight"), MatmulShape(m=n, n=columns, k=cout))

    def _whole_map_weight_gradient(self) -> None:
        """dw[Cout, Cin k] = g[N, Cout]^T x[N, Cin k]."""
        n, cout = self._resolved.grad_output.shape[:2]
        columns = prod(self._resolved.weight.shape[1:])
        shape = MatmulShape(m=cout, n=columns, k=n, a_transposed=True)
        self._matmul("grad_weight", ("grad_output", "input"), shape)

    def _blocks_input_gradient(self, geometry: ConvGeometry) -> None:
        """Dx = g^T w for each batch item, windows side by side; then the windows' elements move to their places."""
        g = geometry
        columns = prod(self._resolved.weight.shape[1:])
        shape = MatmulShape(m=g.do * g.ho * g.wo, n=columns, k=g.cout, a_transposed=True, batch=g.n)
        # product [N][Do][Ho][Wo][Cin][KD][KH][KW], result [N][Cin][Do][KD][Ho][KH][Wo][KW]
        block = (g.n, g.cin, g.do, g.kd, g.ho, g.kh, g.wo, g.kw)
        steps = View.contiguous((g.n, g.do, g.ho, g.wo, g.cin, g.kd, g.kh, g.kw)).strides
        order = (0, 4, 1, 5, 2, 6, 3, 7)
        view = View(shape=block, strides=tuple(steps[axis] for axis in order), offset=0)
        self._matmul("grad_input", ("grad_output", "weight"), shape, view)

    def _matmul(self, output: str, operands: tuple[str, str], shape: MatmulShape, permuted: View | None = None) -> None:
        """Add a matrix product into ``output``, in its own dtype; ``permuted`` reads the result in its order."""
        compute, product = "bf16" if self._route.keeps_bf16 else self._compute, self._product
        a, b = (self._operand(name, compute) for name in operands)
        target = self._argument(output)
        dtype = target.buffer.dtype
        result = None if permuted is not None else self._steps.direct_target(target, dtype)
        result = result or self._kernel_result(output, (shape.batch, shape.m, shape.n), dtype, "ND")

        def build(gm: GlobalMemory, at: Callable[[Buffer], GmTensor]) -> Kernel:
            operands = (gm, at(a), at(b), at(result))
            return matmul_launches(shape, product, compute, dtype, *operands, block_dim=self._block_dim)

        self._steps.add(Step(name="MatMulV2", reads=(a, b), writes=(result,), build=build))
        if permuted is not None:
            self._steps.deliver_permuted(result, permuted, target)
        else:
            self._steps.deliver_plain(result, target)

    def _kernel_result(self, name: str, shape: tuple[int, ...], dtype: str, storage_format: str) -> Buffer:
        return Buffer(name=f"{name}.{storage_format}", shape=shape, dtype=dtype, format=storage_format)

    @property
    def _dimension(self) -> str:
        return "3D" if self._resolved.rank == 5 else "2D"

    @property
    def _fractal_format(self) -> str:
        return "FRACTAL_Z_3D" if self._resolved.rank == 5 else "FRACTAL_Z"


def plan_call(
    resolved: Resolved,
    *,
    generation: Generation = "published",
    block_dim: int | None = None,
    dw_tiling: DwTiling | None = None,
) -> ConvBackwardPlan:
    """Plan a checked call; touches no tensor data.

    Parameters
    ----------
    resolved : Resolved
        The call.
    generation, block_dim, dw_tiling
        As of `ops.conv_backward.api.plan_convolution_backward`.

    Raises
    ------
    OperatorError
        561103 if a kernel cannot do the shape.
    """
    route = choose_route(resolved)
    planner = _Planner(resolved, route, generation, block_dim, dw_tiling)
    with without_kernel():
        calls = planner.plan()
    # the steps meet the bias gradient first, but outputs that share memory are written in the order of the interface
    arguments = {name: planner.arguments[name] for name in _IN_ORDER if name in planner.arguments}
    return ConvBackwardPlan(resolved=resolved, route=route, calls=calls, arguments=arguments)
