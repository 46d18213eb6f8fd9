"""Means and variances of rows in parts, against those of the whole row; Broadcast of bytes."""

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
constexpr WelfordUpdateConfig IN_PLACE = {true};
constexpr WelfordFinalizeConfig PLAIN = {CORRECTS};
template <class T> __global__ __aicore__ void welford(GM_ADDR x, GM_ADDR means, GM_ADDR sums, GM_ADDR counts, GM_ADDR y,
                                                      uint32_t parts, uint32_t width, uint32_t last, int32_t which,
                                                      uint32_t room, uint32_t room_at_end) {
  TPipe pipe; TBuf<TPosition::VECCALC> all, more, most;
  pipe.InitBuffer(all, parts * width * sizeof(T)); pipe.InitBuffer(more, 5 * width * 4 + 64);
  if (room) pipe.InitBuffer(most, room < room_at_end ? room_at_end : room);
  GlobalTensor<T> X; GlobalTensor<float> M, S, Y; GlobalTensor<int32_t> C;
  X.SetGlobalBuffer((__gm__ T*)x); M.SetGlobalBuffer((__gm__ float*)means); S.SetGlobalBuffer((__gm__ float*)sums);
  Y.SetGlobalBuffer((__gm__ float*)y); C.SetGlobalBuffer((__gm__ int32_t*)counts);
  LocalTensor<T> in = all.Get<T>();
  LocalTensor<float> floats = more.Get<float>(), mean = floats, sum = floats[width], mean2 = floats[2 * width];
  LocalTensor<float> sum2 = floats[3 * width], end = floats[5 * width];
  LocalTensor<int32_t> c = floats[4 * width].ReinterpretCast<int32_t>();
  LocalTensor<uint8_t> free = room ? most.Get<uint8_t>() : LocalTensor<uint8_t>();
  DataCopy(in, X, parts * width);
  if (which == 1) DataCopy(c, C, width);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  Duplicate(mean, 0.0f, width); Duplicate(sum, 0.0f, width);
  PipeBarrier<PIPE_V>();
  for (uint32_t i = 0; i < parts; i++) {  // the last part is of the first columns alone
    WelfordUpdateParam p{1, width, i == parts - 1 ? last : width, 1.0f / float(i + 1)};
    LocalTensor<uint8_t> some = free;
    some.SetSize(room);
    if (room) WelfordUpdate<T, float, false, IN_PLACE>(mean2, sum2, mean, sum, in[i * width], some, p);
    else WelfordUpdate<T, float, false, IN_PLACE>(mean2, sum2, mean, sum, in[i * width], p);
    LocalTensor<float> a = mean, b = sum; mean = mean2, sum = sum2, mean2 = a, sum2 = b;
  }
  uint32_t elements = (parts - 1) * width + last, tail = width - last;
  static_assert(WelfordFinalizePara{1, 8, 1, 8, 0, 0, 0.125f, 0.125f}.rRecWithCorrection == 0, "may be left out");
  WelfordFinalizePara p{parts, width, parts, last, tail ? parts - 1 : 0, tail, 1.0f / float(width),
                        1.0f / float(elements), 0.5f};
  auto finish = [&](auto... rest) {
    if (which == 1) WelfordFinalize<false, PLAIN>(end, end[8], mean, sum, c, rest...);
    else WelfordFinalize<false, PLAIN>(end, end[8], mean, sum, rest...);
  };
  LocalTensor<uint8_t> some = free;
  some.SetSize(room_at_end);
  if (room) finish(some, p); else finish(p);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(M, mean, width); DataCopy(S, sum, width);
  DataCopyPad(Y, end, DataCopyExtParams(2, 4, 0, 0, 0));
}
template <class T, int32_t axis> __global__ __aicore__ void spread(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width,
                                                                   uint32_t room) {
  TPipe pipe; TBuf<TPosition::VECCALC> a, b, c;
  uint32_t from = axis ? rows : width;
  pipe.InitBuffer(a, (from + 31) / 32 * 32); pipe.InitBuffer(b, rows * width);
  if (room) pipe.InitBuffer(c, room);
  GlobalTensor<T> X, Y; X.SetGlobalBuffer((__gm__ T*)x); Y.SetGlobalBuffer((__gm__ T*)y);
  LocalTensor<T> in = a.Get<T>(), out = b.Get<T>();
  DataCopyPad(in, X, DataCopyExtParams(1, from, 0, 0, 0), DataCopyPadExtParams<T>());
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  uint32_t dst[] = {rows, width}, src[] = {axis ? rows : 1, axis ? 1 : width};
  const uint32_t *to = dst, *given = src;
  if (room) Broadcast<T, 2, axis>(out, in, to, given, c.Get<uint8_t>());
  else Broadcast<T, 2, axis>(out, in, to, given);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(Y, out, rows * width);
}
"""
HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main(int, char** given) {
  AscendC::TensorShape row{{1, atoi(given[1])}}, columns{{atoi(given[1])}};
  uint32_t most, least, end;
  AscendC::GetWelfordFinalizeMaxMinTmpSize(columns, 4, false, most, end);
  AscendC::GetWelfordUpdateMaxMinTmpSize(row, atoi(given[2]), 4, false, true, most, least);
  printf("%u %u %u", most, least, end);
}
"""


