"""MmadWithSparse in C++ against NumPy: B with at most two of every four along k, compressed as the documents say."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from npu_sim.compilers import CompilationError
from npu_sim.errors import ProgramError
from tests.ascendc.compiler import CUBE, cube_statement, require_compiler
from tests.oracles.sparse import compressed, fractals_of, index_bytes_of

require_compiler()

SOURCE = (
    CUBE
    + """
// c = a b, a [m, k] of whole fractals, b and idx fractal by fractal; in pieces of `step` along k, in two places.
// The first `skipped` fractals of b and idx are of no use.
extern "C" __global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR idx, GM_ADDR c, int32_t m, int32_t k,
                                              int32_t n, int32_t step, int32_t skipped) {
  GlobalTensor<int8_t> left, right;
  GlobalTensor<uint8_t> indices;
  GlobalTensor<int32_t> out;
  left.SetGlobalBuffer((__gm__ int8_t*)a);
  right.SetGlobalBuffer((__gm__ int8_t*)b);
  indices.SetGlobalBuffer((__gm__ uint8_t*)idx);
  out.SetGlobalBuffer((__gm__ int32_t*)c);
  int32_t rows = up(m, 16), depth = up(k, 32), columns = up(n, 16), fractals = up(k / 2, 32) / 32 * columns / 16;
  LocalTensor<int8_t> a1(TPosition::A1, 0, rows * depth), b1(TPosition::B1, 131072, (skipped + fractals) * 512);
  LocalTensor<uint8_t> idx1(TPosition::B1, 262144, (skipped + fractals) * 128);
  LocalTensor<int8_t> a2(TPosition::A2, 0, 65536), b2(TPosition::B2, 0, 65536);
  LocalTensor<int32_t> sums(TPosition::CO1, 0, rows * columns);
  DataCopy(a1, left, Nd2NzParams(1, rows, depth, 0, depth, rows, 1, 0));
  DataCopy(b1, right, (skipped + fractals) * 512);
  DataCopy(idx1, indices, (skipped + fractals) * 128);
  Ready<HardEvent::MTE2_MTE1>();
  for (int32_t first = 0, turn = 0; first < k; first += step, turn++) {
    int32_t own = k - first < step ? k - first : step, k1 = up(own, 32) / 32;
    LocalTensor<int8_t> place_a = a2[turn % 2 * 32768], place_b = b2[turn % 2 * 32768];
    if (turn > 1) WaitFlag<HardEvent::M_MTE1>(turn % 2);
    for (int32_t i = 0; i < rows / 16; i++)
      LoadData(place_a[i * k1 * 512], a1[first * rows + i * 512], LoadData2DParams(0, k1, rows / 16, 0, 0, false, 0));
    int32_t start = skipped + first / 64 * columns / 16, repeats = up(own / 2, 32) / 32 * columns / 16;
    LoadDataWithSparse(place_b, b1, idx1, LoadData2DParams(start, repeats, 7, 0, 3, false, 0));
    Ready<HardEvent::MTE1_M>();
    MmadParams p(m, n, own, false, 0, false, false, false);
    p.cmatrixInitVal = first == 0;
    MmadWithSparse(sums, place_a, place_b, p);
    PipeBarrier<PIPE_M>();
    SetFlag<HardEvent::M_MTE1>(turn % 2);
  }
  int32_t turns = (k + step - 1) / step;
  for (int32_t turn = turns < 2 ? 0 : turns - 2; turn < turns; turn++) WaitFlag<HardEvent::M_MTE1>(turn % 2);
  Ready<HardEvent::M_FIX>();
  Fixpipe<int32_t, int32_t, CFG_ROW_MAJOR>(out, sums, FixpipeParamsV220(n, m, rows, n, false));
}
"""
)
SIZES = [(16, 64, 16), (128, 128, 64), (17, 40, 20), (2, 100, 7), (33, 4, 1), (48, 320, 50)]


@pytest.fixture(scope="module")
def kernel(source_file):
    return ascendc.compile(source_file("sparse.cpp", SOURCE), kind="cube")


def _weights(rng, k, n):
    """B with two, one or no elements in every four along k."""
    b = rng.integers(-128, 128, (k, n)).astype(np.int8)
    order = rng.permuted(np.tile(np.arange(4), (k // 4, n, 1)), axis=2).transpose(0, 2, 1).reshape(k, n)
    b[order >= rng.choice((2, 2, 2, 1, 0), (k // 4, n)).repeat(4, axis=0)] = 0
    return b


def _product(kernel, a, b, step=None, *, skipped=0, product="Ascend910B2", spoil=None):
    (m, k), n = a.shape, b.shape[1]
    rng, c = np.random.default_rng(1), np.zeros((m, n), np.int32)
    padded = rng.integers(-128, 128, (-(-m // 16) * 16, -(-k // 32) * 32), np.int8)
    padded[:m, :k] = a
    stored, indices = compressed(b)
    if spoil is not None:
        indices[spoil] = 3
    weights, words = fractals_of(stored).view(np.int8), index_bytes_of(indices)
    weights = np.concatenate([rng.integers(-9, 9, skipped * 512).astype(np.int8), weights])
    words = np.concatenate([np.full(skipped * 128, 0xFF, np.uint8), words])
    run = kernel(padded, weights, words, c, m, k, n, step or k, skipped, product=product, outputs=[3])
    assert run.findings == ()
    return c


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_are_those_of_the_matrix_that_was_compressed(kernel, sizes):
    m, k, n = sizes
    rng = np.random.default_rng(sizes)
    a, b = rng.integers(-128, 128, (m, k), np.int8), _weights(rng, k, n)
    expected = a.astype(np.int64) @ b.astype(np.int64)
    assert np.array_equal(_product(kernel, a, b), expected)
    assert np.array_equal(_product(kernel, a, b, 64, skipped=3), expected)


def test_an_index_that_there_is_not_ends_the_run(kernel):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (16, 64), np.int8), _weights(rng, 64, 16)
    with pytest.raises(ProgramError, match="indices of 0, 1 and 2"):
        _product(kernel, a, b, spoil=(5, 11))


@pytest.mark.parametrize(("shape", "words"), [
    ((1, 64, 16), "MmadWithSparse m must be 0 or at least 2"),
    ((16, 66, 16), "MmadWithSparse k must be a multiple of 4, not 66"),
])  # fmt: skip
def test_what_the_documents_leave_out_is_refused(kernel, shape, words):
    m, k, n = shape
    c, full = np.zeros((m, n), np.int32), np.zeros(1 << 16, np.int8)
    with pytest.raises(ProgramError, match=words):
        kernel(full, full, full.view(np.uint8), c, m, k, n, k, 0, product="Ascend910B2", outputs=[3])


def test_other_series_have_no_indices(kernel):
    a, b = np.zeros((16, 64), np.int8), np.zeros((64, 16), np.int8)
    with pytest.raises(ProgramError, match="LoadDataWithSparse must be on dav-c220, not dav-m200"):
        _product(kernel, a, b, product="310p")


TENSORS = """
  LocalTensor<int8_t> a(TPosition::A2, 0, 512), b(TPosition::B2, 0, 512), l1(TPosition::B1, 0, 512);
  LocalTensor<uint8_t> idx(TPosition::B1, 512, 128);
  LocalTensor<int32_t> c(TPosition::CO1, 0, 256);
