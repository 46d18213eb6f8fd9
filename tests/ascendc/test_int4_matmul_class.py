"""The Matmul class of int4b_t on A2 and A3, against NumPy's integers: tails, layouts, operands in UB, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError, ShapeError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
template <TPosition P, CubeFormat F, class T, bool turned = false> using Of = MatmulType<P, F, T, turned>;
constexpr CubeFormat ND = CubeFormat::ND, NZ = CubeFormat::NZ;
// Each core that calls computes its part of C; the words of `scales` are those of columns, else all have one.
template <class U, CubeFormat F, CubeFormat G, bool tb>
__global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR scales, GM_ADDR c, int32_t how, GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  Matmul<Of<TPosition::GM, F, int4b_t>, Of<TPosition::GM, F, int4b_t, tb>, Of<TPosition::GM, G, U>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  GlobalTensor<int4b_t> A, B; GlobalTensor<U> C; GlobalTensor<uint64_t> words;
  A.SetGlobalBuffer((__gm__ int4b_t*)a); B.SetGlobalBuffer((__gm__ int4b_t*)b); C.SetGlobalBuffer((__gm__ U*)c);
  words.SetGlobalBuffer((__gm__ uint64_t*)scales);
  int32_t own = GetBlockIdx(), rows = (t.M + t.singleCoreM - 1) / t.singleCoreM;
  if (own >= t.usedCoreNum) return;
  int32_t m0 = own % rows * t.singleCoreM, n0 = own / rows * t.singleCoreN;
  mm.SetTensorA(A[m0 * t.Ka], how == 4);
  mm.SetTensorB(B[tb ? n0 * t.Kb : n0], tb);
  if (how == 5) { GlobalTensor<U> bias; mm.SetBias(bias); }
  if (sizeof(U) == 2 && how == 2) mm.SetQuantVector(words[n0]);
  else if (sizeof(U) == 2) mm.SetQuantScalar(0x3C000000ull);
  mm.SetTail(Std::min(t.M - m0, t.singleCoreM), Std::min(t.N - n0, t.singleCoreN));
  GlobalTensor<U> out = C[m0 * t.N + n0];
  if (how == 1) while (mm.Iterate()) mm.GetTensorC(out);
  else mm.IterateAll(out);
  mm.End();
}
// A or B, and C, in UB.
template <bool a_is_local, bool tb>
__global__ __aicore__ void by_ub(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1);
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  constexpr TPosition of_a = a_is_local ? TPosition::VECOUT : TPosition::GM;
  constexpr TPosition of_b = a_is_local ? TPosition::GM : TPosition::VECOUT;
  Matmul<Of<of_a, ND, int4b_t>, Of<of_b, ND, int4b_t, tb>, Of<TPosition::VECIN, ND, int32_t>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  GlobalTensor<int4b_t> A, B; GlobalTensor<int32_t> C;
  A.SetGlobalBuffer((__gm__ int4b_t*)a); B.SetGlobalBuffer((__gm__ int4b_t*)b); C.SetGlobalBuffer((__gm__ int32_t*)c);
  // rows in UB are whole blocks
  int32_t rows = a_is_local ? t.M : tb ? t.N : t.Kb, width = a_is_local || tb ? t.Ka : t.N;
  int32_t whole = (width + 63) / 64 * 64;
  TQue<TPosition::VECIN, 1> in; TBuf<> out;
  pipe.InitBuffer(in, 1, rows * whole / 2); pipe.InitBuffer(out, t.M * t.N * 4);
  LocalTensor<int4b_t> x = in.AllocTensor<int4b_t>();
  DataCopyPad(x, a_is_local ? A : B, DataCopyExtParams(rows, width / 2, 0, 0, 0), DataCopyPadExtParams<int4b_t>());
  in.EnQue(x); x = in.DeQue<int4b_t>();
  if constexpr (a_is_local) mm.SetTensorA(x), mm.SetTensorB(B, tb);
  else mm.SetTensorA(A), mm.SetTensorB(x, tb);
  LocalTensor<int32_t> z = out.Get<int32_t>();
  mm.IterateAll(z);
  in.FreeTensor(x);
  PipeBarrier<PIPE_ALL>();
  DataCopy(C, z, t.M * t.N);
  mm.End();
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("product.cpp", SOURCE)


def _packed(matrix):
    """Return rows of pairs, the first of each in the low half."""
    return np.ascontiguousarray((matrix[:, ::2] & 15) | (matrix[:, 1::2] & 15) << 4).astype(np.uint8)


def _fractals(matrix):
    """Return columns of 64 elements, each of whole fractals of rows."""
    rows, columns = matrix.shape
    whole = np.zeros((-(-rows // 16) * 16, -(-columns // 64) * 64), int)
    whole[:rows, :columns] = matrix
    return _packed(whole.reshape(len(whole), -1, 64).transpose(1, 0, 2).reshape(-1, 64))


def _random(rng, rows, columns):
    return rng.integers(-8, 8, (rows, columns))


def _compute(source, a, b, tiling, *, out=np.int32, tb=False, layout="ND", result="ND", how=0, scales=None, **run):
    (m, _), n = a.shape, b.shape[1]
    store = _packed if layout == "ND" else _fractals
    cpp = "half" if out == np.float16 else "int32_t"
    shape = (m, n) if result == "ND" else (-(-n // 16), -(-m // 16) * 16, 16)
    c = np.zeros(shape, out)
    kind = run.pop("kind", "cube")
    kernel = ascendc.compile(
        source, f"product<{cpp}, {layout}, {result}, {str(tb).lower()}>", kind=kind,
        defines=("ASCENDC_CUBE_ONLY",) if kind == "cube" else (),
    )  # fmt: skip
    words = np.zeros(n, np.uint64) if scales is None else scales
    made = kernel(store(a), store(b.T if tb else b), words, c, how, tiling=tiling, outputs=[3], **run)
    assert made.findings == ()
    return c


@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize("seed", range(4))
def test_products_of_any_even_size_are_exact(source, kind, tb, seed):
    """Both accesses, several cores, tails of all extents; N is odd where it is no inner axis."""
    rng = np.random.default_rng([seed, tb])
    for _ in range(4):
        m, k, n = int(rng.integers(1, 150)), 2 * int(rng.integers(1, 200)), int(rng.integers(1, 300))
        n += 0 if tb else n % 2
        a, b = _random(rng, m, k), _random(rng, k, n)
        cores = int(rng.integers(1, 4))
        tiling = ascendc.matmul_tiling(m, n, k, cores=cores, item_bytes=0.5, b_turned=tb)
        c = _compute(source, a, b, tiling, tb=tb, kind=kind, how=int(rng.integers(2)), blocks=3)
        assert np.array_equal(c, a @ b), (m, k, n, cores)


@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("base", [(16, 64, 64), (48, 128, 128), (80, 192, 64)], ids=str)
def test_small_blocks_and_many_steps(source, base, tb):
    m, k, n = 100, 330, 258
    rng = np.random.default_rng(base)
    a, b = _random(rng, m, k), _random(rng, k, n)
    tiling = ascendc.matmul_tiling(m, n, k, cores=2, item_bytes=0.5, base=base, b_turned=tb)
    tiling.stepKa, tiling.stepKb, tiling.depthA1, tiling.depthB1 = 2, 3, 4, 6
    assert np.array_equal(_compute(source, a, b, tiling, tb=tb, how=1, blocks=2), a @ b)


def test_columns_of_16_where_b_is_not_turned(source):
    rng = np.random.default_rng(5)
    a, b = _random(rng, 33, 130), _random(rng, 130, 76)
    tiling = ascendc.matmul_tiling(33, 76, 130, item_bytes=0.5, base=(16, 48, 64), b_turned=True)
    assert tiling.baseN == 48
    assert np.array_equal(_compute(source, a, b, tiling, tb=True), a @ b)
    with pytest.raises(KernelError, match="baseN must be a multiple of 64 where B of int4b_t lies as K x N, not 48"):
        _compute(source, a, b, tiling)


@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(("sizes", "result"), [
    ((64, 128, 64), "NZ"), ((48, 200, 144), "NZ"), ((33, 200, 130), "ND"), ((80, 64, 258), "ND"),
])  # fmt: skip
def test_fractals_of_operands_and_of_the_result(source, sizes, result, tb):
    """The result in fractals is one of whole fractals, as the page asks."""
    (m, k, n), rng = sizes, np.random.default_rng(sizes)
    a, b = _random(rng, m, k), _random(rng, k, n)
    tiling = ascendc.matmul_tiling(m, n, k, item_bytes=0.5, base=(32, 64, 64), b_turned=tb)
    c = _compute(source, a, b, tiling, tb=tb, layout="NZ", result=result)
    if result == "NZ":
        c = c.transpose(1, 0, 2).reshape(c.shape[1], -1)[:m, :n]
    assert np.array_equal(c, a @ b)


@pytest.mark.parametrize("product", ["910b", "910_93"])
@pytest.mark.parametrize("kind", ["cube", None])
@pytest.mark.parametrize("vector", [False, True])
def test_integers_leave_as_half(source, vector, kind, product):
    (m, k, n), rng = (50, 250, 196), np.random.default_rng(4)
    a, b = _random(rng, m, k), _random(rng, k, n)
    scales = (2.0 ** rng.integers(-9, 3, n)).astype(np.float32) if vector else np.full(n, 2.0**-7, np.float32)
    tiling = ascendc.matmul_tiling(m, n, k, cores=2, item_bytes=0.5, base=(32, 64, 64))
    words = scales.view(np.uint32).astype(np.uint64)
    how = 2 if vector else 0
    c = _compute(source, a, b, tiling, out=np.float16, how=how, scales=words, kind=kind, blocks=2, product=product)
    assert np.array_equal(c, ((a @ b) * scales.astype(np.float64)).astype(np.float16))


@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("a_is_local", [False, True])
@pytest.mark.parametrize("sizes", [(32, 64, 64), (17, 90, 104), (48, 200, 72)], ids=str)
def test_operands_and_results_in_ub(source, sizes, a_is_local, tb):
    (m, k, n), rng = sizes, np.random.default_rng(sizes)
    a, b, c = _random(rng, m, k), _random(rng, k, n), np.zeros((m, n), np.int32)
    tiling = ascendc.matmul_tiling(m, n, k, item_bytes=0.5, base=(32, 64, 64), b_turned=tb)
    kernel = ascendc.compile(source, f"by_ub<{str(a_is_local).lower()}, {str(tb).lower()}>")
    run = kernel(_packed(a), _packed(b.T if tb else b), c, tiling=tiling, outputs=[2])
    assert np.array_equal(c, a @ b)
    assert run.findings == ()


def _refused(source, sizes, words, *, tb=False, how=0):
    (m, k, n), even = sizes, ascendc.matmul_tiling(sizes[0], 64, 64, item_bytes=0.5)
    even.N, even.singleCoreN, even.Ka, even.Kb, even.singleCoreK = n, n, k, k, k
    zeros = np.zeros(65 * 65, np.uint8)
    kernel = ascendc.compile(
        source, f"product<int32_t, ND, ND, {str(tb).lower()}>", kind="cube", defines=("ASCENDC_CUBE_ONLY",)
    )
    with pytest.raises(KernelError, match=words):
        kernel(zeros, zeros, np.zeros(n, np.uint64), np.zeros((m, n), np.int32), how, tiling=even, outputs=[3])


def test_what_is_no_product_of_pairs_is_refused(source):
    _refused(source, (16, 63, 64), "inner axes of A and B of int4b_t must be even: K of a core is 63")
    _refused(source, (16, 64, 63), "inner axes of A and B of int4b_t must be even: N of a core is 63")
    _refused(source, (16, 64, 64), "a turned A is not modelled of int4b_t", how=4)
    _refused(source, (16, 64, 64), "SetBias is not modelled with A and B of int4b_t", how=5)
    with pytest.raises(ShapeError, match="a_turned must be False where elements have 4 bits, not True"):
        ascendc.matmul_tiling(64, 64, 64, item_bytes=0.5, a_turned=True)


@pytest.mark.parametrize(("types", "words"), [
    ("Of<int4b_t>, Of<int4b_t>, Of<int8_t>", "Matmul of int4b_t must be into int32_t or half"),
    ("Of<int4b_t>, Of<int4b_t>, Of<float>", "Matmul of int4b_t must be into int32_t or half"),
    ("Of<int4b_t>, Of<int8_t>, Of<int32_t>", "Matmul of two operand types is not modelled"),
    ("Of<int4b_t>, Of<int4b_t>, Of<int32_t>, Of<int32_t>, BASIC", "doBasicBlock must not come with int4b_t"),
])  # fmt: skip
def test_types_that_are_none_of_the_page_do_not_compile(tmp_path, types, words):
    path = tmp_path / "other.cpp"
    path.write_text(f"""
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
template <class T> using Of = MatmulType<TPosition::GM, CubeFormat::ND, T>;
constexpr MatmulConfig BASIC = GetBasicConfig(64, 64, 64);
extern "C" __global__ __aicore__ void other(GM_ADDR tiling) {{
  TPipe pipe;
  Matmul<{types}> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm);
}}
""")
    with pytest.raises(CompilationError, match=words):
        ascendc.compile(path)


def test_the_series_has_none(source):
    tiling = ascendc.matmul_tiling(16, 64, 64, item_bytes=0.5)
    with pytest.raises((KernelError, ProgramError, ShapeError), match="separate cores"):
        _compute(source, np.ones((16, 64), int), np.ones((64, 64), int), tiling, product="310p")
