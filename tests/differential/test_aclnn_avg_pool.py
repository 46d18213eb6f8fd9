"""aclnnAvgPool2dBackward in two phases: views, memory, messages, and the same bits as the Python call."""

from __future__ import annotations

import importlib
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ops
from npu_sim import use_product
from npu_sim.report.explain import recording
from ops import aclnn
from ops.cli.main import main
from ops.common.options import run_options
from tests.cases.avg_pool import DTYPES, Case, random_case
from tests.oracles.pooling import Pooling
from tests.oracles.series import SERIES

DATA_TYPE = {"fp32": aclnn.ACL_FLOAT, "fp16": aclnn.ACL_FLOAT16, "bf16": aclnn.ACL_BF16}


def tensor(shape, dtype, data=None, strides=None, offset=0, storage=None):
    formats = {3: aclnn.ACL_FORMAT_NCL, 4: aclnn.ACL_FORMAT_NCHW}
    made = aclnn.aclCreateTensor(shape, DATA_TYPE[dtype], strides, offset, formats[len(shape)], storage, data)
    assert made is not None, aclnn.aclGetRecentErrMsg()
    return made


def phase_one(g, x, dx, case, **keywords):
    p = case.pooling
    array = aclnn.aclCreateIntArray
    return aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
        g, x, array(p.kernel), array(p.stride), array(p.pad), p.ceil_mode, p.count_include_pad, p.divisor_override,
        case.cube_math_type, dx, **keywords,
    )  # fmt: skip


def spread(shape, rng):
    """Strides, offset and storage length of a view whose axes lie in any order with gaps between elements."""
    order = rng.permutation(len(shape))
    strides, reach = [0] * len(shape), 1
    for axis in order.tolist():
        strides[axis] = reach * int(rng.integers(1, 3))
        reach = strides[axis] * shape[axis]
    offset = int(rng.integers(0, 5))
    return tuple(strides), offset, offset + reach + 3


def view_of(storage, shape, strides, offset):
    step = storage.itemsize
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, tuple(s * step for s in strides))


@pytest.mark.parametrize("series", SERIES)
def test_aclnn_avg_pool_strided_tensors_get_the_bits_of_the_python_call_and_nothing_else_changes(series):
    rng = np.random.default_rng([SERIES.index(series), 21])
    for _ in range(12):
        case = random_case(rng, series)
        dtype = DTYPES[case.dtype]
        shape, out = (*case.leading, *case.extents), (*case.leading, *case.out)
        g_at, dx_at = spread(out, rng), spread(shape, rng)
        g_storage = rng.standard_normal(g_at[2]).astype(dtype)
        dx_storage = rng.standard_normal(dx_at[2]).astype(dtype)
        grad = view_of(g_storage, out, *g_at[:2])
        before_g, before_dx = g_storage.copy(), dx_storage.copy()
        expected = ops.avg_pool2d_backward(grad, np.zeros(shape, dtype), **case.arguments, threads=1)
        with use_product(series):
            g = tensor(out, case.dtype, g_storage, *g_at[:2], (g_at[2],))
            x = tensor(shape, case.dtype, None)
            dx = tensor(shape, case.dtype, dx_storage, *dx_at[:2], (dx_at[2],))
            status, size, executor = phase_one(g, x, dx, case, threads=1)
            assert status == 0, aclnn.aclGetRecentErrMsg()
            workspace = np.empty(size, np.uint8) if size else None
            assert aclnn.aclnnAvgPool2dBackward(workspace, size, executor, None) == 0
        got = view_of(dx_storage, shape, *dx_at[:2])
        assert got.tobytes() == expected.grad_input.tobytes(), case
        got[...] = view_of(before_dx, shape, *dx_at[:2])
        assert dx_storage.tobytes() == before_dx.tobytes()
        assert g_storage.tobytes() == before_g.tobytes()


OVER = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1))
ROUTES = [
    ("910b", "fp16", True, "cube"), ("910b", "fp32", True, "cube"), ("910b", "fp32", False, "AvgPool3DGrad"),
    ("910", "fp16", False, "cube+mul"), ("910", "fp32", True, "cube"),
]  # fmt: skip


