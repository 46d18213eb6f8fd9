"""What kernels write that a device takes although the documents do not say so."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import matmul_tiling
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;

// Numbers of the scalar unit.
extern "C" __global__ __aicore__ void numbers(GM_ADDR x, GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  auto in = (__gm__ float*)x;
  GlobalTensor<float> out;
  out.SetGlobalBuffer((__gm__ float*)y);
  out.SetValue(0, abs(in[0]));
  out.SetValue(1, abs(in[1]) + abs(-2) + float(abs(int64_t(-5000000000))));
  out.SetValue(2, float(abs(half(-0.5f))));
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 64);
  auto t = buffer.Get<float>();
  uint64_t begin = static_cast<uint64_t>(t.GetPhyAddr()), next = t[3].GetPhyAddr();
  out.SetValue(3, float(next - begin));
  dcci(y, 0);
  dcci((__gm__ uint64_t*)y, cache_line_t::SINGLE_CACHE_LINE, dcci_dst_t::CACHELINE_OUT);
  dcci(y, ENTIRE_DATA_CACHE);
}

// The bits of numbers: 2 * 8 elements of 16 bits are those of 8 floats.
extern "C" __global__ __aicore__ void bits(GM_ADDR x, GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 128);
  auto t = buffer.Get<float>();
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x);
  out.SetGlobalBuffer((__gm__ float*)y);
  DataCopy(t, in, 16);
  PipeBarrier<PIPE_ALL>();
  And(t[16], t, t[8], 16);
  Or(t[24], t, t[8], 16);
  PipeBarrier<PIPE_ALL>();
  DataCopy(out, t[16], 16);
}

// One column of C0 needs no distance to the next.
template <int width> __global__ __aicore__ void column(GM_ADDR x, GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  LocalTensor<half> t(TPosition::A1, 0, 512);
  GlobalTensor<half> in, out;
  in.SetGlobalBuffer((__gm__ half*)x);
  out.SetGlobalBuffer((__gm__ half*)y);
  Nd2NzParams p;
  p.ndNum = 1; p.nValue = 16; p.dValue = width; p.srcDValue = width; p.dstNzNStride = 1;
  DataCopy(t, in, p);
  SetFlag<HardEvent::MTE2_MTE3>(0);
  WaitFlag<HardEvent::MTE2_MTE3>(0);
  DataCopy(out, t, 256);
}

// A Matmul that gets its tiling behind REGIST_MATMUL_OBJ.
extern "C" __global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR workspace, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  TPipe pipe;
  TCubeTiling own;
  auto words = (__gm__ uint32_t*)tiling;
  for (uint32_t i = 0; i < sizeof(own) / 4; i++) ((uint32_t*)&own)[i] = words[i];
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half>, MatmulType<TPosition::GM, CubeFormat::ND, half>,
         MatmulType<TPosition::GM, CubeFormat::ND, float>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm);
  if (GetBlockIdx() == 0) {
    mm.Init(&own);
    GlobalTensor<half> A, B;
    GlobalTensor<float> C;
    A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
    mm.SetTensorA(A);
    mm.SetTensorB(B);
    mm.IterateAll(C);
  }
  mm.End();
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("forms.cpp", SOURCE)


def test_numbers_addresses_and_cache_lines(source):
    y = np.zeros(8, np.float32)
    ascendc.compile(source, "numbers")(np.array([-0.75, 0.25], np.float32), y)
    assert y[:4].tolist() == [0.75, np.float32(np.float32(2.25) + np.float32(5e9)), 0.5, 12]


def test_bits_are_counted_in_elements_of_16(source):
    x = np.random.default_rng(6).standard_normal(16).astype(np.float32)
    y = np.zeros(16, np.float32)
    ascendc.compile(source, "bits")(x, y)
    words = x.view(np.uint32)
    assert np.array_equal(y.view(np.uint32), np.concatenate([words[:8] & words[8:], words[:8] | words[8:]]))


def test_one_column_needs_no_distance_to_the_next(source):
    x, y = np.arange(256, dtype=np.float16).reshape(16, 16), np.zeros((16, 16), np.float16)
    ascendc.compile(source, "column<16>")(x, y)
    assert np.array_equal(y, x)
    with pytest.raises(
        ProgramError, match="dst_c0_stride must be at least 1 where there is more than one column, not 0"
    ):
        ascendc.compile(source, "column<32>")(np.zeros((16, 32), np.float16), y)


def test_a_matmul_without_a_tiling_at_first(source):
    rng = np.random.default_rng(7)
    a, b = rng.integers(-3, 4, (32, 48)).astype(np.float16), rng.integers(-3, 4, (48, 32)).astype(np.float16)
    c = np.zeros((32, 32), np.float32)
    ascendc.compile(source, "product")(a, b, c, None, tiling=matmul_tiling(32, 32, 48), product="Ascend910B2")
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


ASSERTED = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void asserted(GM_ADDR z, int n) {
  ASCENDC_ASSERT(n > 0, { KERNEL_LOG(KERNEL_ERROR, "n is %d", n); });
  ((__gm__ int32_t*)z)[0] = n + GetBlockIdx();
}
"""


def test_a_condition_that_no_device_looks_at_may_name_what_is_nowhere(source_file):
    path = source_file("asserted.cpp", ASSERTED)
    with pytest.raises(ascendc.KernelError, match="assertion must hold: n > 0"):
        ascendc.compile(path)(np.zeros(1, np.int32), np.int32(0))
    path = source_file("unknown.cpp", ASSERTED.replace("n > 0,", "unknown_size > 0,"))
    z = np.zeros(1, np.int32)
    ascendc.compile(path)(z, np.int32(0))
    assert z.tolist() == [0]
    path = source_file("broken.cpp", ASSERTED.replace("n > 0,", "unknown_size > 0,").replace("n + Get", "more + Get"))
    with pytest.raises(CompilationError, match="more"):
        ascendc.compile(path)
