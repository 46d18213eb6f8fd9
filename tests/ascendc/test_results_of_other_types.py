"""Vector instructions whose results are of another type than their sources, from C++."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import PARTS, require_compiler

require_compiler()

KERNEL = (
    PARTS
    + """
template <class U, class T, class F> void apply(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t n, F call,
                                                bool comes = false) {
  TPipe pipe;
  Part<U> a(pipe, x, n), b(pipe, y, n); Part<T> c(pipe, z, n, comes);
  with_room(pipe, 0, [&](auto&&...) { call(c.local, a.local, b.local); });
  c.leave();
}
extern "C" __global__ __aicore__ void results(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t n, int32_t how) {
  BinaryRepeatParams steps(1, 1, 1, 8, 4, 4), narrow(1, 1, 1, 4, 8, 8);
  UnaryRepeatParams wide(1, 1, 8, 4);
  uint64_t odd[2] = {0xAAAAAAAAAAAAAAAA, 0xAAAAAAAAAAAAAAAA};
#define CALL(...) [&](auto& c, auto& a, auto& b) { __VA_ARGS__; }
  if (how == 0) apply<float, half>(x, y, z, n, CALL(AddReluCast(c, a, b, n)));
  if (how == 1) apply<half, int8_t>(x, y, z, n, CALL(AddReluCast<int8_t, half>(c, a, b, n)));
  if (how == 2) apply<int16_t, int8_t>(x, y, z, n, CALL(SubReluCast(c, a, b, n)));
  if (how == 3) apply<half, uint8_t>(x, y, z, n, CALL(MulCast(c, a, b, n)));
  if (how == 4) apply<half, float>(x, y, z, n, CALL(MulAddDst(c, a, b, n)), true);
  if (how == 5) apply<half, float>(x, y, z, n, CALL(MulAddDst(c, a, b, odd, n / 64, steps)), true);
  if (how == 6) apply<half, float>(x, y, z, n, CALL(Axpy(c, a, half(0.3), odd, n / 64, wide)), true);
  if (how == 7) apply<half, half>(x, y, z, n, CALL(FusedMulAddRelu(c, a, b, n)), true);
  if (how == 8) apply<int32_t, half>(x, y, z, n, CALL(SetDeqScale(half(0.5)); AddDeqRelu(c, a, b, n)));
  if (how == 9) apply<float, half>(x, y, z, n, CALL(SubReluCast(c, a, b, 64, n / 64, narrow)));
}
"""
)
F16, F32, I8, U8, I16, I32 = np.float16, np.float32, np.int8, np.uint8, np.int16, np.int32


@pytest.fixture(scope="module")
def results(source_file):
    return ascendc.compile(source_file("results.cpp", KERNEL), kernel="results")


def _every_second(wanted, before):
    wanted = wanted.copy()
    wanted[::2] = before[::2]
    return wanted


def _byte(values, kind):
    limits = np.iinfo(kind)
    return np.clip(np.rint(values), limits.min, limits.max).astype(kind)


SCALE = F32(F16(0.3))
CASES = [
    (0, F32, F16, 200, lambda x, y, z: np.maximum(x + y, 0).astype(F16)),
    (1, F16, I8, 200, lambda x, y, z: _byte(np.maximum(x + y, 0), I8)),
    (2, I16, I8, 200, lambda x, y, z: np.clip(x.astype(I32) - y, 0, 127).astype(I8)),
    (3, F16, U8, 200, lambda x, y, z: _byte(x * y, U8)),
    (4, F16, F32, 200, lambda x, y, z: x.astype(F32) * y.astype(F32) + z),
    (5, F16, F32, 192, lambda x, y, z: _every_second(x.astype(F32) * y.astype(F32) + z, z)),
    (6, F16, F32, 192, lambda x, y, z: _every_second(x.astype(F32) * SCALE + z, z)),
    (7, F16, F16, 200, lambda x, y, z: np.maximum(x * z + y, 0).astype(F16)),
    (8, I32, F16, 200, lambda x, y, z: np.maximum((x + y) * 0.5, 0).astype(F16)),
    (9, F32, F16, 192, lambda x, y, z: np.maximum(x - y, 0).astype(F16)),
]


@pytest.mark.parametrize(("how", "src", "dst", "count", "define"), CASES)
def test_results_are_the_definition(results, how, src, dst, count, define):
    rng = np.random.default_rng(how)
    wide = src in (I16, I32)
    x, y = ((rng.integers(-300, 300, count) if wide else rng.standard_normal(count) * 9).astype(src) for _ in range(2))
    z = (rng.standard_normal(count) * 9).astype(dst)
    wanted = define(x, y, z)
    run = results(x, y, z, np.uint32(count), np.int32(how))
    assert np.array_equal(z, wanted)
    assert run.findings == ()
