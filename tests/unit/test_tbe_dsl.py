"""The DSL front: checks in their order with codes and texts, arguments, the result tensor, the plan."""

from __future__ import annotations

import pickle
import re

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.errors import BudgetError, DTypeError, NpuSimError, ProductError, ShapeError
from ops import tbe
from ops.tbe.errors import TbeKeyError, TbeTypeError, TbeUnpackError
from tests.oracles.series import SPLIT

X, DY = (2, 4, 2, 8, 9, 16), (2, 2, 3, 4, 7, 16)
GROUP = {"real_g": 1, "mag_factor": 1, "cin1_g": 2, "cout_g": 48, "cin_ori": 20, "cout_ori": 33}
PARA = {
    "strides": [2, 2, 1], "pads": [0, 1, 1, 0, 0, 0], "dilations": [1, 1, 1, 1, 1], "res_dtype": "float32",
    "kernel_name": "case", "group_dict": GROUP,
}  # fmt: skip
FILTER = [33, 2, 20, 3, 3]
CONTEXT = "(conv3d_backprop_filter, Ascend910A)"
SCHEDULE = "(schedule of case, Ascend910A)"


def call(x=X, dy=DY, size=FILTER, *, dtypes=("float16", "float16"), layout="NDCHW", drop=(), **para):
    para = {key: value for key, value in {**PARA, **para}.items() if key not in drop}
    tensors = (tbe.placeholder(x, dtypes[0], "fmap"), tbe.placeholder(dy, dtypes[1], "dedy"))
    return tbe.conv3d_backprop_filter(*tensors, size, para, filter_layout=layout)


def refused(code, message, *, kind=tbe.TbeError, **given):
    with pytest.raises(RuntimeError) as caught:
        call(**given)
    assert isinstance(caught.value, NpuSimError)
    assert type(caught.value) is kind
    assert (caught.value.args[0]["errCode"], caught.value.args[1]) == (code, str(caught.value))
    assert str(caught.value) == message
    return caught.value