"""


@pytest.mark.parametrize(("statement", "words"), [
    ("LoadDataWithSparse(a, l1, idx, LoadData2DParams());", "LoadDataWithSparse must go to L0B, not to L0A"),
    ("LoadDataWithSparse(b, a, idx, LoadData2DParams());", "LoadDataWithSparse must come from L1, not from L0A"),
    ("MmadWithSparse(c, b, b, p);", "MmadWithSparse left operand must be in L0A, not in L0B"),
    ("p.kDirectionAlign = true; MmadWithSparse(c, a, b, p);", "MmadWithSparse must have kDirectionAlign false"),
    ("p.cmatrixSource = true; p.cmatrixInitVal = false; MmadWithSparse(c, a, b, p);", "cmatrixSource is not modelled"),
])  # fmt: skip
def test_places_and_parameters_that_it_does_not_have_are_refused(source_file, statement, words):
    with pytest.raises(KernelError, match=words):
        cube_statement(source_file, TENSORS, statement)(product="Ascend910B2")


@pytest.mark.parametrize(("statement", "words"), [
    ("LoadDataWithSparse(b, l1, l1, LoadData2DParams());", "with indices of uint8_t"),
    ("MmadWithSparse(f, a, b, p);", "MmadWithSparse is of int8_t into int32_t"),
])  # fmt: skip
def test_other_types_do_not_compile(source_file, statement, words):
    with pytest.raises(CompilationError, match=words):
        cube_statement(source_file, TENSORS, statement)
