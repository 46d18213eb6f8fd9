"""Requests of captured layers and of test cases: the gradients that each names, in its modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from npu_sim.dtypes.formats import dtype_name
from ops.studies.calls.convolutions import ConvolutionRequest, GradientRequest
from ops.studies.calls.planned import Request
from ops.studies.calls.poolings import PoolingGradientRequest, PoolingRequest
from ops.studies.cases import case_of_layer
from ops.studies.layers import GRADIENTS, AnyLayer, Layer


def requests_of_layers(layers: Sequence[AnyLayer], cube_math_types: Sequence[int] | None = None) -> tuple[Request, ...]:
    """Return the calls that compute what ``layers`` name, each in these modes, or its own, or 0."""
    return tuple(
        request
        for layer in layers
        for mode in cube_math_types or layer.cube_math_types or (0,)
        for request in _requests(layer, mode)
    )


def _requests(layer: AnyLayer, mode: int) -> Iterator[Request]:
    """Yield the backward call of a layer, if a gradient is wanted, and the forward call, if its output is."""
    gradients = tuple(name for name in GRADIENTS if name in layer.gradients)
    if isinstance(layer, Layer):
        case = case_of_layer(layer)
        if gradients:
            yield GradientRequest(case=case, gradients=gradients, cube_math_type=mode)
        if "y" in layer.gradients:
            yield ConvolutionRequest(case=case, cube_math_type=mode)
        return
    attributes: dict[str, Any] = {
        "x_shape": layer.x_shape,
        "kernel_size": layer.kernel_size,
        "stride": layer.stride,
        "padding": layer.padding,
        "ceil_mode": layer.ceil_mode,
        "count_include_pad": layer.count_include_pad,
        "divisor_override": layer.divisor_override,
        "dtype": dtype_name(layer.dy.dtype),
        "cube_math_type": mode,
        "label": layer.name,
    }
    if gradients:
        yield PoolingGradientRequest(dy_shape=layer.dy.shape, **attributes)
    if "y" in layer.gradients:
        yield PoolingRequest(**attributes)
