"""Which of the operator library's routes a call takes, in which precision, and where it deviates.

Source: ops-nn ``pooling/avg_pool3_d_grad/op_api/aclnn_avgpool2d_backward.cpp`` and
``avgpool2d_conv2d_backprop_input_util.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npu_sim.dtypes.cube_math import CubeMathType
from ops.avg_pool.call import AvgPoolCall, PoolAxis

RouteName = Literal["empty", "global", "cube", "cube+mul", "AvgPool3DGrad"]

MAX_DIVISOR = 255
"""Largest divisorOverride, either sign, of the Cube route (and of the page)."""
MAX_KERNEL = 255
MAX_AREA = 255
SMALL_KERNEL = 20
"""A kernel of at most 20 x 20 goes to the Cube whatever its area."""
MAX_CHANNELS = 65535
GLOBAL_EXTENT = 10
"""Smallest height and width of the global route."""
MAX_HALF_COUNT = 2048
"""Where counting up by one in FP16 stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingRoute:
    """The way of one call of either pass.

    Attributes
    ----------
    name : str
        "empty", "global", "cube", "cube+mul", or the kernel on vector cores.
    compute_dtype : {"fp32", "fp16", "hf32"}
        What divides, multiplies, adds or scales.
    why : str
        The condition that decided.
    deviations : tuple of str
        Members of the operator's ``DEVIATIONS`` whose condition the call meets, on or off.
    active : tuple of str
        Those of them that are on.
    """

    name: str
    compute_dtype: str
    why: str
    deviations: tuple[str, ...] = ()
    active: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(PoolingRoute):
    """The way of one call; the rest as of `PoolingRoute`.

    Attributes
    ----------
    name : {"empty", "global", "cube", "cube+mul", "AvgPool3DGrad"}
        "cube+mul": gradOutput is multiplied by a matrix of reciprocal divisors before the Cube.
    ignores_override : bool
        A2 is on and met.
    counts_in_half : bool
        A3 is on and met.
    """

    name: RouteName

    @property
    def ignores_override(self) -> bool:
        """Whether A2 is on and met."""
        return "A2" in self.active

    @property
    def counts_in_half(self) -> bool:
        """Whether A3 is on and met."""
        return "A3" in self.active


def is_global(call: AvgPoolCall, axes: tuple[PoolAxis, ...]) -> bool:
    """Return whether the library divides one value a plane and spreads it."""
    return call.divisor_override == 0 and all(
        axis.kernel == axis.x and axis.x >= GLOBAL_EXTENT and axis.y == 1 for axis in axes
    )


