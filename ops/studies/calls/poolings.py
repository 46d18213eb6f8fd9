"""Requests of aclnnAvgPool2dBackward and aclnnAvgPool2d."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from npu_sim.products import Product
from ops.avg_pool import api as backward
from ops.avg_pool_forward import api as forward
from ops.common.pipeline import CallPlan
from ops.studies.calls.planned import PlannedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingRequest:
    """A call of aclnnAvgPool2d.

    Attributes
    ----------
    x_shape : tuple of int
        (N, C, H, W) or (C, H, W).
    kernel_size, stride, padding : tuple of int
        One entry per axis; an empty stride is the kernel size.
    ceil_mode, count_include_pad : bool
        As of the operator.
    divisor_override : int
        0: none.
    dtype : {"fp16", "bf16", "fp32"}
        Of the tensors.
    cube_math_type : int
        0..3.
    label : str
        Name in reports; "" is the shape.
    """

    x_shape: tuple[int, ...]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = (0,)
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int = 0
    dtype: str = "fp16"
    cube_math_type: int = 0
    label: str = ""
    words: ClassVar[str] = "call of aclnnAvgPool2d"
    kernel_words: ClassVar[str] = "the kernel of the pooling"

    @property
    def name(self) -> str:
        """Name in reports."""
        return self.label or "x".join(map(str, self.x_shape))

    @property
    def batch(self) -> int:
        """Images."""
        return self.x_shape[0] if len(self.x_shape) == 4 else 1

    def with_batch(self, batch: int) -> PoolingRequest:
        """Return the request for another batch."""
        return replace(self, x_shape=(batch, *self.x_shape[1:])) if len(self.x_shape) == 4 else self

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return {
            "cube_math_type": self.cube_math_type,
            "input_dtype": self.dtype,
            "x_shape": self.x_shape,
            **self.attributes,
        }

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the operator, by their names."""
        return {
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad,
            "divisor_override": self.divisor_override,
        }

    def plan(self, product: Product) -> PlannedCall:
        """Plan the call; an `NpuSimError` says why it is refused."""
        plan = forward.plan_avg_pool2d(
            forward.described(self.x_shape, self.dtype),
            **self.attributes,
            cube_math_type=self.cube_math_type,
            product=product,
        )
        return _planned(plan.calls, plan.route.compute_dtype, plan.route.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingGradientRequest(PoolingRequest):
    """A call of aclnnAvgPool2dBackward.

    Attributes
    ----------
    dy_shape : tuple of int
        Shape of the gradient at the output.
    """

    dy_shape: tuple[int, ...]
    words: ClassVar[str] = "call of aclnnAvgPool2dBackward"
    kernel_words: ClassVar[str] = "the kernel of the gradient"

    def with_batch(self, batch: int) -> PoolingGradientRequest:
        """Return the request for another batch."""
        if len(self.x_shape) != 4:
            return self
        return replace(self, x_shape=(batch, *self.x_shape[1:]), dy_shape=(batch, *self.dy_shape[1:]))

    def facts(self) -> Mapping[str, Any]:
        """Return shapes, types and attributes as plain data."""
        return {**PoolingRequest.facts(self), "dy_shape": self.dy_shape}

    def plan(self, product: Product) -> PlannedCall:
        """Plan the call; an `NpuSimError` says why it is refused."""
        plan = backward.plan_avg_pool2d_backward(
            backward.described(self.dy_shape, self.dtype),
            backward.described(self.x_shape, self.dtype),
            **self.attributes,
            cube_math_type=self.cube_math_type,
            product=product,
        )
        return _planned(plan.calls, plan.route.compute_dtype, plan.route.name)


def _planned(calls: CallPlan, compute_dtype: str, route: str) -> PlannedCall:
    kernels = tuple(planned for planned in calls.steps if planned.kernel.tiling is not None)
    # the global route divides or sums and has no tiling
    return PlannedCall(calls=calls, kernels=kernels or calls.steps, compute_dtype=compute_dtype, route=route)
