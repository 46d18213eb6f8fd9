"""TBufPool and pools of a kernel's own: where blocks lie, what Reset orders, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from tests.ascendc.compiler import require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
class Ring {  // blocks from the end of its window to its beginning
 public:
  Ring() { Init(); }
  template <class T> bool InitBuffer(T& queue, uint8_t count, uint32_t length) {
    auto first = GetBufHandle(GetCurBufSize());
    queue.InitStartBufHandle(first, count, length);
    for (uint32_t i = 0; i < count; i++)
      queue.InitBufHandle(this, i, i % 2 ? first : GetBufHandle(GetCurBufSize() + i), GetCurAddr() + (3 - i) * 1024,
                          length);
    SetCurBufSize(GetCurBufSize() + count);
    return true;
  }
  template <TPosition P> bool InitBuffer(TBuf<P>& buffer, uint32_t length) {
    auto handle = GetBufHandle(GetCurBufSize());
    buffer.InitStartBufHandle(handle, 1, length);
    buffer.InitBufHandle(this, 0, handle, GetCurAddr(), length);
    SetCurAddr(GetCurAddr() + length);
    SetCurBufSize(GetCurBufSize() + 1);
    return true;
  }
  EXTERN_IMPL_BUFPOOL(Ring, TPosition::VECCALC, 5);
};
template <TPosition P> struct Stage {  // out = in + in, or in * in, a piece of 256 floats at a time
  TQue<TPosition::VECIN, 2> in;
  TQue<TPosition::VECOUT, 2> out;
  template <class Pool> void init(Pool& pool) { pool.InitBuffer(in, 2, 1024); pool.InitBuffer(out, 2, 1024); }
  void run(GM_ADDR x, GM_ADDR y, uint32_t first, bool product, GlobalTensor<int32_t>& seen) {
    GlobalTensor<float> X, Y; X.SetGlobalBuffer((__gm__ float*)x); Y.SetGlobalBuffer((__gm__ float*)y);
    for (uint32_t at = first; at < first + 768; at += 256) {
      auto a = in.AllocTensor<float>();
      DataCopy(a, X[at], 256);
      in.EnQue(a); a = in.DeQue<float>();
      auto b = out.AllocTensor<float>();
      seen.SetValue(at / 128, (int32_t)(int64_t)a.GetPhyAddr());
      seen.SetValue(at / 128 + 1, (int32_t)(int64_t)b.GetPhyAddr());
      if (product) Mul(b, a, a, 256); else Add(b, a, a, 256);
      in.FreeTensor(a); out.EnQue(b); b = out.DeQue<float>();
      DataCopy(Y[at], b, 256);
      out.FreeTensor(b);
    }
  }
};
extern "C" __global__ __aicore__ void pools(GM_ADDR x, GM_ADDR y, GM_ADDR where) {
  TPipe pipe;
  GlobalTensor<int32_t> seen; seen.SetGlobalBuffer((__gm__ int32_t*)where);
  TBuf<TPosition::VECCALC> before; pipe.InitBuffer(before, 96);
  TBufPool<TPosition::VECCALC> whole, first, second;
  Ring ring;
  Stage<TPosition::VECIN> one, two, three;
  pipe.InitBufPool(whole, 8192 + 32);
  TBuf<TPosition::VECCALC> inner; whole.InitBuffer(inner, 20);
  whole.InitBufPool(first, 4096);
  whole.InitBufPool(second, 4096, first);
  one.init(first);
  two.init(second);
  one.run(x, y, 0, false, seen);
  first.Reset();
  two.run(x, y, 768, true, seen);
  second.Reset();
  one.run(x, y, 1536, true, seen);  // back again, as before
  first.Reset();
  pipe.InitBufPool(ring, 6 * 1024);
  TBuf<TPosition::VECCALC> kept; ring.InitBuffer(kept, 1024);
  ring.InitBuffer(three.in, 2, 1024);
  three.out.InitStartBufHandle(ring.GetBufHandle(3), 2, 1024);
  uint32_t start = ring.GetCurAddr() + 1024;
  for (int i = 0; i < 2; i++) three.out.InitBufHandle(&ring, i, ring.GetBufHandle(3 + i), start - i * 1024, 1024);
  seen.SetValue(24, ring.GetCurBufSize());
  three.run(x, y, 2304, false, seen);
  ring.Reset();
  seen.SetValue(25, ring.GetCurBufSize());
  pipe.Reset();
}
extern "C" __global__ __aicore__ void shares(GM_ADDR x, GM_ADDR y) {
  // scratch of two stages at the same place, which live one after the other, again and again
  TPipe pipe;
  TBufPool<TPosition::VECCALC, 2> first, second;
  TBuf<TPosition::VECCALC> a, b;
  pipe.InitBufPool(first, 512);
  pipe.InitBufPool(second, 512, first);
  first.InitBuffer(a, 512);
  second.InitBuffer(b, 512);
  GlobalTensor<float> X, Y; X.SetGlobalBuffer((__gm__ float*)x); Y.SetGlobalBuffer((__gm__ float*)y);
  for (uint32_t at = 0; at < 512; at += 128) {
    LocalTensor<float> t = at % 256 ? b.Get<float>() : a.Get<float>();
    DataCopy(t, X[at], 128);
    SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
    Adds(t, t, float(at), 128);
    SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(Y[at], t, 128);
    PipeBarrier<PIPE_ALL>();
    if (at % 256) second.Reset(); else first.Reset();
  }
}
extern "C" __global__ __aicore__ void refused(GM_ADDR x, int32_t which) {
  TPipe pipe;
  TBufPool<TPosition::VECCALC, 3> pool, inner;
  TBufPool<TPosition::A1> l1;
  TBufPool<TPosition::A2> l0;
  Ring ring;
  TQue<TPosition::VECIN, 1> queue;
  TQue<TPosition::A1, 1> of_l1;
  TBuf<TPosition::VECCALC> buffer;
  if (which == 0) pool.InitBuffer(buffer, 32);
  pipe.InitBufPool(pool, 100);
  if (which == 1) pool.InitBuffer(queue, 4, 32);
  if (which == 2) pool.InitBuffer(queue, 2, 96);
  if (which == 3) pool.InitBuffer(of_l1, 1, 32);
  if (which == 4) pipe.InitBufPool(l0, 32);
  if (which == 5) pool.InitBufPool(inner, 160);
  if (which == 6) pipe.InitBufPool(inner, 160, pool);
  if (which == 7) pipe.InitBufPool(l1, 32, pool);
  if (which == 8) { pipe.Reset(); pool.InitBuffer(buffer, 32); }
  if (which == 9) { pipe.InitBufPool(ring, 64); ring.GetBufHandle(5); }
  if (which == 10) { pipe.InitBufPool(ring, 64); buffer.InitStartBufHandle(ring.GetBufHandle(0), 2, 32); }
  if (which == 11) { pipe.InitBufPool(ring, 64); queue.InitStartBufHandle(ring.GetBufHandle(0), 1, 32);
                     queue.InitBufHandle(&ring, 1, ring.GetBufHandle(1), 0, 32); }
  if (which == 12) { pipe.InitBufPool(ring, 64); queue.InitStartBufHandle(ring.GetBufHandle(0), 1, 32);
                     queue.InitBufHandle(&ring, 0, ring.GetBufHandle(0), 0, 32); }
  if (which == 13) queue.InitStartBufHandle((TBufHandle)x, 1, 32);
  if (which == 14) ring.GetBufHandle(0);
  if (which == 15) for (int i = 0; i < 100; i++) { TBufPool<TPosition::VECIN, 16> more; pipe.InitBufPool(more, 32); }
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("pools.cpp", KERNEL)


def test_pools_share_bytes_in_turn_and_keep_their_blocks(source):
    x = np.random.default_rng(1).standard_normal(3072).astype(np.float32)
    y, where = np.zeros_like(x), np.full(26, -1, np.int32)
    run = ascendc.compile(source, kernel="pools")(x, y, where)
    expected = np.concatenate([x[:768] * 2, x[768:2304] ** 2, x[2304:] * 2])
    assert (y == expected).all()
    assert run.findings == ()
    # behind 96 bytes and a block of 32; the queues go on with the block that is next
    even, odd = [128, 2176], [1152, 3200]
    assert where[:18].reshape(9, 2).tolist() == [even, odd, even, even, odd, even, odd, even, odd]
    base = 96 + 8192 + 32
    assert where[18:24].reshape(3, 2).tolist() == [
        [base + 4096, base + 2048],
        [base + 3072, base + 1024],
        [base + 4096, base + 2048],
    ]
    assert where[24:].tolist() == [3, 0]


def test_scratch_of_pools_that_share_lives_from_use_to_reset(source):
    x = np.arange(512, dtype=np.float32)
    y = np.zeros_like(x)
    run = ascendc.compile(source, kernel="shares")(x, y)
    assert (y == x + np.arange(512) // 128 * 128).all()
    assert run.findings == ()


REFUSED = {
    0: "InitBuffer of a pool must come behind its InitBufPool",
    1: r"at most 3 \(bufIDSize\), not 4",
    2: r"inside the 128 bytes of its pool, not take \[96, 192\)",
    3: "InitBuffer of a pool in UB must be of a position there, not A1",
    4: "InitBufPool must be of a pool in UB or L1, not in L0A",
    5: "InitBufPool of 160 bytes must be of the buffer of its pool, of 128 free bytes",
    6: "InitBufPool of 160 bytes must share a pool of the same buffer with as many, not with 128",
    7: "InitBufPool of 32 bytes must share a pool of the same buffer",
    8: "which a Reset of the TPipe ends",
    9: "GetBufHandle must be of one of the 5 blocks of its pool, not of number 5",
    10: "InitStartBufHandle of a TBuf must be of 1 block, not 2",
    11: "InitBufHandle of block 1 must be of one of 1",
    12: r"inside the 64 bytes of its pool, not take \[-128, -96\)",
    13: "must be given what GetBufHandle returned",
    14: "GetBufHandle of a pool must come behind its InitBufPool",
    15: "blocks of all pools must be at most 256",
}


@pytest.mark.parametrize(("which", "words"), REFUSED.items())
def test_what_no_pool_has_is_refused(source, which, words):
    with pytest.raises(KernelError, match=words):
        ascendc.compile(source, kernel="refused")(np.zeros(8, np.float32), np.int32(which))
