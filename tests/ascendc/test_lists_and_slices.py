"""Lists of tensors as arguments, copies of slices, and copies that pad by the core's own value."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.errors import DTypeError
from tests.ascendc.compiler import require_compiler

require_compiler()

LISTS = """
#include "kernel_operator.h"
#include "kernel_operator_list_tensor_intf.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void twice(GM_ADDR x, GM_ADDR y, GM_ADDR facts) {
  ListTensorDesc from(x), to((__gm__ void*)y);
  GlobalTensor<int64_t> seen; seen.SetGlobalBuffer((__gm__ int64_t*)facts);
  // what operators do that walk the list themselves
  __gm__ uint64_t* words = (__gm__ uint64_t*)x;
  LocalTensor<float> t(TPosition::VECCALC, 0, 1024);
  for (uint32_t i = 0; i < from.GetSize(); i++) {
    uint64_t sizes[8];
    TensorDesc<float> desc; desc.SetShapeAddr(sizes);
    from.GetDesc(desc, i);
    bool same = desc.GetDataPtr() == from.GetDataPtr<float>(i);
    same = same && (uint64_t)desc.GetDataPtr() == words[words[0] / 8 + i];
    uint32_t count = 1;
    for (uint64_t d = 0; d < desc.GetDim(); d++) count *= desc.GetShape(d);
    seen.SetValue(i, same ? desc.GetIndex() * 1000000 + desc.GetDim() * 100000 + count : -1);
    GlobalTensor<float> in = desc.GetDataObj(), out;
    out.SetGlobalBuffer(to.GetDataPtr<float>(i), count);
    DataCopyPad(t, in, DataCopyExtParams(1, count * 4, 0, 0, 0), DataCopyPadExtParams<float>());
    SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
    Add(t, t, t, int32_t(count));
    SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
    DataCopyPad(out, t, DataCopyExtParams(1, count * 4, 0, 0, 0));
    PipeBarrier<PIPE_ALL>();
  }
}
"""


def test_lists_of_tensors_are_what_dynamic_inputs_are(tmp_path):
    path = tmp_path / "twice.cpp"
    path.write_text(LISTS)
    rng = np.random.default_rng(1)
    x = [rng.standard_normal(shape).astype(np.float32) for shape in ((3,), (2, 5, 4), (7, 9))]
    kept = [one.copy() for one in x]
    y, facts = [np.empty_like(one) for one in x], np.zeros(3, np.int64)
    run = ascendc.compile(path)(x, y, facts, outputs=[1])
    assert all(np.array_equal(b, a + a) for a, b in zip(x, y, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(x, kept, strict=True))
    assert facts.tolist() == [100003, 1300040, 2200063]
    assert run.findings == ()
    assert "x 3 tensors" in str(run)


def test_every_tensor_of_an_output_must_be_written_as_a_whole(tmp_path):
    path = tmp_path / "twice.cpp"
    path.write_text(
        LISTS.replace("count * 4, 0, 0, 0));\n    PipeBarrier", "count * 4 - 4 * (i == 1), 0, 0, 0));\n    PipeBarrier")
    )
    x = [np.ones(8, np.float32), np.ones((2, 8), np.float32)]
    run = ascendc.compile(path).check(x, [np.empty_like(one) for one in x], np.zeros(2, np.int64), outputs=[1])
    assert ["y[1]" in str(one) for one in run.findings] == [True]


@pytest.mark.parametrize("wrong", [[np.ones(3, np.float32), 4.0], []])
def test_other_lists_are_refused(source_file, wrong):
    path = source_file("twice.cpp", LISTS)
    with pytest.raises(DTypeError, match="must be an array, a list of arrays, a number, bytes or None"):
        ascendc.compile(path)(wrong, wrong, np.zeros(3, np.int64))


SLICES = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void slices(GM_ADDR x, GM_ADDR y) {
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  LocalTensor<float> t(TPosition::VECCALC, 0, 4096);
  SliceInfo from[] = {{16, 70, 7, 3, 87}, {0, 2, 1, 1, 3}, {1, 1, 0, 1, 2}};
  SliceInfo ub[] = {{0, 47, 0, 3, 48}, {0, 1, 0, 1, 2}, {0, 0, 0, 1, 1}};
  SliceInfo to[] = {{1, 52, 4, 3, 60}, {1, 3, 1, 1, 4}, {0, 0, 0, 1, 1}};
  DataCopy(t, in, ub, from, 3);
  SetFlag<HardEvent::MTE2_MTE3>(0); WaitFlag<HardEvent::MTE2_MTE3>(0);
  DataCopy(out, t, to, ub, 3);
}
"""


