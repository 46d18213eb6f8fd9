"""The two-phase front: objects, protocol, messages and memory, with a double in the place of the kernels."""

from __future__ import annotations

import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from npu_sim import use_product
from npu_sim.errors import OperatorError, ProgramError
from ops import aclnn
from ops.common.tensor_desc import TensorDesc
from tests.oracles.aclnn_cases import arguments_of, tensor_of
from tests.oracles.conv_backward_cases import BREAKS, LEGAL, make_call
from tests.oracles.conv_backward_status import status as expected_status

OUTPUTS = ("grad_input", "grad_weight", "grad_bias")
NUMPY = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
WORKSPACE_BYTES = 96
A2 = "Ascend910B2, Atlas A2 training / 800I A2 inference"


class Kernels:
    """Plans a call as "each wanted output is a function of the inputs" and runs it, all or nothing.

    gradInput = 2 input, gradWeight = 3 weight, gradBias = the first N x C row of gradOutput's sums.
    """

    def __init__(self) -> None:
        self.planned: list[Any] = []
        self.seen: list[dict[str, bool]] = []
        self.plan_failure: BaseException | None = None
        self.run_failure: BaseException | None = None
        self.workspace_bytes = WORKSPACE_BYTES

    def plan_call(self, resolved: Any) -> Any:
        if self.plan_failure is not None:
            raise self.plan_failure
        self.planned.append(resolved)
        names = ["grad_output", "input", "weight"][0 if resolved.call.wants(2) else 1 :]
        plan = SimpleNamespace(
            resolved=resolved,
            workspace_bytes=self.workspace_bytes,
            arguments=dict.fromkeys([*names, *resolved.wanted_outputs]),
        )
        plan.run = lambda tensors, options: self.run_call(plan, tensors, options)
        return plan

    def run_call(self, plan: Any, tensors: dict[str, np.ndarray], options: Any) -> None:
        self.seen.append({name: bool(storage.flags.writeable) for name, storage in tensors.items()})
        r = plan.resolved
        views = {name: getattr(r, name).view(tensors[name]) for name in ("input", "weight")}
        results = {"grad_input": 2 * views["input"].astype(np.float32), "grad_weight": 3 * views["weight"].astype("f4")}
        if "grad_output" in tensors:
            grad = r.grad_output.view(tensors["grad_output"]).astype(np.float32)
            results["grad_bias"] = grad.sum(axis=(0, *range(2, grad.ndim)))
        if self.run_failure is not None:
            raise self.run_failure
        for name, desc in r.wanted_outputs.items():
            desc.view(tensors[name])[...] = results[name]


@pytest.fixture
def kernels(monkeypatch):
    double = Kernels()
    monkeypatch.setitem(sys.modules, "ops.conv_backward.plan", SimpleNamespace(plan_call=double.plan_call))
    monkeypatch.setattr("ops.aclnn.front.planned_once", lambda call, product, make: make())
    aclnn.aclGetRecentErrMsg()
    return double


def storages_of(call, seed=0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {}
    for name in ("grad_output", "input", "weight", *OUTPUTS):
        desc = getattr(call, name)
        if desc is not None:
            made[name] = rng.integers(-8, 8, desc.storage_elems).astype(NUMPY[desc.dtype])
    return made


def first_phase(call, storages=None):
    positional, keywords = arguments_of(call, storages)
    with use_product(call.product):
        return aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*positional, **keywords)


def second_phase(executor, size=WORKSPACE_BYTES, stream=None):
    return aclnn.aclnnConvolutionBackward(np.empty(size, np.uint8), size, executor, stream)


def planned(call, storages=None):
    status, size, executor = first_phase(call, storages)
    assert (status, size) == (0, WORKSPACE_BYTES), aclnn.aclGetRecentErrMsg()
    return executor


# ---- objects ---------------------------------------------------------------------------------------------------------


def test_enumerators_have_the_numbers_of_the_interface():
    assert [aclnn.ACL_FLOAT, aclnn.ACL_FLOAT16, aclnn.aclDataType.ACL_BF16] == [0, 1, 27]
    names = ["NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NCDHW", "NDC1HWC0", "FRACTAL_Z_3D", "NCL"]
    assert [aclnn.aclFormat[name] for name in names] == [0, 1, 2, 3, 4, 30, 32, 33, 47]
    assert aclnn.ACL_FORMAT_NCDHW is aclnn.aclFormat.NCDHW
    assert [aclnn.ACLNN_SUCCESS, aclnn.ACLNN_ERR_PARAM_NULLPTR, aclnn.ACLNN_ERR_PARAM_INVALID] == [0, 161001, 161002]
    assert [aclnn.ACLNN_ERR_RUNTIME_ERROR, aclnn.ACLNN_ERR_INNER, aclnn.ACLNN_ERR_INNER_NULLPTR] == [
        361001,
        561000,
        561103,
    ]
    assert sorted(aclnn.aclnnStatus) == [
        *(0, 161001, 161002, 361001, 561000, 561001, 561002, 561003),
        *range(561101, 561120),
    ]
    assert all(getattr(aclnn, name) is not None for name in aclnn.__all__)


