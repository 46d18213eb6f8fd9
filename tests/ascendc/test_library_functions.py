"""Functions of the library on vector cores: math, SoftMax, Sum, Mean, Broadcast, against definitions in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import require_compiler

require_compiler()

MATH = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> __global__ __aicore__ void apply(GM_ADDR x, GM_ADDR e, GM_ADDR y, int32_t count, int32_t which,
                                                    int32_t room) {
  TPipe pipe; TQue<TPosition::VECIN, 1> in, in2; TQue<TPosition::VECOUT, 1> out; TBuf<TPosition::VECCALC> buffer;
  uint32_t bytes = (count * sizeof(T) + 31) / 32 * 32;
  pipe.InitBuffer(in, 1, bytes); pipe.InitBuffer(in2, 1, bytes); pipe.InitBuffer(out, 1, bytes);
  if (room) pipe.InitBuffer(buffer, room);
  GlobalTensor<T> X, E, Y;
  X.SetGlobalBuffer((__gm__ T*)x); E.SetGlobalBuffer((__gm__ T*)e); Y.SetGlobalBuffer((__gm__ T*)y);
  LocalTensor<T> a = in.AllocTensor<T>(), b = in2.AllocTensor<T>();
  DataCopyPad(a, X, DataCopyExtParams(1, count * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
  DataCopyPad(b, E, DataCopyExtParams(1, count * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
  in.EnQue(a); in2.EnQue(b); a = in.DeQue<T>(); b = in2.DeQue<T>();
  LocalTensor<T> r = out.AllocTensor<T>();
  LocalTensor<uint8_t> free = room ? buffer.Get<uint8_t>() : LocalTensor<uint8_t>();
  int32_t next = 0;
#define TRY(F) if (which == next++) { if (room) F(r, a, free, count); else F(r, a, count); }
  FUNCTIONS
  if (which == next++) FasterGelu<T, false, true>(r, a, uint32_t(count));
  if (which == next++) Gelu<T, true>(r, a, uint32_t(count));
  if (which == next++) { if (room) Power(r, a, b, free, count); else Power<T, false>(r, a, b, count); }
  if (which == next++) Power(r, a, T(3), uint32_t(count));
  if (which == next++) Power(r, T(2), b, uint32_t(count));
  if (which == next++) Swish(r, a, count, T(1.5));
  if (which == next++) ClampMax(r, a, T(0.5), count);
  if (which == next++) ClampMin(r, a, free, T(0.5), count);
  out.EnQue(r); r = out.DeQue<T>(); in.FreeTensor(a); in2.FreeTensor(b);
  DataCopyPad(Y, r, DataCopyExtParams(1, count * sizeof(T), 0, 0, 0));
  out.FreeTensor(r);
}
"""


def _logistic(x):
    return 1 / (1 + np.exp(-x))


def _half_of_normal(x):
    return np.sign(x) * (0.5 - 0.1444 * (np.minimum(np.abs(0.7071 * x), 1.769) - 1.769) ** 2) + 0.5


def _exp(x):
    return np.exp(x.astype(np.float64)).astype(x.dtype)


def _gelu_steps(x):
    t = x * x * x * np.float16(0.044715) + x
    return x / (_exp(t * np.float16(-1.59576912)) + np.float16(1))


def _faster_gelu_steps(x):
    return x / (_exp(x * np.float16(-1.702)) + np.float16(1))


def _faster_gelu_v2_steps(x):
    t = np.minimum(np.abs(x * np.float16(0.7071)), np.float16(1.769)) + np.float16(-1.769)
    t = (t * t * np.float16(-0.1444) + np.float16(0.5)) * np.sign(x) + np.float16(0.5)
    return t * x


