"""What the scalar unit keeps of reductions, casts by a scale, and smaller names of kernels in C++."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
constexpr uint32_t N = 5120;
extern "C" __global__ __aicore__ void registers(GM_ADDR x, GM_ADDR y, GM_ADDR z, int32_t form, float scale) {
  GlobalTensor<float> gx;
  GlobalTensor<int32_t> gi;
  GlobalTensor<half> gy;
  GlobalTensor<float> gz;
  gx.SetGlobalBuffer((__gm__ float*)x); gi.SetGlobalBuffer((__gm__ int32_t*)x);
  gy.SetGlobalBuffer((__gm__ half*)y); gz.SetGlobalBuffer((__gm__ float*)z);
  TPipe pipe;
  TQue<QuePosition::VECCALC, 1> in;
  TBuf<> results;
  pipe.InitBuffer(in, 1, N * sizeof(float));
  pipe.InitBuffer(results, N * sizeof(half));
  LocalTensor<float> u = in.AllocTensor<float>();
  DataCopy(u, gx, N);
  in.EnQue(u);
  in.DeQue();
  LocalTensor<half> w = results.Get<half>();
  LocalTensor<float> r = w.ReinterpretCast<float>();
  ASSERT_MSG(form >= 0, "a form");
  if (form == 0) {
    ReduceSum(r, u, r[1024], 200);
    gz.SetValue(0, GetAccVal<float>());
    uint64_t bits = GetAccVal();
    gz.SetValue(1, *(float*)&bits);
  } else if (form < 4) {
    ReduceOrder order = form == 1 ? ReduceOrder::ORDER_VALUE_INDEX : form == 2 ? ReduceOrder::ORDER_INDEX_VALUE
                                                                           : ReduceOrder::ORDER_ONLY_VALUE;
    WholeReduceMax(r, u, 64, 3, 1, 1, 8, order);
    SetFlag<HardEvent::V_S>(0); WaitFlag<HardEvent::V_S>(0);
    float value, index;
    GetReduceMaxMinCount<float>(value, index);
    gz.SetValue(0, value);
    gz.SetValue(1, float(*(uint32_t*)&index));
    WholeReduceMin(r, u, 64, 1, 1, 1, 8);
    SetFlag<HardEvent::V_S>(1); WaitFlag<HardEvent::V_S>(1);
    GetReduceRepeatMaxMinSpr<float>(value, index);
    gz.SetValue(2, value);
    gz.SetValue(3, float(*(uint32_t*)&index));
  } else if (form == 6) {
    TQue<QuePosition::VECCALC, 1> results;
    pipe.InitBuffer(results, 1, 256);
    LocalTensor<float> pairs = results.AllocTensor<float>();
    SetMaskCount();
    SetVectorMask<float, MaskMode::COUNTER>(0, 200);
    WholeReduceMax<float, false>(pairs, u, MASK_PLACEHOLDER, 1, 1, 1, 8);
    SetMaskNorm();
    ResetMask();
    results.FreeTensor(pairs);
    float value, index;
    GetReduceMaxMinCount<float>(value, index);
    gz.SetValue(0, value);
    gz.SetValue(1, float(*(uint32_t*)&index));
  } else {
    if (form == 4) SetDeqScale(half(scale));
    Cast(w, u.ReinterpretCast<int32_t>(), RoundMode::CAST_NONE, N);
    SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(gy, w, N);
  }
  in.FreeTensor(u);
}
"""
N = 5120


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ascendc.SourceKernel:
    source = tmp_path_factory.mktemp("registers") / "registers.cpp"
    source.write_text(SOURCE)
    return ascendc.compile(source)


def test_a_sum_is_read_from_its_register(kernel: ascendc.SourceKernel) -> None:
    x, z = np.arange(N, dtype=np.float32), np.zeros(8, np.float32)
    kernel(x, np.zeros(N, np.float16), z, 0, 1.0)
    assert z[:2].tolist() == [sum(range(200))] * 2


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("place", [5, 100, 191])
def test_an_extreme_and_its_index_are_those_of_all_repeats(kernel: ascendc.SourceKernel, form: int, place: int) -> None:
    x, z = np.random.default_rng(1).standard_normal(N).astype(np.float32), np.zeros(8, np.float32)
    x[place] = x[191] = 9  # the first of equal ones
    run = kernel(x, np.zeros(N, np.float16), z, form, 1.0)
    assert run.findings == ()
    assert z[:4].tolist() == [9, place, x[:64].min(), x[:64].argmin()]


def test_an_extreme_of_counted_elements_outlives_its_tensor(kernel: ascendc.SourceKernel) -> None:
    x, z = np.random.default_rng(3).standard_normal(N).astype(np.float32), np.zeros(8, np.float32)
    run = kernel(x, np.zeros(N, np.float16), z, 6, 1.0)
    assert run.findings == ()
    assert z[:2].tolist() == [x[:200].max(), x[:200].argmax()]


