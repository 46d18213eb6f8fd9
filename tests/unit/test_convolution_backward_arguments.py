"""Arguments of `ops.convolution_backward` that are none of the operator's: flags, missing tensors, the product."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ops
from npu_sim import use_product
from npu_sim.errors import OperatorError, ShapeError


def call(**changes):
    tensor = np.ones((1, 4, 3, 3), np.float16)
    arguments = {
        "grad_output": tensor, "input": tensor, "weight": np.ones((4, 4, 1, 1), np.float16),
        "stride": 1, "padding": 0, "dilation": 1,
    }  # fmt: skip
    return ops.convolution_backward(**arguments | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_mask": "abc"}, "output_mask must be three bools, not 'abc'"),
        ({"output_mask": (1, 0, 2)}, "output_mask entry must be a bool, not 2"),
        ({"output_mask": (True, None, True)}, "output_mask entry must be a bool, not None"),
        ({"output_mask": (True, 0.0, True)}, "output_mask entry must be a bool, not 0.0"),
        ({"output_mask": None}, "output_mask must be three bools, not None"),
        ({"transposed": "no"}, "transposed must be a bool, not 'no'"),
        ({"transposed": None}, "transposed must be a bool, not None"),
        ({"grad_output": None}, "grad_output must be an array, not None"),
        ({"input": None}, "input must be an array, not None"),
        ({"weight": None}, "weight must be an array, not None"),
        ({"deterministic": "yes"}, "deterministic must be a bool, not 'yes'"),
        ({"core_order": "random"}, "core_order must be an int, not 'random'"),
        ({"core_order": -1}, "core_order must be None or a seed of 0 or more, not -1"),
    ],
)
def test_argument_of_the_wrong_kind_is_refused_by_name(changes, message):
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$") as caught:
        call(**changes)
    assert caught.value.status == 161002


@pytest.mark.parametrize("mask", [(True, False, True), (1, 0, 1), np.array([True, False, True])])
def test_flags_of_any_kind_choose_the_gradients(mask):
    result = call(output_mask=mask, transposed=np.bool_(False))
    assert [result.grad_input is None, result.grad_weight is None, result.grad_bias is None] == [False, True, False]


def test_product_that_is_not_given_is_the_current_one():
    assert call().product.name == "Ascend910B2"
    with use_product("310p"):
        assert call().product.name == "Ascend310P3"
        assert call(product="910").product.name == "Ascend910A"


def test_gradients_of_other_types_than_the_page_names_are_refused_where_that_is_asked_for():
    mixed = {"input": np.ones((1, 4, 3, 3), np.float32)}
    assert call(**mixed).grad_weight.dtype == np.float16
    with pytest.raises(OperatorError, match=r"^gradWeight dtype must be FP32, .* not FP16 .*grad-weight-dtype-strict"):
        call(**mixed, grad_output=np.ones((1, 4, 3, 3), np.float32), strict_output_dtype=True)
    assert call(strict_output_dtype=True).grad_weight.dtype == np.float16
