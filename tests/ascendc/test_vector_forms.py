"""Masks, repeats and strides, elements of the scalar unit, and what rearranges elements, from C++."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
__aicore__ inline void Ready() { SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0); }
__aicore__ inline void Done() { SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0); }
__aicore__ void masks(GlobalTensor<float>& in, GlobalTensor<float>& out) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 512), u(TPosition::VECCALC, 2048, 512);
  DataCopy(t, in, 512);
  Ready();
  Duplicate(u, 0.0f, 64, 8, 1, 8);
  Add(u, t, t, 32, 8, {1, 1, 1, 8, 8, 8});
  uint64_t bits[2] = {0x5555555555555555ull, 0};
  Muls(u, u, 10.0f, bits, 8, {1, 1, 8, 8});
  Adds<float, false>(u, u, 1.0f, MASK_PLACEHOLDER, 8, {1, 1, 8, 8});
  SetMaskCount();
  SetVectorMask<float, MaskMode::COUNTER>(100);
  Muls<float, false>(t, t, 0.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
  SetMaskNorm();
  ResetMask();
  Done();
  DataCopy(out, u, 512);
  DataCopy(out[512], t, 512);
}
__aicore__ void scalars(GlobalTensor<float>& in, GlobalTensor<float>& out) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 64);
  LocalTensor<int64_t> w(TPosition::VECCALC, 1024, 4);
  DataCopy(t, in, 64);
  Ready();
  Adds(t, t, 1.0f, 64);
  float sum = 0;
  for (int i = 0; i < 8; i++) sum += t.GetValue(i);
  t.SetValue(0, sum);
  w.SetValue(1, -5);
  t.SetValue(1, float(w.GetValue(1)));
  Muls(t, t, 2.0f, 64);
  out.SetValue(70, in.GetValue(3));
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, t, 64);
}
__aicore__ void moves(GlobalTensor<float>& in, GlobalTensor<float>& out) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 64), u(TPosition::VECCALC, 1024, 64), v(TPosition::VECCALC, 2048, 64);
  LocalTensor<int32_t> offset(TPosition::VECCALC, 4096, 64);
  DataCopy(t, in, 64);
  Ready();
  CreateVecIndex(offset, 0, 64);
  Muls(offset, offset, -4, 64);
  Adds(offset, offset, 63 * 4, 64);
  Gather(u, t, offset.ReinterpretCast<uint32_t>(), 0, 64);
  uint64_t kept = 0;
  GatherMask(v, t, 2, false, 0, GatherMaskParams(1, 1, 8, 0), kept);
  PRINTF("%d\\n", int(kept));
  Brcb(t, u, 1, {1, 8});
  Done();
  DataCopy(out, u, 64);
  DataCopy(out[64], v, 32);
  DataCopy(out[96], t, 64);
}
__global__ __aicore__ void forms(GM_ADDR x, GM_ADDR y, int32_t which) {
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x);
  out.SetGlobalBuffer((__gm__ float*)y);
  void (*all[])(GlobalTensor<float>&, GlobalTensor<float>&) = {masks, scalars, moves};
  all[which](in, out);
}
"""


@pytest.fixture(scope="module")
def forms(source_file):
    return ascendc.compile(source_file("kernels.cpp", SOURCE))


def test_masks_repeats_and_registers(forms):
    x, y = np.arange(512, dtype=np.float32) / 64, np.zeros(1024, np.float32)
    assert forms(x, y, 0).findings == ()
    wanted = np.zeros((8, 64), np.float32)
    wanted[:, :32] = 2 * x.reshape(8, 64)[:, :32]
    wanted[:, ::2] = wanted[:, ::2] * 10 + 1  # the mask stays for the call that brings none
    assert np.array_equal(y[:512], wanted.reshape(-1))
    assert np.array_equal(y[512:], np.where(np.arange(512) < 100, 0, x))


def test_elements_that_the_scalar_unit_reads_and_writes(forms):
    x, y = np.arange(64, dtype=np.float32), np.zeros(128, np.float32)
    run = forms(x, y, 1)
    wanted = 2 * (x + 1)
    wanted[:2] = 2 * (x[:8] + 1).sum(), -10
    assert np.array_equal(y[:64], wanted)
    assert y[70] == 3
    assert run.findings == ()


def test_without_auto_sync_the_scalar_unit_needs_flags(forms):
    x, y = np.arange(64, dtype=np.float32), np.zeros(128, np.float32)
    run = forms(x, y, 1, auto_sync=False)
    text = SOURCE.splitlines()
    lines = {text[found.line.line - 1].strip() for found in run.findings if found.kind is Kind.SYNC_READ_HAZARD}
    assert any("GetValue" in line for line in lines)
    assert any(line.startswith("Muls(t, t, 2.0f") for line in lines)


def test_gather_squeeze_and_broadcast(forms):
    x, y = np.arange(64, dtype=np.float32), np.zeros(192, np.float32)
    run = forms(x, y, 2)
    assert np.array_equal(y[:64], x[::-1])
    assert np.array_equal(y[64:96], x[1::2])
    assert np.array_equal(y[96:160], np.repeat(x[:-9:-1], 8))
    assert run.printed == "32\n"
    assert run.findings == ()
