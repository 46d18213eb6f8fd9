"""CastDequant by the scales of SetDeqScale, against the definition of one element."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import require_compiler
from tests.oracles.dequantised import result_of, word_of

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> struct Part {  // whole blocks in UB, with what lies in global memory
  TBuf<TPosition::VECCALC> buffer; LocalTensor<T> local; GlobalTensor<T> global; uint32_t count;
  Part(TPipe& pipe, GM_ADDR place, uint32_t n) : count(n) {
    pipe.InitBuffer(buffer, n * sizeof(T));
    local = buffer.template Get<T>(); global.SetGlobalBuffer((__gm__ T*)place);
    DataCopy(local, global, n);
  }
  void leave() { DataCopy(global, local, count); }
};
template <class F> void between(F call) {
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  call();
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
}
template <class T, bool isVecDeq, bool halfBlock> __aicore__ void cast(LocalTensor<uint8_t> y, LocalTensor<int16_t> x,
                                                                       uint32_t n, int32_t form) {
  LocalTensor<T> to = y.ReinterpretCast<T>();
  uint64_t bits[2] = {0xF0F0F0F0FFFF0001ull, 0x8000FFFF00001234ull};
  if (form == 0) CastDequant<T, int16_t, isVecDeq, halfBlock>(to, x, n);
  if (form == 1) CastDequant<T, int16_t, true, isVecDeq, halfBlock>(to, x, 100, n / 128, {1, 1, 8, 8});
  if (form == 2) CastDequant<T, int16_t, true, isVecDeq, halfBlock>(to, x, bits, n / 128, {1, 1, 8, 8});
  if (form == 3) CastDeq<T, int16_t, isVecDeq, halfBlock>(to, x, n);
  if (form == 4) {
    SetVectorMask<int16_t>(bits[1], bits[0]);
    CastDeq<T, int16_t, false, isVecDeq, halfBlock>(to, x, MASK_PLACEHOLDER, n / 128, {1, 1, 8, 8});
    ResetMask();
  }
}
template <class T> __aicore__ void choose(LocalTensor<uint8_t> y, LocalTensor<int16_t> x, uint32_t n, int32_t form,
                                          int32_t is_vector, int32_t half_block) {
  if (is_vector && half_block) cast<T, true, true>(y, x, n, form);
  else if (is_vector) cast<T, true, false>(y, x, n, form);
  else if (half_block) cast<T, false, true>(y, x, n, form);
  else cast<T, false, false>(y, x, n, form);
}
extern "C" __global__ __aicore__ void numbers(GM_ADDR a, GM_ADDR b, int32_t n, int32_t form, int32_t half_block,
                                              float scale, int32_t offset, int32_t is_signed, int32_t into_signed) {
  TPipe pipe;
  uint32_t whole = (n + 127) / 128 * 128;
  Part<int16_t> x(pipe, a, whole);
  Part<uint8_t> y(pipe, b, 2 * whole);
  between([&] {
    SetDeqScale(scale, int16_t(offset), is_signed != 0);
    if (into_signed) choose<int8_t>(y.local, x.local, n, form, 0, half_block);
    else choose<uint8_t>(y.local, x.local, n, form, 0, half_block);
  });
  y.leave();
}
extern "C" __global__ __aicore__ void vectors(GM_ADDR a, GM_ADDR b, GM_ADDR s, GM_ADDR o, GM_ADDR m, int32_t n,
                                              int32_t form, int32_t half_block) {
  TPipe pipe;
  uint32_t whole = (n + 127) / 128 * 128;
  Part<int16_t> x(pipe, a, whole);
  Part<uint8_t> y(pipe, b, 2 * whole);
  GlobalTensor<float> S; GlobalTensor<int16_t> O; GlobalTensor<int32_t> M;
  S.SetGlobalBuffer((__gm__ float*)s); O.SetGlobalBuffer((__gm__ int16_t*)o); M.SetGlobalBuffer((__gm__ int32_t*)m);
  float scales[16]; int16_t offsets[16]; bool modes[16];
  for (int i = 0; i < 16; i++)
    scales[i] = S.GetValue(i), offsets[i] = O.GetValue(i), modes[i] = M.GetValue(i) != 0;
  VdeqInfo info(scales, offsets, modes);
  TBuf<TPosition::VECCALC> words;
  pipe.InitBuffer(words, 128);
  between([&] {
    SetDeqScale<uint64_t>(words.Get<uint64_t>(), info);
    choose<int8_t>(y.local, x.local, n, form, 1, half_block);
  });
  y.leave();
}
extern "C" __global__ __aicore__ void halves(GM_ADDR a, GM_ADDR b, int32_t form) {
  TPipe pipe;
  Part<int32_t> x(pipe, a, 128);
  Part<half> y(pipe, b, 128);
  LocalTensor<int8_t> bytes = y.local.ReinterpretCast<int8_t>();
  LocalTensor<int16_t> words = x.local.ReinterpretCast<int16_t>();
  between([&] {
    if (form != 2) SetDeqScale(half(0.5f));
    if (form == 1) CastDequant<half, int32_t, true, false>(y.local, x.local, int32_t(40), 2, {1, 1, 4, 8});
    if (form == 2) SetDeqScale(2.0f, 1, true);
    if (form == 0 || form == 2) CastDequant<half, int32_t>(y.local, x.local, 128);
    if (form == 3) CastDequant<int8_t, int16_t>(bytes, words, 128);
    if (form == 4) {
      SetDeqScale(2.0f, 1, true);
      CastDequant<int8_t, int16_t>(bytes, words, 128);
    }
    if (form == 5) CastDequant<int8_t, int16_t, false>(bytes, words, 128);
    if (form == 6) {
      SetDeqScale(2.0f, 1, true);
      AddDeqRelu(y.local, x.local, x.local, 128);
    }
  });
  y.leave();
}
"""
BITS = 0xF0F0F0F0FFFF0001 | 0x8000FFFF00001234 << 64


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("dequant.cpp", SOURCE)