@pytest.mark.parametrize("end", [70, 71, 100])
def test_slices_are_copied_as_far_as_they_hold_whole_bursts(tmp_path, end):
    path = tmp_path / "slices.cpp"
    path.write_text(SLICES.replace("{16, 70, 7", f"{{16, {end}, 7"))
    x = np.arange(2 * 3 * 87, dtype=np.float32).reshape(2, 3, 87)
    y = np.zeros((4, 60), np.float32)
    ascendc.compile(path)(x, y)
    wanted = np.zeros_like(y)
    for row, source in ((1, 0), (3, 2)):
        wanted[row, 1:25], wanted[row, 29:53] = x[1, source, 16:40], x[1, source, 47:71]
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{16, 70, 7", "{16, 31, 7", "a burst of 24 elements at least, not 16"),
        ("{0, 2, 1, 1, 3}", "{0, 2, 0, 1, 3}", "as many rows, of bursts as long"),
        ("from, 3)", "from, 9)", "1 to 8 dimensions, not 9"),
    ],
)
def test_slices_that_do_not_fit_are_refused(source_file, old, new, message):
    path = source_file("slices.cpp", SLICES.replace(old, new))
    with pytest.raises(ascendc.KernelError, match=message):
        ascendc.compile(path)(np.zeros((2, 3, 87), np.float32), np.zeros((4, 60), np.float32))


PADDED = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void padded(GM_ADDR x, GM_ADDR y, bool names) {
  GlobalTensor<half> in, out;
  in.SetGlobalBuffer((__gm__ half*)x); out.SetGlobalBuffer((__gm__ half*)y);
  LocalTensor<half> t(TPosition::VECCALC, 0, 32);
  SetPadValue(half(1));
  DataCopyPad(t, in, DataCopyExtParams(1, 40, 0, 0, 0), DataCopyPadExtParams<half>(names, 0, 12, half(3)));
  SetFlag<HardEvent::MTE2_MTE3>(0); WaitFlag<HardEvent::MTE2_MTE3>(0);
  DataCopy(out, t, 32);
}
"""


@pytest.mark.parametrize("names", [False, True])
def test_copies_pad_by_the_value_that_was_set_unless_they_name_one(source_file, names):
    path = source_file("padded.cpp", PADDED)
    x, y = np.arange(20, dtype=np.float16), np.zeros(32, np.float16)
    ascendc.compile(path)(x, y, names)
    assert np.array_equal(y, np.append(x, np.full(12, 3 if names else 1, np.float16)))


LONG = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void longs(GM_ADDR x, GM_ADDR y, int64_t value) {
  GlobalTensor<int64_t> in, out;
  in.SetGlobalBuffer((__gm__ int64_t*)x); out.SetGlobalBuffer((__gm__ int64_t*)y);
  LocalTensor<int64_t> t(TPosition::VECCALC, 0, 16);
  DataCopyPad(t, in, DataCopyExtParams(2, 40, 0, 0, 0), DataCopyPadExtParams<int64_t>(true, 1, 2, value));
  SetFlag<HardEvent::MTE2_MTE3>(0); WaitFlag<HardEvent::MTE2_MTE3>(0);
  DataCopyPad(out, t, DataCopyExtParams(1, 120, 0, 0, 0));
}
"""


def test_elements_of_64_bits_are_padded(tmp_path):
    path = tmp_path / "longs.cpp"
    path.write_text(LONG)
    x, y = np.arange(10, dtype=np.int64) * (1 << 40) + 3, np.zeros(15, np.int64)
    kernel = ascendc.compile(path)
    for value in (0, -1):
        kernel(x, y, value)
        rows = [[value, *x[5 * i : 5 * i + 5], value, value] for i in range(2)]
        assert y.tolist() == np.concatenate(rows)[:15].tolist()
    with pytest.raises(ascendc.KernelError, match="must pad by a value with equal halves"):
        kernel(x, y, 7)