def test_tensor_is_a_view_of_the_callers_memory():
    data = np.arange(24, dtype=np.float32)
    tensor = aclnn.aclCreateTensor([2, 3], aclnn.ACL_FLOAT, [12, 2], 1, aclnn.ACL_FORMAT_ND, [24], data)
    assert tensor.desc == TensorDesc(
        shape=(2, 3), dtype="fp32", format="ND", strides=(12, 2), offset=1, storage_elems=24
    )
    view = tensor.desc.view(tensor.storage)
    np.testing.assert_array_equal(view, [[1, 3, 5], [13, 15, 17]])
    view[1, 2] = -1
    assert data[17] == -1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_tensor_takes_device_memory_of_bytes(dtype):
    data_type = {2: aclnn.ACL_FLOAT16, 4: aclnn.ACL_FLOAT}[np.dtype(dtype).itemsize]
    if dtype is ml_dtypes.bfloat16:
        data_type = aclnn.ACL_BF16
    memory = np.zeros(33, np.uint8)
    tensor = aclnn.aclCreateTensor([4], data_type, None, 0, aclnn.ACL_FORMAT_ND, [4], memory)
    tensor.storage[:4] = 1.5
    assert tensor.storage.dtype == dtype
    np.testing.assert_array_equal(memory[: 4 * np.dtype(dtype).itemsize].view(dtype), [1.5] * 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"viewDims": [2, -1]}, "viewDims[1] must be at least 0, not -1"),
        ({"viewDims": 3}, "viewDims must be a sequence of at most 64 entries, not 3"),
        ({"viewDims": iter(int, 1)}, None),
        ({"viewDims": [2, 2.0]}, "viewDims[1] must be an integer of 64 bits, not 2.0"),
        ({"viewDims": [2, 2**63]}, "viewDims[1] must be an integer of 64 bits, not 9223372036854775808"),
        ({"dataType": 5}, "dataType must be a member of aclDataType, not 5"),
        ({"format": "NCHW"}, "format must be an integer of 64 bits, not 'NCHW'"),
        ({"format": 99}, "format must be a member of aclFormat, not 99"),
        ({"strides": [1]}, "strides must be one per axis of [2, 3], not [1]"),
        ({"strides": [-3, 1]}, "strides[0] must be at least 0, not -3"),
        ({"offset": -1}, "offset must be at least 0, not -1"),
        ({"offset": 1}, "storage must be at least 7 elements, not 6 (shape [2, 3], strides [3, 1], offset 1)"),
        ({"storageDims": [5]}, "storage must be at least 6 elements, not 5 (shape [2, 3], strides [3, 1], offset 0)"),
        ({"storageDims": [-2, -3]}, "storageDims[0] must be at least 0, not -2"),
        ({"data": np.zeros(5, np.float32)}, "data must be at least 6 elements, not 5"),
        ({"data": np.zeros(6, np.float16)}, "data must be of type float32 or uint8 (device memory) for ACL_FLOAT, not "
                                            "dtype('float16')"),
        ({"data": np.zeros(6, ">f4")}, "data must be of type float32 or uint8 (device memory) for ACL_FLOAT, not "
                                       "dtype('>f4')"),
        ({"data": np.zeros(12, np.float32)[::2]}, "data must be contiguous memory, not 'strides (8,)'"),
        ({"data": [0.0] * 6}, "data must be a NumPy array or None, not [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]"),
    ],
)  # fmt: skip
def test_tensor_that_cannot_be_is_a_null_pointer(changes, message):
    arguments = {"viewDims": [2, 3], "dataType": 0, "strides": None, "offset": 0, "format": 2, "storageDims": [6],
                 "data": np.zeros(6, np.float32)}  # fmt: skip
    aclnn.aclGetRecentErrMsg()
    assert aclnn.aclCreateTensor(**(arguments | changes)) is None
    got = aclnn.aclGetRecentErrMsg()
    assert got is not None
    assert message is None or got == f"161002 ACLNN_ERR_PARAM_INVALID: aclCreateTensor: {message}"


