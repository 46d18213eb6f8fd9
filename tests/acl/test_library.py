"""The libraries from Python by ctypes: results, repeatable executors, messages, and that names are the interface's."""

from __future__ import annotations

import re
from ctypes import byref, c_float, c_int64, c_size_t, c_uint64, c_void_p

import numpy as np
import pytest

from ops import aclnn
from ops.acl.build import LIBRARIES, SOURCES
from ops.common.status import AclnnStatus
from tests.acl.library import Pooling, expected


def gradient(seed):
    return np.random.default_rng(seed).integers(-8, 9, (1, 3, 3, 4)).astype(np.float32)


def test_call_computes_what_the_definition_says(lib):
    pooling = Pooling(lib)
    lib.write(pooling.memory["gradOutput"], gradient(0))
    assert pooling.plan() == 0
    workspace = lib.malloc(pooling.size.value) if pooling.size.value else None
    stream = lib.made("aclrtCreateStream")
    assert pooling.launch(workspace, pooling.size.value, stream=stream) == 0
    assert lib.aclrtSynchronizeStream(stream) == 0
    result = lib.read(np.empty((1, 3, 6, 8), np.float32), pooling.memory["gradInput"])
    np.testing.assert_array_equal(result, expected(gradient(0)))
    assert lib.aclrtDestroyStream(stream) == 0
    pooling.close()


def test_repeatable_executor_reads_its_tensors_anew(lib):
    pooling = Pooling(lib)
    assert pooling.plan() == 0
    assert lib.aclSetAclOpExecutorRepeatable(pooling.executor) == 0
    workspace = lib.malloc(pooling.size.value) if pooling.size.value else None
    for seed in range(3):
        lib.write(pooling.memory["gradOutput"], gradient(seed))
        assert pooling.launch(workspace, pooling.size.value) == 0
        assert lib.aclrtSynchronizeDevice() == 0
        result = lib.read(np.empty((1, 3, 6, 8), np.float32), pooling.memory["gradInput"])
        np.testing.assert_array_equal(result, expected(gradient(seed)))
    assert lib.aclDestroyAclOpExecutor(pooling.executor) == 0
    pooling.close()


def test_repeatable_executor_takes_other_memory(lib):
    pooling, other = Pooling(lib), Pooling(lib)
    assert pooling.plan() == 0
    executor, tensors = pooling.executor, pooling.tensors
    refused = lib.aclSetInputTensorAddr(executor, c_size_t(0), tensors["gradOutput"], other.memory["gradOutput"])
    assert (refused, "runs once" in lib.message()) == (161002, True)
    assert lib.aclSetAclOpExecutorRepeatable(executor) == 0
    workspace = lib.malloc(pooling.size.value) if pooling.size.value else None
    for seed, chosen in enumerate((pooling, other, other, pooling)):
        lib.write(chosen.memory["gradOutput"], gradient(seed))
        memory = chosen.memory
        set_input = lib.aclSetInputTensorAddr if seed % 2 else lib.aclSetTensorAddr
        assert set_input(executor, c_size_t(0), tensors["gradOutput"], memory["gradOutput"]) == 0, lib.message()
        assert lib.aclSetOutputTensorAddr(executor, c_size_t(0), tensors["gradInput"], memory["gradInput"]) == 0
        assert pooling.launch(workspace, pooling.size.value) == 0, lib.message()
        assert lib.aclrtSynchronizeStream(None) == 0
        result = lib.read(np.empty((1, 3, 6, 8), np.float32), memory["gradInput"])
        np.testing.assert_array_equal(result, expected(gradient(seed)))
    for status, words, call, index, tensor in (
        (561103, "executor must be an object, not a null", lib.aclSetTensorAddr, 0, None),
        (561103, "tensor must be an object, not a null", lib.aclSetTensorAddr, 0, None),
        (161002, "index must be below 1, not 1 (aclnnAvgPool2dBackward)", lib.aclSetOutputTensorAddr, 1, "gradInput"),
        (161002, "index must be below 3, not 3", lib.aclSetTensorAddr, 3, "gradInput"),
        (161002, "tensor must be one that aclnnAvgPool2dBackward was", lib.aclSetInputTensorAddr, 1, "gradInput"),
        (161002, "tensor lists", lib.aclSetDynamicInputTensorAddr, 0, "gradInput"),
    ):
        own = None if words.startswith("executor") else executor
        got = call(
            own, c_size_t(index), *([c_size_t(0)] if "Dynamic" in call.__name__ else []), tensors.get(tensor), None
        )
        text = lib.message()
        assert (got, words in text) == (status, True), text
    # memory too small, or none, is phase 2's to refuse
    small = lib.malloc(16)
    assert lib.aclSetOutputTensorAddr(executor, c_size_t(0), tensors["gradInput"], small) == 0
    assert pooling.launch(workspace, pooling.size.value) == 161002
    assert "gradInput data must have 576 bytes, not the 16 left of" in lib.message()
    assert lib.aclDestroyAclOpExecutor(executor) == 0
    pooling.close()
    other.close()


