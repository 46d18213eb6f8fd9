"""Which of the operator library's ways a call takes, and the words that explain it.

Source: ops-nn ``conv/convolution_backward/op_api/aclnn_convolution_backward.cpp`` and ``convolutionbackward.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npu_sim.dtypes.cube_math import CubeMathType
from ops.common.geometry import LINE_DILATION_KEPT_IN_W
from ops.conv_backward.resolve import Resolved

MatmulCase = Literal["whole map", "blocks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of one call.

    Attributes
    ----------
    name : {"empty", "1D as 2D", "2D", "2D as 3D", "3D"}
        How the library sees the tensors.
    input_gradient_matmul : {"whole map", "blocks"} or None
        The input gradient is a matrix product: the kernel covers the whole feature map, or its windows tile the map.
    weight_gradient_matmul : bool
        The weight gradient is a matrix product, too.
    keeps_bf16 : bool
        The matrix products multiply bfloat16 although FP16 was asked for, as the library does.
    plain_input_gradient : bool
        The kernel of the input gradient writes NCDHW with the help of the vector cores, where it can do the shape.
    notes : tuple of str
        What the library does differently inside, without any effect on values.
    """

    name: str
    input_gradient_matmul: MatmulCase | None = None
    weight_gradient_matmul: bool = False
    keeps_bf16: bool = False
    plain_input_gradient: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_matmul(self) -> bool:
        """Whether any gradient is a matrix product."""
        return self.input_gradient_matmul is not None or self.weight_gradient_matmul


def _matmul_case(resolved: Resolved) -> MatmulCase | None:
    """Return which matrix product the convolution is, None if it is none."""
    call = resolved.call
    plain = not call.transposed and call.groups == 1
    if not resolved.product.core.is_split or not plain or resolved.rank == 3:
        return None
    if any(call.padding or ()) or any(call.output_padding or ()) or any(value != 1 for value in call.dilation or ()):
        return None
    axes = call.spatial_axes
    if all(axis.kernel == axis.x and axis.y == 1 for axis in axes):
        return "whole map"
    tiles = all(axis.kernel == axis.stride and axis.x == axis.y * axis.kernel for axis in axes)
    if tiles and any(axis.stride > 1 for axis in axes):
        return "blocks"
    return None


_L1_COLUMNS = 4096
_LEAST_PIXELS, _MOST_PLANES = 5500, 85
_MOST_STEP, _MOST_TAPS = 2, 4


def _takes_ascend_c(resolved: Resolved) -> bool:
    """Return whether a 3D input gradient on split cores is the kernel in Ascend C, not the older one in TBE.

    The library's list of single shapes that take it, too, is not here.
    """
    call, axes = resolved.call, resolved.call.spatial_axes
    if call.groups > 1 or resolved.input.dtype == "fp32":
        return True
    depth, height, width = axes
    rows = min((height.y - 1) * height.stride + 1, (height.kernel - 1) * height.dilation + 2)
    if (
        depth.stride > depth.kernel
        or any(axis.before >= axis.kernel for axis in axes)
        or rows * width.y * width.stride > _L1_COLUMNS
    ):
        return False
    if any(axis.x > axis.read - axis.before or axis.dilation > 1 for axis in axes):
        return True
    small = all(max(axis.stride, axis.before) <= _MOST_STEP and axis.kernel <= _MOST_TAPS for axis in axes)
    return small and height.x * width.x >= _LEAST_PIXELS and depth.x <= _MOST_PLANES


def _writes_plain(resolved: Resolved) -> bool:
    """Return whether the library's kernel of the input gradient writes NCDHW: a 16-bit result of the Ascend C one."""
    is_3d = resolved.product.core.is_split and resolved.rank == 5 and not resolved.call.transposed
    return is_3d and resolved.compute_dtype in ("fp16", "bf16") and _takes_ascend_c(resolved)


def _notes(resolved: Resolved) -> tuple[str, ...]:
    """Return the library's rewrites that change no value: the dx kernel here inserts the zeros itself."""
    call, axes = resolved.call, resolved.call.spatial_axes
    notes = []
    two_dimensional = resolved.product.core.is_split and resolved.rank < 5 and not call.transposed
    if two_dimensional and call.wants(0) and resolved.compute_dtype != "bf16":
        if all(axis.kernel == 1 for axis in axes) and any(axis.stride > 1 for axis in axes):
            notes.append("post-dilation: the library spreads a stride-1 result with zeros")
        elif any(axis.stride > 2 for axis in axes):
            notes.append("pre-dilation: the library inserts zeros into gradOutput before the kernel")
    return tuple(notes)


def _deterministic_note(resolved: Resolved) -> str:
    if resolved.product.core.is_split:
        return "deterministic: a block of gradWeight has one core, or several whose sums meet in workspace, in order"
    return "deterministic: a block of gradWeight has one core (ASSUMED: the library's own schedule is closed)"


def choose_route(resolved: Resolved) -> Route:
    """Return the way ``resolved`` takes."""
    call = resolved.call
    if resolved.is_empty:
        return Route(name="empty")
    case = _matmul_case(resolved)
    dx_case: MatmulCase | None = case if call.wants(0) else None
    if case == "blocks" and resolved.rank == 4 and call.wants(1):
        dx_case = None
    dw_matmul = case == "whole map" and call.wants(1)
    name = {3: "1D as 2D", 4: "2D", 5: "3D"}[resolved.rank]
    if name == "2D" and (dx_case or dw_matmul):
        name = "2D as 3D"
    keeps_bf16 = (
        call.profile == "library"
        and (dx_case is not None or dw_matmul)
        and resolved.promoted_dtype == "bf16"
        and call.cube_math_type == CubeMathType.USE_FP16
    )
    notes = _notes(resolved) if dx_case is None else ()
    if name == "1D as 2D":
        in_w = call.transposed or call.groups == 1 or (call.dilation or (1,))[0] == LINE_DILATION_KEPT_IN_W
        notes = (f"the axis becomes {'W' if in_w else 'H'}", *notes)
    if call.deterministic and call.wants(1) and not dw_matmul:
        notes = (*notes, _deterministic_note(resolved))
    return Route(
        name=name,
        input_gradient_matmul=dx_case,
        weight_gradient_matmul=dw_matmul,
        keeps_bf16=keeps_bf16,
        plain_input_gradient=call.wants(0) and dx_case is None and _writes_plain(resolved),
        notes=notes,
    )
