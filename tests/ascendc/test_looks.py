"""What the scalar unit reads is what all rows before left, though the emulator is not always asked for it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.control import PAGE_BYTES, ROWS
from npu_sim.ascendc.machine import Cores
from npu_sim.isa.op import Op
from tests.ascendc.compiler import require_compiler

require_compiler()

WORDS, OWN = 4096, 512
"""Of UB, four pages; of global memory, by core."""
STEPS = 160


class Step(IntEnum):
    """What `interpret` does."""

    SET = 0
    GET = 1
    ADDS = 2
    LOAD = 3
    STORE = 4
    GM_SET = 5
    GM_GET = 6
    COUNT_UP = 7
    SYNC = 8
    BYTE = 9
    LONG = 10
    TABLE = 11
    ORDER = 12


SOURCE = f"""
#include "kernel_operator.h"
using namespace AscendC;

// Carries out a list of steps: number, and three operands.
extern "C" __global__ __aicore__ void interpret(GM_ADDR steps, GM_ADDR x, GM_ADDR z, GM_ADDR out, int32_t count) {{
  TPipe pipe;
  TBuf<TPosition::VECCALC> buf;
  pipe.InitBuffer(buf, {4 * WORDS});
  LocalTensor<int32_t> ub = buf.Get<int32_t>();
  LocalTensor<int8_t> bytes = buf.Get<int8_t>();
  LocalTensor<int64_t> longs = buf.Get<int64_t>();
  GlobalTensor<int32_t> gx, gz, go;
  gx.SetGlobalBuffer((__gm__ int32_t*)x);
  gz.SetGlobalBuffer((__gm__ int32_t*)z);
  go.SetGlobalBuffer((__gm__ int32_t*)out);
  int64_t own = GetBlockIdx() * {OWN};
  __gm__ const int32_t* step = (__gm__ const int32_t*)steps + GetBlockIdx() * count * 4;
  uint32_t seen = 1;
  auto see = [&](int64_t value) {{ seen = seen * 31 + uint32_t(value) + uint32_t(value >> 32); }};
  Duplicate(ub, 7, {WORDS});
  for (int i = 0; i < count; i++, step += 4) {{
    int32_t a = step[1], b = step[2], c = step[3];
    switch (step[0]) {{
      case {Step.SET}: ub.SetValue(a, int32_t(seen) ^ b); break;
      case {Step.GET}: see(ub.GetValue(a)); break;
      case {Step.ADDS}: Adds(ub[a], ub[b], int32_t(seen % 7), 64); break;
      case {Step.LOAD}: DataCopy(ub[a], gx[b], 32); break;
      case {Step.STORE}: DataCopy(gz[own + b], ub[a], 32); break;
      case {Step.GM_SET}: gz.SetValue(own + a, int32_t(seen) + b); break;
      case {Step.GM_GET}: see(gz.GetValue((GetBlockIdx() + c) % GetBlockNum() * {OWN} + a)); break;
      case {Step.COUNT_UP}: while (ub.GetValue(a) % 8) ub.SetValue(a, ub.GetValue(a) + 1); break;
      case {Step.SYNC}: SyncAll(); break;
      case {Step.BYTE}: bytes.SetValue(a, int8_t(seen)); see(bytes.GetValue(b)); break;
      case {Step.LONG}: longs.SetValue(a, int64_t(seen) << 13); see(longs.GetValue(b)); break;
      case {Step.TABLE}: for (int j = 0; j < c; j++) ub.SetValue(a + j, ub.GetValue(b + j % 64) * 3 + j); break;
      case {Step.ORDER}:
        PipeBarrier<PIPE_ALL>();
        SetFlag<HardEvent::S_V>(0);
        WaitFlag<HardEvent::S_V>(0);
        break;
    }}
  }}
  go.SetValue(GetBlockIdx(), int32_t(seen));
}}
extern "C" __global__ __aicore__ void loop(GM_ADDR x, GM_ADDR z, int32_t times) {{
  TPipe pipe;
  TBuf<TPosition::VECCALC> in, out;
  pipe.InitBuffer(in, 8192);
  pipe.InitBuffer(out, 8192);
  LocalTensor<int32_t> a = in.Get<int32_t>(), b = out.Get<int32_t>();
  GlobalTensor<int32_t> gx, gz;
  gx.SetGlobalBuffer((__gm__ int32_t*)x);
  gz.SetGlobalBuffer((__gm__ int32_t*)z);
  DataCopy(a, gx, 2048);
  for (int t = 0; t < times; t++)
    for (int i = 0; i < 2048; i++) {{
      b.SetValue(i, (t ? b.GetValue(i) : 0) + a.GetValue(i));
      if (t == 0) gz.SetValue(2048 + i, a.GetValue(i) + (i ? gz.GetValue(2047 + i) : 0));
    }}
  DataCopy(gz, b, 2048);
}}
extern "C" __global__ __aicore__ void wrong_before(GM_ADDR x, GM_ADDR z, int32_t kind) {{
  TPipe pipe;
  TBuf<TPosition::VECCALC> buf;
  pipe.InitBuffer(buf, 1024);
  LocalTensor<int32_t> a = buf.Get<int32_t>();
  LocalTensor<int8_t> bytes = buf.Get<int8_t>();
  GlobalTensor<int32_t> gx, gz;
  gx.SetGlobalBuffer((__gm__ int32_t*)x);
  gz.SetGlobalBuffer((__gm__ int32_t*)z);
  Duplicate(a, 5, 64);
  int32_t value = a.GetValue(0);
  if (kind == 0) bytes[2].ReinterpretCast<int32_t>().SetValue(0, value);  // no multiple of 4
  if (kind == 1) bytes[2].ReinterpretCast<int32_t>().GetValue(0);
  if (kind == 2) gz.SetValue(1 << 20, value);  // outside
  if (kind == 3) DataCopy(gz[1 << 20], a, 8);
  value += a.GetValue(1);
  PipeBarrier<PIPE_ALL>();
  a.SetValue(2, value);
  value += a.GetValue(2);
  gz.SetValue(0, value);
}}
"""
LINES = SOURCE.splitlines()


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("looks.cpp", SOURCE)


@pytest.fixture
def answers(monkeypatch):
    """How often the emulator is asked for bytes of a buffer."""
    counted, answer = [], Cores.answer
    monkeypatch.setattr(Cores, "answer", lambda self: counted.append(1) or answer(self))
    return counted


def _steps(rng, cores, scalar_share):
    """Steps of each core, whose SyncAlls are the same."""
    scalar = [
        Step.SET,
        Step.GET,
        Step.GET,
        Step.GM_SET,
        Step.GM_GET,
        Step.COUNT_UP,
        Step.BYTE,
        Step.LONG,
        Step.TABLE,
        Step.ORDER,
    ]
    steps = np.zeros((cores, STEPS, 4), np.int32)
    for core in range(cores):
        for step in range(STEPS):
            kind = rng.choice(scalar) if rng.random() < scalar_share else rng.choice([Step.ADDS, Step.LOAD, Step.STORE])
            near = rng.integers(0, 3) * PAGE_BYTES // 4  # so that steps meet
            a, b, c = near + rng.integers(0, 64), near + rng.integers(0, 64), rng.integers(0, cores)
            if kind == Step.LONG:
                a, b = a // 2, b // 2
            if kind in (Step.ADDS, Step.LOAD, Step.STORE):
                a, b = a // 8 * 8, b // 8 * 8
            if kind in (Step.GM_SET, Step.GM_GET):
                a, b = a % OWN, rng.integers(0, 100)
            if kind == Step.ADDS:
                b = a + 64 + rng.integers(0, 20) * 8  # apart: operands that overlap are another matter
            b = rng.integers(0, OWN - 32) // 8 * 8 if kind in (Step.LOAD, Step.STORE) else b
            if kind == Step.TABLE:
                c = rng.integers(1, 1500)  # over the end of a page
            steps[core, step] = kind, a, b, c
    steps[:, 40::40, 0] = Step.SYNC
    return steps


def _i32(value):
    return (int(value) + 2**31) % 2**32 - 2**31


class _Twin:
    """A core of `interpret`, step by step, with the memory of all."""

    def __init__(self, core, cores, x, z):
        self.core, self.cores, self.x, self.z = core, cores, x, z
        self.ub, self.seen = np.full(WORDS, 7, np.int32), 1
        self.bytes, self.longs = self.ub.view(np.int8), self.ub.view(np.int64)
        self.loads = self.stores = 0

    def get(self, array, at):
        self.loads += 1
        return int(array[at])

    def set(self, array, at, value, rows=1):
        self.stores += rows
        bits = 8 * array.itemsize
        array[at] = (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)

    def see(self, value):
        value %= 2**64
        self.seen = (self.seen * 31 + value + (value - 2**64 * (value >> 63) >> 32)) % 2**32

    def run(self, steps):
        own = self.z[self.core * OWN : (self.core + 1) * OWN]
        for kind, a, b, c in steps.tolist():
            match kind:
                case Step.SET:
                    self.set(self.ub, a, self.seen ^ (b % 2**32))
                case Step.GET:
                    self.see(self.get(self.ub, a))
                case Step.ADDS:
                    self.ub[a : a + 64] = np.minimum(self.ub[b : b + 64].astype(np.int64) + self.seen % 7, 2**31 - 1)
                case Step.LOAD:
                    self.ub[a : a + 32] = self.x[b : b + 32]
                case Step.STORE:
                    own[b : b + 32] = self.ub[a : a + 32]
                case Step.GM_SET:
                    self.set(own, a, self.seen + b)
                case Step.GM_GET:
                    self.see(self.get(self.z, (self.core + c) % self.cores * OWN + a))
                case Step.COUNT_UP:
                    while self.get(self.ub, a) % 8:
                        self.set(self.ub, a, self.get(self.ub, a) + 1)
                case Step.BYTE:
                    self.set(self.bytes, a, self.seen)
                    self.see(self.get(self.bytes, b))
                case Step.LONG:
                    self.set(self.longs, a, self.seen << 13, rows=2)
                    self.see(self.get(self.longs, b))
                case Step.TABLE:
                    for j in range(c):
                        self.set(self.ub, a + j, self.get(self.ub, b + j % 64) * 3 + j)


@pytest.mark.parametrize("product", ["Ascend910B2", "Ascend310P3"])
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("scalar_share", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_is_what_a_core_by_itself_would_have(source, product, cores, scalar_share, seed):
    rng = np.random.default_rng([seed, cores, int(10 * scalar_share)])
    steps = _steps(rng, cores, scalar_share)
    x = rng.integers(-(2**31), 2**31, OWN).astype(np.int32)
    z, out = np.zeros(cores * OWN, np.int32), np.zeros(cores, np.int32)
    run = ascendc.compile(source, "interpret", kind="vector")(steps, x, z, out, STEPS, blocks=cores, product=product)

    memory = np.zeros_like(z)
    twins = [_Twin(core, cores, x, memory) for core in range(cores)]
    ends = [*np.flatnonzero(steps[0, :, 0] == Step.SYNC), STEPS]
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        for core, twin in enumerate(twins):
            with np.errstate(over="ignore"):
                twin.run(steps[core, first:end])
    assert out.tolist() == [_i32(twin.seen) for twin in twins]
    assert np.array_equal(z, memory)
    rows = np.concatenate([run.rows(core) for core in range(cores)])
    assert np.count_nonzero(rows["op"] == Op.SCALAR_LOAD) == sum(twin.loads for twin in twins)
    assert np.count_nonzero(rows["op"] == Op.SCALAR_STORE) == sum(twin.stores for twin in twins) + cores


@pytest.mark.parametrize("times", [1, 3, 3 * ROWS // 4096])
def test_a_loop_asks_for_each_page_once_for_each_time_that_rows_are_handed_over(source, answers, times):
    x, z = np.arange(2048, dtype=np.int32) * 5, np.zeros(4096, np.int32)
    ascendc.compile(source, "loop", kind="vector")(x, z, times, product="Ascend910B2")
    assert np.array_equal(z[:2048], x * times)
    assert np.array_equal(z[2048:], np.cumsum(x))
    # rows are handed over when there is no room for more, and after milliseconds
    assert len(answers) <= 4 + 4 * (2048 * 3 * times // 4096)


def test_pages_that_were_looked_at_come_together(source, answers):
    steps = np.zeros((1, 100, 4), np.int32)
    steps[0, :, 0] = np.tile([Step.ADDS, Step.GET, Step.GET, Step.GET, Step.GET], 20)
    steps[0, 0::5, 1:3] = WORDS - 64
    steps[0, :, 1] += np.tile(np.arange(5) % 4 * PAGE_BYTES // 4, 20) * (steps[0, :, 0] == Step.GET)
    x, z, out = np.zeros(OWN, np.int32), np.zeros(OWN, np.int32), np.zeros(1, np.int32)
    ascendc.compile(source, "interpret", kind="vector")(steps, x, z, out, 100, product="Ascend910B2")
    assert 20 <= len(answers) <= 25


@pytest.mark.parametrize("kind", range(4))
def test_nothing_is_read_behind_what_could_not_be_computed(source, kind):
    x, z = np.zeros(64, np.int32), np.zeros(64, np.int32)
    run = ascendc.compile(source, "wrong_before", kind="vector").check(x, z, kind, product="Ascend910B2")
    (refused,) = run.refused
    assert LINES[refused.line.line - 1].strip().startswith(f"if (kind == {kind})")
    assert "cannot read a value behind what could not be computed" in str(run.stopped_by)
    # at the last row: behind a wrong GetValue that of SetValue, and what asks may have flags before it
    last = {1: "  a.SetValue(2, value);", 3: "  value += a.GetValue(1);"}
    at = LINES.index(last[kind]) + 1 if kind in last else refused.line.line
    assert run.stopped_by.line.line == at
    assert not z.any()
