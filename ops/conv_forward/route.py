"""Which of the operator library's ways a call takes, and the words that explain it.

Source: ops-nn ``conv/convolution_forward/op_host/op_api/aclnn_convolution.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ops.conv_forward.resolve import Resolved

RouteName = Literal["empty", "whole map", "1D as 2D", "2D", "3D", "3D as 2D"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of one call.

    Attributes
    ----------
    name : {"empty", "whole map", "1D as 2D", "2D", "3D", "3D as 2D"}
        How the library sees the tensors; "whole map": one window covers the map, a matrix product.
    kernel : str
        The step that multiplies, as the library calls it; "" for an empty call.
    adds_bias : bool
        A launch on the vector cores adds the bias to a rounded result; otherwise the Cube's sums start from it.
    notes : tuple of str
        What the library does differently inside.
    """

    name: RouteName
    kernel: str = ""
    adds_bias: bool = False
    notes: tuple[str, ...] = ()


def _is_whole_map(resolved: Resolved) -> bool:
    """Whether one window covers the map: split cores, 2D and 3D, one group, no padding, no dilation."""
    call = resolved.call
    if not resolved.product.core.is_split or call.rank == 3 or call.transposed or call.groups != 1:
        return False
    plain = not any(call.padding or ()) and all(step == 1 for step in call.dilation or ())
    return plain and resolved.input.shape[2:] == resolved.weight.shape[2:]


def choose_route(resolved: Resolved) -> Route:
    """Return the way ``resolved`` takes."""
    call = resolved.call
    if call.is_empty:
        return Route(name="empty")
    notes: list[str] = []
    if _is_whole_map(resolved):
        notes.append("the weight is transposed by a launch of its own, in the library by the matrix product")
        if call.bias is not None:
            notes.append("a launch of its own adds the bias to the unrounded result, in the library the product does")
        return Route(name="whole map", kernel="BatchMatMulV2", notes=tuple(notes))
    if call.rank < 5 or not resolved.product.supports_conv3d:
        name: RouteName = "2D" if call.rank == 4 else "1D as 2D" if call.rank == 3 else "3D as 2D"
        return Route(name=name, kernel="Conv2DTranspose" if call.transposed else "Conv2D")
    if call.transposed:
        return Route(name="3D", kernel="Conv3DTranspose", adds_bias=call.bias is not None)
    if call.groups == 1 and _is_pointwise(resolved):
        notes.append("pointwise: the library's kernel takes the tensors as they are, without TransData")
    return Route(name="3D", kernel="Conv3DV2", notes=tuple(notes))


def _is_pointwise(resolved: Resolved) -> bool:
    call = resolved.call
    ones = (*(call.stride or ()), *(call.dilation or ()), *resolved.weight.shape[2:])
    return all(value == 1 for value in ones) and not any(call.padding or ())
