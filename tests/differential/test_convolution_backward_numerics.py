"""Where a call rounds, and to which type, seen in values chosen so that every other place or type gives another result.

All sums here are exact in float32 whatever their order, so the expected bits follow by hand.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ops
from npu_sim import use_product
from npu_sim.errors import ProductError
from ops import aclnn
from tests.oracles.aclnn_cases import arguments_of
from tests.oracles.conv_backward_cases import make_call
from tests.oracles.series import SPLIT, UNIFIED

NUMPY = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
PLAIN = {"stride": 1, "padding": 0, "dilation": 1}

ROUTES = {
    # (g, x, w, keywords): one product per element of dx and of dw
    "2d": ((1, 1, 1, 1), (1, 1, 2, 2), (1, 1, 1, 1), {"stride": 2}),
    "2d transposed": ((1, 1, 2, 2), (1, 1, 1, 1), (1, 1, 1, 1), {"stride": 2, "transposed": True, "output_padding": 1}),
    "3d": ((1, 1, 1, 1, 1), (1, 1, 2, 1, 1), (1, 1, 1, 1, 1), {"stride": 2}),
    "1d": ((1, 1, 1), (1, 1, 1), (1, 1, 1), {}),
    "groups": ((1, 2, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1), {"groups": 2}),
    "whole map": ((1, 1, 1, 1), (1, 1, 1, 3), (1, 1, 1, 3), {}),
    "blocks": ((1, 1, 1, 2), (1, 1, 2, 4), (1, 1, 2, 2), {"stride": 2, "output_mask": (True, False, False)}),
}


def filled(shape, value, dtype):
    return np.full(shape, value, np.float64).astype(NUMPY[dtype])


def touched(gradient):
    """Return the elements of a gradient that are no zero of an uncovered row."""
    values = np.unique(gradient.astype(np.float64))
    return values[values != 0]


@pytest.mark.parametrize("product", SPLIT)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("mode", "operand"), [(0, 1 + 2.0**-13), (1, 1.0), (3, 1.0)], ids=["keep", "allow", "hf32"])
def test_cube_rounds_float32_operands_to_hf32_where_the_mode_says_so_on_every_route(route, mode, operand, product):
    # 1 + 2^-13 has no HF32 neighbour but 1 (11 bits); its square is inexact in float32 by 2^-26 only
    g_shape, x_shape, w_shape, changes = ROUTES[route]
    g, x, w = (filled(shape, 1 + 2.0**-13, "fp32") for shape in (g_shape, x_shape, w_shape))
    result = ops.convolution_backward(g, x, w, **(PLAIN | changes), cube_math_type=mode, product=product)
    assert result.compute_dtype == ("fp32" if mode == 0 else "hf32")
    expected = float(np.float32(operand * operand))
    np.testing.assert_array_equal(touched(result.grad_input), [expected])
    if result.grad_weight is not None:
        np.testing.assert_array_equal(touched(result.grad_weight), [expected * (2 if route == "blocks" else 1)])
    if result.grad_bias is not None:
        # the bias gradient is no business of the Cube
        assert result.grad_bias[0] == np.float32(g.size // g.shape[1]) * g.flat[0]


def pair(shape, value, dtype):
    """Return ones in channel 0 and ``value`` in channel 1."""
    array = filled(shape, 1, dtype)
    array[:, 1] = value
    return array


FP32_TIE = 2.0**-11
"""1 + 2^-11 lies half way between two FP16 numbers and goes to 1."""
BF16_TIE = 2.0**-8 + 2.0**-12
"""1 + 2^-8 + 2^-12 goes up to 1 + 2^-7 in BF16; FP16 makes the tie 1 + 2^-8 of it, which goes down to 1."""


@pytest.mark.parametrize(
    ("product", "transposed", "dtype", "tail", "through", "direct"),
    [
        *((product, transposed, "fp32", FP32_TIE, 1.0, 1 + FP32_TIE)
          for product in (*UNIFIED, *SPLIT) for transposed in (False, True)),
        *((product, transposed, "bf16", BF16_TIE, 1.0, 1 + 2.0**-7)
          for product in SPLIT for transposed in (False, True)),
    ],
)  # fmt: skip
def test_use_fp16_rounds_dx_to_fp16_before_its_own_type_but_not_dw(product, transposed, dtype, tail, through, direct):
    # dx sums two output channels, dw two batch items: 1 * 1 + 1 * tail each; bf16 holds 2^-8 + 2^-12 as well
    g = pair((2, 2, 1, 2), tail, dtype)
    g[1] = g[0, 1]  # batch item 1: only the small value
    x = filled((2, 1, 1, 2), 1, dtype)
    w = filled((1, 2, 1, 1) if transposed else (2, 1, 1, 1), 1, dtype)
    x[:, :, :, 1] = 0
    keywords = PLAIN | {"transposed": transposed, "cube_math_type": 2, "product": product}
    result = ops.convolution_backward(g, x, w, **keywords)
    assert result.compute_dtype == "fp16"
    np.testing.assert_array_equal(result.grad_input[0].astype(np.float64), np.full((1, 1, 2), through))
    # dw of output channel 0: 1 from item 0 and the tail from item 1
    np.testing.assert_array_equal(result.grad_weight.reshape(2)[0].astype(np.float64), direct)


@pytest.mark.parametrize("product", SPLIT)
@pytest.mark.parametrize(
    ("dtype", "tail", "direct"), [("fp32", FP32_TIE, 1 + FP32_TIE), ("bf16", BF16_TIE, 1 + 2.0**-7)]
)
def test_matrix_products_round_once_to_the_type_of_the_output(product, dtype, tail, direct):
    g = pair((2, 2, 1, 1), tail, dtype)
    g[1] = g[0, 1, 0, 0]
    x, w = filled((2, 1, 1, 3), 1, dtype), filled((2, 1, 1, 3), 1, dtype)
    result = ops.convolution_backward(g, x, w, **PLAIN, cube_math_type=2, product=product)
    assert result.plan.route.weight_gradient_matmul
    np.testing.assert_array_equal(result.grad_input[0].astype(np.float64), np.full((1, 1, 3), direct))
    np.testing.assert_array_equal(result.grad_weight[0].astype(np.float64), np.full((1, 1, 3), direct))


@pytest.mark.parametrize(
    ("dtype", "groups", "quirks", "expected"),
    [
        # 4 + 2^-9 is a tie in FP16, whose unit at 4 is 2^-8, and less than one in BF16
        ("fp16", 2, {"Q1"}, 4.0),
        ("fp16", 2, set(), 4.0 + 2.0**-9),
        ("fp16", 1, {"Q1"}, 4.0 + 2.0**-9),
        ("bf16", 2, {"Q1"}, 4.0),
        ("bf16", 2, set(), 4.0 + 2.0**-9),
        ("bf16", 1, {"Q1"}, 4.0 + 2.0**-9),
        ("fp32", 2, {"Q1"}, 4.0 + 2.0**-9),
    ],
)
def test_quirk_q1_concerns_grouped_calls_of_both_16_bit_types_only(dtype, groups, quirks, expected):
    call = make_call(
        x=(1, 2, 1, 5), w=(2, 2 // groups, 1, 1), y=(1, 2, 1, 5), dtype=dtype, grad_weight_dtype="fp32", groups=groups,
        cube_math_type=0, quirks=frozenset(quirks),
    )  # fmt: skip
    names = ("grad_output", "input", "weight")
    storages = {name: filled(getattr(call, name).shape, 1, dtype) for name in names}
    storages["grad_output"][..., 4] = 2.0**-9
    outputs = {name: filled(getattr(call, name).shape, -9, getattr(call, name).dtype) for name in OUTPUTS}
    positional, keywords = arguments_of(call, storages | outputs)
    with use_product(call.product):
        status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*positional, **keywords)
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert aclnn.aclnnConvolutionBackward(np.empty(size, np.uint8), size, executor, None) == 0
    np.testing.assert_array_equal(outputs["grad_weight"], np.full((2, 2 // groups, 1, 1), expected, np.float32))


@pytest.mark.parametrize("product", ["910", "910b"])
def test_model_of_the_additions_is_the_one_asked_for(product):
    # dw sums 1 and 15 times 2^-24: together 1 + 7.5 * 2^-23, which goes to 8 * 2^-23; one by one each is a tie, to 1
    g, x, w = filled((1, 1, 1, 16), 2.0**-12, "fp32"), filled((1, 1, 1, 16), 2.0**-12, "fp32"), np.ones((1, 1, 1, 1))
    g[..., 0] = x[..., 0] = 1
    keywords = PLAIN | {"cube_math_type": 2, "product": product}
    for accumulation, expected in ((None, 1 + 2.0**-20), ("exact16-rne", 1 + 2.0**-20), ("serial", 1.0)):
        result = ops.convolution_backward(g, x, w.astype(np.float32), accumulation=accumulation, **keywords)
        assert result.grad_weight.item() == expected
        assert result.accumulation.name == (accumulation or "exact16-rne")


# ---- overflow --------------------------------------------------------------------------------------------------------

MODES = [("310p", None, True), ("910", None, True), ("910b", None, False), ("910_93", None, False),
         ("910b", "saturate", True), ("910_93", "saturate", True), ("910b", "inf_nan", False)]  # fmt: skip
HUGE = 2.0**100
LARGEST = 65504.0


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("product", "overflow", "clamps"), MODES)
def test_cast_of_operands_clamps_or_keeps_infinity_as_the_mode_says(product, overflow, clamps, transposed):
    # w is beyond FP16: 65504 or Inf in the Cube, and dx = 2^-4 * w; dw, of g and x, stays 2^-4
    g, x, w = (filled((1, 1, 1, 1), value, "fp32") for value in (2.0**-4, 1, HUGE))
    result = ops.convolution_backward(
        g, x, w, **PLAIN, cube_math_type=2, transposed=transposed, product=product, overflow=overflow
    )
    assert result.grad_input.item() == (LARGEST / 16 if clamps else np.inf)
    assert result.grad_weight.item() == 2.0**-4
    # the bias gradient never goes through FP16 here
    assert (
        ops.convolution_backward(
            w, x, g, **PLAIN, cube_math_type=2, transposed=transposed, product=product, overflow=overflow
        ).grad_bias.item()
        == HUGE
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("product", "overflow", "clamps"), MODES)
def test_not_a_number_becomes_zero_where_results_are_clamped(product, overflow, clamps, transposed):
    g, x, w = (filled((1, 1, 1, 1), value, "fp32") for value in (np.nan, 1, 1))
    result = ops.convolution_backward(
        g, x, w, **PLAIN, cube_math_type=2, transposed=transposed, product=product, overflow=overflow
    )
    for gradient in (result.grad_input, result.grad_weight):
        assert gradient.item() == 0 if clamps else np.isnan(gradient.item())
    assert np.isnan(result.grad_bias.item())  # float32 on the vector unit: always IEEE


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("product", "overflow", "clamps"), MODES)
def test_results_beyond_fp16_clamp_or_become_infinite_as_the_mode_says(product, overflow, clamps, sign, transposed):
    # dx = 2 * 300 * 300; dw = 2 * 300 * 300 in float32, then cast; db = 300 * 1000 summed in float32, rounded once
    g = filled((1, 2, 1, 1000), 0, "fp16")
    g[0, :, 0, :2] = 300 * sign
    w = filled((1, 2, 1, 1) if transposed else (2, 1, 1, 1), 300, "fp16")
    x = filled((1, 1, 1, 1000), 300, "fp16")
    beyond = sign * (LARGEST if clamps else np.inf)
    keywords = PLAIN | {"transposed": transposed, "product": product, "overflow": overflow}
    result = ops.convolution_backward(g, x, w, **keywords)
    np.testing.assert_array_equal(result.grad_input[0, 0, 0, :2], np.full(2, beyond, np.float16))
    assert not result.grad_input[0, 0, 0, 2:].any()
    np.testing.assert_array_equal(result.grad_weight.reshape(2), np.full(2, beyond, np.float16))
    np.testing.assert_array_equal(result.grad_bias, np.full(2, 600 * sign, np.float16))
    g[:] = 300 * sign
    result = ops.convolution_backward(g, x, w, **keywords, output_mask=(False, False, True))
    np.testing.assert_array_equal(result.grad_bias, np.full(2, beyond, np.float16))


@pytest.mark.parametrize(("product", "overflow", "clamps"), MODES)
def test_infinite_fp16_tensors_give_what_the_mode_makes_of_infinity_and_of_zero_times_it(product, overflow, clamps):
    # pixel 0 of g is infinite; dx of pixel 0 is Inf * w, of pixel 1 (its zero, its w) 0; db Inf; dw Inf * x + 0 * x
    g, x, w = filled((1, 1, 1, 2), 0, "fp16"), filled((1, 1, 1, 2), 1, "fp16"), filled((1, 1, 1, 1), 2, "fp16")
    g[..., 0] = np.inf
    result = ops.convolution_backward(g, x, w, **PLAIN, product=product, overflow=overflow)
    infinite = LARGEST if clamps else np.inf
    np.testing.assert_array_equal(result.grad_bias, np.array([infinite], np.float16))
    np.testing.assert_array_equal(result.grad_weight.reshape(1), np.array([infinite], np.float16))
    np.testing.assert_array_equal(result.grad_input.reshape(2), np.array([infinite, 0], np.float16))


@pytest.mark.parametrize(("overflow", "clamps"), [(None, False), ("saturate", True)])
def test_matrix_products_follow_the_overflow_mode(overflow, clamps):
    g, x, w = filled((1, 2, 1, 1), 300, "fp16"), filled((1, 1, 1, 3), 300, "fp16"), filled((2, 1, 1, 3), 300, "fp16")
    result = ops.convolution_backward(g, x, w, **PLAIN, product="910b", overflow=overflow)
    assert result.plan.route.weight_gradient_matmul
    beyond = LARGEST if clamps else np.inf
    np.testing.assert_array_equal(result.grad_input, np.full(x.shape, beyond, np.float16))
    np.testing.assert_array_equal(result.grad_weight, np.full(w.shape, beyond, np.float16))


@pytest.mark.parametrize("product", UNIFIED)
def test_products_that_always_clamp_refuse_the_other_mode(product):
    one = filled((1, 1, 1, 1), 1, "fp16")
    with pytest.raises(ProductError, match=r"^overflow must be None or one of saturate, not 'inf_nan' \("):
        ops.convolution_backward(one, one, one, **PLAIN, product=product, overflow="inf_nan")
