"""Structures of parameters of which a kernel gives only some: what the others are then."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

LEFT_OUT = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void kept(GM_ADDR x, GM_ADDR y, uint32_t repeats) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 1024), u(TPosition::VECCALC, 8192, 1024);
  GlobalTensor<float> in, out; in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  DataCopy(t, in, repeats * 64);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  GatherMaskParams p;
  p.repeatTimes = repeats;
  uint64_t kept = 0;
  GatherMask(u, t, 2, false, 0, p, kept);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, u, repeats * 32);
  PipeBarrier<PIPE_ALL>();
  SliceInfo slice;
  slice.shapeValue = 32;
  if (slice.startIndex != 0 || slice.endIndex != 31 || slice.stride != 0 || slice.burstLen != 32) Trap();
}
"""


@pytest.mark.parametrize("repeats", [1, 2, 7])
def test_repeats_that_are_not_given_a_stride_follow_each_other(source_file, repeats):
    path = source_file("kept.cpp", LEFT_OUT)
    x, y = np.arange(repeats * 64, dtype=np.float32), np.empty(repeats * 32, np.float32)
    run = ascendc.compile(path, kind="vector", product="910b")(x, y, repeats, product="910b", outputs=[1])
    assert np.array_equal(y, x[1::2])
    assert run.findings == ()
