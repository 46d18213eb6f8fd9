"""Every wrong use is a documented status whose message names the call, and nothing breaks."""

from __future__ import annotations

import threading
from ctypes import CFUNCTYPE, byref, c_float, c_int64, c_size_t, c_uint64, c_void_p

import numpy as np
import pytest

from tests.acl.library import HOST_TO_HOST, ON_DEVICE, TO_DEVICE, TO_HOST, Pooling, address

HOST = np.zeros(256, np.uint8)
NULL, NO_HANDLE, INVALID, RT_INVALID = 161001, 107017, 161002, 107000


@pytest.fixture
def memory(lib):
    made = lib.malloc(64)
    yield made
    lib.aclrtFree(made)
    lib.message()


@pytest.fixture
def pooling(lib):
    made = Pooling(lib)
    yield made
    made.close()


def refused(lib, status, wanted, *words):
    text = lib.message()
    assert status == wanted, text
    assert text.startswith(f"{wanted} "), text
    for word in words:
        assert word in text, text


def inside(pointer: c_void_p, offset: int) -> c_void_p:
    return c_void_p(pointer.value + offset)


@pytest.mark.parametrize(
    ("size", "status", "words"),
    [(0, 100000, "size must be at least 1 byte, not 0"), (1 << 60, 207001, f"not {1 << 60}")],
)
def test_size_of_an_allocation(lib, size, status, words):
    pointer = c_void_p()
    for name in ("aclrtMalloc", "aclrtMallocHost"):
        options = (0,) if name == "aclrtMalloc" else ()
        refused(lib, getattr(lib, name)(byref(pointer), c_size_t(size), *options), status, name, words)
        refused(lib, getattr(lib, name)(None, c_size_t(8), *options), 100000, name, "not a null pointer")


def test_free(lib, memory):
    refused(lib, lib.aclrtFree(None), 100000, "aclrtFree: devPtr must be device memory, not a null pointer")
    refused(lib, lib.aclrtFree(address(HOST)), RT_INVALID, "not host memory at")
    refused(lib, lib.aclrtFree(inside(memory, 8)), RT_INVALID, "an address within the 64 bytes of aclrtMalloc")
    refused(lib, lib.aclrtFreeHost(memory), RT_INVALID, "aclrtFreeHost", "the 64 bytes of aclrtMalloc")
    refused(lib, lib.aclrtFreeHost(None), 100000, "aclrtFreeHost")
    assert lib.aclrtFree(memory) == 0
    refused(lib, lib.aclrtFree(memory), RT_INVALID, "device memory of aclrtMalloc", "freed by aclrtFree")
    host = lib.made("aclrtMallocHost", c_size_t(16))
    assert lib.aclrtFreeHost(host) == 0
    refused(lib, lib.aclrtFreeHost(host), RT_INVALID, "must be what aclrtMallocHost gave and not freed yet")


def test_copy_direction(lib, memory):
    other = lib.malloc(64)
    for kind, to, source, words in (
        (TO_DEVICE, address(HOST), address(HOST), "dst must be live device memory, not host memory at"),
        (TO_DEVICE, memory, other, "src must be host memory, not the 64 bytes of aclrtMalloc"),
        (TO_HOST, memory, other, "dst must be host memory"),
        (TO_HOST, address(HOST), address(HOST), "src must be live device memory"),
        (ON_DEVICE, memory, address(HOST), "src must be live device memory"),
        (HOST_TO_HOST, address(HOST), memory, "src must be host memory"),
    ):
        refused(lib, lib.copy(to, 64, source, 64, kind), RT_INVALID, "aclrtMemcpy", words)
    refused(lib, lib.copy(memory, 64, other, 64, 99), 100000, "kind must be one of aclrtMemcpyKind, not 99")
    lib.aclrtFree(other)
    refused(lib, lib.copy(address(HOST), 64, other, 64, TO_HOST), RT_INVALID, "src", "freed by aclrtFree")


