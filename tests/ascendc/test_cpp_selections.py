"""Compare, CompareScalar and Select in C++: every form, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
constexpr uint32_t N = 4096;
#define ONE_OF(a, b, c, d, e, f) \\
  (mode == 0 ? CMPMODE::a : mode == 1 ? CMPMODE::b : mode == 2 ? CMPMODE::c : mode == 3 ? CMPMODE::d : \\
   mode == 4 ? CMPMODE::e : CMPMODE::f)
template <class T> class Chooser {
 public:
  __aicore__ inline void Run(GM_ADDR x, GM_ADDR y, GM_ADDR bits, GM_ADDR z, int32_t form, int32_t mode, int32_t count) {
    constexpr uint32_t LANES = 256 / sizeof(T);
    GlobalTensor<T> gx, gy, gz;
    GlobalTensor<uint8_t> gb;
    gx.SetGlobalBuffer((__gm__ T*)x); gy.SetGlobalBuffer((__gm__ T*)y); gz.SetGlobalBuffer((__gm__ T*)z);
    gb.SetGlobalBuffer((__gm__ uint8_t*)bits);
    TPipe pipe;
    TBuf<> a, b, c, d;
    pipe.InitBuffer(a, N * sizeof(T)); pipe.InitBuffer(b, N * sizeof(T)); pipe.InitBuffer(c, N * sizeof(T));
    pipe.InitBuffer(d, N / 8);
    LocalTensor<T> u = a.Get<T>(), v = b.Get<T>(), w = c.Get<T>();
    LocalTensor<uint8_t> m = d.Get<uint8_t>();
    DataCopy(u, gx, N);
    DataCopy(v, gy, N);
    SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
    Duplicate(w, T(-77), N);
    Duplicate(m.ReinterpretCast<int16_t>(), int16_t(0), N / 16);
    CMPMODE how = ONE_OF(LT, GT, EQ, LE, GE, NE);
    if (form == 0) {
      Compare(m, u, v, how, count);
      Select(w, m, u, v, SELMODE::VSEL_TENSOR_TENSOR_MODE, count);
    } else if (form == 1) {
      CompareScalar(m, u, T(0.5), how, count);
      Select(w, m, u, T(3), SELMODE::VSEL_TENSOR_SCALAR_MODE, count);
    } else if (form == 2) {
      uint64_t some[2] = {0x5555555555555555ull, 0x0F0F0F0F0F0F0F0Full};
      Compare(m, u, v, how, some, uint8_t(N / LANES), {1, 1, 1, 8, 8, 8});
      Select(w, m, u, v, SELMODE::VSEL_TENSOR_TENSOR_MODE, some, uint8_t(N / LANES), {1, 1, 1, 8, 8, 8});
    } else if (form == 3) {
      Compares(m, u, T(0.5), how, uint64_t(LANES), uint8_t(N / LANES), {1, 1, 8, 8});
      Select(w, m, u, T(3), SELMODE::VSEL_TENSOR_SCALAR_MODE, uint64_t(LANES / 2), uint8_t(N / LANES),
             {1, 1, 1, 8, 8, 8});
    } else if (form == 4) {  // the bits of the first repeat for all
      Compare(m, u, v, how, LANES);
      Select(w, m, u, v, SELMODE::VSEL_CMPMASK_SPR, count);
    } else if (form == 5) {
      Compare(u, v, how, uint64_t(LANES), {1, 1, 1, 8, 8, 8});
      Select<T, SELMODE::VSEL_CMPMASK_SPR>(w, u, v, uint8_t(N / LANES), {1, 1, 1, 8, 8, 8});
      SetCmpMask(m);
      Select<T, SELMODE::VSEL_CMPMASK_SPR>(w, u, v, 1, {1, 1, 1, 8, 8, 8});
    } else {
      switch (mode) {
        case 0: m = u < v; break;
        case 1: m = u > v; break;
        case 2: m = u == v; break;
        case 3: m = u <= v; break;
        case 4: m = u >= v; break;
        default: m = u != v;
      }
      w = u * v;
      w = w + u;
      w = w - v;
    }
    SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(gz, w, N);
    DataCopy(gb, m, N / 8);
  }
};
extern "C" __global__ __aicore__ void choose(GM_ADDR x, GM_ADDR y, GM_ADDR bits, GM_ADDR z, int32_t form, int32_t mode,
                                             int32_t count) {
  Chooser<DTYPE_X>().Run(x, y, bits, z, form, mode, count);
}
"""
RELATIONS = (np.less, np.greater, np.equal, np.less_equal, np.greater_equal, np.not_equal)
N = 4096
SOME = [lane for lane in range(128) if (0x0F0F0F0F0F0F0F0F_5555555555555555 >> lane) & 1]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ascendc.SourceKernel:
    source = tmp_path_factory.mktemp("choose") / "choose.cpp"
    source.write_text(SOURCE)
    return ascendc.compile(source)