def is_strip(axes: tuple[PoolAxis, ...]) -> bool:
    """Return whether one extent of the input is at least twice the other (by integer division)."""
    h, w = axes
    return not (h.x != 0 and w.x != 0 and w.x // h.x < 2 and h.x // w.x < 2)


def _vector_reason(call: AvgPoolCall, axes: tuple[PoolAxis, ...]) -> str | None:
    """Return why a call on split cores does not go to the Cube, None if it does."""
    h, w = axes
    assert call.grad_output is not None
    channels = call.grad_output.shape[-3]  # the library looks at gradOutput here
    small = h.kernel <= SMALL_KERNEL and w.kernel <= SMALL_KERNEL
    reasons = (
        (abs(call.divisor_override) > MAX_DIVISOR, f"divisorOverride is outside [-{MAX_DIVISOR}, {MAX_DIVISOR}]"),
        (max(h.kernel, w.kernel) > MAX_KERNEL, f"the kernel is longer than {MAX_KERNEL}"),
        (h.kernel * w.kernel > MAX_AREA and not small, f"the kernel's area is above {MAX_AREA}"),
        (not call.count_include_pad, "countIncludePad is false"),
        (call.ceil_mode, "ceilMode is true"),
        (is_strip(axes), "the input is a strip"),
        (channels > MAX_CHANNELS, f"channels are more than {MAX_CHANNELS}"),
    )
    return next((text for holds, text in reasons if holds), None)


def _met(call: AvgPoolCall, axes: tuple[PoolAxis, ...], dtype: str) -> tuple[str, ...]:
    """Return the deviations whose condition the call meets; with A5 off, also those of the route taken instead."""
    if not is_global(call, axes):
        return _met_by_windows(call, axes, dtype)
    if not any(axis.pad for axis in axes):
        return ()
    return ("A5",) if "A5" in call.quirks else (*_met_by_windows(call, axes, dtype), "A5")


def _met_by_windows(call: AvgPoolCall, axes: tuple[PoolAxis, ...], dtype: str) -> tuple[str, ...]:
    """Return the deviations of the Cube and vector routes whose condition the call meets."""
    h, w = axes
    if call.product.core.is_split:
        on_cube = _vector_reason(call, axes) is None
        down = call.cube_math_type == CubeMathType.ALLOW_FP32_DOWN_PRECISION and dtype != "fp16"
        return ("A4",) if on_cube and down else ()
    found = []
    if call.count_include_pad:
        if call.ceil_mode and call.divisor_override == 0 and (h.is_clipped or w.is_clipped):
            found.append("A1")
        return tuple(found)
    if abs(call.divisor_override) == MAX_DIVISOR:
        found.append("A2")
    mean = call.divisor_override == 0 or "A2" in (set(found) & call.quirks)
    if mean and dtype == "fp16" and int(h.covered.max()) * int(w.covered.max()) > MAX_HALF_COUNT:
        found.append("A3")
    return tuple(found)


def _cube_dtype(call: AvgPoolCall, dtype: str, active: tuple[str, ...]) -> str:
    """Return what the Cube multiplies; BF16 tensors are widened before it."""
    wish = call.cube_math_type
    if dtype == "fp16" or wish == CubeMathType.USE_FP16 or "A4" in active:
        return "fp16"
    if wish == CubeMathType.USE_HF32:
        return "hf32"
    if wish == CubeMathType.ALLOW_FP32_DOWN_PRECISION:
        if not call.product.core.is_split:
            return "fp16"
        return "hf32" if dtype == "fp32" else "fp32"
    return "fp32"


def choose_route(call: AvgPoolCall) -> Route:
    """Return the way of a call whose arguments are right."""
    assert call.grad_output is not None
    dtype = call.grad_output.dtype
    if call.is_empty:
        return Route(name="empty", compute_dtype="fp16" if dtype == "fp16" else "fp32", why="a tensor has no element")
    axes = call.axes
    met = _met(call, axes, dtype)
    active = tuple(name for name in met if name in call.quirks)
    if is_global(call, axes) and ("A5" in active or not any(axis.pad for axis in axes)):
        wishes_half = call.cube_math_type in (CubeMathType.ALLOW_FP32_DOWN_PRECISION, CubeMathType.USE_FP16)
        return Route(
            name="global",
            compute_dtype="fp16" if dtype == "fp16" or wishes_half else "fp32",
            why=f"one window of at least {GLOBAL_EXTENT} x {GLOBAL_EXTENT} covers the plane, no divisorOverride",
            deviations=met,
            active=active,
        )
    reason = _vector_reason(call, axes) if call.product.core.is_split else None
    if reason is not None:
        return Route(name="AvgPool3DGrad", compute_dtype="fp32", why=reason, deviations=met, active=active)
    constant = call.count_include_pad or (call.divisor_override != 0 and "A2" not in active)
    clipped = call.count_include_pad and call.divisor_override == 0 and "A1" in met and "A1" not in active
    why = "one divisor for all windows" if constant and not clipped else "a divisor for each window"
    return Route(
        name="cube" if constant and not clipped else "cube+mul",
        compute_dtype=_cube_dtype(call, dtype, active),
        why=why,
        deviations=met,
        active=active,
    )
