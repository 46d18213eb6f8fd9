"""Files of test cases, generated tensors and PyTorch models as sources of ``npu-sim precision``."""

from __future__ import annotations

import csv
import json
import math
import re

import ml_dtypes
import numpy as np
import pytest

from npu_sim.budget import use_budget
from npu_sim.errors import BudgetError, InputFileError
from ops.cli.main import main
from ops.studies.capture import load_example
from ops.studies.case_file import load_cases
from ops.studies.generate import DISTRIBUTIONS, regenerated
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions


def attrs(name, *values):
    return [{"name": name, "type": "attrs", "dtype": "int", "shape": None, "range_values": value} for value in values]


def attr(name, value):
    return {"name": name, "type": "attr", "dtype": "int", "shape": None, "range_values": value}


def tensor(name, shape, dtype, values):
    return {"name": name, "type": "tensor", "required": True, "dtype": dtype, "shape": shape, "range_values": values}


def atk_convolution(number=7, *, dtype="fp32", mode=1, mask=(True, True, False), transposed=False, **changes):
    inputs = [
        tensor("gradOutput", [2, 6, 3, 4], dtype, [-0.5, 0.5]), tensor("input", [2, 4, 5, 4], dtype, [1, 2]),
        tensor("weight", [6, 2, 3, 3], dtype, {"name": "nd", "mean": [3, 4], "std": [0, 0]}),
        attrs("biasSizes", 6), attrs("stride", 2, 1), attrs("padding", 1, 1), attrs("dilation", 1, 1),
        attr("transposed", transposed), attrs("outputPadding", 0, 0), attr("groups", 2),
        attrs("outputMask", *mask), attr("cubeMathType", mode),
        {"name": "format", "type": "attr", "dtype": "non_param", "shape": None, "range_values": "NCHW"},
    ]  # fmt: skip
    return {"id": number, "name": "any", "aclnn_name": "ConvolutionBackward", "inputs": inputs, **changes}


def atk_pooling(number=0, values=("inf",), override=1):
    inputs = [
        tensor("gradOutput", [1, 3, 2, 2], "bf16", list(values)), tensor("self", [1, 3, 4, 5], "bf16", [0, 1]),
        attrs("kernel_size", 2, 3), attrs("stride", 2, 2), attrs("padding", 0, 0), attr("ceil_mode", False),
        attr("count_include_pad", True), attr("divisor_override", override), attr("cube_math_type", 2),
    ]  # fmt: skip
    return {"id": number, "name": "any", "aclnn_name": "AvgPool2dBackward", "inputs": inputs}


def write_json(path, *cases):
    path.write_text(json.dumps(cases), encoding="utf-8")
    return path


KERNEL = {
    "testcase_name": "dw", "op_name": "conv3d_backprop_filter_v2", "input_dtypes": "('float16', 'int32', 'float16')",
    "attributes": "{'filter_size': [6, 4, 1, 3, 2], 'strides': [1, 1, 1, 1, 1], 'pads': [0, 0, 1, 0, 0, 1], "
    "'dilations': [1, 1, 1, 1, 1], 'groups': 1, 'data_format': 'NCDHW'}",
    "input_shapes": "((2, 4, 1, 5, 6), (5,), (2, 6, 1, 4, 6))", "input_formats": "('NCDHW', 'ND', 'NCDHW')",
    "input_data_ranges": "((0, 1), (0, 1), (-2, -1))", "precision_tolerances": "((0.001, 0.001),)",
    "absolute_precision": "1.00E-08",
}  # fmt: skip
INPUT_KERNEL = KERNEL | {
    "testcase_name": "dx", "op_name": "conv3d_backprop_input_v2", "input_dtypes": "('int32', 'float32', 'float32')",
    "attributes": "{'input_size': [1, 4, 3, 5, 6], 'strides': [1, 1, 1, 2, 1], 'pads': [1, 1, 1, 1, 0, 0], "
    "'dilations': [1, 1, 1, 1, 2], 'groups': 2, 'data_format': 'NCDHW', 'enable_hf32': True}",
    "input_shapes": "((5,), (6, 2, 3, 3, 2), (1, 6, 3, 3, 4))", "input_formats": "('ND', 'NCDHW', 'NCDHW')",
    "input_data_ranges": "((-1, 1),)",
}  # fmt: skip
CALL = {
    "testcase_name": "call", "api_name": "aclnnConvolutionBackward", "is_enabled": "True",
    "tensor_view_shapes": "((1, 3, 9), (1, 4, 4), (4, 3, 2), (1, 4, 4), (4, 3, 2), (3,))",
    "tensor_formats": "('NCL', 'NCL', 'NCL', 'NCL', 'NCL', 'ND')", "tensor_dtypes": "('float16',) * 6",
    "attributes": "{'biasSizes': [3], 'stride': [2], 'dilation': [1], 'padding': [0], 'transposed': True, "
    "'outputPadding': [1], 'groups': 1, 'outputMask': [True, True, True], 'cubeMathType': 0}",
    "input_data_ranges": "((None, None), (None, None), (None, None))",
}  # fmt: skip
CALL["tensor_dtypes"] = str(("float16",) * 6)


