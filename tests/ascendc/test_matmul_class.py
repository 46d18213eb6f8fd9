"""The Matmul class: on Cube cores alone and for vector cores, against integers and the project's own operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.accumulation import SERIAL
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError
from npu_sim.products import get_product
from ops.matmul.tiling import MatmulShape
from tests.ascendc.compiler import require_compiler
from tests.differential.test_matmul import in_fractals, multiply

compiler = require_compiler()

EXAMPLE = Path(__file__).parents[2] / "examples" / "ascendc" / "matmul_relu.cpp"
SOURCE = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
// Each core that calls computes its part of C, as the tiling says: whole (0), block by block (1), added to what is
// there (2), without waiting (3).
template <class T, class U, CubeFormat F = CubeFormat::ND, class Bias = float, CubeFormat G = CubeFormat::ND>
__global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, int32_t ta, int32_t tb, int32_t how,
                                   GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, F, T, true>, MatmulType<TPosition::GM, F, T, true>,
         MatmulType<TPosition::GM, G, U>, MatmulType<TPosition::GM, CubeFormat::ND, Bias>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  GlobalTensor<T> A, B; GlobalTensor<U> C; GlobalTensor<Bias> row;
  A.SetGlobalBuffer((__gm__ T*)a); B.SetGlobalBuffer((__gm__ T*)b); C.SetGlobalBuffer((__gm__ U*)c);
  row.SetGlobalBuffer((__gm__ Bias*)bias);
  int32_t own = GetBlockIdx(), rows = (t.M + t.singleCoreM - 1) / t.singleCoreM;
  if (own >= t.usedCoreNum) return;
  int32_t m0 = own % rows * t.singleCoreM, n0 = own / rows * t.singleCoreN;
  int32_t m = t.M - m0 < t.singleCoreM ? t.M - m0 : t.singleCoreM;
  int32_t n = t.N - n0 < t.singleCoreN ? t.N - n0 : t.singleCoreN;
  mm.SetTensorA(A[ta ? m0 : m0 * t.Ka], ta);
  mm.SetTensorB(B[tb ? n0 * t.Kb : n0], tb);
  if (t.isBias) mm.SetBias(row[n0]);
  if constexpr (sizeof(T) == 1 && sizeof(U) < 4) mm.SetQuantScalar(0x3C000000ull | uint64_t(std::is_signed_v<U>) << 46);
  mm.SetTail(m, n);
  GlobalTensor<U> out = C[m0 * t.N + n0];
  if (how == 1) while (mm.Iterate()) mm.GetTensorC(out);
  else if (how == 3) { mm.template IterateAll<false>(out, 0, false, true); mm.WaitIterateAll(); }
  else mm.IterateAll(out, how == 2);
  mm.End();
}
"""
CHAINED = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
// c = (a + a) b with a in UB and c by way of UB; then e = d c, another object and shape.
__global__ __aicore__ void chained(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR d, GM_ADDR e, GM_ADDR tiling,
                                   GM_ADDR second) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, u, second);
  TPipe pipe;
  using Gm = MatmulType<TPosition::GM, CubeFormat::ND, half>;
  using Left = MatmulType<TPosition::VECOUT, CubeFormat::ND, half>;
  Matmul<Left, Gm, MatmulType<TPosition::VECIN, CubeFormat::ND, half>> mm;
  Matmul<Gm, Gm, MatmulType<TPosition::GM, CubeFormat::ND, float>> other;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t, other, (TCubeTiling*)nullptr);
  GlobalTensor<half> A, B, C, D; GlobalTensor<float> E;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ half*)c);
  D.SetGlobalBuffer((__gm__ half*)d); E.SetGlobalBuffer((__gm__ float*)e);
  TQue<TPosition::VECIN, 1> in; TQue<TPosition::VECOUT, 1> out, left;
  pipe.InitBuffer(in, 1, t.M * t.Ka * 2); pipe.InitBuffer(left, 1, t.M * t.Ka * 2);
  pipe.InitBuffer(out, 1, t.M * t.N * 2);
  LocalTensor<half> x = in.AllocTensor<half>();
  DataCopy(x, A, t.M * t.Ka);
  in.EnQue(x); x = in.DeQue<half>();
  LocalTensor<half> y = left.AllocTensor<half>();
  Add(y, x, x, t.M * t.Ka);
  in.FreeTensor(x);
  mm.SetTensorA(y);
  mm.SetTensorB(B);
  LocalTensor<half> z = out.AllocTensor<half>();
  mm.IterateAll(z);
  left.FreeTensor(y);
  out.EnQue(z); z = out.DeQue<half>();
  DataCopy(C, z, t.M * t.N);
  out.FreeTensor(z);
  other.Init(&u);
  other.SetTensorA(D);
  other.SetTensorB(C);
  other.IterateAll(E);
  mm.End();
  other.End();
}
"""
CHIP = get_product("910b")


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("product.cpp", SOURCE)


@pytest.fixture(scope="module")
def chained(source_file):
    return ascendc.compile(source_file("chained.cpp", CHAINED))


def whole_numbers(rng, rows, columns, dtype):
    return rng.integers(-4, 5, (rows, columns)).astype(dtype)


def compute(source, name, a, b, bias, c, tiling, *, ta=0, tb=0, how=0, blocks=1, kind=None):
    """Return the run of a product whose operands lie as they are stored."""
    defines = ("ASCENDC_CUBE_ONLY",) if kind == "cube" else ()
    kernel = ascendc.compile(source, f"product<{name}>", kind=kind, defines=defines)
    outputs = [] if how == 2 else [3]
    return kernel(a, b, bias, c, ta, tb, how, tiling=tiling, blocks=blocks, outputs=outputs, accumulation=SERIAL)


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("name", "dtype", "out"), [
    ("half, float", np.float16, np.float32), ("half, half", np.float16, np.float16),
    ("float, float", np.float32, np.float32),
])  # fmt: skip
def test_ragged_products_are_exact_for_whole_numbers(source, kind, ta, tb, name, dtype, out):
    m, k, n = 100, 72, 130
    rng = np.random.default_rng(3)
    a, b = whole_numbers(rng, m, k, dtype), whole_numbers(rng, k, n, dtype)
    bias, c = rng.integers(-9, 10, n).astype(np.float32), np.zeros((m, n), out)
    tiling = ascendc.matmul_tiling(m, n, k, cores=3, item_bytes=a.itemsize, bias=True, base=(32, 48, 16))
    tiling.stepKa, tiling.stepKb, tiling.depthA1, tiling.depthB1, tiling.stepN = 2, 3, 4, 6, 2
    a, b = a.T.copy() if ta else a, b.T.copy() if tb else b
    run = compute(source, name, a, b, bias, c, tiling, ta=ta, tb=tb, blocks=3 if kind else 2, kind=kind)
    exact = (a.T if ta else a).astype(np.float32) @ (b.T if tb else b).astype(np.float32) + bias
    assert np.array_equal(c, exact.astype(out))
    assert run.findings == ()


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("name", "out"), [
    ("int32_t", np.int32), ("half", np.float16), ("uint8_t", np.uint8), ("int8_t", np.int8),
])  # fmt: skip
def test_products_of_bytes(source, kind, ta, tb, name, out):
    m, k, n = 100, 200, 150
    rng = np.random.default_rng(8)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    c = np.zeros((m, n), out)
    tiling = ascendc.matmul_tiling(m, n, k, cores=3, item_bytes=1, base=(32, 64, 32))
    tiling.stepKa, tiling.stepKb, tiling.depthA1, tiling.depthB1, tiling.stepN = 2, 3, 4, 6, 2
    given = a.T.copy() if ta else a, b.T.copy() if tb else b
    compute_bytes = f"int8_t, {name}, CubeFormat::ND, int32_t"
    run = compute(source, compute_bytes, *given, np.zeros(n, np.int32), c, tiling, ta=ta, tb=tb, blocks=3, kind=kind)
    sums = a.astype(np.int64) @ b.astype(np.int64)
    if out == np.float16:
        expected = sums / 128
    else:
        limits = np.iinfo(out)
        expected = np.clip(sums if out == np.int32 else np.rint(sums / 128), limits.min, limits.max)
    assert np.array_equal(c, expected.astype(out))
    assert run.findings == ()


@pytest.mark.parametrize("sizes", [(16, 32, 16), (1, 40, 7), (33, 64, 48), (64, 31, 96)], ids=str)
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_of_bytes_of_any_size_have_a_tiling(source, sizes, ta, tb):
    m, k, n = sizes
    rng = np.random.default_rng(9)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    c = np.zeros((m, n), np.int32)
    tiling = ascendc.matmul_tiling(m, n, k, item_bytes=1)
    given = a.T.copy() if ta else a, b.T.copy() if tb else b
    name = "int8_t, int32_t, CubeFormat::ND, int32_t"
    run = compute(source, name, *given, np.zeros(n, np.int32), c, tiling, ta=ta, tb=tb, kind="cube")
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
    assert run.findings == ()


def _blocks_in_fractals(matrix):
    """Return a matrix as columns of 32 bytes, each of whole fractals of rows."""
    rows, columns = matrix.shape
    width = 32 // matrix.itemsize
    whole = np.zeros((-(-rows // 16) * 16, -(-columns // width) * width), matrix.dtype)
    whole[:rows, :columns] = matrix
    return np.ascontiguousarray(whole.reshape(len(whole), -1, width).transpose(1, 0, 2))


@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("sizes", [(80, 64, 48), (64, 32, 96), (48, 112, 80), (33, 200, 130)], ids=str)
def test_bytes_in_fractals_are_multiplied(source, sizes, ta, tb):
    """Also where squares of 32 are turned of which the storage has one half only."""
    (m, k, n), rng = sizes, np.random.default_rng(sizes)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    c, none = np.zeros((m, n), np.int32), np.zeros(n, np.int32)
    tiling = ascendc.matmul_tiling(m, n, k, item_bytes=1, base=(32, 32, 32), a_turned=bool(ta), b_turned=bool(tb))
    given = _blocks_in_fractals(a.T if ta else a), _blocks_in_fractals(b.T if tb else b)
    run = compute(
        source, "int8_t, int32_t, CubeFormat::NZ, int32_t", *given, none, c, tiling, ta=ta, tb=tb, kind="cube"
    )
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
    assert run.findings == ()


@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("sizes", [(64, 64, 64), (40, 56, 72), (24, 40, 24), (33, 20, 50)], ids=str)
def test_floats_in_fractals_are_multiplied(source, sizes, ta, tb, kind):
    """Also where they are turned, whose squares are two columns of eight."""
    m, k, n = sizes
    rng = np.random.default_rng(11)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, item_bytes=4, base=(32, 32, 32), a_turned=bool(ta), b_turned=bool(tb))
    given = _blocks_in_fractals(a.T if ta else a), _blocks_in_fractals(b.T if tb else b)
    run = compute(source, "float, float, CubeFormat::NZ", *given, None, c, tiling, ta=ta, tb=tb, kind=kind)
    assert np.array_equal(c, a @ b)
    assert run.findings == ()


@pytest.mark.parametrize("tb", [0, 1])
@pytest.mark.parametrize("sizes", [(64, 64, 64), (50, 96, 70), (33, 200, 129)], ids=str)
def test_products_of_bytes_begin_with_a_bias_of_integers(source, sizes, tb):
    (m, k, n), rng = sizes, np.random.default_rng(sizes)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    bias, c = rng.integers(-(10**6), 10**6, n).astype(np.int32), np.zeros((m, n), np.int32)
    tiling = ascendc.matmul_tiling(m, n, k, cores=2, item_bytes=1, bias=True, base=(32, 32, 32))
    run = compute(
        source, "int8_t, int32_t, CubeFormat::ND, int32_t", a, np.ascontiguousarray(b.T) if tb else b, bias, c, tiling,
        tb=tb, kind="cube", blocks=2,
    )  # fmt: skip
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64) + bias)
    assert run.findings == ()


@pytest.mark.parametrize("layout", ["ND", "NZ"])
@pytest.mark.parametrize(("cpp", "dtype"), [("half", np.float16), ("int8_t", np.int8), ("uint8_t", np.uint8)])
def test_columns_of_bytes_leave_with_their_own_scales(tmp_path, cpp, dtype, layout):
    if layout == "NZ" and cpp != "half":
        pytest.skip("results of 8 bits leave row by row")
    path = tmp_path / "vectors.cpp"
    made = SOURCE.replace("GM_ADDR c, int32_t ta", "GM_ADDR c, GM_ADDR words, int32_t ta").replace(
        "  mm.SetTail(m, n);",
        "  GlobalTensor<uint64_t> scales; scales.SetGlobalBuffer((__gm__ uint64_t*)words);\n"
        "  mm.SetQuantVector(scales[n0]);\n  mm.SetTail(m, n);",
    )
    path.write_text(made)
    m, k, n = 48, 64, 80
    rng = np.random.default_rng(3)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    scale = rng.choice(np.array([2.0**-9, 0.0005, -0.001953125], np.float32), n)
    kept = (scale.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    words = scale.view(np.uint32).astype(np.uint64) | np.uint64(dtype == np.int8) << np.uint64(46)
    c = np.zeros((m, n) if layout == "ND" else (n // 16, m, 16), dtype)
    tiling = ascendc.matmul_tiling(m, n, k, item_bytes=1, base=(32, 64, 32))
    kernel = ascendc.compile(
        path, f"product<int8_t, {cpp}, CubeFormat::ND, int32_t, CubeFormat::{layout}>", kind="cube"
    )
    run = kernel(a, b, np.zeros(n, np.int32), c, words, 0, 0, 0, tiling=tiling, product=CHIP)
    assert run.findings == ()
    exact = a.astype(np.int64) @ b.astype(np.int64) * kept
    got = c if layout == "ND" else c.transpose(1, 0, 2).reshape(m, n)
    if cpp == "half":
        assert np.array_equal(got, exact.astype(np.float16))
    else:
        assert np.array_equal(got, np.clip(np.rint(exact), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype))


def test_what_the_bias_table_does_not_take_is_refused(source):
    a = np.zeros((64, 64), np.float16)
    tiling = ascendc.matmul_tiling(64, 64, 64, bias=True)
    with pytest.raises(ascendc.KernelError, match="SetBias of bfloat16_t is not modelled"):
        compute(
            source,
            "half, float, CubeFormat::ND, bfloat16_t",
            a,
            a,
            np.zeros(64, np.uint16),
            np.zeros((64, 64), np.float32),
            tiling,
        )


def test_products_of_bytes_have_blocks_of_whole_squares(source):
    a, c, none = np.zeros((64, 64), np.int8), np.zeros((64, 64), np.int32), np.zeros(64, np.int32)
    name = "int8_t, int32_t, CubeFormat::ND, int32_t"
    with pytest.raises(ascendc.KernelError, match="baseN must be a positive multiple of 32, not 48"):
        compute(source, name, a, a, none, c, ascendc.matmul_tiling(64, 64, 64, base=(32, 48, 32)), kind="cube")


def test_integers_leave_as_others_behind_a_scale_only(tmp_path):
    path = tmp_path / "unscaled.cpp"
    path.write_text(SOURCE.replace("sizeof(T) == 1 && sizeof(U) < 4", "false"))
    a, c, none = np.zeros((64, 64), np.int8), np.zeros((64, 64), np.float16), np.zeros(64, np.int32)
    tiling = ascendc.matmul_tiling(64, 64, 64, item_bytes=1)
    with pytest.raises(ascendc.KernelError, match="SetQuantScalar or SetQuantVector must come before integers leave"):
        compute(path, "int8_t, half, CubeFormat::ND, int32_t", a, a, none, c, tiling, kind="cube")


@pytest.mark.parametrize("how", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [0, 1])
def test_every_way_to_iterate_gives_the_same(source, how, order):
    m, k, n = 150, 64, 200
    rng = np.random.default_rng(4)
    a, b = whole_numbers(rng, m, k, np.float16), whole_numbers(rng, k, n, np.float16)
    before = rng.integers(-9, 10, (m, n)).astype(np.float32)
    c = before.copy()
    tiling = ascendc.matmul_tiling(m, n, k, cores=4, base=(32, 32, 32), n_first=bool(order))
    tiling.stepM, tiling.stepN, tiling.depthA1, tiling.depthB1 = 2, 3, 4, 6
    run = compute(source, "half, float", a, b, before, c, tiling, how=how, blocks=2)
    exact = a.astype(np.float32) @ b.astype(np.float32) + (before if how == 2 else 0)
    assert np.array_equal(c, exact)
    assert run.findings == ()


SEQUENTIAL = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
// The only block of a product that is smaller than a base block, as a matrix of its own.
template <CubeFormat F, int how> __global__ __aicore__ void alone(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t m, int32_t n,
                                                                  GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half>, MatmulType<TPosition::GM, CubeFormat::ND, half>,
         MatmulType<TPosition::GM, F, float>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  if (GetBlockIdx() != 0) return;
  GlobalTensor<half> A, B; GlobalTensor<float> C;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
  mm.SetSingleShape(m, n, t.singleCoreK);
  mm.SetTensorA(A); mm.SetTensorB(B);
  if (how == 0) mm.IterateAll(C, 0, true);
  else while (mm.Iterate()) mm.GetTensorC(C, 0, true);
  mm.End();
}
"""


