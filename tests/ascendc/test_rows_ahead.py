"""A kernel makes rows while those before them run; what it reads of memory is what all of them leave."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.control import ROWS
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import require_compiler

require_compiler()

LONG_STORE = """
#include "kernel_operator.h"
using namespace AscendC;

__aicore__ inline void ready(LocalTensor<int32_t>& t, GlobalTensor<int32_t>& x) {
  for (int i = 0; i < 4000; i++) DataCopy(t, x, 32768);  // takes long to run and not to write down
  PipeBarrier<PIPE_ALL>();
}
struct Room {
  TPipe pipe;
  TBuf<TPosition::VECCALC> buf;
  LocalTensor<int32_t> t;
  GlobalTensor<int32_t> x, z;
  Room(GM_ADDR from, GM_ADDR to, int32_t first = 0) {
    pipe.InitBuffer(buf, 131072);
    t = buf.Get<int32_t>();
    x.SetGlobalBuffer((__gm__ int32_t*)from);
    z.SetGlobalBuffer((__gm__ int32_t*)to + first);
  }
};
extern "C" __global__ __aicore__ void read_back(GM_ADDR x, GM_ADDR z, GM_ADDR out, int32_t rows) {
  Room room(x, z);
  GlobalTensor<int32_t> &gz = room.z, go;
  go.SetGlobalBuffer((__gm__ int32_t*)out);
  ready(room.t, room.x);
  DataCopy(gz, room.t, 8);
  for (int i = 0; i < rows; i++) PipeBarrier<PIPE_ALL>();
  go.SetValue(0, gz.GetValue(3) + 1);
}
extern "C" __global__ __aicore__ void read_by_pointer(GM_ADDR x, GM_ADDR z, GM_ADDR out, int32_t rows, int64_t steps) {
  Room room(x, z, 8 * GetBlockIdx());
  GlobalTensor<int32_t>& gz = room.z;
  ready(room.t, room.x);
  DataCopy(gz, room.t, 8);
  for (int i = 0; i < rows; i++) PipeBarrier<PIPE_ALL>();
  for (volatile int64_t step = 0; step < steps; step++) {}  // so long that what there is is handed over
  SyncAll();
  __gm__ int32_t* other = (__gm__ int32_t*)z + 8 * (1 - GetBlockIdx());
  ((__gm__ int32_t*)out)[8 * GetBlockIdx()] = other[3] + 1;
}
extern "C" __global__ __aicore__ void wrong_late(GM_ADDR x, GM_ADDR z, GM_ADDR out, int32_t rows) {
  Room room(x, z);
  ready(room.t, room.x);
  DataCopy(room.t, room.x[1 << 20], 8);
  for (int i = 0; i < rows; i++) DataCopy(room.z, room.t, 8);
}
"""


LINES = LONG_STORE.splitlines()


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("ahead.cpp", LONG_STORE)


def _call(source, name, *numbers, blocks=1):
    x = np.arange(32768, dtype=np.int32) + 40
    z, out = (np.zeros(8 * blocks, np.int32) for _ in range(2))
    run = ascendc.compile(source, name, kind="vector")(x, z, out, *numbers, blocks=blocks, product="Ascend910B2")
    return run, z, out


# as many as fill what the program may be ahead by, one fewer or more, and so many that it has to wait
@pytest.mark.parametrize("rows", [0, ROWS - 4003, ROWS - 4002, ROWS, 2 * ROWS, 3 * ROWS])
def test_what_is_read_of_global_memory_is_what_all_rows_before_left(source, rows):
    run, z, out = _call(source, "read_back", rows)
    assert run.stopped_by is None
    assert not run.refused
    assert z.tolist() == [40 + i for i in range(8)]
    assert out[0] == 44


@pytest.mark.parametrize(("rows", "steps"), [(0, 0), (0, 10**8), (ROWS, 0), (2 * ROWS, 0)])
def test_what_is_read_by_a_pointer_behind_sync_all_is_what_other_cores_left(source, rows, steps):
    run, _, out = _call(source, "read_by_pointer", rows, steps, blocks=2)
    assert run.stopped_by is None
    assert out[[0, 8]].tolist() == [44, 44]


def test_rows_behind_a_refused_one_do_not_run_though_they_were_made(source):
    x, z = np.arange(32768, dtype=np.int32) + 40, np.zeros(8, np.int32)
    kernel = ascendc.compile(source, "wrong_late", kind="vector")
    with pytest.raises(ProgramError) as caught:
        kernel(x, z, z.copy(), 2 * ROWS, product="Ascend910B2")
    (refused,) = caught.value.violations
    assert refused.line is not None
    assert refused.line.line == LINES.index("  DataCopy(room.t, room.x[1 << 20], 8);") + 1
    assert not z.any()