def test_arrays_hold_ints_and_bools():
    assert aclnn.aclCreateIntArray(np.array([1, -2])).values == (1, -2)
    assert aclnn.aclCreateIntArray([]).values == ()
    assert aclnn.aclCreateBoolArray([True, np.False_, 2, 0]).values == (True, False, True, False)
    for value in (None, 3, "12", [1.5], [True], [2**63], [None], {1: 2}):
        assert aclnn.aclCreateIntArray(value) is None
        assert "aclCreateIntArray: values" in aclnn.aclGetRecentErrMsg()
    for value in (None, True, "TTF", ["T"], [0.0]):
        assert aclnn.aclCreateBoolArray(value) is None
        assert "aclCreateBoolArray: values" in aclnn.aclGetRecentErrMsg()


def test_destroyed_object_is_refused(kernels):
    call = make_call()
    positional, _ = arguments_of(call)
    tensor, array, mask = positional[0], positional[4], positional[10]
    pairs = ((aclnn.aclDestroyTensor, tensor), (aclnn.aclDestroyIntArray, array), (aclnn.aclDestroyBoolArray, mask))
    for destroy, value in pairs:
        assert destroy(None) == 0
        assert destroy(value) == 0
        assert destroy(value) == 161002
        assert destroy("tensor") == 161002
    kind = type(tensor).__name__
    status, size, executor = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*positional)
    assert (status, size, executor) == (161002, 0, None)
    assert f"gradOutput must be alive, not a destroyed {kind}" in aclnn.aclGetRecentErrMsg()


# ---- phase 1 ---------------------------------------------------------------------------------------------------------


def test_first_phase_needs_no_memory_at_all(kernels):
    # Tensors without memory: whoever read a byte of them would fail.
    executor = planned(make_call())
    assert isinstance(executor, aclnn.aclOpExecutor)
    assert kernels.seen == []
    assert aclnn.aclGetRecentErrMsg() is None


@pytest.mark.parametrize("name", BREAKS)
def test_first_phase_returns_the_status_of_the_rule(kernels, name):
    call = make_call(**BREAKS[name])
    assert first_phase(call) == (expected_status(call), 0, None)
    assert kernels.planned == []
    message = aclnn.aclGetRecentErrMsg()
    code = aclnn.aclnnStatus(expected_status(call))
    assert message.startswith(f"{int(code)} {code.name}: aclnnConvolutionBackwardGetWorkspaceSize: ")
    assert re.search(
        rf" must be .+, not .+{call.product.name}, {call.product.series_name}; rule \S+ {name}\)$", message
    )


@pytest.mark.parametrize("changes", LEGAL, ids=range(len(LEGAL)))
def test_first_phase_hands_the_call_on_as_it_is(kernels, changes):
    call = make_call(**changes)
    planned(call)
    assert kernels.planned[0].call == call


