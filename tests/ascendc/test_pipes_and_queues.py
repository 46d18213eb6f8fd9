"""Pipes of a core beside each other, and tensors that go back through another queue."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;

class Add1 {
 public:
  __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, TPipe& pipe) {
    from.SetGlobalBuffer((__gm__ float*)x, 256);
    to.SetGlobalBuffer((__gm__ float*)y, 256);
    pipe.InitBuffer(in, 1, 1024);
    pipe.InitBuffer(out, 1, 1024);
    pipe.InitBuffer(ones, 1024);
  }
  __aicore__ inline void Process() {
    auto one = ones.Get<float>();
    Duplicate(one, 1.0f, 256);
    auto a = in.AllocTensor<float>();
    DataCopy(a, from, 256);
    in.EnQue(a);
    a = in.DeQue<float>();
    auto b = out.AllocTensor<float>();
    PipeBarrier<PIPE_V>();
    Add(b, a, one, 256);
    out.EnQue(b);
    in.FreeTensor(a);
    b = out.DeQue<float>();
    DataCopy(to, b, 256);
    out.FreeTensor(b);
  }
  TQue<TPosition::VECIN, 1> in;
  TQue<TPosition::VECOUT, 1> out;
  TBuf<TPosition::VECCALC> ones;
  GlobalTensor<float> from, to;
};

// Both pipes are there from the beginning; each is used and ended in its turn.
extern "C" __global__ __aicore__ void two_pipes(GM_ADDR x, GM_ADDR y) {
  TPipe first, second;
  {
    Add1 add;
    add.Init(x, y, first);
    add.Process();
    first.Destroy();
  }
  PipeBarrier<PIPE_ALL>();
  {
    Add1 add;
    add.Init(y, y, second);
    add.Process();
    second.Destroy();
  }
}

// A pipe of an object's own goes on where another is: its buffers lie behind those of the other.
struct Beside {
  TPipe own;
  TBuf<TPosition::VECCALC> buffer;
  __aicore__ inline LocalTensor<float> Init(TPipe& pipe) {
    own = pipe;
    own.InitBuffer(buffer, 1024);
    return buffer.Get<float>();
  }
};
extern "C" __global__ __aicore__ void assigned(GM_ADDR x, GM_ADDR y) {
  TPipe pipe;
  Add1 add;
  add.Init(x, y, pipe);
  Beside beside;
  auto other = beside.Init(pipe);
  Duplicate(other, -1.0f, 256);
  add.Process();
  PipeBarrier<PIPE_ALL>();
  DataCopy(add.to[256], other, 256);
}

// The block of a tensor goes back, whoever frees it.
extern "C" __global__ __aicore__ void swapped(GM_ADDR x, GM_ADDR y) {
  TPipe pipe;
  TQue<TPosition::VECIN, 1> p, q;
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer((__gm__ float*)x);
  to.SetGlobalBuffer((__gm__ float*)y);
  pipe.InitBuffer(p, 1, 1024);
  pipe.InitBuffer(q, 1, 1024);
  for (int turn = 0; turn < 2; turn++) {
    auto a = p.AllocTensor<float>(), b = q.AllocTensor<float>();
    DataCopy(a, from, 256);
    DataCopy(b, from[256], 256);
    p.EnQue(a);
    q.EnQue(b);
    a = p.DeQue<float>();
    b = q.DeQue<float>();
    Add(a, a, b, 256);
    PipeBarrier<PIPE_ALL>();
    DataCopy(to[256 * turn], a, 256);
    PipeBarrier<PIPE_ALL>();
    q.FreeTensor(a);
    p.FreeTensor(b);
  }
}
"""


