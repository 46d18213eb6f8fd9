"""Random forward calls of every rank, product and mode against the definition, and against PyTorch where it is."""

from __future__ import annotations

import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.program.verify import verify
from ops.common.tensor_desc import described
from ops.conv_forward.api import plan_convolution
from tests.cases.convolution_backward import NUMPY
from tests.cases.convolution_forward import bound_of, exact_output, operands, random_forward_call
from tests.oracles.convolution import forward, input_gradient
from tests.oracles.series import SERIES, SPLIT


def run(call, arrays):
    """Return the result of the public call, its inputs checked to be untouched."""
    given = [array for array in arrays if array is not None]
    before = [array.copy() for array in given]
    result = ops.convolution(*given, **call.keywords)
    for array, copy in zip(given, before, strict=True):
        assert array.tobytes() == copy.tobytes()
    assert result.output.shape == call.output_shape
    assert result.output.dtype == NUMPY[call.output_dtype]
    return result


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("seed", range(16))
def test_outputs_of_integers_are_exact(series, seed):
    call = random_forward_call(np.random.default_rng([seed, SERIES.index(series)]), series)
    arrays = operands(call, integers=True)
    want = exact_output(call, *arrays)
    np.testing.assert_array_equal(run(call, arrays).output.astype(np.float64), want, err_msg=str(call))


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("seed", range(100, 110))
def test_outputs_of_reals_lie_within_the_derived_bound(series, seed):
    call = random_forward_call(np.random.default_rng([seed, SERIES.index(series)]), series)
    arrays = operands(call, integers=False)
    exact = exact_output(call, *arrays)
    result = run(call, arrays)
    allowed = bound_of(call, *arrays, exact, result.compute_dtype)
    error = np.abs(result.output.astype(np.float64) - exact)
    assert (error <= allowed).all(), (call, float((error / allowed).max()))


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("seed", range(200, 206))
def test_launches_of_a_call_are_sound(series, seed):
    call = random_forward_call(np.random.default_rng([seed, SERIES.index(series)]), series)
    result = run(call, operands(call, integers=True))
    assert run_hazards(result.plan.calls.launches, result.product) == []
    for launch in result.plan.calls.launches:
        for phase in range(launch.phase_count):
            assert verify(emit_rows(launch, 0, phase), result.product) == [], call


@pytest.mark.parametrize("series", SERIES)
def test_output_is_that_of_pytorch(series):
    torch = pytest.importorskip("torch")
    functions = torch.nn.functional
    for seed in range(300, 315):
        call = random_forward_call(np.random.default_rng([seed, SERIES.index(series)]), series)
        a = call.attributes
        if any(before != after for before, after in a.pads):
            continue
        arrays = operands(call, integers=True)
        x, w, b = (None if value is None else torch.tensor(value.astype(np.float64)) for value in arrays)
        keywords = {"stride": a.stride, "padding": tuple(pad for pad, _ in a.pads), "dilation": a.dilation}
        if a.transposed:
            name, keywords["output_padding"] = f"conv_transpose{len(a.stride)}d", call.output_padding
        else:
            name = f"conv{len(a.stride)}d"
        want = getattr(functions, name)(x, w, b, groups=a.groups, **keywords).numpy()
        np.testing.assert_array_equal(run(call, arrays).output.astype(np.float64), want, err_msg=str(call))


@pytest.mark.parametrize("series", SPLIT)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("way", ["whole map", "added"])
def test_bias_that_a_launch_adds(series, dtype, way):
    rng = np.random.default_rng(len(dtype))
    kernel = (4, 3, 5) if way == "whole map" else (2, 1, 3)
    x, w, b = (
        rng.integers(-2, 3, shape).astype(NUMPY[dtype]) for shape in ((3, 6, 4, 3, 5), (6, 6, *kernel), (6,))
    )  # fmt: skip
    result = ops.convolution(x, w, b, transposed=way == "added", product=series)
    wide = [value.astype(np.float64) for value in (x, w)]
    make = forward if way == "whole map" else input_gradient
    exact = make(*wide, result.output.shape) + b.astype(np.float64)[:, None, None, None]
    assert "Add" in [planned.step.name for planned in result.plan.calls.steps]
    np.testing.assert_array_equal(result.output.astype(np.float64), exact.astype(NUMPY[dtype]).astype(np.float64))
    assert run_hazards(result.plan.calls.launches, result.product) == []


def test_generator_reaches_every_way():
    seen = set()
    for series in SERIES:
        for seed in range(150):
            call = random_forward_call(np.random.default_rng([seed, SERIES.index(series)]), series)
            shapes = (call.input_shape, call.weight_shape, (call.output_shape[1],))
            descs = [described(shape, dtype) for shape, dtype in zip(shapes, call.dtypes, strict=True)]
            plan = plan_convolution(*descs[: 2 + call.has_bias], **call.keywords)
            seen |= {plan.route.name, plan.resolved.compute_dtype, plan.route.kernel}
            seen |= {"added bias"} if plan.route.adds_bias else set()
            rows = zip(call.output_padding, call.attributes.stride, strict=True)
            seen |= {"long output padding"} if any(extra >= step for extra, step in rows) else set()
    assert seen >= {
        "1D as 2D", "2D", "3D", "whole map", "fp16", "bf16", "hf32", "fp32", "Conv2D", "Conv2DTranspose", "Conv3DV2",
        "Conv3DTranspose", "BatchMatMulV2", "added bias", "long output padding",
    }  # fmt: skip
