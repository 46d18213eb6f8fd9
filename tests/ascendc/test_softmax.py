"""SoftMax in parts, its gradient, its logarithm, with given sums, and corrections of its results, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import host_numbers, require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
constexpr SoftmaxConfig APART = {true, 0, 0, SoftmaxMode::MODE};
template <class T, class U> __global__ __aicore__ void rows(
    GM_ADDR x, GM_ADDR other, GM_ADDR sums, GM_ADDR maxes, GM_ADDR y, GM_ADDR new_sums, GM_ADDR new_maxes,
    GM_ADDR scales, uint32_t m, uint32_t k, uint32_t pitch, int32_t which, uint32_t room, uint32_t from, GM_ADDR told) {
  TPipe pipe; TBuf<TPosition::VECCALC> a, b, c, d, e, f, buffer;
  pipe.InitBuffer(a, m * pitch * sizeof(T)); pipe.InitBuffer(b, m * pitch * sizeof(T)); pipe.InitBuffer(c, m * 32);
  pipe.InitBuffer(d, m * 32); pipe.InitBuffer(e, m * 32); pipe.InitBuffer(f, m * pitch * sizeof(T));
  if (room) pipe.InitBuffer(buffer, room);
  GlobalTensor<T> X, O, E, Y; GlobalTensor<U> S, M, SN, MN; GlobalTensor<int32_t> R;
  X.SetGlobalBuffer((__gm__ T*)x); O.SetGlobalBuffer((__gm__ T*)other); E.SetGlobalBuffer((__gm__ T*)scales);
  Y.SetGlobalBuffer((__gm__ T*)y); S.SetGlobalBuffer((__gm__ U*)sums); M.SetGlobalBuffer((__gm__ U*)maxes);
  SN.SetGlobalBuffer((__gm__ U*)new_sums); MN.SetGlobalBuffer((__gm__ U*)new_maxes);
  R.SetGlobalBuffer((__gm__ int32_t*)told);
  LocalTensor<T> in = a.Get<T>(), two = b.Get<T>(), scale = e.Get<T>(), out = f.Get<T>();
  LocalTensor<U> s = c.Get<U>(), g = d.Get<U>();
  LocalTensor<uint8_t> free = room ? buffer.Get<uint8_t>() : LocalTensor<uint8_t>();
  uint32_t blocks = m * 32 / sizeof(U), narrow = m * 32 / sizeof(T);
  bool is_flash = which < 2 || which > 7, is_gradient = which == 2 || which == 3;
  uint16_t rest = (pitch * sizeof(T) - (k * sizeof(T) + 31) / 32 * 32) / 32;
  DataCopyExtParams in_rows(m, k * sizeof(T), (pitch - k) * sizeof(T), rest, 0);
  DataCopyPad(in, X, in_rows, DataCopyPadExtParams<T>());
  if (is_gradient) DataCopyPad(two, O, in_rows, DataCopyPadExtParams<T>());
  if (which == 1 || which == 4 || which == 8) DataCopy(s, S, blocks);
  if (which == 1 || which == 4 || which == 6 || which == 8) DataCopy(g, M, blocks);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  SoftMaxShapeInfo info{m, pitch, m, k};
  SoftMaxTiling tiling = SoftMaxFlashV2TilingFunc(info, sizeof(T), sizeof(U), room, true);
  if (which == 0) {
    if (room) SoftmaxFlashV2<T, false>(out, s, g, in, scale, s, g, free, tiling, info);
    else SoftmaxFlashV2<T, false>(out, s, g, in, scale, s, g, tiling, info);
  }
  if (which == 1) SoftmaxFlashV2<T, true>(in, s, g, in, scale, s, g, free, tiling, info);
  if (which >= 8) {
    SoftMaxTiling own = SoftMaxFlashV2TilingFuncImpl(m, pitch, sizeof(T), sizeof(U), room);
    if (own.srcM != tiling.srcM || own.srcK != tiling.srcK || own.srcSize != tiling.srcSize) return;
    if (room) SoftmaxFlash<T>(in, s, g, in, scale, s, g, free, own, which == 8, info);
    else SoftmaxFlash<T, true>(in, s, g, in, scale, s, g, own, which == 8, info);
    out = in;
  }
  if (which == 2) SoftmaxGrad<T>(two, in, two, free, tiling, false, info);
  if (which == 3) { if (room) SoftmaxGradFront<T>(scale, in, two, free, tiling, info);
                    else SoftmaxGrad<T>(scale, in, two, tiling, true, info); }
  if (which == 4) { if (room) SimpleSoftMax<T>(out, s, g, in, free, tiling, info);
                    else SimpleSoftMax<T>(out, s, g, in, tiling, info); }
  if constexpr (std::is_same_v<T, U>)
    if (which == 5) LogSoftMax<T>(out, s, g, in, free, LogSoftMaxTiling(), info);
  if (which == 6) R.SetValue(0, AdjustSoftMaxRes<T, U>(in, g, from, T(0.5), info));
  if (which == 7) SoftMax<T, false, false, false, APART>(out, s, g, in, free, tiling, info);
  if (which == 1 || which == 6) out = in;
  if (which == 2) out = two;
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  if (which != 3) DataCopyPad(Y, out, DataCopyExtParams(m, k * sizeof(T), rest, (pitch - k) * sizeof(T), 0));
  if (is_flash || which == 5) { DataCopy(SN, s, blocks); DataCopy(MN, g, blocks); }
  if (which == 1 || which == 3 || which == 8) DataCopy(E, scale, narrow);
}
"""
BOUND = {np.float32: 2.0**-21, np.float16: 2.0**-10}
TYPES = [("float", "float"), ("half", "half"), ("half", "float")]
SHAPES = [(5, 200, 208), (3, 64, 64), (2, 300, 320), (1, 1, 16)]

HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main(int, char** given) {
  AscendC::TensorShape shape{{atoi(given[1]), atoi(given[2])}};
  uint32_t size = atoi(given[3]), other = atoi(given[4]);
  SoftMaxTiling a, b; LogSoftMaxTiling c;
  AscendC::SoftMaxFlashV2TilingFunc(shape, size, other, 4096, a, true);
  AscendC::SoftMaxGradTilingFunc(shape, size, 4096, b, false);
  AscendC::LogSoftMaxTilingFunc(shape, size, 4096, c);
  printf("%u %u %u %u %u %u %u %u %u %u %u", AscendC::GetSoftMaxFlashV2MinTmpSize(shape, size, other, true),
         AscendC::GetSoftMaxFlashV2MaxTmpSize(shape, size, other, false, false),
         AscendC::GetSoftMaxGradMinTmpSize(shape, size, false, false),
         AscendC::GetSoftMaxGradMaxTmpSize(shape, size, false, false),
         AscendC::GetLogSoftMaxMinTmpSize(shape, size, false), a.srcM, a.srcK, b.srcM, b.srcK, c.srcM, c.srcK);
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("rows.cpp", KERNEL.replace("MODE", "SOFTMAX_NORMAL"))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return host_numbers(tmp_path_factory.mktemp("host"), HOST)


class Rows:
    """Operands of a call, and what it makes of them."""

    def __init__(self, source, types, m, k, pitch):
        self.dtype, self.other = ({"float": np.float32, "half": np.float16}[name] for name in types)
        rng = np.random.default_rng(7)
        self.x, self.two = (rng.standard_normal((m, pitch)).astype(self.dtype) for _ in range(2))
        self.sums = np.repeat(rng.uniform(1, 9, (m, 1)), 32 // np.dtype(self.other).itemsize, 1).astype(self.other)
        self.maxes = np.repeat(rng.uniform(-1, 5, (m, 1)), 32 // np.dtype(self.other).itemsize, 1).astype(self.other)
        self.new_sums, self.new_maxes = np.zeros_like(self.sums), np.zeros_like(self.maxes)
        self.y, self.scales = np.zeros_like(self.x), np.zeros((m, 32 // np.dtype(self.dtype).itemsize), self.dtype)
        self.found = np.full(16, -1, np.int32)
        self.before = [part.astype(np.float64) for part in (self.x[:, :k], self.two[:, :k], self.sums, self.maxes)]
        self.kernel = ascendc.compile(source, f"rows<{', '.join(types)}>", kind="vector")
        self.sizes = [np.uint32(n) for n in (m, k, pitch)]

    def call(self, which, room, bits=0):
        run = self.kernel(self.x, self.two, self.sums, self.maxes, self.y, self.new_sums, self.new_maxes, self.scales,
                          *self.sizes, which, np.uint32(room), np.uint32(bits), self.found)  # fmt: skip
        assert run.findings == ()
        return self.y[:, : self.sizes[1]]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_in_parts(source, host, types, shape):
    least, most, *_, m, k, _, _, _, _ = host(*shape[:2], *(4 if name == "float" else 2 for name in types))
    assert (m, k) == shape[:2]
    assert least == most
    for which in (0, 1):
        rows = Rows(source, types, *shape)
        x, _, sums, maxes = rows.before
        y = rows.call(which, least)
        best = np.maximum(x.max(1, keepdims=True), maxes[:, :1]) if which else x.max(1, keepdims=True)
        powers, scale = np.exp(x - best), np.exp(maxes[:, :1] - best)
        total = powers.sum(1, keepdims=True) + (scale * sums[:, :1] if which else 0)
        np.testing.assert_allclose(y, powers, rtol=BOUND[rows.dtype], atol=1e-7)
        np.testing.assert_allclose(rows.new_sums, np.broadcast_to(total, sums.shape), rtol=BOUND[rows.other])
        assert np.array_equal(rows.new_maxes, np.broadcast_to(best, maxes.shape))
        wanted = np.broadcast_to(scale, rows.scales.shape) if which else np.zeros(rows.scales.shape)
        np.testing.assert_allclose(rows.scales, wanted, rtol=BOUND[rows.dtype])
    other = Rows(source, types, *shape)
    other.call(0, 0)
    again = Rows(source, types, *shape)
    again.call(0, least)
    assert np.array_equal(other.y, again.y)


@pytest.mark.parametrize("types", TYPES[:2])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient(source, host, types, shape):
    _, _, least, most, *_ = host(*shape[:2], *(4 if name == "float" else 2 for name in types))
    assert least == most
    bound = BOUND[np.float16 if types[0] == "half" else np.float32]
    rows = Rows(source, types, *shape)
    slope, result = rows.before[:2]
    y, total = rows.call(2, least), (slope * result).sum(1, keepdims=True)
    scale = np.abs(slope * result).sum(1, keepdims=True) + np.abs(slope)
    assert np.max(np.abs(y - (slope - total) * result) / (scale * np.abs(result) + 1e-3)) < bound
    for room in (least, 0):
        rows = Rows(source, types, *shape)
        rows.call(3, room)
        assert np.max(np.abs(rows.scales - total) / scale.max(1, keepdims=True)) < bound
        assert (rows.scales == rows.scales[:, :1]).all()


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_given_sums_and_maxima(source, types, shape):
    for room in (0, 2048):
        rows = Rows(source, types, *shape)
        x, _, sums, maxes = rows.before
        wanted = np.exp(x - maxes[:, :1]) / sums[:, :1]
        np.testing.assert_allclose(rows.call(4, room), wanted, rtol=BOUND[rows.dtype], atol=2.0**-24)


@pytest.mark.parametrize("types", TYPES[:2])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_logarithm_is_to_the_base_of_10(source, host, types, shape):
    least = host(*shape[:2], *(4 if name == "float" else 2 for name in types))[4]
    rows = Rows(source, types, *shape)
    x = rows.before[0]
    powers = np.exp(x - x.max(1, keepdims=True))
    wanted = np.log10(powers / powers.sum(1, keepdims=True))
    np.testing.assert_allclose(rows.call(5, least), wanted, rtol=BOUND[rows.dtype], atol=BOUND[rows.dtype])
    np.testing.assert_allclose(rows.new_sums[:, 0], powers.sum(1), rtol=BOUND[rows.dtype])
    assert np.array_equal(rows.new_maxes[:, 0], x.max(1))


@pytest.mark.parametrize("types", TYPES)
def test_rows_of_a_maximum_become_another_value(source, types):
    rows = Rows(source, types, 5, 48, 48)
    rows.maxes[[1, 4]] = -65504
    bits = int(rows.maxes[1, :1].view(np.uint16 if rows.other == np.float16 else np.uint32)[0])
    wanted = rows.x.copy()
    wanted[[1, 4]] = 0.5
    assert np.array_equal(rows.call(6, 0, bits), wanted)
    assert rows.found[0] == 1
    rows = Rows(source, types, 5, 48, 48)
    assert np.array_equal(rows.call(6, 0, bits), rows.x)
    assert rows.found[0] == 0


def test_bits_that_half_does_not_have_are_refused(source):
    with pytest.raises(ascendc.KernelError, match="AdjustSoftMaxRes must look for 16 bits, not 0xff7fffff"):
        Rows(source, ("half", "half"), 5, 48, 48).call(6, 0, 0xFF7FFFFF)


def test_room_that_is_too_small_is_refused(source):
    with pytest.raises(ascendc.KernelError, match="a temporary buffer of at least 768 bytes, not 736"):
        Rows(source, ("float", "float"), 3, 48, 48).call(1, 736)


def test_values_that_are_not_in_blocks_do_not_compile(tmp_path):
    path = tmp_path / "rows.cpp"
    path.write_text(KERNEL.replace("MODE", "SOFTMAX_OUTPUT_WITHOUT_BRC"))
    with pytest.raises(CompilationError, match="SoftMax is modelled with blocks of sums and maxima"):
        ascendc.compile(path, "rows<float, float>", kind="vector").build()


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_in_parts_that_are_divided(source, host, types, shape):
    least = host(*shape[:2], *(4 if name == "float" else 2 for name in types))[0]
    for which in (8, 9):
        rows = Rows(source, types, *shape)
        x, _, sums, maxes = rows.before
        y = rows.call(which, least if which == 8 else 0)
        best = np.maximum(x.max(1, keepdims=True), maxes[:, :1]) if which == 8 else x.max(1, keepdims=True)
        powers, before = np.exp(x - best), np.exp(maxes[:, :1] - best) * sums[:, :1] if which == 8 else 0
        total = powers.sum(1, keepdims=True) + before
        np.testing.assert_allclose(y, powers / total, rtol=4 * BOUND[rows.dtype], atol=1e-7)
        np.testing.assert_allclose(rows.new_sums[:, :1], total, rtol=4 * BOUND[rows.other])
        np.testing.assert_allclose(rows.new_maxes[:, :1], best, rtol=BOUND[rows.other])
        if which == 8:
            np.testing.assert_allclose(rows.scales[:, :1], before / total, rtol=4 * BOUND[rows.dtype], atol=1e-7)
