"""Layout records: shapes, byte counts, merged groups, refusals."""

from math import lcm

import pytest

from npu_sim.errors import LayoutError, ShapeError
from npu_sim.layouts.formats import (
    CONVERSIONS,
    ActivationLayout,
    Format,
    MatrixLayout,
    WeightLayout,
    check_conversion,
)
from tests.cases.merged_groups import GROUP_EXAMPLES


def naive_merge(groups: int, cin: int, cout: int, c0: int) -> tuple[int, int, int, int]:
    """Written from the public formula: merge until both channel counts fill whole blocks, or all groups are in."""
    cin_g, cout_g = cin // groups, cout // groups
    mag = min(lcm(lcm(cin_g, c0) // cin_g, lcm(cout_g, 16) // cout_g), groups)
    return -(-groups // mag), mag, -(-mag * cin_g // c0), -(-mag * cout_g // 16) * 16


def merge_of(groups: int, cin: int, cout: int, c0: int) -> tuple[int, int, int, int]:
    layout = WeightLayout(cout=cout, cin_per_group=cin // groups, groups=groups, kh=1, kw=1, c0=c0)
    return layout.real_g, layout.mag, layout.cin1_g, layout.cout_g


@pytest.mark.parametrize(("channels", "expected"), GROUP_EXAMPLES)
def test_weight_layout_group_examples_match_documented_values(channels, expected):
    assert merge_of(*channels, 16) == expected
    assert naive_merge(*channels, 16) == expected


@pytest.mark.parametrize("c0", [8, 16, 32])
def test_weight_layout_all_small_groups_match_formula_and_properties(c0):
    for groups in range(1, 20):
        for cin_g in range(1, 20):
            for cout_g in range(1, 20):
                merged = merge_of(groups, groups * cin_g, groups * cout_g, c0)
                assert merged == naive_merge(groups, groups * cin_g, groups * cout_g, c0)
                real_g, mag, _, _ = merged
                # Either every merged group starts on a block boundary, or there is only one.
                if mag < groups:
                    assert mag * cin_g % c0 == 0
                    assert mag * cout_g % 16 == 0
                assert (real_g - 1) * mag < groups <= real_g * mag


def test_weight_layout_shapes_of_test_case_match_documented_values():
    def shape(c0):
        return WeightLayout(cout=128, cin_per_group=128, kh=3, kw=3, c0=c0).storage_shape

    assert shape(16) == (72, 8, 16, 16)
    assert shape(8) == (144, 8, 16, 8)


def test_weight_layout_2d_and_3d_shapes():
    flat = WeightLayout(cout=20, cin_per_group=20, kh=2, kw=3, c0=16, format=Format.FRACTAL_Z)
    assert flat.storage_shape == (12, 2, 16, 16)
    assert flat.logical_shape == (20, 20, 2, 3)
    deep = WeightLayout(cout=20, cin_per_group=20, kd=2, kh=2, kw=3, c0=16)
    assert deep.storage_shape == (24, 2, 16, 16)
    assert deep.result_shape == (1, 24, 32, 16)
    assert deep.logical_shape == (20, 20, 2, 2, 3)
    assert deep.storage_elems == 24 * 2 * 256
    assert deep.storage_bytes(4) == 24 * 2 * 256 * 4
    merged = WeightLayout(cout=12, cin_per_group=4, groups=2, kh=1, kw=1, c0=16)
    assert (merged.mag, merged.real_g, merged.cin1_g, merged.cout_g) == (2, 1, 1, 16)
    assert merged.cout_per_group == 6


def test_activation_layout_shapes_and_bytes():
    flat = ActivationLayout(n=2, c=20, h=4, w=5, c0=16, format=Format.NC1HWC0)
    assert flat.c1 == 2
    assert flat.logical_shape == (2, 20, 4, 5)
    assert flat.storage_shape == (2, 2, 4, 5, 16)
    assert flat.storage_bytes(2) == 2 * 2 * 4 * 5 * 32
    deep = ActivationLayout(n=2, c=20, d=3, h=4, w=5, c0=8)
    assert deep.logical_shape == (2, 20, 3, 4, 5)
    assert deep.storage_shape == (2, 3, 3, 4, 5, 8)
    assert deep.storage_elems == 2 * 3 * 3 * 4 * 5 * 8
    assert ActivationLayout(n=0, c=20, h=4, w=5, c0=8).storage_elems == 0


def test_matrix_layout_shapes_and_bytes():
    layout = MatrixLayout(m=20, n=28, n0=16, leading=(3,))
    assert layout.logical_shape == (3, 20, 28)
    assert layout.storage_shape == (3, 2, 2, 16, 16)
    assert layout.storage_bytes(2) == 3 * 4 * 256 * 2
    assert MatrixLayout(m=20, n=28, n0=8).storage_shape == (4, 2, 16, 8)


def test_check_conversion_every_pair_is_accepted_or_refused():
    for src in Format:
        for dst in Format:
            if (src, dst) in CONVERSIONS:
                check_conversion(src, dst)
            else:
                with pytest.raises(
                    LayoutError, match=rf"^Conversion from {src.value} must be to .*, not to {dst.value}$"
                ):
                    check_conversion(src, dst)
    assert (Format.NCHW, Format.NC1HWC0) in CONVERSIONS
    assert (Format.FRACTAL_Z_3D, Format.NCDHW) in CONVERSIONS
    assert all((dst, src) in CONVERSIONS for src, dst in CONVERSIONS)


def test_check_conversion_message_lists_the_targets():
    expected = r"^Conversion from NCHW must be to NC1HWC0 or FRACTAL_Z, not to NDC1HWC0$"
    with pytest.raises(LayoutError, match=expected):
        check_conversion(Format.NCHW, Format.NDC1HWC0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: ActivationLayout(n=1, c=1, h=1, w=-1, c0=16),
            ShapeError,
            "w of activation must be at least 0, not -1",
        ),
        (lambda: ActivationLayout(n=1, c=1, h=1, w=1, c0=12), LayoutError, "C0 must be 4, 8, 16, 32 or 64, not 12"),
        (
            lambda: ActivationLayout(n=1, c=1, d=2, h=1, w=1, c0=16, format=Format.NC1HWC0),
            ShapeError,
            "d of NC1HWC0 must be 1, not 2",
        ),
        (
            lambda: ActivationLayout(n=1, c=1, h=1, w=1, c0=16, format=Format.FRACTAL_Z),
            LayoutError,
            "Format of an activation must be NC1HWC0 or NDC1HWC0, not FRACTAL_Z",
        ),
        (
            lambda: WeightLayout(cout=4, cin_per_group=0, kh=1, kw=1, c0=16),
            ShapeError,
            "cin_per_group of weight must be at least 1, not 0",
        ),
        (
            lambda: WeightLayout(cout=5, cin_per_group=2, groups=2, kh=1, kw=1, c0=16),
            ShapeError,
            r"cout must be a multiple of groups, not 5 \(groups 2\)",
        ),
        (
            lambda: WeightLayout(cout=4, cin_per_group=2, kd=2, kh=1, kw=1, c0=16, format=Format.FRACTAL_Z),
            ShapeError,
            "kd of FRACTAL_Z must be 1, not 2",
        ),
        (
            lambda: WeightLayout(cout=4, cin_per_group=2, kh=1, kw=1, c0=16, format=Format.NCHW),
            LayoutError,
            "Format of a weight must be FRACTAL_Z or FRACTAL_Z_3D, not NCHW",
        ),
        (lambda: MatrixLayout(m=-2, n=1, n0=16), ShapeError, "m of matrix must be at least 0, not -2"),
        (
            lambda: MatrixLayout(m=2, n=1, n0=16, leading=(2, -1)),
            ShapeError,
            "leading extent of matrix must be at least 0, not -1",
        ),
    ],
)
def test_layout_records_refuse_bad_values(make, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        make()
