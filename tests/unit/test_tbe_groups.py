"""``group_dict``, the mask of merged groups, and the maps between result, gradient and 6HD tensors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_sim.errors import DTypeError, ShapeError
from ops import tbe
from tests.oracles import tbe_weight_gradient as oracle

# groups, Cin, Cout -> real_g, mag_factor, cin1_g, cout_g
PUBLISHED = {
    (1, 16, 16): (1, 1, 1, 16), (1, 20, 33): (1, 1, 2, 48), (4, 20, 56): (1, 4, 2, 64), (2, 64, 64): (2, 1, 2, 32),
    (6, 48, 24): (2, 4, 2, 16), (32, 96, 224): (2, 16, 3, 112), (16, 16, 16): (1, 16, 1, 16),
    (3, 48, 48): (3, 1, 1, 16), (17, 17, 34): (2, 16, 1, 32),
}  # fmt: skip
KERNEL = (2, 1, 3)


@pytest.mark.parametrize(("arguments", "wanted"), PUBLISHED.items())
def test_calculate_group_gives_the_worked_values(arguments, wanted):
    groups, cin, cout = arguments
    group = tbe.calculate_group(cin, cout, groups)
    assert tuple(group.values()) == (*wanted, cin, cout)
    assert tuple(group) == ("real_g", "mag_factor", "cin1_g", "cout_g", "cin_ori", "cout_ori")


def test_calculate_group_equals_the_definition_by_search():
    for groups in range(1, 20):
        for cin, cout in ((1, 1), (3, 7), (8, 16), (16, 5), (20, 12)):
            got = tbe.calculate_group(cin * groups, cout * groups, groups)
            assert got == oracle.groups_of(cin * groups, cout * groups, groups)


def test_calculate_group_takes_the_channel_blocks_of_each_side():
    # 6 groups of 8 and 4 channels: 2 fill a block of 16 inputs, 2 one of 8 outputs
    assert tuple(tbe.calculate_group(48, 24, 6, 8, 16).values()) == (3, 2, 1, 8, 48, 24)
    assert tuple(tbe.calculate_group(48, 24, 6, cout0=16, cin0=32).values()) == (2, 4, 1, 16, 48, 24)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((48, 24, 6.0), "groups must be an int, not 6.0"),
        (("48", 24, 6), "fmap_c must be an int, not '48'"),
        ((-48, 24, 6), "fmap_c must be at least 1, not -48"),
        ((48, 24, 6, 0), "cout0 must be at least 1, not 0"),
    ],
)
def test_calculate_group_refuses_what_is_no_count(arguments, message):
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        tbe.calculate_group(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((16, 32, 0), "groups must be in [1, 16], the channels of x and of out_backprop, not 0"),
        ((32, 16, 17), "groups must be in [1, 16], the channels of x and of out_backprop, not 17"),
        ((20, 21, 3), "fmap_c must be a multiple of groups = 3, not 20"),
        ((21, 20, 3), "cout must be a multiple of groups = 3, not 20"),
    ],
)
def test_calculate_group_refuses_groups_that_do_not_divide(arguments, message):
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$") as caught:
        tbe.calculate_group(*arguments)
    assert caught.value.args[0]["errCode"] == "E60038"


@pytest.mark.parametrize("arguments", PUBLISHED)
def test_group_mask_equals_the_definition_element_by_element(arguments):
    groups, cin, cout = arguments
    group = tbe.calculate_group(cin, cout, groups)
    mask = tbe.group_mask(group, groups, KERNEL)
    assert mask.dtype == np.float32
    np.testing.assert_array_equal(mask, oracle.mask(KERNEL, cin, cout, groups, group))
    # as many ones as the gradient has elements
    assert mask.sum() == cout * (cin // groups) * np.prod(KERNEL)


@pytest.mark.parametrize("arguments", PUBLISHED)
def test_gradient_and_result_map_onto_each_other(arguments):
    groups, cin, cout = arguments
    group = tbe.calculate_group(cin, cout, groups)
    shape = (group["real_g"], 6 * group["cin1_g"], group["cout_g"], 16)
    values = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    gradient = tbe.gradient_from_result(values, group, groups, KERNEL)
    np.testing.assert_array_equal(gradient, oracle.plain(values, KERNEL, cin, cout, groups, group))
    masked = tbe.mask_groups(values, group, groups, KERNEL)
    np.testing.assert_array_equal(tbe.gradient_from_result(masked, group, groups, KERNEL), gradient)
    np.testing.assert_array_equal(tbe.result_from_gradient(gradient, group, groups, KERNEL), masked)
    np.testing.assert_array_equal(tbe.result_from_gradient(np.asfortranarray(gradient), group, groups, KERNEL), masked)


def test_mask_groups_multiplies():
    group = tbe.calculate_group(2, 2, 2)
    values = np.full((1, 1, 16, 16), np.inf, np.float32)
    masked = tbe.mask_groups(values, group, 2, (1, 1, 1))
    assert np.isposinf(masked[0, 0, [0, 1], [0, 1]]).all()
    assert np.isnan(masked).sum() == 254
    assert np.isinf(values).all()


def test_group_helpers_refuse_what_does_not_fit_together():
    group = tbe.calculate_group(48, 24, 6)
    good = np.zeros((2, 2, 16, 16), np.float32)
    tbe.gradient_from_result(good, group, 6, (1, 1, 1))
    for function, values in ((tbe.gradient_from_result, good[:1]), (tbe.mask_groups, good[:, :1])):
        message = f"shape of result must be (2, 2, 16, 16), not {values.shape}"
        with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
            function(values, group, 6, (1, 1, 1))
    wanted = tbe.calculate_group(48, 24, 3)
    message = f"group_dict must be {wanted} for groups = 3, not {group}"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        tbe.group_mask(group, 3, (1, 1, 1))
    with pytest.raises(ShapeError, match=r"^kernel must be \(KD, KH, KW\), not \(1, 1\)$"):
        tbe.group_mask(group, 6, (1, 1))
    with pytest.raises(ShapeError, match=r"^KW must be an int, not 1\.0$"):
        tbe.group_mask(group, 6, (1, 1, 1.0))
    rule = ", ".join(group)
    with pytest.raises(ShapeError, match=rf"^group_dict must hold {rule}, not be \{{'real_g': 2\}}$"):
        tbe.group_mask({"real_g": 2}, 6, (1, 1, 1))
    for function in (tbe.gradient_from_result, tbe.mask_groups):
        with pytest.raises(DTypeError, match=r"^dtype of result must be float32, not float64$"):
            function(good.astype(np.float64), group, 6, (1, 1, 1))
        with pytest.raises(DTypeError, match=r"^result must be an array of float32, not list$"):
            function(good.tolist(), group, 6, (1, 1, 1))
    with pytest.raises(DTypeError, match=r"^dtype of gradient must be float32, not float64$"):
        tbe.result_from_gradient(np.zeros((24, 8, 1, 1, 1)), group, 6, (1, 1, 1))


@pytest.mark.parametrize("channels", [1, 16, 20, 33])
def test_6hd_maps_there_and_back(channels):
    array = np.arange(2 * channels * 3 * 2 * 5, dtype=np.float16).reshape(2, channels, 3, 2, 5)
    blocked = tbe.to_6hd(array[..., ::-1])
    np.testing.assert_array_equal(blocked, oracle.to_blocks(array[..., ::-1]))
    np.testing.assert_array_equal(tbe.from_6hd(blocked, channels), array[..., ::-1])


def test_6hd_refuses_other_ranks_types_and_channels():
    with pytest.raises(ShapeError, match=r"^array must be float16 of rank 5, not float32 of shape \(1, 1, 1, 1, 1\)$"):
        tbe.to_6hd(np.zeros((1, 1, 1, 1, 1), np.float32))
    with pytest.raises(ShapeError, match=r"^array must be float16 of rank 5, not list$"):
        tbe.to_6hd([1.0])
    with pytest.raises(ShapeError, match=r"^array must be float16 of shape \(N, D, C1, H, W, 16\), not list$"):
        tbe.from_6hd([1.0], 16)
    with pytest.raises(ShapeError, match=r"^channels must be an int, not 16\.0$"):
        tbe.from_6hd(np.zeros((1, 1, 1, 1, 1, 16), np.float16), 16.0)
    rule = r"array must be float16 of shape \(N, D, C1, H, W, 16\)"
    with pytest.raises(ShapeError, match=rf"^{rule}, not float16 of \(1, 1, 2, 1, 1, 8\)$"):
        tbe.from_6hd(np.zeros((1, 1, 2, 1, 1, 8), np.float16), 16)
    with pytest.raises(ShapeError, match=r"^channels must be in \[17, 32\], not 16$"):
        tbe.from_6hd(np.zeros((1, 1, 2, 1, 1, 16), np.float16), 16)


def test_kernel_whose_entries_have_no_text_is_refused():
    class Mute:
        def __repr__(self):
            raise RuntimeError("no text")

    group = tbe.calculate_group(48, 24, 6)
    with pytest.raises(ShapeError, match=r"^kernel must be \(KD, KH, KW\), not \(<Mute instance at 0x[0-9a-f]+>,\)$"):
        tbe.group_mask(group, 6, (Mute(),))
