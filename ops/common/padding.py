"""Paddings by name: PyTorch's "valid" and "same"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npu_sim.arguments import choice
from npu_sim.errors import ShapeError

NAMES = ("valid", "same")


def named_padding(
    padding: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    *,
    transposed: bool = False,
    paired_axes: Sequence[int] = (2,),
) -> Any:
    """Return a padding given by name as numbers, and any other as it is.

    Parameters
    ----------
    padding : {"valid", "same"} or anything else
        "valid" is none; "same" gives an output of the input's extents. Where it is odd, the larger part lies behind.
    kernel, stride, dilation : sequence of int
        Per spatial axis.
    transposed : bool
        Whether the convolution is a transposed one, for which PyTorch has no names either.
    paired_axes : sequence of int
        Numbers of axes with which the operator takes a padding for each side.

    Returns
    -------
    tuple of int
        Per spatial axis; before and after each, (up, down, left, right) for two, where they differ.

    Raises
    ------
    ShapeError
        Another name; "same" with a stride; "same" with an odd padding where the operator takes a symmetric one only.
    """
    if not isinstance(padding, str):
        return padding
    name = choice("padding", padding, NAMES)
    if transposed:
        raise ShapeError(f"padding must be given in numbers for a transposed convolution, not as {name!r}")
    if name == "valid":
        return (0,) * len(kernel)
    if any(step != 1 for step in stride):
        raise ShapeError(f"stride must be 1 on every axis for padding 'same', not {tuple(stride)}")
    if len(dilation) != len(kernel):
        return (0,) * len(kernel)  # the rules refuse the dilation
    totals = [step * (extent - 1) for step, extent in zip(dilation, kernel, strict=True)]
    if all(total % 2 == 0 for total in totals):
        return tuple(total // 2 for total in totals)
    if len(kernel) not in paired_axes:
        raise ShapeError(
            f"dilation x (kernel - 1) must be even on every axis for padding 'same', not {totals}: the operator takes "
            f"one padding for both sides of an axis ({len(kernel)}D convolution)"
        )
    return tuple(part for total in totals for part in (total // 2, total - total // 2))