def _vectors(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    values = np.array([0, -0.0, 0.5, 1, -1, 2, np.inf, -np.inf, np.nan], dtype)
    return rng.choice(values, N), rng.choice(values, N)


def _holds(relation: np.ufunc, x: np.ndarray, y: np.ndarray | float) -> np.ndarray:
    return relation(x, y) & ~np.isnan(x) & ~np.isnan(y)  # NE holds of no NaN


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("product", ["910b", "310p"])
def test_every_form_selects_what_numpy_does(kernel: ascendc.SourceKernel, dtype: type, product: str) -> None:
    x, y = _vectors(dtype)
    lanes = 256 // np.dtype(dtype).itemsize
    for mode, relation in enumerate(RELATIONS):
        for form in range(7):
            count = N - 5 * lanes
            bits, z = np.zeros(N // 8, np.uint8), np.zeros(N, dtype)
            run = kernel(x, y, bits, z, form, mode, count, product=product)
            # some forms write all of what Duplicate wrote before
            assert {found.kind for found in run.findings} <= {Kind.WRITE_UNREAD}, (form, mode)
            got = np.unpackbits(bits, bitorder="little").astype(bool)
            scalar = form in (1, 3)
            holds = _holds(relation, x, dtype(0.5) if scalar else y)
            within = np.arange(N) < (count if form < 2 else N)
            if form == 4:
                within, holds = np.arange(N) < lanes, np.resize(holds[:lanes], N)
            if form != 5:
                assert np.array_equal(got, holds & within), (form, mode)
            if form == 5:
                holds = np.resize(holds[:lanes], N)
                holds[:lanes] = False  # SetCmpMask of zeros
            chosen = np.where(holds, x, dtype(3) if scalar else y)
            if form == 6:
                with np.errstate(all="ignore"):
                    chosen = x * y + x - y
                finite = np.isfinite(x) & np.isfinite(y)  # half has no infinities on 310P
                z, chosen = z[finite], chosen[finite]
                assert np.array_equal(z, chosen), (form, mode)
                continue
            active = np.arange(N) < count if form in (0, 1, 4) else np.ones(N, bool)
            if form == 2:
                active = np.isin(np.arange(N) % lanes, SOME)
            if form == 3:
                active = np.arange(N) % lanes < lanes // 2
            np.testing.assert_array_equal(z, np.where(active, chosen, dtype(-77)), str((form, mode)))


def test_integers_are_compared_for_equality_alone(tmp_path) -> None:
    source = tmp_path / "whole.cpp"
    source.write_text(SOURCE.replace("Chooser<DTYPE_X>().Run", "Chooser<float>().Run").replace(
        "Compare(m, u, v, how, count);",
        "Compare(m, u.template ReinterpretCast<int32_t>(), v.template ReinterpretCast<int32_t>(), how, count);",
    ))  # fmt: skip
    kernel = ascendc.compile(source)
    x, y = np.arange(N, dtype=np.int32), np.arange(N, dtype=np.int32)
    y[::3] += 1 << 24
    bits, z = np.zeros(N // 8, np.uint8), np.zeros(N, np.float32)
    kernel(x, y, bits, z, 0, 2, N)
    assert np.array_equal(np.unpackbits(bits, bitorder="little").astype(bool), x == y)
    assert "must be EQ" in str(kernel.check(x, y, bits, z, 0, 0, N).findings[0])


def test_missing_and_wrong_modes_are_named(kernel: ascendc.SourceKernel, tmp_path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text(
        SOURCE.replace("DTYPE_X", "float")
        .replace("Compare(u, v, how, uint64_t(LANES), {1, 1, 1, 8, 8, 8});", "")
        .replace("T(3), SELMODE::VSEL_TENSOR_SCALAR_MODE, count", "T(3), SELMODE::VSEL_TENSOR_TENSOR_MODE, count")
    )
    wrong = ascendc.compile(source)
    x, y = _vectors(np.float32)
    bits, z = np.zeros(N // 8, np.uint8), np.zeros(N, np.float32)
    with pytest.raises(KernelError, match="must come behind a Compare or SetCmpMask"):
        wrong(x, y, bits, z, 5, 0, N)
    with pytest.raises(KernelError, match="must be of the scalar mode"):
        wrong(x, y, bits, z, 1, 0, N)


def test_behind_the_last_whole_256_bytes_nothing_is_compared(kernel: ascendc.SourceKernel) -> None:
    x, y = _vectors(np.float32)
    bits, z = np.zeros(N // 8, np.uint8), np.zeros(N, np.float32)
    kernel(x, y, bits, z, 0, 0, 100)
    assert np.array_equal(np.unpackbits(bits, bitorder="little")[64:], np.zeros(N - 64))
