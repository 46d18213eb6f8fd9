"""Products, what holds of any or of all, and sums of exclusive ors, from C++, against loops over the elements."""

from __future__ import annotations

import math
import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc import KernelError
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import PARTS, host_program, require_compiler

require_compiler()

SOURCE = (
    PARTS
    + """
template <class T, class pattern>
__global__ __aicore__ void reduces(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width, int32_t which, uint32_t room) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> in;
  uint32_t pitch = (width * sizeof(T) + 31) / 32 * 32;
  uint32_t kept = std::is_same_v<pattern, Pattern::Reduce::AR> ? rows : width;
  pipe.InitBuffer(in, rows * pitch);
  Part<T> out(pipe, y, kept, false);
  GlobalTensor<T> X;
  X.SetGlobalBuffer((__gm__ T*)x);
  LocalTensor<T> a = in.Get<T>(), r = out.local;
  DataCopyPad(a, X, DataCopyExtParams(rows, width * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
  uint32_t shape[2] = {rows, width};
  with_room(pipe, room, [&](auto... free) {
    if (which == 0) ReduceAny<T, pattern>(r, a, free..., shape, true);
    if (which == 1) ReduceAll<T, pattern>(r, a, free..., shape, true);
    if constexpr (std::is_same_v<T, float>)
      if (which == 2) ReduceProd<T, pattern, true>(r, a, free..., shape, true);
  });
  out.leave();
}
extern "C" __global__ __aicore__ void xors(GM_ADDR a, GM_ADDR b, GM_ADDR y, uint32_t n, uint32_t room) {
  TPipe pipe;
  Part<int16_t> x(pipe, a, n), z(pipe, b, n), out(pipe, y, 1, false);
  with_room(pipe, room, [&](auto... free) { ReduceXorSum<int16_t>(out.local, x.local, z.local, free..., n); });
  out.leave();
}
template <class T> __global__ __aicore__ void wrong(GM_ADDR x) {
  LocalTensor<T> a;
  uint32_t shape[2] = {1, 1};
  ReduceProd<T, Pattern::Reduce::AR>(a, a, shape, true);
}
"""
)
HOST = """
#include "tiling/tiling_api.h"
#include <cstdio>
using namespace AscendC;
int main() {
  TensorShape shape(std::vector<int64_t>{40, 70}), row(std::vector<int64_t>{1000});
  uint32_t most = 0, least = 0;
  auto bytes = TensorDataType::DT_UINT8;
  GetReduceAnyMaxMinTmpSize(shape, bytes, ReducePattern::AR, true, false, most, least); printf("%u %u ", least, most);
  GetReduceAllMaxMinTmpSize(shape, bytes, ReducePattern::RA, true, false, most, least); printf("%u %u ", least, most);
  auto floats = TensorDataType::DT_FLOAT;
  GetReduceProdMaxMinTmpSize(shape, floats, ReducePattern::AR, true, false, most, least); printf("%u %u ", least, most);
  GetReduceXorSumMaxMinTmpSize(row, 2, false, most, least); printf("%u %u ", least, most);
}
"""
SHAPES = ((1, 16), (7, 19), (20, 200), (3, 64), (17, 129), (40, 70), (70, 33))


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("kernels.cpp", SOURCE)


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """Least and most bytes of any by rows, all by columns, products, exclusive ors."""
    program = host_program(tmp_path_factory.mktemp("sizes"), HOST)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return np.array(said.split(), int).reshape(4, 2).tolist()


def _lines(x, pattern):
    return x.tolist() if pattern == "AR" else x.T.tolist()


@pytest.mark.parametrize("pattern", ["AR", "RA"])
@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("uint8_t", np.uint8)])
def test_what_holds_of_any_and_of_all(source, cpp, dtype, pattern):
    kernel = ascendc.compile(source, f"reduces<{cpp}, AscendC::Pattern::Reduce::{pattern}>")
    for rows, width in SHAPES:
        rng = np.random.default_rng([rows, width])
        for which, holds in enumerate((any, all)):
            rare = rng.random(rows if pattern == "AR" else width) < 0.5
            x = np.full((rows, width), which, dtype)  # some rows have one that is not as the others
            for line in np.flatnonzero(rare).tolist():
                other = int(rng.integers(width if pattern == "AR" else rows))
                x[(line, other) if pattern == "AR" else (other, line)] = 1 - which
            for room in (0, 2 * width + 9000):
                y = np.full(len(rare), 7, dtype)
                run = kernel(x, y, np.uint32(rows), np.uint32(width), which, np.uint32(room), outputs=[1])
                assert run.findings == ()
                assert y.tolist() == [float(holds(line)) for line in _lines(x, pattern)]


@pytest.mark.parametrize("pattern", ["AR", "RA"])
@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("uint8_t", np.uint8)])
def test_of_other_numbers_the_extreme_is_what_holds(source, cpp, dtype, pattern):
    kernel = ascendc.compile(source, f"reduces<{cpp}, AscendC::Pattern::Reduce::{pattern}>")
    for rows, width in SHAPES:
        x = np.random.default_rng([width, rows]).integers(3, 256, (rows, width)).astype(dtype)
        for which, extreme in enumerate((max, min)):
            y = np.zeros(rows if pattern == "AR" else width, dtype)
            kernel(x, y, np.uint32(rows), np.uint32(width), which, np.uint32(0))
            assert y.tolist() == [extreme(line) for line in _lines(x, pattern)]