# Every row of the checks, in their order, each with the first value that breaks it.
REFUSALS = [
    ("E60005", {"dtypes": ("float32", "float16")}, "dtype of x must be float16, not float32"),
    ("E60005", {"dtypes": ("bfloat16", "bfloat16")}, "dtype of x must be float16, not bfloat16"),
    ("E60005", {"dtypes": ("float16", "float32")}, "dtype of out_backprop must be float16, not float32"),
    ("E60005", {"res_dtype": "float16"}, "dtype of res_dtype must be float32, not float16"),
    ("E60005", {"res_dtype": "float"}, "dtype of res_dtype must be float32, not float"),
    ("E60006", {"x": X[:5]}, "x must have 6 entries, not 5: (2, 4, 2, 8, 9)"),
    ("E62509", {"x": (2, 0, *X[2:])}, "axis of x must be a positive int, not 0 in (2, 0, 2, 8, 9, 16)"),
    ("E60006", {"dy": (*DY, 1)}, "out_backprop must have 6 entries, not 7: (2, 2, 3, 4, 7, 16, 1)"),
    ("E62509", {"dy": (-1, *DY[1:])}, "axis of out_backprop must be a positive int, not -1 in (-1, 2, 3, 4, 7, 16)"),
    ("E60006", {"size": FILTER[:4]}, "filter_sizes must have 5 entries, not 4: (33, 2, 20, 3)"),
    ("E62509", {"size": [33, 2, 20, 3, 0]}, "axis of filter_sizes must be a positive int, not 0 in (33, 2, 20, 3, 0)"),
    (
        "E62509",
        {"size": [33, 2, 20, 3.0, 3]},
        "axis of filter_sizes must be a positive int, not 3.0 in (33, 2, 20, 3.0, 3)",
    ),
    (
        "E62006",
        {"x": (2, 4, 2, 8, 63, 16), "dy": (2, 2, 3, 4, 1, 16), "pads": [0, 1, 1, 0, 0, 1]},
        "width of the padded input must be at most 63 when the output has one column and several rows, not 64",
    ),
    (
        "E62504",
        {"size": [49, 2, 20, 3, 3]},
        "channel blocks of out_backprop must be 4, for 49 output channels, not 3",
    ),
    # a kernel larger than the padded input cannot give an output of a positive size
    (
        "E60000",
        {"x": (2, 1, *X[2:]), "dy": (2, 1, *DY[2:]), "dilations": [1, 2, 1, 1, 1]},
        "depth of out_backprop must be 0, not 1 (input 1, dilated kernel 3, stride 2, pads 0 and 1)",
    ),
    ("E60011", {"x": (2, 4097, *X[2:])}, "depth of x must be an int in [1, 4096], not 4097"),
    ("E60011", {"dy": (2, 4097, *DY[2:])}, "depth of out_backprop must be an int in [1, 4096], not 4097"),
    ("E60011", {"x": (2, 4, 2, 4097, 9, 16)}, "height of x must be an int in [1, 4096], not 4097"),
    ("E60011", {"dy": (2, 2, 3, 4097, 7, 16)}, "height of out_backprop must be an int in [1, 4096], not 4097"),
    ("E60011", {"x": (2, 4, 2, 8, 4097, 16)}, "width of x must be an int in [1, 4096], not 4097"),
    ("E60011", {"dy": (2, 2, 3, 4, 4097, 16)}, "width of out_backprop must be an int in [1, 4096], not 4097"),
    ("E60011", {"size": [33, 257, 20, 3, 3]}, "depth of filter must be an int in [1, 256], not 257"),
    ("E60011", {"size": [33, 2, 20, 257, 3]}, "height of filter must be an int in [1, 256], not 257"),
    ("E60011", {"size": [33, 2, 20, 3, 257]}, "width of filter must be an int in [1, 256], not 257"),
    ("E60006", {"strides": [2, 2]}, "strides must have 3 entries, not 2: (2, 2)"),
    ("E60011", {"strides": [2, 64, 1]}, "stride must be an int in [1, 63], not 64"),
    ("E60011", {"strides": [2, 2, 1.5]}, "stride must be an int in [1, 63], not 1.5"),
    ("E62510", {"dilations": [1, 1, 2, 1, 1]}, "dilation of N and C must be 1, not 1 and 2"),
    ("E62510", {"dilations": [3, 1, 1, 1, 1]}, "dilation of N and C must be 1, not 3 and 1"),
    ("E60011", {"strides": [2, 2, True]}, "stride must be an int in [1, 63], not True"),
    ("E60011", {"dilations": [1, 1, 1, 1, 256]}, "dilation must be an int in [1, 255], not 256"),
    ("E62511", {"x": (*X[:5], 8)}, "C0 of x must be 16, not 8"),
    ("E62511", {"dy": (*DY[:5], 32)}, "C0 of out_backprop must be 16, not 32"),
    ("E62503", {"dy": (3, *DY[1:])}, "batch of out_backprop must be 2, as of x, not 3"),
    (
        "E60000",
        {"dy": (2, 3, *DY[2:])},
        "depth of out_backprop must be 2, not 3 (input 4, dilated kernel 2, stride 2, pads 0 and 1)",
    ),
    (
        "E60108",
        {"dy": (2, 3, *DY[2:]), "pads": [2, 1, 1, 0, 0, 0]},
        "pad along the depth must be less than the dilated kernel 2, not 2",
    ),
    (
        "E60000",
        {"dy": (2, 2, 3, 3, 7, 16)},
        "height of out_backprop must be 4, not 3 (input 8, dilated kernel 3, stride 2, pads 1 and 0)",
    ),
    (
        "E60108",
        {"dy": (2, 2, 3, 5, 7, 16), "pads": [0, 1, 0, 3, 0, 0]},
        "pad along the height must be less than the dilated kernel 3, not 3",
    ),
    (
        "E60000",
        {"dy": (2, 2, 3, 4, 6, 16)},
        "width of out_backprop must be 7, not 6 (input 9, dilated kernel 3, stride 1, pads 0 and 0)",
    ),
    (
        "E60011",
        {"dy": (2, 2, 2**58, 4, 7, 16), "size": [2**62, 2, 20, 3, 3]},
        "bytes of out_backprop must be at most 9223372036864776807, not 1033017668127734890496",
    ),
    (
        "E60011",
        {"x": (2, 4, 2**36, *X[3:]), "dy": (2, 2, 2**36, 4, 7, 16), "size": [2**40, 2, 20, 3, 3]},
        "bytes of result must be at most 9223372036864776807, not 87042659012253300578844672",
    ),
    (
        "E60011",
        {"x": (2, 4, 2**60, *X[3:])},
        "bytes of x must be at most 9223372036864776807, not 21250649172913403461632",
    ),
]