def write_csv(path, *rows):
    headings = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, headings)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_atk_cases_are_layers_in_the_ranges_of_the_file(tmp_path):
    file = write_json(tmp_path / "a.json", atk_convolution(), atk_pooling(), atk_pooling(1, (-3, -3), [5, 9]))
    found = load_cases(file, seed=3)
    assert found.left_out == {}
    conv, pool, other = found.capture.layers
    assert (conv.name, conv.gradients, conv.cube_math_types) == ("ConvolutionBackward 7", ("dx", "dw"), (1,))
    assert (conv.stride, conv.padding, conv.dilation, conv.groups) == ((2, 1), (1, 1), (1, 1), 2)
    # nothing is drawn before it is needed
    assert conv.x.strides == (0, 0, 0, 0)
    filled = conv.filled()
    assert filled.x.dtype == np.float32
    assert 1 <= filled.x.min() < filled.x.max() <= 2
    assert -0.5 <= filled.dy.min() < filled.dy.max() <= 0.5
    assert 3 <= filled.weight.min() == filled.weight.max() <= 4
    assert (pool.x_shape, pool.kernel_size, pool.stride, pool.divisor_override) == ((1, 3, 4, 5), (2, 3), (2, 2), 1)
    assert pool.filled().dy.dtype == ml_dtypes.bfloat16
    assert np.all(pool.filled().dy == math.inf)
    assert np.all(other.filled().dy == -3)
    assert other.divisor_override == 5


def test_ttk_rows_of_kernels_and_calls_are_layers(tmp_path):
    found = load_cases(write_csv(tmp_path / "a.csv", KERNEL, INPUT_KERNEL, CALL))
    assert found.left_out == {}
    dw, dx, call = found.capture.layers
    # only 2D calls have paddings of both sides, so the depth of 1 goes
    assert (dw.x.shape, dw.weight_shape, dw.padding) == ((2, 4, 5, 6), (6, 4, 3, 2), (1, 0, 0, 1))
    assert (dw.gradients, dw.cube_math_types, dw.x.dtype) == (("dw",), (0,), np.float16)
    filled = dw.filled()
    assert 0 <= filled.x.min() < filled.x.max() <= 1
    assert -2 <= filled.dy.min() < filled.dy.max() <= -1
    assert (dx.x.shape, dx.weight.shape, dx.padding, dx.stride) == (
        (1, 4, 3, 5, 6),
        (6, 2, 3, 3, 2),
        (1, 1, 0),
        (1, 2, 1),
    )
    assert (dx.gradients, dx.cube_math_types, dx.groups, dx.dilation) == (("dx",), (3,), 2, (1, 1, 2))
    assert -1 <= dx.filled().weight.min() < 0 < dx.filled().weight.max() <= 1
    assert (call.operator, call.output_padding, call.gradients) == ("transposed convolution", (1,), ("dx", "dw", "db"))
    assert 1.5 < abs(call.filled().dy).max() <= 2
    report = study(found.capture, StudyOptions(products=("910b",)))
    assert [(row.title, row.cube_math_type) for row in report.rows] == [
        ("dw dw", 0), ("dx dx", 3), ("call dx", 0), ("call dw", 0), ("call db", 0)
    ]  # fmt: skip
    assert report.passed


