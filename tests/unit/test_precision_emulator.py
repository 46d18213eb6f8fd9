"""The study on the emulator itself: small layers of the captured step, and ranks the example does not have."""

import dataclasses

import numpy as np
import pytest
from precision_backend import gradient, operand

from ops.studies.capture import load_example
from ops.studies.layers import Capture, Layer
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions


def magnitude(layer):
    """Sum of |x| |dy| for every element of the gradient, in float64."""
    return gradient(
        abs(layer.x), abs(layer.dy), layer.weight_shape, stride=layer.stride, padding=layer.padding,
        dilation=layer.dilation, groups=layer.groups,
    )  # fmt: skip


def check_bounds(report, layers):
    """Every error is explained by rounding: of sums (both goldens) and of operands (the original golden only)."""
    operand_error = {"fp32": 0.0, "hf32": 2.0**-12, "fp16": 2.0**-11, "bf16": 2.0**-8}
    for row in report.computed:
        layer, result = layers[row.layer], row.result
        scale = float(magnitude(layer).max())
        # float32 sums in any order and grouping: at most k_depth roundings of the running sum of magnitudes
        summing = 1.01 * layer.k_depth * 2.0**-24 * scale
        assert result.rounded.error.max_abs <= summing
        # fp16 gradients below 2^-14 lose up to 2^-25 each, times the largest activation
        tiny = 2.0**-25 * layer.k_depth * float(abs(layer.x).max()) if result.compute_dtype == "fp16" else 0.0
        casting = 2.01 * operand_error[result.compute_dtype] * scale + tiny
        assert result.original.error.max_abs <= summing + casting
        assert result.rounded.outcome == "pass"
        assert result.k_depth == layer.k_depth
        assert result.tiling


def test_study_captured_step_on_the_emulator_is_within_rounding():
    capture = load_example()
    options = StudyOptions(layers=("pointwise", "grouped"), products=("910", "910b"))
    report = study(capture, options)
    check_bounds(report, {layer.name: layer for layer in capture.layers})
    refused = {(row.product, row.cube_math_type, row.refusal.status) for row in report.rows if row.refusal}
    assert refused == {("910", 0, 161002), ("910", 3, 161002)}
    for row in report.computed:
        models = {"fp32": "exact4-rne", "hf32": "exact8-rne", "fp16": "exact16-rne"}
        assert row.result.accumulation == models[row.result.compute_dtype]
    assert report.passed
    # the framework's gradient of the file has errors of the size of the emulator's fp32 ones
    fp32 = next(row for row in report.computed if row.result.compute_dtype == "fp32")
    reference = report.layers[0].reference
    assert reference.rmse / 20 < fp32.result.original.error.rmse < reference.rmse * 20


def test_study_serial_accumulation_is_less_exact_than_groups():
    capture = load_example()
    common = StudyOptions(layers=("pointwise",), products=("910b",), cube_math_types=(0,), threads=1)
    grouped = study(capture, common).rows[0].result
    serial = study(capture, dataclasses.replace(common, accumulation="serial")).rows[0].result
    assert serial.accumulation == "serial"
    assert serial.rounded.error.rmse > grouped.rounded.error.rmse
    threaded = study(capture, dataclasses.replace(common, threads=2)).rows[0].result
    assert threaded == grouped


@pytest.mark.parametrize("axes", [1, 3])
def test_study_other_ranks_run_or_are_refused(axes):
    rng = np.random.default_rng(9)
    layer = Layer(
        name="own",
        x=rng.normal(size=(2, 5, *(6,) * axes)).astype(np.float32),
        dy=rng.normal(size=(2, 7, *(5,) * axes)).astype(np.float32),
        weight_shape=(7, 5, *(2,) * axes),
        stride=(1,) * axes,
        padding=(0,) * axes,
        dilation=(1,) * axes,
        groups=1,
    )
    report = study(Capture(source="own.npz", layers=(layer,)), StudyOptions(products=("310p", "910_93")))
    check_bounds(report, {"own": layer})
    refused = {(row.product, row.cube_math_type) for row in report.rows if row.refusal}
    assert refused == {("310p", mode) for mode in ((0, 3) if axes == 1 else (0, 1, 2, 3))}


def test_study_golden_of_the_oracle_is_that_of_the_plain_loop():
    """The project's oracle and the stand-in's loop agree on the rounded golden, layer by layer."""
    from ops.common.definition import weight_gradient

    for layer in load_example().layers:
        x, dy = operand(layer.x, "hf32", "inf_nan"), operand(layer.dy, "hf32", "inf_nan")
        arguments = {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}
        one = weight_gradient(x, dy, layer.weight_shape, **arguments)
        other = gradient(x, dy, layer.weight_shape, **arguments)
        assert np.allclose(one, other, rtol=1e-12, atol=1e-15)