@pytest.mark.parametrize(("code", "given", "message"), REFUSALS)
def test_dsl_call_that_breaks_a_rule_is_refused_with_code_and_text(code, given, message):
    error = refused(code, f"{message} {CONTEXT}", **given)
    assert error.status == 161002


def test_dsl_checks_run_in_the_published_order():
    # Break every rule at once and repair them from the first to the last: each time the next one must speak.
    broken = {
        "x": (3, 4097, 2, 8, 9, 8), "dy": (2, 2, 4, 5, 6, 16), "size": [33, 257, 20, 3], "strides": [64, 2],
        "dilations": [2, 1, 1, 256, 1], "res_dtype": "float16", "dtypes": ("float32", "float16"),
    }  # fmt: skip
    repairs = [
        ("E60005", {"dtypes": ("float16", "float16")}),
        ("E60005", {"res_dtype": "float32"}),
        ("E60006", {"size": [33, 257, 20, 3, 3]}),
        ("E62504", {"dy": (2, 2, 3, 5, 6, 16)}),
        ("E60011", {"x": (3, 4, 2, 8, 9, 8)}),
        ("E60011", {"size": FILTER}),
        ("E60006", {"strides": [64, 2, 1]}),
        ("E60011", {"strides": [2, 2, 1]}),
        ("E62510", {"dilations": [1, 1, 1, 256, 1]}),
        ("E60011", {"dilations": [1, 1, 1, 1, 1]}),
        ("E62511", {"x": (3, 4, 2, 8, 9, 16)}),
        ("E62503", {"x": X}),
        ("E60000", {"dy": (2, 2, 3, 4, 6, 16)}),
        ("E60000", {"dy": DY}),
    ]
    for code, repair in repairs:
        with pytest.raises(RuntimeError) as caught:
            call(**broken)
        assert caught.value.args[0]["errCode"] == code
        broken |= repair
    assert call(**broken).shape == (1, 36, 48, 16)


def test_dsl_error_carries_the_vendor_fields():
    with pytest.raises(tbe.TbeError) as caught:
        call(strides=[2, 64, 1])
    assert caught.value.args[0] == {
        "errCode": "E60011", "op_name": "conv3d_backprop_filter", "attr_name": "stride", "range": "[1,63]",
        "value": "64",
    }  # fmt: skip
    assert caught.value.code == "E60011"
    # as it comes back from another process
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.args, again.status) == (tbe.TbeError, caught.value.args, caught.value.status)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group_dict": None}, "group_dict must be a dict, not None"),
        ({"drop": ("group_dict",)}, "group_dict must be a dict, not None"),
        ({"strides": 2}, "strides must be a list or tuple, not 2"),
        ({"pads": "000000"}, "pads must be a list or tuple, not '000000'"),
        ({"kernel_name": 7}, "kernel_name must be a str, not 7"),
        ({"layout": "NCDHW", "size": [33, 20, 2, 3, 3], "drop": ("pads",)}, "pads must be a list or tuple, not None"),
        ({"group_dict": {**GROUP, "real_g": 0}}, "real_g of group_dict must be a positive int, not 0"),
        ({"group_dict": {**GROUP, "cout_g": "16"}}, "cout_g of group_dict must be a positive int, not '16'"),
    ],
)
def test_dsl_parameter_of_a_wrong_python_type_is_a_runtime_error_and_a_type_error(given, message):
    error = refused("E60038", f"{message} {CONTEXT}", kind=TbeTypeError, **given)
    assert isinstance(error, TypeError)


