"""Cores that order each other by words of global memory: IBSet and IBWait, blocks in turn, groups, and polling."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.engines.timeline import run_timeline
from npu_sim.isa.op import Op
from npu_sim.products import get_product
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;

class Step {  // z[to] = z[from] + 1
 public:
  __aicore__ Step(GM_ADDR z, GM_ADDR words) {
    out.SetGlobalBuffer((__gm__ float*)z);
    sync.SetGlobalBuffer((__gm__ int32_t*)words);
    pipe.InitBuffer(in, 1, 256);
    pipe.InitBuffer(ready, 1, 256);
    pipe.InitBuffer(aux, 1024);
    block = GetBlockIdx();
  }
  __aicore__ void add(int from, int to) {
    auto a = in.AllocTensor<float>();
    DataCopy(a, out[64 * from], 64);  // READ
    in.EnQue(a);
    a = in.DeQue<float>();
    auto b = ready.AllocTensor<float>();
    Adds(b, a, 1.0f, 64);
    in.FreeTensor(a);
    ready.EnQue(b);
    b = ready.DeQue<float>();
    DataCopy(out[64 * to], b, 64);
    ready.FreeTensor(b);
  }
  TPipe pipe;
  TQue<TPosition::VECIN, 1> in;
  TQue<TPosition::VECOUT, 1> ready;
  TBuf<TPosition::VECCALC> aux;
  GlobalTensor<float> out;
  GlobalTensor<int32_t> sync;
  int block;
};

extern "C" __global__ __vector__ void chain(GM_ADDR z, GM_ADDR words, int32_t waits) {
  Step step(z, words);
  auto ub = step.aux.Get<int32_t>();
  for (int event = 0; event < 2; event++) {
    if (step.block > 0 && waits) IBWait(step.sync, ub, step.block - 1, event);  // WAIT
    step.add(step.block + 8 * event, step.block + 8 * event + 1);
    if (step.block + 1 < GetBlockNum()) IBSet(step.sync, ub, step.block, event);
  }
}
extern "C" __global__ __vector__ void in_turn(GM_ADDR z, GM_ADDR words, GM_ADDR order) {
  Step step(z, words);
  GlobalTensor<int32_t> next, list;
  next.SetGlobalBuffer((__gm__ int32_t*)order);
  auto ub = step.aux.Get<int32_t>();
  InitDetermineComputeWorkspace(step.sync, ub);
  for (int round = 0; round < 3; round++) {
    WaitPreBlock(step.sync, ub);
    int at = next.GetValue(0);
    next.SetValue(1 + at, step.block);
    next.SetValue(0, at + 1);
    DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE>(next);
    step.add(0, 0);
    NotifyNextBlock(step.sync, ub);
  }
}
extern "C" __global__ __vector__ void group(GM_ADDR z, GM_ADDR words, int32_t arrivers) {
  Step step(z, words);
  GroupBarrier<PipeMode::MTE3_MODE> barrier(words, arrivers, GetBlockNum() - arrivers);
  for (int round = 0; round < 2; round++) {
    if (step.block < arrivers) {
      step.add(step.block + 8 * round, step.block + 8 * round + 8);
      barrier.Arrive(step.block);
    } else {
      barrier.Wait(step.block - arrivers);
      step.add(step.block % arrivers + 8 * round + 8, 32 + step.block + 8 * round);
    }
  }
}
extern "C" __global__ __vector__ void by_cache(GM_ADDR z, GM_ADDR words, int32_t cleans) {
  Step step(z, words);
  int last = GetBlockNum() - 1;
  if (step.block < last) {
    step.add(step.block, step.block + 8);
    SetFlag<HardEvent::MTE3_S>(0);
    WaitFlag<HardEvent::MTE3_S>(0);
    step.sync.SetValue(16 * step.block, 7);
    if (cleans) DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(step.sync[16 * step.block]);
    return;
  }
  for (bool waits = true; waits;) {
    waits = false;
    for (int i = 0; i < last && !waits; i++) {
      DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(step.sync[16 * i]);
      waits = step.sync.GetValue(16 * i) != 7;  // LOOK
    }
  }
  for (int i = 0; i < last; i++) step.add(i + 8, i + 16);
}
extern "C" __global__ __vector__ void cleaned_long_ago(GM_ADDR z, GM_ADDR words) {
  Step step(z, words);
  DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE>(step.sync);
  int32_t first = step.sync.GetValue(0);
  step.add(step.block + 8, step.block + 16);
  SetFlag<HardEvent::MTE3_S>(0);
  WaitFlag<HardEvent::MTE3_S>(0);
  if (step.block == 0) step.sync.SetValue(0, first + 5);
  else step.sync.SetValue(16, step.sync.GetValue(0));  // PLAIN
}
extern "C" __global__ __vector__ void past_cache(GM_ADDR z, GM_ADDR words) {
  __gm__ int32_t* word = (__gm__ int32_t*)words;
  int block = GetBlockIdx(), last = GetBlockNum() - 1;
  if (block < last) while (ReadGmByPassDCache(word + 16 * (block + 1)) == 0) PipeBarrier<PIPE_ALL>();
  int64_t sum = block == last ? 1 : 2 * ReadGmByPassDCache((__gm__ int64_t*)z + block + 1);
  WriteGmByPassDCache((__gm__ int64_t*)z + block, sum);
  DataSyncBarrier<MemDsbT::DDR>();
  WriteGmByPassDCache(word + 16 * block, 1);
}
extern "C" __global__ __vector__ void reads_often(GM_ADDR z, GM_ADDR words) {
  GlobalTensor<int32_t> list;
  list.SetGlobalBuffer((__gm__ int32_t*)words);
  int32_t sum = 0;
  for (int i = 0; i < 20000; i++) sum += list.GetValue(i % 3);
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)z);
  out.SetValue(8 * GetBlockIdx(), sum);
}
"""
READ = 1 + SOURCE[: SOURCE.index("// READ")].count("\n")


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("words.cpp", SOURCE)