@pytest.mark.parametrize(("series", "dtype", "include", "path"), ROUTES)
@pytest.mark.parametrize("view", ["one number a plane", "inside gradInput"])
def test_aclnn_avg_pool_grad_output_may_be_expanded_or_lie_where_the_result_goes(series, dtype, include, path, view):
    pooling = replace(OVER, count_include_pad=include)
    case = Case(
        series=series, dtype=dtype, leading=(2, 3), extents=(7, 7), pooling=pooling,
        cube_math_type=int(series == "910" and dtype == "fp32"),
    )  # fmt: skip
    shape, out = (2, 3, 7, 7), (2, 3, 4, 4)
    memory = np.random.default_rng(5).standard_normal(294).astype(DTYPES[dtype])
    strides, offset, storage = ((0, 1, 0, 0), 0, memory[:3].copy())
    if view == "inside gradInput":
        strides, offset, storage = (48, 16, 4, 1), 7, memory
    grad = view_of(storage, out, strides, offset).copy()
    expected = ops.avg_pool2d_backward(grad, np.zeros(shape, DTYPES[dtype]), **case.arguments)
    assert expected.path == path
    with use_product(series):
        g = tensor(out, dtype, storage, strides, offset, (storage.size,))
        status, size, executor = phase_one(g, tensor(shape, dtype), tensor(shape, dtype, memory), case)
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert aclnn.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None) == 0
    assert memory.tobytes() == expected.grad_input.tobytes()


CASE = Case(series="910b", dtype="fp16", leading=(2, 3), extents=(7, 7), pooling=OVER)


def ready(dx_data, **keywords):
    g = tensor((2, 3, 4, 4), "fp16", np.ones(96, np.float16))
    shape = (2, 3, 7, 7)
    return phase_one(g, tensor(shape, "fp16"), tensor(shape, "fp16", dx_data), CASE, **keywords)


def test_aclnn_avg_pool_says_what_is_wrong_with_memory():
    locked = np.zeros(294, np.float16)
    locked.flags.writeable = False
    with use_product("910b"):
        assert ready(locked)[0] == aclnn.ACLNN_ERR_PARAM_INVALID
        text = aclnn.aclGetRecentErrMsg()
        assert "gradInput memory must be writeable, not read-only (Ascend910B2" in text
        status, size, executor = ready(None)
        assert (status, size > 0) == (0, True)
        workspace = np.empty(size, np.uint8)
        assert aclnn.aclnnAvgPool2dBackward(workspace, size, executor, None) == aclnn.ACLNN_ERR_PARAM_NULLPTR
        assert "gradInput data must be device memory, not a null pointer" in aclnn.aclGetRecentErrMsg()
        shape = (2, 3, 7, 7)
        twice = tensor(shape, "fp16", np.zeros(294, np.float16), (0, 49, 7, 1))
        g = tensor((2, 3, 4, 4), "fp16", np.ones(96, np.float16))
        assert phase_one(g, tensor(shape, "fp16"), twice, CASE)[0] == aclnn.ACLNN_ERR_PARAM_INVALID
        assert "gradInput must hold each element in a place of its own" in aclnn.aclGetRecentErrMsg()


