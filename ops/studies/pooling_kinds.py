"""The gradient of 2D average pooling, as studies call and judge it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_sim.dtypes.formats import dtype_name
from ops.common.pooling_definition import spread_shares, window_divisors
from ops.studies.kinds import VECTOR, Asked, Backend, Call, Golden, Kind, Run, Tensors
from ops.studies.layers import PoolingLayer
from ops.studies.rounding import cast, multiplied

ON_CUBE = ("cube", "cube+mul")
"""Routes on which the Cube adds, of both passes."""


def run_pooling(call: Callable[..., Any], result: str, layer: PoolingLayer, asked: Asked) -> Run:
    """Return what a pooling gives, of either pass.

    Parameters
    ----------
    call : callable
        The operator, with its tensors.
    result : str
        The attribute of what it returns that is wanted.
    layer : PoolingLayer
        Which pooling.
    asked : Asked
        How.
    """
    # imported here: it loads the compiler, which reading a file does not need
    from npu_sim.accumulation import default_accumulation

    names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    made = call(
        **{name: getattr(layer, name) for name in names},
        cube_math_type=asked.cube_math_type or 0,
        product=asked.product,
        accumulation=asked.accumulation,
        threads=asked.threads,
    )
    model = VECTOR
    if made.path in ON_CUBE:
        model = asked.accumulation or default_accumulation(asked.chip, made.compute_dtype).name
    return Run(
        gradient=getattr(made, result),
        compute_dtype=made.compute_dtype,
        accumulation=model,
        tiling="",
        route=made.path,
    )


def _run(layer: PoolingLayer, tensors: Tensors, asked: Asked) -> Run:
    # imported here, as above
    from ops.avg_pool.api import avg_pool2d_backward

    dy = tensors["dy"]
    call = partial(avg_pool2d_backward, dy, np.zeros(layer.x_shape, dy.dtype))
    return run_pooling(call, "grad_input", layer, asked)


def pooling_divisors(layer: PoolingLayer) -> npt.NDArray[np.float64]:
    """Return what the sum of each window is divided by, by definition."""
    extents, windows = (shape[-2:] for shape in (layer.x_shape, layer.dy.shape))
    return window_divisors(
        (extents[0], extents[1]), (windows[0], windows[1]), layer.kernel_size, layer.stride, layer.padding,
        count_include_pad=layer.count_include_pad, override=layer.divisor_override,
    )  # fmt: skip


def _by_definition(layer: PoolingLayer, tensors: Tensors, dtype: type[np.floating[Any]]) -> np.ndarray:
    """Spread dy * factor / divisor; what a route leaves out of these two is 1, and 1 over the definition's divisors."""
    divisor = tensors.get("divisor")
    if divisor is None:
        divisor = pooling_divisors(layer)
    share = tensors["dy"].astype(dtype) * tensors.get("factor", np.ones(1)).astype(dtype)
    share = np.divide(share, divisor.astype(dtype), out=np.zeros_like(share), where=divisor != 0)
    height, width = layer.x_shape[-2:]
    return spread_shares(share, (height, width), layer.kernel_size, layer.stride, layer.padding)


def _golden(layer: PoolingLayer, tensors: Tensors, backend: Backend) -> Golden:
    return _by_definition(layer, tensors, np.float64)


def _peer(layer: PoolingLayer, tensors: Tensors) -> npt.NDArray[np.float32]:
    return _by_definition(layer, tensors, np.float32)


def _multiplied(layer: PoolingLayer, tensors: Tensors, run: Run, product: Any) -> Tensors:
    """Return dy and the constants of the route, as ops/avg_pool/RULES.md has the routes.

    The Cube multiplies windows of a constant weight, 1 / divisor in the type of the tensors (float32 for bfloat16), or
    of ones where dy was multiplied by reciprocals before; the global route divides by the area in the type it computes
    in; the vector kernel divides in float32.
    """
    dy, compute = tensors["dy"], run.compute_dtype
    wide = "fp16" if dtype_name(dy.dtype) == "fp16" else "fp32"
    one = np.ones(1)
    if run.route == "cube":
        divisor = layer.divisor_override or prod(layer.kernel_size)
        weight = cast(np.array([1.0 / divisor], np.float32), wide)
        return {
            "dy": multiplied(cast(dy, wide), compute, product),
            "factor": multiplied(weight, compute, product),
            "divisor": one,
        }
    if run.route == "cube+mul":
        count = pooling_divisors(layer).astype(np.float32)
        mean = np.divide(np.float32(1), count, out=np.zeros_like(count), where=count != 0)
        # one rounding: float32 holds the product of two halves, and the float64 of two floats is rounded once
        exact = cast(dy, wide).astype(np.float64) * cast(mean, wide).astype(np.float64)
        scaled = cast(exact.astype(np.float32), wide, overflow=product.overflow_mode)
        return {"dy": multiplied(scaled, compute, product), "divisor": one}
    if run.route == "global":
        area = np.array([prod(layer.kernel_size)], np.float32)
        return {
            "dy": multiplied(dy, compute, product),
            "divisor": cast(area, compute, overflow=product.overflow_mode),
        }
    return tensors


def _k_depth(layer: PoolingLayer) -> int:
    """Return the windows over one element, at most."""
    return prod(-(-taps // step) for taps, step in zip(layer.kernel_size, layer.stride, strict=True))


POOLING_KINDS = (
    Kind(
        operator="average pooling",
        gradient="dx",
        calls=MappingProxyType({"aclnn": Call(words="call of aclnnAvgPool2dBackward", has_modes=True, run=_run)}),
        operands=("dy",),
        golden=_golden,
        peer=_peer,
        multiplied=_multiplied,
        k_depth=_k_depth,
        macs=lambda layer: layer.dy.size * prod(layer.kernel_size),
        reference=lambda layer: layer.grad_input,
    ),
)