def test_copy_bounds(lib, memory):
    at = address(HOST)
    refused(lib, lib.copy(memory, 64, None, 64, TO_DEVICE), 100000, "src must be memory, not a null pointer")
    refused(lib, lib.copy(None, 64, at, 64, TO_DEVICE), 100000, "dst must be memory")
    refused(lib, lib.copy(memory, 32, at, 33, TO_DEVICE), RT_INVALID, "count must be at most destMax = 32, not 33")
    refused(lib, lib.copy(memory, 99, at, 65, TO_DEVICE), RT_INVALID, "dst must have 65 bytes, not the 64 left of")
    refused(lib, lib.copy(at, 99, inside(memory, 60), 5, TO_HOST), RT_INVALID, "src must have 5 bytes, not the 4 left")
    pinned = lib.made("aclrtMallocHost", c_size_t(16))
    refused(lib, lib.copy(pinned, 64, memory, 17, TO_HOST), RT_INVALID, "not the 16 left of aclrtMallocHost")
    assert lib.aclrtFreeHost(pinned) == 0
    assert lib.copy(None, 0, None, 0, TO_DEVICE) == 0
    refused(lib, lib.aclrtMemset(memory, c_size_t(99), 1, c_size_t(65)), RT_INVALID, "aclrtMemset", "65 bytes")
    refused(lib, lib.aclrtMemset(memory, c_size_t(8), 1, c_size_t(9)), RT_INVALID, "maxCount = 8, not 9")
    status = lib.aclrtMemcpyAsync(memory, c_size_t(64), at, c_size_t(65), TO_DEVICE, None)
    refused(lib, status, RT_INVALID, "aclrtMemcpyAsync")
    wide = lib.aclrtMemcpy2d(
        memory, c_size_t(16), at, c_size_t(16), c_size_t(16), c_size_t(5), TO_DEVICE
    )  # 80 bytes of 64
    refused(lib, wide, RT_INVALID, "aclrtMemcpy2d", "80 bytes")


def test_devices_and_contexts(lib):
    refused(lib, lib.aclrtSetDevice(7), 107001, "deviceId must be 0, the one device there is, not 7")
    context = lib.made("aclrtCreateContext", 0)
    value = c_int64()
    refused(lib, lib.aclrtCtxGetSysParamOpt(0, byref(value)), 107021, "aclrtCtxGetSysParamOpt")
    refused(lib, lib.aclrtCtxSetSysParamOpt(17, c_int64(1)), 100000, "opt must be one of aclSysParamOpt, not 17")
    assert lib.aclrtDestroyContext(context) == 0
    refused(lib, lib.aclrtSynchronizeDevice(), 107002, "one that was destroyed or whose device was reset")
    refused(lib, lib.aclrtSetCurrentContext(context), NO_HANDLE, "not a destroyed aclrtContext")
    refused(lib, lib.aclrtDestroyContext(context), NO_HANDLE, "aclrtDestroyContext")
    assert lib.aclrtSetDevice(0) == 0
    assert lib.aclrtResetDevice(0) == 0  # one user less; the device stays


def test_thread_without_a_context(lib):
    statuses = []

    def use():
        statuses.append(lib.aclrtMalloc(byref(c_void_p()), c_size_t(8), 0))
        statuses.append(lib.message())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert statuses[0] == 107002
    assert "the thread must have a context (aclrtSetDevice, aclrtSetCurrentContext), not none" in statuses[1]
    assert lib.message() == ""  # messages are the thread's own