NEWER = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void newer(GM_ADDR x, GM_ADDR y, GM_ADDR bits) {
  GlobalTensor<half> in, out; GlobalTensor<uint8_t> marks;
  in.SetGlobalBuffer((__gm__ half*)x); out.SetGlobalBuffer((__gm__ half*)y);
  marks.SetGlobalBuffer((__gm__ uint8_t*)bits);
  LocalTensor<half> a(TPosition::VECCALC, 0, 256), b(TPosition::VECCALC, 512, 256);
  LocalTensor<uint8_t> m(TPosition::VECCALC, 2048, 32);
  DataCopy(a, in, 256); DataCopy(b, in[256], 256);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  Duplicate(m.ReinterpretCast<int16_t>(), int16_t(-1), 16);
  Compare(a, b, CMPMODE::LT, uint64_t(128), BinaryRepeatParams(1, 1, 1, 8, 8, 8));
  GetCmpMask(m);
  Axpy<half, half>(a, b, half(2), 256);
  ReduceRepeat<ReduceType::SUM, half, half, true>(b, a, 128, 2, 1, 1, 8);
  DataCopy(a[240], b, 16);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, a, 256); DataCopy(marks, m, 32);
}
"""


def test_newer_forms_with_two_types_and_the_bits_of_a_comparison(tmp_path):
    path = tmp_path / "newer.cpp"
    path.write_text(NEWER)
    x = (np.random.default_rng(4).permutation(512) % 19 - 9).astype(np.float16)
    y, bits = np.zeros(256, np.float16), np.zeros(32, np.uint8)
    ascendc.compile(path)(x, y, bits)
    a, b = x[:256], x[256:]
    wanted = a + 2 * b
    assert np.array_equal(y[:240], wanted[:240])
    assert np.array_equal(y[240:242], wanted.reshape(2, 128).sum(1))
    assert np.array_equal(np.unpackbits(bits[:16], bitorder="little"), a[:128] < b[:128])
    assert (bits[16:] == 255).all()


WIDE = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void wide(GM_ADDR x, GM_ADDR y, GM_ADDR bits, bool by_buffer) {
  TPipe pipe; TBuf<TPosition::VECCALC> buffer, more;
  pipe.InitBuffer(buffer, 40960); pipe.InitBuffer(more, 1024);
  GlobalTensor<half> in; GlobalTensor<float> out; GlobalTensor<uint16_t> words;
  in.SetGlobalBuffer((__gm__ half*)x); out.SetGlobalBuffer((__gm__ float*)y);
  words.SetGlobalBuffer((__gm__ uint16_t*)bits);
  LocalTensor<float> sum = buffer.Get<float>();
  LocalTensor<half> a = buffer.Get<half>()[16384];
  LocalTensor<uint16_t> w = more.Get<uint16_t>();
  DataCopy(sum, out, 4000); DataCopy(a, in, 4000); DataCopy(w, words, 512);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  LocalTensor<uint16_t> front = w, back = w[256];
  front.SetSize(256); back.SetSize(256);
  if (by_buffer) {
    Axpy(sum, a, half(0.3), more.Get<uint8_t>(), 4000u);
    Xor<uint16_t, false>(front, front, back, a.ReinterpretCast<uint8_t>());
  } else {
    Axpy<float, half>(sum, a, half(0.3), 4000);
    Xor(front, front, back);
  }
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, sum, 4000); DataCopy(words, w, 512);
}
"""


@pytest.mark.parametrize("by_buffer", [False, True])
def test_products_of_half_are_added_to_float_without_rounding_and_words_are_combined(source_file, by_buffer):
    path = source_file("wide.cpp", WIDE)
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal(4000).astype(np.float16), rng.standard_normal(4000).astype(np.float32)
    words = rng.integers(0, 2**16, 512).astype(np.uint16)
    exact = y.astype(np.float64) + x.astype(np.float64) * float(np.float16(0.3))
    combined = words[:256] ^ words[256:]
    ascendc.compile(path)(x, y, words, by_buffer)
    assert np.array_equal(y, exact.astype(np.float32))
    assert np.array_equal(words[:256], combined)