def test_product_is_that_of_the_first_phase(kernels):
    call = make_call(product="310p")
    storages = storages_of(call)
    executor = planned(call, storages)
    with use_product("910_93"):
        assert second_phase(executor) == 0
    assert kernels.planned[0].product.series == "310p"


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (OperatorError("tile must be small, not large", 561103), 561103, ": tile must be small, not large (2D, "),
        (OperatorError("tile is large (Ascend910B2)", 561103), 561103, ": tile is large (Ascend910B2)"),
        (ProgramError([]), 561103, ": "),
        (OperatorError("odd", 7), 561000, ": odd"),
        (MemoryError(), 561101, ": executor must be created within the host's memory, not beyond"),
        (ZeroDivisionError("oops"), 561000, ": internal error, please report: ZeroDivisionError "),
    ],
)
def test_first_phase_turns_a_failing_plan_into_a_status(kernels, failure, status, text):
    kernels.plan_failure = failure
    assert first_phase(make_call()) == (status, 0, None)
    assert f"aclnnConvolutionBackwardGetWorkspaceSize{text}" in aclnn.aclGetRecentErrMsg()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gradOutput": "x"}, "gradOutput must be an aclTensor, not 'x'"),
        ({"stride": (1, 1)}, "stride must be an aclIntArray, not (1, 1)"),
        ({"biasSizes": 3}, "biasSizes must be an aclIntArray, not 3"),
        ({"outputMask": [True] * 3}, "outputMask must be an aclBoolArray, not [True, True, True]"),
        ({"transposed": "no"}, "transposed must be a bool, not 'no'"),
        ({"groups": 2**31}, "groups must be an integer of 32 bits, not 2147483648"),
        ({"groups": True}, "groups must be an integer of 32 bits, not True"),
        ({"cubeMathType": 1.0}, "cubeMathType must be an int, not 1.0"),
        ({"profile": "manual"}, "profile must be one of page, library, not 'manual'"),
        ({"profile": 1}, "profile must be one of page, library, not 1"),
        ({"quirks": ["Q1", "Q4"]}, "quirks must be a bool or a set of Q1, Q2, Q3, not ['Q1', 'Q4']"),
        ({"accumulation": "best"}, None),
        ({"overflow": 1}, f"overflow must be None or one of inf_nan, saturate, not 1 ({A2})"),
        ({"overflow": ""}, f"overflow must be None or one of inf_nan, saturate, not '' ({A2})"),
        ({"overflow": "wrap"}, f"overflow must be None or one of inf_nan, saturate, not 'wrap' ({A2})"),
        ({"threads": "all"}, "threads must be an int, not 'all'"),
    ],
)
def test_argument_that_c_would_not_compile_is_refused(kernels, changes, message):
    positional, keywords = arguments_of(make_call())
    names = (
        *("gradOutput", "input", "weight", "biasSizes", "stride", "padding", "dilation", "transposed"),
        *("outputPadding", "groups", "outputMask", "cubeMathType", "gradInput", "gradWeight", "gradBias"),
    )
    arguments = dict(zip(names, positional, strict=True)) | keywords | changes
    assert aclnn.aclnnConvolutionBackwardGetWorkspaceSize(**arguments) == (161002, 0, None)
    got = aclnn.aclGetRecentErrMsg()
    head = "161002 ACLNN_ERR_PARAM_INVALID: aclnnConvolutionBackwardGetWorkspaceSize: "
    assert got.startswith(head)
    assert message is None or got == head + message


def test_read_only_output_is_refused_by_the_first_phase(kernels):
    call = make_call()
    storages = storages_of(call)
    storages["grad_weight"].flags.writeable = False
    assert first_phase(call, storages) == (161002, 0, None)
    assert "gradWeight memory must be writeable, not read-only (2D, " in aclnn.aclGetRecentErrMsg()
    assert first_phase(make_call(output_mask=(True, False, True)), storages)[0] == 0


@pytest.mark.parametrize(
    ("shape", "strides", "is_shared"),
    [
        ((6,), (0,), True),
        ((1, 6), (0, 1), False),
        ((2, 3), (1, 1), True),
        ((2, 2), (2, 3), False),
        ((3, 2), (2, 4), True),
        ((3, 2), (4, 2), False),
        ((2, 3), (4, 2), True),
        ((2, 3, 4), (1, 2, 6), False),
        ((0, 3), (0, 0), False),
        ((), (), False),
    ],
)
def test_view_that_shares_places_is_found(shape, strides, is_shared):
    tensor = TensorDesc(shape=shape, dtype="fp16", format="ND", strides=strides)
    places = tensor.view(np.arange(tensor.storage_elems))
    assert (np.unique(places).size < places.size) == is_shared
    assert tensor.overlaps_itself == is_shared


def test_output_whose_elements_share_a_place_is_refused_by_the_first_phase(kernels):
    twice = TensorDesc(shape=(6,), dtype="fp16", format="ND", strides=(0,), offset=2)
    assert first_phase(make_call(grad_bias=twice)) == (161002, 0, None)
    message = aclnn.aclGetRecentErrMsg()
    assert "gradBias must hold each element in a place of its own, not have the strides [0] (2D, " in message
    assert first_phase(make_call(grad_bias=twice, output_mask=(True, True, False)))[0] == 0


# ---- phase 2 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
def test_second_phase_writes_the_wanted_outputs_and_nothing_else(kernels, mask):
    call = make_call(output_mask=tuple(map(bool, mask)))
    storages = storages_of(call)
    before = {name: storage.copy() for name, storage in storages.items()}
    assert second_phase(planned(call, storages)) == 0
    for name in ("grad_output", "input", "weight"):
        np.testing.assert_array_equal(storages[name], before[name])
    expected = {
        "grad_input": 2 * before["input"],
        "grad_weight": 3 * before["weight"],
        "grad_bias": before["grad_output"].reshape(2, 6, -1).sum(axis=(0, 2)),
    }
    for wanted, name in zip(mask, OUTPUTS, strict=True):
        np.testing.assert_array_equal(storages[name], expected[name] if wanted else before[name])
    seen = kernels.seen[0]
    assert {name for name in seen if seen[name]} == {name for on, name in zip(mask, OUTPUTS, strict=True) if on}