def test_streams_and_events(lib):
    stream, event = lib.made("aclrtCreateStream"), lib.made("aclrtCreateEvent")
    elapsed = c_float()
    status = lib.aclrtEventElapsedTime(byref(elapsed), event, event)
    refused(lib, status, 107006, "startEvent must have happened")
    refused(lib, lib.aclrtSynchronizeStream(event), NO_HANDLE, "stream must be a live aclrtStream, not an aclrtEvent")
    refused(lib, lib.aclrtRecordEvent(stream, stream), NO_HANDLE, "event must be a live aclrtEvent, not an aclrtStream")
    refused(lib, lib.aclrtLaunchHostFunc(stream, None, None), 100000, "aclrtLaunchHostFunc")
    other = lib.made("aclrtCreateContext", 0)
    refused(lib, lib.aclrtSynchronizeStream(stream), 107003, "stream must be of the current context")
    assert lib.aclrtDestroyContext(other) == 0
    assert lib.aclrtSetDevice(0) == 0
    assert lib.aclrtResetDevice(0) == 0
    assert lib.aclrtDestroyEvent(event) == 0
    refused(lib, lib.aclrtSynchronizeEvent(event), NO_HANDLE, "not a destroyed aclrtEvent")
    refused(lib, lib.aclrtDestroyEvent(None), 100000, "not a null pointer")
    assert lib.aclrtDestroyStream(stream) == 0
    refused(lib, lib.aclrtSynchronizeStream(stream), NO_HANDLE, "not a destroyed aclrtStream")
    refused(lib, lib.aclrtDestroyStream(stream), NO_HANDLE, "aclrtDestroyStream")
    refused(lib, lib.aclrtSynchronizeStream(address(HOST)), NO_HANDLE, "which is no aclrtStream")


def test_waiting_ends_in_time(lib):
    stream, event = lib.made("aclrtCreateStream"), lib.made("aclrtCreateEvent")
    gate = threading.Event()
    hold = CFUNCTYPE(None, c_void_p)(lambda _: gate.wait(60) and None)
    assert lib.aclrtLaunchHostFunc(stream, hold, None) == 0
    assert lib.aclrtRecordEvent(event, stream) == 0
    refused(lib, lib.aclrtSynchronizeStreamWithTimeout(stream, 20), 507046, "busy when timeout is over")
    refused(lib, lib.aclrtSynchronizeEventWithTimeout(event, 20), 507047, "event must happen in time")
    refused(lib, lib.aclrtEventElapsedTime(byref(c_float()), event, event), 507006, "must have happened")
    gate.set()
    assert lib.aclrtSynchronizeStream(stream) == 0
    assert (lib.aclrtDestroyEvent(event), lib.aclrtDestroyStream(stream)) == (0, 0)


def test_objects_of_a_call(lib, pooling):
    refused(lib, pooling.plan(gradOutput=None), NULL, "aclnnAvgPool2dBackwardGetWorkspaceSize", "gradOutput")
    refused(lib, pooling.plan(size=None), NULL, "workspaceSize must be an address, not a null pointer")
    refused(lib, pooling.plan(executor=None), NULL, "executor must be an address")
    refused(lib, pooling.plan(gradOutput=pooling.kernel), INVALID, "gradOutput must be a live aclTensor, not an aclInt")
    refused(lib, pooling.plan(kernel=pooling.tensors["self"]), INVALID, "kernelSize must be a live aclIntArray")
    refused(lib, pooling.plan(self=address(HOST)), INVALID, "which is no aclTensor")
    refused(lib, pooling.plan(cube_math_type=9), INVALID, "cubeMathType")
    assert lib.aclDestroyTensor(pooling.tensors["self"]) == 0
    refused(lib, pooling.plan(), INVALID, "self must be a live aclTensor, not a destroyed aclTensor")
    refused(lib, lib.aclDestroyTensor(pooling.tensors["self"]), INVALID, "aclDestroyTensor", "a destroyed aclTensor")
    refused(lib, lib.aclDestroyIntArray(pooling.tensors["gradInput"]), INVALID, "not an aclTensor")
    assert lib.aclDestroyTensor(None) == 0
    assert lib.aclCreateIntArray(None, c_uint64(2)) is None
    assert "aclCreateIntArray: value must be 2 values, not a null pointer" in lib.message()