def test_dsl_argument_of_a_wrong_python_type_is_refused():
    fmap, dedy = tbe.placeholder(X, "float16", "x"), tbe.placeholder(DY, "float16", "dy")
    array = np.zeros(DY, np.float16)
    for arguments, code, message in (
        (([1], dedy, FILTER, PARA), "E60038", "x must be a placeholder or an array, not list"),
        ((fmap, array, FILTER, PARA), "E60038", "out_backprop must be a placeholder, as x is, not ndarray"),
        ((array, dedy, FILTER, PARA), "E60038", "out_backprop must be an array, as x is, not Placeholder"),
        ((fmap, dedy, 33, PARA), "E60038", "filter_size must be a list or tuple, not int"),
        ((fmap, dedy, FILTER, [PARA]), "E60038", "para_dict must be a dict, not list"),
        ((fmap, dedy, FILTER, {**PARA, "shape": 3}), "E60037", "shape in para_dict must be a list or tuple, not int"),
        ((fmap, dedy, FILTER, {**PARA, "dtype": 3}), "E60037", "dtype in para_dict must be a str, not int"),
    ):
        with pytest.raises(TbeTypeError, match=f"^{re.escape(f'{message} {CONTEXT}')}$") as caught:
            tbe.conv3d_backprop_filter(*arguments)
        assert caught.value.args[0]["errCode"] == code


def test_dsl_missing_key_of_group_dict_is_a_key_error():
    group = {key: value for key, value in GROUP.items() if key != "cin_ori"}
    message = (
        "group_dict must hold real_g, mag_factor, cin1_g, cout_g, cin_ori, cout_ori, not only real_g, mag_factor, "
        f"cin1_g, cout_g, cout_ori {CONTEXT}"
    )
    error = refused("E60029", message, kind=TbeKeyError, group_dict=group)
    assert isinstance(error, KeyError)
    # nobody reads mag_factor
    assert call(group_dict={key: value for key, value in GROUP.items() if key != "mag_factor"}).shape == (1, 36, 48, 16)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pads": [0, 0, 0, 0]}, "pads must have 6 entries, not 4: (0, 0, 0, 0)"),
        ({"dilations": [1, 1, 1]}, "dilations must have 5 entries, not 3: (1, 1, 1)"),
    ],
)
def test_dsl_pads_and_dilations_of_a_wrong_length_are_a_value_error_without_code(given, message):
    with pytest.raises(TbeUnpackError, match=f"^{re.escape(f'{message} {CONTEXT}')}$") as caught:
        call(**given)
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, RuntimeError)


def test_dsl_pads_that_are_no_ints_are_refused():
    with pytest.raises(ShapeError, match=r"^pads must be ints, not 0.5 in \(0, 1, 1, 0.5, 0, 0\)$"):
        call(pads=[0, 1, 1, 0.5, 0, 0])


def test_dsl_defaults_of_the_page_apply_to_missing_and_empty_parameters():
    x, dy, size = (1, 3, 2, 4, 5, 16), (1, 2, 3, 3, 4, 16), [33, 2, 20, 2, 2]
    names = ("strides", "pads", "dilations", "res_dtype", "kernel_name")
    result = call(x, dy, size, drop=names)
    p = result.parameters
    assert (p.strides, p.pads, p.dilations, p.kernel_name) == (
        (1, 1, 1), (0,) * 6, (1, 1, 1), "conv3d_backprop_filter_cce",
    )  # fmt: skip
    assert call(x, dy, size, strides=[], pads=(), dilations=[]).shape == result.shape == (1, 16, 48, 16)


def test_dsl_width_of_the_special_case_is_checked_before_the_channels():
    narrow = {"x": (2, 4, 2, 8, 63, 16), "dy": (2, 2, 3, 4, 1, 16), "pads": [0, 1, 1, 0, 0, 1]}
    message = "width of the padded input must be at most 63 when the output has one column and several rows, not 64"
    refused("E62006", f"{message} {CONTEXT}", size=[49, 2, 20, 3, 3], **narrow)