def test_second_phase_reads_the_data_of_its_own_time(kernels):
    call = make_call(output_mask=(True, False, False))
    storages = storages_of(call)
    executor = planned(call, storages)
    storages["input"][...] = 7
    assert second_phase(executor) == 0
    np.testing.assert_array_equal(storages["grad_input"], np.float16(14))


def test_inputs_are_handed_on_read_only(kernels):
    call = make_call()
    storages = storages_of(call)
    assert second_phase(planned(call, storages)) == 0
    assert kernels.seen == [
        {"grad_output": False, "input": False, "weight": False, "grad_input": True, "grad_weight": True,
         "grad_bias": True}
    ]  # fmt: skip
    assert all(storage.flags.writeable for storage in storages.values())


def test_executor_runs_once(kernels):
    call = make_call()
    storages = storages_of(call)
    executor = planned(call, storages)
    assert second_phase(executor) == 0
    storages["grad_input"][...] = 5
    assert second_phase(executor) == 161002
    assert "executor must be one that has not run, not a spent one" in aclnn.aclGetRecentErrMsg()
    np.testing.assert_array_equal(storages["grad_input"], np.float16(5))
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 161002


def test_repeatable_executor_runs_again_on_new_data(kernels):
    call = make_call(output_mask=(True, False, False))
    storages = storages_of(call)
    executor = planned(call, storages)
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    for value in (1, 2):
        storages["input"][...] = value
        assert second_phase(executor) == 0
        np.testing.assert_array_equal(storages["grad_input"], np.float16(2 * value))
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0
    assert second_phase(executor) == 161002
    assert "executor must be alive, not a destroyed aclOpExecutor" in aclnn.aclGetRecentErrMsg()
    assert aclnn.aclDestroyAclOpExecutor(executor) == 161002
    assert aclnn.aclDestroyAclOpExecutor(None) == 0
    assert aclnn.aclSetAclOpExecutorRepeatable(None) == 161001
    assert aclnn.aclSetAclOpExecutorRepeatable("executor") == 161002


@pytest.mark.parametrize(
    ("workspace", "size", "status", "text"),
    [
        (None, 96, 161001, "workspace must be memory of 96 bytes, not a null pointer"),
        (None, 0, 161002, "workspaceSize must be at least 96, not 0"),
        (np.empty(96, np.uint8), 95, 161002, "workspaceSize must be at least 96, not 95"),
        (np.empty(95, np.uint8), 96, 161002, "workspace must be at least workspaceSize = 96 bytes, not 95"),
        (np.empty(96, np.uint8), 97, 161002, "workspace must be at least workspaceSize = 97 bytes, not 96"),
        (bytearray(96), 96, 161002, "workspace must be a NumPy array or None, not bytearray"),
        (np.empty(96, np.uint8), -1, 161002, "workspaceSize must be at least 0, not -1"),
        (np.empty(96, np.uint8), "96", 161002, "workspaceSize must be an integer of 65 bits, not '96'"),
        (np.empty(96, np.uint8), 96, 0, None),
        (np.empty(24, np.float32), 96, 0, None),
        (np.empty(200, np.uint8), 150, 0, None),
    ],
)
def test_second_phase_checks_the_workspace(kernels, workspace, size, status, text):
    call = make_call()
    storages = storages_of(call)
    executor = planned(call, storages)
    before = {name: storage.copy() for name, storage in storages.items()}
    assert aclnn.aclnnConvolutionBackward(workspace, size, executor, None) == status
    if status == 0:
        return
    assert f"aclnnConvolutionBackward: {text}" in aclnn.aclGetRecentErrMsg()
    for name, storage in storages.items():
        np.testing.assert_array_equal(storage, before[name])
    assert second_phase(executor) == 0  # a call that was refused does not use up the executor


def test_workspace_may_be_null_where_none_is_needed(kernels):
    kernels.workspace_bytes = 0
    call = make_call()
    status, size, executor = first_phase(call, storages_of(call))
    assert (status, size) == (0, 0)
    assert aclnn.aclnnConvolutionBackward(None, 0, executor, None) == 0