def test_an_extreme_without_its_index_is_refused(kernel: ascendc.SourceKernel) -> None:
    with pytest.raises(KernelError, match="must come behind a WholeReduceMax or WholeReduceMin that writes values"):
        kernel(np.zeros(N, np.float32), np.zeros(N, np.float16), np.zeros(8, np.float32), 3, 1.0)


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_int32_is_cast_to_half_by_the_scale(kernel: ascendc.SourceKernel, scale: float) -> None:
    x = np.random.default_rng(2).integers(-70000, 70000, N).astype(np.int32)
    x[:3] = 2**31 - 1, -(2**31), 2**24 + 1
    y = np.zeros(N, np.float16)
    run = kernel(x, y, np.zeros(8, np.float32), 4, scale)
    with np.errstate(over="ignore"):
        wanted = (x.astype(np.float32) * np.float32(np.float16(scale))).astype(np.float16)
    assert np.array_equal(y, wanted)
    assert run.findings == ()
    with pytest.raises(KernelError, match="must come behind SetDeqScale of a half"):
        kernel(x, y, np.zeros(8, np.float32), 5, scale)


def test_a_cast_by_the_scale_needs_no_memory_and_takes_a_mask(tmp_path: Path) -> None:
    path = tmp_path / "scaled.cpp"
    path.write_text("""
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void scaled(GM_ADDR x, GM_ADDR y) {
  GlobalTensor<int32_t> gx; GlobalTensor<half> gy;
  gx.SetGlobalBuffer((__gm__ int32_t*)x); gy.SetGlobalBuffer((__gm__ half*)y);
  TPipe pipe; TBuf<> all;
  pipe.InitBuffer(all, TOTAL_UB_SIZE);
  LocalTensor<half> whole = all.Get<half>(), h = whole[256];
  LocalTensor<int32_t> t = all.Get<int32_t>();
  Duplicate(whole, half(7), TOTAL_UB_SIZE / 2);
  PipeBarrier<PIPE_ALL>();
  DataCopy(t, gx, 128);
  PipeBarrier<PIPE_ALL>();
  SetDeqScale(half(0.5f));
  Cast(h, t, RoundMode::CAST_NONE, uint64_t(20), 2, {1, 1, 4, 8});
  Cast(h[128], t, RoundMode::CAST_NONE, 128);
  PipeBarrier<PIPE_ALL>();
  DataCopy(gy, whole, TOTAL_UB_SIZE / 2);
}
""")
    x, y = np.arange(-64, 64, dtype=np.int32), np.zeros(192 * 512, np.float16)
    run = ascendc.compile(path)(x, y, product="910b", outputs=[1])
    assert run.findings == ()
    masked = y[256:384].reshape(2, 64)
    assert np.array_equal(masked[:, :20], x.reshape(2, 64)[:, :20] / 2)
    assert (masked[:, 20:] == 7).all()
    assert np.array_equal(y[384:512], x / 2)
    assert (y[512:] == 7).all()


def test_sums_of_repeats_are_added_in_a_register(tmp_path: Path) -> None:
    path = tmp_path / "sums.cpp"
    path.write_text("""
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void sums(GM_ADDR x, GM_ADDR y, bool accumulates) {
  GlobalTensor<float> gx, gy;
  gx.SetGlobalBuffer((__gm__ float*)x); gy.SetGlobalBuffer((__gm__ float*)y);
  TPipe pipe;
  TQue<QuePosition::VECIN, 1> in;
  pipe.InitBuffer(in, 1, 300 * sizeof(float));
  LocalTensor<float> u = in.AllocTensor<float>();
  DataCopy(u, gx, 296);
  in.EnQue(u);
  u = in.DeQue<float>();
  int32_t repeats = 4;
  AscendCUtils::SetMask<float>(64);
  vcadd(nullptr, (__ubuf__ float*)u.GetPhyAddr(), repeats, 1, 1, 8, accumulates);
  gy.SetValue(0, GetAccVal<float>());
  AscendCUtils::SetMask<float>(40);
  vcadd(nullptr, (__ubuf__ float*)u[256].GetPhyAddr(), 1, 1, 1, 8, true);
  uint64_t bits = GetAccVal();
  gy.SetValue(1, *reinterpret_cast<float*>(&bits));
  in.FreeTensor(u);
}
""")
    x, y = np.random.default_rng(4).integers(-9, 10, 296).astype(np.float32), np.zeros(8, np.float32)
    x[:256] = 0
    x[:256:64] = 2.0**24, 1, 1, 1  # as a tree, or from the other end, they would be more
    run = ascendc.compile(path)(x, y, True)
    assert y[0] == 2.0**24
    assert y[1] == x[256:].sum()
    assert run.findings == ()
    with pytest.raises(KernelError, match="vcadd that does not accumulate must be given a place"):
        ascendc.compile(path)(x, y, False)
