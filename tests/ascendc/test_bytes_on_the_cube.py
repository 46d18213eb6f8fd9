"""Products of int8 in C++ against NumPy: loads of both kinds, sums that are clamped, and every way out of L0C."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import CUBE, require_compiler

require_compiler()

SOURCE = (
    CUBE
    + """
// c = a b, both padded to whole fractals; b as [k, n], or as its transpose; `times` over, so that
// sums may pass what int32 holds.
template <class T, bool transposed>
__global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t m, int32_t k, int32_t n, int32_t times,
                                   int32_t mode, uint64_t scale, bool relu) {
  GlobalTensor<int8_t> left, right;
  GlobalTensor<T> out;
  left.SetGlobalBuffer((__gm__ int8_t*)a);
  right.SetGlobalBuffer((__gm__ int8_t*)b);
  out.SetGlobalBuffer((__gm__ T*)c);
  int32_t rows = up(m, 16), depth = up(k, 32), columns = up(n, 32);
  LocalTensor<int8_t> a1(TPosition::A1, 0, rows * depth), b1(TPosition::B1, 65536, columns * depth);
  LocalTensor<int8_t> a2(TPosition::A2, 0, rows * depth), b2(TPosition::B2, 0, columns * depth);
  LocalTensor<int32_t> sums(TPosition::CO1, 0, rows * columns);
  DataCopy(a1, left, Nd2NzParams(1, rows, depth, 0, depth, rows, 1, 0));
  if (transposed) DataCopy(b1, right, Nd2NzParams(1, columns, depth, 0, depth, columns, 1, 0));
  else DataCopy(b1, right, Nd2NzParams(1, depth, columns, 0, columns, depth, 1, 0));
  Ready<HardEvent::MTE2_MTE1>();
  for (int32_t i = 0; i < rows / 16; i++)
    LoadData(a2[i * depth * 16], a1[i * 512], LoadData2DParams(0, depth / 32, rows / 16, 0, 0, false, 0));
  if (transposed) {
    // what lies in L1 is in the order of L0B, but for columns that no one multiplies
    int32_t used = up(n, 16) / 16;
    for (int32_t i = 0; i < depth / 32; i++)
      LoadData(b2[i * used * 512], b1[i * columns * 32], LoadData2DParams(0, used, 1, 0, 0, false, 0));
  } else {
    for (int32_t i = 0; i < depth / 32; i++)
      LoadDataWithTranspose(b2[i * columns * 32], b1, LoadData2dTransposeParams(i, columns / 32, depth / 32, 1, 0));
  }
  multiply_over(sums, a2, b2, m, transposed ? n : columns, k, times);
  FixpipeParamsV220 store(n, m, rows, n, relu);
  store.quantPre = QuantMode_t(mode);
  store.deqScalar = scale;
  Fixpipe<T, int32_t, CFG_ROW_MAJOR>(out, sums, store);
}