def _wanted(x, before, form, n, half_block, words):
    """Return the bytes by the definition: block k of the source is in one half of block k of the result."""
    y = before.copy()
    for i, value in enumerate(x.tolist()):
        lane = i % 128
        active = {0: i < n, 1: lane < 100, 2: BITS >> lane & 1, 3: i < n, 4: BITS >> lane & 1}[form]
        if active and (form in (0, 3) or i < n // 128 * 128):
            y[i // 16 * 32 + 16 * half_block + i % 16] = result_of(value, words[i % 16])
    return y


def _operands(rng, n):
    whole = -(-n // 128) * 128
    x = rng.integers(-(2**15), 2**15, whole).astype(np.int16)
    x[: whole // 2] = rng.integers(-300, 300, whole // 2)
    return x, rng.integers(0, 256, 2 * whole).astype(np.uint8)


@pytest.mark.parametrize("product", ["910b", "910_93", "310p"])
@pytest.mark.parametrize("form", range(5))
def test_numbers_are_scaled_by_one_scale(source, form, product):
    rng = np.random.default_rng([form, 1])
    kernel = ascendc.compile(source, "numbers")
    for n, half_block, is_signed in ((256, 0, 1), (384, 1, 0), (130, 1, 1), (7, 0, 0)):
        x, y = _operands(rng, n)
        scale, offset = float(np.float32(2.0 ** rng.uniform(-9, 1))), int(rng.integers(-256, 256))
        word = word_of(scale, offset, is_signed)
        wanted = _wanted(x, y, form, n, half_block, [word] * 16)
        run = kernel(x, y, n, form, half_block, scale, offset, is_signed, is_signed, product=product)
        assert run.findings == ()
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize("product", ["910b", "310p"])
@pytest.mark.parametrize("form", range(5))
def test_elements_of_blocks_are_scaled_by_scales_of_their_own(source, form, product):
    rng = np.random.default_rng([form, 2])
    kernel = ascendc.compile(source, "vectors")
    for n, half_block in ((256, 1), (200, 0)):
        x, y = _operands(rng, n)
        scales = (2.0 ** rng.uniform(-9, 1, 16)).astype(np.float32)
        offsets, modes = rng.integers(-256, 256, 16).astype(np.int16), rng.integers(0, 2, 16).astype(np.int32)
        words = [word_of(*one) for one in zip(scales.tolist(), offsets.tolist(), modes.tolist(), strict=True)]
        wanted = _wanted(x, y, form, n, half_block, words)
        run = kernel(x, y, scales, offsets, modes, n, form, half_block, product=product)
        assert run.findings == ()
        assert np.array_equal(y, wanted)


def test_the_halves_of_blocks_are_those_of_the_page(source):
    """The page's example: by 1 into the upper halves, what was 0 below stays."""
    x, y = np.arange(20, 276).astype(np.int16) % 100, np.zeros(512, np.uint8)
    one = np.ones(16, np.int16)
    ascendc.compile(source, "vectors")(x, y, np.ones(16, np.float32), 0 * one, 0 * one.astype(np.int32), 256, 0, 1)
    assert np.array_equal(y.reshape(-1, 2, 16)[:, 1].ravel(), x)
    assert not y.reshape(-1, 2, 16)[:, 0].any()


def test_int32_becomes_half_as_by_cast(source):
    x = np.random.default_rng(5).integers(-70000, 70000, 128).astype(np.int32)
    y = np.full(128, 9, np.float16)
    kernel = ascendc.compile(source, "halves")
    with np.errstate(over="ignore"):
        wanted = (x.astype(np.float32) / 2).astype(np.float16)
    kernel(x, y, 0)
    assert np.array_equal(y, wanted)
    y[:] = 9
    kernel(x, y, 1)
    assert np.array_equal(y.reshape(2, 64)[:, :40], wanted.reshape(2, 64)[:, :40])
    assert (y.reshape(2, 64)[:, 40:] == 9).all()


@pytest.mark.parametrize(
    ("form", "match"),
    [
        (2, "must come behind SetDeqScale of a half"),
        (3, "with isVecDeq must come behind SetDeqScale of a tensor"),
        (4, "with isVecDeq must come behind SetDeqScale of a tensor"),
        (5, "without isVecDeq must come behind SetDeqScale of a scale, an offset and a signMode"),
        (6, "AddDeqRelu must come behind SetDeqScale of a half"),
    ],
)
def test_what_the_register_does_not_hold_is_refused(source, form, match):
    with pytest.raises(KernelError, match=match):
        ascendc.compile(source, "halves")(np.zeros(128, np.int32), np.zeros(128, np.float16), form)


@pytest.mark.parametrize("offset", [-257, 256])
def test_an_offset_of_more_than_9_bits_is_refused(source, offset):
    x, y = np.zeros(128, np.int16), np.zeros(256, np.uint8)
    with pytest.raises(KernelError, match=rf"SetDeqScale offset must be in \[-256, 255\], not {offset}"):
        ascendc.compile(source, "numbers")(x, y, 128, 0, 0, 1.0, offset, 1, 1)


def test_910_has_none(source):
    x, y = np.zeros(128, np.int16), np.zeros(256, np.uint8)
    with pytest.raises(ProgramError, match="CastDequant must be on dav-c220, dav-m200, not dav-c100"):
        ascendc.compile(source, "numbers")(x, y, 128, 0, 0, 1.0, 0, 1, 1, product="910")


def test_a_sign_mode_that_is_not_the_type_is_refused(source):
    x, y = np.zeros(128, np.int16), np.zeros(256, np.uint8)
    with pytest.raises(KernelError, match="into int8_t must come behind a signMode of true, into uint8_t of false"):
        ascendc.compile(source, "numbers")(x, y, 128, 0, 0, 1.0, 0, 1, 0)
