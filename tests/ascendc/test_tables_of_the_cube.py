"""Bias table and Fixpipe buffer from C++: sums that begin with a bias, and columns that are quantised one by one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from npu_sim.errors import ProgramError
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import CUBE, require_compiler

require_compiler()

SOURCE = (
    CUBE
    + """
// Sums of A and of B in L0C: `ways` says where they begin. 0: with 0, 1: a tensor in C2, 2: cmatrixSource alone.
template <class T, class Sum, class Bias>
__aicore__ inline LocalTensor<Sum> multiply(GM_ADDR a, GM_ADDR b, GM_ADDR bias, int32_t m, int32_t k, int32_t n,
                                            int32_t way) {
  constexpr int32_t c0 = 32 / sizeof(T);
  GlobalTensor<T> left, right;
  GlobalTensor<Bias> row;
  left.SetGlobalBuffer((__gm__ T*)a);
  right.SetGlobalBuffer((__gm__ T*)b);
  row.SetGlobalBuffer((__gm__ Bias*)bias);
  int32_t rows = up(m, 16), depth = up(k, c0), columns = up(n, 16);
  LocalTensor<T> a1(TPosition::A1, 0, rows * depth), b1(TPosition::B1, 65536, columns * depth);
  LocalTensor<T> a2(TPosition::A2, 0, rows * depth), b2(TPosition::B2, 0, columns * depth);
  LocalTensor<Sum> sums(TPosition::CO1, 0, rows * columns), table(TPosition::C2, 128, columns);
  LocalTensor<Bias> bias1(TPosition::C1, 131072, columns);
  if (way == 2) table = LocalTensor<Sum>(TPosition::C2, 0, columns);
  DataCopy(a1, left, Nd2NzParams(1, m, k, 0, k, rows, 1, 0));
  DataCopy(b1, right, Nd2NzParams(1, n, k, 0, k, columns, 1, 0));
  if (way) DataCopy(bias1, row, Nd2NzParams(1, 1, n, 0, n, 1, 1, 0));
  Ready<HardEvent::MTE2_MTE1>();
  for (int32_t i = 0; i < rows / 16; i++)
    LoadData(a2[i * depth * 16], a1[i * 16 * c0], LoadData2DParams(0, depth / c0, rows / 16, 0, 0, false, 0));
  LoadData(b2, b1, LoadData2DParams(0, columns / 16 * depth / c0, 1, 0, 0, false, 0));
  if (way) DataCopy(table, bias1, DataCopyParams(1, (n * sizeof(Bias) + 63) / 64, 0, 0));
  Ready<HardEvent::MTE1_M>();
  MmadParams step;
  step.m = m, step.n = n, step.k = k;
  step.cmatrixInitVal = !way;
  step.cmatrixSource = way == 2;
  if (way == 1) Mmad(sums, a2, b2, table, step);
  else Mmad(sums, a2, b2, step);
  PipeBarrier<PIPE_M>();
  step.cmatrixInitVal = false;
  step.cmatrixSource = false;
  Mmad(sums, a2, b2, step);  // what begins with a bias is added to as any sum
  Ready<HardEvent::M_FIX>();
  return sums;
}

template <class T, class Sum, class Bias>
__global__ __aicore__ void biased(GM_ADDR a, GM_ADDR b, GM_ADDR bias, GM_ADDR c, int32_t m, int32_t k, int32_t n,
                                  int32_t way) {
  auto sums = multiply<T, Sum, Bias>(a, b, bias, m, k, n, way);
  GlobalTensor<Sum> out;
  out.SetGlobalBuffer((__gm__ Sum*)c);
  Fixpipe<Sum, Sum, CFG_ROW_MAJOR>(out, sums, FixpipeParamsV220(n, m, up(m, 16), n, false));
}

