"""The geometry of one convolution: validated once, shared by tilings and kernels.

Every convolution is held as a 3D one. 2D is 3D with depth 1; 1D is 2D with one of the two axes of extent 1 (see
`ConvGeometry.from_shapes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npu_sim.arguments import ints, is_sequence, whole
from npu_sim.errors import ShapeError, shown
from npu_sim.units import align_up, ceil_div
from ops.common.padding import named_padding

MAX_EXTENT = 2**31 - 2
"""Largest extent, stride, dilation or padding of the tiling structures (ops-nn conv/conv3d_backprop_filter_v2, the
attribute checks of op_host/op_tiling/common)."""

CUBE_ROWS = 16
"""Rows of a fractal: output channels are padded to this."""

LINE_DILATION_KEPT_IN_W = 45
"""A grouped 1D convolution with this dilation keeps its axis in W (ops-nn conv/convolution_backward/op_api)."""

Triple = tuple[int, int, int]
Pads = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class MergedGroups:
    """Groups as the Cube sees them: `mag` small groups form one block-diagonal merged group.

    Attributes
    ----------
    mag : int
        Groups merged into one.
    real_g : int
        Merged groups; the last one may be partly filled.
    cin1_g : int
        Input channel blocks of C0 of one merged group.
    cout_g : int
        Output channels of one merged group, a multiple of 16.
    """

    mag: int
    real_g: int
    cin1_g: int
    cout_g: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvGeometry:
    """Extents and attributes of a convolution y = conv(x, w), validated.

    Attributes
    ----------
    n : int
        Batch.
    cin, cout : int
        Channels of x and of y, all groups together.
    groups : int
        Groups; divides both.
    di, hi, wi : int
        Depth, height and width of x.
    do, ho, wo : int
        The same of y.
    kd, kh, kw : int
        The same of the kernel.
    stride : tuple of int
        (d, h, w).
    pad : tuple of int
        (front, back, up, down, left, right), the order of the tiling structures.
    dilation : tuple of int
        (d, h, w).
    spatial_rank : int
        1, 2 or 3: what the caller called it, for messages and for rules that depend on it.
    may_crop : bool
        The pads behind an axis (back, down, right) may be negative: the end of the input is under no window.

    Raises
    ------
    ShapeError
        If an extent is out of range, the groups do not divide the channels, or the extents of y are not what x, the
        kernel and the attributes give.
    """

    n: int
    cin: int
    cout: int
    groups: int = 1
    di: int = 1
    hi: int
    wi: int
    do: int = 1
    ho: int
    wo: int
    kd: int = 1
    kh: int
    kw: int
    stride: Triple = (1, 1, 1)
    pad: Pads = (0, 0, 0, 0, 0, 0)
    dilation: Triple = (1, 1, 1)
    spatial_rank: int = 3
    may_crop: bool = False

    def __post_init__(self) -> None:
        for name in ("n", "cin", "cout", "groups", "di", "hi", "wi", "do", "ho", "wo", "kd", "kh", "kw"):
            self._check_range(name, getattr(self, name), 1)
        if not isinstance(self.spatial_rank, int) or self.spatial_rank not in (1, 2, 3):
            raise ShapeError(f"spatial_rank must be 1, 2 or 3, not {shown(self.spatial_rank)}")
        for name, count, low in (("stride", 3, 1), ("dilation", 3, 1), ("pad", 6, 0)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) != count:
                raise ShapeError(f"{name} must be a tuple of {count} ints, not {shown(values)}{self._context}")
            for index, value in enumerate(values):
                crops = name == "pad" and self.may_crop and index % 2 == 1
                self._check_range(
                    "padding entry" if name == "pad" else f"{name} entry", value, -MAX_EXTENT if crops else low
                )
        for name in ("cin", "cout"):
            if getattr(self, name) % self.groups:
                rule = f"a multiple of groups = {self.groups}"
                raise ShapeError(f"{name} must be {rule}, not {getattr(self, name)}{self._context}")
        self._check_output_extents()

    @classmethod
    def from_shapes(
        cls,
        input_shape: Sequence[int],
        grad_output_shape: Sequence[int],
        weight_shape: Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> ConvGeometry:
        """Build the geometry from plain shapes in the order N, C, then the spatial axes.

        Parameters
        ----------
        input_shape, grad_output_shape : sequence of int
            Of length 3 (1D), 4 (2D) or 5 (3D).
        weight_shape : sequence of int
            (cout, cin / groups, then the kernel's extents), of the same length.
        stride, dilation : int or sequence of int
            One for all axes, or one for each.
        padding : int, str or sequence of int
            One for all axes, one for each axis (both sides), or for 2D also (up, down, left, right); or "valid" or
            "same" (`ops.common.padding`).
        groups : int
            Groups.

        Returns
        -------
        ConvGeometry
            2D with depth 1. 1D with its axis in W and height 1 when ``groups == 1`` or the dilation is 45, else with
            its axis in H and width 1.

        Raises
        ------
        ShapeError
            If a rank, a length or an extent breaks a rule.

        Notes
        -----
        Padding of length 4 and the placing of the 1D axis: ops-nn
        ``conv/convolution_backward/op_api/aclnn_convolution_backward.cpp``.
        """
        x_shape = ints("x shape", input_shape, "")
        rank = len(x_shape)
        if rank not in (3, 4, 5):
            raise ShapeError(f"x rank must be 3, 4 or 5, not {rank} (shape {x_shape})")
        spatial = rank - 2
        context = f" ({spatial}D convolution)"
        y_shape = ints("dy shape", grad_output_shape, context)
        w_shape = ints("weight_shape", weight_shape, context)
        for name, shape in (("dy", y_shape), ("weight_shape", w_shape)):
            if len(shape) != rank:
                raise ShapeError(f"{name} rank must be {rank}, as of x, not {len(shape)}{context}")
        strides = _per_axis("stride", stride, spatial, context)
        dilations = _per_axis("dilation", dilation, spatial, context)
        pads = _pads(named_padding(padding, w_shape[2:], strides, dilations), spatial, context)
        group_count = whole("groups", groups, context)
        _check_channels(x_shape, y_shape, w_shape, group_count, context)
        axes: tuple[tuple[int, ...], ...] = (x_shape[2:], y_shape[2:], w_shape[2:], strides, dilations)
        if spatial == 1:
            in_width = group_count == 1 or dilations[0] == LINE_DILATION_KEPT_IN_W
            axes = tuple((1, *axis) if in_width else (*axis, 1) for axis in axes)
            pads = ((0, 0), *pads) if in_width else (*pads, (0, 0))
        if spatial < 3:
            axes = tuple((1, *axis) for axis in axes)
            pads = ((0, 0), *pads)
        x_axes, y_axes, k_axes, strides, dilations = axes
        return cls(
            n=x_shape[0],
            cin=x_shape[1],
            cout=y_shape[1],
            groups=group_count,
            di=x_axes[0],
            hi=x_axes[1],
            wi=x_axes[2],
            do=y_axes[0],
            ho=y_axes[1],
            wo=y_axes[2],
            kd=k_axes[0],
            kh=k_axes[1],
            kw=k_axes[2],
            stride=(strides[0], strides[1], strides[2]),
            pad=(*pads[0], *pads[1], *pads[2]),
            dilation=(dilations[0], dilations[1], dilations[2]),
            spatial_rank=spatial,
        )

    @property
    def weight_shape(self) -> tuple[int, int, int, int, int]:
        """(cout, cin / groups, kd, kh, kw)."""
        return (self.cout, self.cin // self.groups, self.kd, self.kh, self.kw)

    @property
    def macs(self) -> int:
        """Multiply-adds of the weight gradient (and of the forward pass), padding included."""
        return math.prod(self.weight_shape) * self.n * self.do * self.ho * self.wo

    @property
    def pixels(self) -> int:
        """Output pixels of one depth plane, ``ho * wo``."""
        return self.ho * self.wo

    @property
    def kernel_height(self) -> int:
        """Rows of x one output row reads: the dilated kernel height."""
        return (self.kh - 1) * self.dilation[1] + 1

    @property
    def single_tap_dilation(self) -> Triple:
        """The dilation with 1 on every axis where the kernel has one tap (ops-nn, op_host/op_tiling/common)."""
        taps = (self.kd, self.kh, self.kw)
        depth, height, width = (1 if tap == 1 else step for tap, step in zip(taps, self.dilation, strict=True))
        return (depth, height, width)

    @property
    def kernel_width(self) -> int:
        """Columns of x one output pixel reads: the dilated kernel width."""
        return (self.kw - 1) * self.dilation[2] + 1

    def input_depth(self, do: int, kd: int) -> int | None:
        """Return the depth plane of x that tap ``kd`` of output plane ``do`` reads, None inside the padding."""
        depth = do * self.stride[0] - self.pad[0] + kd * self.dilation[0]
        return depth if 0 <= depth < self.di else None

    def merged_groups(self, c0: int) -> MergedGroups:
        """Return how the groups merge when input channels come in blocks of ``c0``.

        Raises
        ------
        ShapeError
            If ``c0`` is not positive.

        Notes
        -----
        Rule of the tilings and of the FRACTAL_Z layouts (asc-devkit impl/adv_api/tiling/conv_backprop,
        ops-nn conv/conv3d_backprop_filter_v2): merge until both channel counts are whole blocks, if there are enough
        groups. The 16 of the output channels is fixed.
        """
        if c0 < 1:
            raise ShapeError(f"c0 must be at least 1, not {c0}")
        cin_small = self.cin // self.groups
        cout_small = self.cout // self.groups
        mag_in = math.lcm(cin_small, c0) // cin_small
        mag_out = math.lcm(cout_small, CUBE_ROWS) // cout_small
        mag = min(math.lcm(mag_in, mag_out), self.groups)
        return MergedGroups(
            mag=mag,
            real_g=ceil_div(self.groups, mag),
            cin1_g=ceil_div(mag * cin_small, c0),
            cout_g=align_up(mag * cout_small, CUBE_ROWS),
        )

    @property
    def _context(self) -> str:
        return f" ({self.spatial_rank}D convolution)"

    def _check_range(self, name: str, value: Any, low: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_EXTENT:
            raise ShapeError(f"{name} must be an int in [{low}, {MAX_EXTENT}], not {shown(value)}{self._context}")

    def _check_output_extents(self) -> None:
        extents = (
            (self.di, self.kd, self.do, self.pad[0:2], "do"),
            (self.hi, self.kh, self.ho, self.pad[2:4], "ho"),
            (self.wi, self.kw, self.wo, self.pad[4:6], "wo"),
        )
        for axis, (size, kernel, out, pads, name) in enumerate(extents):
            room = size + sum(pads) - self.dilation[axis] * (kernel - 1) - 1
            if room < 0:
                extent, padded = self.dilation[axis] * (kernel - 1) + 1, size + sum(pads)
                raise ShapeError(
                    f"kernel extent {extent} must fit the padded input {padded} (axis {name[0]}: input {size}, kernel "
                    f"{kernel}, pads {pads[0]} and {pads[1]}, dilation {self.dilation[axis]}; "
                    f"{self.spatial_rank}D convolution)"
                )
            expected = room // self.stride[axis] + 1
            if out != expected:
                attributes = (
                    f"input {size}, kernel {kernel}, stride {self.stride[axis]}, pads {pads[0]} and {pads[1]}, "
                    f"dilation {self.dilation[axis]}"
                )
                raise ShapeError(
                    f"{name} must be {expected}, not {out} ({attributes}; {self.spatial_rank}D convolution)"
                )


def _per_axis(name: str, value: Any, spatial: int, context: str) -> tuple[int, ...]:
    if not is_sequence(value):
        return (whole(name, value, context),) * spatial
    values = ints(name, value, context)
    if len(values) != spatial:
        rule = f"an int or {spatial} ints"
        raise ShapeError(f"{name} must be {rule}, not {values}{context}")
    return values


def _pads(padding: Any, spatial: int, context: str) -> tuple[tuple[int, int], ...]:
    """Return (before, after) of each axis."""
    if not is_sequence(padding):
        return ((whole("padding", padding, context),) * 2,) * spatial
    values = ints("padding", padding, context)
    if spatial == 2 and len(values) == 4:
        return (values[:2], values[2:])
    if len(values) != spatial:
        rule = "an int, 2 ints or 4 ints" if spatial == 2 else f"an int or {spatial} ints"
        raise ShapeError(f"padding must be {rule}, not {values}{context}")
    return tuple((value, value) for value in values)


def _check_channels(
    x_shape: tuple[int, ...], y_shape: tuple[int, ...], w_shape: tuple[int, ...], groups: int, context: str
) -> None:
    if groups < 1:
        raise ShapeError(f"groups must be at least 1, not {groups}{context}")
    if y_shape[0] != x_shape[0]:
        raise ShapeError(f"dy batch must be {x_shape[0]}, as of x, not {y_shape[0]}{context}")
    if w_shape[0] != y_shape[1]:
        raise ShapeError(f"weight_shape output channels must be {y_shape[1]}, as of dy, not {w_shape[0]}{context}")
    if w_shape[1] * groups != x_shape[1]:
        rule = f"x channels / groups = {x_shape[1]} / {groups}"
        raise ShapeError(f"weight_shape input channels must be {rule}, not {w_shape[1]}{context}")
