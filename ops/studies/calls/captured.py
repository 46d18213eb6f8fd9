"""Requests of captured layers and of test cases: the gradients that each names, in its modes."""

from __future__ import annotations

from collections.abc import Sequence

from npu_sim.dtypes.formats import dtype_name
from ops.studies.calls.convolutions import GradientRequest
from ops.studies.calls.planned import Request
from ops.studies.calls.poolings import PoolingGradientRequest
from ops.studies.cases import case_of_layer
from ops.studies.layers import GRADIENTS, AnyLayer, Layer


def requests_of_layers(layers: Sequence[AnyLayer], cube_math_types: Sequence[int] | None = None) -> tuple[Request, ...]:
    """Return the calls that compute the gradients of ``layers``, each in these modes, or its own, or 0."""
    return tuple(_request(layer, mode) for layer in layers for mode in cube_math_types or layer.cube_math_types or (0,))


def _request(layer: AnyLayer, mode: int) -> Request:
    if isinstance(layer, Layer):
        gradients = tuple(name for name in GRADIENTS if name in layer.gradients)
        return GradientRequest(case=case_of_layer(layer), gradients=gradients, cube_math_type=mode)
    return PoolingGradientRequest(
        x_shape=layer.x_shape,
        dy_shape=layer.dy.shape,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        ceil_mode=layer.ceil_mode,
        count_include_pad=layer.count_include_pad,
        divisor_override=layer.divisor_override,
        dtype=dtype_name(layer.dy.dtype),
        cube_math_type=mode,
        label=layer.name,
    )
