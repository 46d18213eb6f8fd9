"""Rows of several cores are handed over together, which changes nothing but how often the program waits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import Process
from npu_sim.memory.core import POISON_BYTE
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
__aicore__ void store(GM_ADDR z, float value, int at) {
  TPipe pipe; TQue<TPosition::VECOUT, 1> queue; pipe.InitBuffer(queue, 1, 256);
  GlobalTensor<float> Z; Z.SetGlobalBuffer((__gm__ float*)z);
  auto t = queue.AllocTensor<float>();
  Duplicate(t, value, 64);
  queue.EnQue(t); t = queue.DeQue<float>();
  DataCopy(Z[64 * at], t, 64);
  queue.FreeTensor(t);
}
__global__ __aicore__ void alone(GM_ADDR z) { store(z, GetBlockIdx() + 1, GetBlockIdx()); }
__global__ __aicore__ void phases(GM_ADDR z) {
  int next = (GetBlockIdx() + 1) % GetBlockNum();
  store(z, GetBlockIdx() + 1, GetBlockIdx());
  SyncAll();
  float value = ((volatile float*)z)[64 * next];  // by a pointer, not by GetValue
  SyncAll();
  store(z, value, GetBlockIdx());
}
__global__ __aicore__ void rounds(GM_ADDR z, GM_ADDR seen, int count) {
  int next = (GetBlockIdx() + 1) % GetBlockNum();
  volatile float* sums = (volatile float*)seen;
  float value = GetBlockIdx() + 1;
  for (int i = 0; i < count; i++) {
    store(z, value, GetBlockIdx());
    SyncAll();
    value = 2 * ((volatile float*)z)[64 * next];
    sums[GetBlockIdx()] = 3 * sums[GetBlockIdx()] + value;
    SyncAll();
  }
}
__global__ __aicore__ void quiet(GM_ADDR z, int count) {
  for (int i = 0; i < count; i++) {
    store(z, i + GetBlockIdx(), (GetBlockIdx() + i) % GetBlockNum());
    SyncAll();
  }
}
__global__ __aicore__ void second_is_wrong(GM_ADDR z) { store(z, 1, GetBlockIdx() == 1 ? 77 : GetBlockIdx()); }
__global__ __aicore__ void second_is_illegal(GM_ADDR z) {
  store(z, 1, GetBlockIdx());
  LocalTensor<float> t(TPosition::VECCALC, 0, 64);
  Adds(t, t, 1.0f, GetBlockIdx() == 1 ? 1 << 30 : 64);
}
__global__ __aicore__ void gathers(GM_ADDR x, GM_ADDR offset) {
  TPipe pipe; TBuf<TPosition::VECCALC> buf; pipe.InitBuffer(buf, 768);
  auto at = buf.Get<int32_t>(), held = at[64], found = at[128];
  GlobalTensor<int32_t> X, O; X.SetGlobalBuffer((__gm__ int32_t*)x); O.SetGlobalBuffer((__gm__ int32_t*)offset);
  DataCopy(held, X[64 * GetBlockIdx()], 64);
  DataCopy(at, O[64 * GetBlockIdx()], 64);
  SyncAll();
  PipeBarrier<PIPE_ALL>();
  Gather(found, held, at.ReinterpretCast<uint32_t>(), (uint32_t)0, 64);
  PipeBarrier<PIPE_ALL>();
  DataCopy(X[64 * GetBlockIdx()], found, 64);
}
__global__ __aicore__ void second_loops(GM_ADDR z) {
  volatile int n = GetBlockIdx() == 1;
  while (n) {}
  store(z, 1, GetBlockIdx());
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("lots.cpp", SOURCE)


@pytest.fixture
def answers(monkeypatch):
    """Return a list that gets an entry whenever the program is told to go on."""
    seen, go_on = [], Process.go_on
    monkeypatch.setattr(Process, "go_on", lambda self: (seen.append(1), go_on(self))[1])
    return seen


def test_cores_that_wait_for_nobody_are_handed_over_together(source, answers):
    z = np.zeros((24, 64), np.float32)
    run = ascendc.compile(source, "alone")(z, blocks=24, outputs=[0])
    assert np.array_equal(z[:, 0], np.arange(24) + 1)
    assert {len(run.rows(core)) for core in range(24)} == {len(run.rows()) // 24}
    assert len(answers) <= 6  # one more whenever 20 ms have gone by


def test_a_pointer_sees_behind_sync_all_what_other_cores_stored(source, answers):
    z = np.zeros((24, 64), np.float32)
    run = ascendc.compile(source, "phases")(z, blocks=24)
    assert np.array_equal(z[:, 0], np.roll(np.arange(24) + 1, -1))
    assert run.launches[0].phase_count == 3
    assert 1 <= len(answers) <= 10


def test_a_pointer_sees_the_same_page_anew_behind_every_sync_all(source):
    z, seen, rounds = np.zeros((8, 64), np.float32), np.zeros(8, np.float32), 5
    ascendc.compile(source, "rounds")(z, seen, rounds, blocks=8)
    value, sums = np.arange(8, dtype=np.float32) + 1, np.zeros(8, np.float32)
    for _ in range(rounds):
        stored, value = value, 2 * np.roll(value, -1)
        sums = 3 * sums + value
    assert np.array_equal(z[:, 0], stored)
    assert np.array_equal(seen, sums)


def test_cores_that_look_at_nothing_are_handed_over_together_over_sync_all(source, answers):
    z, count = np.zeros((8, 64), np.float32), 20
    run = ascendc.compile(source, "quiet")(z, count, blocks=8, outputs=[0])
    assert np.array_equal(z[:, 0], (np.arange(8) - (count - 1)) % 8 + count - 1)
    assert run.launches[0].phase_count == count + 1
    assert len(answers) <= 6  # one more whenever 20 ms have gone by


def line_of(text):
    """Return the number of the first line that holds a text."""
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


@pytest.mark.parametrize(("name", "text"), [("second_is_wrong", "DataCopy("), ("second_is_illegal", "Adds(")])
def test_what_is_wrong_in_one_of_the_cores_is_found_there(source, name, text):
    z = np.zeros((4, 64), np.float32)
    run = ascendc.compile(source, name).check(z, blocks=4)
    (found,) = run.refused
    assert (found.core, found.line.line) == (1, line_of(text))
    assert run.rows(1)[found.row]["site"] == found.site
    assert not z.any()


def test_offsets_that_leave_ub_are_found_in_their_core(source):
    x = np.arange(256, dtype=np.int32)
    offsets = np.tile((4 * np.arange(64)[::-1]).astype(np.int32), 4)
    kernel = ascendc.compile(source, "gathers")
    kernel(y := x.copy(), offsets, blocks=4)
    assert np.array_equal(y, x.reshape(4, 64)[:, ::-1].reshape(-1))
    offsets[64 * 2 + 17] = 1 << 30
    run = kernel.check(x.copy(), offsets, blocks=4)
    (found,) = run.refused
    assert (found.core, found.line.line) == (2, line_of("Gather("))
    assert run.rows(2)[found.row]["site"] == found.site


def test_rows_of_cores_before_one_that_does_not_end_are_kept(source):
    run = ascendc.compile(source, "second_loops").check(np.zeros((4, 64), np.float32), blocks=4, silence=0.3)
    assert run.stopped_by.core == 1
    assert [len(run.rows(core)) > 0 for core in range(4)] == [True, False, False, False]


def test_what_the_last_call_left_is_not_seen(source):
    kernel = ascendc.compile(source, "alone")
    first, second = np.zeros((4, 64), np.float32), np.zeros((4, 64), np.float32)
    kernel(first, blocks=4, outputs=[0])
    kernel(second, blocks=2, outputs=[0])
    assert (second[2:].view(np.uint8) == POISON_BYTE).all()


def test_a_copy_of_this_process_has_memory_of_its_own():
    def opened():
        return Process(Path(), 1 << 16, silence=1.0)

    first = opened()
    first.gm[0] = 1
    first.close()
    child = os.fork()
    if not child:
        opened().gm[0] = 77
        os._exit(0)
    os.waitpid(child, 0)
    second = opened()
    assert second.gm[0] == 1
    second.close()
