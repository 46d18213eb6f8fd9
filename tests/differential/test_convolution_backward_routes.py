"""Routes of a call that random shapes seldom take: matrix products, empty tensors, views, quirks; and what it says."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import npu_sim
import ops
from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import OperatorError
from npu_sim.memory.gm import free_spare
from npu_sim.report.explain import recording
from ops import aclnn
from ops.conv_backward.explain import explain_call
from tests.oracles.convolution import Attributes, gradients
from tests.oracles.series import SERIES, SPLIT

NUMPY = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
ACL = {
    np.dtype(np.float32): aclnn.aclDataType.ACL_FLOAT,
    np.dtype(np.float16): aclnn.aclDataType.ACL_FLOAT16,
    np.dtype(ml_dtypes.bfloat16): aclnn.aclDataType.ACL_BF16,
}


def integers(rng, shape, dtype="fp16", low=-2, high=3):
    return rng.integers(low, high, shape).astype(np.float32).astype(NUMPY[dtype])


def steps_of(result):
    return [planned.step.name for planned in result.plan.calls.steps]


WHOLE = {"kernel": (5, 3), "x": (4, 7, 5, 3), "g": (4, 9, 1, 1)}
WHOLE_3D = {"kernel": (2, 5, 3), "x": (3, 6, 2, 5, 3), "g": (3, 18, 1, 1, 1)}
BLOCKS = {"kernel": (3, 2), "x": (2, 5, 9, 8), "g": (2, 6, 3, 4)}
BLOCKS_3D = {"kernel": (2, 1, 3), "x": (2, 5, 4, 3, 6), "g": (2, 17, 2, 3, 2)}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize(
    ("case", "mask", "expected"),
    [
        (WHOLE, (True, True, False), ["MatMulV2", "MatMulV2"]),
        (WHOLE, (False, True, False), ["MatMulV2"]),
        (WHOLE_3D, (True, True, False), ["MatMulV2", "MatMulV2"]),
        (BLOCKS, (True, False, False), ["MatMulV2", "Transpose"]),
        (BLOCKS_3D, (True, False, False), ["MatMulV2", "Transpose"]),
    ],
    ids=["whole", "whole-dw", "whole-3d", "blocks", "blocks-3d"],
)
def test_matrix_products_stand_for_windows_that_do_not_overlap(case, mask, expected, dtype):
    rng = np.random.default_rng(len(case["x"]))
    x, g = integers(rng, case["x"], dtype), integers(rng, case["g"], dtype)
    w = integers(rng, (case["g"][1], case["x"][1], *case["kernel"]), dtype)
    spatial = len(case["kernel"])
    stride = case["kernel"]
    result = ops.convolution_backward(
        g, x, w, stride=stride, padding=0, dilation=1, output_mask=mask, product="910b", cube_math_type=0
    )
    assert steps_of(result) == expected
    assert run_hazards(result.plan.calls.launches, result.product) == []
    attributes = Attributes(stride=stride, pads=((0, 0),) * spatial, dilation=(1,) * spatial)
    exact = gradients(*(array.astype(np.float64) for array in (g, x, w)), attributes)
    for got, want, wanted in zip((result.grad_input, result.grad_weight), exact[:2], mask[:2], strict=True):
        if wanted:
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(NUMPY[dtype]).astype(np.float64))


def test_depthwise_3d_convolutions_of_bfloat16_have_float32_weight_gradients():
    # products with bfloat16 inputs in FP16: a weight of FP32 makes the common type FP32
    rng = np.random.default_rng(13)
    x, g, w = integers(rng, (2, 5, 4, 6, 7), "bf16"), integers(rng, (2, 5, 3, 4, 6), "bf16"), (5, 1, 2, 3, 2)
    result = ops.convolution_backward(
        g, x, integers(rng, w, "fp32"), stride=1, padding=0, dilation=1, groups=5, output_mask=(False, True, False),
        product="910b", cube_math_type=2, strict_output_dtype=True,
    )  # fmt: skip
    assert result.grad_weight.dtype == np.float32
    attributes = Attributes(stride=(1,) * 3, pads=((0, 0),) * 3, dilation=(1,) * 3, groups=5)
    exact = gradients(*(array.astype(np.float64) for array in (g, x, np.zeros(w))), attributes)[1]
    np.testing.assert_array_equal(result.grad_weight.astype(np.float64), exact)


@pytest.mark.parametrize(
    ("mask", "product", "matmul"),
    [
        ((True, True, False), "910b", False),  # 2D blocks: only if the weight gradient is not wanted
        ((True, False, False), "910_93", True),
        ((True, False, False), "910", False),
        ((True, False, False), "310p", False),
    ],
)
def test_blocks_become_a_matrix_product_only_where_the_library_does(mask, product, matmul):
    rng = np.random.default_rng(1)
    x, g = integers(rng, BLOCKS["x"]), integers(rng, BLOCKS["g"])
    w = integers(rng, (6, 5, 3, 2))
    result = ops.convolution_backward(g, x, w, stride=(3, 2), padding=0, dilation=1, output_mask=mask, product=product)
    assert ("MatMulV2" in steps_of(result)) == matmul
    exact = gradients(
        *(array.astype(np.float64) for array in (g, x, w)),
        Attributes(stride=(3, 2), pads=((0, 0), (0, 0)), dilation=(1, 1)),
    )
    np.testing.assert_array_equal(result.grad_input.astype(np.float64), exact[0])


def test_matrix_product_multiplies_bf16_under_use_fp16_only_in_the_library_profile():
    rng = np.random.default_rng(2)
    x, g, w = (integers(rng, shape, "bf16") for shape in ((2, 3, 2, 2), (2, 4, 1, 1), (4, 3, 2, 2)))
    w[0, 0, 0, 0] = 2.0**20  # beyond FP16
    g[:] = 1
    keywords = {"stride": 1, "padding": 0, "dilation": 1, "cube_math_type": 2, "product": "910b"}
    page = ops.convolution_backward(g, x, w, **keywords)
    library = ops.convolution_backward(g, x, w, profile="library", **keywords)
    assert np.isinf(page.grad_input[:, 0, 0, 0].astype(np.float32)).all()
    assert np.isfinite(library.grad_input.astype(np.float32)).all()
    assert page.compute_dtype == "fp16"


@pytest.mark.parametrize(("product", "limit"), [("910b", np.inf), ("910", 65504.0), ("310p", 65504.0)])
def test_quirk_q1_rounds_a_grouped_weight_gradient_on_the_way(product, limit):
    g, x, w = np.full((1, 4, 4, 4), 250, np.float32), np.full((1, 4, 4, 4), 250, np.float32), np.ones((4, 2, 1, 1))
    keywords = {"stride": 1, "padding": 0, "dilation": 1, "groups": 2, "cube_math_type": 2, "product": product}
    plain = ops.convolution_backward(g, x, w.astype(np.float32), **keywords)
    faulty = ops.convolution_backward(g, x, w.astype(np.float32), quirks=("Q1",), **keywords)
    np.testing.assert_array_equal(plain.grad_weight, np.full((4, 2, 1, 1), 1_000_000, np.float32))
    np.testing.assert_array_equal(faulty.grad_weight, np.full((4, 2, 1, 1), limit, np.float32))
    np.testing.assert_array_equal(plain.grad_input, faulty.grad_input)
    for quirks in (True, "Q1"):
        again = ops.convolution_backward(g, x, w.astype(np.float32), quirks=quirks, **keywords)
        np.testing.assert_array_equal(again.grad_weight, faulty.grad_weight)


@pytest.mark.parametrize("product", SPLIT)
def test_empty_batch_gives_zeros_and_asks_for_no_workspace(product):
    g, x, w = np.zeros((0, 4, 5, 5), np.float16), np.zeros((0, 3, 5, 5), np.float16), np.ones((4, 3, 3, 3), np.float16)
    result = ops.convolution_backward(g, x, w, stride=1, padding=1, dilation=1, product=product)
    assert result.grad_input.shape == (0, 3, 5, 5)
    assert result.grad_weight.shape == (4, 3, 3, 3)
    assert not result.grad_weight.any()
    assert not result.grad_bias.any()
    assert result.workspace_bytes == 0
    assert steps_of(result) == ["MemSet", "MemSet"]


def test_fp16_sum_is_rounded_before_it_becomes_a_float32_bias_gradient():
    with npu_sim.use_product("910b"):
        g = np.full(4096 + 1, 1, np.float16).reshape(1, 1, 1, 4097)
        x, w, bias = np.zeros((1, 1, 1, 4097), np.float16), np.zeros((1, 1, 1, 1), np.float16), np.zeros(1, np.float32)
        status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(
            tensor(g), tensor(x), tensor(w), *arrays([1], [1, 1], [0, 0], [1, 1]), False, *arrays([0, 0]), 1,
            aclnn.aclCreateBoolArray([False, False, True]), 0, None, None, tensor(bias, "ND"),
        )  # fmt: skip
        assert status == 0
        workspace = np.zeros(size, np.uint8) if size else None
        assert aclnn.aclnnConvolutionBackward(workspace, size, executor, None) == 0
    assert bias[0] == 4096


def arrays(*values):
    return [aclnn.aclCreateIntArray(list(value)) for value in values]


def tensor(array, storage_format="NCHW", view=None):
    """Return an aclTensor over the flat storage of ``array``; ``view`` is (shape, strides, offset)."""
    flat = array.reshape(-1)
    shape, strides, offset = view or (array.shape, None, 0)
    made = aclnn.aclCreateTensor(
        shape, ACL[array.dtype], strides, offset, aclnn.aclFormat[f"ACL_FORMAT_{storage_format}"], (flat.size,), flat
    )
    assert made is not None, aclnn.aclGetRecentErrMsg()
    return made


@pytest.mark.parametrize("product", SERIES)
def test_strided_and_offset_tensors_in_and_out_hold_the_same_gradients(product):
    rng = np.random.default_rng(8)
    shapes = {"g": (2, 6, 5, 7), "x": (2, 4, 5, 7), "w": (6, 4, 3, 3)}
    plain = {name: integers(rng, shape) for name, shape in shapes.items()}
    reference = ops.convolution_backward(
        plain["g"], plain["x"], plain["w"], stride=1, padding=1, dilation=1, product=product
    )

    # channels last, with a gap of three elements behind each pixel and eleven before the first
    def strided(shape):
        n, c, h, w = shape
        pixel = c + 3
        return (h * w * pixel, 1, w * pixel, pixel), 11, 11 + n * h * w * pixel

    storages, views = {}, {}
    for name, shape in {**shapes, "dx": shapes["x"], "dw": shapes["w"]}.items():
        strides, offset, size = strided(shape)
        storages[name] = np.full(size, -7, np.float16)
        views[name] = np.lib.stride_tricks.as_strided(
            storages[name][offset:], shape, tuple(2 * stride for stride in strides)
        )
        if name in plain:
            views[name][...] = plain[name]
        storages[f"{name} view"] = (shape, strides, offset)
    before = {name: storages[name].copy() for name in ("g", "x", "w")}
    bias = np.full(6, -7, np.float16)
    with npu_sim.use_product(product):
        tensors = {name: tensor(storages[name], view=storages[f"{name} view"]) for name in ("g", "x", "w", "dx", "dw")}
        status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(
            tensors["g"], tensors["x"], tensors["w"], *arrays([6], [1, 1], [1, 1], [1, 1]), False, *arrays([0, 0]), 1,
            aclnn.aclCreateBoolArray([True, True, True]), 0, tensors["dx"], tensors["dw"], tensor(bias, "ND"),
        )  # fmt: skip
        assert status == 0, aclnn.aclGetRecentErrMsg()
        # phase 1 computes nothing
        assert (storages["dx"] == -7).all()
        assert aclnn.aclnnConvolutionBackward(np.zeros(size, np.uint8), size, executor, None) == 0
    np.testing.assert_array_equal(views["dx"], reference.grad_input)
    np.testing.assert_array_equal(views["dw"], reference.grad_weight)
    np.testing.assert_array_equal(bias, reference.grad_bias)
    for name, copy in before.items():
        np.testing.assert_array_equal(storages[name], copy)
    for name in ("dx", "dw"):
        views[name][...] = -7
        assert (storages[name] == -7).all()


def test_copies_into_strided_outputs_are_the_last_steps_in_the_order_of_the_api():
    with npu_sim.use_product("910b"), recording() as recorder:
        storage = {name: np.zeros(size, np.float16) for name, size in {"g": 72, "x": 72, "w": 4}.items()}
        out = {name: np.zeros(2 * size, np.float16) for name, size in {"dx": 72, "dw": 4, "db": 2}.items()}
        shapes = {"g": (1, 2, 6, 6), "x": (1, 2, 6, 6), "w": (2, 2, 1, 1), "dx": (1, 2, 6, 6), "dw": (2, 2, 1, 1)}
        views = {
            name: (shapes[name], strides, 0) for name, strides in {"dx": (144, 72, 12, 2), "dw": (4, 2, 2, 2)}.items()
        }
        status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(
            *(tensor(storage[name].reshape(shapes[name])) for name in "gxw"),
            *arrays([2], [1, 1], [0, 0], [1, 1]), False, *arrays([0, 0]), 1,
            aclnn.aclCreateBoolArray([True, True, True]), 0, tensor(out["dx"], view=views["dx"]),
            tensor(out["dw"], view=views["dw"]), tensor(out["db"], "ND", view=((2,), (2,), 0)),
        )  # fmt: skip
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert aclnn.aclnnConvolutionBackward(np.zeros(size, np.uint8), size, executor, None) == 0
    (explanation,) = recorder.explanations()
    names = [(row[1], row[3].split(" ")[0]) for row in explanation.tables[0].rows]
    assert names[-3:] == [("ViewCopy", name) for name in ("grad_input", "grad_weight", "grad_bias")]


def test_call_uses_less_than_three_times_its_tensors_and_64_mib():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 3, 112, 112)).astype(np.float32)
    g = rng.standard_normal((16, 64, 56, 56)).astype(np.float32)
    w = rng.standard_normal((64, 3, 7, 7)).astype(np.float32)
    size = x.nbytes * 2 + g.nbytes + w.nbytes * 2
    keywords = {"stride": 2, "padding": 3, "dilation": 1, "product": "910b", "threads": 1, "accumulation": "serial"}
    ops.convolution_backward(g[:1], x[:1], w, cube_math_type=2, **keywords)
    free_spare()
    tracemalloc.start()
    ops.convolution_backward(g, x, w, cube_math_type=2, **keywords)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 3 * size + (64 << 20)


def test_explanation_names_steps_formats_types_tilings_and_workspace():
    rng = np.random.default_rng(4)
    x, g, w = (integers(rng, shape, "fp32") for shape in ((2, 16, 8, 8), (2, 16, 8, 8), (16, 16, 3, 3)))
    with recording() as recorder:
        result = ops.convolution_backward(g, x, w, stride=1, padding=1, dilation=1, cube_math_type=2, product="910")
    (explanation,) = recorder.explanations()
    assert explanation.to_plain() == explain_call(result.plan).to_plain()
    names = [row[1] for row in explanation.tables[0].rows]
    assert names == [
        "ReduceSum", "Cast", "Cast", "TransData", "TransData", "Conv2DBackpropInput", "TransData", "Cast", "Cast",
        "TransData", "Conv2DBackpropFilter", "TransData",
    ]  # fmt: skip
    assert explanation.facts["launched as"] == {"step 10": "MemSet, Conv3DBackpropFilter"}
    kernel = explanation.tables[0].rows[5]
    assert kernel[2] == ("grad_output fp16 NC1HWC0 2x1x8x8x16; weight fp16 FRACTAL_Z 9x1x16x16")
    facts = explanation.facts["call"]
    assert facts["the Cube multiplies"] == "fp16"
    assert facts["workspace (bytes)"] == result.workspace_bytes > 0
    assert any(name.startswith("tiling of step 5") for name in explanation.facts)
    assert len(explanation.launches) == len(result.plan.calls.launches)


def test_workspace_of_the_published_example_is_the_sum_of_three_tensors():
    # fp16 on 910: TransData of g (4096 B) and w (4608 B), the image of dx (6400 B), each padded
    g, x = np.zeros((2, 16, 8, 8), np.float16), np.zeros((2, 16, 10, 10), np.float16)
    result = ops.convolution_backward(
        g, x, np.zeros((16, 16, 3, 3), np.float16), stride=1, padding=0, dilation=1, output_mask=(True, False, False),
        product="910",
    )  # fmt: skip
    assert result.workspace_bytes == 16384


@pytest.mark.parametrize(("product", "profile"), [("910", "page"), ("310p", "page"), ("910b", "library")])
@pytest.mark.parametrize("transposed", [False, True])
def test_dilation_of_a_kernel_of_one_tap_counts_as_one(product, profile, transposed):
    rng = np.random.default_rng(6)
    g, x, w = integers(rng, (2, 5, 6, 7)), integers(rng, (2, 5, 6, 7)), integers(rng, (5, 5, 1, 1))
    keywords = {"stride": 1, "padding": 0, "product": product, "profile": profile, "transposed": transposed}
    plain = ops.convolution_backward(g, x, w, dilation=1, **keywords)
    wide = ops.convolution_backward(g, x, w, dilation=1000, **keywords)
    for name in ("grad_input", "grad_weight", "grad_bias"):
        np.testing.assert_array_equal(getattr(wide, name), getattr(plain, name))


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"stride": 0}, 161002),
        ({"output_padding": 1}, 161002),
        ({"cube_math_type": 7}, 161002),
        ({"output_mask": (True, True)}, 161001),
        ({"groups": 2}, 161002),
        ({"padding": 256}, 561103),
    ],
    ids=lambda value: str(value),
)
def test_refused_call_raises_with_the_status_of_the_interface(change, status):
    x, w = np.zeros((1, 4, 8, 8), np.float16), np.zeros((4, 4, 3, 3), np.float16)
    keywords = {"stride": 1, "padding": 1, "dilation": 1, "product": "910b"} | change
    with pytest.raises(OperatorError) as caught:
        ops.convolution_backward(x, x, w, **keywords)
    assert caught.value.status == status
    assert "Ascend910B2" in str(caught.value)


@pytest.mark.parametrize("name", ["stride of depth above its kernel", "depth padding above the operator's limit"])
def test_library_profile_refuses_what_only_the_page_takes_and_only_for_the_input_gradient(name):
    rng = np.random.default_rng(7)
    if name.startswith("stride"):
        x, w, g = (integers(rng, shape) for shape in ((1, 2, 5, 2, 2), (3, 2, 1, 1, 1), (1, 3, 3, 2, 2)))
        stride, padding, rule = (2, 1, 1), 0, "strideD must be at most 1, not 2"
    else:
        x, w, g = (integers(rng, shape) for shape in ((1, 2, 1, 2, 2), (3, 2, 2, 1, 1), (1, 3, 256, 2, 2)))
        stride, padding, rule = (2, 1, 1), (256, 0, 0), "padFront must be at most 255, not 256"
    keywords = {"stride": stride, "padding": padding, "dilation": 1, "product": "910b"}
    pads = tuple((pad, pad) for pad in (padding or (0, 0, 0)))
    attributes = Attributes(stride=stride, pads=pads, dilation=(1, 1, 1))
    exact = gradients(*(array.astype(np.float64) for array in (g, x, w)), attributes)
    page = ops.convolution_backward(g, x, w, **keywords)
    np.testing.assert_array_equal(page.grad_input.astype(np.float64), exact[0])
    with pytest.raises(OperatorError, match=f"^{rule} ") as caught:
        ops.convolution_backward(g, x, w, **keywords, profile="library")
    assert caught.value.status == 561103
    weight_only = ops.convolution_backward(g, x, w, **keywords, profile="library", output_mask=(False, True, True))
    np.testing.assert_array_equal(weight_only.grad_weight.astype(np.float64), exact[1])
    # the other way round the input gradient is a forward convolution, which has none of these limits
    forward = ops.convolution_backward(
        x, g, w, **keywords, profile="library", transposed=True, output_padding=0, output_mask=(True, False, False)
    )
    exact = gradients(*(array.astype(np.float64) for array in (x, g, w)), replace(attributes, transposed=True))
    np.testing.assert_array_equal(forward.grad_input.astype(np.float64), exact[0])


SYSTEM = (16 << 20) + 512
"""Workspace of every Cube kernel of A2 and A3, with the spare bytes of a bucket."""


@pytest.mark.parametrize("product", SPLIT)
@pytest.mark.parametrize("transposed", [False, True])
def test_workspace_of_split_products_holds_the_kernels_own_once(product, transposed):
    small, large = np.zeros((2, 16, 8, 8), np.float16), np.zeros((2, 16, 10, 10), np.float16)
    g, x = (large, small) if transposed else (small, large)
    keywords = {"stride": 1, "padding": 0, "dilation": 1, "product": product, "transposed": transposed}
    weight = np.zeros((16, 16, 3, 3), np.float16)
    image = ops.convolution_backward(g, x, weight, output_mask=(True, False, False), **keywords)
    # the images of both maps and of the weight, padded, live together with what the kernel asks for
    assert image.workspace_bytes == 4608 + 5120 + 6656 + SYSTEM
    whole = {"stride": 1, "padding": 0, "dilation": 1, "product": product}
    g, x = np.zeros((2, 16, 1, 1), np.float16), np.zeros((2, 16, 3, 3), np.float16)
    both = ops.convolution_backward(g, x, weight, **whole)
    assert both.plan.route.weight_gradient_matmul
    # two matrix products one after the other share it; their operands and results are the caller's
    assert both.workspace_bytes == SYSTEM


def test_tensors_of_different_ranks_are_told_apart_by_rank():
    x, w = np.zeros((1, 4, 8), np.float16), np.zeros((4, 4, 3, 3), np.float16)
    with pytest.raises(OperatorError, match=r"rank") as caught:
        ops.convolution_backward(np.zeros((1, 4, 8, 8), np.float16), x, w, stride=1, padding=1, dilation=1)
    assert caught.value.status == 161002


def test_plan_prints_its_steps_and_no_more():
    x, w = np.zeros((1, 4, 8, 8), np.float16), np.zeros((4, 4, 3, 3), np.float16)
    result = ops.convolution_backward(x, x, w, stride=1, padding=1, dilation=1, output_mask=(False, False, True))
    assert str(result.plan) == repr(result.plan) == "ConvBackwardPlan(2D on Ascend910B2: ReduceSum; workspace 0 bytes)"