IN_HALF = {
    "Gelu": _gelu_steps,
    "FasterGelu": _faster_gelu_steps,
    "FasterGelu with options": _faster_gelu_steps,
    "FasterGeluV2": _faster_gelu_v2_steps,
}
"""Functions that compute half in half, step by step as NumPy does."""
DEFINITIONS = {
    "Sigmoid": _logistic,
    "Tanh": np.tanh,
    "Log": lambda x: np.log(np.abs(x)),
    "Log2": lambda x: np.log2(np.abs(x)),
    "Log10": lambda x: np.log10(np.abs(x)),
    "Silu": lambda x: x * _logistic(x),
    "Gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "FasterGelu": lambda x: x * _logistic(1.702 * x),
    "FasterGeluV2": lambda x: x * _half_of_normal(x),
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Trunc": np.trunc,
    "Round": np.rint,
    "Frac": lambda x: x - np.trunc(x),
    "Sign": np.sign,
    "Sin": np.sin,
    "Cos": np.cos,
    "Erf": np.vectorize(math.erf),
    "Erfc": np.vectorize(math.erfc),
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
}
WITHIN = {"Asin": (-1, 1), "Acos": (-1, 1), "Acosh": (1, 20), "Atanh": (-0.999, 0.999)}
AROUND_1 = {"FasterGeluV2", "Erf", "Erfc", "Tanh", "Sinh", "Asinh", "Atanh", "Acos", "Asin", "Acosh"}
"""Functions whose errors are of numbers around 1 where their values are small."""
OTHERS = {
    "FasterGelu with options": lambda x, e: x * _logistic(1.702 * x),
    "Gelu of high precision": lambda x, e: DEFINITIONS["Gelu"](x),
    "Power": lambda x, e: np.power(x, e),
    "Power of a scalar exponent": lambda x, e: x**3,
    "Power of a scalar base": lambda x, e: np.power(2.0, e),
    "Swish": lambda x, e: x * _logistic(1.5 * x),
    "ClampMax": lambda x, e: np.minimum(x, 0.5),
    "ClampMin": lambda x, e: np.maximum(x, 0.5),
}
NAMES = [*DEFINITIONS, *OTHERS]
EXACT = {"Floor", "Ceil", "Trunc", "Round", "Frac", "Sign", "ClampMax", "ClampMin"}


@pytest.fixture(scope="module")
def functions(source_file):
    return source_file("functions.cpp", MATH.replace("FUNCTIONS", " ".join(f"TRY({name})" for name in DEFINITIONS)))


@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("half", np.float16)])
@pytest.mark.parametrize("name", NAMES)
def test_each_function_is_its_definition(functions, cpp, dtype, name):
    rng, count = np.random.default_rng(2), 777
    x, e = (rng.standard_normal(count) * 4).astype(dtype), rng.integers(-3, 4, count).astype(dtype)
    x[:6] = 0, -0.5, 0.5, 1.5, 2.5, -1
    e[:2] = 0, 2
    x = np.abs(x[6:] if name.startswith("Log") else x)[: len(x)] if name.startswith("Log") else x
    x = np.clip(x, *WITHIN[name]).astype(dtype) if name in WITHIN else x
    if name == "Tan":
        x = x[np.abs(np.cos(x.astype(np.float64))) > 0.1]
    if name in ("Atanh", "Acosh"):
        x = x[(np.abs(x) < 0.99) if name == "Atanh" else (x > 1.01)]
    count = len(x)
    exact = (
        DEFINITIONS[name](x.astype(np.float64)) if name in DEFINITIONS else OTHERS[name](*np.float64([x, e[:count]]))
    )
    results = []
    for room in (0, 5376):  # UB that is left; a buffer for some of the elements at a time
        y = np.zeros(count, dtype)
        kernel = ascendc.compile(functions, f"apply<{cpp}>")
        run = kernel(x, e[:count], y, count, NAMES.index(name), room, outputs=[2])
        assert run.findings == ()
        results.append(y)
    assert np.array_equal(*results)
    if name in EXACT:
        assert np.array_equal(results[0], exact.astype(dtype))
    elif dtype == np.float16 and name in IN_HALF:
        with np.errstate(over="ignore"):
            assert np.array_equal(results[0], IN_HALF[name](x))
    else:
        # a few roundings of float, more of small results of differences; half rounds once more
        fits = np.abs(exact) < 60000 if dtype == np.float16 else np.ones(count, bool)
        scale = np.maximum(np.abs(exact), 1 if name in AROUND_1 else 0.02)
        bound = 1e-6 if dtype == np.float32 else 2.0**-11 + 1e-6
        assert np.max((np.abs(results[0] - exact) / scale)[fits]) < bound