def test_dsl_filter_layout_decides_order_of_filter_and_dilations_and_the_kernel_limit():
    result = call(size=[33, 20, 2, 3, 3], layout="NCDHW")
    assert result.parameters.kernel == (2, 3, 3)
    x, dy = (2, 5, 2, 8, 9, 16), (2, 2, 3, 4, 7, 16)
    for layout, size, dilations in (
        ("NDCHW", FILTER, [1, 3, 1, 1, 1]),
        ("NCDHW", [33, 20, 2, 3, 3], [1, 1, 3, 1, 1]),
    ):
        assert call(x, dy, size, layout=layout, dilations=dilations).parameters.dilations == (3, 1, 1)
    refused("E62510", f"dilation of N and C must be 1, not 1 and 3 {CONTEXT}", x=x, dilations=[1, 1, 3, 1, 1])
    deep = {"x": (1, 300, 2, 8, 9, 16), "dy": (1, 23, 3, 4, 7, 16), "pads": [0, 0, 1, 0, 0, 0]}
    assert call(**deep, size=[33, 20, 256, 3, 3], layout="NCDHW").parameters.kernel[0] == 256
    deep["dy"] = (1, 22, 3, 4, 7, 16)
    assert call(**deep, size=[33, 20, 257, 3, 3], layout="NCDHW").parameters.kernel[0] == 257
    with pytest.raises(ShapeError, match=r"^filter_layout must be one of NDCHW, NCDHW, not 'NCHWD'$"):
        call(layout="NCHWD")


@pytest.mark.parametrize(
    ("code", "given", "message"),
    [
        (
            "E60011",
            {"dy": (2, 2, 3, 3, 7, 16), "pads": [0, 1, -1, 0, 0, 0]},
            "pad top must be at least 0, not -1",
        ),
        (
            "E60011",
            {"x": (2, 4, 2, 16, 2048, 16), "dy": (2, 2, 3, 8, 2046, 16), "size": [33, 2, 20, 15, 3],
             "pads": [0, 1, 13, 0, 0, 0]},
            "al1_and_bl1_byte must be at most 1048576, not 1114624",
        ),
        ("E60108", {"group_dict": {**GROUP, "cout_g": 40}}, "cout_g of group_dict must be a multiple of 16, not 40"),
    ],
)  # fmt: skip
def test_schedule_limit_is_refused_by_the_plan_and_not_by_the_call(code, given, message):
    result = call(**given)
    for attempt in (lambda: result.plan, lambda: result.launches, lambda: tbe.auto_schedule(result)):
        with pytest.raises(tbe.TbeError, match=f"^{re.escape(f'{message} {SCHEDULE}')}$") as caught:
            attempt()
        assert (caught.value.args[0]["errCode"], caught.value.status) == (code, 561103)


def test_schedule_error_comes_back_from_another_process_with_its_status():
    with pytest.raises(tbe.TbeError) as caught:
        tbe.auto_schedule(call(group_dict={**GROUP, "cout_g": 40}))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.args, again.status) == (caught.value.args, 561103)


def test_schedule_takes_pads_of_the_depth_that_no_load_encodes():
    # 256 planes of padding are skipped, not loaded
    given = {"x": (1, 1, 2, 8, 9, 16), "dy": (1, 1, 3, 4, 7, 16), "size": [33, 2, 20, 3, 3]}
    group = {"strides": [64 - 1, 2, 1], "pads": [256, 0, 1, 0, 0, 0], "dilations": [1, 255, 1, 1, 1]}
    message = "pad along the depth must be less than the dilated kernel 256, not 256"
    refused("E60108", f"{message} {CONTEXT}", **given, **group)
    deep = {"size": [33, 3, 20, 3, 3], "pads": [256, 254, 1, 0, 0, 0], "dilations": [1, 255, 1, 1, 1]}
    assert call(given["x"], given["dy"], strides=[63, 2, 1], **deep).plan.case == "load3d"


