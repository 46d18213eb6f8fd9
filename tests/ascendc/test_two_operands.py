"""Functions on the elements of two tensors, against definitions in float64, with the buffers that hosts are told of."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import host_program, require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
static constexpr FmodConfig config = {FmodAlgo::NORMAL, FMOD_ITERATION_NUM_MAX};
template <class T> __global__ __aicore__ void apply(GM_ADDR x, GM_ADDR z, GM_ADDR y, uint32_t count, int32_t which,
                                                    uint32_t room, int32_t is_counted) {
  TPipe pipe; TBuf<TPosition::VECCALC> a, b, c, buffer;
  uint32_t bytes = (count * sizeof(T) + 31) / 32 * 32;
  pipe.InitBuffer(a, bytes); pipe.InitBuffer(b, bytes); pipe.InitBuffer(c, bytes);
  if (room) pipe.InitBuffer(buffer, room);
  GlobalTensor<T> X, Z, Y;
  X.SetGlobalBuffer((__gm__ T*)x); Z.SetGlobalBuffer((__gm__ T*)z); Y.SetGlobalBuffer((__gm__ T*)y);
  LocalTensor<T> p = a.Get<T>(), q = b.Get<T>(), r = c.Get<T>();
  p.SetSize(count);
  DataCopyExtParams all(1, count * sizeof(T), 0, 0, 0);
  DataCopyPad(p, X, all, DataCopyPadExtParams<T>()); DataCopyPad(q, Z, all, DataCopyPadExtParams<T>());
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  auto run = [&](auto... rest) {
    if (which == 0) Fmod(r, p, q, rest...);
    if (which == 1) GeGLU<T, false>(r, p, q, rest...);
    if (which == 2) ReGlu(r, p, q, rest...);
    if (which == 3) SwiGLU(r, p, q, 1.5f, rest...);
    if (which == 4) Fmod<T, false, config>(r, p, q, rest...);
  };
  if (room && is_counted) run(buffer.Get<uint8_t>(), count);
  else if (room) run(buffer.Get<uint8_t>());
  else if (is_counted) run(count);
  else run();
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopyPad(Y, r, all);
}
"""
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main() {
  AscendC::TensorShape shape{{777}};
  uint32_t most, least, live, more;
  for (uint32_t size : {4, 2}) {
#define SAY(Name) AscendC::Get##Name##MaxMinTmpSize(shape, size, false, most, least); printf("%u %u ", most, least); \\
    AscendC::Get##Name##TmpBufferFactorSize(size, live, more); if (live * 64 * size + more != least) return 1;
    SAY(Fmod) SAY(GeGLU) SAY(ReGlu)
    AscendC::GetSwiGLUMaxMinTmpSize(shape, size, most, least, false); printf("%u %u ", most, least);
    AscendC::GetSwiGLUTmpBufferFactorSize(size, live, more); if (live * 64 * size + more != least) return 2;
  }
}
"""
DEFINITIONS = [
    lambda a, b: a - b * np.trunc(a / b),
    lambda a, b: a * 0.5 * b * (1 + np.tanh(np.sqrt(2 / np.pi) * (b + 0.044715 * b**3))),
    lambda a, b: a * np.maximum(b, 0),
    lambda a, b: a * b / (1 + np.exp(-1.5 * b)),
    lambda a, b: a - b * np.trunc(a / b),
]


def _geglu_steps(a, b):
    """Return GeGLU of half, which is computed in half."""
    t = (b * b + np.float16(22.36386)) * b * np.float16(-0.0713548163)
    return a * (b / (np.exp(t.astype(np.float64)).astype(np.float16) + np.float16(1)))


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("apply.cpp", KERNEL)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Most and least bytes of Fmod, GeGLU, ReGlu and SwiGLU, by the size of the type."""
    program = host_program(tmp_path_factory.mktemp("host"), HOST)
    said = np.array(subprocess.check_output([program]).split(), int).reshape(2, 4, 2)
    return {4: said[0], 2: said[1]}


@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("half", np.float16)])
@pytest.mark.parametrize("count", [777, 128, 3])
@pytest.mark.parametrize("which", range(5))
def test_each_function_is_its_definition(source, told, cpp, dtype, count, which):
    rng = np.random.default_rng(4)
    x, z = (rng.uniform(-8, 8, count).astype(dtype) for _ in range(2))
    z[:3] = -1.1, 1.5, 0.5
    x[:3] = -3, 2, -7
    exact = DEFINITIONS[which](x.astype(np.float64), z.astype(np.float64))
    # a remainder is as exact as the product that is taken away
    scale = np.abs(x).astype(np.float64) if which in (0, 4) else np.abs(exact) + 1e-3
    bound = 2.0**-20 * scale + (2.0**-11 * np.abs(exact) + 2.0**-24 if dtype == np.float16 else 0)
    most, least = told[np.dtype(dtype).itemsize][which % 4]
    results = []
    for room, is_counted in ((0, 0), (0, 1), (least, 0), (least, 1), (most, 1)):
        y = np.zeros(count, dtype)
        run = ascendc.compile(source, f"apply<{cpp}>", kind="vector")(
            x, z, y, np.uint32(count), which, np.uint32(room), is_counted, outputs=[2]
        )
        assert run.findings == ()
        results.append(y)
    assert all(np.array_equal(results[0], other) for other in results)
    if which == 1 and dtype == np.float16:
        with np.errstate(over="ignore"):
            assert np.array_equal(results[0], _geglu_steps(x, z))
        return
    assert np.max(np.abs(results[0] - exact) / bound) <= 1


def test_less_room_is_refused(source, told):
    x = np.ones(64, np.float16)
    least = told[2][0][1] // 4
    with pytest.raises(ascendc.KernelError, match=f"temporary buffer of at least {least} bytes"):
        ascendc.compile(source, "apply<half>", kind="vector")(
            x, x, x.copy(), np.uint32(64), 0, np.uint32(least - 32), 1
        )
