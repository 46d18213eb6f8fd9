"""The Matmul class with functions of the kernel in place of its own copies, against the class and against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.accumulation import SERIAL
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import require_compiler

require_compiler()

# Functions that copy as the class does. What they are not told is in the tiling in memory: which operands are turned in
# shareMode, which means nothing to the class.
SOURCE = """
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
template <class T>
void block(const LocalTensor<int8_t>& to, const T* from, int rows, int columns, int pitch, int unit) {
  GlobalTensor<T> there;
  there.SetGlobalBuffer((__gm__ T*)from);
  Nd2NzParams p(1, rows, columns, 0, pitch, (rows + unit - 1) / unit * unit, 1, 0);
  DataCopy(to.ReinterpretCast<T>(), there, p);
}
template <class T> constexpr int SQUARE = sizeof(T) == 1 ? 32 : 16;  // of k in rows
template <class T>
void copy_a(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int m, int k, const uint64_t tiling,
            const uint64_t) {
  auto t = reinterpret_cast<const __gm__ TCubeTiling*>(tiling);
  auto from = reinterpret_cast<const __gm__ T*>(gm);
  if (t->shareMode & 1) block(to, from + col * t->baseK * t->M + row * t->baseM, k, m, t->M, SQUARE<T>);
  else block(to, from + row * t->baseM * t->Ka + col * t->baseK, m, k, t->Ka, 16);
}
template <class T>
void copy_b(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int k, int n, const uint64_t tiling,
            const uint64_t) {
  auto t = reinterpret_cast<const __gm__ TCubeTiling*>(tiling);
  auto from = reinterpret_cast<const __gm__ T*>(gm);
  if (t->shareMode & 2) block(to, from + col * t->baseN * t->Kb + row * t->baseK, n, k, t->Kb, 16);
  else block(to, from + row * t->baseK * t->N + col * t->baseN, k, n, t->N, SQUARE<T>);
}
template <class T, class U>
void copy_out(const __gm__ void* gm, const LocalTensor<int8_t>& block, const void* given, const uint64_t,
              const uint64_t) {
  using Sum = typename GetMmDstType<T>::Type;
  auto p = (const DataCopyOutParams*)given;
  GlobalTensor<U> to;
  to.SetGlobalBuffer((__gm__ U*)gm);
  FixpipeParamsV220 how;
  how.mSize = p->burstLen / 2;
  how.nSize = p->oriNSize;
  how.srcStride = (how.mSize + 15) / 16 * 16 + p->srcStride;
  how.dstStride = p->dstStride;
  how.unitFlag = p->enUnitFlag ? 3 : 0;
  if (sizeof(T) == 1) {
    how.quantPre = QuantMode_t(p->quantMode);
    how.deqScalar = p->quantScalar;
  } else if (sizeof(U) == 2) {
    how.quantPre = std::is_same_v<U, half> ? F322F16 : F322BF16;
  }
  if (sizeof(T) == 1 && p->cbufWorkspaceAddr) {
    LocalTensor<uint64_t> words(TPosition::C1, uint32_t(p->cbufWorkspaceAddr), p->oriNSize);
    Fixpipe<U, Sum, CFG_ROW_MAJOR>(to, block.ReinterpretCast<Sum>(), words, how);
  } else {
    Fixpipe<U, Sum, CFG_ROW_MAJOR>(to, block.ReinterpretCast<Sum>(), how);
  }
}
FUNCTIONS
template <class T, class U, class Bias>
__global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, int32_t how, GM_ADDR words,
                                   GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  using In = MatmulType<TPosition::GM, CubeFormat::ND, T, true>;
  Matmul<In, In, MatmulType<TPosition::GM, CubeFormat::LAYOUT, U>, MatmulType<TPosition::GM, CubeFormat::ND, Bias>,
         CONFIG, MatmulCallBackFunc<CALLS>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  bool ta = t.shareMode & 1, tb = t.shareMode & 2;
  int32_t own = GetBlockIdx(), high = (t.M + t.singleCoreM - 1) / t.singleCoreM;
  if (own >= t.usedCoreNum) return;
  int32_t m0 = own % high * t.singleCoreM, n0 = own / high * t.singleCoreN;
  GlobalTensor<T> A, B; GlobalTensor<U> C; GlobalTensor<Bias> row; GlobalTensor<uint64_t> scales;
  A.SetGlobalBuffer((__gm__ T*)a); B.SetGlobalBuffer((__gm__ T*)b); C.SetGlobalBuffer((__gm__ U*)c);
  row.SetGlobalBuffer((__gm__ Bias*)bias);
  scales.SetGlobalBuffer((__gm__ uint64_t*)words);
  if (how != 2) mm.SetUserDefInfo(reinterpret_cast<uint64_t>(tiling));
  mm.SetSelfDefineData(reinterpret_cast<uint64_t>(words));
  mm.SetTensorA(A[ta ? m0 : m0 * t.Ka], ta);
  mm.SetTensorB(B[tb ? n0 * t.Kb : n0], tb);
  if (t.isBias) mm.SetBias(row[n0]);
  if constexpr (sizeof(T) == 1 && sizeof(U) < 4) {
    if (words) mm.SetQuantVector(scales[n0]);
    else mm.SetQuantScalar(0x3C000000ull | uint64_t(std::is_signed_v<U>) << 46);
  }
  mm.SetTail(t.M - m0 < t.singleCoreM ? t.M - m0 : t.singleCoreM, t.N - n0 < t.singleCoreN ? t.N - n0 : t.singleCoreN);
  if (how == 1) while (mm.Iterate()) mm.GetTensorC(C[m0 * t.N + n0]);
  else mm.IterateAll(C[m0 * t.N + n0], how == 3);
  mm.End();
}
"""
OWN = "copy_out<T, U>, copy_a<T>, copy_b<T>"
TYPES = {
    "half": np.float16,
    "bfloat16_t": ml_dtypes.bfloat16,
    "float": np.float32,
    "int8_t": np.int8,
    "int32_t": np.int32,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that compiles the kernel of some types, functions and configuration once."""
    kernels = {}

    def once(types, calls="", config="CFG_NORM", kind="cube", functions="", layout="ND"):
        key = (types, calls, config, kind, functions, layout)
        if key not in kernels:
            path = tmp_path_factory.mktemp("made") / "product.cpp"
            text = SOURCE
            for name, value in {"CALLS": calls, "CONFIG": config, "FUNCTIONS": functions, "LAYOUT": layout}.items():
                text = text.replace(name, value)
            path.write_text(text)
            defines = ("ASCENDC_CUBE_ONLY",) if kind == "cube" else ()
            kernels[key] = ascendc.compile(path, f"product<{', '.join(types)}>", kind=kind, defines=defines)
        return kernels[key]

    return once