def test_aclnn_avg_pool_executor_runs_once_and_needs_its_workspace():
    data = np.zeros(294, np.float16)
    with use_product("910b"):
        status, size, executor = ready(data)
        assert aclnn.aclnnAvgPool2dBackward(None, size, executor, None) == aclnn.ACLNN_ERR_PARAM_NULLPTR
        workspace = np.empty(size, np.uint8)
        assert aclnn.aclnnConvolutionBackward(workspace, size, executor, None) == aclnn.ACLNN_ERR_PARAM_INVALID
        assert not data.any()
        assert aclnn.aclnnAvgPool2dBackward(workspace, size, executor, None) == 0
        assert data.any()
        assert aclnn.aclnnAvgPool2dBackward(workspace, size, executor, None) == aclnn.ACLNN_ERR_PARAM_INVALID
        assert aclnn.aclnnAvgPool2dBackward(workspace, size, None, None) == aclnn.ACLNN_ERR_PARAM_NULLPTR
    assert status == 0
    aclnn.aclGetRecentErrMsg()


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"profile": 3}, "profile must be None or one of page, library, not 3"),
        ({"profile": "book"}, "profile must be None or one of page, library, not 'book'"),
        ({"quirks": ["A9"]}, "quirks must be a bool or a set of A1, A2, A3, A4, A5, not ['A9']"),
        (
            {"accumulation": 7},
            "accumulation must be None, an npu_sim.Accumulation, 'serial' or a name like 'exact16-rne' or "
            "'tree4-rz+keep', not 7",
        ),
        (
            {"overflow": True},
            "overflow must be None or one of inf_nan, saturate, not True (Ascend910B2, Atlas A2 training / 800I A2 "
            "inference)",
        ),
        ({"strict_shape": "yes"}, "strict_shape must be a bool, not 'yes'"),
    ],
)
def test_aclnn_avg_pool_refuses_other_options_with_a_status(keywords, text):
    with use_product("910b"):
        status, size, executor = ready(None, **keywords)
    assert (int(status), size, executor) == (161002, 0, None)
    assert aclnn.aclGetRecentErrMsg() == (
        f"161002 ACLNN_ERR_PARAM_INVALID: aclnnAvgPool2dBackwardGetWorkspaceSize: {text}"
    )


@pytest.mark.parametrize("name", ["ceilMode", "countIncludePad", "strict_shape", "deterministic"])
def test_aclnn_avg_pool_flags_are_what_c_takes_for_a_bool(name):
    array = aclnn.aclCreateIntArray
    arguments = {
        "gradOutput": tensor((1, 2, 2, 2), "fp16"), "self": tensor((1, 2, 4, 4), "fp16"), "kernelSize": array([2]),
        "stride": None, "padding": array([0]), "ceilMode": False, "countIncludePad": True, "divisorOverride": 0,
        "cubeMathType": 0, "gradInput": tensor((1, 2, 4, 4), "fp16"),
    }  # fmt: skip
    with use_product("910b"):
        for value in ("no", "", None, 1.0, [True]):
            got = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(**arguments | {name: value})
            assert got == (161002, 0, None)
            assert aclnn.aclGetRecentErrMsg().endswith(f"GetWorkspaceSize: {name} must be a bool, not {value!r}")
        for value in (True, np.False_, 0, 1):
            status, _, executor = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(**arguments | {name: value})
            assert status == 0
            aclnn.aclDestroyAclOpExecutor(executor)


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ({}, np.inf),
        ({"overflow": None}, np.inf),
        ({"overflow": "inf_nan"}, np.inf),
        ({"overflow": "saturate"}, 65504),
    ],
)
def test_aclnn_avg_pool_overflow_mode_is_that_of_the_call(more, limit):
    # every element lies under two windows: 40000 + 40000 leaves the range of float16
    shape = (1, 16, 1, 2)
    gradient = np.full(32, 40000, np.float16)
    data = np.zeros(32, np.float16)
    array = aclnn.aclCreateIntArray
    with use_product("910b"):
        status, size, executor = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
            tensor(shape, "fp16", gradient), tensor(shape, "fp16"), array([1, 3]), array([1, 1]), array([0, 1]), False,
            True, 1, 0, tensor(shape, "fp16", data), **more,
        )  # fmt: skip
        assert status == 0, aclnn.aclGetRecentErrMsg()
        assert aclnn.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None) == 0
    np.testing.assert_array_equal(data, np.full(32, limit, np.float16))


def test_aclnn_avg_pool_overflow_mode_the_product_does_not_have_is_refused_by_the_first_phase():
    with use_product("910"):
        status, size, executor = ready(None, overflow="inf_nan")
    assert (int(status), size, executor) == (161002, 0, None)
    assert aclnn.aclGetRecentErrMsg() == (
        "161002 ACLNN_ERR_PARAM_INVALID: aclnnAvgPool2dBackwardGetWorkspaceSize: overflow must be None or one of "
        "saturate, not 'inf_nan' (Ascend910A, Atlas training series)"
    )


