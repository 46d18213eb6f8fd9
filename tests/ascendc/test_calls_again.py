"""A call that was made before, with other data: what its program would hand over is known."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim._jit import JIT_ENABLED
from npu_sim.ascendc import emission
from npu_sim.ascendc.control import MAX_LOOKS
from npu_sim.ascendc.process import Process
from npu_sim.errors import ProgramError
from npu_sim.products import get_product
from npu_sim.report.explain import Recorder, recording
from tests.ascendc.compiler import require_compiler

require_compiler()
pytestmark = pytest.mark.skipif(not JIT_ENABLED, reason="rows run again as compiled code only")

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
struct Plan { int64_t count, factor; };
// y = factor x: each core its own, through UB, which half of it keeps across the SyncAll
extern "C" __global__ __aicore__ void scaled(GM_ADDR x, GM_ADDR y, GM_ADDR plan) {
  auto* t = (__gm__ Plan*)plan;
  int64_t n = t->count, at = GetBlockIdx() * n;
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 2 * n * sizeof(float));
  LocalTensor<float> in = buffer.Get<float>(), out = in[n];
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer((__gm__ float*)x); to.SetGlobalBuffer((__gm__ float*)y);
  DataCopy(in, from[at], n);
  SyncAll();
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0); WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  Muls(out, in, (float)t->factor, n);
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0); WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(to[at], out, n);
}
// y = x where the first of x says so: how, is the parameter
extern "C" __global__ __aicore__ void asks(GM_ADDR x, GM_ADDR y, int how) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 512);
  LocalTensor<int32_t> held = buffer.Get<int32_t>();
  GlobalTensor<int32_t> from, to;
  from.SetGlobalBuffer((__gm__ int32_t*)x); to.SetGlobalBuffer((__gm__ int32_t*)y);
  DataCopy(held, from, 128);
  SetFlag<HardEvent::MTE2_S>(EVENT_ID0); WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
  SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0); WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  int32_t first = 1;
  if (how == 0) first = held.GetValue(0);
  if (how == 1) first = from.GetValue(0);
  if (how == 2) first = *(__gm__ int32_t*)x;
  if (how == 3) printf("said\\n");
  if (how == 4) *((__gm__ int32_t*)y + 127) = 3;
  if (first) DataCopy(to, held, how == 4 ? 120 : 128);
}
// y = the sum of what it looks at, page by page
extern "C" __global__ __aicore__ void looks(GM_ADDR x, GM_ADDR y, int pages) {
  int32_t sum = 0;
  for (int i = 0; i < pages; i++) sum += *((__gm__ int32_t*)x + i * 1024);
  for (int i = 0; i < 2; i++) *((__gm__ int32_t*)y + i * 1024) = sum + *((__gm__ int32_t*)y + i * 1024);
}
// y[i] = x[offset[i] / 4]
extern "C" __global__ __aicore__ void gathers(GM_ADDR x, GM_ADDR offset, GM_ADDR y) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 768);
  LocalTensor<int32_t> held = buffer.Get<int32_t>(), at = held[64], found = held[128];
  GlobalTensor<int32_t> from, places, to;
  from.SetGlobalBuffer((__gm__ int32_t*)x); places.SetGlobalBuffer((__gm__ int32_t*)offset);
  to.SetGlobalBuffer((__gm__ int32_t*)y);
  DataCopy(held, from, 64); DataCopy(at, places, 64);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0); WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  Gather(found, held, at.ReinterpretCast<uint32_t>(), (uint32_t)0, 64);
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0); WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(to, found, 64);
}
// y = what is in UB, of which nobody has written the second half
extern "C" __global__ __aicore__ void poison(GM_ADDR x, GM_ADDR y) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 256);
  LocalTensor<int32_t> held = buffer.Get<int32_t>();
  GlobalTensor<int32_t> from, to;
  from.SetGlobalBuffer((__gm__ int32_t*)x); to.SetGlobalBuffer((__gm__ int32_t*)y);
  DataCopy(held, from, 32);
  SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0); WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  DataCopy(to, held, 64);
}
"""
CUBE = """
#include "kernel_operator.h"
using namespace AscendC;
// c = a b of 16 x 16 floats, then of halves of them, if both are asked for
template <class T> __aicore__ inline void multiply(GM_ADDR a, GM_ADDR b, GM_ADDR c) {
  constexpr int K = 32 / sizeof(T);
  LocalTensor<T> a1(TPosition::A1, 0, 16 * K), b1(TPosition::B1, 1024, 16 * K), a2(TPosition::A2, 0, 16 * K),
      b2(TPosition::B2, 0, 16 * K);
  LocalTensor<float> co(TPosition::CO1, 0, 256);
  GlobalTensor<T> ga, gb; GlobalTensor<float> gc;
  ga.SetGlobalBuffer((__gm__ T*)a); gb.SetGlobalBuffer((__gm__ T*)b); gc.SetGlobalBuffer((__gm__ float*)c);
  DataCopy(a1, ga, 16 * K); DataCopy(b1, gb, 16 * K);
  PipeBarrier<PIPE_ALL>();
  LoadData2DParams load; load.repeatTimes = 1; load.srcStride = 1;
  LoadData(a2, a1, load); LoadData(b2, b1, load);
  PipeBarrier<PIPE_ALL>();
  MmadParams mmad; mmad.m = 16; mmad.n = 16; mmad.k = K; mmad.cmatrixInitVal = true;
  Mmad(co, a2, b2, mmad);
  PipeBarrier<PIPE_ALL>();
  FixpipeParamsV220 fix; fix.nSize = 16; fix.mSize = 16; fix.srcStride = 16; fix.dstStride = 16;
  Fixpipe<float, float, CFG_ROW_MAJOR>(gc, co, fix);
  PipeBarrier<PIPE_ALL>();
}
extern "C" __global__ __aicore__ void products(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR d, int how) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  multiply<half>(a, b, c);
  if (how) multiply<float>(a, b, d);
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("again.cpp", SOURCE)


@pytest.fixture(autouse=True)
def shelf(monkeypatch):
    """What is kept, nothing yet."""
    own = emission._Shelf()
    monkeypatch.setattr("npu_sim.ascendc.kernel.SHELF", own)
    return own


@contextmanager
def started(monkeypatch):
    """Count the programs that are started."""
    count, start = [], Process.start
    with monkeypatch.context() as patch:
        patch.setattr(Process, "start", lambda self: (count.append(self), start(self))[1])
        yield count


def compiled(source, name):
    return ascendc.compile(source, name, product="910b")


def scaled(kernel, x, factor, blocks=4, product="910b", **others):
    y = np.zeros_like(x)
    plan = np.array([x.size // blocks, factor]).tobytes()
    run = kernel(x, y, tiling=plan, blocks=blocks, product=product, outputs=[1], **others)
    assert np.array_equal(y, x * np.float32(factor))
    return run


def test_the_third_call_needs_no_program(source, monkeypatch):
    kernel, rng = compiled(source, "scaled"), np.random.default_rng(0)
    with started(monkeypatch) as programs:
        runs = [scaled(kernel, rng.standard_normal(1024, np.float32), 3) for _ in range(4)]
    assert len(programs) == 2
    assert [run.findings for run in runs] == [()] * 4
    first, last = runs[0], runs[-1]
    for core in range(4):
        assert first.rows(core).tobytes() == last.rows(core).tobytes()
    (before,), (behind,) = first.launches, last.launches
    assert before.phase_count == behind.phase_count == 2
    assert (before.lines, before.buffers, before.crosses) == (behind.lines, behind.buffers, behind.crosses)
    assert first.seconds == last.seconds
    assert first.call == last.call


def test_another_tiling_or_size_is_another_call(source, monkeypatch):
    kernel, rng = compiled(source, "scaled"), np.random.default_rng(1)
    with started(monkeypatch) as programs:
        for number in range(3):
            for size, factor, blocks in ((1024, 3, 4), (1024, 5, 4), (512, 3, 4), (1024, 3, 2)):
                scaled(kernel, rng.standard_normal(size, np.float32), factor, blocks)
            assert len(programs) == (4, 8, 8)[number]
        scaled(kernel, rng.standard_normal(1024, np.float32), 3, auto_sync=False)
    assert len(programs) == 9


def test_another_product_has_other_rules(source, monkeypatch):
    kernel, x = compiled(source, "scaled"), np.ones(1024, np.float32)
    known = get_product("910b")
    mine = replace(known, name="mine")
    with started(monkeypatch) as programs:
        for product in (known, known, known, mine, mine, known):
            scaled(kernel, x, 3, product=product)
    assert len(programs) == 4


@pytest.mark.parametrize("how", [0, 1, 2])
def test_what_looks_at_data_runs_each_time(source, monkeypatch, how):
    kernel, x = compiled(source, "asks"), np.arange(128, dtype=np.int32)
    with started(monkeypatch) as programs:
        for number in range(6):
            y = np.full(128, -1, np.int32)
            x[0] = number % 2
            kernel(x, y, how, product="910b")
            assert np.array_equal(y, x if number % 2 else np.full(128, -1))
    assert len(programs) == 6


def test_what_looks_at_nothing_is_known(source, monkeypatch):
    kernel, x = compiled(source, "asks"), np.arange(128, dtype=np.int32)
    with started(monkeypatch) as programs:
        for number in range(5):
            y = np.zeros(128, np.int32)
            x[0] = number
            kernel(x, y, 9, product="910b")
            assert np.array_equal(y, x)
    assert len(programs) == 2


def test_what_is_printed_is_printed_each_time(source):
    kernel, x = compiled(source, "asks"), np.arange(128, dtype=np.int32)
    said = [kernel(x, np.zeros(128, np.int32), 3, product="910b").printed for _ in range(4)]
    assert said == ["said\n"] * 4


def test_plain_stores_are_made_each_time(source):
    kernel, x = compiled(source, "asks"), np.arange(128, dtype=np.int32)
    for _ in range(4):
        y = np.zeros(128, np.int32)
        run = kernel(x, y, 4, product="910b")
        assert y[127] == 3
        assert np.array_equal(y[:120], x[:120])
        assert len(run.launches[0].plain_stores) == 1


@pytest.mark.parametrize("pages", [1, MAX_LOOKS - 1, MAX_LOOKS + 40])
def test_looks_at_many_pages(source, pages):
    """Behind the last that is noted all may be read, and what was stored to stays writable."""
    kernel, rng = compiled(source, "looks"), np.random.default_rng(2)
    for _ in range(3):
        x = rng.integers(0, 1000, pages * 2048).astype(np.int32)
        y = np.zeros(2048, np.int32)
        kernel(x, y, pages, product="910b")
        assert y[0] == y[1024] == x[: pages * 1024 : 1024].sum()


def test_buffers_are_poison_each_time(source):
    kernel, x = compiled(source, "poison"), np.arange(32, dtype=np.int32)
    for number in range(4):
        y = np.zeros(64, np.int32)
        run = kernel(x + number, y, product="910b")
        assert np.array_equal(y[:32], x + number)
        assert (y[32:] == -1).all()
        assert [found.kind.name for found in run.findings] == ["READ_UNINITIALISED"]


def test_what_stands_in_an_output_before_is_not_seen_behind(source):
    kernel = compiled(source, "scaled")
    x = np.ones(1024, np.float32)
    for number in range(4):
        y = np.full(2048, number, np.float32)
        kernel(x, y, tiling=np.array([256, 2]).tobytes(), blocks=4, product="910b")
        assert (y[:1024] == 2).all()
        assert (y[1024:] == number).all()


def test_an_array_that_may_not_be_written_is_refused_each_time(source):
    kernel = compiled(source, "scaled")
    x, y = np.ones(1024, np.float32), np.zeros(1024, np.float32)
    y.flags.writeable = False
    for _ in range(4):
        with pytest.raises(Exception, match="y of scaled, which it wrote, must be"):
            kernel(x, y, tiling=np.array([256, 2]).tobytes(), blocks=4, product="910b")
    assert not y.any()


def test_a_refused_call_is_refused_each_time(source):
    kernel = compiled(source, "scaled")
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    words = set()
    for _ in range(4):
        with pytest.raises(ProgramError) as caught:
            kernel(x, y, tiling=np.array([1024, 2]).tobytes(), product="910b")
        words.add(str(caught.value))
    assert len(words) == 1


def test_data_that_cannot_be_carried_out_is_refused_as_in_the_first_call(source):
    kernel, x = compiled(source, "gathers"), np.arange(64, dtype=np.int32)
    good = (4 * np.arange(64)[::-1]).astype(np.int32)
    bad = good.copy()
    bad[17] = 1 << 30

    def refusal():
        y = np.full(64, -5, np.int32)
        with pytest.raises(ProgramError) as caught:
            kernel(x, bad, y, product="910b")
        assert (y == -5).all()
        return str(caught.value)

    first = refusal()
    for _ in range(4):
        y = np.zeros(64, np.int32)
        kernel(x, good, y, product="910b")
        assert np.array_equal(y, x[::-1])
    assert refusal() == first
    y = np.zeros(64, np.int32)
    kernel(x, good, y, product="910b")
    assert np.array_equal(y, x[::-1])


def test_recordings_hold_the_data_of_each_call(source):
    kernel, rng = compiled(source, "scaled"), np.random.default_rng(3)
    for _ in range(3):
        scaled(kernel, rng.standard_normal(1024, np.float32), 2)
    with recording(Recorder(own_only=True, keeps_tensors=True)) as recorder:
        x = rng.standard_normal(1024, np.float32)
        scaled(kernel, x, 2)
    (explanation,) = recorder.explanations()
    assert np.array_equal(explanation.execution.tensors["x"].view(np.float32)[:1024], x)
    assert np.array_equal(explanation.execution.results["y"].view(np.float32)[:1024], 2 * x)


@pytest.mark.parametrize(("how", "count"), [(0, 2), (1, 5)])
def test_each_call_has_its_own_model_of_sums(source_file, shelf, monkeypatch, how, count):
    """Where floats of one type are multiplied; with a second one the program runs each time."""
    path = source_file("cube.cpp", CUBE)
    kernel, rng = ascendc.compile(path, product="910b"), np.random.default_rng(4)
    others = [emission._Shelf() for _ in range(5)]  # of which each knows nothing yet
    total = 0
    for model, other in zip(("serial", None, "serial", None, "tree4-rz"), others, strict=True):
        a, b = (rng.standard_normal(256, np.float32).astype(np.float16) for _ in range(2))
        sums = []
        for place in (shelf, other):
            monkeypatch.setattr("npu_sim.ascendc.kernel.SHELF", place)
            c, d = np.zeros(256, np.float32), np.zeros(256, np.float32)
            with started(monkeypatch) as programs:
                kernel(a, b, c, d, how, product="910b", outputs=[2], accumulation=model)
            total += len(programs) if place is shelf else 0
            sums.append(np.concatenate([c, d]).view(np.uint32))
        assert np.array_equal(*sums)
        assert c.any()
        assert d.any() == bool(how)
    assert total == count


def test_little_is_kept(source, shelf, monkeypatch):
    kernel = compiled(source, "scaled")
    monkeypatch.setattr(emission, "_MOST_CALLS", 3)
    for factor in range(1, 8):
        for _ in range(3):
            scaled(kernel, np.ones(1024, np.float32), factor)
        assert len(shelf._kept) <= 3
    held = [kept for kept in shelf._kept.values() if kept]
    assert held
    monkeypatch.setattr(emission, "_MOST_BYTES", held[0].byte_count)
    for factor in range(1, 5):
        for _ in range(3):
            scaled(kernel, np.ones(1024, np.float32), factor)
        assert len([kept for kept in shelf._kept.values() if kept]) == 1
    monkeypatch.setattr("npu_sim.ascendc.machine.MOST_ROWS", 3)
    with started(monkeypatch) as programs:
        for _ in range(3):
            scaled(kernel, np.ones(1024, np.float32), 100)
    assert len(programs) == 3
