"""Sort, Concat and Extract, and reductions of matrices by a pattern, from C++."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

SORTS = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> __global__ __aicore__ void sorts(GM_ADDR x, GM_ADDR y, GM_ADDR z, int32_t n, int32_t full,
                                                    int32_t room) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, n * 28);
  LocalTensor<uint8_t> all = buffer.Get<uint8_t>();
  LocalTensor<T> in = all.ReinterpretCast<T>(), values = all[n * 4].ReinterpretCast<T>(), scores;
  LocalTensor<uint32_t> index = all[n * 8].ReinterpretCast<uint32_t>();
  LocalTensor<T> out = all[n * 12].ReinterpretCast<T>(), temporary = all[n * 20].ReinterpretCast<T>();
  temporary.SetSize(GetSortLen<T>(room));
  GlobalTensor<T> X, Y;
  GlobalTensor<uint32_t> Z;
  X.SetGlobalBuffer((__gm__ T*)x);
  Y.SetGlobalBuffer((__gm__ T*)y);
  Z.SetGlobalBuffer((__gm__ uint32_t*)z);
  DataCopy(in, X, n);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  CreateVecIndex(index.ReinterpretCast<int32_t>(), 0, n);
  Concat(scores, in, temporary, n / 16);
  if (full) Sort<T, true>(out, scores, index, temporary, n / 32);
  else Sort<T, false>(out, scores, index, temporary, n / 32);
  Extract(values, index, out, n / 32);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(Y, values, n);
  DataCopy(Z, index, n);
}
template <class T> __global__ __aicore__ void merges(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
  LocalTensor<T> in(TPosition::VECCALC, 0, 64), pairs(TPosition::VECCALC, 512, 64 * 8 / sizeof(T));
  LocalTensor<T> out(TPosition::VECCALC, 2048, 64 * 8 / sizeof(T)), values(TPosition::VECCALC, 4096, 64);
  LocalTensor<uint32_t> index(TPosition::VECCALC, 8192, 64);
  GlobalTensor<T> X, Y;
  GlobalTensor<uint32_t> Z;
  X.SetGlobalBuffer((__gm__ T*)x);
  Y.SetGlobalBuffer((__gm__ T*)y);
  Z.SetGlobalBuffer((__gm__ uint32_t*)z);
  DataCopy(in, X, 64);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  CreateVecIndex(index.ReinterpretCast<int32_t>(), 0, 64);
  Sort32(pairs, in, index, 2);
  const uint16_t lengths[4] = {20, 32, 0, 0};
  uint32_t sorted[4];
  uint32_t second = GetSortOffset<T>(32);
  MrgSort(out, MrgSortSrcList<T>(pairs, pairs[second], pairs[second], pairs[second]), lengths, sorted, 3, 1);
  Extract(values, index, out, 2);
  if (sorted[0] + sorted[1] != 52 || sorted[2]) Trap();
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(Y, values, 48);
  DataCopy(Z, index, 48);
}
"""


@pytest.fixture(scope="module")
def sorts(source_file):
    return source_file("kernels.cpp", SORTS)


