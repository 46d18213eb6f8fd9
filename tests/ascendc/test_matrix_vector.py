"""Matmul of one row in CubeFormat::VECTOR, and its tiling."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from tests.ascendc.compiler import host_program, require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
#define ASCENDC_CUBE_ONLY
#include "lib/matmul_intf.h"
using namespace AscendC;
template <class T> __global__ __aicore__ void row(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t offset, int32_t turned,
                                                  GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::VECTOR, T, true>, MatmulType<TPosition::GM, CubeFormat::ND, T>,
         MatmulType<TPosition::GM, CubeFormat::ND, float>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  GlobalTensor<T> A, B; GlobalTensor<float> C;
  A.SetGlobalBuffer((__gm__ T*)a); B.SetGlobalBuffer((__gm__ T*)b); C.SetGlobalBuffer((__gm__ float*)c);
  mm.SetTensorA(A[offset], turned); mm.SetTensorB(B);
  mm.IterateAll(C);
  mm.End();
}
"""
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main() {
  using namespace matmul_tiling;
  for (int m : {1, 2}) for (bool turned : {false, true}) {
    MatmulApiTiling api;
    TCubeTiling t;
    api.SetAType(TPosition::GM, CubeFormat::VECTOR, DataType::DT_FLOAT16, turned);
    api.SetShape(m, 32, 256); api.SetOrgShape(m, 32, 256);
    printf("%d ", int(api.GetTiling(t)));
  }
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("row.cpp", KERNEL)


def _row(source, name, dtype, k, n, m=1, offset=0, turned=0):
    rng = np.random.default_rng(k)
    a, b = rng.integers(-4, 5, m * k + 8).astype(dtype), rng.integers(-4, 5, (k, n)).astype(dtype)
    c = np.zeros((m, n), np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, item_bytes=a.itemsize)
    kernel = ascendc.compile(source, kernel=f"row<{name}>", kind="cube")
    run = kernel(a, b, c, np.int32(offset), np.int32(turned), tiling=tiling)
    return c[0], a[offset : offset + k].astype(np.float32) @ b.astype(np.float32), run


@pytest.mark.parametrize(("name", "dtype"), [("half", np.float16), ("float", np.float32)])
@pytest.mark.parametrize(("k", "n"), [(256, 32), (40, 300), (1000, 17)])
def test_a_row_times_a_matrix(source, name, dtype, k, n):
    c, exact, run = _row(source, name, dtype, k, n)
    assert np.array_equal(c, exact)
    assert run.findings == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"m": 2}, "must be one row, not turned, at a multiple of 16 bytes, not 2 of 2 rows at"),
        ({"turned": 1}, "not 1 of 1 rows, turned, at"),
        ({"offset": 4}, "at a multiple of 16 bytes, not 1 of 1 rows at"),
    ],
)
def test_what_is_no_row_is_refused(source, options, words):
    with pytest.raises(KernelError, match=words):
        _row(source, "half", np.float16, 64, 32, **options)


def test_hosts_get_a_tiling_for_one_row_alone(tmp_path):
    assert subprocess.check_output([host_program(tmp_path, HOST)]).split() == [b"0", b"-1", b"-1", b"-1"]