def test_tensor_with_strides_and_an_offset_into_its_memory(lib):
    pooling = Pooling(lib)
    whole = np.zeros((1, 4, 3, 8), np.float32)
    whole[:, 1:, :, ::2] = gradient(5)
    memory = lib.malloc(whole.nbytes)
    lib.write(memory, whole)
    shape, strides, storage = ((c_int64 * 4)(*values) for values in ((1, 3, 3, 4), (96, 24, 8, 2), whole.shape))
    made = lib.aclCreateTensor(shape, c_uint64(4), 0, strides, c_int64(24), 0, storage, c_uint64(4), memory)
    pooling.tensors["gradOutput"] = type(memory)(made)
    assert pooling.plan() == 0, lib.message()
    workspace = lib.malloc(pooling.size.value) if pooling.size.value else None
    assert pooling.launch(workspace, pooling.size.value) == 0, lib.message()
    assert lib.aclrtSynchronizeStream(None) == 0
    result = lib.read(np.empty((1, 3, 6, 8), np.float32), pooling.memory["gradInput"])
    np.testing.assert_array_equal(result, expected(gradient(5)))
    pooling.close()


def test_options_belong_to_the_context(lib):
    value = c_int64()
    assert lib.aclrtCtxSetSysParamOpt(0, c_int64(1)) == 0
    assert lib.aclrtCtxGetSysParamOpt(0, byref(value)) == 0
    assert value.value == 1
    other = lib.made("aclrtCreateContext", 0)
    assert lib.aclrtCtxGetSysParamOpt(0, byref(value)) == 107021
    assert lib.aclrtDestroyContext(other) == 0
    assert lib.aclrtSetDevice(0) == 0
    assert lib.aclrtCtxSetSysParamOpt(0, c_int64(0)) == 0
    assert lib.aclrtResetDevice(0) == 0
    lib.message()


def test_messages_are_the_latest_first_and_read_once(lib):
    assert lib.aclrtFree(None) != 0
    assert lib.aclrtFreeHost(None) != 0
    assert [line.split(": ")[1] for line in lib.message().splitlines()] == ["aclrtFreeHost", "aclrtFree"]
    assert lib.message() == ""


def test_address_of_flags_between_cores_is_no_device_memory(lib):
    address = c_void_p()
    assert lib.aclrtGetHardwareSyncAddr(byref(address)) == 0
    assert address.value
    assert lib.aclrtFree(address) != 0
    assert lib.aclrtGetHardwareSyncAddr(None) == 100000
    assert "addr must be an address, not a null pointer" in lib.message()


def test_soc_and_pitched_copy(lib):
    assert lib.aclrtGetSocName() == b"Ascend910B2"
    memory, host = lib.malloc(12), np.arange(20, dtype=np.uint8)
    arguments = (c_size_t(4), host.ctypes.data_as(type(memory)), c_size_t(10), c_size_t(4), c_size_t(2), 1)
    assert lib.aclrtMemcpy2d(memory, *arguments) == 0
    assert lib.read(np.empty(8, np.uint8), memory).tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert lib.aclrtFree(memory) == 0


def test_half_precision_is_numpys(lib):
    halves = np.arange(1 << 16, dtype=np.uint16)
    back = np.array([lib.aclFloat16ToFloat(int(half)) for half in halves[::7]], np.float32)
    np.testing.assert_array_equal(back, halves[::7].view(np.float16).astype(np.float32))
    rng = np.random.default_rng(1)
    floats = rng.integers(0, 1 << 32, 4000, np.uint32).view(np.float32)
    near = rng.uniform(2.0**-26, 2.0**-13, 4000).astype(np.float32)
    ties = (halves[:31744:31].view(np.float16).astype(np.float64) + 2.0**-25).astype(np.float32)
    edges = np.float32([65504, 65519.996, 65520, np.inf, -np.inf, 0, -0.0, 2**-24, 2**-25, 2**-14])
    for value in np.concatenate([floats[~np.isnan(floats)], near, ties, edges]):
        with np.errstate(over="ignore"):
            wanted = int(np.float16(value).view(np.uint16))
        assert lib.aclFloatToFloat16(c_float(float(value))) == wanted, value


def _header(sdk, name):
    return (sdk.include / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [aclnn.aclDataType, aclnn.aclFormat])
def test_enumerators_of_the_header_are_those_of_the_python_interface(sdk, kind):
    found = dict(re.findall(r"\b(ACL_\w+) = (-?\d+)", _header(sdk, "acl/acl_base.h")))
    names = {name: int(member) for name, member in kind.__members__.items() if name.startswith("ACL_")}
    assert names
    assert {name: int(found.get(name, -99)) for name in names} == names


def test_statuses_of_the_header_are_those_of_the_operators(sdk):
    found = dict(re.findall(r"aclnnStatus (ACLNN_\w+) = (\d+);", _header(sdk, "aclnn/acl_meta.h")))
    assert len(found) > 8
    for name, number in found.items():
        assert AclnnStatus[name] == int(number)


def test_every_function_of_the_headers_is_in_a_library(lib, sdk):
    names = set()
    for path in sorted(sdk.include.rglob("*.h")):
        names |= set(re.findall(r"ACL_FUNC_VISIBILITY[^;(]*?\*?(acl\w+)\(", path.read_text(encoding="utf-8")))
    assert len(names) > 80
    assert {name for name in names if not hasattr(lib, name)} == set()


def test_sources_are_all_built():
    assert {path.stem for path in SOURCES.glob("*.cpp")} == {name for names in LIBRARIES.values() for name in names}
