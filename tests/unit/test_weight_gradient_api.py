"""The weight gradient as a call: results' types, and what is refused with which class, status and words."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from npu_sim.accumulation import SERIAL, Accumulation
from npu_sim.errors import DTypeError, OperatorError, ProductError, ShapeError
from npu_sim.products import get_product
from ops.conv3d_backprop_filter.api import weight_gradient

BF16 = ml_dtypes.bfloat16
X, DY, WEIGHT = np.ones((1, 4, 5, 5), np.float16), np.ones((1, 6, 4, 4), np.float16), (6, 4, 2, 2)
A2 = "Ascend910B2, Atlas A2 training / 800I A2 inference"
ATTRIBUTES = "input 5, kernel 3, stride 1, pads 0 and 0, dilation 1"
MEMBERS = "0 (KEEP_DTYPE), 1 (ALLOW_FP32_DOWN_PRECISION), 2 (USE_FP16), 3 (USE_HF32)"


def ones(*shape, dtype=np.float16):
    return np.ones(shape, dtype)


def refused(error, status, message, x=X, dy=DY, weight_shape=WEIGHT, **arguments):
    with pytest.raises(error, match=f"^{re.escape(message)}$") as caught:
        weight_gradient(x, dy, weight_shape, **arguments)
    assert type(caught.value) is error
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("x", "dy", "weight_shape", "message"),
    [
        (X[0, 0], DY, WEIGHT, "x rank must be 3, 4 or 5, not 2 (shape (5, 5))"),
        (X, DY[0], WEIGHT, "dy rank must be 4, as of x, not 3 (2D convolution)"),
        (X, DY, (6, 4, 2), "weight_shape rank must be 4, as of x, not 3 (2D convolution)"),
        (X, DY, None, "weight_shape must be a sequence of ints, not None (2D convolution)"),
        (X, DY, (6, 4, 3, 2), f"ho must be 3, not 4 ({ATTRIBUTES}; 2D convolution)"),
        (X, DY, (5, 4, 2, 2), "weight_shape output channels must be 6, as of dy, not 5 (2D convolution)"),
        (X, DY, (6, 3, 2, 2), "weight_shape input channels must be x channels / groups = 4 / 1, "
         "not 3 (2D convolution)"),
        (ones(2, 4, 5, 5), DY, WEIGHT, "dy batch must be 2, as of x, not 1 (2D convolution)"),
        (ones(0, 4, 5, 5), ones(0, 6, 4, 4), WEIGHT, "n must be an int in [1, 2147483646], not 0 (2D convolution)"),
    ],
)  # fmt: skip
def test_weight_gradient_of_shapes_that_do_not_fit_is_refused(x, dy, weight_shape, message):
    refused(ShapeError, 161002, message, x, dy, weight_shape)


def test_weight_gradient_of_ragged_lists_is_refused():
    with pytest.raises(ShapeError, match=r"^x must be an array of equally long rows, not list: .*inhomogeneous.*$"):
        weight_gradient([[1.0], [2.0, 3.0]], DY, WEIGHT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stride": 0}, "stride entry must be an int in [1, 2147483646], not 0 (2D convolution)"),
        ({"stride": float("nan")}, "stride must be an int, not nan (2D convolution)"),
        ({"stride": (1, 1, 1)}, "stride must be an int or 2 ints, not (1, 1, 1) (2D convolution)"),
        ({"padding": -1}, "padding entry must be an int in [0, 2147483646], not -1 (2D convolution)"),
        ({"padding": (0, 0, 0)}, "padding must be an int, 2 ints or 4 ints, not (0, 0, 0) (2D convolution)"),
        ({"dilation": 0}, "dilation entry must be an int in [1, 2147483646], not 0 (2D convolution)"),
        ({"groups": 0}, "groups must be at least 1, not 0 (2D convolution)"),
        ({"groups": 1.5}, "groups must be an int, not 1.5 (2D convolution)"),
        ({"threads": 0}, "threads must be at least 1, not 0"),
        ({"threads": 1.5}, "threads must be an int, not 1.5"),
        ({"threads": "a"}, "threads must be an int, not 'a'"),
        ({"padding": np.array(0.5)}, "padding must be an int, not array(0.5) (2D convolution)"),
    ],
)
def test_weight_gradient_with_bad_attributes_is_refused(arguments, message):
    refused(ShapeError, 161002, message, **arguments)


@pytest.mark.parametrize(
    ("x", "dy", "message"),
    [
        (X.astype(np.float64), DY, "dtype of x must be float32, float16 or bfloat16, not float64"),
        (X, DY.astype(np.int32), "dtype of dy must be float32, float16 or bfloat16, not int32"),
        ("x", DY, "dtype of x must be float32, float16 or bfloat16, not <U1"),
    ],
)
def test_weight_gradient_of_other_types_is_refused(x, dy, message):
    refused(DTypeError, 161002, message, x, dy)


def test_weight_gradient_of_no_tensor_is_refused():
    refused(ShapeError, 161002, "x must be an array, not None", None, DY)


def test_weight_gradient_into_another_type_is_refused():
    refused(DTypeError, 161002, "weight_dtype must be one of fp32, fp16, bf16 or None, not 'int8'", weight_dtype="int8")
    refused(DTypeError, 161002, "weight_dtype must be one of fp32, fp16, bf16 or None, not ''", weight_dtype="")


def test_weight_gradient_on_an_unknown_product_is_refused():
    refused(
        ProductError,
        161002,
        "Product must be a known SoC version or series alias, not 'Ascend910B22' (near matches: "
        + ", ".join(_near("Ascend910B22"))
        + ")",
        product="Ascend910B22",
    )
    refused(ProductError, 161002, "Product must be a name or a Product, not 910", product=910)


def _near(name):
    from npu_sim.products.registry import near_matches

    matches = near_matches(name)
    assert "Ascend910B2" in matches
    return matches


@pytest.mark.parametrize(
    ("dtype", "arguments", "message"),
    [
        (np.float16, {"cube_math_type": 4}, f"cubeMathType must be one of {MEMBERS}, not 4"),
        (np.float16, {"cube_math_type": "TF32"}, f"cubeMathType must be one of {MEMBERS}, not 'TF32'"),
        (
            np.float32,
            {"product": "910"},
            "cubeMathType must be 1 (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16) for FP32 tensors, not 0 (KEEP_DTYPE) "
            "(Ascend910A, Atlas training series)",
        ),
        (
            np.float32,
            {"product": "310p", "cube_math_type": 3},
            "cubeMathType must be 1 (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16) for FP32 tensors, not 3 (USE_HF32) "
            "(Ascend310P3, Atlas inference series)",
        ),
        (BF16, {"product": "910"}, "Tensor dtype must be FP32 or FP16, not BF16 (Ascend910A, Atlas training series)"),
        (
            np.float16,
            {"accumulation": "fast"},
            "accumulation must be None, an npu_sim.Accumulation, 'serial' or a name like 'exact16-rne' or 'tree4-rz', "
            "not 'fast'",
        ),
    ],
)
def test_weight_gradient_in_an_unsupported_mode_is_refused(dtype, arguments, message):
    refused(OperatorError, 161002, message, X.astype(dtype), DY.astype(dtype), **arguments)


def test_weight_gradient_with_an_overflow_mode_the_product_lacks_is_refused():
    message = "overflow must be None or one of saturate, not 'inf_nan' (Ascend910A, Atlas training series)"
    refused(ProductError, 161002, message, overflow="inf_nan", product="910")
    refused(
        ProductError, 161002, f"overflow must be None or one of inf_nan, saturate, not 'wrap' ({A2})", overflow="wrap"
    )


@pytest.mark.parametrize("series", ["310p", "910"])
def test_weight_gradient_of_volumes_is_refused_where_there_is_no_3d(series):
    product = get_product(series)
    message = (
        "Rank of the tensors must be 3 or 4 (1D, 2D), not 5 (3D convolution is not supported on "
        f"{product.name}, {product.series_name})"
    )
    refused(OperatorError, 161002, message, ones(1, 4, 2, 5, 5), ones(1, 6, 2, 4, 4), (6, 4, 1, 2, 2), product=series)


def test_weight_gradient_of_grouped_volumes_from_16_bit_operands_into_fp32_is_refused():
    shapes = ones(1, 4, 2, 5, 5), ones(1, 6, 2, 4, 4), (6, 2, 1, 2, 2)
    message = f"groups must be 1 for a 3D float32 weight gradient computed in fp16, not 2 ({A2})"
    refused(OperatorError, 161002, message, *shapes, groups=2, weight_dtype="fp32")
    wide = [array.astype(np.float32) for array in shapes[:2]]
    refused(OperatorError, 161002, message, *wide, shapes[2], groups=2, cube_math_type=2)
    assert weight_gradient(*shapes, groups=2).grad_weight.shape == shapes[2]
    assert weight_gradient(*wide, shapes[2], groups=2).grad_weight.shape == shapes[2]


@pytest.mark.parametrize(
    ("x", "dy", "arguments", "message"),
    [
        (ones(1, 4, 70, 5), ones(1, 6, 2, 4), {"stride": (64, 1)}, "strideH must be at most 63, not 64"),
        (X, ones(1, 6, 516, 4), {"padding": (256, 256, 0, 0)}, "padUp must be at most 255, not 256"),
    ],
)
def test_weight_gradient_that_img2col_cannot_encode_is_refused(x, dy, arguments, message):
    for product in ("Ascend910B2", "Ascend910A", "Ascend310P3"):
        refused(OperatorError, 561103, f"{message} (weight gradient, {product})", x, dy, product=product, **arguments)


def test_weight_gradient_that_no_block_fits_is_refused():
    where = r"\(weight gradient, fp32, Ascend910B2\)"
    message = rf"^L1 use of the smallest block must be at most 524288 bytes, not [0-9]+ {where}$"
    with pytest.raises(OperatorError, match=message) as caught:
        weight_gradient(ones(1, 4, 5, 9000, dtype=np.float32), ones(1, 6, 4, 8999, dtype=np.float32), WEIGHT)
    assert caught.value.status == 561103


@pytest.mark.parametrize(
    ("x_type", "dy_type", "wish", "compute", "result"),
    [
        (np.float16, np.float16, 0, "fp16", np.float16),
        (BF16, BF16, 1, "bf16", BF16),
        (BF16, BF16, "USE_FP16", "fp16", BF16),
        (np.float16, BF16, 0, "fp32", np.float32),
        (np.float16, np.float32, "ALLOW_FP32_DOWN_PRECISION", "hf32", np.float32),
        (np.float32, np.float32, 2, "fp16", np.float32),
    ],
)
def test_weight_gradient_types_follow_the_promotion_of_both_tensors(x_type, dy_type, wish, compute, result):
    got = weight_gradient(X.astype(x_type), DY.astype(dy_type), WEIGHT, cube_math_type=wish)
    assert (got.compute_dtype, got.grad_weight.dtype) == (compute, np.dtype(result))
    assert np.all(got.grad_weight == 16)
    assert (got.product.name, got.k_depth) == ("Ascend910B2", 16)


def test_weight_gradient_takes_a_product_record_models_and_types():
    few = replace(get_product("910_93"), cube_core_count=3)
    got = weight_gradient(X, DY, WEIGHT, product=few, accumulation="serial", weight_dtype="bf16", threads=2)
    assert (got.product, got.accumulation, got.grad_weight.dtype) == (few, SERIAL, np.dtype(BF16))
    assert got.plan.launches[0].core_count <= 3
    assert got.tiling_label == got.plan.tiling.origin


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_weight_gradient_of_foreign_byte_order_equals_the_native_one(dtype):
    rng = np.random.default_rng(3)
    x, dy = rng.normal(size=X.shape).astype(dtype), rng.normal(size=DY.shape).astype(dtype)
    want = weight_gradient(x, dy, WEIGHT).grad_weight
    got = weight_gradient(x.astype(f">{dtype}"), dy.astype(f">{dtype}"), WEIGHT).grad_weight
    assert got.dtype == np.dtype(dtype)
    assert got.tobytes() == want.tobytes()


def test_weight_gradient_takes_the_name_of_a_model():
    got = weight_gradient(X, DY, WEIGHT, accumulation="exact16-rne")
    assert got.accumulation == Accumulation(16, "exact", "rne")


def test_weight_gradient_result_compares_by_identity_and_has_a_short_repr():
    one, two = weight_gradient(X, DY, WEIGHT), weight_gradient(X, DY, WEIGHT)
    assert one != two
    assert one == one
    assert len({one, two, one}) == 2
    assert re.fullmatch(
        r"WeightGradient\(grad_weight=float16\[6, 4, 2, 2\], compute_dtype='fp16', accumulation='[a-z0-9-]+', "
        r"product='Ascend910B2', tiling=.*\)",
        repr(one),
    )


def test_weight_gradient_module_compiles_nothing_when_imported():
    code = (
        "import sys, numba.core.dispatcher as d\n"
        "d.Dispatcher.compile = lambda *a: sys.exit('compiled')\n"
        "import ops.conv3d_backprop_filter.api\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
