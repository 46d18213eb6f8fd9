"""The outputs of convolutions, transposed convolutions and average poolings, as studies call and judge them."""

from __future__ import annotations

from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ops.common.pooling_definition import window_sums
from ops.studies.convolution_kinds import attributes_of, call_attributes
from ops.studies.kinds import Asked, Backend, Call, Golden, Kind, Run, Tensors
from ops.studies.layers import Layer, Operator, PoolingLayer
from ops.studies.pooling_kinds import pooling_divisors, run_pooling
from ops.studies.rounding import cast, multiplied

FORWARD_CALL = "call of aclnnConvolution"


def _run(layer: Layer, tensors: Tensors, asked: Asked) -> Run:
    # imported here: they load the compiler, which reading a file does not need
    from ops.conv_forward.api import convolution

    result = convolution(
        tensors["x"],
        tensors["weight"],
        tensors.get("bias"),
        **call_attributes(layer),
        product=asked.product,
        cube_math_type=asked.cube_math_type or 0,
        accumulation=asked.accumulation,
        threads=asked.threads,
    )
    return Run(
        gradient=result.output,
        compute_dtype=result.compute_dtype,
        accumulation=str(result.accumulation.name),
        tiling="",
        route="bias added behind" if "bias" in tensors and result.plan.route.adds_bias else "",
    )


def _golden(layer: Layer, tensors: Tensors, backend: Backend) -> Golden:
    from ops.common.definition_by_matrices import forward, input_gradient

    of_input = input_gradient if layer.transposed else forward
    output = of_input(tensors["x"], tensors["weight"], layer.dy.shape, **attributes_of(layer))
    return _with_bias(output, tensors)


def _peer(layer: Layer, tensors: Tensors) -> npt.NDArray[np.float32]:
    from ops.common.definition import forward, input_gradient

    of_input = input_gradient if layer.transposed else forward
    output = of_input(tensors["x"], tensors["weight"], layer.dy.shape, **attributes_of(layer), dtype=np.float32)
    return _with_bias(output, tensors)


def _with_bias(output: np.ndarray, tensors: Tensors) -> np.ndarray:
    if "bias" in tensors:
        output += tensors["bias"].astype(output.dtype).reshape(-1, *(1,) * (output.ndim - 2))
    return output


def _multiplied(layer: Layer, tensors: Tensors, run: Run, product: Any) -> Tensors:
    """Return the operands; a bias has the type of ops/conv_forward/RULES.md."""
    found = dict(tensors)
    for name in ("x", "weight"):
        found[name] = multiplied(tensors[name], run.compute_dtype, product)
    keeps_bias = layer.transposed and product.core.is_split
    if "bias" in found and run.compute_dtype == "fp16" and not keeps_bias:
        found["bias"] = cast(tensors["bias"], "fp16", overflow=product.overflow_mode)
    return found


def _kind(operator: Operator) -> Kind:
    return Kind(
        operator=operator,
        gradient="y",
        calls=MappingProxyType({"aclnn": Call(words=FORWARD_CALL, has_modes=True, run=_run)}),
        operands=("x", "weight"),
        optional=("bias",),
        golden=_golden,
        peer=_peer,
        multiplied=_multiplied,
        k_depth=lambda layer: prod(layer.weight_shape[2:]) * layer.x_shape[1] // layer.groups,
        macs=lambda layer: layer.narrow.size * prod(layer.weight_shape[1:]),
        reference=lambda layer: None,
    )


def _run_pooling(layer: PoolingLayer, tensors: Tensors, asked: Asked) -> Run:
    # imported here, as above
    from ops.avg_pool_forward.api import avg_pool2d

    return run_pooling(partial(avg_pool2d, tensors["x"]), "output", layer, asked)


def _means(layer: PoolingLayer, tensors: Tensors, dtype: type[np.floating[Any]]) -> np.ndarray:
    """Return sum * factor / divisor; what a route leaves out of these two is 1, and the definition's divisors."""
    divisor = tensors.get("divisor")
    if divisor is None:
        divisor = pooling_divisors(layer)
    height, width = layer.dy.shape[-2:]
    sums = window_sums(tensors["x"].astype(dtype), (height, width), layer.kernel_size, layer.stride, layer.padding)
    sums *= tensors.get("factor", np.ones(1)).astype(dtype)
    return np.divide(sums, divisor.astype(dtype), out=np.zeros_like(sums), where=divisor != 0)


def _pooling_golden(layer: PoolingLayer, tensors: Tensors, backend: Backend) -> Golden:
    return _means(layer, tensors, np.float64)


def _pooling_peer(layer: PoolingLayer, tensors: Tensors) -> npt.NDArray[np.float32]:
    return _means(layer, tensors, np.float32)


def _pooled(layer: PoolingLayer, tensors: Tensors, run: Run, product: Any) -> Tensors:
    """Return x and the constants of the route, as ops/avg_pool_forward/RULES.md has the routes.

    The Cube multiplies windows of a constant weight, 1 / divisor, or by a power of two, and what comes out of it by
    reciprocals of the divisors; the global route divides by the area in float32 and multiplies by area / override.
    """
    x, compute = tensors["x"], run.compute_dtype
    one, area = np.ones(1), prod(layer.kernel_size)
    overflow = product.overflow_mode
    operand = multiplied(x, compute, product)
    if run.route == "cube":
        constant = np.array([1.0 / (layer.divisor_override or area)], np.float32)
        return {"x": operand, "factor": multiplied(constant, compute, product), "divisor": one}
    if run.route == "cube+mul":
        count = pooling_divisors(layer).astype(np.float32)
        mean = np.divide(np.float32(1), count, out=np.zeros_like(count), where=count != 0)
        # the power of two that the Cube takes away keeps the reciprocals normal numbers of the type
        digits, exponents = np.frexp(mean)
        factor = np.ldexp(cast(digits, compute, overflow=overflow).astype(np.float64), exponents)
        return {"x": operand, "factor": factor, "divisor": one}
    if run.route == "global":
        override = np.array([area / (layer.divisor_override or area)], np.float32)
        return {"x": operand, "factor": cast(override, compute, overflow=overflow), "divisor": np.array([area])}
    return tensors


FORWARD_KINDS = (
    _kind("convolution"),
    _kind("transposed convolution"),
    Kind(
        operator="average pooling",
        gradient="y",
        calls=MappingProxyType({"aclnn": Call(words="call of aclnnAvgPool2d", has_modes=True, run=_run_pooling)}),
        operands=("x",),
        golden=_pooling_golden,
        peer=_pooling_peer,
        multiplied=_pooled,
        k_depth=lambda layer: prod(layer.kernel_size),
        macs=lambda layer: layer.dy.size * prod(layer.kernel_size),
        reference=lambda layer: None,
    ),
)
