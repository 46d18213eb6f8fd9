"""Forms of calls as the API's pages write them, whose results the pages print or their text defines."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from tests.ascendc.compiler import PARTS, require_compiler

require_compiler()

SOURCE = (
    PARTS
    + """
__aicore__ void blocks(TPipe& pipe, LocalTensor<half> dst, LocalTensor<half> src, bool by_tensors) {
  TransDataTo5HDParams p;
  p.dstHighHalf = p.srcHighHalf = true;  // of other types than bytes they say nothing
  uint64_t to[16], from[16];
  TBuf<TPosition::VECCALC> addresses;
  pipe.InitBuffer(addresses, 256);
  LocalTensor<uint64_t> d = addresses.Get<uint64_t>(), s = d[16];
  for (int i = 0; i < 16; i++) {
    to[i] = dst[16 * i].GetPhyAddr(), from[i] = src[16 * i].GetPhyAddr();
    d.SetValue(i, to[i]), s.SetValue(i, from[i]);
  }
  if (by_tensors) TransDataTo5HD<half>(d, s, p);
  else TransDataTo5HD<half>(to, from, p);
}
extern "C" __global__ __aicore__ void transposed(GM_ADDR x, GM_ADDR y, int32_t by_tensors) {
  TPipe pipe;
  Part<half> in(pipe, x, 256), out(pipe, y, 256, false);
  with_room(pipe, 0, [&](auto...) { blocks(pipe, out.local, in.local, by_tensors != 0); });
  out.leave();
}
extern "C" __global__ __aicore__ void shifted(GM_ADDR x, GM_ADDR y, int32_t rounds) {
  TPipe pipe;
  Part<int16_t> in(pipe, x, 512), out(pipe, y, 512, false);
  uint64_t mask = 128, bits[2] = {~0ull, ~0ull};
  int16_t by = 2;
  with_room(pipe, 0, [&](auto...) {
    ShiftRight(out.local, in.local, by, mask, 2, {1, 1, 8, 8}, rounds != 0);
    ShiftRight(out.local[256], in.local[256], by, bits, 2, {1, 1, 8, 8}, false);
  });
  out.leave();
}
extern "C" __global__ __aicore__ void scaled(GM_ADDR a, GM_ADDR b, GM_ADDR y, int32_t count) {
  TPipe pipe;
  Part<int32_t> x(pipe, a, 512), z(pipe, b, 512);
  Part<half> out(pipe, y, 512, false);
  with_room(pipe, 0, [&](auto...) {
    Duplicate(out.local, half(-1), 512);
    SetDeqScale(half(0.125));
    if (count) AddDeqRelu(out.local, x.local, z.local, count);
    else AddDeqRelu(out.local, x.local, z.local, uint64_t(40), 8, {1, 1, 1, 4, 8, 8});
  });
  out.leave();
}
extern "C" __global__ __aicore__ void compared(GM_ADDR a, GM_ADDR b, GM_ADDR y) {
  TPipe pipe;
  Part<float> x(pipe, a, 64), z(pipe, b, 64);
  Part<uint8_t> out(pipe, y, 32, false);
  SoftMaxShapeInfo shape(8, 8, 8, 8);
  with_room(pipe, 0, [&](auto...) {
    Duplicate(out.local.template ReinterpretCast<float>(), 0.0f, shape.srcK);
    BinaryRepeatParams p;
    Compare(x.local, z.local, CMPMODE::LT, uint64_t(64), p);
    PipeBarrier<PIPE_V>();
    GetCmpMask(out.local);
  });
  out.leave();
}
extern "C" __global__ __aicore__ void popped(GM_ADDR x, GM_ADDR y, int32_t late) {
  TPipe pipe;
  Part<float> in(pipe, x, 64), out(pipe, y, 64, false);
  with_room(pipe, 0, [&](auto...) {
    LocalTensor<uint8_t> rest;
    bool is_there = PopStackBuffer<uint8_t, TPosition::LCM>(rest) && PopStackBuffer<uint8_t, TPosition::LCM>(rest);
    LocalTensor<float> free = rest.ReinterpretCast<float>();
    Adds(free, in.local, is_there ? 1.0f : 0.0f, 64);
    TBuf<TPosition::VECCALC> buffer;
    if (late) pipe.InitBuffer(buffer, 512);  // gives away what was lent
    Adds(out.local, free, 1.0f, 64);
  });
  out.leave();
}
"""
)


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("forms.cpp", SOURCE)


@pytest.mark.parametrize("by_tensors", [0, 1])
def test_halves_of_blocks_are_of_bytes_alone_and_addresses_may_lie_in_ub(source, by_tensors):
    x, y = np.arange(256, dtype=np.float16), np.zeros(256, np.float16)
    run = ascendc.compile(source, "transposed")(x, y, by_tensors, outputs=[1])
    assert np.array_equal(y.reshape(16, 16), x.reshape(16, 16).T)
    assert not run.findings


def test_shifts_under_a_mask_say_that_they_do_not_round(source):
    x, y = np.arange(-200, 312, dtype=np.int16), np.zeros(512, np.int16)
    kernel = ascendc.compile(source, "shifted")
    assert not kernel(x, y, 0, outputs=[1]).findings
    assert np.array_equal(y, x >> 2)
    with pytest.raises(KernelError, match="ShiftRight must not round, which is not modelled"):
        kernel(x, y, 1, outputs=[1])


def test_scaled_sums_under_a_mask_are_those_of_a_count(source):
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4000, 4000, 512, np.int32) for _ in range(2))
    whole, masked = np.zeros((8, 64), np.float16), np.zeros((8, 64), np.float16)
    kernel = ascendc.compile(source, "scaled")
    kernel(a.copy(), b.copy(), whole, 512, outputs=[2])
    assert np.array_equal(whole.reshape(-1), np.maximum((a + b) * 0.125, 0).astype(np.float16))
    kernel(a.copy(), b.copy(), masked, 0, outputs=[2])
    assert np.array_equal(masked[:, :40], whole[:, :40])
    assert (masked[:, 40:] == -1).all()


def test_a_register_of_comparisons_is_old_where_floats_leave_it(source):
    x, y = np.arange(64, dtype=np.float32), np.zeros(32, np.uint8)
    run = ascendc.compile(source, "compared")(x, x[::-1].copy(), y, outputs=[2])
    assert y[:8].tolist() == [255] * 4 + [0] * 4
    assert not run.findings


def test_the_rest_of_ub_is_lent_until_a_buffer_is_given_away(source):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernel = ascendc.compile(source, "popped")
    assert not kernel(x, y, 0, outputs=[1]).findings
    assert np.array_equal(y, x + 2)
    assert any("ErrorRead" in str(found) for found in kernel.check(x, y, 1, outputs=[1]).findings)