def test_tensor_larger_than_its_memory(lib, pooling):
    small = lib.malloc(16)
    tensor = lib.tensor((1, 3, 3, 4), small)
    refused(lib, pooling.plan(gradOutput=tensor), INVALID, "at least 36 elements, not 4")
    assert (lib.aclDestroyTensor(tensor), lib.aclrtFree(small)) == (0, 0)


def test_executor_runs_once(lib, pooling):
    refused(lib, pooling.launch(executor=c_void_p()), NULL, "executor must be one that has not run, not a null pointer")
    assert pooling.plan() == 0
    wrong = lib.aclnnConvolutionBackward(None, c_uint64(0), pooling.executor, None)
    refused(lib, wrong, INVALID, "executor must be one of aclnnConvolutionBackwardGetWorkspaceSize, not of aclnnAvg")
    assert pooling.launch(*_workspace(pooling)) == 0
    refused(lib, pooling.launch(), INVALID, "aclnnAvgPool2dBackward", "a spent or destroyed aclOpExecutor")
    refused(lib, lib.aclSetAclOpExecutorRepeatable(pooling.executor), INVALID, "aclSetAclOpExecutorRepeatable")
    refused(lib, lib.aclDestroyAclOpExecutor(pooling.executor), INVALID, "aclDestroyAclOpExecutor")
    assert lib.aclrtSynchronizeStream(None) == 0
    assert pooling.plan() == 0
    assert lib.aclDestroyAclOpExecutor(pooling.executor) == 0
    refused(lib, pooling.launch(), INVALID, "a spent or destroyed aclOpExecutor")


def _workspace(pooling: Pooling) -> tuple[c_void_p | None, int]:
    size = pooling.size.value
    if size == 0:
        return None, 0
    pooling.memory["workspace"] = pooling.library.malloc(size)
    return pooling.memory["workspace"], size


def test_workspace(lib):
    pooling = Pooling(lib, channels=17)
    assert pooling.plan(cube_math_type=2) == 0
    workspace, size = _workspace(pooling)
    assert size > 0
    refused(lib, pooling.launch(None, size), NULL, "workspace must be memory of", "not a null pointer")
    refused(lib, pooling.launch(workspace, size - 1), INVALID, f"workspaceSize must be at least {size}, not {size - 1}")
    refused(lib, pooling.launch(workspace, size + 1), INVALID, f"workspace must have {size + 1} bytes, not the {size}")
    refused(lib, pooling.launch(address(HOST), 8), INVALID, "workspace must be live device memory, not host memory at")
    assert lib.aclrtFree(workspace) == 0
    refused(lib, pooling.launch(workspace, size), INVALID, "workspace", "freed by aclrtFree")
    pooling.close()


def test_memory_of_tensors_at_phase_2(lib, pooling):
    assert pooling.plan() == 0
    workspace = _workspace(pooling)
    assert lib.aclrtFree(pooling.memory["gradInput"]) == 0
    refused(lib, pooling.launch(*workspace), INVALID, "gradInput data must be live device memory", "freed by aclrtFree")
    tensor = lib.tensor((1, 3, 6, 8), address(HOST))
    assert pooling.plan(gradInput=tensor) == 0
    refused(lib, pooling.launch(*workspace), INVALID, "gradInput data must be live device memory, not host memory at")
    nothing = lib.tensor((1, 3, 6, 8), None)
    assert pooling.plan(gradInput=nothing) == 0
    refused(lib, pooling.launch(*workspace), NULL, "gradInput data must be device memory, not a null pointer")
    assert (lib.aclDestroyTensor(tensor), lib.aclDestroyTensor(nothing)) == (0, 0)


def test_stream_of_phase_2(lib, pooling):
    stream = lib.made("aclrtCreateStream")
    assert lib.aclrtDestroyStream(stream) == 0
    assert pooling.plan() == 0
    workspace = _workspace(pooling)
    refused(lib, pooling.launch(*workspace, stream=stream), NO_HANDLE, "not a destroyed aclrtStream")
    # what is refused uses nothing up
    assert pooling.launch(*workspace) == 0
    assert lib.aclrtSynchronizeStream(None) == 0
