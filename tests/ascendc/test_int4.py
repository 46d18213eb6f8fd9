"""Elements of 4 bits, two to a byte, from C++: casts, copies, places and sizes of tensors."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void halves(GM_ADDR x, GM_ADDR y, GM_ADDR z, GM_ADDR sizes, int32_t n, int32_t form,
                                             int32_t mode) {
  TPipe pipe;
  TQue<TPosition::VECIN, 1> in; TQue<TPosition::VECOUT, 1> out; TBuf<> buffer;
  pipe.InitBuffer(in, 1, n * 2); pipe.InitBuffer(out, 1, n / 2); pipe.InitBuffer(buffer, n * 2);
  GlobalTensor<half> X, Z; GlobalTensor<int4b_t> Y; GlobalTensor<int32_t> Sizes;
  X.SetGlobalBuffer((__gm__ half*)x); Z.SetGlobalBuffer((__gm__ half*)z); Y.SetGlobalBuffer((__gm__ int4b_t*)y);
  Sizes.SetGlobalBuffer((__gm__ int32_t*)sizes);
  auto a = in.AllocTensor<half>();
  DataCopy(a, X, n);
  in.EnQue(a);
  a = in.DeQue<half>();
  LocalTensor<int4b_t> b = out.AllocTensor<int4b_t>(), whole = buffer.Get<int4b_t>();
  auto c = buffer.Get<half>();
  int32_t seen[] = {int32_t(b.GetSize()), int32_t(whole.GetSize()), int32_t(b[64].GetPhyAddr() - b.GetPhyAddr()),
                    int32_t(b[64].GetLength()), int32_t(b.GetPhyAddr(10) - b.GetPhyAddr()),
                    int32_t(Y.GetPhyAddr(64) - Y.GetPhyAddr()),
                    int32_t(10 * SizeOfBits<int4b_t>::value + SizeOfBits<half>::value)};
  for (int i = 0; i < 7; i++) Sizes.SetValue(i, seen[i]);
  uint64_t bits[] = {0xFF0F0000000000F3ull, 0x3ull};
  auto round = RoundMode(mode);
  if (form == 0) {  // numbers of elements
    Cast(b, a, round, n);
    PipeBarrier<PIPE_V>();
    Cast(c[64], b[64], RoundMode::CAST_NONE, n - 64);
    Cast(c, b, RoundMode::CAST_NONE, 64);
  } else if (form == 1) {  // repeats of leading lanes
    Cast(b, a, round, uint64_t(128), n / 128, {1, 1, 2, 8});
    PipeBarrier<PIPE_V>();
    Cast(c, b, RoundMode::CAST_NONE, uint64_t(128), n / 128, {1, 1, 8, 2});
  } else if (form == 2) {  // lanes by bits
    Duplicate(b.ReinterpretCast<int16_t>(), int16_t(0x7777), n / 4);
    Duplicate(c, half(9), n);
    PipeBarrier<PIPE_V>();
    Cast(b, a, round, bits, n / 128, {1, 1, 2, 8});
    PipeBarrier<PIPE_V>();
    Cast(c, b, RoundMode::CAST_NONE, bits, n / 128, {1, 1, 8, 2});
  } else {
    Cast(b, a, round, 3);
  }
  out.EnQue(b);
  b = out.DeQue<int4b_t>();
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(Y[64], b[64], DataCopyExtParams(1, (n - 64) / 2, 0, 0, 0));
  DataCopy(Y, b, 64);
  DataCopy(Z, c, n);
  in.FreeTensor(a); out.FreeTensor(b);
}
"""
MODES = {0: np.rint, 1: np.rint, 2: np.floor, 3: np.ceil, 5: np.trunc}
"""Of RoundMode: NONE, RINT, FLOOR, CEIL, TRUNC."""


@pytest.fixture(scope="module")
def kernel(source_file):
    return ascendc.compile(source_file("halves.cpp", SOURCE))


def _run(kernel, x, form, mode, product="910b"):
    y, z, sizes = np.zeros(x.size // 2, np.uint8), np.zeros(x.size, np.float16), np.zeros(8, np.int32)
    run = kernel(x, y, z, sizes, x.size, form, mode, product=product, outputs=[1, 2])
    return run, y, z, sizes


def _packed(values):
    low, high = values[::2].astype(int) & 15, values[1::2].astype(int) & 15
    return low | high << 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", [0, 1])
def test_half_becomes_int4_and_back(kernel, form, mode):
    x = np.random.default_rng(mode).normal(0, 5, 512).astype(np.float16)
    x[:6] = 0.5, -0.5, 7.5, -8.5, np.inf, -np.inf
    expected = np.clip(MODES[mode](x), -8, 7)
    run, y, z, sizes = _run(kernel, x, form, mode)
    assert np.array_equal(y, _packed(expected))
    assert np.array_equal(z, expected)
    assert run.findings == ()
    assert sizes[:7].tolist() == [512, 2048, 32, 512 // 2 - 32, 5, 32, 56]


def test_lanes_by_bits_are_pairs(kernel):
    x = np.random.default_rng(9).normal(0, 5, 256).astype(np.float16)
    _, y, z, _ = _run(kernel, x, 2, 1)
    bits = 0xFF0F0000000000F3 | 3 << 64
    active = np.array([bits >> lane & 1 for lane in range(128)] * 2, bool)
    expected = np.where(active, np.clip(np.rint(x), -8, 7), 7)
    assert np.array_equal(y, _packed(expected))
    assert np.array_equal(z, np.where(active, expected, 9))


@pytest.mark.parametrize(("product", "form", "mode", "words"), [
    ("910b", 3, 1, "Cast mask_low must be an even number of elements, not 3"),
    ("910b", 0, 6, "round_mode must be RINT, FLOOR, CEIL, ROUND, TRUNC or NONE"),
    ("310p", 0, 1, "Cast must be on dav-c220, not dav-m200"),
])  # fmt: skip
def test_what_is_no_cast_is_refused(kernel, product, form, mode, words):
    with pytest.raises(ProgramError, match=words):
        _run(kernel, np.zeros(256, np.float16), form, mode, product)


@pytest.mark.parametrize(("statement", "words"), [
    ("t.SetValue(0, int4b_t());", "SetValue is modelled of whole bytes"),
    ("Cast(t, t.ReinterpretCast<float>(), RoundMode::CAST_RINT, 8);", "Cast of int4b_t is from half or to it"),
    ("Adds(t, t, int4b_t(), 8);", "the vector unit does not compute with this type here"),
])  # fmt: skip
def test_what_has_no_elements_of_4_bits_does_not_compile(tmp_path, statement, words):
    path = tmp_path / "other.cpp"
    path.write_text(f"""
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void other(GM_ADDR x) {{
  LocalTensor<int4b_t> t(TPosition::VECCALC, 0, 64);
  {statement}
}}
""")
    with pytest.raises(CompilationError, match=words):
        ascendc.compile(path)
