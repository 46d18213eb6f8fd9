"""C++ programs, compiled as they are: what they compute, where, and what the variables print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "acl"


@pytest.fixture(scope="module")
def example(compiled):
    return compiled(EXAMPLES / "avg_pool2d_backward.cpp")


def test_example_computes_the_gradient_and_leaves_nothing(example, started):
    done = started(example, NPU_SIM_PRODUCT="310p")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Ascend310P3: 144 elements, 0 wrong\n"


def test_variables_print_what_run_check_and_perf_do(example, started, tmp_path):
    trace = tmp_path / "trace.json"
    done = started(example, NPU_SIM_EXPLAIN="1", NPU_SIM_CHECK="1", NPU_SIM_PERF=str(trace), NPU_SIM_PRODUCT="910")
    assert (done.returncode, done.stdout) == (0, "Ascend910A: 144 elements, 0 wrong\n")
    assert "aclnnAvgPool2dBackward (Ascend910A): gradOutput fp32 1x3x3x4" in done.stderr
    assert "route cube" in done.stderr
    assert "1 call, 7 launches: 0 findings" in done.stderr
    assert "critical path" in done.stderr
    assert done.stderr.count("written: ") == 1
    assert json.loads(trace.read_text())["traceEvents"]


def test_product_that_does_not_exist_is_told_once(example, started):
    done = started(example, NPU_SIM_PRODUCT="nix")
    assert done.returncode == 1
    assert "GetWorkspaceSize" in done.stderr
    assert "gave 561000" in done.stderr
    assert done.stderr.count("npu-sim: nothing can be computed: Product must be a known SoC version") == 1


def test_what_fails_on_a_stream_comes_back_from_the_call_that_waits(example, started):
    done = started(example, NPU_SIM_MEMORY="1KiB")
    assert (done.returncode, done.stdout) == (1, "")
    first, second, third, *_ = done.stderr.splitlines()
    assert first == "aclrtSynchronizeStream(stream) gave 507015"
    assert second.startswith("507015 ACL_ERROR_RT_AICORE_EXCEPTION: aclrtSynchronizeStream: ")
    assert third.startswith("361001 ACLNN_ERR_RUNTIME_ERROR: aclnnAvgPool2dBackward: run must succeed, not fail with")
