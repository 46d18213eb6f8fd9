"""LayerNorm, DeepNorm, RmsNorm, Normalize and the gradients of LayerNorm, against definitions in float64."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import host_program, require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
constexpr LayerNormConfig PLAIN = {true, true, false, false}, WHOLE = {false, false, ONLY, true};
constexpr NormalizeConfig BARE = {ReducePattern::PATTERN, -1, true, true, true}, FULL = {};
struct Tilings {
  LayerNormTiling layer; LayerNormGradTiling slope; LayerNormGradBetaTiling beta; RmsNormTiling rms;
  DeepNormTiling deep; LayerNormSeparateTiling apart;
};
constexpr float EPSILON = 0.001f, ALPHA = -1.5f;
template <class T> struct Norms {
  LocalTensor<T> x, plus, gamma, beta, mean, variance, y, other, dgamma, dbeta;
  LocalTensor<float> means, spreads;

  template <class... Room> void run(int32_t which, uint32_t rows, uint32_t k, uint32_t pitch, Tilings& t,
                                       Room... free) {
    if (which == 0) LayerNorm<T, false>(y, mean, variance, x, gamma, beta, free..., T(EPSILON), t.layer);
    if (which == 1) DeepNorm<T>(y, mean, variance, x, plus, beta, gamma, free..., T(ALPHA), T(EPSILON), t.deep);
    if (which == 2) RmsNorm<T>(y, x, gamma, free..., T(EPSILON), t.rms);
    if (which == 3) LayerNormGrad<T>(y, other, plus, x, variance, mean, gamma, free..., T(EPSILON), t.slope);
    if (which == 4) LayerNormGradBeta<T>(dgamma, dbeta, x, plus, free..., t.beta);
    LayerNormPara para{rows, k, pitch};
    NormalizePara of_rows{rows, k, pitch};
    if (which == 5)
      LayerNorm<T, T, false, WHOLE>(y, means, spreads, x, gamma, beta, EPSILON, free..., para, t.apart);
    if (which == 6)
      LayerNorm<T, T, false, PLAIN>(y, means, spreads, x, gamma, beta, EPSILON, free..., para, t.apart);
    if (which == 7)
      Normalize<T, T, false, FULL>(y, spreads, means, spreads[rows * 8], x, gamma, beta, free..., EPSILON,
                                   of_rows);
    if (which == 8)
      Normalize<T, T, false, BARE>(y, spreads, means, spreads[rows * 8], x, gamma, beta, free..., EPSILON,
                                   of_rows);
  }
};
template <class T> __global__ __aicore__ void norms(
    GM_ADDR x, GM_ADDR plus, GM_ADDR gamma, GM_ADDR beta, GM_ADDR mean, GM_ADDR variance, GM_ADDR y, GM_ADDR other,
    GM_ADDR of_rows, GM_ADDR of_rows2, GM_ADDR floats, int32_t which, uint32_t rows, uint32_t k, uint32_t room,
    GM_ADDR tiling) {
  TPipe pipe; TBuf<TPosition::VECCALC> all, buffer;
  Tilings t;
  for (uint32_t i = 0; i < sizeof(Tilings) / 4; i++) ((uint32_t*)&t)[i] = ((__gm__ uint32_t*)tiling)[i];
  uint32_t pitch = t.layer.hLength, size = rows * pitch * sizeof(T), wide = (rows * sizeof(T) + 31) / 32 * 32;
  pipe.InitBuffer(all, 4 * size + 4 * pitch * sizeof(T) + 2 * wide + 128 * rows);
  if (room) pipe.InitBuffer(buffer, room);
  uint32_t next = 0;
  auto take = [&](uint32_t bytes) { next += bytes; return all.Get<uint8_t>()[next - bytes]; };
  auto of = [&](uint32_t bytes) { return take(bytes).template ReinterpretCast<T>(); };
  Norms<T> n;
  n.x = of(size); n.plus = of(size); n.y = of(size); n.other = of(size);
  n.gamma = of(pitch * sizeof(T)); n.beta = of(pitch * sizeof(T)); n.dgamma = of(pitch * sizeof(T));
  n.dbeta = of(pitch * sizeof(T)); n.mean = of(wide); n.variance = of(wide);
  n.means = take(64 * rows).template ReinterpretCast<float>();
  n.spreads = take(64 * rows).template ReinterpretCast<float>();
  auto gm = [](GM_ADDR from) { GlobalTensor<T> g; g.SetGlobalBuffer((__gm__ T*)from); return g; };
  uint16_t rest = (pitch * sizeof(T) - (k * sizeof(T) + 31) / 32 * 32) / 32;
  auto in = [&](LocalTensor<T> to, GM_ADDR from, uint32_t count, uint32_t length, uint16_t gap) {
    DataCopyPad(to, gm(from), DataCopyExtParams(count, length * sizeof(T), (pitch - k) * sizeof(T), gap, 0),
                DataCopyPadExtParams<T>());
  };
  bool is_slope = which == 3, is_beta = which == 4, has_plus = which == 1 || is_slope || is_beta;
  in(n.x, x, rows, k, rest);
  if (has_plus) in(n.plus, plus, rows, k, rest);
  bool is_bare = which == 6 || which == 8;
  if (!is_beta && !is_bare) in(n.gamma, gamma, 1, k, 0);
  if (!is_beta && !is_bare && !is_slope && which != 2) in(n.beta, beta, 1, k, 0);
  if (is_slope) { in(n.mean, mean, 1, rows, 0); in(n.variance, variance, 1, rows, 0); }
  GlobalTensor<float> F; F.SetGlobalBuffer((__gm__ float*)floats);
  if (which >= 7) { DataCopy(n.means, F, rows * 8); DataCopy(n.spreads[rows * 8], F[rows * 8], rows * 8); }
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  if (room) n.run(which, rows, k, pitch, t, buffer.Get<uint8_t>());
  else n.run(which, rows, k, pitch, t);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  auto out = [&](GM_ADDR to, LocalTensor<T> from, uint32_t count, uint32_t length, uint16_t gap) {
    DataCopyPad(gm(to), from, DataCopyExtParams(count, length * sizeof(T), gap, (pitch - k) * sizeof(T), 0));
  };
  if (!is_beta) out(y, n.y, rows, k, rest);
  if (is_slope) out(other, n.other, rows, k, rest);
  if (is_beta) { out(of_rows, n.dgamma, 1, k, 0); out(of_rows2, n.dbeta, 1, k, 0); }
  if (which < 2) { out(of_rows, n.mean, 1, rows, 0); out(of_rows2, n.variance, 1, rows, 0); }
  DataCopyExtParams each(1, rows * 4, 0, 0, 0);
  if (which == 5 || which == 6) DataCopyPad(F, n.means, each);
  if (which >= 5 && which < 8) DataCopyPad(F[rows * 8], n.spreads, each);
}
"""
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
namespace optiling {
BEGIN_TILING_DATA_DEF(Tilings)
  TILING_DATA_FIELD_DEF_STRUCT(LayerNormTiling, layer);
  TILING_DATA_FIELD_DEF_STRUCT(LayerNormGradTiling, slope);
  TILING_DATA_FIELD_DEF_STRUCT(LayerNormGradBetaTiling, beta);
  TILING_DATA_FIELD_DEF_STRUCT(RmsNormTiling, rms);
  TILING_DATA_FIELD_DEF_STRUCT(DeepNormTiling, deep);
  TILING_DATA_FIELD_DEF_STRUCT(LayerNormSeparateTiling, apart);
END_TILING_DATA_DEF;
}
using namespace AscendC;
int main(int, char** given) {
  int64_t b = atoi(given[1]), s = atoi(given[2]), pitch = atoi(given[3]), h = atoi(given[4]);
  uint32_t size = atoi(given[5]), most, least, room = 1 << 16;
  TensorShape four{{b, s, pitch, h}}, stored{{b, s, pitch}}, original{{b, s, h}}, rows{{b * s, pitch}};
  optiling::Tilings t;
  GetLayerNormNDTilingInfo(four, room, size, false, t.layer);
  GetLayerNormGradNDTilingInfo(four, room, size, false, t.slope);
  GetLayerNormGradBetaNDTilingInfo(four, room, size, false, t.beta);
  if (!GetRmsNormTilingInfo(stored, original, room, size, t.rms) ||
      GetRmsNormTilingInfo(stored, original, 32, size, t.rms))
    return 1;
  if (!GetDeepNormTilingInfo(stored, original, room, size, false, false, t.deep)) return 2;
  GetLayerNormNDTilingInfo(rows, room, size, false, true, t.apart);
#define SAY(...) __VA_ARGS__; if (most != least) return 3; fprintf(stderr, "%u ", least);
  SAY(GetLayerNormMaxMinTmpSize(four, size, false, most, least))
  SAY(GetDeepNormMaxMinTmpSize(stored, size, false, false, most, least))
  SAY(GetRmsNormMaxMinTmpSize(stored, size, most, least))
  SAY(GetLayerNormGradMaxMinTmpSize(four, size, false, most, least))
  SAY(GetLayerNormGradBetaMaxMinTmpSize(four, size, false, most, least))
  SAY(GetLayerNormMaxMinTmpSize(rows, size, false, true, false, most, least))
  SAY(GetLayerNormMaxMinTmpSize(rows, size, false, true, false, most, least))
  SAY(GetNormalizeMaxMinTmpSize(rows, size, size, false, true, false, most, least))
  SAY(GetNormalizeMaxMinTmpSize(rows, size, size, false, true, false, most, least))
  uint8_t buffer[1024];
  t.SaveToBuffer(buffer, sizeof buffer);
  fwrite(buffer, 1, t.GetDataSize(), stdout);
}
"""
EPSILON, ALPHA = 0.001, -1.5
SHAPES = [(2, 3, 64, 64), (1, 5, 208, 200), (3, 7, 16, 16), (1, 33, 48, 34), (1, 1, 320, 320)]
TYPES = [("float", np.float32), ("half", np.float16)]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    program = host_program(tmp_path_factory.mktemp("host"), HOST)

    def ask(*given):
        run = subprocess.run([program, *map(str, given)], capture_output=True, check=True)
        return [int(word) for word in run.stderr.split()], np.frombuffer(run.stdout, np.uint32)

    return ask


def source_of(folder, only="false", pattern="AR"):
    path = folder / "norms.cpp"
    path.write_text(KERNEL.replace("ONLY", only).replace("PATTERN", pattern))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return source_of(tmp_path_factory.mktemp("norms"))


def of_rows(x):
    mean = x.mean(1, keepdims=True)
    return mean, ((x - mean) ** 2).mean(1, keepdims=True)


class Call:
    """Operands of a call, and what it makes of them."""

    def __init__(self, source, cpp, dtype, shape):
        b, s, self.pitch, self.k = shape
        self.rows = b * s
        rng = np.random.default_rng(11)
        self.x, self.plus = ((rng.standard_normal((self.rows, self.pitch)) + 0.3).astype(dtype) for _ in range(2))
        self.gamma, self.beta = (rng.uniform(-2, 2, self.pitch).astype(dtype) for _ in range(2))
        self.mean, self.variance = (
            part[:, 0].astype(dtype) for part in of_rows(self.x[:, : self.k].astype(np.float64))
        )
        self.y, self.other = np.zeros_like(self.x), np.zeros_like(self.x)
        self.first, self.second = np.zeros((2, max(self.rows, self.pitch)), dtype)
        self.floats = np.zeros((2, self.rows * 8), np.float32)
        self.kernel = ascendc.compile(source, f"norms<{cpp}>", kind="vector")

    def __call__(self, which, room, tiling):
        run = self.kernel(self.x, self.plus, self.gamma, self.beta, self.mean, self.variance, self.y, self.other,
                          self.first, self.second, self.floats, which, np.uint32(self.rows), np.uint32(self.k),
                          np.uint32(room), tiling)  # fmt: skip
        assert run.findings == ()
        return self.y[:, : self.k]

    def exact(self):
        parts = (self.x[:, : self.k], self.plus[:, : self.k], self.gamma[: self.k], self.beta[: self.k])
        return [part.astype(np.float64) for part in parts]


def close(made, exact, dtype, scale=1.0):
    """Hold numbers to a few roundings of float at their scale, and to one of half."""
    bound = 2.0**-20 * (np.abs(exact) + scale) + (2.0**-11 * np.abs(exact) + 2.0**-24 if dtype == np.float16 else 0)
    assert np.max(np.abs(made - exact) / bound) <= 1


@pytest.mark.parametrize(("cpp", "dtype"), TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("which", range(9))
def test_each_function_is_its_definition(source, host, cpp, dtype, shape, which):
    rooms, tiling = host(*shape, np.dtype(dtype).itemsize)
    results = []
    for room in (rooms[which], 0):
        call = Call(source, cpp, dtype, shape)
        x, plus, gamma, beta = call.exact()
        epsilon = float(dtype(EPSILON)) if which < 5 else float(np.float32(EPSILON))
        if which >= 7:
            call.floats[:, : call.rows] = [call.mean, call.variance]
        y = call(which, room, tiling)
        results.append([part.copy() for part in (y, call.other, call.first, call.second, call.floats)])
        if which == 1:
            x = ALPHA * x + plus
        mean, variance = of_rows(x)
        if which == 3 or which >= 7:
            mean, variance = (part.astype(np.float64)[:, None] for part in (call.mean, call.variance))
        scale = 1 / np.sqrt(variance + epsilon)
        if which == 2:
            close(y, x / np.sqrt((x**2).mean(1, keepdims=True) + epsilon) * gamma, dtype)
        elif which == 3:
            slope, deviation = plus * gamma, x - mean
            by_variance = (-0.5 * slope * deviation * scale**3).sum(1, keepdims=True)
            by_mean = (-slope * scale).sum(1, keepdims=True)
            by_mean = by_mean + by_variance / call.k * (-2 * deviation).sum(1, keepdims=True)
            exact = slope * scale + by_variance * 2 / call.k * deviation + by_mean / call.k
            close(y, exact, dtype, scale.max() ** 2 * 8)
            close(call.other[:, : call.k], deviation * scale, dtype)
        elif which == 4:
            close(call.first[: call.k], (x * plus).sum(0), dtype, 8)
            close(call.second[: call.k], plus.sum(0), dtype, 8)
        else:
            normal = (x - mean) * scale
            close(y, normal if which in (6, 8) else normal * gamma + beta, dtype, scale.max() * 4)
        if which < 2:
            close(call.first[: call.rows], mean[:, 0], dtype)
            close(call.second[: call.rows], variance[:, 0], dtype)
        if which in (5, 6):
            close(call.floats[0, : call.rows], mean[:, 0], np.float32)
        if which in (5, 6, 7):
            close(call.floats[1, : call.rows], (variance if which == 6 else scale)[:, 0], np.float32)
    assert all(np.array_equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("which", [w for w in range(9) if w not in (6, 8)])
def test_less_room_is_refused(source, host, which):
    rooms, tiling = host(2, 3, 64, 64, 4)
    with pytest.raises(ascendc.KernelError, match=f"a temporary buffer of at least {rooms[which]} bytes"):
        Call(source, "float", np.float32, (2, 3, 64, 64))(which, rooms[which] - 32, tiling)


@pytest.mark.parametrize(
    ("only", "pattern", "said"),
    [("true", "AR", "LayerNorm must give its means too"), ("false", "RA", "Normalize is modelled of the pattern AR")],
)
def test_what_is_not_modelled_does_not_compile(tmp_path, only, pattern, said):
    with pytest.raises(CompilationError, match=said):
        ascendc.compile(source_of(tmp_path, only, pattern), "norms<float>", kind="vector").build()
