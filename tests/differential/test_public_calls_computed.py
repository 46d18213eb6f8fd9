"""The calls of public tests, planned and computed: what their shapes give on every series, and the gradients."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import pytest

from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import ExecuteOptions
from npu_sim.errors import OperatorError
from ops.conv_backward.plan import plan_call
from ops.conv_backward.rules import check
from tests.cases.convolution_backward import bounds_of
from tests.oracles.aclnn_cases import call_of, load_cases
from tests.oracles.convolution import Attributes, gradients
from tests.oracles.series import SERIES, SPLIT

COLUMNS = {series: int(series in SPLIT) for series in SERIES}
CASES = load_cases()
NUMPY = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")

MOST_MACS = 6_000_000
MOST_MACS_SLOW = 600_000_000


def macs(call):
    """Multiply-adds of one gradient."""
    small = call.input if call.transposed else call.grad_output
    return small.shape[0] * prod(small.shape[2:]) * prod(call.weight.shape)


@pytest.mark.parametrize("series", COLUMNS)
def test_status_with_the_kernels_asked_is_the_documented_one(series):
    for case in CASES:
        try:
            plan_call(check(call_of(case, series)))
            got = 0
        except OperatorError as error:
            got = error.status
        assert got == case["status"][COLUMNS[series]], case["id"]


def selected(most, least=0):
    """Return (case, series) of all cases that a series takes and that are small enough."""
    return [
        pytest.param(case, series, id=f"{case['id']}-{series}")
        for case in CASES
        for series in ("910", "910b")
        if case["status"][COLUMNS[series]] == 0
        if least < macs(call_of(case, series)) <= most
    ]


def compute_and_compare(case, series):
    """Run a call on normal deviates and hold every element to its bound."""
    call = call_of(case, series)
    resolved = check(call)
    plan = plan_call(resolved)
    rng = np.random.default_rng(list(case["id"].encode()))
    inputs = {}
    for name in ("grad_output", "input", "weight"):
        desc = getattr(call, name)
        inputs[name] = rng.standard_normal(desc.elems).astype(np.float32).astype(NUMPY[desc.dtype])
    outputs = {name: np.empty(desc.elems, NUMPY[desc.dtype]) for name, desc in resolved.wanted_outputs.items()}
    options = ExecuteOptions(accumulation=default_accumulation(call.product, resolved.compute_dtype), threads=2)
    plan.run(inputs | outputs, options)
    arrays = tuple(inputs[name].reshape(getattr(call, name).shape) for name in ("grad_output", "input", "weight"))
    axes = call.spatial_axes
    attributes = Attributes(
        stride=tuple(axis.stride for axis in axes),
        pads=tuple((axis.before, axis.after) for axis in axes),
        dilation=tuple(axis.dilation for axis in axes),
        groups=call.groups,
        transposed=call.transposed,
    )
    exact = gradients(*(array.astype(np.float64) for array in arrays), attributes)
    types = tuple(getattr(call, name).dtype if getattr(call, name) else "fp32" for name in OUTPUTS)
    allowed = bounds_of(arrays, attributes, exact, resolved.compute_dtype, call.grad_output.dtype, types)
    for i, name in enumerate(OUTPUTS):
        if name in outputs:
            got = outputs[name].astype(np.float64).reshape(exact[i].shape)
            assert (np.abs(got - exact[i]) <= allowed[i]).all(), name


@pytest.mark.parametrize(("case", "series"), selected(MOST_MACS))
def test_small_public_calls_compute_the_gradients(case, series):
    compute_and_compare(case, series)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "series"), selected(MOST_MACS_SLOW, MOST_MACS))
def test_larger_public_calls_compute_the_gradients(case, series):
    compute_and_compare(case, series)
