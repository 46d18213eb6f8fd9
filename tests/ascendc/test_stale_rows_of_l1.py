"""Rows of L1 that a transposed load takes along from an earlier life of its buffer: a note unless an Mmad uses them."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

PIXELS, CHANNELS = 20, 16
SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;

// y = x^T x of 20 pixels of 2 x 8 channels, float: the load takes whole groups of 8 pixels, `depth` of 24 are used.
extern "C" __global__ __aicore__ void squares(GM_ADDR x, GM_ADDR y, int32_t depth) {
  TPipe pipe;
  TQue<TPosition::A1, 1> l1;
  TQue<TPosition::A2, 1> left;
  TQue<TPosition::B2, 1> right;
  TQue<TPosition::CO1, 1> sums;
  pipe.InitBuffer(l1, 1, 2048);
  pipe.InitBuffer(left, 1, 4096);
  pipe.InitBuffer(right, 1, 4096);
  pipe.InitBuffer(sums, 1, 1024);
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x);
  out.SetGlobalBuffer((__gm__ float*)y);

  auto cleared = l1.AllocTensor<float>();
  InitConstValue(cleared, {1, 64, 0, 0.0f});
  l1.EnQue(cleared);
  l1.FreeTensor(l1.DeQue<float>());

  auto image = l1.AllocTensor<float>();
  DataCopy(image, in, DataCopyParams(2, 20, 0, 4));  // planes of 24 pixels, of which 20 are there
  l1.EnQue(image);
  image = l1.DeQue<float>();
  LoadData3DParamsV2<float> p;
  p.l1H = 1; p.l1W = 24; p.channelSize = 16; p.kExtension = 16; p.mExtension = 24; p.enTranspose = true;
  auto a = left.AllocTensor<float>();
  LoadData(a, image, p);
  left.EnQue(a);
  auto b = right.AllocTensor<float>();
  LoadData(b, image, p);
  right.EnQue(b);
  l1.FreeTensor(image);

  a = left.DeQue<float>();
  b = right.DeQue<float>();
  auto c = sums.AllocTensor<float>();
  MmadParams m;
  m.m = 16; m.n = 16; m.k = depth; m.cmatrixInitVal = true; m.kDirectionAlign = true;
  Mmad(c, a, b, m);
  left.FreeTensor(a);
  right.FreeTensor(b);
  sums.EnQue(c);
  c = sums.DeQue<float>();
  Fixpipe<float, float, CFG_ROW_MAJOR>(out, c, FixpipeParamsV220(16, 16, 16, 16, false));
  sums.FreeTensor(c);
}
"""


@pytest.fixture(scope="module")
def kernel(source_file):
    return ascendc.compile(source_file("squares.cpp", SOURCE), product="Ascend910B2")


@pytest.mark.parametrize(("depth", "kinds"), [(20, {Kind.READ_UNUSED}), (24, {Kind.READ_STALE})])
def test_what_no_mmad_uses_is_a_note(kernel, depth, kinds):
    x = np.random.default_rng(depth).integers(-4, 5, (PIXELS, CHANNELS)).astype(np.float32)
    planes = np.ascontiguousarray(x.reshape(PIXELS, 2, 8).transpose(1, 0, 2))
    y = np.zeros((16, 16), np.float32)
    run = kernel(planes, y, np.int32(depth), product="Ascend910B2", outputs=[1])
    assert {found.kind for found in run.findings} == kinds
    if depth == PIXELS:
        np.testing.assert_array_equal(y, x.T @ x)
