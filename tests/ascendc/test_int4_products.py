"""Mmad of int4b_t in C++ against NumPy: copies, both loads of the right operand, clamped sums, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import CUBE, cube_statement, require_compiler

require_compiler()

SOURCE = (
    CUBE
    + """
// c = a b, both padded to whole fractals, two elements to a byte; b as [k, n], or as its transpose; `times` over.
template <bool transposed>
__global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t m, int32_t k, int32_t n, int32_t times) {
  GlobalTensor<int4b_t> left, right;
  GlobalTensor<int32_t> out;
  left.SetGlobalBuffer((__gm__ int4b_t*)a);
  right.SetGlobalBuffer((__gm__ int4b_t*)b);
  out.SetGlobalBuffer((__gm__ int32_t*)c);
  int32_t rows = up(m, 16), depth = up(k, 64), columns = up(n, 64);
  LocalTensor<int4b_t> a1(TPosition::A1, 0, rows * depth), b1(TPosition::B1, 65536, columns * depth);
  LocalTensor<int4b_t> a2(TPosition::A2, 0, rows * depth), b2(TPosition::B2, 0, columns * depth);
  LocalTensor<int32_t> sums(TPosition::CO1, 0, rows * columns);
  // widths in bytes, as of int8_t
  DataCopy(a1, left, Nd2NzParams(1, rows, depth / 2, 0, depth / 2, rows, 1, 0));
  if (transposed) DataCopy(b1, right, Nd2NzParams(1, columns, depth / 2, 0, depth / 2, columns, 1, 0));
  else DataCopy(b1, right, Nd2NzParams(1, depth, columns / 2, 0, columns / 2, depth, 1, 0));
  Ready<HardEvent::MTE2_MTE1>();
  for (int32_t i = 0; i < rows / 16; i++)
    LoadData(a2[i * depth * 16], a1[i * 1024], LoadData2DParams(0, depth / 64, rows / 16, 0, 0, false, 0));
  if (transposed) {
    int32_t used = up(n, 16) / 16;
    for (int32_t i = 0; i < depth / 64; i++)
      LoadData(b2[i * used * 1024], b1[i * columns * 64], LoadData2DParams(0, used, 1, 0, 0, false, 0));
  } else {
    for (int32_t i = 0; i < depth / 64; i++)
      LoadDataWithTranspose(b2[i * columns * 64], b1, LoadData2dTransposeParams(i, columns / 64, depth / 64, 3, 0));
  }
  multiply_over(sums, a2, b2, m, transposed ? n : columns, k, times);
  Fixpipe<int32_t, int32_t, CFG_ROW_MAJOR>(out, sums, FixpipeParamsV220(n, m, rows, n, false));
}
"""
)
SIZES = [(16, 64, 64), (32, 128, 96), (17, 72, 20), (2, 34, 7), (80, 2, 1), (100, 256, 50)]


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("products.cpp", SOURCE)


def _packed(matrix):
    """Fill up to whole fractals with numbers that must not count, two to a byte."""
    (rows, columns), rng = matrix.shape, np.random.default_rng(1)
    made = rng.integers(-8, 8, (-(-rows // 64) * 64, -(-columns // 64) * 64))
    made[:rows, :columns] = matrix
    return ((made[:, ::2] & 15) | (made[:, 1::2] & 15) << 4).astype(np.uint8)


def _product(source, a, b, *, transposed=False, times=1, product="Ascend910B2"):
    (m, k), n = a.shape, b.shape[1]
    left, right, c = _packed(a)[: -(-m // 16) * 16], _packed(b), np.zeros((m, n), np.int32)
    if transposed:
        right = _packed(b.T)
    kernel = ascendc.compile(source, f"product<{str(transposed).lower()}>", kind="cube")
    run = kernel(left, right, c, m, k, n, times, product=product, outputs=[2])
    assert run.findings == ()
    return c


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_are_exact(source, sizes, transposed):
    m, k, n = sizes
    rng = np.random.default_rng(sizes)
    a, b = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (k, n))
    assert np.array_equal(_product(source, a, b, transposed=transposed), a @ b)
    assert np.array_equal(_product(source, a, b, transposed=transposed, times=3), 3 * (a @ b))


def test_k_is_even(source):
    with pytest.raises(ProgramError, match="Mmad k must be even, for two elements lie in a byte, not 33"):
        _product(source, np.zeros((16, 33), int), np.zeros((33, 16), int))


def test_series(source):
    a, b = np.ones((16, 64), int), np.ones((64, 16), int)
    with pytest.raises(ProgramError, match="must be on dav-c220, not dav-m200"):
        _product(source, a, b, product="310p")


TENSORS = """
  LocalTensor<int4b_t> a(TPosition::A2, 0, 1024), b(TPosition::B2, 0, 1024), l1(TPosition::B1, 0, 4096);
  LocalTensor<int8_t> bytes(TPosition::B2, 0, 512);
  LocalTensor<int32_t> c(TPosition::CO1, 0, 256), bias(TPosition::C2, 0, 16);
"""


@pytest.mark.parametrize(("statement", "words"), [
    ("LoadDataWithTranspose(a, l1, LoadData2dTransposeParams());", "of int4b_t must go to L0B, not to L0A"),
    ("LoadData(a, l1, LoadData3DParamsV2<int4b_t>());", "LoadData3D.* is not modelled of int4b_t"),
    ("p.cmatrixInitVal = false; Mmad(c, a, b, bias, p);", "Mmad of int4b_t is modelled without a bias"),
    ("Mmad(f, a, b, p);", "Mmad of int4b_t is modelled with int4b_t into int32_t"),
    ("Mmad(c, a, bytes, p);", "Mmad of int4b_t is modelled with int4b_t into int32_t"),
])  # fmt: skip
def test_what_the_machine_has_not_is_refused(source_file, statement, words):
    with pytest.raises(KernelError, match=words):
        cube_statement(source_file, TENSORS, statement)(product="Ascend910B2")


def test_k_direction_align_is_refused(source_file):
    kernel = cube_statement(source_file, TENSORS, "p.kDirectionAlign = true; Mmad(c, a, b, p);")
    with pytest.raises(ProgramError, match="k_align"):
        kernel(product="Ascend910B2")