def test_tensors_depend_on_seed_and_name_alone(tmp_path):
    cases = [atk_convolution(number) for number in range(3)]
    every = load_cases(write_json(tmp_path / "a.json", *cases), seed=1).capture.layers
    (last,) = load_cases(write_json(tmp_path / "b.json", cases[2]), seed=1).capture.layers
    other = load_cases(tmp_path / "b.json", seed=2).capture.layers[0]
    assert np.array_equal(last.filled().x, every[2].filled().x)
    assert not np.array_equal(every[1].filled().x, every[2].filled().x)
    assert not np.array_equal(last.filled().x, other.filled().x)
    same = load_cases(write_json(tmp_path / "c.json", cases[0], cases[0])).capture.layers
    assert [layer.name for layer in same] == ["ConvolutionBackward 0", "ConvolutionBackward 0#2"]


BOUNDS = {
    "uniform": (-5, 5), "small": (-1e-3, 1e-3), "normal": (-5 - 2 * 7, 5 + 2 * 7),
    "wide": (-100 - 25 * 7, 100 + 25 * 7),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_are_those_of_the_standards(name):
    rng = np.random.default_rng(4)
    for _ in range(20):
        values = DISTRIBUTIONS[name](rng, (50, 100))
        if name in BOUNDS:
            low, high = BOUNDS[name]
            assert low <= values.min() < values.max() <= high
        elif name == "special":
            assert np.count_nonzero(~np.isfinite(values)) == 5
        else:
            centre = np.median(values)
            assert np.count_nonzero(abs(values - centre) > 25 * 7) <= 5
            assert abs(values).max() > 500
    means = [DISTRIBUTIONS["wide"](rng, (1000,)).mean() for _ in range(30)]
    assert np.ptp(means) > 100


def test_generated_tensors_replace_those_of_a_file():
    made = regenerated(load_example(), "special", 5)
    assert made.metadata["distribution"] == "special"
    for layer, own in zip(made.layers, load_example().layers, strict=True):
        filled = layer.filled()
        assert (filled.x.shape, filled.x.dtype, filled.grad_weight) == (own.x.shape, own.x.dtype, None)
        assert np.count_nonzero(~np.isfinite(filled.x)) == max(1, filled.x.size // 1000)


WRONG_CASES = [
    (atk_convolution(mask=(False,) * 3), "outputMask must want a gradient"),
    (atk_convolution(dtype="int8"), "dtype must be fp16, bf16 or fp32, not int8"),
    (atk_convolution(aclnn_name="Relu"), "aclnn_name must be one of ConvolutionBackward, AvgPool2dBackward, Conv"),
    (atk_convolution(transposed=True), "x must have weight_shape[0] = 6 channels, not 4"),
    (atk_convolution(inputs=[]), "a case lacks an input or has one of another kind (KeyError: 'input')"),
    (atk_pooling(values=(2, 1)), "a range must have finite ends in order, not [2.0, 1.0]"),
    (7, "a case lacks an input or has one of another kind (AttributeError"),
    (KERNEL | {"op_name": "conv2d"}, "conv3d_backprop_input_v2 or conv2dv2 or conv3dv2, not conv2d"),
    (KERNEL | {"attributes": "open('x')"}, "a row lacks a cell or has one of another kind (ValueError"),
    (KERNEL | {"input_dtypes": "('float16', 'int32', 'float32')"}, "must be of one dtype, not float16 and float32"),
    (KERNEL | {"input_shapes": "((0, 4, 1, 5, 6), (5,), (0, 6, 1, 4, 6))"}, "a tensor is empty"),
    (KERNEL | {"input_formats": "('NDHWC', 'ND', 'NCDHW')"}, "formats must be NCL, NCHW, NCDHW, ND, not NDHWC"),
    (CALL | {"is_enabled": "False"}, "is_enabled is False"),
    (CALL | {"api_name": "aclnnAdd"}, "api_name must be aclnnConvolutionBackward or aclnnConvolution, not aclnnAdd"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), WRONG_CASES)
def test_case_that_cannot_be_computed_is_left_out_with_its_reason(tmp_path, case, reason):
    is_row = isinstance(case, dict) and "testcase_name" in case
    write, good = (write_csv, CALL) if is_row else (write_json, atk_pooling(9))
    file = write(tmp_path / f"a.{'csv' if is_row else 'json'}", case, good)
    found = load_cases(file)
    assert len(found.capture.layers) == 1
    ((why, count),) = found.left_out.items()
    assert reason in why
    assert count == 1
    with pytest.raises(InputFileError, match="The file must hold a case that can be computed, but "):
        load_cases(write(file, case))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "The file must be JSON ("),
        ("a.json", "[" * 100_000, "The file must be JSON ("),
        ("a.json", "{}", "The file must hold a JSON list of cases, not dict"),
        ("a.json", "[]", "The file must hold a case that can be computed, but it has no rows"),
        ("a.csv", "a,b\n1,2\n", "The first line must hold testcase_name, as in CSV files of TTK"),
        ("a.csv", "", "The first line must hold testcase_name, as in CSV files of TTK"),
        ("a.csv", "\xff\xfe", "The file must be UTF-8 text ("),
    ],
)
def test_file_of_another_format_is_refused_on_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(InputFileError, match=re.escape(message)) as caught:
        load_cases(tmp_path / name)
    assert str(caught.value).isprintable()


