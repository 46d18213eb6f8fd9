"""aclnnConvolution in two phases: views, memory, messages, and the same bits as the Python call."""

from __future__ import annotations

import numpy as np
import pytest

import ops
from npu_sim import use_product
from npu_sim.report.explain import recording
from ops import aclnn
from tests.cases.convolution_backward import NUMPY
from tests.cases.convolution_forward import operands, random_forward_call
from tests.oracles.series import SERIES

DATA_TYPE = {"fp32": aclnn.ACL_FLOAT, "fp16": aclnn.ACL_FLOAT16, "bf16": aclnn.ACL_BF16}
FORMAT = {1: aclnn.ACL_FORMAT_ND, 3: aclnn.ACL_FORMAT_NCL, 4: aclnn.ACL_FORMAT_NCHW, 5: aclnn.ACL_FORMAT_NCDHW}


def tensor(shape, dtype, data=None, strides=None, offset=0, storage=None):
    made = aclnn.aclCreateTensor(shape, DATA_TYPE[dtype], strides, offset, FORMAT[len(shape)], storage, data)
    assert made is not None, aclnn.aclGetRecentErrMsg()
    return made


def phase_one(call, x, w, b, y, **keywords):
    a, array = call.attributes, aclnn.aclCreateIntArray
    return aclnn.aclnnConvolutionGetWorkspaceSize(
        x, w, b, array(a.stride), array(call.padding), array(a.dilation), a.transposed, array(call.output_padding),
        a.groups, y, call.cube_math_type, **keywords,
    )  # fmt: skip


@pytest.mark.parametrize("series", SERIES)
def test_strided_output_gets_the_bits_of_the_python_call_and_nothing_else_changes(series):
    rng = np.random.default_rng([SERIES.index(series), 31])
    for _ in range(8):
        call = random_forward_call(rng, series)
        x, w, b = operands(call, integers=False)
        given = [value for value in (x, w, b) if value is not None]
        expected = ops.convolution(*given, **call.keywords).output
        # every second element of a storage, its last axes exchanged
        shape, order = call.output_shape, (*range(expected.ndim - 2), expected.ndim - 1, expected.ndim - 2)
        turned = [shape[axis] for axis in order]
        steps = [2 * int(np.prod(turned[axis + 1 :])) for axis in range(len(turned))]
        strides = tuple(steps[order.index(axis)] for axis in range(len(shape)))
        storage = rng.standard_normal(2 * expected.size + 3).astype(NUMPY[call.output_dtype])
        before = storage.copy()
        with use_product(series):
            own = [
                tensor(value.shape, kind, value.reshape(-1)) for value, kind in zip(given, call.dtypes, strict=False)
            ]
            y = tensor(shape, call.output_dtype, storage, strides, 3, (storage.size,))
            status, size, executor = phase_one(call, own[0], own[1], own[2] if b is not None else None, y)
            assert status == 0, aclnn.aclGetRecentErrMsg()
            assert aclnn.aclnnConvolution(np.empty(size, np.uint8) if size else None, size, executor, None) == 0
        view = storage[3::2].reshape(turned).transpose(order)
        assert view.tobytes() == np.ascontiguousarray(expected).tobytes(), call
        before[3::2] = storage[3::2]
        assert storage.tobytes() == before.tobytes()


def sample(bias=None, output=(2, 1, 2, 2), **changes):
    """The vendor's sample: a 1 x 1 kernel over two channels of ones."""
    array = aclnn.aclCreateIntArray
    result = np.zeros(8, np.float32)
    arguments = {
        "input": tensor((2, 2, 2, 2), "fp32", np.ones(16, np.float32)),
        "weight": tensor((1, 2, 1, 1), "fp32", np.ones(2, np.float32)), "bias": bias, "stride": array([1, 1]),
        "padding": array([0, 0]), "dilation": array([1, 1]), "transposed": False, "outputPadding": array([0, 0]),
        "groups": 1, "output": tensor(output, "fp32", result), "cubeMathType": 1,
    } | changes  # fmt: skip
    return result, aclnn.aclnnConvolutionGetWorkspaceSize(*arguments.values())


@pytest.mark.parametrize("series", SERIES)
def test_the_vendors_sample_gives_two_everywhere(series):
    with use_product(series), recording() as recorder:
        result, (status, size, executor) = sample()
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert aclnn.aclnnConvolution(np.empty(size, np.uint8), size, executor, None) == 0
    assert (result == 2).all()
    (explained,) = recorder.explanations()
    assert explained.title == "aclnnConvolution"
    assert explained.facts["call"]["bias"] == "none"


def test_refusals_come_back_as_statuses_with_their_reason():
    with use_product("910b"):
        assert sample(weight=None)[1] == (161001, 0, None)
        assert aclnn.aclGetRecentErrMsg().startswith("161001 ACLNN_ERR_PARAM_NULLPTR: aclnnConvolutionGetWorkspaceSize")
        assert sample(output=(2, 1, 2, 1))[1] == (161002, 0, None)
        assert aclnn.aclGetRecentErrMsg().endswith(
            "output shape must be [2, 1, 2, 2], as the other arguments give, not [2, 1, 2, 1] (2D, "
            "Ascend910B2, Atlas A2 training / 800I A2 inference; rule 6 output-shape)"
        )
        assert sample(input=3)[1][0] == 161002
        # an empty batch succeeds and computes nothing
        empty = tensor((0, 2, 2, 2), "fp32", np.ones(0, np.float32))
        status, size, executor = sample(input=empty, output=(0, 1, 2, 2))[1]
        assert (status, size) == (0, 0)
        assert aclnn.aclnnConvolution(None, 0, executor, None) == 0
