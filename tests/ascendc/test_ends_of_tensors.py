"""A kernel that goes behind the ends of its tensors is told so, with their own sizes, not with what is allocated."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ops.cli.main import main
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void add_one(GM_ADDR x, GM_ADDR y, uint32_t n) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  TQue<QuePosition::VECOUT, 1> out;
  pipe.InitBuffer(in, 1, 4096);
  pipe.InitBuffer(out, 1, 4096);
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer((__gm__ float*)x);
  to.SetGlobalBuffer((__gm__ float*)y);
  auto a = in.AllocTensor<float>();
  DataCopyPad(a, from, DataCopyExtParams{1, n * 4, 0, 0, 0}, DataCopyPadExtParams<float>{false, 0, 0, 0});  // the load
  in.EnQue(a);
  a = in.DeQue<float>();
  auto b = out.AllocTensor<float>();
  Adds(b, a, 1.0f, n);
  out.EnQue(b);
  in.FreeTensor(a);
  b = out.DeQue<float>();
  DataCopyPad(to, b, DataCopyExtParams{1, n * 4, 0, 0, 0});  // the store
  out.FreeTensor(b);
}
"""
COUNT, ROOM = 101, 512
"""Elements of the tensors, and bytes that are allocated for their 404."""


@pytest.fixture
def said(source_file, tmp_path, capsys):
    """Return a function of how many elements the kernel takes: exit code and words of ``npu-sim check``."""
    np.save(tmp_path / "x.npy", np.ones(COUNT, np.float32))
    path = source_file("add_one.cpp", SOURCE)

    def run(n):
        call = ["check", str(path), "--kernel", "add_one", "--arg", str(tmp_path / "x.npy")]
        code = main([*call, "--out", f"y:{COUNT}:fp32", "--arg", str(n)])
        return code, " ".join(capsys.readouterr().out.split())

    return run


def line_of(words):
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if words in line)


@pytest.mark.parametrize("n", [102, 104, 112, 128])
def test_what_is_behind_a_tensor_and_allocated_is_advice(said, n):
    beyond = 4 * (n - COUNT)
    code, words = said(n)
    assert code == 0
    assert f"{line_of('the store')}: ErrorWrite2/spare" in words
    assert f"writes {beyond} bytes behind the end of y, which has 404 bytes" in words
    assert (f"reads {beyond} bytes behind the end of x, which has 404 bytes" in words) == (4 * n > 416)
    assert (f"{line_of('the load')}: ErrorRead3/spare" in words) == (4 * n > 416)


def test_what_is_inside_a_tensor_is_none(said):
    code, words = said(COUNT)
    assert (code, "ErrorWrite" in words, "ErrorRead" in words) == (0, False, False)


def test_what_is_not_allocated_is_an_error_that_names_both_sizes(said):
    code, words = said(ROOM // 4 + 1)
    assert code == 1
    for name in "xy":
        first, end = map(int, re.search(rf"must stay inside {name} \[(\d+):(\d+)\] or the 108 spare", words).groups())
        assert end - first == 404
    assert "/spare" not in words