def test_file_beyond_the_budget_is_refused(tmp_path):
    file = write_json(tmp_path / "a.json", *[atk_pooling(number) for number in range(50)])
    with use_budget("64KiB"), pytest.raises(BudgetError):
        load_cases(file)


def call(capsys, *arguments):
    code = main(["precision", "--no-picture", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_command_takes_case_files_and_distributions(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("ops.cli.precision.note_compilation", lambda: None)
    file = write_json(tmp_path / "a.json", atk_convolution(), atk_convolution(8, mask=(False,) * 3))
    code, out, err = call(capsys, file, "--product", "910b")
    assert (code, err) == (0, "npu-sim: left out, cases: 1: outputMask must want a gradient\n")
    assert "2 combinations: 0 refused, 2 computed; 2 pass" in out
    documents = [
        json.loads(call(capsys, file, "--product", "910b", "--json", "-", *more)[1])
        for more in ((), ("--seed", "0"), ("--seed", "1"), ("--generate", "small"))
    ]
    errors = [one["rows"][0]["result"]["original"]["error"]["golden_max_abs"] for one in documents]
    assert errors[0] == errors[1] != errors[2]
    assert errors[3] < errors[0] / 100
    assert documents[3]["metadata"] == {"seed": 0, "distribution": "small"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "1"), "--seed must be given together with --generate, --default-shapes or a file of cases"),
        (
            ("--generate", "cauchy"),
            "must be one of uniform, normal, wide, small, outliers, special, not cauchy",
        ),
        (("--generate", "normal", "--seed", "-1"), "--seed must be at least 0, not -1"),
        (("missing.py",), "missing.py must be given with the function that builds the model, as missing.py:build"),
        (("missing.py:build",), "Python file must exist, but missing.py does not"),
    ],
)
def test_wrong_source_is_refused(capsys, options, message):
    code, out, err = call(capsys, *options)
    assert (code, out) == (2, "")
    assert message in err


MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.AvgPool2d(2)), torch.randn(2, 2, 8, 8)

def with_loss():
    model, x = build()
    return model, lambda: model(x).sum()

def with_scalar():
    model, x = build()
    return model, model(x).square().mean()

def with_losses():
    model, x = build()
    return model, model(x).square()

def nothing():
    return 3

def broken():
    raise RuntimeError("no data")
"""


def test_function_that_builds_a_model_is_a_source(capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("ops.cli.precision.note_compilation", lambda: None)
    path = tmp_path / "mymodel.py"
    path.write_text(MODEL)
    for function in ("build", "with_loss", "with_scalar"):
        code, out, _ = call(capsys, f"{path}:{function}", "--product", "910b", "--cube-math-type", "0", "--json", "-")
        report = json.loads(out)
        assert code == 0
        assert report["source"] == f"{path}:{function}"
        assert [(layer["name"], layer["gradient"]) for layer in report["layers"]] == [
            ("1", "dx"),
            ("0", "dw"),
            ("0", "db"),
        ]
        assert all(layer["reference"]["relative_l2"] < 1e-5 for layer in report["layers"])
    for function, message in (
        ("with_losses", "loss must be a scalar that requires a gradient, not a tensor of shape (2, 4, 3, 3)"),
        ("nothing", "The function must return (model, loss) or (model, x, ...)"),
        ("broken", f"{path}:broken must run, but ends with RuntimeError: no data"),
        ("missing", f"{path} must define the function missing"),
    ):
        code, out, err = call(capsys, f"{path}:{function}")
        assert (code, out) == (2, "")
        assert message in err