def source_of(folder, corrects="false"):
    path = folder / "welford.cpp"
    path.write_text(KERNEL.replace("CORRECTS", corrects))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return source_of(tmp_path_factory.mktemp("welford"))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return host_numbers(tmp_path_factory.mktemp("host"), HOST)


@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("half", np.float16)])
@pytest.mark.parametrize(
    ("parts", "width", "last"), [(4, 64, 64), (3, 208, 208), (5, 64, 35), (2, 320, 7), (3, 96, 80)]
)
@pytest.mark.parametrize("which", [0, 1])
def test_parts_make_the_whole(source, host, cpp, dtype, parts, width, last, which):
    x = np.random.default_rng(6).uniform(-9, 20, (parts, width)).astype(dtype)
    counts = np.where(np.arange(width) < last, parts, parts - 1).astype(np.int32)
    columns = [x[: counts[i], i].astype(np.float64) for i in range(width)]
    whole = np.concatenate(columns)
    most, least, end = host(width, np.dtype(dtype).itemsize)
    for room in (least, most, 0):
        means, sums, y = np.zeros(width, np.float32), np.zeros(width, np.float32), np.zeros(2, np.float32)
        run = ascendc.compile(source, f"welford<{cpp}>", kind="vector")(
            x, means, sums, counts, y, np.uint32(parts), np.uint32(width), np.uint32(last), which, np.uint32(room),
            np.uint32(end), outputs=[1, 2, 4],
        )  # fmt: skip
        # of the last part's other columns nothing is read
        assert {finding.kind.name for finding in run.findings} <= ({"WRITE_UNREAD"} if last < width else set())
        np.testing.assert_allclose(means, [column.mean() for column in columns], rtol=2e-6, atol=4e-6)
        np.testing.assert_allclose(sums, [((c - c.mean()) ** 2).sum() for c in columns], rtol=4e-6, atol=1e-4)
        np.testing.assert_allclose(y, [whole.mean(), whole.var()], rtol=2e-6)


@pytest.mark.parametrize(
    ("last", "room", "end", "said"),
    [(65, 512, 640, "WelfordUpdate must be of one row of whole blocks, of 64 elements of which 65"),
     (64, 480, 640, "WelfordUpdate must be given a temporary buffer of at least 512 bytes, not 480"),
     (64, 512, 544, "WelfordFinalize must be given a temporary buffer of at least 576 bytes, not 544")],
)  # fmt: skip
def test_what_does_not_fit_is_refused(source, last, room, end, said):
    x, row = np.zeros((2, 64), np.float32), np.zeros(64, np.float32)
    with pytest.raises(ascendc.KernelError, match=said):
        ascendc.compile(source, "welford<float>", kind="vector")(
            x, row, row.copy(), row.astype(np.int32), np.zeros(2, np.float32), np.uint32(2), np.uint32(64),
            np.uint32(last), 0, np.uint32(room), np.uint32(end),
        )  # fmt: skip


def test_a_correction_does_not_compile(tmp_path):
    with pytest.raises(CompilationError, match="WelfordFinalize corrects on Ascend 950 alone"):
        ascendc.compile(source_of(tmp_path, "true"), "welford<float>", kind="vector").build()


@pytest.mark.parametrize(("cpp", "dtype"), [("int8_t", np.int8), ("uint8_t", np.uint8), ("bool", np.uint8)])
@pytest.mark.parametrize(("rows", "width"), [(5, 32), (40, 160), (64, 64), (33, 320)])
@pytest.mark.parametrize("axis", [0, 1])
def test_bytes_are_spread(source, cpp, dtype, rows, width, axis):
    limits = np.iinfo(dtype)
    high = 2 if cpp == "bool" else limits.max + 1
    x = np.random.default_rng(8).integers(limits.min, high, rows if axis else width).astype(dtype)
    wanted = np.broadcast_to(x[:, None] if axis else x, (rows, width))
    for room in (64 + 1024 + width * 2, 0):
        y = np.zeros((rows, width), dtype)
        run = ascendc.compile(source, f"spread<{cpp}, {axis}>", kind="vector")(
            x, y, np.uint32(rows), np.uint32(width), np.uint32(room), outputs=[1]
        )
        assert run.findings == ()
        assert np.array_equal(y, wanted)
