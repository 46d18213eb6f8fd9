"""The geometry: what it accepts, where it puts the axes, and how groups merge."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest

from npu_sim.errors import ShapeError
from ops.common.geometry import MAX_EXTENT, ConvGeometry
from tests.cases.merged_groups import GROUP_EXAMPLES


def geometry(**changes: object) -> ConvGeometry:
    """A 3x3 convolution of 8x9 with padding 1."""
    values: dict[str, object] = {"n": 2, "cin": 4, "cout": 6, "hi": 8, "wi": 9, "ho": 8, "wo": 9, "kh": 3, "kw": 3}
    values["pad"] = (0, 0, 1, 1, 1, 1)
    return ConvGeometry(**{**values, **changes})  # type: ignore[arg-type]


def test_from_shapes_2d_becomes_depth_one() -> None:
    made = ConvGeometry.from_shapes((2, 4, 8, 9), (2, 6, 8, 5), (6, 2, 3, 3), (1, 2), 1, 1, groups=2)
    assert (made.di, made.do, made.kd) == (1, 1, 1)
    assert (made.hi, made.wi, made.ho, made.wo, made.kh, made.kw) == (8, 9, 8, 5, 3, 3)
    assert (made.stride, made.pad, made.dilation) == ((1, 1, 2), (0, 0, 1, 1, 1, 1), (1, 1, 1))
    assert (made.n, made.cin, made.cout, made.groups, made.spatial_rank) == (2, 4, 6, 2, 2)
    assert made.weight_shape == (6, 2, 1, 3, 3)


def test_from_shapes_2d_padding_of_four_is_up_down_left_right() -> None:
    made = ConvGeometry.from_shapes((1, 1, 5, 5), (1, 1, 8, 12), (1, 1, 1, 1), 1, (1, 2, 3, 4))
    assert made.pad == (0, 0, 1, 2, 3, 4)


def test_from_shapes_3d_keeps_the_order_depth_height_width() -> None:
    made = ConvGeometry.from_shapes((1, 2, 7, 8, 9), (1, 3, 4, 3, 4), (3, 2, 2, 3, 1), (2, 3, 4), (1, 2, 3), (2, 2, 5))
    assert made.stride == (2, 3, 4)
    assert made.pad == (1, 1, 2, 2, 3, 3)
    assert made.dilation == (2, 2, 5)
    assert (made.kd, made.kh, made.kw, made.do, made.ho, made.wo) == (2, 3, 1, 4, 3, 4)


@pytest.mark.parametrize(
    ("groups", "dilation", "in_width"), [(1, 1, True), (1, 45, True), (2, 1, False), (2, 44, False), (2, 45, True)]
)
def test_from_shapes_1d_places_its_axis_by_groups_and_dilation(groups: int, dilation: int, in_width: bool) -> None:
    length = 100
    out = (length + 2 * 3 - 2 * dilation - 1) // 2 + 1
    made = ConvGeometry.from_shapes((1, 4, length), (1, 4, out), (4, 4 // groups, 3), 2, 3, dilation, groups)
    along, across = (2, 1) if in_width else (1, 2)
    assert (made.hi, made.wi) == ((1, length) if in_width else (length, 1))
    assert (made.ho, made.wo) == ((1, out) if in_width else (out, 1))
    assert (made.kh, made.kw) == ((1, 3) if in_width else (3, 1))
    assert made.stride[along] == 2
    assert made.stride[across] == 1
    assert made.dilation[along] == dilation
    assert made.dilation[across] == 1
    assert made.pad == ((0, 0, 0, 0, 3, 3) if in_width else (0, 0, 3, 3, 0, 0))


def test_from_shapes_takes_numpy_integers_and_arrays() -> None:
    made = ConvGeometry.from_shapes(
        np.array([1, 2, 6, 6]), (1, 3, 3, 3), [3, 2, 2, 2], np.int64(2), np.array([0, 0]), np.array([1, 1])
    )
    assert type(made.hi) is int
    assert type(made.stride[1]) is int
    assert made == ConvGeometry.from_shapes((1, 2, 6, 6), (1, 3, 3, 3), (3, 2, 2, 2), 2)


@pytest.mark.parametrize("one", [np.array(1), np.int8(1), 1, [1, 1], (1, 1, 1, 1)])
def test_from_shapes_takes_one_padding_in_every_form(one) -> None:
    made = ConvGeometry.from_shapes((1, 2, 6, 6), (1, 3, 7, 7), (3, 2, 2, 2), padding=one)
    assert made.pad == (0, 0, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ((1, 2), (1, 2), (2, 2)),
            "x rank must be 3, 4 or 5, not 2 (shape (1, 2))",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5), (3, 2, 2, 2)),
            "dy rank must be 4, as of x, not 3 (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2)),
            "weight_shape rank must be 4, as of x, not 3 (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (2, 3, 5, 5), (3, 2, 2, 2)),
            "dy batch must be 1, as of x, not 2 (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (4, 2, 2, 2)),
            "weight_shape output channels must be 3, as of dy, not 4 (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 1, 2, 2)),
            "weight_shape input channels must be x channels / groups = 2 / 1, not 1 (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 4, 5), (3, 2, 2, 2)),
            "ho must be 5, not 4 (input 6, kernel 2, stride 1, pads 0 and 0, dilation 1; 2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 6), (3, 2, 2, 2)),
            "wo must be 5, not 6 (input 6, kernel 2, stride 1, pads 0 and 0, dilation 1; 2D convolution)",
        ),
        (
            ((1, 2, 1, 6), (1, 3, 1, 5), (3, 2, 2, 2)),
            "kernel extent 2 must fit the padded input 1 (axis h: input 1, kernel 2, pads 0 and 0, dilation 1; "
            "2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), (1, 1, 1)),
            "stride must be an int or 2 ints, not (1, 1, 1) (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), math.nan),
            "stride must be an int, not nan (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), (1, math.nan)),
            "stride entry must be an int, not nan (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), True),
            "stride must be an int, not True (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), 0),
            f"stride entry must be an int in [1, {MAX_EXTENT}], not 0 (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), 1, (1, 1, 1)),
            "padding must be an int, 2 ints or 4 ints, not (1, 1, 1) (2D convolution)",
        ),
        (
            ((1, 2, 6), (1, 3, 5), (3, 2, 2), 1, (0, 0)),
            "padding must be an int or 1 ints, not (0, 0) (1D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), 1, -1),
            f"padding entry must be an int in [0, {MAX_EXTENT}], not -1 (2D convolution)",
        ),
        (
            ((1, 2, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), 1, 0, 1, 0),
            "groups must be at least 1, not 0 (2D convolution)",
        ),
        (
            ((1, 4, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2), 1, 0, 1, 2),
            "cout must be a multiple of groups = 2, not 3 (2D convolution)",
        ),
        (
            ((0, 2, 6, 6), (0, 3, 5, 5), (3, 2, 2, 2)),
            f"n must be an int in [1, {MAX_EXTENT}], not 0 (2D convolution)",
        ),
        (
            ((1, 2.5, 6, 6), (1, 3, 5, 5), (3, 2, 2, 2)),
            "x shape entry must be an int, not 2.5",
        ),
        ((7, (1, 3, 5, 5), (3, 2, 2, 2)), "x shape must be a sequence of ints, not 7"),
    ],
)
def test_from_shapes_bad_arguments_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        ConvGeometry.from_shapes(*arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad": (1, 1, 1, 1)}, "pad must be a tuple of 6 ints, not (1, 1, 1, 1) (3D convolution)"),
        ({"stride": [1, 1, 1]}, "stride must be a tuple of 3 ints, not [1, 1, 1] (3D convolution)"),
        ({"spatial_rank": 4}, "spatial_rank must be 1, 2 or 3, not 4"),
        ({"hi": 2**31 - 1}, f"hi must be an int in [1, {MAX_EXTENT}], not {2**31 - 1} (3D convolution)"),
        ({"kh": 3.0}, f"kh must be an int in [1, {MAX_EXTENT}], not 3.0 (3D convolution)"),
        (
            {"do": 2},
            "do must be 1, not 2 (input 1, kernel 1, stride 1, pads 0 and 0, dilation 1; 3D convolution)",
        ),
    ],
)
def test_geometry_bad_fields_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        geometry(**changes)


def test_geometry_ends_in_negative_pads_only_if_it_may_crop() -> None:
    """A 2x2 pooling of stride 3 with padding 1 on 8 rows: the last row is under no window."""
    changes = {"hi": 8, "ho": 3, "kh": 2, "stride": (1, 3, 1), "pad": (0, 0, 1, -1, 1, 1)}
    assert geometry(**changes, may_crop=True).ho == 3
    with pytest.raises(ShapeError, match=re.escape("padding entry must be an int in [0, ")):
        geometry(**changes)
    for pad in ((0, 0, -1, 1, 1, 1), (0, 0, 1, 1, -1, 1), (-1, 0, 1, 1, 1, 1)):
        with pytest.raises(ShapeError, match=re.escape("padding entry must be an int in [0, ")):
            geometry(pad=pad, may_crop=True)


def test_geometry_is_frozen_hashable_and_replaceable() -> None:
    made = geometry()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.n = 3  # type: ignore[misc]
    assert hash(made) == hash(geometry())
    assert dataclasses.replace(made, n=5).n == 5


def test_geometry_derived_extents() -> None:
    made = geometry(dilation=(1, 2, 3), hi=10, wi=13)
    assert (made.kernel_height, made.kernel_width) == (5, 7)
    assert made.pixels == 72
    assert made.macs == 2 * 72 * 6 * 4 * 9
    grouped = geometry(groups=2)
    assert grouped.macs == geometry().macs // 2


def test_input_depth_is_none_in_the_padding() -> None:
    made = geometry(di=3, do=3, kd=3, pad=(2, 2, 1, 1, 1, 1), stride=(2, 1, 1))
    depths = [[made.input_depth(do, kd) for kd in range(3)] for do in range(3)]
    assert depths == [[None, None, 0], [0, 1, 2], [2, None, None]]


@pytest.mark.parametrize(("channels", "expected"), GROUP_EXAMPLES)
def test_merged_groups_worked_examples(channels: tuple[int, int, int], expected: tuple[int, int, int, int]) -> None:
    groups, cin, cout = channels
    merged = geometry(groups=groups, cin=cin, cout=cout).merged_groups(16)
    assert (merged.real_g, merged.mag, merged.cin1_g, merged.cout_g) == expected


def test_merged_groups_whole_groups_start_at_whole_blocks() -> None:
    for c0 in (8, 16):
        for groups in range(1, 40):
            for cin_small, cout_small in ((1, 1), (3, 5), (8, 4), (16, 32), (6, 10)):
                merged = geometry(groups=groups, cin=groups * cin_small, cout=groups * cout_small).merged_groups(c0)
                assert (merged.real_g - 1) * merged.mag < groups <= merged.real_g * merged.mag
                assert merged.cin1_g * c0 >= merged.mag * cin_small
                assert merged.cout_g >= merged.mag * cout_small
                assert merged.cout_g % 16 == 0
                if merged.real_g > 1:
                    assert merged.cin1_g * c0 == merged.mag * cin_small
                    assert merged.cout_g == merged.mag * cout_small


def test_merged_groups_block_below_one_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"^c0 must be at least 1, not 0$"):
        geometry().merged_groups(0)