def test_small_values_of_erfc_are_right_too(functions):
    """As its page prints them; e^-x^2 of a rounded square is off by x^2 roundings."""
    x = np.concatenate([[0, 1, 2, 3], np.linspace(-9, 9, 996)]).astype(np.float32)
    y = np.zeros_like(x)
    ascendc.compile(functions, "apply<float>")(x, x, y, len(x), NAMES.index("Erfc"), 0, outputs=[2])
    assert np.allclose(y[:4], [1, 1.5729921e-01, 4.6777348e-03, 2.2090497e-05], rtol=2e-7, atol=0)
    exact = np.array([math.erfc(value) for value in x.tolist()])
    assert (np.abs(y - exact) <= (1e-6 + 2.0**-23 * x.astype(np.float64) ** 2) * exact).all()
    y[:] = 7
    kernel = ascendc.compile(functions, "apply<float>")
    kernel(np.where(x < 0, -np.inf, np.inf).astype(np.float32), x, y, len(x), NAMES.index("Erfc"), 0, outputs=[2])
    assert np.array_equal(np.round(y, 30), np.where(x < 0, 2, 0))


def test_powers_of_negative_numbers_and_what_is_none(functions):
    x = np.array([-2, -2, -2, 0, 0, 4, -0.0, np.inf], np.float32)
    e = np.array([3, 2, 0.5, 0, 2, -0.5, 3, 2], np.float32)
    y = np.zeros_like(x)
    ascendc.compile(functions, "apply<float>")(x, e, y, len(x), NAMES.index("Power"), 0)
    assert np.isnan(y[2])
    np.testing.assert_allclose(np.delete(y, 2), [-8, 4, 1, 0, 0.5, 0, np.inf], rtol=1e-6)


def test_a_buffer_that_holds_nothing_is_refused(functions):
    x = np.zeros(64, np.float32)
    with pytest.raises(
        ascendc.KernelError, match="Sigmoid must be given a temporary buffer of at least 64 bytes, not 32"
    ):
        ascendc.compile(functions, "apply<float>")(x, x, x.copy(), 64, 0, 32)


def test_other_types_do_not_compile(functions):
    with pytest.raises(CompilationError, match="functions of the library are of half and float"):
        ascendc.compile(functions, "apply<int16_t>")