def _started(rows, length):
    z = np.zeros((rows, 64), np.float32)
    z[:] = np.arange(64)
    return z, np.zeros(length, np.int32)


def test_blocks_wait_for_what_the_block_before_has_stored(source):
    kernel = ascendc.compile(source, "chain")
    z, words = _started(16, 256)
    result = kernel(z, words, np.int32(1), blocks=5)
    assert np.array_equal(z[:14, 0], [*range(6), 0, 0, *range(6)])
    assert not words.any()
    assert not result.findings
    ops = result.rows()["op"].tolist()
    assert ops.count(Op.SET_SIGNAL) == 2 * 2 * 4
    assert ops.count(Op.WAIT_SIGNAL) == 2 * 4


def test_blocks_that_do_not_wait_race_at_the_line_that_reads(source):
    z, words = _started(16, 256)
    run = ascendc.compile(source, "chain").check(z, words, np.int32(0), blocks=2)
    assert {found.line.line for found in run.findings if found.other_core >= 0} & {READ, READ + 8}


def test_ib_wait_that_nobody_answers_is_an_error_with_its_line(source):
    kernel = ascendc.compile(source, "chain")
    z, words = _started(16, 256)
    words[0] = 1  # IBSet of block 0 finds its word taken
    line = 1 + SOURCE[: SOURCE.index("IBSet(")].count("\n")
    with pytest.raises(KernelError, match=rf"IBSet must find what another core stores.*words\.cpp:{line}\)"):
        kernel(z, words, np.int32(0), blocks=2)
    assert words[0] == 1
    assert not z[:, 0].any()


def test_blocks_take_turns_round_after_round(source):
    z, words = _started(1, 64)
    order = np.zeros(32, np.int32)
    result = ascendc.compile(source, "in_turn")(z, words, order, blocks=6)
    assert order.tolist() == [18, *(list(range(6)) * 3), *[0] * 13]
    assert z[0, 0] == 18
    assert not result.findings


@pytest.mark.parametrize("arrivers", [1, 2, 5])
def test_those_who_wait_for_a_group_see_what_all_of_it_has_stored(source, arrivers):
    z, words = _started(64, 8 * 128)
    result = ascendc.compile(source, "group")(z, words, np.int32(arrivers), blocks=6)
    for round_ in range(2):
        waiting = np.arange(arrivers, 6)
        assert np.array_equal(z[32 + waiting + 8 * round_, 0], np.full(6 - arrivers, 2 + round_))
    assert not words.any()
    assert not result.findings


def test_who_polls_a_word_gives_way_to_those_who_store_it(source):
    kernel = ascendc.compile(source, "by_cache")
    z, words = _started(24, 64)
    result = kernel(z, words, np.int32(1), blocks=4)
    assert np.array_equal(z[16:19, 0], [2, 2, 2])
    assert not result.findings
    # without the line cleaned nothing says that others see it behind the rest
    z, words = _started(24, 64)
    assert kernel.check(z, words, np.int32(0), blocks=4).findings


def test_a_look_is_past_the_cache_only_just_behind_its_cleaning(source):
    z, words = _started(24, 64)
    run = ascendc.compile(source, "cleaned_long_ago").check(z, words, blocks=2)
    ops = run.rows(1)["op"].tolist()
    assert (ops.count(Op.SCALAR_LOOK), ops.count(Op.SCALAR_LOAD)) == (1, 1)
    line = 1 + SOURCE[: SOURCE.index("// PLAIN")].count("\n")
    assert {found.line.line for found in run.findings if found.other_core >= 0} == {line}


def test_a_core_alone_that_polls_for_ever_is_an_error_with_its_line(source):
    line = 1 + SOURCE[: SOURCE.index("// LOOK")].count("\n")
    z, words = _started(24, 64)
    text = SOURCE.replace("SetValue(16 * step.block, 7)", "SetValue(16 * step.block, 6)")
    other = source.parent / "never.cpp"
    other.write_text(text)
    with pytest.raises(KernelError, match=rf"GetValue must find what another core stores.*never\.cpp:{line}\)"):
        ascendc.compile(other, "by_cache")(z, words, np.int32(1), blocks=3)


def test_accesses_past_the_cache_hand_values_from_core_to_core(source):
    z, words = np.zeros(16, np.int64), np.zeros(256, np.int32)
    result = ascendc.compile(source, "past_cache")(z, words, blocks=10)
    assert z[:10].tolist() == [512 >> i for i in range(10)]
    assert words[::16].tolist() == [1] * 10 + [0] * 6
    assert not result.findings
    # each core waits for the one behind it, and the clocks say so too
    cycles = run_timeline(result.launches[0], get_product("910b")).core_cycles
    assert list(cycles) == sorted(cycles, reverse=True)


def test_a_core_that_reads_the_same_again_and_again_is_not_taken_for_one_that_waits(source):
    z, words = np.zeros((3, 8), np.int32), np.arange(1, 9, dtype=np.int32)
    ascendc.compile(source, "reads_often")(z, words, blocks=3)
    assert z[:, 0].tolist() == [sum(i % 3 + 1 for i in range(20000))] * 3
