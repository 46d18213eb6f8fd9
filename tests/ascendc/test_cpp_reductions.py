"""Reductions from C++, and the softmax that is made of them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.budget import ENVIRONMENT
from npu_sim.errors import BudgetError
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

SOFTMAX = Path(__file__).parents[2] / "examples" / "ascendc" / "softmax.cpp"


def test_softmax_of_rows():
    rng = np.random.default_rng(8)
    x = rng.standard_normal((6, 200)).astype(np.float32)
    y = np.zeros_like(x)
    run = ascendc.compile(SOFTMAX)(x, y, 6, 200, blocks=4, outputs=[1])
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    # exp and the sum of 200 terms: a few roundings of 2^-24 each, the sum's own error at most 200 of them
    assert np.abs(y / exact - 1).max() < 220 * 2.0**-24
    assert run.findings == ()


WAITS = """
#include "kernel_operator.h"
using namespace AscendC;
__global__ __aicore__ void waits(GM_ADDR x) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 64);
  SyncAll();
  t.SetValue(1, t.GetValue(0));  // of the rows before all have to run
}
"""


def test_buffers_of_all_cores_are_in_the_budget(monkeypatch, tmp_path):
    softmax, waits = ascendc.compile(SOFTMAX), tmp_path / "waits.cpp"
    waits.write_text(WAITS)
    x, y = np.ones((40, 64), np.float32), np.empty((40, 64), np.float32)
    monkeypatch.setenv(ENVIRONMENT, "16 MiB")
    with pytest.raises(BudgetError, match=r"^Buffers of \d+ cores must be at most 16777216 bytes"):
        ascendc.compile(waits)(x, blocks=20, product="910b")
    tracemalloc.start(1)
    try:
        softmax(x, y, 40, 64, blocks=20, product="910b")  # no core waits for another, so each ends before the next
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(y, 1 / 64)


SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> __global__ __aicore__ void reduce(GM_ADDR x, GM_ADDR y, int32_t count) {
  constexpr int lanes = 256 / sizeof(T);
  LocalTensor<T> t(TPosition::VECCALC, 0, 1024), work(TPosition::VECCALC, 8192, 1024);
  LocalTensor<T> out(TPosition::VECCALC, 16384, 512);
  GlobalTensor<T> in, result;
  in.SetGlobalBuffer((__gm__ T*)x); result.SetGlobalBuffer((__gm__ T*)y);
  DataCopy(t, in, 1024);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  Duplicate(out, T(0), 512);
  ReduceSum(out, t, work, count);
  ReduceMax(out[64], t, work, count, true);
  ReduceMin(out[128], t, work, count, true);
  WholeReduceSum(out[192], t, lanes, 4, 1, 1, 8);
  BlockReduceMax(out[256], t, 2, lanes, 1, 1, 8);
  ReduceSum(out[320], t, work, uint64_t(lanes), 4, 8);
  PairReduceSum(out[384], t, 1, lanes, 1, 1, 8);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(result, out, 512);
}
"""


@pytest.mark.parametrize(("cpp", "dtype", "index"), [("float", np.float32, np.uint32), ("half", np.float16, np.uint16)])
def test_each_reduction_is_its_definition(source_file, cpp, dtype, index):
    path = source_file("reduce.cpp", SOURCE)
    lanes, count = 256 // np.dtype(dtype).itemsize, 900
    # whole numbers whose sums are exact in any order
    x = np.random.default_rng(9).permutation(np.arange(1024) % 37 - 18).astype(dtype)
    y = np.zeros(512, dtype)
    run = ascendc.compile(path, f"reduce<{cpp}>")(x, y, count)
    head = x[:count]
    assert y[0] == head.sum(dtype=np.float64)
    assert (y[64], y[65:66].view(index)[0]) == (head.max(), head.argmax())
    assert (y[128], y[129:130].view(index)[0]) == (head.min(), head.argmin())
    assert np.array_equal(y[192:196], x[: 4 * lanes].reshape(4, lanes).sum(1, dtype=np.float64))
    block = 32 // np.dtype(dtype).itemsize
    assert np.array_equal(y[256:272], x[: 2 * lanes].reshape(16, block).max(1))
    assert y[320] == x[: 4 * lanes].sum(dtype=np.float64)
    assert np.array_equal(y[384 : 384 + lanes // 2], x[:lanes].reshape(-1, 2).sum(1, dtype=np.float64))
    assert run.findings == ()


ROOM = """
#include "kernel_operator.h"
using namespace AscendC;
__global__ __aicore__ void room(GM_ADDR x, GM_ADDR y, int32_t which) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> in, out, small, behind;
  pipe.InitBuffer(in, 4096); pipe.InitBuffer(out, 32); pipe.InitBuffer(small, 32); pipe.InitBuffer(behind, 256);
  LocalTensor<float> t = in.Get<float>(), r = out.Get<float>(), work = small.Get<float>(), other = behind.Get<float>();
  GlobalTensor<float> X, Y;
  X.SetGlobalBuffer((__gm__ float*)x); Y.SetGlobalBuffer((__gm__ float*)y);
  DataCopy(t, X, 1024);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  Duplicate(r, 7.0f, 8);
  Duplicate(other, 5.0f, 8);
  if (which == 0) ReduceSum(r, t, work, 1024);
  if (which == 1) ReduceSum(r, t, t, 1024);
  if (which == 2) ReduceMax(r, t, work, 1024);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  SetFlag<HardEvent::S_MTE3>(0); WaitFlag<HardEvent::S_MTE3>(0);
  DataCopy(Y, r, 8); DataCopy(Y[8], other, 8); DataCopy(Y[16], t, 1024);
}
"""


def test_the_sum_of_a_number_of_elements_needs_no_temporary_tensor_but_an_extreme_does(tmp_path):
    path = tmp_path / "room.cpp"
    path.write_text(ROOM)
    kernel, x = ascendc.compile(path), np.arange(1024, dtype=np.float32) % 11
    for which in (0, 1):
        y = np.zeros(1040, np.float32)
        assert kernel(x, y, which, outputs=[1]).findings == ()
        assert y[:16].tolist() == [x.sum(), *[7] * 7, *[5] * 8]
        assert np.array_equal(y[16:], x)
    y = np.zeros(1040, np.float32)
    run = kernel.check(x, y, 2, outputs=[1])
    [line] = [number for number, text in enumerate(ROOM.splitlines(), 1) if "ReduceMax" in text]
    assert {(found.kind, found.line.line) for found in run.findings if found.line is not None} >= {
        (Kind.WRITE_OUT_OF_BOUNDS, line)
    }
    assert y[0] == 10