def test_second_phase_checks_executor_and_stream(kernels):
    call = make_call()
    executor = planned(call, storages_of(call))
    assert second_phase(None) == 161001
    assert "executor must be an aclOpExecutor, not a null pointer" in aclnn.aclGetRecentErrMsg()
    assert second_phase(call) == 161002
    assert second_phase(executor, stream="fast") == 161002
    assert "stream must be an aclrtStream, not 'fast'" in aclnn.aclGetRecentErrMsg()
    status, stream = aclnn.aclrtCreateStream()
    assert (status, aclnn.aclrtDestroyStream(stream)) == (0, 0)
    assert second_phase(executor, stream=stream) == 161002
    executor.call = "aclnnOther"
    assert second_phase(executor) == 161002
    message = aclnn.aclGetRecentErrMsg().splitlines()[0]
    assert "executor must be one of aclnnConvolutionBackwardGetWorkspaceSize, not of aclnnOther (2D, " in message
    executor.call = "aclnnConvolutionBackward"
    assert second_phase(executor, stream=aclnn.aclrtCreateStream()[1]) == 0


@pytest.mark.parametrize("name", ["input", "grad_weight"])
def test_second_phase_needs_memory_behind_every_tensor_it_touches(kernels, name):
    call = make_call()
    storages = storages_of(call)
    missing = storages.pop(name)
    executor = planned(call, storages)
    assert second_phase(executor) == 161001
    vendor = {"input": "input", "grad_weight": "gradWeight"}[name]
    assert f"{vendor} data must be device memory, not a null pointer (2D, " in aclnn.aclGetRecentErrMsg()
    assert kernels.seen == []
    del missing


def test_tensor_that_is_not_touched_needs_no_memory(kernels):
    call = make_call(output_mask=(True, False, False))
    storages = storages_of(call)
    for name in ("grad_output", "grad_weight", "grad_bias"):
        del storages[name]
    assert second_phase(planned(call, storages)) == 0


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (ProgramError([]), 361001, "run must succeed, not fail with ProgramError: "),
        (MemoryError("no"), 361001, "run must succeed, not fail with MemoryError: no (2D, "),
        (IndexError("x"), 561000, "internal error, please report: IndexError IndexError('x') at "),
    ],
)
def test_failing_run_writes_nothing_and_uses_up_the_executor(kernels, failure, status, text):
    call = make_call()
    storages = storages_of(call)
    before = {name: storage.copy() for name, storage in storages.items()}
    executor = planned(call, storages)
    kernels.run_failure = failure
    assert second_phase(executor) == status
    assert text in aclnn.aclGetRecentErrMsg()
    for name, storage in storages.items():
        np.testing.assert_array_equal(storage, before[name])
    kernels.run_failure = None
    assert second_phase(executor) == 161002


def test_elements_between_those_of_a_view_are_not_touched(kernels):
    call = make_call(output_mask=(True, False, False))
    shape = call.input.shape
    desc = TensorDesc(shape=shape, dtype="fp16", format="NCHW", strides=(500, 100, 12, 2), offset=9, storage_elems=1100)
    call = make_call(output_mask=(True, False, False), grad_input=desc)
    storages = storages_of(call)
    before = storages["grad_input"].copy()
    assert second_phase(planned(call, storages)) == 0
    touched = np.zeros(1100, bool)
    desc.view(touched)[...] = True
    assert touched.sum() == desc.elems
    np.testing.assert_array_equal(storages["grad_input"][~touched], before[~touched])
    np.testing.assert_array_equal(desc.view(storages["grad_input"]), 2 * storages["input"].reshape(shape))


def test_output_in_the_memory_of_an_input_gets_the_gradient(kernels):
    call = make_call()
    storages = storages_of(call)
    alone = {name: storage.copy() for name, storage in storages.items()}
    assert second_phase(planned(call, alone)) == 0
    storages |= {"grad_input": storages["input"], "grad_weight": storages["weight"]}
    assert second_phase(planned(call, storages)) == 0
    for name in OUTPUTS:
        np.testing.assert_array_equal(storages[name], alone[name])


def test_later_output_wins_in_memory_of_two(kernels):
    call = make_call(x=(2, 4, 6, 6), w=(4, 4, 3, 3), y=(2, 4, 4, 4))
    storages = storages_of(call)
    shared = np.zeros(288, np.float16)
    expected = 3 * storages["weight"]
    storages |= {"grad_input": shared, "grad_weight": shared[:144]}
    assert second_phase(planned(call, storages)) == 0
    np.testing.assert_array_equal(shared[:144], expected)
    np.testing.assert_array_equal(shared[144:], 2 * storages["input"][144:])


