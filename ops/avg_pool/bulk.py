"""A way around the rows of whole calls: the same bits from additions in the same order, straight on the tensors.

Vector route: cores take ascending ranges of windows and atomic additions of different cores happen in core order, so
the order of additions to one element is that of the windows, on any number of cores; without overlap a product is
stored as it is.

Cube routes: a block of sixteen k of the Cube is one tap of sixteen channels, and only one of its weights is not zero:
each tap adds one product to an element, and the taps that count come in ascending order of windows. With FP16 operands
a product is exact in float32 and no sum is small enough to lose its sign, so products with zeros leave an element as it
is, if gradOutput is finite. That holds for every model of the Cube's additions whose groups do not reach over a tap and
that rounds to nearest.

Conversions, copies and storage formats around the kernels only move or round single elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npu_sim.accumulation import Accumulation
from npu_sim.crew import run_parts
from npu_sim.dtypes.formats import DTYPES
from npu_sim.engines.execute_options import ExecuteOptions, configuration
from npu_sim.units import ceil_div
from ops.avg_pool import bulk_planes
from ops.avg_pool.call import AvgPoolCall, PoolAxis, divisors
from ops.avg_pool.divisors import kernel_divisor, kernel_value, mean_matrix
from ops.avg_pool.lanes import LANES
from ops.avg_pool.rules import Resolved

_WORK_PER_THREAD = 1 << 18
"""Elements and additions worth a thread of their own, some 100 us."""


def adds_tap_by_tap(model: Accumulation) -> bool:
    """Return whether a model of additions rounds each tap's product to nearest by itself."""
    return LANES % model.group == 0 and model.round == "rne"


def can_run(resolved: Resolved, options: ExecuteOptions) -> bool:
    """Return whether there is a way around the rows of a call, as far as arguments tell."""
    if not options.shortcuts or options.order != "program" or options.poison:
        return False
    if resolved.route.name == "AvgPool3DGrad":
        return options.core_order is None
    on_cube = resolved.route.name in ("cube", "cube+mul")
    return on_cube and resolved.route.compute_dtype == "fp16" and adds_tap_by_tap(options.accumulation)


def run_in_bulk(resolved: Resolved, tensors: Mapping[str, np.ndarray], options: ExecuteOptions) -> bool:
    """Execute a call without its rows.

    Parameters
    ----------
    resolved : Resolved
        The checked call.
    tensors : mapping of str to array
        Flat storages of ``grad_output`` and ``grad_input``; the latter is written.
    options : ExecuteOptions
        How.

    Returns
    -------
    bool
        False, and nothing is written, if the rows must run: there is no way around them (`can_run`), or an infinity or
        a NaN would spread over its sixteen channels on the Cube.

    Raises
    ------
    ProductError
        If the overflow mode does not exist on the product; nothing is written then.
    """
    if not can_run(resolved, options):
        return False
    saturate = int(configuration(resolved.product, options)[3])
    source, target = (resolved.desc(name) for name in ("grad_output", "grad_input"))
    grads = np.ascontiguousarray(source.view(tensors["grad_output"])).reshape(-1)
    place = target.view(tensors["grad_input"])
    mode, factors, weight = _scale(resolved)
    codes = int(DTYPES[source.dtype].data), int(DTYPES[target.dtype].data)
    if mode != bulk_planes.PLAIN and not bulk_planes.all_halves_finite(*_words(grads), codes[0], saturate):
        return False
    direct = place.flags.c_contiguous and not np.may_share_memory(grads, place)
    result = place.reshape(-1) if direct else np.empty(place.size, place.dtype)
    _fill(resolved.call, grads, result, codes, (mode, factors, weight), saturate, options)
    if not direct:
        place[...] = result.reshape(place.shape)
    return True


def _words(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``flat`` as 16-bit and as 32-bit words; the latter empty where elements have 16 bits."""
    if flat.itemsize == 4:
        return flat.view(np.uint16), flat.view(np.uint32)
    return flat.view(np.uint16), np.empty(0, np.uint32)


def _scale(resolved: Resolved) -> tuple[int, np.ndarray, np.float32]:
    """Return how terms are made, what each window's gradient is multiplied by, float32[Ho * Wo], and the weight."""
    call, route = resolved.call, resolved.route
    assert call.grad_output is not None
    if route.name == "AvgPool3DGrad":
        count = divisors(replace(call, divisor_override=kernel_divisor(call)), call.axes).astype(np.float32)
        factors = np.divide(np.float32(1.0), count, out=np.zeros_like(count), where=count != 0)
        return bulk_planes.PLAIN, factors.reshape(-1), np.float32(1.0)
    weight = np.float32(kernel_value(call, route)).astype(np.float16).astype(np.float32)
    wide = "fp16" if call.grad_output.dtype == "fp16" else "fp32"
    if route.name == "cube+mul":
        factors = mean_matrix(call, route, wide).astype(np.float32)
        return bulk_planes.CUBE_ROUNDED, factors.reshape(-1), weight
    h, w = call.axes
    mode = bulk_planes.CUBE if wide == "fp16" else bulk_planes.CUBE_ROUNDED
    return mode, np.ones(h.y * w.y, np.float32), weight


def _ranges(axis: PoolAxis) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements under each window, [first, end)."""
    start = np.arange(axis.y) * axis.stride - axis.pad
    first = np.clip(start, 0, axis.x)
    return first, np.maximum(np.clip(start + axis.kernel, 0, axis.x), first)


def _fill(
    call: AvgPoolCall,
    grads: np.ndarray,
    result: np.ndarray,
    data: tuple[int, int],
    scale: tuple[int, np.ndarray, np.float32],
    saturate: int,
    options: ExecuteOptions,
) -> None:
    """Compute all planes, every thread some of them."""
    h, w = call.axes
    mode, factors, weight = scale
    plane, width = h.x * w.x, w.x
    bounds = (*_ranges(h), *_ranges(w))
    if w.y == 1 and bounds[2][0] == 0 and bounds[3][0] == width:
        # windows as wide as the plane: its rows are one
        bounds = (np.zeros(1, np.int64), np.ones(1, np.int64), bounds[0] * width, bounds[1] * width)
        width = plane
    apart = h.stride >= h.kernel and w.stride >= w.kernel
    function: Any
    function, unit = (bulk_planes.spread_planes, 1) if apart else (bulk_planes.add_planes, LANES)
    taps = 1 if apart else h.kernel * w.kernel
    planes = call.planes
    units = ceil_div(planes, unit)
    parts = max(1, min(options.threads, units, planes * (plane + len(factors) * taps) // _WORK_PER_THREAD))
    tensors = (*_words(grads), data[0], *_words(result), data[1])

    def run_part(part: int) -> None:
        first, end = (units * at // parts * unit for at in (part, part + 1))
        arguments = (plane, width, bounds, factors, weight, mode, saturate)
        function(*tensors, *arguments, first, min(end, planes))

    run_parts(run_part, parts)
