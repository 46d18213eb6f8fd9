"""The three gradients of convolutions and transposed convolutions, as studies call and judge them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ops.studies.ascendc_gradient import ASCENDC_WEIGHT_GRADIENT
from ops.studies.kinds import VECTOR, Asked, Backend, Call, Entry, Golden, Kind, Run, Tensors
from ops.studies.layers import GRADIENTS, GradientName, Layer, Operator, ResultName
from ops.studies.rounding import multiplied
from ops.studies.tbe_gradient import TBE_WEIGHT_GRADIENT

RESULTS: Mapping[ResultName, str] = {"dx": "grad_input", "dw": "grad_weight", "db": "grad_bias", "y": "output"}
"""Field of the result of `ops.convolution_backward` or `ops.convolution`."""
_OPERANDS: dict[GradientName, tuple[str, ...]] = {"dx": ("dy", "weight"), "dw": ("x", "dy"), "db": ("dy",)}


def output_mask(*gradients: ResultName) -> tuple[bool, ...]:
    """Return the outputMask of a call that wants these gradients alone."""
    return tuple(name in gradients for name in GRADIENTS)


def call_words(*gradients: GradientName) -> str:
    """Return the words for that call."""
    mask = ", ".join(str(wanted).lower() for wanted in output_mask(*gradients))
    return f"call of aclnnConvolutionBackward with outputMask ({mask})"


def call_tensors(layer: Layer, tensors: Tensors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dy, x and weight; of what is no operand only the shape counts."""
    dy = tensors["dy"]
    x = tensors["x"] if "x" in tensors else np.zeros(layer.x_shape, dy.dtype)
    weight = tensors["weight"] if "weight" in tensors else np.zeros(layer.weight_shape, dy.dtype)
    return dy, x, weight


def call_attributes(layer: Layer) -> dict[str, Any]:
    """Return what a call is told of the layer besides its tensors."""
    attributes = attributes_of(layer)
    if layer.transposed:
        zeros = (0,) * len(layer.stride)
        attributes |= {"transposed": True, "output_padding": layer.output_padding or zeros}
    return attributes


WEIGHT_GRADIENT_CALL = call_words("dw")
"""What is timed and checked: the gradient of the weight alone, and whatever its call launches."""


def _run(gradient: GradientName) -> Callable[[Layer, Tensors, Asked], Run]:
    mask = output_mask(gradient)

    def run(layer: Layer, tensors: Tensors, asked: Asked) -> Run:
        result = asked.backend.convolution_backward(
            *call_tensors(layer, tensors),
            **call_attributes(layer),
            output_mask=mask,
            product=asked.product,
            cube_math_type=asked.cube_math_type,
            accumulation=asked.accumulation,
            threads=asked.threads,
        )
        # the bias gradient is added up by vector cores, in float32 and from what the tensor holds
        added = gradient == "db"
        return Run(
            gradient=getattr(result, RESULTS[gradient]),
            compute_dtype="fp32" if added else result.compute_dtype,
            accumulation=VECTOR if added else str(result.accumulation.name),
            tiling="" if added else str(result.plan.tiling_origin),
        )

    return run


def attributes_of(layer: Layer) -> dict[str, Any]:
    """Return stride, padding, dilation and groups."""
    return {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}


def _golden(gradient: GradientName) -> Callable[[Layer, Tensors, Backend], Golden]:
    def golden(layer: Layer, tensors: Tensors, backend: Backend) -> Golden:
        wide = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        if gradient == "db":
            return np.asarray(wide["dy"].sum(axis=(0, *range(2, layer.dy.ndim))))
        if gradient == "dx":
            from ops.common.definition_by_matrices import forward, input_gradient

            of_input = forward if layer.transposed else input_gradient
            return of_input(wide["dy"], wide["weight"], layer.x_shape, **attributes_of(layer))
        x, dy = (wide["dy"], wide["x"]) if layer.transposed else (wide["x"], wide["dy"])
        return backend.golden(x, dy, layer.weight_shape, **attributes_of(layer))

    return golden


def _peer(gradient: GradientName) -> Callable[[Layer, Tensors], npt.NDArray[np.float32]]:
    def peer(layer: Layer, tensors: Tensors) -> npt.NDArray[np.float32]:
        from ops.common.definition import forward, inner_products, input_gradient, weight_gradient

        if gradient == "db":
            by_channel = np.moveaxis(tensors["dy"].astype(np.float32), 1, 0).reshape(layer.dy.shape[1], -1)
            return inner_products(by_channel, np.ones((1, by_channel.shape[1]), np.float32))[:, 0]
        if gradient == "dx":
            of_input = forward if layer.transposed else input_gradient
            operands = (tensors["dy"], tensors["weight"], layer.x_shape)
            return of_input(*operands, **attributes_of(layer), dtype=np.float32)
        x, dy = (tensors["dy"], tensors["x"]) if layer.transposed else (tensors["x"], tensors["dy"])
        return weight_gradient(x, dy, layer.weight_shape, **attributes_of(layer), dtype=np.float32)

    return peer


def _multiplied(gradient: GradientName) -> Callable[[Layer, Tensors, Run, Any], Tensors]:
    def operands(layer: Layer, tensors: Tensors, run: Run, product: Any) -> Tensors:
        if gradient == "db":
            return tensors
        return {name: multiplied(tensor, run.compute_dtype, product) for name, tensor in tensors.items()}

    return operands


def _window(layer: Layer) -> int:
    """Return the products of one element of an input gradient, edges and strides left aside."""
    return prod(layer.weight_shape[2:]) * layer.dy.shape[1] // layer.groups


def _kind(operator: Operator, gradient: GradientName) -> Kind:
    calls: dict[Entry, Call] = {"aclnn": Call(words=call_words(gradient), has_modes=True, run=_run(gradient))}
    if gradient == "dw":
        calls |= {"tbe": TBE_WEIGHT_GRADIENT, "ascendc": ASCENDC_WEIGHT_GRADIENT}
    depths: dict[GradientName, Callable[[Layer], int]] = {
        "dx": _window,
        "dw": lambda layer: layer.k_depth,
        "db": lambda layer: layer.dy.size // layer.dy.shape[1],
    }
    return Kind(
        operator=operator,
        gradient=gradient,
        calls=MappingProxyType(calls),
        operands=_OPERANDS[gradient],
        golden=_golden(gradient),
        peer=_peer(gradient),
        multiplied=_multiplied(gradient),
        k_depth=depths[gradient],
        macs=lambda layer: layer.dy.size if gradient == "db" else layer.narrow.size * prod(layer.weight_shape[1:]),
        reference=lambda layer: getattr(layer, RESULTS[gradient]),
    )


_OPERATORS: tuple[Operator, ...] = ("convolution", "transposed convolution")
CONVOLUTION_KINDS = tuple(_kind(operator, gradient) for operator in _OPERATORS for gradient in GRADIENTS)