ROWS = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T, class U> __global__ __aicore__ void rows(
    GM_ADDR x, GM_ADDR y, GM_ADDR sums, GM_ADDR maxes, GM_ADDR one, GM_ADDR wide, uint32_t m, uint32_t k,
    uint32_t pitch, int32_t room, GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(SoftMaxTiling, t, tiling);
  TPipe pipe; TBuf<TPosition::VECCALC> a, b, c, d, e, f, buffer;
  uint32_t block = 32 / sizeof(U);
  pipe.InitBuffer(a, m * pitch * sizeof(T)); pipe.InitBuffer(b, m * pitch * sizeof(T)); pipe.InitBuffer(c, m * 32);
  pipe.InitBuffer(d, m * 32); pipe.InitBuffer(e, m * sizeof(T)); pipe.InitBuffer(f, m * pitch * sizeof(T));
  if (room) pipe.InitBuffer(buffer, room);
  GlobalTensor<T> X, Y, O, W; GlobalTensor<U> S, M;
  X.SetGlobalBuffer((__gm__ T*)x); Y.SetGlobalBuffer((__gm__ T*)y); O.SetGlobalBuffer((__gm__ T*)one);
  W.SetGlobalBuffer((__gm__ T*)wide); S.SetGlobalBuffer((__gm__ U*)sums); M.SetGlobalBuffer((__gm__ U*)maxes);
  LocalTensor<T> in = a.Get<T>(), out = b.Get<T>(), o = e.Get<T>(), w = f.Get<T>();
  LocalTensor<U> s = c.Get<U>(), g = d.Get<U>();
  DataCopy(in, X, m * pitch);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  SoftMaxShapeInfo info{m, pitch, m, k};
  SumParams p{m, pitch, k};
  MeanParams q{m, pitch, k};
  uint32_t to[2] = {m, pitch}, from[2] = {m, 1}, row[2] = {1, pitch};
  if (room) {
    LocalTensor<uint8_t> free = buffer.Get<uint8_t>();
    SoftMax<T>(out, s, g, in, free, t, info);
    Sum(o, in, free, p);
    BroadCast<T, 2, 1>(w, o, to, from, free);
  } else {
    SoftMax<T>(out, in, t, info);
    Duplicate(s, U(0), m * block); Duplicate(g, U(0), m * block);
    Mean(o, in, q);
    Broadcast<T, 2, 0>(w, in, to, row);
  }
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  uint16_t rest = (pitch * sizeof(T) - (k * sizeof(T) + 31) / 32 * 32) / 32;
  DataCopyPad(Y, out, DataCopyExtParams(m, k * sizeof(T), rest, (pitch - k) * sizeof(T), 0));
  DataCopy(S, s, m * block); DataCopy(M, g, m * block); DataCopy(W, w, m * pitch);
  DataCopyPad(O, o, DataCopyExtParams(1, m * sizeof(T), 0, 0, 0));
}
"""


@pytest.fixture(scope="module")
def of_rows(source_file):
    return source_file("rows.cpp", ROWS)


@pytest.mark.parametrize("types", [("float", "float"), ("half", "half"), ("half", "float")])
@pytest.mark.parametrize(("m", "k", "pitch"), [(5, 200, 208), (11, 40, 48), (3, 64, 64), (2, 300, 320), (1, 1, 16)])
def test_functions_of_rows(of_rows, types, m, k, pitch):
    dtype, other = ({"float": np.float32, "half": np.float16}[name] for name in types)
    x = np.random.default_rng(3).standard_normal((m, pitch)).astype(dtype)
    kernel = ascendc.compile(of_rows, f"rows<{', '.join(types)}>", kind="vector")
    exact = x.astype(np.float64)[:, :k]
    powers = np.exp(exact - exact.max(1, keepdims=True))
    # a sum of k rounded terms; half rounds the result once more, and Sum adds in half
    bound = {np.float32: 2.0**-22, np.float16: 2.0**-10}
    blocks = (m, 32 // np.dtype(other).itemsize)
    for room in (0, 4608):
        y, wide, one = np.zeros_like(x), np.zeros_like(x), np.zeros(m, dtype)
        sums, maxes = np.zeros(blocks, other), np.zeros(blocks, other)
        run = kernel(x, y, sums, maxes, one, wide, np.uint32(m), np.uint32(k), np.uint32(pitch), room,
                     tiling=np.zeros(16, np.uint32), outputs=[2, 3, 4, 5])  # fmt: skip
        assert run.findings == ()
        np.testing.assert_allclose(y[:, :k], powers / powers.sum(1, keepdims=True), rtol=2 * bound[dtype])
        if room:
            assert np.array_equal(maxes, np.broadcast_to(exact.max(1, keepdims=True), blocks))
            np.testing.assert_allclose(sums, np.broadcast_to(powers.sum(1, keepdims=True), blocks), rtol=bound[other])
            np.testing.assert_allclose(one, exact.sum(1), atol=bound[dtype] * np.abs(exact).sum(1).max())
            assert np.array_equal(wide, np.broadcast_to(one[:, None], wide.shape))
        else:
            np.testing.assert_allclose(one, exact.mean(1), atol=bound[dtype] * np.abs(exact).sum(1).max())
            assert np.array_equal(wide, np.broadcast_to(x[:1], wide.shape))


def test_shapes_that_do_not_fit_are_refused(of_rows):
    x = np.zeros((3, 64), np.float32)
    kernel = ascendc.compile(of_rows, "rows<float, float>", kind="vector")
    for k, pitch, room, said in ((65, 64, 0, "SoftMax must be of rows of whole blocks, not 3 x 65 of 64"),
                                 (64, 64, 512, "SoftMax must be given a temporary buffer of at least 5")):  # fmt: skip
        with pytest.raises(ascendc.KernelError, match=said):
            kernel(x, *(x.copy() for _ in range(5)), np.uint32(3), np.uint32(k), np.uint32(pitch), room,
                   tiling=np.zeros(16, np.uint32))  # fmt: skip


ADDRESSES = """
#include "kernel_operator.h"
#include "lib/math/kernel_operator_asin_intf.h"
using namespace AscendC;
template <class T> using One = void(const LocalTensor<T>&, const LocalTensor<T>&, const uint32_t);
template <class T> using Two = void(const LocalTensor<T>&, const LocalTensor<T>&, const LocalTensor<T>&,
                                    const int32_t&);