def test_aclnn_avg_pool_explains_itself_once_and_knows_the_quirks():
    with use_product("910"), recording() as recorder:
        pooling = Pooling(kernel=(3, 3), stride=(2, 2), ceil_mode=True)
        case = Case(series="910", dtype="fp16", leading=(1, 2), extents=(6, 6), pooling=pooling)
        g = tensor((1, 2, 3, 3), "fp16", np.ones(18, np.float16))
        for quirks, path in ((True, "cube"), (False, "cube+mul"), ({"A1"}, "cube"), ("A2", "cube+mul")):
            x, out = tensor((1, 2, 6, 6), "fp16"), np.zeros(72, np.float16)
            dx = tensor((1, 2, 6, 6), "fp16", out)
            status, size, executor = phase_one(g, x, dx, case, quirks=quirks)
            assert status == 0
            assert aclnn.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None) == 0
            explanation = recorder.explanations()[-1]
            assert explanation.facts["call"]["route"] == path
    assert len(recorder.explanations()) == 4


def test_aclnn_avg_pool_number_of_threads_must_be_positive():
    with use_product("910b"):
        status, *_ = ready(None, threads=0)
    assert int(status) == 161002
    assert aclnn.aclGetRecentErrMsg().endswith("GetWorkspaceSize: threads must be at least 1, not 0")


@pytest.mark.parametrize(
    ("divisor", "is_taken"), [(2**62, True), (-(2**63), True), (2**63, False), (-(2**63) - 1, False)]
)
def test_aclnn_avg_pool_divisor_has_64_bits(divisor, is_taken):
    array, data = aclnn.aclCreateIntArray, np.zeros(16, np.float32)
    with use_product("910_93"):
        g = tensor((1, 2, 2), "fp32", np.ones(4, np.float32))
        x, dx = tensor((1, 4, 4), "fp32"), tensor((1, 4, 4), "fp32", data)
        status, size, executor = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
            g, x, array([2, 2]), None, array([0]), False, True, divisor, 0, dx
        )
        assert int(status) == (0 if is_taken else 161002)
        if is_taken:
            assert aclnn.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None) == 0
            assert (data == np.float32(1) / np.float32(divisor)).all()
        else:
            assert aclnn.aclGetRecentErrMsg().endswith(f"divisorOverride must be an integer of 64 bits, not {divisor}")


@pytest.mark.parametrize(("dtype", "math_type", "operand"), [
    ("fp32", 0, "fp32"), ("fp32", 1, "hf32"), ("fp32", 2, "fp16"), ("fp16", 0, "fp16"), ("bf16", 3, "hf32"),
])  # fmt: skip
def test_aclnn_avg_pool_default_model_is_that_of_what_the_cube_multiplies(monkeypatch, dtype, math_type, operand):
    asked, module = [], importlib.import_module("ops.aclnn.avg_pool2d_backward")

    def options(product, cube_dtype, *others):
        asked.append((product.series, cube_dtype))
        return run_options(product, cube_dtype, *others)

    monkeypatch.setattr(module, "run_options", options)
    case = Case(series="910b", dtype=dtype, leading=(1, 3), extents=(7, 7), pooling=OVER, cube_math_type=math_type)
    with use_product("910b"):
        g, x = tensor((1, 3, 4, 4), dtype), tensor((1, 3, 7, 7), dtype)
        assert phase_one(g, x, x, case)[0] == 0
    assert asked == [("910b", operand)]


def explained(keywords, **changes):
    """Status and explanation of a vector call of 910B with other arguments."""
    pooling = Pooling(kernel=(3, 3), stride=(2, 2), pad=(1, 1), count_include_pad=False)
    case = Case(series="910b", dtype="fp16", leading=(2, 3), extents=(7, 7), pooling=replace(pooling, **changes))
    shape = (2, 3, 7, 7)
    with use_product("910b"), recording() as recorder:
        g, x, dx = tensor((2, 3, 4, 4), "fp16"), tensor(shape, "fp16"), tensor(shape, "fp16")
        status, *_ = phase_one(g, x, dx, case, **keywords)
    return int(status), recorder.explanations()[0] if not status else aclnn.aclGetRecentErrMsg()