// way 0: words in L1, 1: in the Fixpipe buffer, named by SetFixPipeConfig, 2: in the older parameters
template <class T, class Out, QuantMode_t mode, bool rows_first>
__global__ __aicore__ void scaled(GM_ADDR a, GM_ADDR b, GM_ADDR words, GM_ADDR c, int32_t m, int32_t k, int32_t n,
                                  bool relu, int32_t way) {
  using Sum = std::conditional_t<sizeof(T) == 1, int32_t, float>;
  auto sums = multiply<T, Sum, Sum>(a, b, b, m, k, n, 0);
  GlobalTensor<Out> out;
  GlobalTensor<uint64_t> scales;
  out.SetGlobalBuffer((__gm__ Out*)c);
  scales.SetGlobalBuffer((__gm__ uint64_t*)words);
  LocalTensor<uint64_t> held(TPosition::C1, 262144, up(n, 16)), table(TPosition::C2PIPE2GM, 0, up(n, 16));
  DataCopy(held, scales, up(n, 16));
  Ready<HardEvent::MTE2_FIX>();
  constexpr FixpipeConfig layout = rows_first ? CFG_ROW_MAJOR : CFG_NZ;
  static constexpr FixpipeConfig config = layout;
  FixpipeParamsV220 store(n, m, up(m, 16), rows_first ? n : up(m, 16) * 16 * sizeof(Out) / 32, relu);
  store.quantPre = mode;
  if (way == 1) {
    DataCopy(table, held, up(n, 16));
    SetFixPipeConfig(table);
    PipeBarrier<PIPE_FIX>();
    Fixpipe<Out, Sum, config>(out, sums, store);
  } else if (way == 2) {
    uint32_t gap = up(m, 16) * 16 * sizeof(Out) / 32 - m * 2 * sizeof(Out) / sizeof(Sum);
    FixpipeParams<Sum> old(up(n, 16) / 16, m * 2, 0, rows_first ? n : gap);
    old.quantParams.quantPre = mode;
    old.reluEn = relu;
    old.nz2ndParams.nz2ndEn = rows_first;
    old.nz2ndParams.originalNSize = n;
    Fixpipe<Out, Sum>(out, sums, held, old);
  } else {
    Fixpipe<Out, Sum, config>(out, sums, held, store);
  }
}

// The bias through queues, whose flags are between L1 and the Mmad.
extern "C" __global__ __aicore__ void queues(GM_ADDR bias, GM_ADDR c) {
  TPipe pipe;
  TQue<TPosition::C1, 1> in;
  TQue<TPosition::C2, 1> table;
  pipe.InitBuffer(in, 1, 64);
  pipe.InitBuffer(table, 1, 64);
  GlobalTensor<float> row, out;
  row.SetGlobalBuffer((__gm__ float*)bias);
  out.SetGlobalBuffer((__gm__ float*)c);
  auto l1 = in.AllocTensor<float>();
  DataCopy(l1, row, 16);
  in.EnQue(l1);
  l1 = in.DeQue<float>();
  auto held = table.AllocTensor<float>();
  DataCopy(held, l1, 16);
  in.FreeTensor(l1);
  TBuf<TPosition::A2> lefts;
  TBuf<TPosition::B2> rights;
  TBuf<TPosition::CO1> all;
  pipe.InitBuffer(lefts, 512);
  pipe.InitBuffer(rights, 512);
  pipe.InitBuffer(all, 1024);
  auto a = lefts.Get<half>(), b = rights.Get<half>();
  InitConstValue(a, InitConstValueParams<half>(1, half(1)));
  InitConstValue(b, InitConstValueParams<half>(1, half(2)));
  table.EnQue(held);
  held = table.DeQue<float>();
  auto sums = all.Get<float>();
  MmadParams step;
  step.m = step.n = step.k = 16;
  step.cmatrixInitVal = false;
  Mmad(sums, a, b, held, step);
  table.FreeTensor(held);
  Ready<HardEvent::M_FIX>();
  Fixpipe<float, float, CFG_ROW_MAJOR>(out, sums, FixpipeParamsV220(16, 16, 16, 16, false));
}