template <class T> using Scalar = void(const LocalTensor<T>&, const LocalTensor<T>&, const T&, const int32_t&);
template <class T> using Masked = void(const LocalTensor<T>&, const LocalTensor<T>&, const LocalTensor<T>&, uint64_t,
                                       const uint8_t, const BinaryRepeatParams&);
template <class T, One<T>* one, Two<T>* two, Scalar<T>* scalar, Masked<T>* masked> struct Kernel {
  static void run(LocalTensor<T> a, LocalTensor<T> b) {
    two(a, a, b, 128);
    scalar(a, a, T(2), 128);
    masked(a[64], a[64], b, 32, 2, BinaryRepeatParams(1, 1, 1, 4, 4, 4));
    one(a, a, 128);
  }
};
extern "C" __global__ __aicore__ void by_address(GM_ADDR x, GM_ADDR y, GM_ADDR bits) {
  TPipe pipe; TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, 2048);
  LocalTensor<float> t = buffer.Get<float>();
  GlobalTensor<float> in, out; GlobalTensor<int16_t> words; GlobalTensor<double> wide;
  in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  words.SetGlobalBuffer((__gm__ int16_t*)bits); wide.SetGlobalBuffer((__gm__ double*)bits);
  DataCopy(t, in, 256);
  LocalTensor<int16_t> w = t[256].ReinterpretCast<int16_t>();
  DataCopy(w.ReinterpretCast<double>(), wide, 16);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  Kernel<float, Floor<float>, Add<float>, Muls<float>, Mul<float>>::run(t, t[128]);
  Exp<float, 15, false>(t, t, 8);
  Xor(w, w, w[16], 16);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, t, 128);
  DataCopy(words, w, 16);
}
"""


def test_functions_by_their_address_and_exclusive_or(tmp_path):
    path = tmp_path / "by_address.cpp"
    path.write_text(ADDRESSES)
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal(256).astype(np.float32), np.zeros(128, np.float32)
    words = rng.integers(-(2**15), 2**15, 64).astype(np.int16)
    kept = words.copy()
    run = ascendc.compile(path)(x, y, words)
    wanted = (x[:128] + x[128:]) * np.float32(2)
    wanted[64:96] *= x[128:160]
    wanted[96:] *= x[160:192]
    wanted = np.floor(wanted)
    assert np.array_equal(y[8:], wanted[8:])
    assert np.allclose(y[:8], np.exp(wanted[:8]), rtol=1e-6)
    assert np.array_equal(words[:16], kept[:16] ^ kept[16:32])
    assert run.findings == ()


WHOLE = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> __global__ __aicore__ void powers(GM_ADDR x, GM_ADDR e, GM_ADDR y, int32_t exponent,
                                                     int32_t which) {
  TPipe pipe;
  TBuf<> in, out, free, by;
  pipe.InitBuffer(by, 1024);
  pipe.InitBuffer(in, 1024);
  pipe.InitBuffer(out, 1024);
  pipe.InitBuffer(free, 1024);
  GlobalTensor<T> X, Y;
  X.SetGlobalBuffer((__gm__ T*)x);
  Y.SetGlobalBuffer((__gm__ T*)y);
  GlobalTensor<T> E;
  E.SetGlobalBuffer((__gm__ T*)e);
  auto a = in.Get<T>(), r = out.Get<T>(), exponents = by.Get<T>();
  DataCopy(a, X, 256);
  DataCopy(exponents, E, 256);
  PipeBarrier<PIPE_ALL>();
  if (which == 0) Power(r, a, T(exponent), free.Get<uint8_t>(), 250);
  if (which == 1) Power(r, a, exponents, free.Get<uint8_t>(), 250);
  if (which == 2) Power(r, T(exponent), exponents, free.Get<uint8_t>(), 250);
  if (which == 3) Power(r, a, exponents, 250);
  if (which == 4) Power(r, a, exponents, free.Get<uint8_t>()[400], 250);
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(Y, r, DataCopyExtParams(1, 250 * sizeof(T), 0, 0, 0));
}
"""