BORROWS = """
#include "kernel_operator.h"
using namespace AscendC;
// The pipe that is made last gives the library its memory, which lies where the first has a buffer.
extern "C" __global__ __aicore__ void borrows(GM_ADDR x, GM_ADDR y, int32_t early) {
  TPipe first, last;
  TBuf<> buffer;
  first.InitBuffer(buffer, 1024);
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer((__gm__ float*)x);
  to.SetGlobalBuffer((__gm__ float*)y);
  auto own = buffer.Get<float>();
  if (early) DataCopy(own, from, 256);
  InitOutput(to[256], 256, 0.0f);
  PipeBarrier<PIPE_ALL>();
  if (!early) DataCopy(own, from, 256);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, own, 256);
}
"""
IN_TURNS = """
#include "kernel_operator.h"
using namespace AscendC;
// What the first pipe leaves is there until a buffer of the second, which is open all along, lies where it is.
extern "C" __global__ __aicore__ void in_turns(GM_ADDR x, GM_ADDR y, int32_t length) {
  TPipe first, second;
  TBuf<TPosition::VECCALC> below, above, own;
  TQue<TPosition::VECIN, 1> queue;
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer((__gm__ float*)x);
  to.SetGlobalBuffer((__gm__ float*)y);
  first.InitBuffer(queue, 1, 256);
  first.InitBuffer(below, 256);
  first.InitBuffer(above, 1024);
  auto kept = above.Get<float>();
  DataCopy(kept, from, 256);
  PipeBarrier<PIPE_ALL>();
  first.Destroy();
  second.InitBuffer(own, length);
  auto ones = own.Get<float>();
  Duplicate(ones, 1.0f, length / 4);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, kept, 256);
  DataCopy(to[256], ones, length / 4);
  PipeBarrier<PIPE_ALL>();
  second.Destroy();
}
"""
LACKS = """
#include "kernel_operator.h"
using namespace AscendC;
// A queue of a buffer that these cores have not, which the kernel does not use, or does.
extern "C" __global__ __aicore__ void lacks(GM_ADDR y, int32_t uses) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  TQue<TPosition::CO2, 1> results;
  pipe.InitBuffer(results, 1, 1024);
  if (uses) results.AllocTensor<float>();
  *(__gm__ int32_t*)y = 1;
}
"""
MISNAMED = """
#include "kernel_operator.h"
using namespace AscendC;
// What is handed over to a copy out is taken back as if the queue's own positions had been named.
extern "C" __global__ __aicore__ void misnamed(GM_ADDR x, int32_t named) {
  TPipe pipe;
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
  pipe.InitBuffer(queue, 1, 256);
  auto a = queue.AllocTensor<float>();
  Duplicate(a, 1.0f, 64);
  queue.EnQue<TPosition::VECOUT, TPosition::GM>(a);
  a = named ? queue.DeQue<TPosition::VECOUT, TPosition::GM, float>() : queue.DeQue<float>();
  GlobalTensor<float> to;
  to.SetGlobalBuffer((__gm__ float*)x);
  DataCopy(to, a, 64);
  queue.FreeTensor(a);
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("pipes.cpp", SOURCE)


@pytest.fixture
def x():
    return np.random.default_rng(2).integers(-99, 99, 512).astype(np.float32)


def test_a_queue_has_the_blocks_of_the_pipe_that_gave_them(source, x):
    y = np.zeros(256, np.float32)
    run = ascendc.compile(source, "two_pipes")(x, y)
    np.testing.assert_array_equal(y, x[:256] + 2)
    assert not run.findings


@pytest.mark.parametrize(
    ("length", "kinds"),
    [
        (256, []),
        (512, []),
        (544, [Kind.READ_UNALLOCATED]),
        (1024, [Kind.READ_UNALLOCATED]),
        (2048, [Kind.WRITE_UNREAD]),
    ],
)
def test_what_a_pipe_left_ends_where_a_buffer_of_another_begins(source_file, length, kinds):
    x = np.random.default_rng(length).integers(-99, 99, 256).astype(np.float32)
    y = np.zeros(256 + length // 4, np.float32)
    run = ascendc.compile(source_file("turns.cpp", IN_TURNS), "in_turns")(x, y, length)
    # the first pipe had 256 bytes, 256 bytes and then what is read
    lost = max(0, min(256, (length - 512) // 4))
    np.testing.assert_array_equal(y, np.r_[np.ones(lost), x[lost:], np.ones(length // 4)])
    assert [found.kind for found in run.findings] == kinds


def test_a_pipe_that_is_assigned_goes_on_behind_the_buffers_of_the_other(source, x):
    y = np.zeros(512, np.float32)
    ascendc.compile(source, "assigned")(x, y)
    np.testing.assert_array_equal(y[:256], x[:256] + 1)
    np.testing.assert_array_equal(y[256:], -1)


def test_a_tensor_may_go_back_through_another_queue(source, x):
    y = np.zeros(512, np.float32)
    run = ascendc.compile(source, "swapped")(x, y)
    np.testing.assert_array_equal(y, np.tile(x[:256] + x[256:], 2))
    assert not run.findings


def test_a_queue_of_a_buffer_that_is_not_there_may_be_said(tmp_path):
    path, y = tmp_path / "lacks.cpp", np.zeros(8, np.int32)
    path.write_text(LACKS)
    kernel = ascendc.compile(path, product="Ascend910B2")
    kernel(y, np.int32(0), product="Ascend910B2")
    assert y[0] == 1
    with pytest.raises(KernelError, match="nothing leads from L0C to UB on this one"):
        kernel(y, np.int32(1), product="Ascend910B2")


def test_a_tensor_is_taken_by_the_positions_it_was_queued_for(tmp_path):
    path, x = tmp_path / "misnamed.cpp", np.zeros(64, np.float32)
    path.write_text(MISNAMED)
    kernel = ascendc.compile(path)
    kernel(x, np.int32(1))
    assert (x == 1).all()
    line = 1 + MISNAMED[: MISNAMED.index("a = named")].count("\n")
    with pytest.raises(KernelError, match="DeQue of a VECOUT queue must name the positions that its EnQue") as caught:
        kernel(x, np.int32(0))
    assert caught.value.line.line == line


def test_what_the_library_borrows_ends_what_an_earlier_pipe_has_there(tmp_path, x):
    path = tmp_path / "borrows.cpp"
    path.write_text(BORROWS)
    kernel = ascendc.compile(path)
    y = np.full(512, 7, np.float32)
    run = kernel(x, y, np.int32(0))
    np.testing.assert_array_equal(y[:256], x[:256])
    np.testing.assert_array_equal(y[256:], 0)
    assert not run.findings
    run = kernel.check(x, y, np.int32(1))
    assert any(found.kind is Kind.READ_STALE for found in run.findings)