def numbers(rng, cpp, *shape):
    """Return numbers whose products are rounded, of a type of the kernel."""
    if cpp == "int8_t":
        return rng.integers(-128, 128, shape, np.int8)
    values = rng.standard_normal(shape).astype(np.float32)
    return values.astype(TYPES[cpp])


def tiling_of(rng, types, ta, tb, *, steps, bias, cores=1):
    """Return a random tiling with tails, of blocks that are multiples of what the type needs."""
    unit = 32 if types[0] == "int8_t" else 16
    base = tuple(unit * int(rng.integers(1, 4 if unit == 16 else 3)) for _ in range(3))
    m, n, k = (int(rng.integers(1, 3 * size + 2)) for size in base)
    item = {"int8_t": 1, "float": 4}.get(types[0], 2)
    part = -(-m // cores)
    single = (-(-part // base[0]) * base[0] if cores > 1 else m, n, k)
    t = ascendc.matmul_tiling(m, n, k, cores=cores, item_bytes=item, a_turned=ta, b_turned=tb, bias=bias, base=base,
                              single=single)  # fmt: skip
    t.stepM, t.stepN, t.stepKa, t.stepKb = (int(rng.integers(1, 3)) if steps else 1 for _ in range(4))
    t.depthA1, t.depthB1 = t.stepM * t.stepKa * 2, t.stepN * t.stepKb * 2
    t.shareMode = ta + 2 * tb
    return t


def operands(rng, types, t, ta, tb):
    """Return A, B, bias and C as they are stored."""
    a, b = numbers(rng, types[0], t.M, t.Ka), numbers(rng, types[0], t.Kb, t.N)
    bias = rng.integers(-9, 10, t.N).astype(TYPES[types[2]])
    c = numbers(rng, types[1] if types[1] != "int32_t" else "int8_t", t.M, t.N)
    return a.T.copy() if ta else a, b.T.copy() if tb else b, bias, c.astype(TYPES.get(types[1], c.dtype))


def rows_of(run, core):
    """Return the rows of a core without the lines that they are of."""
    rows = run.rows(core)
    return rows[[name for name in rows.dtype.names if name != "site"]]


ALL = [
    ("half", "float", "float"), ("half", "half", "float"), ("bfloat16_t", "float", "float"),
    ("bfloat16_t", "bfloat16_t", "float"), ("float", "float", "float"), ("int8_t", "int32_t", "int32_t"),
    ("int8_t", "half", "int32_t"), ("int8_t", "int8_t", "int32_t"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("types", "mixed"), [*((types, False) for types in ALL), *((types, True) for types in ALL[::3])], ids=str
)
def test_functions_that_copy_as_the_class_does_change_nothing(made, types, mixed):
    config = "CFG_MDL" if ALL.index(types) % 2 == mixed else "CFG_NORM"
    rng = np.random.default_rng([ALL.index(types), mixed])
    plain, own = (made(types, calls, config, None if mixed else "cube") for calls in ("", OWN))
    for turn in range(12):
        ta, tb, steps, how = bool(turn & 1), bool(turn & 2), bool(turn & 4), (0, 1, 3)[turn // 4]
        t = tiling_of(rng, types, ta, tb, steps=steps, bias=bool(rng.integers(2)), cores=2 if mixed else 1)
        a, b, bias, c = operands(rng, types, t, ta, tb)
        words = None
        if types in (("int8_t", "half", "int32_t"), ("int8_t", "int8_t", "int32_t")):
            how = how % 2
            signed = np.uint64(types[1] == "int8_t") << np.uint64(46)
            if rng.integers(2):
                words = rng.choice(np.array([2**-7, 2**-8], np.float32), t.N).view(np.uint32).astype(np.uint64) | signed
        outs, runs = [], []
        for kernel in (plain, own):
            outs.append(c.copy())
            runs.append(kernel(a, b, bias, outs[-1], how, words, tiling=t, outputs=[], accumulation=SERIAL))
        assert outs[0].tobytes() == outs[1].tobytes()
        assert outs[0].tobytes() != c.tobytes()
        assert {found.kind for found in runs[1].findings} <= {found.kind for found in runs[0].findings}
        # the class brings several blocks at once, and 32-bit elements that are turned in another order
        if (config == "CFG_MDL" or not steps) and (types[0] != "float" or (not ta and tb)):
            for core in range(runs[0].launches[0].core_count):
                assert np.array_equal(*(rows_of(run, core) for run in runs))


# The rows of A are those of a table that a list in memory names, those of a block wherever they are.
GATHERED = """
template <class T>
void gather_a(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int m, int k,
              const uint64_t tiling, const uint64_t list) {
  auto t = reinterpret_cast<const __gm__ TCubeTiling*>(tiling);
  GlobalTensor<int32_t> named;
  GlobalTensor<T> table;
  named.SetGlobalBuffer((__gm__ int32_t*)list);
  table.SetGlobalBuffer((__gm__ T*)gm);
  for (int i = 0; i < m; i++) {
    uint64_t at = uint64_t(named.GetValue(row * t->baseM + i)) * t->Ka + col * t->baseK;
    Nd2NzParams one(1, 1, k, 0, t->Ka, (m + 15) / 16 * 16, 1, 0);
    DataCopy(to.ReinterpretCast<T>()[i * 32 / sizeof(T)], table[at], one);
  }
}
"""


@pytest.mark.parametrize(("types", "config", "mixed"), [
    (("half", "float", "float"), "CFG_NORM", False), (("bfloat16_t", "float", "float"), "CFG_MDL", False),
    (("float", "float", "float"), "CFG_MDL", True),
], ids=str)  # fmt: skip
def test_rows_of_a_from_all_over_memory(made, types, config, mixed):
    kernel = made(types, "nullptr, gather_a<T>, nullptr", config, None if mixed else "cube", GATHERED)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        t = tiling_of(rng, types, False, bool(seed % 2), steps=True, bias=True)
        _, b, bias, c = operands(rng, types, t, False, bool(seed % 2))
        table = rng.integers(-4, 5, (t.M + 9, t.Ka)).astype(TYPES[types[0]])
        b = rng.integers(-4, 5, b.shape).astype(b.dtype)
        named = rng.integers(0, t.M + 9, t.M).astype(np.int32)
        kernel(table, b, bias, c, seed // 3, named, tiling=t, outputs=[3])
        wanted = table[named].astype(np.float64) @ (b.T if seed % 2 else b).astype(np.float64) + bias * t.isBias
        assert np.array_equal(c, wanted)


# The halves of A's columns lie in two tensors, whose places are written into memory before.
PLACES = """
template <class T>
void from_two(const LocalTensor<int8_t>& to, const __gm__ void*, int row, int col, int m, int k, const uint64_t tiling,
              const uint64_t places) {
  auto t = reinterpret_cast<const __gm__ TCubeTiling*>(tiling);
  GlobalTensor<uint64_t> both;
  GlobalTensor<T> half;
  both.SetGlobalBuffer((__gm__ uint64_t*)places);
  int width = t->Ka / 2, first = col * t->baseK;
  half.SetGlobalBuffer((__gm__ T*)both.GetValue(first >= width));
  block(to, half[row * t->baseM * width + first % width].GetPhyAddr(), m, k, width, 16);
}
constexpr MatmulConfig ADDRESSES = GetNormalConfig(false, false, false, BatchMode::NONE, false);
__global__ __aicore__ void apart(GM_ADDR first, GM_ADDR second, GM_ADDR b, GM_ADDR c, GM_ADDR places, GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(TCubeTiling, t, tiling);
  TPipe pipe;
  using In = MatmulType<TPosition::GM, CubeFormat::ND, half>;
  Matmul<In, In, MatmulType<TPosition::GM, CubeFormat::ND, float>, In, ADDRESSES,
         MatmulCallBackFunc<nullptr, from_two<half>>> mm;
  REGIST_MATMUL_OBJ(&pipe, GetSysWorkSpacePtr(), mm, &t);
  GlobalTensor<uint64_t> both; GlobalTensor<half> A, B; GlobalTensor<float> C;
  both.SetGlobalBuffer((__gm__ uint64_t*)places);
  A.SetGlobalBuffer((__gm__ half*)first); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
  both.SetValue(0, reinterpret_cast<uint64_t>(first));
  both.SetValue(1, reinterpret_cast<uint64_t>(second));
  mm.SetUserDefInfo(reinterpret_cast<uint64_t>(tiling));
  mm.SetTensorA(A); mm.SetTensorB(B);
  mm.SetSelfDefineData(reinterpret_cast<uint64_t>(places));
  mm.IterateAll(C);
  mm.End();
}
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Return a function that compiles the kernel of two tensors, edited."""

    def edited(**edits):
        text = SOURCE[: SOURCE.index("FUNCTIONS")] + PLACES
        for old, new in edits.items():
            text = text.replace(*new) if isinstance(new, tuple) else text.replace(old, new)
        path = tmp_path_factory.mktemp("apart") / "apart.cpp"
        path.write_text(text)
        return ascendc.compile(path, "apart", kind="cube", defines=("ASCENDC_CUBE_ONLY",))

    return edited


def run_apart(kernel, c):
    rng = np.random.default_rng(4)
    first, second, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((70, 64), (70, 64), (128, 40)))
    tiling = ascendc.matmul_tiling(70, 40, 128, base=(32, 32, 32))
    kernel(first, second, b, c, np.zeros(4, np.uint64), tiling=tiling, outputs=[3, 4])
    return np.hstack([first, second]).astype(np.float32) @ b.astype(np.float32)


def test_a_in_two_tensors_whose_places_are_in_memory(apart):
    c = np.zeros((70, 40), np.float32)
    assert np.array_equal(run_apart(apart(), c), c)


@pytest.mark.parametrize(("old", "new", "said"), [
    ("  mm.SetSelfDefineData(reinterpret_cast<uint64_t>(places));\n", "",
     "MatmulConfig enableReuse false must come with SetSelfDefineData"),
    ("reinterpret_cast<uint64_t>(places));\n  mm.It", "7);\n  mm.It",
     "SetSelfDefineData must be given an address in global memory with MatmulConfig enableReuse false, not 7"),
    ("mm.IterateAll(C)", "mm.IterateBatch(C, false, 0, false)",
     "IterateBatch with MatmulCallBackFunc is not modelled"),
])  # fmt: skip
def test_what_does_not_go_with_functions_ends_the_kernel(apart, old, new, said):
    kernel = apart(
        edit=(old, new),
        layouts=("CubeFormat::ND, half>", "CubeFormat::ND, half, false, LayoutMode::NORMAL>"),
        batch=("CubeFormat::ND, float>", "CubeFormat::ND, float, false, LayoutMode::NORMAL>"),
    )
    with pytest.raises(ascendc.KernelError, match=said):
        run_apart(kernel, np.zeros((70, 40), np.float32))


# Blocks leave as matrices of their own, those of a column of blocks first, into the tensor of the data.
BLOCKWISE = """
template <class U>
void one_by_one(const __gm__ void*, const LocalTensor<int8_t>& block, const void* given, const uint64_t tiling,
                const uint64_t data) {
  auto t = reinterpret_cast<const __gm__ TCubeTiling*>(tiling);
  auto p = (const DataCopyOutParams*)given;
  int high = (t->M + t->baseM - 1) / t->baseM;
  GlobalTensor<U> to;
  to.SetGlobalBuffer((__gm__ U*)data);
  FixpipeParams<float> how(p->cBurstNum, p->burstLen, p->srcStride, t->baseN);
  how.nz2ndParams = {true, 1, 0, 0, p->oriNSize};
  if (sizeof(U) == 2) how.quantParams = {F322F16};
  Fixpipe(to[uint64_t(p->curN * high + p->curM) * t->baseM * t->baseN], block.ReinterpretCast<float>(), how);
}
"""


@pytest.mark.parametrize(("types", "config", "mixed"), [
    (("half", "half", "float"), "CFG_NORM", True), (("float", "float", "float"), "CFG_MDL", False),
], ids=str)  # fmt: skip
def test_blocks_of_c_leave_one_by_one(made, types, config, mixed):
    kernel = made(types, "one_by_one<U>", config, None if mixed else "cube", BLOCKWISE)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        t = tiling_of(rng, types, False, False, steps=True, bias=True)
        a, b, bias, c = operands(rng, types, t, False, False)
        a, b = (rng.integers(-4, 5, x.shape).astype(x.dtype) for x in (a, b))
        high, wide = -(-t.M // t.baseM), -(-t.N // t.baseN)
        blocks = np.full((wide, high, t.baseM, t.baseN), 77, c.dtype)
        kernel(a, b, bias, c.copy(), seed % 2, blocks, tiling=t, outputs=[], accumulation=SERIAL)
        whole = np.full((high * t.baseM, wide * t.baseN), 77, c.dtype)
        whole[: t.M, : t.N] = a.astype(np.float32) @ b.astype(np.float32) + bias * t.isBias
        assert np.array_equal(blocks, whole.reshape(high, t.baseM, wide, t.baseN).transpose(2, 0, 1, 3))


# Columns of blocks have scales of their own.
SCALED = """
template <class T, class U>
void scaled(const __gm__ void* gm, const LocalTensor<int8_t>& block, const void* given, const uint64_t tiling,
            const uint64_t data) {
  GlobalTensor<uint64_t> scales;
  scales.SetGlobalBuffer((__gm__ uint64_t*)data);
  DataCopyOutParams mine = *(const DataCopyOutParams*)given;
  mine.quantMode = DEQF16;
  mine.quantScalar = scales.GetValue(mine.curN);
  mine.cbufWorkspaceAddr = 0;
  copy_out<T, U>(gm, block, &mine, tiling, data);
}
"""


def test_blocks_of_c_with_scales_of_their_own(made):
    types = ("int8_t", "half", "int32_t")
    kernel = made(types, "scaled<T, U>", functions=SCALED)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        t = tiling_of(rng, types, bool(seed & 1), bool(seed & 2), steps=True, bias=False)
        a, b, bias, c = operands(rng, types, t, bool(seed & 1), bool(seed & 2))
        scales = rng.choice(np.array([2**-7, 2**-9, 2**-6], np.float32), t.N)
        kernel(a, b, bias, c, 0, scales.view(np.uint32).astype(np.uint64), tiling=t, outputs=[3])
        sums = (a.T if seed & 1 else a).astype(np.int64) @ (b.T if seed & 2 else b).astype(np.int64)
        assert np.array_equal(c, (sums * scales[np.arange(t.N) // t.baseN].astype(np.float64)).astype(np.float16))


# Into fractals, in the units of the older parameters.
FRACTALS = """
void in_fractals(const __gm__ void* gm, const LocalTensor<int8_t>& block, const void* given, const uint64_t,
                 const uint64_t) {
  auto p = (const DataCopyOutParams*)given;
  GlobalTensor<float> to;
  to.SetGlobalBuffer((__gm__ float*)gm);
  Fixpipe(to, block.ReinterpretCast<float>(),
          FixpipeParams<float>(p->cBurstNum, p->burstLen, p->srcStride, p->dstStride - p->burstLen));
}
"""


def test_c_in_fractals(made):
    types = ("half", "float", "float")
    kernel = made(types, "in_fractals", functions=FRACTALS, layout="NZ")
    for seed in range(4):
        rng = np.random.default_rng(seed)
        t = tiling_of(rng, types, False, False, steps=False, bias=True)
        a, b, bias, _ = operands(rng, types, t, False, False)
        a, b = (rng.integers(-4, 5, x.shape).astype(x.dtype) for x in (a, b))
        high, wide = -(-t.M // 16) * 16, -(-t.N // 16)
        c = np.full((wide, high, 16), 77, np.float32)
        kernel(a, b, bias, c, seed % 2, None, tiling=t, outputs=[], accumulation=SERIAL)
        exact = a.astype(np.float32) @ b.astype(np.float32) + bias * t.isBias
        assert np.array_equal(c.transpose(1, 0, 2).reshape(high, -1)[: t.M, : t.N], exact)
        assert (c[:, t.M :] == 77).all()


# What each function is given, by the numbers of its block.
NOTED = """
void note(const uint64_t data, int function, int row, int col, int first, int second) {
  GlobalTensor<int32_t> notes;
  notes.SetGlobalBuffer((__gm__ int32_t*)data);
  int at = ((function * 8 + row) * 8 + col) * 2;
  notes.SetValue(at, first);
  notes.SetValue(at + 1, second);
}
template <class T>
void noted_a(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int m, int k,
             const uint64_t tiling, const uint64_t data) {
  note(data, 0, row, col, m, k);
  copy_a<T>(to, gm, row, col, m, k, tiling, data);
}
template <class T>
void noted_b(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int k, int n,
             const uint64_t tiling, const uint64_t data) {
  note(data, 1, row, col, k, n);
  copy_b<T>(to, gm, row, col, k, n, tiling, data);
}
template <class T, class U>
void noted_out(const __gm__ void* gm, const LocalTensor<int8_t>& block, const void* given, const uint64_t tiling,
               const uint64_t data) {
  auto p = (const DataCopyOutParams*)given;
  note(data, 2, p->curM, p->curN, p->burstLen / 2, p->cBurstNum * 1000 + p->oriNSize);
  copy_out<T, U>(gm, block, given, tiling, data);
}
"""


@pytest.mark.parametrize(("config", "mixed"), [("CFG_NORM", False), ("CFG_MDL", False), ("CFG_NORM", True)])
def test_what_functions_are_given(made, config, mixed):
    types = ("half", "float", "float")
    calls = "noted_out<T, U>, noted_a<T>, noted_b<T>"
    kernel = made(types, calls, config, None if mixed else "cube", NOTED)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        ta, tb = bool(seed & 1), bool(seed & 2)
        t = tiling_of(rng, types, ta, tb, steps=True, bias=False)
        a, b, bias, c = operands(rng, types, t, ta, tb)
        notes, wanted = (np.full((3, 8, 8, 2), -1, np.int32) for _ in range(2))
        kernel(a, b, bias, c, 0, notes, tiling=t, outputs=[])
        many = config == "CFG_MDL"
        sizes = {"m": (t.M, t.baseM), "n": (t.N, t.baseN), "k": (t.Ka, t.baseK)}
        steps = [("m", t.stepM, "k", t.stepKa), ("k", t.stepKb, "n", t.stepN), ("m", 1, "n", 1)]
        for function, (rows, row_step, columns, column_step) in enumerate(steps):
            for i in range(0, -(-sizes[rows][0] // sizes[rows][1]), row_step if many else 1):
                for j in range(0, -(-sizes[columns][0] // sizes[columns][1]), column_step if many else 1):
                    height = min(sizes[rows][0] - i * sizes[rows][1], sizes[rows][1] * (row_step if many else 1))
                    width = min(
                        sizes[columns][0] - j * sizes[columns][1], sizes[columns][1] * (column_step if many else 1)
                    )
                    wanted[function, i, j] = height, width if function < 2 else -(-width // 16) * 1000 + width
        assert np.array_equal(notes, wanted)


def test_words_that_are_not_set_are_nothing(made):
    """The functions of kernels without SetUserDefInfo and SetSelfDefineData are told 0."""
    given = """
    template <class T>
    void told(const LocalTensor<int8_t>& to, const __gm__ void* gm, int row, int col, int m, int k,
              const uint64_t tiling, const uint64_t data) {
      block(to, reinterpret_cast<const __gm__ T*>(gm) + tiling + data, m, k, k, 16);
    }"""
    kernel = made(("half", "float", "float"), "nullptr, told<T>", functions=given)
    a, b, c = np.ones((16, 16), np.float16), np.ones((16, 32), np.float16), np.zeros((16, 32), np.float32)
    kernel(a, b, None, c, 2, None, tiling=ascendc.matmul_tiling(16, 32, 16), outputs=[3])
    assert (c == 16).all()


@pytest.mark.parametrize(("old", "new", "said"), [
    ("CONFIG", "CFG_IBSHARE_NORM", "MatmulCallBackFunc is modelled with the Norm and MDL templates"),
    ("CONFIG", "MM_CFG_BB", "MatmulCallBackFunc is modelled with the Norm and MDL templates"),
    ("TPosition::GM, CubeFormat::ND, T, true", "TPosition::TSCM, CubeFormat::NZ, T, true",
     "MatmulCallBackFunc with CopyA1 must come with A in TPosition::GM"),
    ("TPosition::GM, CubeFormat::LAYOUT, U", "TPosition::VECIN, CubeFormat::ND, U",
     "MatmulCallBackFunc with DataCopyOut must come with C in TPosition::GM"),
    ("MatmulCallBackFunc<CALLS>", f"MatmulCallBackFunc<{OWN}>, Impl::Detail::NBuffer33MatmulPolicy",
     "MatmulCallBackFunc with NBuffer33MatmulPolicy is not modelled"),
    ("SetSelfDefineData(reinterpret_cast<uint64_t>(words)", "SetSelfDefineData(DataCopyOutParams()",
     "SetSelfDefineData must be given a uint64_t on A2 and A3"),
    ("CALLS", "copy_a<T>", "MatmulCallBackFunc"),
])  # fmt: skip
def test_what_functions_cannot_go_with_does_not_compile(source_file, old, new, said):
    text = SOURCE.replace(old, new)
    for name, value in {"CALLS": OWN, "CONFIG": "CFG_NORM", "FUNCTIONS": "", "LAYOUT": "ND"}.items():
        text = text.replace(name, value)
    with pytest.raises(CompilationError, match=said):
        ascendc.compile(source_file("product.cpp", text), "product<half, float, float>", kind="cube")


@pytest.mark.parametrize(("old", "new", "said"), [
    ("if (t.isBias) mm.SetBias", "mm.SetSelfDefineData(0); if (t.isBias) mm.SetBias",
     "SetSelfDefineData must be called before SetTensorA and SetTensorB"),
    ("if (how == 1)", "LocalTensor<T> here(TPosition::VECOUT, 0, 64); mm.SetTensorA(here); if (how == 1)",
     "SetTensorA must be given a GlobalTensor with MatmulCallBackFunc CopyA1"),
    ("if (how == 1)", "LocalTensor<T> here(TPosition::VECOUT, 0, 64); mm.SetTensorB(here); if (how == 1)",
     "SetTensorB must be given a GlobalTensor with MatmulCallBackFunc CopyB1"),
    ("if (how == 1)", "LocalTensor<U> here(TPosition::VECIN, 0, 64); mm.IterateAll(here); if (how == 1)",
     "GetTensorC into UB must not be called with MatmulCallBackFunc DataCopyOut"),
])  # fmt: skip
def test_what_a_vector_core_must_not_call(source_file, old, new, said):
    text = SOURCE.replace(old, new)
    for name, value in {"CALLS": OWN, "CONFIG": "CFG_NORM", "FUNCTIONS": "", "LAYOUT": "ND"}.items():
        text = text.replace(name, value)
    kernel = ascendc.compile(source_file("product.cpp", text), "product<half, float, float>")
    a, c = np.zeros((32, 32), np.float16), np.zeros((32, 32), np.float32)
    with pytest.raises(ascendc.KernelError, match=said):
        kernel(a, a, None, c, 0, None, tiling=ascendc.matmul_tiling(32, 32, 32), outputs=[3])


@pytest.mark.parametrize("call", ["SetUserDefInfo", "SetSelfDefineData"])
def test_dual_masters_have_no_words(source_file, call):
    masters = "constexpr MatmulConfig masters() { MatmulConfig c = CFG_NORM; c.enableMixDualMaster = true; return c; }"
    text = SOURCE
    for name, value in {"CALLS": "", "CONFIG": "MASTERS", "LAYOUT": "ND", "if (how != 2)": "if (!how)",
                        "FUNCTIONS": masters + "\nconstexpr MatmulConfig MASTERS = masters();"}.items():  # fmt: skip
        text = text.replace(name, value)
    path = source_file("product.cpp", text)
    kernel = ascendc.compile(path, "product<half, float, float>", kind="cube", defines=("ASCENDC_CUBE_ONLY",))
    a, c = np.zeros((32, 32), np.float16), np.zeros((32, 32), np.float32)
    how = 0 if call == "SetUserDefInfo" else 1
    tiling = ascendc.matmul_tiling(32, 32, 32)
    with pytest.raises(ascendc.KernelError, match=f"{call} must not be called with MatmulConfig enableMixDualMaster"):
        kernel(a, a, None, c, how, None, tiling=tiling, outputs=[3])
