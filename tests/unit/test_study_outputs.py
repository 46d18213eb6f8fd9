"""Outputs of forward calls in a study: goldens against other definitions, calls against goldens, files, cases."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from npu_sim.errors import InputFileError
from ops.cli.main import main
from ops.common.pooling_definition import window_divisors, window_sums
from ops.studies.attribution import attribute
from ops.studies.capture import load_capture, load_example
from ops.studies.case_file import load_cases
from ops.studies.comparison_terms import terms_of
from ops.studies.generate import regenerated
from ops.studies.kinds import emulator
from ops.studies.layers import Capture
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions
from ops.studies.registry import kinds_of
from tests.long.avg_pool_torch import out_of, random_config
from tests.oracles.pooling import forward
from tests.unit.test_case_files import CALL, KERNEL, atk_convolution, atk_pooling, attr, tensor, write_csv, write_json
from tests.unit.test_study_kinds import (
    CONVOLUTIONS,
    POOLINGS,
    arrays_of,
    assert_is_its_golden_in_float32,
    assert_rounded_twice,
    convolution,
    pooling,
)


def with_bias(layer):
    rng = np.random.default_rng(8)
    return replace(layer, bias=(10 * rng.normal(size=layer.dy.shape[1])).astype(layer.x.dtype))


def with_x(layer):
    rng = np.random.default_rng(9)
    return replace(layer, x=rng.normal(size=layer.x_shape).astype(layer.dy.dtype))


def outputs(layer, **options):
    given = {"products": ("310p", "910b"), "gradients": ("y",), **options}
    return study(Capture(source="test", layers=(layer,)), StudyOptions(**given))


def kind_of(layer):
    (kind,) = kinds_of(layer, ("y",))
    return kind


@pytest.mark.parametrize(("axes", "transposed", "groups"), list(itertools.product((1, 2, 3), (False, True), (1, 2))))
def test_goldens_of_outputs_are_those_of_pytorch_in_float64(axes, transposed, groups):
    torch = pytest.importorskip("torch")
    layer = with_bias(convolution(axes, transposed=transposed, groups=groups, dtype=np.float32))
    kind = kind_of(layer)
    for bias in (layer.bias, None):
        x, weight = (torch.tensor(array.astype(np.float64)) for array in (layer.x, layer.weight))
        wanted = torch.ops.aten.convolution(
            x, weight, None if bias is None else torch.tensor(bias.astype(np.float64)), layer.stride, layer.padding,
            layer.dilation, transposed, layer.output_padding or (0,) * axes, groups,
        )  # fmt: skip
        own = replace(layer, bias=bias)
        made = kind.golden(own, kind.tensors(own), emulator())
        np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-12, atol=1e-12)


def test_sums_of_windows_are_those_of_windows_walked_one_by_one():
    rng = np.random.default_rng(2)
    for _ in range(150):
        extents, config = random_config(rng)
        windows = out_of(extents, config)
        x = rng.standard_normal((2, *extents))
        divisor = window_divisors(
            extents, windows, config.kernel, config.stride, config.pad,
            count_include_pad=config.count_include_pad, override=config.divisor_override,
        )  # fmt: skip
        sums = window_sums(x, windows, config.kernel, config.stride, config.pad)
        made = np.divide(sums, divisor, out=np.zeros_like(sums), where=divisor != 0)
        np.testing.assert_allclose(made, forward(x, config), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=lambda layer: f"{layer.name}{layer.x.ndim - 2}g{layer.groups}")
def test_outputs_of_convolutions_are_a_rounding_from_their_golden(layer):
    for own in (layer, with_bias(layer)):
        report = outputs(own, cube_math_types=(0, 2))
        assert {row.product for row in report.computed} == ({"910b"} if layer.x.ndim == 5 else {"310p", "910b"})
        for row in report.computed:
            # a bias may be added to what was rounded
            most = 2.0 if row.result.route else 1.0
            assert row.result.rounded.error.relative_l2 < most * 2.0**-11
            assert row.result.rounded.outcome == "pass"
        assert_is_its_golden_in_float32(kind_of(own), own, kind_of(own).tensors(own))


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_rounded_golden_is_that_of_what_was_multiplied(mode, transposed, bias):
    layer = convolution(2, transposed=transposed, dtype=np.float32)
    layer = with_bias(layer) if bias else layer
    report = outputs(layer, products=("910b", "910"), cube_math_types=(mode,))
    assert len(report.computed) == (1 if mode in (0, 3) else 2)
    for row in report.computed:
        result = row.result
        in_half = result.compute_dtype == "fp16"
        # what the Cube multiplies in fp16 leaves it in fp16
        assert result.rounded.error.relative_l2 < (2.0**-11 if in_half else 2.0**-21)
        if result.compute_dtype != "fp32":
            least = {"hf32": 2.0**-16, "fp16": 2.0**-14}[result.compute_dtype]
            assert result.original.error.relative_l2 > least


FORWARD_POOLINGS = [
    (given, {product: tuple(name.removesuffix("Grad") for name in names) for product, names in routes.items()})
    for given, routes in POOLINGS
]
ROUTES = [
    *FORWARD_POOLINGS[:2],
    ({"pad": (1, 1), "count_include_pad": False}, {"910b": ("cube+mul",), "310p": ("cube+mul",)}),
    *FORWARD_POOLINGS[3:],
    ({"extents": (12, 12), "kernel": (12, 12), "stride": (12, 12), "divisor_override": 7}, {"910b": ("global",)}),
    ({"extents": (9, 70)}, {"910b": ("AvgPool3D",)}),
]


@pytest.mark.parametrize(("given", "routes"), ROUTES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_route_of_poolings_is_a_rounding_from_its_golden(given, routes, dtype):
    layer = with_x(pooling(dtype, **given))
    # the sum is rounded, the mean behind it, and both to the type of the tensor
    assert "910b" in assert_rounded_twice(outputs(layer, products=tuple(routes)), routes)


def test_constants_of_the_pooling_routes_are_in_the_rounded_golden():
    """Of a one in each window, fp16 rounds nothing but the constant 1/6, to 1365 * 2^-13: 2^-12 / 1 off."""
    x = np.zeros((2, 20, 9, 8), np.float32)
    x[..., ::3, ::2] = 1
    layer = replace(pooling(stride=(3, 2)), x=x)
    (row,) = outputs(layer, products=("910b",), cube_math_types=(2,)).rows
    assert row.result.rounded.error.max_abs == 0
    assert row.result.original.error.mean_rel == pytest.approx(1 - 1365 * 6 / 2**13, rel=1e-5)
    # windows over columns 0, 1 2, 3 4, 5 6, 7 8: the first has 3 elements
    x = np.zeros((2, 20, 9, 9), np.float32)
    x[..., ::3, [0, 1, 3, 5, 7]] = 1
    dy = np.zeros((2, 20, 3, 5), np.float32)
    clipped = replace(layer, x=x, x_shape=x.shape, padding=(0, 1), dy=dy, count_include_pad=False)
    (row,) = outputs(clipped, products=("910b",), cube_math_types=(2,)).rows
    assert row.result.route == "cube+mul"
    assert row.result.rounded.error.max_abs == 0
    assert row.result.original.error.mean_rel == pytest.approx(1 - 1365 * 6 / 2**13, rel=1e-5)


@pytest.mark.parametrize("given", [given for given, _ in POOLINGS])
def test_peers_of_poolings_are_their_goldens_in_float32(given):
    layer = with_x(pooling(**given))
    assert_is_its_golden_in_float32(kind_of(layer), layer, kind_of(layer).tensors(layer))


@pytest.mark.parametrize(
    "layer", CONVOLUTIONS[:10:3], ids=lambda layer: f"{layer.name}{layer.x.ndim - 2}g{layer.groups}"
)
def test_terms_of_an_output_add_up_to_the_definition(layer):
    own = replace(layer, **{name: np.round(4 * getattr(layer, name)) for name in ("x", "weight")})
    kind = kind_of(own)
    golden = kind.golden(own, kind.tensors(own), emulator())
    for at in np.ndindex(golden.shape):
        terms = terms_of(own, "y", kind.tensors(own), at)
        assert terms.values.sum() == golden[at]
        assert set(terms.places) == {"x", "weight"}


def test_causes_of_the_error_of_an_output():
    layer = with_bias(convolution(2, dtype=np.float32))
    tensors = {name: getattr(layer, name).astype(np.float16) for name in ("x", "dy", "weight", "bias")}
    capture = Capture(source="test", layers=(layer, replace(layer, name="half", **tensors)))
    options = StudyOptions(products=("310p", "910b"), gradients=("y",), cube_math_types=(1, 2))
    rows = attribute(capture, options)
    assert len(rows) == 8
    for row in rows:
        causes = [part.cause for part in row.error.parts]
        # the sums were found: they round to the result of the call, on either kind of core
        assert causes == ["input", "sums", "atomics", "output"]
        narrow = row.compute_dtype == "fp16"
        assert row.error.share("atomics") == 0
        assert (row.error.share("output") > 0) == narrow
        assert row.error.share("sums") < (1e-3 if narrow else 1)
        assert set(row.additions) == {"exact16-rne" if narrow else "exact8-rne", "serial"}
        if row.layer == "half":
            assert row.error.main == "output"


def test_sums_whose_bias_is_added_behind_are_not_taken_apart():
    layer = with_bias(convolution(3, transposed=True))
    (row,) = attribute(
        Capture(source="test", layers=(layer,)),
        StudyOptions(products=("910b",), gradients=("y",), cube_math_types=(0,)),
    )
    assert [part.cause for part in row.error.parts] == ["input", "sums and output"]
    assert row.additions == {}


def test_files_have_biases_inputs_of_poolings_and_wanted_outputs(tmp_path):
    conv = replace(with_bias(convolution(2)), gradients=("y", "dw"))
    pool = replace(with_x(pooling()), gradients=("y",))
    np.savez(
        tmp_path / "own.npz", **arrays_of(conv), **arrays_of(pool, x_shape=None, gradients=np.array(["y"])),
    )  # fmt: skip
    read = load_capture(tmp_path / "own.npz").layers
    assert [layer.gradients for layer in read] == [("y", "dw"), ("y",)]
    assert np.array_equal(read[0].bias, conv.bias)
    assert np.array_equal(read[1].x, pool.x)
    report = study(load_capture(tmp_path / "own.npz"), StudyOptions(products=("910b",), cube_math_types=(0,)))
    assert [row.title for row in report.rows] == ["c dw", "c y", "p y"]
    assert report.passed


WRONG = [
    (replace(pooling(), gradients=("y",)), {"gradients": np.array(["y"])}, "p.gradients must not hold y of a pooling "),
    (with_x(pooling()), {"x": np.zeros((2, 20, 9, 8), np.float16)}, "p.x must have the dtype of dy (float32), not "),
    (with_x(pooling()), {"x": np.zeros((2, 20, 9, 7), np.float32)}, "p.x must have the shape (2, 20, 9, 8), not "),
    (pooling(), {"gradients": np.array(["dw"])}, "p.gradients must hold some of the texts dx, y, not "),
    (convolution(2), {"bias": np.zeros(3, np.float32)}, "c.bias must have the dtype of x (float16), not float32"),
    (convolution(2), {"bias": np.zeros(4, np.float16)}, "c.bias must have the shape (3,), not (4,)"),
    (convolution(2), {"weight": None, "gradients": np.array(["y"])}, "c.gradients must not hold y of a layer without "),
]


@pytest.mark.parametrize(("layer", "changes", "message"), WRONG)
def test_wrong_layer_is_refused(tmp_path, layer, changes, message):
    np.savez(tmp_path / "own.npz", **arrays_of(layer, **changes))
    with pytest.raises(InputFileError, match=re.escape(f"own.npz: {message}")):
        load_capture(tmp_path / "own.npz")


def atk_forward(number, *, bias):
    """The backward case with the inputs of the forward call."""
    case = atk_convolution(number, aclnn_name="aclnnConvolution")
    left = ("gradOutput", "biasSizes", "outputMask")
    names = [(entry[0] if isinstance(entry, list) else entry)["name"] for entry in case["inputs"]]
    case["inputs"] = [entry for name, entry in zip(names, case["inputs"], strict=True) if name not in left]
    added = tensor("bias", [6], "fp32", [7, 8]) if bias else attr("bias", None)
    return case | {"inputs": [*case["inputs"], added]}


FORWARD_KERNEL = KERNEL | {
    "testcase_name": "2d", "op_name": "conv2dv2", "input_dtypes": "('float32', 'float32', 'float32', 'int8')",
    "input_shapes": "((2, 4, 5, 6), (6, 2, 3, 2), (6,), None)", "input_formats": "('NCHW', 'NCHW', 'ND', None)",
    "attributes": "{'strides': [1, 1, 2, 1], 'pads': [1, 0, 0, 1], 'dilations': [1, 1, 1, 1], 'groups': 2, "
    "'data_format': 'NCHW', 'enable_hf32': True}",
    "input_data_ranges": "((0, 1), (-1, 0), (2, 3))",
}  # fmt: skip
FORWARD_KERNEL_3D = FORWARD_KERNEL | {
    "testcase_name": "3d", "op_name": "conv3dv2", "input_dtypes": "('float16', 'float16', None, None, None, None)",
    "input_shapes": "((2, 4, 3, 5, 6), (6, 2, 2, 3, 2), None, None, None, None)",
    "input_formats": "('NCDHW', 'NCDHW', None, None, None, None)", "input_data_ranges": "((None, 3),)",
    "attributes": "{'strides': [1, 1, 1, 2, 1], 'pads': [0, 0, 1, 1, 0, 0], 'dilations': [1, 1, 1, 1, 1], 'groups': 2}",
}  # fmt: skip
FORWARD_CALL = CALL | {
    "testcase_name": "call", "api_name": "aclnnConvolution",
    "tensor_view_shapes": "((1, 4, 4), (4, 3, 2), None, (1, 3, 9))", "tensor_formats": "('NCL', 'NCL', None, 'NCL')",
    "tensor_dtypes": "('float16', 'float16', None, 'float16')",
}  # fmt: skip


def test_cases_of_forward_calls_and_kernels_are_outputs(tmp_path):
    pool = atk_pooling(3, values=(1, 2))
    pool |= {"aclnn_name": "AvgPool2d", "inputs": [one for one in pool["inputs"] if one != pool["inputs"][0]]}
    found = load_cases(write_json(tmp_path / "a.json", atk_forward(1, bias=True), atk_forward(2, bias=False), pool))
    assert found.left_out == {}
    one, two, three = found.capture.layers
    assert [layer.gradients for layer in found.capture.layers] == [("y",)] * 3
    assert one.dy.shape == (2, 6, 3, 4)
    assert 7 <= one.filled().bias.min() <= one.filled().bias.max() <= 8
    assert two.bias is None
    # nothing is drawn for what nobody reads
    assert one.filled().dy.strides == (0,) * 4
    assert (three.dy.shape, three.filled().x.shape) == ((1, 3, 2, 2), (1, 3, 4, 5))
    rows = write_csv(tmp_path / "a.csv", FORWARD_KERNEL, FORWARD_KERNEL_3D, FORWARD_CALL)
    found = load_cases(rows)
    assert found.left_out == {}
    plain, deep, call = found.capture.layers
    assert (plain.dy.shape, plain.padding, plain.cube_math_types) == ((2, 6, 2, 6), (1, 0, 0, 1), (3,))
    assert (deep.dy.shape, deep.padding, deep.bias) == ((2, 6, 2, 3, 5), (0, 1, 0), None)
    assert -2 <= deep.filled().x.min() < -1.5
    assert 2.5 < deep.filled().x.max() <= 3
    assert (call.operator, call.dy.shape) == ("transposed convolution", (1, 3, 9))
    report = study(found.capture, StudyOptions(products=("910b",)))
    assert [row.title for row in report.rows] == ["2d y", "3d y", "call y"]
    assert report.passed


def test_generated_tensors_make_outputs_of_layers_that_lack_tensors():
    layers = tuple(replace(layer, weight=None, gradients=("dw",)) for layer in load_example().layers[:1])
    made = regenerated(Capture(source="test", layers=(*layers, pooling())), "uniform", 1)
    assert [layer.gradients for layer in made.layers] == [("dw",), ("dx",)]
    report = study(made, StudyOptions(products=("910b",), gradients=("y",), cube_math_types=(0,)))
    assert [row.gradient for row in report.computed] == ["y", "y"]
    assert report.passed


def test_command_takes_outputs(capsys):
    command = ["precision", "--generate", "uniform", "--result", "y", "--product", "910b", "--no-picture"]
    assert main([*command, "--cube-math-type", "0"]) == 0
    assert " y " in capsys.readouterr().out
    sides = ["--left", "product=910b", "--right", "product=910b,cube_math_type=2"]
    assert main(["compare", *sides, "--result", "y", "--no-progress"]) in (1, 2)