def test_auto_schedule_takes_a_tensor_or_a_list_of_one():
    result = call()
    assert tbe.auto_schedule([result]) is tbe.auto_schedule((result,)) is tbe.auto_schedule(result) is result.plan
    for wrong, kind in ((np.zeros(2), "ndarray"), ([result, result], "list"), (None, "NoneType")):
        message = rf"^outs must be a result tensor or a list of one, not {kind} \(auto_schedule\)$"
        with pytest.raises(TbeTypeError, match=message) as caught:
            tbe.auto_schedule(wrong)
        assert caught.value.code == "E60038"


def test_schedule_extent_beyond_its_integers_is_refused_with_a_code():
    result = call((2**31, *X[1:]), (2**31, *DY[1:]))
    with pytest.raises(tbe.TbeError, match=r"^n must be an int in \[1, 2147483646\], not 2147483648 ") as caught:
        tbe.auto_schedule(result)
    assert (caught.value.args[0]["errCode"], caught.value.status) == ("E60011", 561103)


def test_dsl_arrays_are_refused_by_the_schedule_at_once():
    x, dy = np.zeros((1, 1, 1, 2, 2, 16), np.float16), np.zeros((1, 1, 1, 2, 2, 16), np.float16)
    para = {"group_dict": {**GROUP, "cin1_g": 1, "cout_g": 8}}
    with pytest.raises(tbe.TbeError) as caught:
        tbe.conv3d_backprop_filter(x, dy, [16, 1, 16, 1, 1], para)
    assert caught.value.args[0]["errCode"] == "E60108"


@pytest.mark.parametrize(
    ("wo", "kernel_h", "stride_h", "rows"),
    [(32, 3, 2, 3), (33, 3, 2, 5), (16, 1, 5, 1), (15, 1, 5, 11), (8, 2, 3, 5), (4, 2, 3, 11), (5, 2, 3, 14)],
)
def test_schedule_l1_minimum_counts_the_rows_of_sixteen_pixels(wo, kernel_h, stride_h, rows):
    # a fractal of dy, and the rows of x, 32 bytes a pixel
    height = kernel_h + stride_h
    size = [16, 1, 16, kernel_h, 1]
    group = {**GROUP, "cin1_g": 1, "cout_g": 16}
    para = {"strides": [1, stride_h, 1], "pads": [0] * 6, "group_dict": group}
    result = call((1, 1, 1, height, wo, 16), (1, 1, 1, 2, wo, 16), size, **para)
    assert tbe.schedule.l1_minimum_bytes(result.parameters, result.product) == 512 + rows * wo * 32


def test_schedule_l1_minimum_sees_the_second_column():
    group = {**GROUP, "cin1_g": 1, "cout_g": 16}
    result = call(
        (1, 1, 1, 4, 7, 16), (1, 1, 1, 2, 1, 16), [16, 1, 16, 3, 7], strides=[1, 1, 1], pads=[0] * 6, group_dict=group
    )
    # two columns: 16 pixels are 8 rows
    assert tbe.schedule.l1_minimum_bytes(result.parameters, result.product) == 512 + (3 + 7) * 7 * 32
    assert result.plan.case == "two-column"


def test_310_makes_one_column_by_itself_and_limits_no_width_for_it():
    """load3d_constraints is absent there, and so are the second column and E62006."""
    wide, para = (1, 1, 1, 4, 80, 16), {"strides": [1, 1, 1], "pads": [0] * 6}
    given = wide, (1, 1, 1, 2, 1, 16), [16, 1, 16, 3, 80]
    para["group_dict"] = {**GROUP, "cin1_g": 1, "cout_g": 16}
    with pytest.raises(tbe.TbeError, match="width") as caught:
        call(*given, **para)
    assert caught.value.args[0]["errCode"] == "E62006"
    with npu_sim.use_product("310"):
        assert call(*given, **para).plan.case == "load3d"


