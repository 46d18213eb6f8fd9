"""How programs end, what they leave, and what runs beside them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "programs" / "runtime.cpp"


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(SOURCE, "-g", "-rdynamic")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("touch", "byte 12 of the 64 bytes of aclrtMalloc 2; aclrtMemcpy copies it to the host"),
        ("touch_freed", "device memory of aclrtMalloc 2, freed by aclrtFree"),
    ],
)
def test_touch_of_device_memory_is_told_and_ends_the_program(program, started, what, words):
    done = started(program, what)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "")
    line, *frames = done.stderr.splitlines()
    assert line.startswith("npu-sim: the host must not touch device memory at 0x")
    assert line.endswith(words)
    assert str(program) in frames[0]


def test_what_is_left_is_listed_by_the_call_that_made_it(program, started):
    done = started(program, "leak")
    assert done.returncode == 0
    assert [line.removeprefix("npu-sim: left at aclFinalize: ") for line in done.stderr.splitlines()] == [
        "the 40 bytes of aclrtMalloc 1 were not freed before aclrtResetDevice",
        "the 24 bytes of aclrtMallocHost 1 were not freed",
        "aclrtStream 1 of aclrtCreateStream without aclrtDestroyStream",
        "aclrtEvent 1 of aclrtCreateEvent without aclrtDestroyEvent",
        "aclTensor 1 of aclCreateTensor without aclDestroyTensor",
        "aclIntArray 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ... of aclCreateIntArray without "
        "aclDestroyIntArray",
        "aclFloatArray 1 of aclCreateFloatArray without aclDestroyFloatArray",
        "aclBoolArray 1 of aclCreateBoolArray without aclDestroyBoolArray",
    ]


def test_memory_freed_too_early_is_told_and_still_there_for_the_stream(program, started):
    done = started(program, "free_early")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "npu-sim: aclrtFree must come behind aclrtSynchronizeStream: the 4096 bytes of aclrtMalloc 1 are still in use "
        "by what was given to a stream\n"
    )


def test_stream_destroyed_at_work_is_told_and_waited_for(program, started):
    done = started(program, "destroy_busy")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "npu-sim: aclrtDestroyStream must come behind aclrtSynchronizeStream: stream 1 was still at work, and was "
        "waited for\n"
    )


def test_streams_keep_their_order_and_events_join_them(program, started):
    done = started(program, "order")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_work_begins_by_itself_behind_calls_that_were_waited_for(program, started):
    done = started(program, "unwatched")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_begin_and_end(program, started):
    done = started(program, "life")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "npu-sim: left at aclFinalize: the 8 bytes of aclrtMalloc 1 were not freed before aclrtResetDevice\n"
    )


def test_program_that_ends_in_the_middle_of_its_work_ends_well(program, started):
    done = started(program, "leave")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_callbacks_run_where_they_are_asked_for(program, started):
    done = started(program, "callbacks")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_threads_compute_beside_each_other(program, started):
    done = started(program, "threads", "8", "10")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 wrong\n", "")