def test_runs_of_a_repeatable_executor_follow_each_other(kernels):
    call = make_call()
    executor = planned(call, storages_of(call))
    assert aclnn.aclSetAclOpExecutorRepeatable(executor) == 0
    running, most = 0, 0
    guard = threading.Lock()

    def run_slowly(*_: Any) -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with guard:
            running -= 1

    kernels.run_call = run_slowly
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(int(second_phase(executor)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [0] * 4
    assert most == 1


def test_two_threads_run_an_executor_once(kernels):
    call = make_call()
    executor = planned(call, storages_of(call))
    barrier = threading.Barrier(8)
    got: list[int] = []

    def run() -> None:
        barrier.wait()
        got.append(int(second_phase(executor)))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [0] + [161002] * 7
    assert len(kernels.seen) == 1


# ---- messages --------------------------------------------------------------------------------------------------------


def test_messages_come_latest_first_and_are_forgotten(kernels):
    assert aclnn.aclGetRecentErrMsg() is None
    assert aclnn.aclCreateIntArray("12") is None
    assert first_phase(make_call(stride=None))[0] == 161001
    first, second = aclnn.aclGetRecentErrMsg().splitlines()
    assert first.startswith("161001 ACLNN_ERR_PARAM_NULLPTR: aclnnConvolutionBackwardGetWorkspaceSize: stride must be ")
    assert second.startswith("161002 ACLNN_ERR_PARAM_INVALID: aclCreateIntArray: values must be ")
    assert aclnn.aclGetRecentErrMsg() is None


def test_unread_messages_do_not_pile_up():
    for _ in range(100):
        aclnn.aclCreateIntArray(5)
    assert len(aclnn.aclGetRecentErrMsg().splitlines()) == 16


def test_messages_belong_to_their_thread(kernels):
    first_phase(make_call(stride=None))
    other: list[str | None] = []

    def work() -> None:
        other.append(aclnn.aclGetRecentErrMsg())
        first_phase(make_call(dilation=None))
        other.append(aclnn.aclGetRecentErrMsg())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert other[0] is None
    assert "dilation must be " in other[1]
    assert "dilation" not in aclnn.aclGetRecentErrMsg()


# ---- runtime ---------------------------------------------------------------------------------------------------------


def test_runtime_copies_between_host_and_device():
    assert aclnn.aclInit(None) == aclnn.aclrtSetDevice(0) == aclnn.aclFinalize() == aclnn.aclrtResetDevice(0) == 0
    status, memory = aclnn.aclrtMalloc(16)
    assert (status, memory.dtype, memory.size) == (0, np.uint8, 16)
    host = np.arange(4, dtype=np.float32)
    assert aclnn.aclrtMemcpy(memory, 16, host, 16, aclnn.ACL_MEMCPY_HOST_TO_DEVICE) == 0
    back = np.zeros(4, np.float32)
    assert aclnn.aclrtMemcpy(back, 16, memory, 12, aclnn.ACL_MEMCPY_DEVICE_TO_HOST) == 0
    np.testing.assert_array_equal(back, [0, 1, 2, 0])
    for count, room in ((17, 17), (16, 12), (-1, 16), ("4", 16)):
        assert aclnn.aclrtMemcpy(back, room, memory, count, 0) == 107000
    assert aclnn.aclrtMemcpy(back[::2], 8, memory, 4, 0) == 100000
    assert aclnn.aclrtMemcpy(back, 8, None, 4, 0) == 100000
    assert aclnn.aclrtMalloc(0) == (100000, None)
    assert aclnn.aclrtSynchronizeStream(None) == 0
    assert aclnn.aclrtSynchronizeStream("s") == aclnn.aclrtDestroyStream(None) == 100000
    assert "ACL_ERROR_INVALID_PARAM: aclrtDestroyStream: stream must be " in aclnn.aclGetRecentErrMsg()
    assert aclnn.aclrtFree(memory) == 0


def test_runtime_keeps_the_options_of_the_context_until_the_device_is_reset():
    option = aclnn.ACL_OPT_DETERMINISTIC
    assert [*aclnn.aclSysParamOpt] == [option, aclnn.ACL_OPT_ENABLE_DEBUG_KERNEL, aclnn.ACL_OPT_STRONG_CONSISTENCY]
    assert aclnn.aclrtCtxGetSysParamOpt(option) == (aclnn.ACL_ERROR_RT_SYSPARAMOPT_NOT_SET, None) == (107021, None)
    assert aclnn.aclGetRecentErrMsg().endswith("aclrtCtxGetSysParamOpt: ACL_OPT_DETERMINISTIC")
    for end in (aclnn.aclFinalize, lambda: aclnn.aclrtResetDevice(0)):
        assert aclnn.aclrtCtxSetSysParamOpt(option, 1) == aclnn.aclrtCtxSetSysParamOpt(1, 0) == 0
        with ThreadPoolExecutor(1) as other:
            assert other.submit(aclnn.aclrtCtxGetSysParamOpt, 0).result() == (0, 1)
        assert aclnn.aclrtCtxGetSysParamOpt(aclnn.ACL_OPT_ENABLE_DEBUG_KERNEL) == (0, 0)
        assert end() == 0
        assert aclnn.aclrtCtxGetSysParamOpt(option)[0] == 107021
    for bad in (3, -1, "0", None, True):
        assert aclnn.aclrtCtxSetSysParamOpt(bad, 1) == aclnn.aclrtCtxGetSysParamOpt(bad)[0] == 100000
        names = ", ".join(one.name for one in aclnn.aclSysParamOpt)
        assert f"opt must be one of {names}, not {bad!r}" in aclnn.aclGetRecentErrMsg()
    for bad in ("1", None, True, 2**63):
        assert aclnn.aclrtCtxSetSysParamOpt(option, bad) == 100000
        assert f"value must be an int of 64 bits, not {bad!r}" in aclnn.aclGetRecentErrMsg()


# ---- garbage ---------------------------------------------------------------------------------------------------------


class Hostile:
    """Raises at whatever is asked of it."""

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("hostile")

    __index__ = __bool__ = __repr__ = __len__ = __iter__ = __eq__ = __int__ = __hash__ = _fail


GARBAGE = (
    *(None, True, False, 0, 1, 2, -1, 3.5, float("nan"), 2**31, 2**63, 2**70, -(2**63), 1j, "", "NCHW", b"x", (), []),
    *([1, 1], [0, 0], [1, "a"], [[1]], {}, {"a": 1}, object(), Hostile(), [Hostile()], int, len, Ellipsis),
    *(np.zeros(3), np.zeros((2, 2), np.float16), np.float32(1), np.int64(4), np.zeros(0, np.uint8), np.array("x")),
    *(range(3), iter(int, 1), np.zeros(2, object), slice(1), "Q1", ("Q1",), "page", "library"),
)


def test_garbage_never_raises(kernels):
    rng = np.random.default_rng(3)
    statuses: set[int] = set()
    good, _ = arguments_of(make_call())
    made: list[Any] = [
        aclnn.aclCreateIntArray([1, 1]),
        aclnn.aclCreateBoolArray([True] * 3),
        tensor_of(make_call().input),
    ]
    executor = planned(make_call(), storages_of(make_call()))
    for _ in range(3_000):
        pool = (*GARBAGE, *made, executor)

        def pick(pool: tuple[Any, ...] = pool) -> Any:
            return pool[rng.integers(len(pool))]

        made_now = [
            aclnn.aclCreateTensor(*(pick() for _ in range(7))),
            aclnn.aclCreateIntArray(pick()),
            aclnn.aclCreateBoolArray(pick()),
        ]
        made = [*made[-6:], *(value for value in made_now if value is not None)]
        arguments = [pick() if rng.random() < 0.15 else value for value in good]
        keywords = {
            name: pick() for name in ("profile", "quirks", "threads", "accumulation", "overflow") if rng.random() < 0.05
        }
        status, size, found = aclnn.aclnnConvolutionBackwardGetWorkspaceSize(*arguments, **keywords)
        statuses.add(int(status))
        assert (found is None) == (status != 0)
        assert isinstance(size, int)
        target = found if found is not None and rng.random() < 0.5 else pick()
        statuses.add(int(aclnn.aclnnConvolutionBackward(pick(), pick(), target, pick())))
        for call in (aclnn.aclSetAclOpExecutorRepeatable, aclnn.aclrtSynchronizeStream, aclnn.aclrtDestroyStream):
            assert isinstance(call(pick()), int)
        assert isinstance(aclnn.aclrtMemcpy(pick(), pick(), pick(), pick(), pick()), int)
        message = aclnn.aclGetRecentErrMsg()
        assert "internal error" not in (message or "")
        assert message is None or all(re.match(r"\d{6} ACL", line) for line in message.splitlines())
    assert statuses >= {0, 161001, 161002}
    assert 561000 not in statuses