def test_dsl_product_is_the_current_one_or_a_910():
    assert call().product.name == "Ascend910A"
    with npu_sim.use_product("310p"):
        result = call()
    assert (result.product.name, result.plan.product.name) == ("Ascend310P3", "Ascend310P3")
    for name in SPLIT:
        with npu_sim.use_product(name) as product, pytest.raises(ProductError) as caught:
            call()
        rule = "product of conv3d_backprop_filter must be of the series 310, 310p, 910"
        assert str(caught.value) == f"{rule}, not {product.name} ({product.series_name})"


def test_result_tensor_runs_on_arrays_of_its_placeholders_only():
    result = call()
    x, dy = np.zeros(X, np.float16), np.zeros(DY, np.float16)
    assert not result.run({"fmap": x, "dedy": dy}).any()
    for feed, error, message in (
        ({"fmap": x}, ShapeError, "feed must have an array for dedy, not only for fmap"),
        ({}, ShapeError, "feed must have an array for fmap, not only for nothing"),
        ({"fmap": x, "dedy": dy, "x": x}, ShapeError, "feed must name fmap, dedy, not x"),
        ({"fmap": x[:1], "dedy": dy}, ShapeError, f"shape of fmap must be {X}, not {(1, *X[1:])}"),
        ({"fmap": x, "dedy": dy.astype(np.float32)}, DTypeError, "dtype of dedy must be float16, not float32"),
        (
            {"fmap": x.astype(ml_dtypes.bfloat16), "dedy": dy},
            DTypeError,
            "dtype of fmap must be float16, not bfloat16",
        ),
    ):
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            result.run(feed)
    same = [tbe.placeholder(shape, "float16") for shape in (X, DY)]
    twins = tbe.conv3d_backprop_filter(*same, FILTER, PARA)
    with pytest.raises(ShapeError, match=r"^names of x and out_backprop must differ, not both be placeholder$"):
        twins.run({"placeholder": x})
    assert repr(result) == ("ResultTensor(dw_ddr, shape=(1, 36, 48, 16), dtype=float32, of fmap, dedy, Ascend910A)")


def test_result_tensor_run_refuses_a_mode_the_product_does_not_have():
    with pytest.raises(ProductError, match=r"^overflow must be None or one of saturate, not 'inf_nan' \(Ascend910A, "):
        call().run({"fmap": np.zeros(X, np.float16), "dedy": np.zeros(DY, np.float16)}, overflow="inf_nan")


def test_attribute_that_asks_for_terabytes_is_refused_before_they_are_allocated():
    # real_g is not held against the channels of x, as in the vendor's checks
    group = PARA["group_dict"] | {"real_g": 2**31 - 1, "cin1_g": 1, "cout_g": 16}
    result = call(group_dict=group)
    feed = {"fmap": np.zeros(X, np.float16), "dedy": np.zeros(DY, np.float16)}
    message = r"^Global memory and results of a call must be at most \d+ bytes, the memory budget .*, not \d{14,}$"
    with pytest.raises(RuntimeError, match=message) as caught:
        result.run(feed)
    assert isinstance(caught.value, BudgetError)
    assert (caught.value.args[0]["errCode"], caught.value.status) == ("E60011", 561101)


def test_result_tensor_of_one_placeholder_for_both_inputs_takes_one_array():
    shape = (1, 1, 1, 3, 4, 16)
    both = tbe.placeholder(shape, "float16", "both")
    group = tbe.calculate_group(16, 16, 1)
    result = tbe.conv3d_backprop_filter(both, both, [16, 1, 16, 1, 1], {"group_dict": group})
    array = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float16)
    flat = array.reshape(-1, 16).astype(np.float32)
    np.testing.assert_array_equal(result.run({"both": array})[0, 0], flat.T @ flat)


def test_placeholder_has_the_parameters_of_tvm():
    made = tbe.tvm.placeholder((2, np.int64(3)))
    assert (made.name, made.shape, made.dtype) == ("placeholder", (2, 3), "float32")
    with pytest.raises(ShapeError, match=r"^shape of placeholder p entry must be an int, not 'n'$"):
        tbe.placeholder((2, "n"), name="p")


