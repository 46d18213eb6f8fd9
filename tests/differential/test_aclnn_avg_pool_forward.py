"""aclnnAvgPool2d in two phases: the vendor's sample, views, statuses, and the same bits as the Python call."""

from __future__ import annotations

import numpy as np
import pytest

import ops
from npu_sim import use_product
from npu_sim.report.explain import recording
from ops import aclnn
from tests.cases.avg_pool import DTYPES
from tests.cases.avg_pool_forward import fmap, random_forward_case
from tests.oracles.series import SERIES

DATA_TYPE = {"fp32": aclnn.ACL_FLOAT, "fp16": aclnn.ACL_FLOAT16, "bf16": aclnn.ACL_BF16}
FORMAT = {3: aclnn.ACL_FORMAT_NCL, 4: aclnn.ACL_FORMAT_NCHW}


def tensor(shape, dtype, data=None, strides=None, offset=0, storage=None):
    made = aclnn.aclCreateTensor(shape, DATA_TYPE[dtype], strides, offset, FORMAT[len(shape)], storage, data)
    assert made is not None, aclnn.aclGetRecentErrMsg()
    return made


def phase_one(x, pooling, mode, y):
    p, array = pooling, aclnn.aclCreateIntArray
    flags = (p.ceil_mode, p.count_include_pad, p.divisor_override, mode)
    return aclnn.aclnnAvgPool2dGetWorkspaceSize(x, array(p.kernel), array(p.stride), array(p.pad), *flags, y)


@pytest.mark.parametrize("series", SERIES)
def test_strided_output_gets_the_bits_of_the_python_call_and_nothing_else_changes(series):
    rng = np.random.default_rng([SERIES.index(series), 41])
    for seed in range(10):
        case = random_forward_case(rng, series)
        x = fmap(case, seed)
        expected = ops.avg_pool2d(x, **case.arguments).output
        shape = expected.shape
        strides = tuple(2 * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        storage = rng.standard_normal(2 * expected.size + 3).astype(DTYPES[case.dtype])
        before = storage.copy()
        with use_product(series):
            own, y = (
                tensor(x.shape, case.dtype, x.reshape(-1)),
                tensor(shape, case.dtype, storage, strides, 3, (storage.size,)),
            )
            status, size, executor = phase_one(own, case.pooling, case.cube_math_type, y)
            assert status == 0, aclnn.aclGetRecentErrMsg()
            assert aclnn.aclnnAvgPool2d(np.empty(size, np.uint8) if size else None, size, executor, None) == 0
        assert storage[3::2].tobytes() == expected.tobytes(), case
        before[3::2] = storage[3::2]
        assert storage.tobytes() == before.tobytes()


def sample(**changes):
    """The vendor's sample: the mean of planes of twos."""
    array, out = aclnn.aclCreateIntArray, np.zeros(16, np.float32)
    arguments = {
        "self": tensor((1, 16, 4, 4), "fp32", np.full(256, 2, np.float32)), "kernelSize": array([4, 4]),
        "strides": array([1, 1]), "paddings": array([0, 0]), "ceilMode": False, "countIncludePad": True,
        "divisorOverride": 0, "cubeMathType": 2, "out": tensor((1, 16, 1, 1), "fp32", out),
    } | changes  # fmt: skip
    return out, aclnn.aclnnAvgPool2dGetWorkspaceSize(*arguments.values())


@pytest.mark.parametrize("series", SERIES)
def test_the_vendors_sample_gives_two_everywhere(series):
    with use_product(series), recording() as recorder:
        out, (status, size, executor) = sample()
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert aclnn.aclnnAvgPool2d(np.empty(size, np.uint8), size, executor, None) == 0
    assert (out == 2).all()
    (explained,) = recorder.explanations()
    assert (explained.title, explained.facts["call"]["route"]) == ("aclnnAvgPool2d", "global")


def test_refusals_come_back_as_statuses_with_their_reason():
    with use_product("910b"):
        assert sample(strides=None)[1] == (161001, 0, None)
        assert "rule 1 strides-null" in aclnn.aclGetRecentErrMsg()
        assert sample(cubeMathType=1)[1] == (161002, 0, None)
        assert aclnn.aclGetRecentErrMsg().endswith(
            "cubeMathType must be 0 (KEEP_DTYPE) or 2 (USE_FP16) for FP32 tensors, not 1 (ALLOW_FP32_DOWN_PRECISION) "
            "(Ascend910B2, Atlas A2 training / 800I A2 inference; rule 8 cubeMathType-hf32)"
        )
        empty = {name: tensor(shape, "fp32", np.ones(0, np.float32)) for name, shape in
                 (("self", (0, 16, 4, 4)), ("out", (0, 16, 1, 1)))}  # fmt: skip
        status, size, executor = sample(**empty)[1]
        assert (status, size) == (0, 0)
        assert aclnn.aclnnAvgPool2d(None, 0, executor, None) == 0
