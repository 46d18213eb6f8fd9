"""Random calls of every rank, product, mode and mask against the definition: exact on integers, bounded on reals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ops
from npu_sim.engines.hazards import run_hazards
from tests.cases.convolution_backward import NUMPY, bounds, exact_gradients, operands, random_call
from tests.oracles.convolution import Attributes, forward, gradients, input_gradient, output_extent
from tests.oracles.series import SERIES

NAMES = ("grad_input", "grad_weight", "grad_bias")
ONE_PRODUCT = dict(
    input_shape=(1, 1, 1, 1), weight_shape=(1, 1, 1, 1), output_shape=(1, 1, 1, 1), stride=(1, 1), padding=(0, 0),
    dilation=(1, 1), groups=1, transposed=False, output_padding=(0, 0), output_mask=(True, True, False),
    cube_math_type=2, dtypes=("fp32",) * 3,
)  # fmt: skip
"""A convolution of one element with another, by USE_FP16."""


def run(call, arrays):
    """Return the result of the public call, its inputs checked to be untouched."""
    before = [array.copy() for array in arrays]
    result = ops.convolution_backward(*arrays, **call.keywords)
    for array, copy in zip(arrays, before, strict=True):
        assert array.tobytes() == copy.tobytes()
    return result


def outputs_of(call, result):
    """Yield (index, gradient, dtype) of the wanted outputs; the others must be None."""
    shapes = (call.input_shape, call.weight_shape, (call.output_shape[1],))
    dtypes = (call.dtypes[1], call.dtypes[2], call.dtypes[0])
    for i, name in enumerate(NAMES):
        gradient = getattr(result, name)
        if not call.output_mask[i]:
            assert gradient is None
            continue
        assert gradient.shape == shapes[i]
        assert gradient.dtype == NUMPY[dtypes[i]]
        yield i, gradient, dtypes[i]


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("seed", range(12))
def test_gradients_of_integers_are_exact(series, seed):
    call = random_call(np.random.default_rng([seed, SERIES.index(series)]), series)
    arrays = operands(call, integers=True)
    exact = exact_gradients(call, arrays)
    for i, gradient, dtype in outputs_of(call, run(call, arrays)):
        want = exact[i].astype(np.float32).astype(NUMPY[dtype])
        np.testing.assert_array_equal(gradient.astype(np.float64), want.astype(np.float64), err_msg=str(call))


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("seed", range(100, 108))
def test_gradients_of_reals_lie_within_the_derived_bound(series, seed):
    call = random_call(np.random.default_rng([seed, SERIES.index(series)]), series)
    arrays = operands(call, integers=False)
    exact = exact_gradients(call, arrays)
    result = run(call, arrays)
    allowed = bounds(call, arrays, exact, result.compute_dtype)
    for i, gradient, _ in outputs_of(call, result):
        error = np.abs(gradient.astype(np.float64) - exact[i])
        assert (error <= allowed[i]).all(), (call, NAMES[i], float((error / allowed[i]).max()))


@pytest.mark.parametrize("series", SERIES)
def test_an_operand_that_rounds_to_a_subnormal_lies_within_the_derived_bound(series):
    call = replace(random_call(np.random.default_rng(0), series), **ONE_PRODUCT)
    # 9.445281e-06 is not a multiple of 2^-24: its error in float16 is 2.8e-8, three thousandths of it
    arrays = (np.full((1, 1, 1, 1), 9.445281e-06, np.float32), *np.ones((2, 1, 1, 1, 1), np.float32))
    exact = exact_gradients(call, arrays)
    result = run(call, arrays)
    assert result.compute_dtype == "fp16"
    allowed = bounds(call, arrays, exact, "fp16")
    error = np.abs(result.grad_weight.astype(np.float64) - exact[1])
    assert 0 < error.item() <= allowed[1].item() < 3 * error.item()


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("seed", range(200, 204))
def test_launches_of_a_call_have_no_hazards(series, seed):
    call = random_call(np.random.default_rng([seed, SERIES.index(series)]), series)
    result = run(call, operands(call, integers=True))
    assert run_hazards(result.plan.calls.launches, result.product) == []


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_oracle_satisfies_the_adjoint_identities(spatial, transposed):
    rng = np.random.default_rng(spatial)
    attributes = Attributes(
        stride=(2, 1, 3)[:spatial], pads=((1, 2), (0, 1), (2, 0))[:spatial], dilation=(1, 2, 2)[:spatial], groups=2,
        transposed=transposed,
    )  # fmt: skip
    x = rng.integers(-9, 10, (2, 6, *(7, 8, 9)[:spatial]))
    w = rng.integers(-9, 10, (4, 3, *(3, 2, 2)[:spatial]))
    axes = zip(x.shape[2:], w.shape[2:], attributes.stride, attributes.pads, attributes.dilation, strict=True)
    dy = rng.integers(-9, 10, (2, 4, *(output_extent(*axis) for axis in axes)))
    keywords = attributes.keywords(np.int64)
    if transposed:
        # <T(a), g> = <a, dx> = <w, dw> for the transposed convolution T, which scatters
        made = input_gradient(dy, w, x.shape, **keywords)
        a, g = dy, rng.integers(-9, 10, made.shape)
    else:
        made = forward(x, w, dy.shape, **keywords)
        a, g = x, dy
    dx, dw, db = gradients(g, a, w, attributes)
    assert int((made * g).sum()) == int((a * dx).sum()) == int((w * dw).sum())
    np.testing.assert_array_equal(db, g.sum(axis=(0, *range(2, g.ndim))))
