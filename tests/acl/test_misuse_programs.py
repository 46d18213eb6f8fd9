"""Wrong uses in C++ programs: each is a documented status and a message that names the call, and the program goes on.

Uses of the runtime are programs of their own. Those of operators, each of which would load Python, are one after the
other in one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RUNTIME = {
    "malloc_null": (100000, "aclrtMalloc: devPtr must be an address, not a null pointer"),
    "malloc_nothing": (100000, "aclrtMalloc: size must be at least 1 byte, not 0"),
    "malloc_too_much": (207001, r"aclrtMalloc: size must be at most what this machine has left of \d+ bytes, not \d+"),
    "free_null": (100000, "aclrtFree: devPtr must be device memory, not a null pointer"),
    "free_host": (107000, "aclrtFree: devPtr must be what aclrtMalloc gave, not host memory at 0x[0-9a-f]+"),
    "free_inside": (107000, "aclrtFree: .*, not an address within the 64 bytes of aclrtMalloc 1"),
    "free_twice": (107000, "aclrtFree: .*, not device memory of aclrtMalloc 1, freed by aclrtFree"),
    "free_host_of_device": (107000, "aclrtFreeHost: .* not freed yet, not the 64 bytes of aclrtMalloc 1"),
    "copy_wrong_direction": (107000, "aclrtMemcpy: dst must be live device memory, not host memory at 0x[0-9a-f]+"),
    "copy_host_to_host": (
        107000,
        "aclrtMemcpy: dst must be host memory, not the 64 bytes of aclrtMalloc 1 of the dev.*",
    ),
    "copy_beyond_room": (107000, "aclrtMemcpy: count must be at most destMax = 32, not 64"),
    "copy_beyond_memory": (
        107000,
        "aclrtMemcpy: dst must have 128 bytes, not the 64 left of the 64 bytes of aclrt.* 1",
    ),
    "copy_null": (100000, "aclrtMemcpy: src must be memory, not a null pointer"),
    "copy_kind": (100000, "aclrtMemcpy: kind must be one of aclrtMemcpyKind, not 77"),
    "copy_freed": (
        107000,
        "aclrtMemcpyAsync: src must be live device memory, not device memory of aclrtMalloc 1, fre.*",
    ),
    "fill_host_memory_beyond": (107000, "aclrtMemset: count must be at most maxCount = 64, not 65"),
    "stream_null": (100000, "aclrtCreateStream: stream must be an address, not a null pointer"),
    "stream_destroyed_twice": (
        107017,
        "aclrtDestroyStream: stream must be a live aclrtStream, not a destroyed aclrtS.*",
    ),
    "stream_that_is_none": (107017, "aclrtSynchronizeStream: .* 0x[0-9a-f]+, which is no aclrtStream"),
    "stream_of_another_context": (107003, "aclrtSynchronizeStream: stream must be of the current context, not of .*"),
    "event_for_a_stream": (107017, "aclrtSynchronizeStream: stream must be a live aclrtStream, not an aclrtEvent"),
    "event_never_recorded": (
        107006,
        "aclrtEventElapsedTime: startEvent must have happened, not be waiting or never .*",
    ),
    "thread_without_device": (107002, r"aclrtMalloc: the thread must have a context \(.*\), not none"),
    "device_that_is_none": (107001, "aclrtSetDevice: deviceId must be 0, the one device there is, not 1"),
    "init_twice": (100002, "aclInit: it must be called once before aclFinalize, not again"),
    "callback_without_thread": (107015, r"aclrtLaunchCallback: stream must be one that a thread is subscribed to .*"),
    "shape_of_null": (161001, "aclGetViewShape: tensor must be a live aclTensor, not a null pointer"),
    "tensor_destroyed_twice": (
        161002,
        "aclDestroyTensor: argument must be a live aclTensor, not a destroyed aclTensor",
    ),
    "array_for_a_tensor": (161002, "aclDestroyTensor: argument must be a live aclTensor, not an aclIntArray"),
}
PHASE_1, PHASE_2 = "aclnnAvgPool2dBackwardGetWorkspaceSize: ", "aclnnAvgPool2dBackward: "
OPERATORS = {
    "tensor_null": (161001, PHASE_1 + "self must be .*, not a null pointer.*"),
    "tensor_destroyed": (161002, PHASE_1 + "self must be a live aclTensor, not a destroyed aclTensor"),
    "tensor_of_host_memory": (161002, PHASE_2 + "self data must be live device memory, not host memory at 0x[0-9a-f]+"),
    "tensor_beyond_memory": (161002, "aclCreateTensor: data must be at least 36 elements, not 35"),
    "executor_address_null": (161001, PHASE_1 + "executor must be an address, not a null pointer"),
    "mode_that_is_none": (161002, PHASE_1 + "cubeMathType must be .*, not 9.*"),
    "executor_null": (161001, PHASE_2 + "executor must be one that has not run, not a null pointer"),
    "executor_used_twice": (
        161002,
        PHASE_2 + "executor must be one that has not run, not a spent or destroyed aclOp.*",
    ),
    "executor_of_another_operator": (161002, "aclnnConvolutionBackward: executor must be .*, not of aclnnAvgPool2dB.*"),
    "executor_destroyed": (161002, PHASE_2 + "executor must be one that has not run, not a spent or destroyed aclOp.*"),
    "workspace_freed": (161002, PHASE_2 + "workspace must be live device memory, not .*, freed by aclrtFree"),
    "workspace_of_the_host": (161002, PHASE_2 + "workspace must be live device memory, not host memory at 0x[0-9a-f]+"),
    "output_freed": (161002, PHASE_2 + "gradInput data must be live device memory, not .*, freed by aclrtFree"),
    "launch_on_a_destroyed_stream": (
        107017,
        PHASE_2 + "stream must be a live aclrtStream, not a destroyed aclrtStream",
    ),
}


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(Path(__file__).parent / "programs" / "misuse.cpp")


@pytest.fixture(scope="module")
def operators(program, started):
    return started(program, *OPERATORS)


def check(said, use, status, words):
    assert re.search(rf"^{use} {status}\n{status} [A-Z_]+: {words}$", said, re.MULTILINE), said


@pytest.mark.parametrize("use", RUNTIME)
def test_wrong_use_of_the_runtime(program, started, use):
    done = started(program, use)
    assert (done.returncode, done.stderr) == (0, "")
    check(done.stdout, use, *RUNTIME[use])


def test_leak_is_reported_at_the_end(program, started):
    done = started(program, "leak")
    assert (done.returncode, done.stdout) == (0, "leak 0\n\n")
    wanted = "npu-sim: left at aclFinalize: the 40 bytes of aclrtMalloc 1 were not freed before aclrtResetDevice\n"
    assert done.stderr == wanted


@pytest.mark.parametrize("use", OPERATORS)
def test_wrong_use_of_an_operator(operators, use):
    assert (operators.returncode, operators.stderr) == (0, "")
    check(operators.stdout, use, *OPERATORS[use])