@pytest.mark.parametrize("how", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(48, 32), (40, 24), (48, 64)])
def test_a_block_alone_lies_as_wide_as_it_is(source_file, how, m, n):
    path = source_file("alone.cpp", SEQUENTIAL)
    tiling = ascendc.matmul_tiling(48, 64, 32, cores=1, base=(48, 64, 32))
    rng = np.random.default_rng(m)
    a, b = (whole_numbers(rng, rows, columns, np.float16) for rows, columns in ((48, 32), (32, 64)))
    expected = (a.astype(np.float32) @ b.astype(np.float32))[:m, :n]
    c = np.full(48 * 64, 7, np.float32)
    ascendc.compile(path, f"alone<CubeFormat::ND, {how}>")(a, b, c, m, n, tiling=bytes(tiling))
    np.testing.assert_array_equal(c[: m * n].reshape(m, n), expected)
    assert (c[m * n :] == 7).all()
    c = np.full(48 * 64, 7, np.float32)
    ascendc.compile(path, f"alone<CubeFormat::NZ, {how}>")(a, b, c, m, n, tiling=bytes(tiling))
    rows, columns = -(-m // 16) * 16, -(-n // 16) * 16
    blocks = c[: rows * columns].reshape(columns // 16, rows, 16).transpose(1, 0, 2).reshape(rows, columns)
    np.testing.assert_array_equal(blocks[:m, :n], expected)


BLOCKS = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
// Every block into the same tensor of UB without waiting, and one behind the other into memory.
template <CubeFormat F>
__global__ __aicore__ void blocks(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR space, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  TQue<TPosition::VECOUT, 1> queue;
  Matmul<MatmulType<TPosition::GM, CubeFormat::ND, half>, MatmulType<TPosition::GM, CubeFormat::ND, half>,
         MatmulType<TPosition::VECIN, F, float>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  int32_t size = t.baseM * t.baseN;
  pipe.InitBuffer(queue, 1, size * 4);
  GlobalTensor<half> A, B; GlobalTensor<float> C, Space;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
  Space.SetGlobalBuffer((__gm__ float*)space);
  mm.SetWorkspace(Space);
  mm.SetTensorA(A); mm.SetTensorB(B);
  for (int32_t i = 0; mm.template Iterate<false>(); i++) {
    auto local = queue.AllocTensor<float>();
    Duplicate(local, 7.0f, size);
    mm.template GetTensorC<false>(local);
    queue.EnQue(local);
    local = queue.DeQue<float>();
    DataCopy(C[i * size], local, size);
    queue.FreeTensor(local);
  }
  mm.End();
}
"""


@pytest.mark.parametrize("layout", ["ND", "NZ"])
def test_blocks_without_waiting_come_as_they_are(source_file, layout):
    path = source_file("blocks.cpp", BLOCKS)
    m, n, k = 40, 72, 32
    tiling = ascendc.matmul_tiling(m, n, k, cores=1, base=(32, 32, 32))
    rng = np.random.default_rng(1)
    a, b = whole_numbers(rng, m, k, np.float16), whole_numbers(rng, k, n, np.float16)
    whole = a.astype(np.float32) @ b.astype(np.float32)
    order = [(i, j) for j in range(3) for i in range(2)]
    if tiling.iterateOrder:
        order = [(i, j) for i in range(2) for j in range(3)]
    c, space = np.zeros((6, 1024), np.float32), np.zeros(m * n * 4, np.float32)
    ascendc.compile(path, f"blocks<CubeFormat::{layout}>")(a, b, c, space, tiling=bytes(tiling))
    for (i, j), own in zip(order, c, strict=True):
        block = whole[32 * i : 32 * i + 32, 32 * j : 32 * j + 32]
        rows, columns = block.shape
        if layout == "ND":
            got = own[: block.size].reshape(block.shape)
        else:
            wide, high = -(-columns // 16) * 16, -(-rows // 16) * 16
            got = (
                own[: wide * high].reshape(wide // 16, high, 16).transpose(1, 0, 2).reshape(high, wide)[:rows, :columns]
            )
        np.testing.assert_array_equal(got, block)
        assert (own[-8:] == 7).all() or block.size == 1024


def test_bits_are_those_of_the_operator(source):
    shape = MatmulShape(m=70, n=90, k=333)
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(size).astype(np.float16) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    c = np.zeros((shape.m, shape.n), np.float32)
    tiling = ascendc.matmul_tiling(shape.m, shape.n, shape.k, cores=2, base=(48, 64, 32))
    compute(source, "half, float", a, b, c, c, tiling)
    assert np.array_equal(c, multiply(shape, a[None], b, "fp16", "fp32")[0])
    summed, bias = np.zeros_like(c), rng.standard_normal(shape.n).astype(np.float32)
    tiling.isBias = 1
    compute(source, "half, float", a, b, bias, summed, tiling)
    # the sum begins with the bias: it is the serial sum of one more product
    wide = np.concatenate([np.ones((shape.m, 1), np.float16), a], axis=1)
    begun = np.broadcast_to(bias, c.shape).astype(np.float32)
    for i in range(shape.k):
        begun = begun + wide[:, i + 1 : i + 2].astype(np.float32) * b[i].astype(np.float32)
    assert np.array_equal(summed, begun)


def test_operands_and_results_in_fractals(source):
    shape = MatmulShape(m=80, n=112, k=64, a_nz=True, b_nz=True, c_nz=True)
    rng = np.random.default_rng(6)
    a, b = whole_numbers(rng, shape.m, shape.k, np.float16), whole_numbers(rng, shape.k, shape.n, np.float16)
    c = np.zeros((shape.n // 16, shape.m, 16), np.float32)
    tiling = ascendc.matmul_tiling(shape.m, shape.n, shape.k, base=(32, 48, 32))
    name = "half, float, CubeFormat::NZ, float, CubeFormat::NZ"
    run = compute(source, name, in_fractals(a[None])[0], in_fractals(b[None])[0], c, c, tiling)
    exact = a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(c.transpose(1, 0, 2).reshape(shape.m, shape.n), exact)
    assert run.findings == ()


def test_operands_and_results_in_ub_and_two_objects(chained):
    m, k, n, p = 48, 32, 64, 24
    rng = np.random.default_rng(7)
    a, b, d = (whole_numbers(rng, *size, np.float16) for size in ((m, k), (k, n), (p, m)))
    c, e = np.zeros((m, n), np.float16), np.zeros((p, n), np.float32)
    first = ascendc.matmul_tiling(m, n, k, base=(16, 32, 16))
    second = ascendc.matmul_tiling(p, n, m, base=(16, 32, 16))
    first.dbL0C = second.dbL0C = 1
    run = chained(a, b, c, d, e, bytes(first), tiling=second, outputs=[2, 4])
    exact = 2 * a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(c, exact.astype(np.float16))
    assert np.array_equal(e, d.astype(np.float32) @ exact)
    # the second product reads what the vector core stores: the library sends its messages behind that
    assert run.findings == ()


def test_the_example_hands_blocks_to_vector_cores():
    m, k, n = 300, 200, 256
    rng = np.random.default_rng(8)
    a, b = whole_numbers(rng, m, k, np.float16), whole_numbers(rng, k, n, np.float16)
    bias, c = rng.integers(-9, 10, n).astype(np.float32), np.zeros((m, n), np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, bias=True, base=(64, 64, 64), single=(160, 128, k))
    assert tiling.usedCoreNum == 4
    run = ascendc.compile(EXAMPLE)(a, b, bias, c, None, tiling=tiling, blocks=2, outputs=[3])
    assert np.array_equal(c, np.maximum(a.astype(np.float32) @ b.astype(np.float32) + bias, 0))
    assert run.findings == ()
    text = EXAMPLE.read_text().splitlines()
    lines = {run.launches[0].lines[site].line for site in np.unique(run.rows(0)["site"]).tolist()}
    assert {"product.Iterate()", "GetTensorC("} <= {
        name for name in ("product.Iterate()", "GetTensorC(") for line in lines if name in text[line - 1]
    }


def test_what_a_tiling_may_not_be_ends_the_kernel(source):
    a = np.zeros((64, 64), np.float16)
    tiling = ascendc.matmul_tiling(64, 64, 64)
    for field, value, said in (("baseM", 20, "baseM must be a positive multiple of 16, not 20"),
                               ("baseK", 4096, "must fit L0A and L0B"),
                               ("singleCoreK", 0, "sizes above 0")):  # fmt: skip
        wrong = ascendc.TCubeTiling.from_buffer_copy(tiling)
        setattr(wrong, field, value)
        with pytest.raises(ascendc.KernelError, match=said):
            compute(source, "half, float", a, a, a, np.zeros((64, 64), np.float32), wrong)
    tiling.stepKa = 100
    with pytest.raises(ProgramError, match="must stay inside the 524288 bytes of L1"):
        compute(source, "half, float", a, a, a, np.zeros((64, 64), np.float32), tiling)


def test_a_vector_core_that_never_registers_is_waited_for_in_vain(tmp_path):
    path = tmp_path / "lost.cpp"
    path.write_text(SOURCE.replace("  TPipe pipe;\n  Matmul<MatmulType<TPosition::GM, F", """  TPipe pipe;
  if ASCEND_IS_AIV { if (GetSubBlockIdx()) return; }
  Matmul<MatmulType<TPosition::GM, F""", 1))  # fmt: skip
    a, c = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float32)
    with pytest.raises(ascendc.KernelError, match="REGIST_MATMUL_OBJ must be reached by every vector core"):
        compute(path, "half, float", a, a, a, c, ascendc.matmul_tiling(64, 64, 64))


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ("uint8_t, float", "Matmul is modelled of half, bfloat16_t, float, int8_t and int4b_t"),
        ("int8_t, float", "and of int8_t into int32_t, half, int8_t and uint8_t"),
        ("half, int32_t", "Matmul is modelled into half, bfloat16_t and float"),
    ],
)
def test_types_that_the_cube_lacks_here_do_not_compile(source, types, words):
    with pytest.raises(CompilationError, match=words):
        ascendc.compile(source, f"product<{types}>")


def test_a_product_on_vector_cores_alone_is_refused(source):
    a, c = np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)
    tiling = ascendc.matmul_tiling(16, 16, 16)
    run = ascendc.compile(source, "product<half, float>", kind="vector").check(a, a, None, c, 0, 0, 0, tiling=tiling)
    assert "REGIST_MATMUL_OBJ must be in a kernel with Cube cores" in str(run.stopped_by)
    line = SOURCE.splitlines()[run.stopped_by.line.line - 1]
    assert "REGIST_MATMUL_OBJ" in line


@pytest.mark.parametrize("condition", ["ORIG_DTYPE_A == DT_FLOAT", "defined(DTYPE_A) && FORMAT_A == FORMAT_ND"])
def test_a_product_of_some_types_makes_a_kernel_mixed(source_file, condition):
    text = SOURCE.replace("  REGIST_MATMUL_OBJ", f"#if {condition}\n  REGIST_MATMUL_OBJ").replace(
        "mm, &t);", "mm, &t);\n#endif"
    )
    assert "#endif" in text
    assert ascendc.compile(source_file("types.cpp", text), "product<half, float>").kind == "mix"