def test_plan_of_the_page_example_shows_the_published_stages():
    group = {"real_g": 1, "mag_factor": 1, "cin1_g": 1, "cout_g": 16, "cin_ori": 16, "cout_ori": 16}
    plan = call(
        (16, 8, 1, 72, 72, 16), (16, 4, 1, 36, 36, 16), [16, 2, 16, 3, 3], strides=[2, 2, 2], pads=[0, 0, 0, 1, 0, 1],
        group_dict=group,
    ).plan  # fmt: skip
    assert [(stage.name, stage.buffer, stage.shape) for stage in plan.stages] == [
        ("grads_2_matrix", "L1", (64, 1, 1296, 16)),
        ("grads_2_fractal", "L0A", (1, 64, 1, 81, 16, 16)),
        ("fmap_l1", "L1", (64, 2, 72, 72, 16)),
        ("fmap_2_col_matrix", "view", (1, 64, 1296, 2, 3, 3, 16)),
        ("fmap_2_col_fractal", "L0B", (1, 64, 81, 18, 16, 16)),
        ("dw", "L0C", (1, 18, 16, 16)),
        ("dw_ubuf", "UB", (1, 18, 16, 16)),
        ("dw_ddr", "GM", (1, 18, 16, 16)),
    ]
    text = str(plan).splitlines()
    assert text[0] == "case on Ascend910A: load3d, not CANN's tiling (our schedule for unified cores)"
    assert text[2] == "  grads_2_matrix     L1   (64, 1, 1296, 16)"
    assert text[-3:] == [
        "  launch MemSet: 5 cores, at most 64 rows a step",
        f"  launch Conv3DBackpropFilter: 32 cores, at most {plan.launches[1].step_rows} rows a step",
        "  GM 23348 KiB",
    ]
    assert "  bytes L1 346624 of 1048576, L0A 4096 of 65536, L0B 36864 of 65536, L0C 18432 of 262144" in text


def test_plan_of_merged_groups_shows_them_in_every_stage():
    # 3 groups of 48 and 24 channels are 2 merged ones of 6 and 3 blocks; dy has 5 blocks of its own
    group = tbe.calculate_group(144, 72, 3)
    assert (group["real_g"], group["cin1_g"], group["cout_g"]) == (2, 6, 48)
    plan = call(
        (2, 3, 9, 6, 7, 16), (2, 2, 5, 5, 6, 16), [72, 2, 48, 2, 2], strides=[1, 1, 1], pads=[0] * 6, group_dict=group
    ).plan
    assert [stage.shape for stage in plan.stages] == [
        (4, 5, 30, 16), (2, 4, 3, 2, 16, 16), (4, 2 * 2 * 6, 6, 7, 16), (2, 4, 30, 2 * 6, 2, 2, 16),
        (2, 4, 2, 48, 16, 16), (2, 48, 48, 16), (2, 48, 48, 16), (2, 48, 48, 16),
    ]  # fmt: skip


def test_plan_of_one_pixel_loads_fractals_only_if_the_strides_are_one():
    group = tbe.calculate_group(20, 33, 1)
    x, dy, size = (2, 3, 2, 1, 1, 16), (2, 2, 3, 1, 1, 16), [33, 2, 20, 1, 1]
    given = {"pads": [0] * 6, "group_dict": group}
    plan = call(x, dy, size, strides=[1, 1, 1], **given).plan
    assert plan.case == "load2d"
    assert (plan.stages[2].name, plan.stages[2].shape) == ("fmap_2_matrix", (4, 2 * 2, 1, 16))
    assert [stage.buffer for stage in plan.stages] == ["L1", "L0A", "L1", "L0B", "L0C", "UB", "GM"]
    for strides in ([1, 2, 1], [1, 1, 2]):
        assert call(x, dy, size, strides=strides, **given).plan.case == "load3d"
    # the stride along the depth does not matter
    assert call(x, (2, 1, *dy[2:]), size, strides=[2, 1, 1], **given).plan.case == "load2d"


def test_plan_leaves_the_result_to_the_kernel():
    # no core may rely on what is there before
    assert [(t.name, t.initialised) for t in call().plan.gm.tensors] == [("x", True), ("dy", True), ("dw", False)]
