"""Which of the operator library's routes a call takes, in which precision, and where it deviates.

Source: ops-nn ``pooling/avg_pool3_d/op_api/aclnn_avgpool2d.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npu_sim.dtypes.cube_math import CubeMathType
from ops.avg_pool.call import PoolAxis
from ops.avg_pool.route import (
    MAX_AREA,
    MAX_CHANNELS,
    MAX_DIVISOR,
    MAX_KERNEL,
    SMALL_KERNEL,
    PoolingRoute,
    is_strip,
)
from ops.avg_pool_forward.call import AvgPool2dCall

RouteName = Literal["empty", "global", "cube", "cube+mul", "AvgPool3D"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(PoolingRoute):
    """The way of one call; the rest as of `PoolingRoute`.

    Attributes
    ----------
    name : {"empty", "global", "cube", "cube+mul", "AvgPool3D"}
        "cube+mul": the sums of windows are multiplied by a matrix of reciprocal divisors behind the Cube.
    compute_dtype : {"fp32", "fp16"}
        What is multiplied and divided; AvgPool3D widens 16-bit tensors to it.
    on_ai_cpu : bool
        The library computes this on the AI CPU, which the machine does not have.
    """

    name: RouteName
    on_ai_cpu: bool = False


def is_global(axes: tuple[PoolAxis, ...]) -> bool:
    """Return whether one window without padding covers the plane."""
    return all(axis.kernel == axis.x and axis.pad == 0 for axis in axes)


def _limits(call: AvgPool2dCall, axes: tuple[PoolAxis, ...]) -> str | None:
    """Return why the library's Cube kernel does not take a call, None if it does."""
    h, w = axes
    small = h.kernel * w.kernel <= MAX_AREA or max(h.kernel, w.kernel) <= SMALL_KERNEL
    if not small and (call.product.core.is_split or (h.y != 1 and w.y == 1)):
        return f"the kernel's area is above {MAX_AREA}" + ("" if call.product.core.is_split else " and Wo is 1")
    if max(h.kernel, w.kernel) > MAX_KERNEL:
        return f"the kernel is longer than {MAX_KERNEL}"
    if abs(call.divisor_override) > MAX_DIVISOR:
        return f"divisorOverride is outside [-{MAX_DIVISOR}, {MAX_DIVISOR}]"
    return None


def _vector_reason(call: AvgPool2dCall, axes: tuple[PoolAxis, ...]) -> str | None:
    """Return why a call on split cores does not go to the Cube, None if it does."""
    if is_strip(axes):
        return "the input is a strip"
    if (limit := _limits(call, axes)) is not None:
        return limit
    if call.ceil_mode:
        return "ceilMode is true"
    return f"channels are more than {MAX_CHANNELS}" if call.channels > MAX_CHANNELS else None


def cube_dtype(call: AvgPool2dCall) -> str:
    """Return what the global and Cube routes compute in; BF16 tensors are widened."""
    assert call.input is not None
    if call.input.dtype == "fp16":
        return "fp16"
    halves = (CubeMathType.USE_FP16,)
    if not call.product.core.is_split:
        halves += (CubeMathType.ALLOW_FP32_DOWN_PRECISION,)  # type: ignore[assignment]
    return "fp16" if call.input.dtype == "fp32" and call.cube_math_type in halves else "fp32"


def choose_route(call: AvgPool2dCall) -> Route:
    """Return the way of a call whose arguments are right."""
    if call.is_empty:
        return Route(name="empty", compute_dtype=cube_dtype(call), why="a tensor has no element")
    axes, compute = call.axes, cube_dtype(call)
    if is_global(axes):
        return Route(name="global", compute_dtype=compute, why="one window without padding covers the plane")
    is_split = call.product.core.is_split
    reason = _vector_reason(call, axes) if is_split else None
    if reason is not None:
        return vector_route(reason)
    clipped = call.ceil_mode and any(axis.is_clipped for axis in axes)
    met = []
    if call.divisor_override == 0:
        if call.count_include_pad and clipped:
            met.append("F1")
        elif not call.count_include_pad and compute == "fp16":
            met.append("F2")
    active = tuple(name for name in met if name in call.quirks)
    constant = call.divisor_override != 0 or (call.count_include_pad and (not clipped or "F1" in active))
    limit = None if is_split else _limits(call, axes)
    why = "one divisor for all windows" if constant else "a divisor for each window"
    return Route(
        name="cube" if constant and limit is None else "cube+mul", compute_dtype=compute, why=limit or why,
        deviations=tuple(met), active=active, on_ai_cpu=limit is not None,
    )  # fmt: skip


def vector_route(why: str) -> Route:
    """Return the route over the vector cores, which looks at no cubeMathType."""
    return Route(name="AvgPool3D", compute_dtype="fp32", why=why)