def _whole_power(base, exponent):
    """Return the power modulo 2^32, of exponents below 0 cut towards zero as a quotient of 1."""
    power = pow(base, abs(exponent), 2**32)
    power -= 2**32 if power >= 2**31 else 0
    return power if exponent >= 0 else 0 if power == 0 else math.trunc(1 / power)


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, 31, -1, -2, -7, 2**31 - 1, -(2**31)])
def test_powers_of_whole_numbers_are_exact_modulo_a_word(source_file, exponent):
    path = source_file("powers.cpp", WHOLE)
    rng = np.random.default_rng(abs(exponent))
    x, y = rng.integers(-99, 99, 256).astype(np.int32), np.zeros(256, np.int32)
    x[:5] = range(-2, 3)
    run = ascendc.compile(path, "powers<int32_t>")(x, x, y, np.int32(exponent), np.int32(0))
    assert not run.findings
    assert y[:250].tolist() == [_whole_power(int(value), exponent) for value in x[:250]]


@pytest.mark.parametrize("which", [1, 2, 3])
def test_powers_of_whole_numbers_have_exponents_of_their_own(source_file, which):
    path = source_file("powers.cpp", WHOLE)
    rng, y = np.random.default_rng(which), np.zeros(256, np.int32)
    x, e = rng.integers(-20, 20, 256).astype(np.int32), rng.integers(-9, 40, 256).astype(np.int32)
    x[:8], e[:8] = range(2, 10), [4, 3, 2, 1, 4, 3, 2, 1]  # of the page
    e[100:150] = rng.integers(-(2**31), 2**31, 50)
    e[150:152] = -(2**31), 2**31 - 1
    x[152:182], e[152:182] = np.repeat(np.arange(-2, 4), 5), np.tile([-2, -1, 0, 1, 2], 6)
    for base in (2, -1, 7, 0) if which == 2 else (None,):
        run = ascendc.compile(path, "powers<int32_t>")(x, e, y, np.int32(base or 0), np.int32(which))
        assert not run.findings
        bases = x.tolist() if base is None else [base] * 256
        assert y[:250].tolist() == [_whole_power(*one) for one in zip(bases[:250], e[:250].tolist(), strict=True)]
    if which != 2:
        assert y[:8].tolist() == [16, 27, 16, 5, 1296, 343, 64, 9]


def test_a_buffer_for_no_powers_is_refused(source_file):
    x = np.ones(256, np.int32)
    kernel = ascendc.compile(source_file("powers.cpp", WHOLE), "powers<int32_t>")
    with pytest.raises(KernelError, match="Power must be given a temporary buffer of at least 768 bytes, not 624"):
        kernel(x, x, x.copy(), np.int32(1), np.int32(4))


def test_results_are_those_that_the_pages_print(functions):
    # of Gelu, FasterGelu and FasterGeluV2 in half, as far as a page prints them
    kernel = ascendc.compile(functions, "apply<half>")
    x = np.array([-1.251, 1.074, 0.0841, 5.633, -6.137], np.float16)
    y = np.zeros_like(x)
    kernel(x, x, y, len(x), NAMES.index("FasterGeluV2"), 0, outputs=[2])
    assert [str(value) for value in y] == ["-0.1411", "0.916", "0.0486", "5.633", "-0.0"]
