"""Sums of rows and columns so far, to the bit of additions one behind the other; progressions of any step."""

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
constexpr CumSumConfig ROWS = {false, false, true}, COLUMNS = {true, false, true, CumSumAlgorithm::ALGORITHM},
                       ALONE = {false};
template <class T> __global__ __aicore__ void sums(GM_ADDR x, GM_ADDR y, GM_ADDR last, uint32_t rows, uint32_t width,
                                                   int32_t which, uint32_t room) {
  TPipe pipe; TBuf<TPosition::VECCALC> a, b, c, buffer;
  pipe.InitBuffer(a, rows * width * sizeof(T)); pipe.InitBuffer(b, rows * width * sizeof(T));
  pipe.InitBuffer(c, width * sizeof(T));
  if (room) pipe.InitBuffer(buffer, room);
  GlobalTensor<T> X, Y, L;
  X.SetGlobalBuffer((__gm__ T*)x); Y.SetGlobalBuffer((__gm__ T*)y); L.SetGlobalBuffer((__gm__ T*)last);
  LocalTensor<T> in = a.Get<T>(), out = b.Get<T>(), row = c.Get<T>();
  DataCopy(in, X, rows * width);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  CumSumInfo info{rows, width};
  auto run = [&](auto... free) {
    if (which == 0) CumSum<T, ROWS>(out, row, in, free..., info);
    if (which == 1) CumSum<T, COLUMNS>(out, row, in, free..., info);
    if (which == 2) CumSum<T, ALONE>(out, row, in, free..., info);
    if (which == 3) CumSum<T>(out, row, in, free..., info);
  };
  if (room) run(buffer.Get<uint8_t>()); else run();
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(Y, out, rows * width);
  if (which < 2) DataCopy(L, row, width);
}
template <class T> __global__ __aicore__ void steps(GM_ADDR y, float first, float step, int32_t count, int32_t which) {
  TPipe pipe; TBuf<TPosition::VECCALC> a;
  pipe.InitBuffer(a, (count * sizeof(T) + 31) / 32 * 32);
  GlobalTensor<T> Y; Y.SetGlobalBuffer((__gm__ T*)y);
  LocalTensor<T> out = a.Get<T>();
  if (which) Arange<T>(out, static_cast<T>(first), static_cast<T>(step), count);
  else ArithProgression(out, T(first), T(step), count);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  SetFlag<HardEvent::S_MTE3>(0); WaitFlag<HardEvent::S_MTE3>(0);
  DataCopyPad(Y, out, DataCopyExtParams(1, count * sizeof(T), 0, 0, 0));
}
"""
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main(int, char** given) {
  AscendC::TensorShape shape{{atoi(given[1]), atoi(given[2])}};
  uint32_t most, least;
  AscendC::GetCumSumMaxMinTmpSize(shape, atoi(given[3]), atoi(given[4]), false, most, least);
  if (most != least) return 1;
  printf("%u", least);
  AscendC::GetArangeMaxMinTmpSize(most, least);
  if (most || least) return 2;
}
"""
TYPES = {"float": np.float32, "half": np.float16, "int32_t": np.int32, "int16_t": np.int16}


def source_of(folder, algorithm="CUMSUM_ALGORITHM_LINEBYLINE"):
    path = folder / "cumsum.cpp"
    path.write_text(KERNEL.replace("ALGORITHM)", algorithm).replace("::ALGORITHM", f"::{algorithm}"))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return source_of(tmp_path_factory.mktemp("cumsum"))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    program = host_program(tmp_path_factory.mktemp("host"), HOST)
    return lambda *given: int(subprocess.check_output([program, *map(str, given)]))


@pytest.mark.parametrize("cpp", ["float", "half"])
@pytest.mark.parametrize(("rows", "width"), [(5, 48), (16, 16), (37, 32), (1, 160), (32, 16)])
@pytest.mark.parametrize("which", range(4))
def test_sums_so_far(source, host, cpp, rows, width, which):
    dtype, is_last_axis = TYPES[cpp], which % 2
    x = np.random.default_rng(9).uniform(-10, 10, (rows, width)).astype(dtype)
    wanted = np.add.accumulate(x.astype(np.float32), axis=is_last_axis).astype(dtype)
    for room in (host(rows, width, np.dtype(dtype).itemsize, is_last_axis), 0):
        y, last = np.zeros_like(x), np.zeros(width, dtype)
        run = ascendc.compile(source, f"sums<{cpp}>", kind="vector")(
            x, y, last, np.uint32(rows), np.uint32(width), which, np.uint32(room), outputs=[1, 2] if which < 2 else [1]
        )
        assert run.findings == ()
        assert np.array_equal(y, wanted)
        assert np.array_equal(last, wanted[-1] if which < 2 else np.zeros(width))


def test_less_room_is_refused(source, host):
    x, room = np.zeros((4, 32), np.float16), host(4, 32, 2, 1)
    with pytest.raises(ascendc.KernelError, match=f"CumSum must be given a temporary buffer of at least {room} bytes"):
        ascendc.compile(source, "sums<half>", kind="vector")(
            x, x.copy(), x[0].copy(), np.uint32(4), np.uint32(32), 1, np.uint32(room - 32)
        )


def test_another_order_does_not_compile(tmp_path):
    with pytest.raises(CompilationError, match="CumSum is modelled line by line"):
        ascendc.compile(source_of(tmp_path, "CUMSUM_ALGORITHM_SKLANSKY"), "sums<float>", kind="vector").build()


@pytest.mark.parametrize("cpp", TYPES)
@pytest.mark.parametrize("count", [5, 16, 77, 300])
@pytest.mark.parametrize(("first", "step"), [(3, 1), (-7, 3), (10, -2)])
@pytest.mark.parametrize("which", [0, 1])
def test_progressions(source, cpp, count, first, step, which):
    y = np.zeros(count, TYPES[cpp])
    run = ascendc.compile(source, f"steps<{cpp}>", kind="vector")(
        y, np.float32(first), np.float32(step), count, which, outputs=[0]
    )
    assert run.findings == ()
    assert np.array_equal(y, first + step * np.arange(count))


def test_a_step_of_a_fraction(source):
    y = np.zeros(100, np.float32)
    ascendc.compile(source, "steps<float>", kind="vector")(y, np.float32(0.5), np.float32(0.1), 100, 1, outputs=[0])
    np.testing.assert_allclose(y, 0.5 + 0.1 * np.arange(100), rtol=1e-6)
