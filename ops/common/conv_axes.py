"""A convolution's call, either way, and its spatial axes, from its tensors and arrays as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from npu_sim.products import Product
from ops.common.tensor_desc import TensorDesc

Axis = Literal["L", "D", "H", "W"]
Pads = tuple[tuple[int, int], ...]
"""(before, after) of each spatial axis."""

AXES_OF_RANK: dict[int, tuple[Axis, ...]] = {3: ("L",), 4: ("H", "W"), 5: ("D", "H", "W")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvCall:
    """What the calls of both directions have; None stands for a null pointer.

    Attributes
    ----------
    product : Product
        Where it runs.
    input, weight : TensorDesc or None
        N, C, spatial axes; weight (Cout, Cin / groups, kernel), with ``transposed`` (Cin, Cout / groups, kernel).
    stride, padding, dilation, output_padding : tuple of int or None
        As given: no broadcast of one entry to all axes. 2D padding also as (up, down, left, right).
    transposed : bool
        Transposed convolution: what the gradient of an ordinary one's input is.
    groups : int
        Channel groups.
    cube_math_type : int
        What the Cube may do with the precision.
    strict_output_dtype : bool
        Require the output dtypes the page names instead of casting to any listed one.
    """

    product: Product
    input: TensorDesc | None
    weight: TensorDesc | None
    stride: tuple[int, ...] | None
    padding: tuple[int, ...] | None
    dilation: tuple[int, ...] | None
    transposed: bool
    output_padding: tuple[int, ...] | None
    groups: int
    cube_math_type: int
    strict_output_dtype: bool = False

    @property
    def rank(self) -> int:
        """Axes of input; 0 for a null pointer."""
        return 0 if self.input is None else self.input.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvAxis:
    """One spatial axis of the convolution y = conv(x, w).

    Attributes
    ----------
    name : {"L", "D", "H", "W"}
        The axis.
    x, kernel, y : int
        Extents; of a transposed convolution x is the result's side and y the operand's.
    stride, dilation, before, after : int
        Attributes on this axis; ``before`` and ``after`` are its two paddings.
    """

    name: Axis
    x: int
    kernel: int
    y: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def room(self) -> int:
        """Steps of one element the dilated window can make inside the padded x; negative: it does not fit."""
        return self.x + self.before + self.after - (self.kernel - 1) * self.dilation - 1

    @property
    def read(self) -> int:
        """Elements from the first of x on that y's windows reach, those behind x included; below 1: only padding."""
        return (self.y - 1) * self.stride + (self.kernel - 1) * self.dilation + 1 - self.before


def spatial_axes(
    x: TensorDesc | None,
    weight: TensorDesc | None,
    y: TensorDesc | None,
    stride: Sequence[int] | None,
    dilation: Sequence[int] | None,
    pads: Pads,
) -> tuple[ConvAxis, ...]:
    """Return the spatial axes, or () if ranks, lengths or values do not make a convolution (a rule says so)."""
    if x is None or weight is None or y is None or not x.rank == weight.rank == y.rank or x.rank not in AXES_OF_RANK:
        return ()
    count = x.rank - 2
    if stride is None or dilation is None or not len(stride) == len(dilation) == len(pads) == count:
        return ()
    if min(stride) < 1 or min(dilation) < 1:
        return ()
    return tuple(
        ConvAxis(
            name=name,
            x=x.shape[2 + axis],
            kernel=weight.shape[2 + axis],
            y=y.shape[2 + axis],
            stride=stride[axis],
            dilation=dilation[axis],
            before=pads[axis][0],
            after=pads[axis][1],
        )
        for axis, name in enumerate(AXES_OF_RANK[x.rank])
    )


def split_padding(padding: Sequence[int] | None, rank: int, paired_ranks: Sequence[int] = (4,)) -> Pads:
    """Return (before, after) of each spatial axis; () for a null pointer or a wrong length.

    Parameters
    ----------
    padding : sequence of int or None
        One entry per axis, or two for each: (up, down, left, right) for rank 4.
    rank : int
        Axes of the tensors, N and C included.
    paired_ranks : sequence of int
        Ranks whose padding may have two entries for each axis.

    Notes
    -----
    Four entries are taken as (up, down, left, right): ops-nn
    ``conv/convolution_backward/op_api/aclnn_convolution_backward.cpp``, where 2D is rewritten to 3D.
    """
    if padding is None:
        return ()
    if rank in paired_ranks and len(padding) == 2 * (rank - 2):
        return tuple(zip(padding[::2], padding[1::2], strict=True))
    if len(padding) != rank - 2:
        return ()
    return tuple((pad, pad) for pad in padding)
