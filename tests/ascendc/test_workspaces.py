"""Arguments that a kernel works in: nothing is known of them before, nothing is asked of them behind."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.errors import ShapeError
from ops.cli.main import main
from tests.ascendc.compiler import require_compiler

require_compiler()

THROUGH = """
#include "kernel_operator.h"
using namespace AscendC;
// y = x + x by way of the workspace: each core stores `stored` floats of its 64 there, and reads all of them back.
extern "C" __global__ __aicore__ void through(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, uint32_t stored) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, 256);
  LocalTensor<float> local = buffer.Get<float>();
  GlobalTensor<float> from, to, room;
  from.SetGlobalBuffer((__gm__ float*)x + 64 * GetBlockIdx(), 64);
  to.SetGlobalBuffer((__gm__ float*)y + 64 * GetBlockIdx(), 64);
  room.SetGlobalBuffer((__gm__ float*)workspace + 64 * GetBlockIdx(), 64);
  DataCopy(local, from, 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(room, local, stored);
  PipeBarrier<PIPE_ALL>();
  DataCopy(local, room, 64);
  PipeBarrier<PIPE_ALL>();
  Add(local, local, local, 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, local, 64);
}
"""
BLOCKS = 3


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("through.cpp", THROUGH)


@pytest.fixture(scope="module")
def kernel(source):
    return ascendc.compile(source)


def tensors():
    x = np.arange(64 * BLOCKS, dtype=np.float32)
    return x, np.zeros_like(x), np.full(64 * BLOCKS + 5, 7, np.float32)


def test_kernel_works_in_it_and_leaves_the_array_alone(kernel):
    x, y, room = tensors()
    room.setflags(write=False)
    run = kernel(x, y, room, 64, blocks=BLOCKS, outputs=[1], workspace=[2])
    assert not run.findings
    assert (y == 2 * x).all()
    assert (room == 7).all()


def test_what_was_not_written_there_is_not_known(kernel):
    x, y, room = tensors()
    run = kernel.check(x, y, room, 48, blocks=BLOCKS, outputs=[1], workspace=[2])
    found = [one for one in run.findings if one.severity == "error"]
    assert len(found) == BLOCKS
    assert all("reads bytes that nothing has written" in str(one) and one.line.line == 18 for one in found)
    assert (np.isnan(y.reshape(BLOCKS, 64)).sum(1) == 16).all()  # poison, not what the array held
    # as an array like others it has a content
    run = kernel.check(x, y, room, 48, blocks=BLOCKS, outputs=[1])
    assert not run.findings
    assert (y.reshape(BLOCKS, 64)[:, 48:] == 14).all()
    assert (room.reshape(-1)[:48] == x[:48]).all()


@pytest.mark.parametrize("numbers", [[1], [3], [4], [-1]])
def test_only_arrays_that_are_no_outputs_can_be_one(kernel, numbers):
    x, y, room = tensors()
    with pytest.raises(ShapeError, match="workspace of through must be numbers of arrays that are no outputs"):
        kernel(x, y, room, 64, blocks=BLOCKS, outputs=[1], workspace=numbers)


def test_command_line_places_it_by_its_name(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, _, _ = tensors()
    np.save("x.npy", x)
    call = ["--blocks", "3", "--arg", "x.npy", "--out", "y:192:fp32", "--workspace", "workspace:192:fp32"]
    assert main(["check", str(source), *call, "--arg", "64"]) == 0
    assert main(["check", str(source), *call, "--arg", "32"]) == 1
    assert "workspace" in capsys.readouterr().out
    assert main(["check", str(source), *call, "--workspace", "y:192:fp32", "--arg", "64"]) == 2
    assert "--workspace must begin with a name of its own" in capsys.readouterr().err