extern "C" __global__ __aicore__ void wrong(int32_t way) {
  LocalTensor<float> l1(TPosition::C1, 0, 64), table(TPosition::C2, 0, 64), sums(TPosition::CO1, 0, 256);
  LocalTensor<half> a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256);
  LocalTensor<half> half1(TPosition::C1, 0, 64), half2(TPosition::C2, 0, 64);
  LocalTensor<uint64_t> words(TPosition::C1, 0, 16);
  GlobalTensor<half> out;
  MmadParams step;
  step.cmatrixInitVal = false;
  if (way == 0) DataCopy(table, l1, DataCopyParams(2, 1, 0, 0));
  if (way == 1) DataCopy(half2, half1, DataCopyParams(1, 1, 0, 0));
  if (way == 2) Mmad(sums, a, b, l1, step);
  if (way == 3) SetFixPipeConfig(words);
  if (way == 4) DataCopy(table, sums, DataCopyParams(1, 1, 0, 0));
}
"""
)
SIZES = [(16, 32, 16), (17, 40, 20), (33, 64, 48), (1, 16, 200)]


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("tables.cpp", SOURCE)


def _kernel(source, name):
    return ascendc.compile(source, name, kind="cube")


def _operands(m, k, n, dtype):
    rng = np.random.default_rng([m, k, n])
    low, high = (-128, 128) if dtype == np.int8 else (-8, 9)
    return rng.integers(low, high, (m, k)).astype(dtype), rng.integers(low, high, (n, k)).astype(dtype)


@pytest.mark.parametrize("way", [0, 1, 2])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(
    ("types", "operand", "bias"),
    [
        ("half, float, float", np.float16, np.float32),
        ("half, float, half", np.float16, np.float16),
        ("int8_t, int32_t, int32_t", np.int8, np.int32),
    ],
)
def test_sums_begin_with_the_bias(source, types, operand, bias, sizes, way):
    m, k, n = sizes
    a, b = _operands(m, k, n, operand)
    row = np.random.default_rng(5).integers(-1000, 1000, n).astype(bias)
    c = np.zeros((m, n), np.int32 if operand == np.int8 else np.float32)
    run = _kernel(source, f"biased<{types}>")(a, b, row, c, m, k, n, way, product="Ascend910B2")
    if n % 16 == 0 and m % 16 == 0:
        # what is read behind the last of n biases is used by nothing
        assert {found.kind for found in run.findings} <= {Kind.READ_UNUSED}
    exact = 2 * (a.astype(np.int64) @ b.T.astype(np.int64)) + (row.astype(np.int64) if way else 0)
    assert np.array_equal(c, exact)


def test_integers_that_begin_with_a_bias_are_clamped_once(source):
    a, b = np.full((1, 32), -128, np.int8), np.full((16, 32), -128, np.int8)
    row = np.full(16, 2**31 - 1, np.int32)
    row[1] = -(2**31)
    c = np.zeros((1, 16), np.int32)
    _kernel(source, "biased<int8_t, int32_t, int32_t>")(a, b, row, c, 1, 32, 16, 1, product="Ascend910B2")
    assert c[0, 0] == 2**31 - 1
    assert c[0, 1] == -(2**31) + 2 * 32 * 128 * 128


def _words(n, scales, offsets=(0,), *, signed=False):
    """Return a word for each column, and what is read of it: scale and offset."""
    rng = np.random.default_rng(n)
    scale = rng.choice(np.array(scales, np.float32), n)
    offset = rng.choice(np.array(offsets), n)
    words = np.zeros(-(-n // 16) * 16, np.uint64)
    words[:n] = scale.view(np.uint32) | (offset & 0x1FF).astype(np.uint64) << np.uint64(37)
    words |= np.uint64(signed) << np.uint64(46)
    kept = (scale.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return words, kept.astype(np.float64), offset


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("way", [0, 1, 2])
@pytest.mark.parametrize("rows_first", [True, False])
@pytest.mark.parametrize("sizes", [(16, 32, 16), (48, 64, 240), (17, 40, 48), (16, 32, 304)], ids=str)
def test_each_column_has_its_scale(source, sizes, rows_first, way, relu):
    m, k, n = sizes
    if way == 1 and n > 256:
        pytest.skip("the Fixpipe buffer has words of 256 columns")
    a, b = _operands(m, k, n, np.int8)
    words, scale, _ = _words(n, (1.0, 2.0**-10, -0.0078125, 0.3, 3.7e-5))
    if rows_first:
        c = np.zeros((m, n), np.float16)
    else:
        c = np.zeros((n // 16, -(-m // 16) * 16, 16), np.float16)
    name = f"scaled<int8_t, half, VDEQF16, {str(rows_first).lower()}>"
    run = _kernel(source, name)(a, b, words, c, m, k, n, relu, way, product="Ascend910B2")
    if m % 16 == 0:
        assert run.findings == ()
    got = c if rows_first else c[:, :m].transpose(1, 0, 2).reshape(m, n)
    with np.errstate(over="ignore"):
        expected = (2 * (a.astype(np.int64) @ b.T.astype(np.int64)) * scale).astype(np.float16)
    assert np.array_equal(got, np.maximum(expected, 0) if relu else expected)


@pytest.mark.parametrize(("cpp", "dtype"), [("int8_t", np.int8), ("uint8_t", np.uint8)])
@pytest.mark.parametrize(("operand", "mode"), [("int8_t", "VREQ8"), ("half", "VQF322B8_PRE")])
def test_8_bits_have_scale_and_offset_of_their_column(source, operand, mode, cpp, dtype):
    m, k, n = 32, 64, 272
    a, b = _operands(m, k, n, np.int8 if operand == "int8_t" else np.float16)
    words, scale, offset = _words(n, (2.0**-9, 0.0005, -0.001), (0, 17, -200, 255, -256), signed=dtype == np.int8)
    c = np.zeros((m, n), dtype)
    kernel = _kernel(source, f"scaled<{operand}, {cpp}, {mode}, true>")
    assert kernel(a, b, words, c, m, k, n, False, 0, product="Ascend910B2").findings == ()
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    sums = 2 * (a.astype(np.int64) @ b.T.astype(np.int64))
    expected = [
        [min(max(round(int(x) * Fraction(scale[j]) + int(offset[j])), low), high) for j, x in enumerate(line)]
        for line in sums
    ]
    assert c.tolist() == expected


def test_words_that_ask_for_a_shift_are_refused(source):
    a, b = _operands(16, 32, 16, np.int8)
    words = np.full(16, 1 << 36, np.uint64)
    kernel = _kernel(source, "scaled<int8_t, half, VDEQF16, true>")
    with pytest.raises(ProgramError, match="bit 36 clear in each word"):
        kernel(a, b, words, np.zeros((16, 16), np.float16), 16, 32, 16, False, 0, product="Ascend910B2")


def test_queues_hand_the_bias_on(source):
    row, c = np.arange(16, dtype=np.float32), np.zeros((16, 16), np.float32)
    run = _kernel(source, "queues")(row, c, product="Ascend910B2")
    assert run.findings == ()
    assert np.array_equal(c, np.tile(32 + row, (16, 1)))


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (0, "DataCopy to BT must be of one block, not of 2"),
        (1, "DataCopy to BT must be of float or int32_t, or of half into float"),
        (2, "Mmad bias must be in BT"),
        (3, "SetFixPipeConfig must be of a tensor in FB, not in L1"),
        (4, "DataCopy to BT must come from L1, not from L0C"),
    ],
)
def test_what_the_tables_do_not_take_is_refused(source, way, words):
    with pytest.raises(KernelError, match=words):
        _kernel(source, "wrong")(way, product="Ascend910B2")