def test_aclnn_avg_pool_options_reach_the_check_and_the_plan():
    for deterministic, cores in ((False, 16), (True, 1)):
        _, found = explained({"deterministic": deterministic})
        assert [launch.core_count for launch in found.launches if launch.name == "AvgPool3DGrad"] == [cores]
        assert found.facts["tiling of step 1, AvgPool3DGrad"]["cores"] == cores
    try:
        assert aclnn.aclrtCtxSetSysParamOpt(aclnn.ACL_OPT_DETERMINISTIC, 1) == 0
        assert explained({})[1].facts["tiling of step 1, AvgPool3DGrad"]["cores"] == 1
    finally:
        aclnn.aclrtResetDevice(0)
    for profile, code in (("library", 0), ("page", 161002), (None, 161002)):
        status, found = explained({"profile": profile}, divisor_override=300)
        assert status == code
        if status:
            assert "rule 10 divisorOverride-page)" in found
        else:
            assert found.facts["call"]["profile"] == "library"
    assert explained({"strict_shape": True})[0] == 0
    status, text = explained({"strict_shape": True}, stride=(1, 2))
    assert status == 161002
    assert "gradOutput H must be 7 (input 7, kernel 3, stride 1, padding 1), not 4" in text
    assert explained({"strict_shape": False}, stride=(1, 2))[0] == 0


@pytest.mark.parametrize("front", ["two phases", "python"])
def test_avg_pool_accumulation_is_that_of_the_call(front):
    """Rounding towards zero after each tap loses what rounding to nearest keeps."""
    shape = (1, 1, 2, 2)
    grad, x = np.full(shape, 1 + 3 * 2**-23, np.float32), np.zeros(shape, np.float32)
    grad[..., 1] = 3.0
    got = []
    for model in (None, "exact8-rz"):
        out = np.zeros(4, np.float32)
        if front == "python":
            r = ops.avg_pool2d_backward(
                grad, x, kernel_size=(1, 3), stride=1, padding=(0, 1), divisor_override=1, accumulation=model,
                product="910b",
            )  # fmt: skip
            assert r.path == "cube"
            out = r.grad_input.reshape(-1)
        else:
            array = aclnn.aclCreateIntArray
            with use_product("910b"):
                status, size, executor = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
                    tensor(shape, "fp32", grad.reshape(-1)), tensor(shape, "fp32"), array([1, 3]), array([1, 1]),
                    array([0, 1]), False, True, 1, 0, tensor(shape, "fp32", out), accumulation=model,
                )  # fmt: skip
                assert status == 0, aclnn.aclGetRecentErrMsg()
                assert aclnn.aclnnAvgPool2dBackward(np.empty(size, np.uint8), size, executor, None) == 0
        got.append(out.tolist())
    assert got == [[4 + 2**-21] * 4, [4.0] * 4]


def test_aclnn_avg_pool_of_nothing_does_nothing():
    untouched = np.full(294, 7, np.float16)
    with use_product("910b"):
        g = tensor((2, 3, 0, 4), "fp16", np.zeros(0, np.float16))
        shape = (2, 3, 7, 7)
        status, size, executor = phase_one(g, tensor(shape, "fp16"), tensor(shape, "fp16", untouched), CASE)
        assert (int(status), size) == (0, 0)
        assert aclnn.aclnnAvgPool2dBackward(None, 0, executor, None) == 0
    assert (untouched == 7).all()


EXAMPLE = Path(__file__).parents[2] / "examples" / "aclnn_avg_pool2d_backward.py"


@pytest.mark.parametrize("series", ["910b", "910", "310p"])
def test_published_sample_program_gives_a_sixteenth_everywhere(series):
    with use_product(series), recording() as recorder:
        result = runpy.run_path(str(EXAMPLE))["main"]()
    assert result.shape == (1, 16, 4, 4)
    assert (result == 0.0625).all()
    (explanation,) = recorder.explanations()
    assert explanation.facts["call"]["route"] == "cube"


@pytest.mark.parametrize("command", ["check", "perf"])
def test_published_sample_program_is_checked_and_timed_from_the_command_line(command, capsys):
    assert main([command, str(EXAMPLE)]) == 0
    shown = capsys.readouterr().out
    assert "Conv3DBackpropInputV2" in shown
    if command == "check":
        found = re.findall(r"^  (\d \w+) \(.*\): 0 findings$", shown, re.MULTILINE)
        names = ["TransData", "TransData", "MemSet", "TransData", "Conv3DBackpropInputV2", "TransData"]
        assert found == [f"{number} {name}" for number, name in enumerate(names)]
