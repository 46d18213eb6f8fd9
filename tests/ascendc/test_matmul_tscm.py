"""The Matmul class with operands that queues of the position TSCM bring to L1, exact in whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.errors import NpuSimError
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
// Matrices of T, turned or not, in fractals in L1.
template <class T> LocalTensor<T> bring(TSCM<TPosition::GM, 1>& queue, GM_ADDR from, uint16_t rows, uint16_t columns) {
  GlobalTensor<T> there; there.SetGlobalBuffer((__gm__ T*)from);
  LocalTensor<T> here = queue.AllocTensor<T>();
  Nd2NzParams p;
  p.ndNum = 1; p.nValue = rows; p.dValue = columns; p.srcNdMatrixStride = 0; p.srcDValue = columns;
  p.dstNzC0Stride = (rows + 15) / 16 * 16; p.dstNzNStride = 1; p.dstNzMatrixStride = 0;
  DataCopy(here, there, p);
  queue.EnQue(here);
  return queue.DeQue<T>();
}
template <class T, bool ta, bool tb, bool both> __global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c,
                                                                                  GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  using Left = MatmulType<TPosition::TSCM, CubeFormat::NZ, T, ta>;
  using Right = MatmulType<both ? TPosition::TSCM : TPosition::GM, both ? CubeFormat::NZ : CubeFormat::ND, T, tb>;
  Matmul<Left, Right, MatmulType<TPosition::GM, CubeFormat::ND, float>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  TSCM<TPosition::GM, 1> left, right;
  auto whole = [](int32_t size) { return (size + 15) / 16 * 16; };
  pipe.InitBuffer(left, 1, whole(t.M) * whole(t.Ka) * sizeof(T));
  LocalTensor<T> A = bring<T>(left, a, ta ? t.Ka : t.M, ta ? t.M : t.Ka), B;
  GlobalTensor<T> there; there.SetGlobalBuffer((__gm__ T*)b);
  GlobalTensor<float> C; C.SetGlobalBuffer((__gm__ float*)c);
  mm.SetTensorA(A, ta);
  if constexpr (both) {
    pipe.InitBuffer(right, 1, whole(t.N) * whole(t.Ka) * sizeof(T));
    B = bring<T>(right, b, tb ? t.N : t.Ka, tb ? t.Ka : t.N);
    mm.SetTensorB(B, tb);
  } else {
    mm.SetTensorB(there, tb);
  }
  mm.IterateAll(C);
  mm.End();
  left.FreeTensor(A);
  if constexpr (both) right.FreeTensor(B);
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("product.cpp", SOURCE)


def compute(source, shape, ta, tb, both, cpp="half", **options):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = (
        rng.integers(-4, 5, size).astype({"half": np.float16, "float": np.float32}[cpp]) for size in ((m, k), (k, n))
    )
    c = np.full((m, n), np.nan, np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, base=(32, 32, 32), a_turned=ta, b_turned=tb, item_bytes=a.itemsize)
    name = f"product<{cpp}, {str(ta).lower()}, {str(tb).lower()}, {str(both).lower()}>"
    left, right = (np.ascontiguousarray(x.T) if turned else x for x, turned in ((a, ta), (b, tb)))
    run = ascendc.compile(source, name, **options)(left, right, c, tiling=tiling, outputs=[2])
    ragged = any(size % 16 for size in shape)  # what fills fractals up is read, and used for nothing
    assert all(ragged and found.kind is Kind.READ_UNUSED for found in run.findings)
    return c, a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(64, 64, 64), (48, 80, 112), (40, 72, 56), (1, 16, 16)])
@pytest.mark.parametrize("cpp", ["half", "float"])
def test_operands_of_queues(source, shape, ta, tb, both, cpp):
    found, wanted = compute(source, shape, ta, tb, both, cpp, kind="cube", defines=("ASCENDC_CUBE_ONLY",))
    assert np.array_equal(found, wanted)


def test_a_vector_core_has_no_such_queue(source):
    with pytest.raises(NpuSimError, match="SetTensorA of a vector core must be in UB, not in L1"):
        compute(source, (64, 64, 64), False, False, False)