@pytest.mark.parametrize("room", [0, 256, 1024])
@pytest.mark.parametrize("pattern", ["AR", "RA"])
def test_products(source, pattern, room):
    kernel = ascendc.compile(source, f"reduces<float, AscendC::Pattern::Reduce::{pattern}>")
    for rows, width in SHAPES:
        x = np.random.default_rng([rows, width]).uniform(0.9, 1.1, (rows, width)).astype(np.float32)
        x[::2] *= -1
        y = np.zeros(rows if pattern == "AR" else width, np.float32)
        run = kernel(x, y, np.uint32(rows), np.uint32(width), 2, np.uint32(room), outputs=[1])
        assert run.findings == ()
        wanted = [math.prod(line) for line in _lines(x.astype(np.float64), pattern)]
        assert np.allclose(y, wanted, rtol=2e-5, atol=0)  # as many roundings as there are factors


def test_products_and_bits_are_those_of_the_pages(source):
    x = np.array([[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 0.5, 4, 0.5, 0.5, 5, 6]], np.float32)
    bits, y = np.array([[0, 1, 1, 0, 1, 0, 1, 1], [0, 1, 0, 1, 0, 1, 1, 0]], np.float32), np.zeros(2, np.float32)
    kernel = ascendc.compile(source, "reduces<float, AscendC::Pattern::Reduce::AR>")
    kernel(x, y, np.uint32(2), np.uint32(8), 2, np.uint32(256))
    assert y.tolist() == [40320, 30]
    kernel(bits, y, np.uint32(2), np.uint32(8), 0, np.uint32(256))
    assert y.tolist() == [1, 1]
    kernel(bits, y, np.uint32(2), np.uint32(8), 1, np.uint32(256))
    assert y.tolist() == [0, 0]


@pytest.mark.parametrize("room", [0, 1280, 6000])
@pytest.mark.parametrize(("n", "most"), [(32, 2**15), (1, 2**15), (700, 60), (1000, 3), (300, 2**15), (128, 300)])
def test_exclusive_ors_are_summed_and_clamped(source, n, most, room):
    rng = np.random.default_rng([n, most])
    a, b = (rng.integers(-most, most, n).astype(np.int16) for _ in range(2))
    y = np.zeros(1, np.int16)
    kernel = ascendc.compile(source, "xors")
    for x, z in ((a, b), (np.zeros(n, np.int16), np.ones(n, np.int16)), (np.abs(a), -np.abs(b) - 1)):
        run = kernel(x, z, y, np.uint32(n), np.uint32(room), outputs=[2])
        assert run.findings == ()
        total = sum(one ^ other for one, other in zip(x.tolist(), z.tolist(), strict=True))
        assert y[0] == min(max(total, -(2**15)), 2**15 - 1)


def test_the_least_sizes_are_enough_and_less_is_refused(source, sizes):
    (any_least, any_most), (all_least, all_most), (prod_least, _), (xor_least, xor_most) = sizes
    x, y = np.ones((40, 70), np.uint8), np.zeros(70, np.uint8)
    rows = ascendc.compile(source, "reduces<uint8_t, AscendC::Pattern::Reduce::AR>")
    columns = ascendc.compile(source, "reduces<uint8_t, AscendC::Pattern::Reduce::RA>")
    for kernel, which, sizes_of in ((rows, 0, (any_least, any_most)), (columns, 1, (all_least, all_most))):
        for room in sizes_of:
            y[:] = 0
            kernel(x, y, np.uint32(40), np.uint32(70), which, np.uint32(room))
            assert y[:40].all()
    with pytest.raises(KernelError, match=f"ReduceAny must be given a temporary buffer of at least {any_least} bytes"):
        rows(x, y, np.uint32(40), np.uint32(70), 0, np.uint32(any_least - 32))
    with pytest.raises(KernelError, match="ReduceAll must be given a temporary buffer of at least 128 bytes, not 96"):
        columns(x, y, np.uint32(40), np.uint32(70), 1, np.uint32(96))
    floats, products = np.ones((40, 70), np.float32), np.zeros(40, np.float32)
    kernel = ascendc.compile(source, "reduces<float, AscendC::Pattern::Reduce::AR>")
    kernel(floats, products, np.uint32(40), np.uint32(70), 2, np.uint32(prod_least))
    assert (products == 1).all()
    with pytest.raises(KernelError, match="ReduceProd must be given a temporary buffer of at least 256 bytes, not 224"):
        kernel(floats, products, np.uint32(40), np.uint32(70), 2, np.uint32(prod_least - 32))
    a, total = np.arange(1000, dtype=np.int16) % 30, np.zeros(1, np.int16)
    for room in (xor_least, xor_most):
        ascendc.compile(source, "xors")(a, 0 * a, total, np.uint32(1000), np.uint32(room))
        assert total[0] == a.sum()
    with pytest.raises(
        KernelError, match="ReduceXorSum must be given a temporary buffer of at least 1280 bytes, not 64"
    ):
        ascendc.compile(source, "xors")(a, a, total, np.uint32(1000), np.uint32(64))


def test_other_types_and_products_do_not_compile(source):
    with pytest.raises(CompilationError, match="ReduceProd is of float"):
        ascendc.compile(source, "wrong<half>", kind="vector").build()
    with pytest.raises(CompilationError, match="ReduceProd is modelled on A2 and A3 alone"):
        ascendc.compile(source, "wrong<float>", product="310p").build("310p")
