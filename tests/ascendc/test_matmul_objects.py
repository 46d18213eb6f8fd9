"""Several Matmul objects of a core: beside each other, or in the same place where they do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from tests.ascendc.compiler import require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
#define ASCENDC_CUBE_ONLY
#include "lib/matmul_intf.h"
using namespace AscendC;
constexpr MatmulConfig shared() { auto config = CFG_NORM; config.isA2B2Shared = true; return config; }
constexpr MatmulConfig CONFIG = shared();
using Half = MatmulType<TPosition::GM, CubeFormat::ND, half>;
using Float = MatmulType<TPosition::GM, CubeFormat::ND, float>;
using Object = Matmul<Half, Half, Float, Float, CONFIG>;
extern "C" __global__ __aicore__ void objects(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, GM_ADDR d, int32_t how,
                                              GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  Object one, two;
  TPipe pipe;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), one, (void*)&t, two, &t);
  GlobalTensor<half> A, B; GlobalTensor<float> C, D, row;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); row.SetGlobalBuffer((__gm__ float*)bias);
  C.SetGlobalBuffer((__gm__ float*)c); D.SetGlobalBuffer((__gm__ float*)d);
  one.SetTensorA(A); one.SetTensorB(B);
  two.SetTensorA(A); two.SetTensorB(B[t.N * t.Kb]);
  if (t.isBias) { one.SetBias(row); two.SetBias(row[t.N]); }
  if (how == 0) { one.IterateAll(C); one.End(); two.IterateAll(D); two.End(); }
  if (how == 1) {  // block by block, in turns
    bool more = true;
    while (more) {
      more = one.Iterate();
      if (more) one.GetTensorC(C);
      if (more && two.Iterate()) two.GetTensorC(D);
    }
    one.End(); two.End();
  }
  if (how == 2) { one.Iterate(); two.Iterate(); one.GetTensorC(C); two.GetTensorC(D); }
}
"""


@pytest.fixture(scope="module")
def objects(source_file):
    return ascendc.compile(source_file("objects.cpp", KERNEL), kind="cube")


def _run(objects, base, how, sizes=(512, 64, 512)):
    m, k, n = sizes
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (2, k, n)))
    bias = rng.integers(-99, 99, (2, n)).astype(np.float32)
    c, d = np.zeros((m, n), np.float32), np.zeros((m, n), np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, base=base, bias=True)
    run = objects(a, b, bias, c, d, np.int32(how), tiling=tiling)
    exact = a.astype(np.float32) @ b.astype(np.float32) + bias[:, None]
    return (c, d), exact, run


@pytest.mark.parametrize("base", [(64, 64, 64), (128, 256, 64), (128, 128, 64)])
@pytest.mark.parametrize("how", [0, 1])
def test_objects_that_do_not_fit_take_turns(objects, base, how):
    # 128 x 256 floats are all of L0C; 256 floats are all of the bias table
    results, exact, run = _run(objects, base, how)
    assert np.array_equal(np.stack(results), exact)
    assert run.findings == ()


def test_a_block_of_each_needs_room_for_both(objects):
    results, exact, _ = _run(objects, (64, 64, 64), 2)
    assert np.array_equal(results[1][:64, :64], exact[1, :64, :64])
    assert np.array_equal(results[0][:64, :64], exact[0, :64, :64])
    with pytest.raises(KernelError, match="must not compute between Iterate and GetTensorC of another"):
        _run(objects, (128, 256, 64), 2)
