"""A way around the rows of the Cube route: the same bits from additions in the same order.

A block of sixteen k of the Cube is one tap of sixteen channels, and only one of its weights is not zero: each tap adds
one product to an element, and the taps that count come in ascending order of windows. With FP16 operands a product is
exact in float32 and no sum is small enough to lose its sign, so products with zeros leave an element as it is, if
gradOutput is finite. That holds for every model of the Cube's additions whose groups do not reach over a tap and that
rounds to nearest.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from npu_sim.accumulation import Accumulation
from npu_sim.crew import run_parts
from npu_sim.engines.execute import ExecuteOptions, execute
from npu_sim.memory.gm import GmTensor
from npu_sim.products import Product
from npu_sim.program.launch import Launch
from ops.avg_pool import bulk_depthwise
from ops.avg_pool.plan import AvgPoolPlan
from ops.common.pipeline import CallPlan, PlannedStep

KERNEL = "Conv2DBackpropInput"
_LANES = bulk_depthwise.LANES


def adds_tap_by_tap(model: Accumulation) -> bool:
    """Return whether a model of additions rounds each tap's product to nearest by itself."""
    return _LANES % model.group == 0 and model.round == "rne"


def with_shortcut(plan: AvgPoolPlan, options: ExecuteOptions) -> CallPlan:
    """Return the steps of ``plan``, that of the Cube with a shortcut if the bits are those of its rows."""
    calls = plan.calls
    if plan.route.compute_dtype != "fp16" or not adds_tap_by_tap(options.accumulation):
        return calls
    steps = tuple(_short(step, plan, options) if step.step.name == KERNEL else step for step in calls.steps)
    return replace(calls, steps=steps)


def _short(planned: PlannedStep, plan: AvgPoolPlan, options: ExecuteOptions) -> PlannedStep:
    (launch,) = planned.kernel.launches
    dy, weight = (plan.calls.places[buffer] for buffer in planned.step.reads)
    (dx,) = (plan.calls.places[buffer] for buffer in planned.step.writes)
    h, w = plan.resolved.call.axes
    axes = (h.x, w.x, h.y, w.y, h.kernel, w.kernel, h.stride, w.stride, h.pad, w.pad)
    shortcut = partial(_run, launch, plan.resolved.product, options, (dy, weight, dx), axes)
    return replace(planned, kernel=replace(planned.kernel, launches=(replace(launch, shortcut=shortcut),)))


def _run(
    launch: Launch,
    product: Product,
    options: ExecuteOptions,
    tensors: tuple[GmTensor, GmTensor, GmTensor],
    axes: tuple[int, ...],
    arena: npt.NDArray[np.uint8],
    saturate: bool,
    threads: int,
) -> None:
    """Compute plane by plane; run the rows if an infinity or a NaN would spread over its sixteen channels."""
    dy, weight, dx = (arena[t.address : t.address + t.byte_count].view(np.uint16) for t in tensors)
    if not bulk_depthwise.all_finite(dy):
        execute(launch, product, options)
        return
    h, w, oh, ow = axes[:4]
    grads, result = dy.reshape(-1, oh * ow * _LANES), dx.reshape(-1, h * w * _LANES)
    value = weight[:1].view(np.float16).astype(np.float32)[0]
    parts = max(1, min(threads, len(grads)))
    bounds = [len(grads) * part // parts for part in range(parts + 1)]

    def spread(part: int) -> None:
        bulk_depthwise.spread_planes(grads, result, value, axes, bounds[part], bounds[part + 1], int(saturate))

    run_parts(spread, parts)