// Windows of a map [1, height, width, 32] as rows of the left operand, without padding.
__global__ __aicore__ void windows(GM_ADDR map, GM_ADDR weight, GM_ADDR c, int32_t height, int32_t width) {
  GlobalTensor<int8_t> fmap, right;
  GlobalTensor<int32_t> out;
  fmap.SetGlobalBuffer((__gm__ int8_t*)map);
  right.SetGlobalBuffer((__gm__ int8_t*)weight);
  out.SetGlobalBuffer((__gm__ int32_t*)c);
  LocalTensor<int8_t> a1(TPosition::A1, 0, 32 * height * width), b1(TPosition::B1, 131072, 16 * 9 * 32);
  LocalTensor<int8_t> a2(TPosition::A2, 0, 32768), b2(TPosition::B2, 0, 16 * 9 * 32);
  LocalTensor<int32_t> sums(TPosition::CO1, 0, 16384);
  DataCopy(a1, fmap, 32 * height * width);
  DataCopy(b1, right, 16 * 9 * 32);
  Ready<HardEvent::MTE2_MTE1>();
  LoadData3DParamsV2<int8_t> p;
  p.l1H = height; p.l1W = width; p.channelSize = 32; p.filterW = p.filterH = 3;
  for (int i = 0; i < 4; i++) p.padList[i] = 1;
  p.kExtension = 9 * 32; p.mExtension = height * width;
  LoadData(a2, a1, p);
  LoadData(b2, b1, LoadData2DParams(0, 9, 1, 0, 0, false, 0));
  Ready<HardEvent::MTE1_M>();
  Mmad(sums, a2, b2, MmadParams(height * width, 16, 9 * 32, false, 0, false, false, false));
  Ready<HardEvent::M_FIX>();
  FixpipeParamsV220 store(16, height * width, up(height * width, 16), 16, false);
  Fixpipe<int32_t, int32_t, CFG_ROW_MAJOR>(out, sums, store);
}
"""
)
MODES = {"none": 0, "DEQF16": 3, "REQ8": 7}
SIZES = [(16, 32, 32), (32, 64, 96), (17, 40, 20), (2, 33, 7), (80, 4, 1), (100, 128, 50)]


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("bytes.cpp", SOURCE)


def _product(source, cpp, a, b, dtype, *, transposed=False, times=1, mode="none", word=0, relu=False):
    (m, k), n = a.shape, b.shape[1]
    c = np.zeros((m, n), dtype)
    kernel = ascendc.compile(source, f"product<{cpp}, {str(transposed).lower()}>", kind="cube")
    a, b = _padded(a, 16), _padded(b, 32)
    run = kernel(
        a,
        np.ascontiguousarray(b.T) if transposed else b,
        c,
        m,
        k,
        n,
        times,
        MODES[mode],
        word,
        relu,
        product="Ascend910B2",
    )
    assert run.findings == ()
    return c


def _padded(matrix, rows):
    """Fill up to whole fractals with numbers that must not count."""
    (m, n), rng = matrix.shape, np.random.default_rng(1)
    made = rng.integers(-128, 128, (-(-m // rows) * rows, -(-n // 32) * 32), np.int8)
    made[:m, :n] = matrix
    return made


def _operands(m, k, n, seed=0):
    rng = np.random.default_rng([m, k, n, seed])
    return rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)


def _word(scale, offset=0, *, signed=True):
    return int(np.float32(scale).view(np.uint32)) | (offset & 0x1FF) << 37 | signed << 46


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_are_exact(source, sizes, transposed):
    a, b = _operands(*sizes)
    c = _product(source, "int32_t", a, b, np.int32, transposed=transposed)
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64))


def test_sums_are_clamped_to_int32(source):
    a, b = np.full((16, 960), -128, np.int8), np.full((960, 1), -128, np.int8)
    a[1] = 127
    c = _product(source, "int32_t", a, b, np.int32, times=140)
    assert c[0, 0] == 2**31 - 1
    assert c[1, 0] == -(2**31)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("scale", [1.0, 2.0**-10, -0.0078125, 0.3, 3.7e-5])
def test_half_is_the_exact_product_with_the_scale_rounded_once(source, scale, relu):
    a, b = _operands(48, 96, 32)
    c = _product(source, "half", a, b, np.float16, mode="DEQF16", word=_word(scale, signed=False), relu=relu)
    kept = np.uint32(int(np.float32(scale).view(np.uint32)) & 0xFFFFE000).view(np.float32)
    with np.errstate(over="ignore"):  # what half cannot hold becomes infinite
        expected = ((a.astype(np.int64) @ b.astype(np.int64)) * np.float64(kept)).astype(np.float16)
    assert np.array_equal(c, np.maximum(expected, 0) if relu else expected)


@pytest.mark.parametrize(("cpp", "dtype"), [("int8_t", np.int8), ("uint8_t", np.uint8)])
@pytest.mark.parametrize(("scale", "offset"), [(2.0**-9, 0), (0.0005, 17), (-0.001, -200)])
def test_8_bits_are_scaled_shifted_rounded_to_even_and_clamped(source, cpp, dtype, scale, offset):
    a, b = _operands(33, 64, 40, seed=1)
    word = _word(scale, offset, signed=dtype == np.int8)
    c = _product(source, cpp, a, b, dtype, mode="REQ8", word=word)
    kept = Fraction(float(np.uint32(int(np.float32(scale).view(np.uint32)) & 0xFFFFE000).view(np.float32)))
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    sums = (a.astype(np.int64) @ b.astype(np.int64)).ravel().tolist()
    assert c.ravel().tolist() == [min(max(round(x * kept + offset), low), high) for x in sums]


@pytest.mark.parametrize(("height", "width"), [(4, 8), (5, 7), (3, 3)])
def test_windows_of_bytes(source, height, width):
    rng = np.random.default_rng(7)
    fmap = rng.integers(-128, 128, (height, width, 32), np.int8)
    weight = rng.integers(-128, 128, (16, 3, 3, 32), np.int8)
    c = np.zeros((height * width, 16), np.int32)
    packed = np.ascontiguousarray(weight.reshape(16, 9, 32).transpose(1, 0, 2))
    run = ascendc.compile(source, "windows", kind="cube")(fmap, packed, c, height, width, product="Ascend910B2")
    assert run.findings == ()
    padded = np.pad(fmap.astype(np.int64), ((1, 1), (1, 1), (0, 0)))
    taps = [padded[i : i + height, j : j + width] for i in range(3) for j in range(3)]
    expected = np.stack(taps, axis=2).reshape(height * width, -1) @ weight.reshape(16, -1).T.astype(np.int64)
    assert np.array_equal(c, expected)


@pytest.mark.parametrize(
    ("cpp", "dtype", "mode", "word", "words"),
    [
        ("half", np.float16, "none", 0, "quantPre must fit its tensors"),
        ("int8_t", np.int8, "DEQF16", 0, "quantPre must fit its tensors"),
        ("int8_t", np.int8, "REQ8", 0, "bit 46 set for int8_t"),
        ("half", np.float16, "DEQF16", 1 << 36, "bit 36 set"),
    ],
)
def test_what_cannot_leave_so_is_refused(source, cpp, dtype, mode, word, words):
    a, b = _operands(16, 32, 32)
    with pytest.raises(KernelError, match=words):
        _product(source, cpp, a, b, dtype, mode=mode, word=word)


def test_sums_of_bytes_are_integers(tmp_path):
    path = tmp_path / "sums.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n__global__ __aicore__ void bytes(GM_ADDR a) {\n'
        "  LocalTensor<int8_t> l, r; LocalTensor<float> c;\n  Mmad(c, l, r, MmadParams());\n}\n"
    )
    with pytest.raises(CompilationError, match="int8_t into int32_t"):
        ascendc.compile(path)