@pytest.mark.parametrize("full", [0, 1])
@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float"), (np.float16, "half")])
@pytest.mark.parametrize("n", [32, 64, 160, 512, 544, 2080])
def test_sorts_are_stable_and_falling(sorts, dtype, name, n, full):
    x = np.random.default_rng(n).integers(0, n // 2, n).astype(dtype)
    y, z = np.zeros(n, dtype), np.zeros(n, np.uint32)
    run = ascendc.compile(sorts, kernel=f"sorts<{name}>")(x, y, z, n, full, n, outputs=[1, 2])
    step = n if full else 32
    order = np.concatenate([i + np.argsort(-x[i : i + step], kind="stable") for i in range(0, n, step)])
    assert np.array_equal(y, x[order])
    assert np.array_equal(z, order)
    assert run.findings == ()


def test_a_sort_does_not_look_at_the_size_of_its_temporary_tensor(sorts):
    x, y, z = (
        np.random.default_rng(0).permutation(64).astype(np.float32),
        np.zeros(64, np.float32),
        np.zeros(64, np.uint32),
    )
    ascendc.compile(sorts, kernel="sorts<float>")(x, y, z, 64, 1, 32)
    assert np.array_equal(y, np.arange(63, -1, -1))


SUSPENDED = """
#include "kernel_operator.h"
using namespace AscendC;
// Four sorted lists, merged until one of them has no more pairs; how many of each were taken.
template <class T> __global__ __aicore__ void suspended(GM_ADDR x, GM_ADDR y, GM_ADDR counts, uint16_t a, uint16_t b,
                                                        uint16_t c, uint16_t valid) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> lists, merged;
  pipe.InitBuffer(lists, 1024);
  pipe.InitBuffer(merged, 1024);
  GlobalTensor<T> X, Y;
  GlobalTensor<int32_t> C;
  X.SetGlobalBuffer((__gm__ T*)x);
  Y.SetGlobalBuffer((__gm__ T*)y);
  C.SetGlobalBuffer((__gm__ int32_t*)counts);
  auto in = lists.Get<T>(), out = merged.Get<T>();
  constexpr uint32_t pair = 8 / sizeof(T);
  DataCopy(in, X, 128 * pair);
  Duplicate(out, T(0), 128 * pair);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  uint16_t lengths[4] = {a, b, c, 32};
  MrgSort4Info how(lengths, true, valid, 1);
  MrgSort(out, MrgSortSrcList<T>(in, in[32 * pair], in[64 * pair], in[96 * pair]), how);
  uint16_t taken[4];
  GetMrgSortResult(taken[0], taken[1], taken[2], taken[3]);
  for (int i = 0; i < 4; i++) C.SetValue(i, taken[i]);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(Y, out, 128 * pair);
}
"""


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float"), (np.float16, "half")])
@pytest.mark.parametrize(
    ("lengths", "valid"), [((32, 32, 32, 32), 15), ((5, 32, 7, 32), 15), ((32, 20, 0, 0), 3), ((32, 9, 32, 0), 7)]
)
def test_merging_is_suspended_when_a_list_ends(source_file, dtype, name, lengths, valid):
    path = source_file("suspended.cpp", SUSPENDED)
    rng = np.random.default_rng(sum(lengths))
    pairs = np.zeros((128, 8), np.uint8)
    scores = -np.sort(-rng.integers(-20, 20, (4, 32)).astype(dtype))
    pairs.view(dtype)[:, 0] = scores.reshape(-1)
    pairs.view(np.uint32)[:, 1] = np.arange(128)
    out, counts = np.zeros((128, 8), np.uint8), np.zeros(8, np.int32)
    ascendc.compile(path, f"suspended<{name}>")(pairs.view(dtype), out.view(dtype), counts, *lengths[:3], valid)
    lists = [[(-float(scores[i, j]), i, 32 * i + j) for j in range(n)] for i, n in enumerate(lengths) if valid >> i & 1]
    taken, merged = [0] * len(lists), []
    while all(at < len(one) for at, one in zip(taken, lists, strict=True)):
        best = min(range(len(lists)), key=lambda i: lists[i][taken[i]])
        merged.append(lists[best][taken[best]][2])
        taken[best] += 1
    assert counts[:4].tolist() == taken + [0] * (4 - len(taken))
    assert out.view(np.uint32)[: len(merged), 1].tolist() == merged
    assert not out[len(merged) :].any()


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float"), (np.float16, "half")])
def test_lists_of_other_lengths_are_merged(sorts, dtype, name):
    x = np.random.default_rng(1).integers(0, 40, 64).astype(dtype)
    y, z = np.zeros(48, dtype), np.zeros(48, np.uint32)
    ascendc.compile(sorts, kernel=f"merges<{name}>")(x, y, z)
    first, second = np.argsort(-x[:32], kind="stable")[:20], 32 + np.argsort(-x[32:], kind="stable")
    both = np.concatenate([first, second])
    wanted = both[np.argsort(-x[both], kind="stable")][:48]
    assert np.array_equal(y, x[wanted])
    assert np.array_equal(z, wanted)


STOPPED = """
#include "kernel_operator.h"
using namespace AscendC;
// Merges 32 pairs and `others` more until one list has no more, and says how many of each were taken.
extern "C" __global__ __aicore__ void merge(GM_ADDR x, GM_ADDR y, GM_ADDR z, int32_t others) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> in, out, counts;
  pipe.InitBuffer(in, 512);
  pipe.InitBuffer(out, 512);
  pipe.InitBuffer(counts, 32);
  GlobalTensor<float> X, Y;
  GlobalTensor<int32_t> Z;
  X.SetGlobalBuffer((__gm__ float*)x);
  Y.SetGlobalBuffer((__gm__ float*)y);
  Z.SetGlobalBuffer((__gm__ int32_t*)z);
  auto pairs = in.Get<float>(), merged = out.Get<float>();
  auto taken = counts.Get<int32_t>();
  DataCopy(pairs, X, 128);
  Duplicate(merged, 0.0f, 128);
  PipeBarrier<PIPE_ALL>();
  uint16_t lengths[4] = {32, uint16_t(others), 0, 0}, done[4] = {};
  MrgSort(merged, MrgSortSrcList<float>(pairs, pairs[64], pairs, pairs), MrgSort4Info(lengths, true, 3, 1));
  GetMrgSortResult(done[0], done[1], done[2], done[3]);
  for (int i = 0; i < 8; i++) taken.SetValue(i, i < 4 ? done[i] : 0);
  PipeBarrier<PIPE_ALL>();
  DataCopy(Y, merged, 128);
  DataCopy(Z, taken, 8);
}
"""


@pytest.mark.parametrize(
    ("first", "second", "others", "taken"),
    [(100, 1, 32, (32, 0)), (1, 100, 32, (0, 32)), (50, 50, 1, (1, 1)), (1, 100, 1, (0, 1)), (50, 50, 32, (32, 31))],
)
def test_a_merge_that_stops_before_it_takes_anything_of_a_list(source_file, first, second, others, taken):
    path = source_file("merge.cpp", STOPPED)
    x, y, z = np.zeros((64, 2), np.float32), np.zeros((64, 2), np.float32), np.zeros(8, np.int32)
    x[:32, 0], x[32:, 0] = first + np.arange(32, 0, -1), second + np.arange(32, 0, -1)
    x[:, 1] = np.arange(64)
    ascendc.compile(path)(x, y, z, np.int32(others))
    assert tuple(z[:2]) == taken
    both = np.concatenate([x[: taken[0]], x[32 : 32 + taken[1]]])
    np.testing.assert_array_equal(y[: sum(taken)], both[np.argsort(-both[:, 0], kind="stable")])
    assert not y[sum(taken) :].any()


PATTERNS = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T, class pattern>
__global__ __aicore__ void reduces(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width, int32_t which, int32_t room) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> in, out, free;
  uint32_t pitch = (width * sizeof(T) + 31) / 32 * 32;
  uint32_t kept = std::is_same_v<pattern, Pattern::Reduce::AR> ? rows : width;
  pipe.InitBuffer(in, rows * pitch);
  pipe.InitBuffer(out, max(kept * sizeof(T), 32));
  if (room) pipe.InitBuffer(free, room);
  GlobalTensor<T> X, Y;
  X.SetGlobalBuffer((__gm__ T*)x);
  Y.SetGlobalBuffer((__gm__ T*)y);
  LocalTensor<T> a = in.Get<T>(), r = out.Get<T>();
  DataCopyPad(a, X, DataCopyExtParams(rows, width * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  uint32_t shape[2] = {rows, width};
  LocalTensor<uint8_t> t = room ? free.Get<uint8_t>() : LocalTensor<uint8_t>();
#define TRY(number, F) \\
  if (which == number) { if (room) F<T, pattern>(r, a, t, shape, true); else F<T, pattern, true>(r, a, shape, true); }
  TRY(0, ReduceSum) TRY(1, ReduceMean) TRY(2, ReduceMax) TRY(3, ReduceMin)
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopyPad(Y, r, DataCopyExtParams(1, min(kept, rows + width) * sizeof(T), 0, 0, 0));
}
"""
REDUCTIONS = (np.sum, np.mean, np.max, np.min)


@pytest.fixture(scope="module")
def patterns(source_file):
    return source_file("kernels.cpp", PATTERNS)


@pytest.mark.parametrize("room", [0, 256, 1024, 8192])
@pytest.mark.parametrize("pattern", ["AR", "RA"])
@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float"), (np.float16, "half")])
def test_reductions_along_an_axis(patterns, dtype, name, pattern, room):
    kernel = ascendc.compile(patterns, kernel=f"reduces<{name}, AscendC::Pattern::Reduce::{pattern}>")
    for rows, width in ((1, 16), (7, 19), (20, 200), (3, 64), (17, 129)):
        x = np.random.default_rng(rows).integers(-8, 9, (rows, width)).astype(dtype)
        for which, definition in enumerate(REDUCTIONS):
            y = np.zeros(rows if pattern == "AR" else width, dtype)
            run = kernel(x, y, np.uint32(rows), np.uint32(width), which, room, outputs=[1])
            wanted = definition(x.astype(np.float64), axis=1 if pattern == "AR" else 0)
            assert np.allclose(y, wanted, rtol=0 if which != 1 else 2e-3, atol=0 if which != 1 else 1e-3)
            assert run.findings == ()
