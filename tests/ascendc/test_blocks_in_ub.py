"""Copies between rows in global memory and columns of blocks in UB, and names that public kernels use around them."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from npu_sim.compilers import CompilationError
from tests.ascendc.compiler import require_compiler

require_compiler()

BLOCKS = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> void both(GM_ADDR x, GM_ADDR y, GM_ADDR z, int32_t rows, int32_t columns, int32_t pitch,
                             int32_t step) {
  TPipe pipe; TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, 65536);
  LocalTensor<T> ub = buffer.Get<T>();
  GlobalTensor<T> in, out, back;
  in.SetGlobalBuffer((__gm__ T*)x); out.SetGlobalBuffer((__gm__ T*)y); back.SetGlobalBuffer((__gm__ T*)z);
  Duplicate(ub, T(0), 65536 / sizeof(T));
  SetFlag<HardEvent::V_MTE2>(0); WaitFlag<HardEvent::V_MTE2>(0);
  DataCopy(ub, in, Nd2NzParams(1, rows, columns, 0, pitch, rows * step, step, 0));
  SetFlag<HardEvent::MTE2_MTE3>(0); WaitFlag<HardEvent::MTE2_MTE3>(0);
  uint32_t padded = (columns + 15) / 16 * 16;
  DataCopy(out, ub, rows * padded);
  DataCopy(back, ub, Nz2NdParamsFull(1, rows, padded, 0, rows, padded, 0));
}
extern "C" __global__ __aicore__ void blocks(GM_ADDR x, GM_ADDR y, GM_ADDR z, int32_t rows, int32_t columns,
                                             int32_t pitch, int32_t step, int32_t bytes) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  if (bytes == 2) both<half>(x, y, z, rows, columns, pitch, step);
  else both<float>(x, y, z, rows, columns, pitch, step);
}
extern "C" __global__ __aicore__ void several(GM_ADDR x, GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  TPipe pipe; TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, 4096);
  LocalTensor<half> ub = buffer.Get<half>();
  GlobalTensor<half> in, out;
  in.SetGlobalBuffer((__gm__ half*)x); out.SetGlobalBuffer((__gm__ half*)y);
  DataCopy(ub, in, 2048);
  SetFlag<HardEvent::MTE2_MTE3>(0); WaitFlag<HardEvent::MTE2_MTE3>(0);
  DataCopy(out, ub, Nz2NdParamsFull(2, 12, 32, 3, 16, 48, 1000));
}
"""


@pytest.fixture(scope="module")
def blocks(source_file):
    return ascendc.compile(source_file("blocks.cpp", BLOCKS), kernel="blocks")


def _run(blocks, dtype, rows, columns, pitch, step=None):
    x = np.random.default_rng(rows).integers(-99, 99, (rows, pitch)).astype(dtype)
    padded = -(-columns // 16) * 16
    y, z = np.zeros(rows * padded, dtype), np.zeros((rows, padded), dtype)
    item = x.itemsize
    run = blocks(x, y, z, *map(np.int32, (rows, columns, pitch, step or item // 2, item)))
    return x, y, z, padded, run


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("rows", "columns", "pitch"), [(16, 48, 48), (7, 37, 50), (300, 16, 16), (1, 5, 8)])
def test_rows_become_columns_of_blocks_and_rows_again(blocks, dtype, rows, columns, pitch):
    x, y, z, padded, run = _run(blocks, dtype, rows, columns, pitch)
    got = y.reshape(-1, rows, 16).transpose(1, 0, 2).reshape(rows, padded)
    assert np.array_equal(got[:, :columns], x[:, :columns])
    block = 32 // x.itemsize
    assert not got[:, -(-columns // block) * block :].any()  # behind the last block, which is filled
    assert np.array_equal(z, got)
    assert not [found for found in run.findings if found.severity == "error"]


def test_matrices_lie_as_the_strides_say(tmp_path):
    path = tmp_path / "blocks.cpp"
    path.write_text(BLOCKS)
    x, y = np.arange(2048).astype(np.float16), np.full((2, 1000), -1, np.float16)
    ascendc.compile(path, kernel="several")(x, y)
    wanted = np.full((2, 1000), -1, np.float16)
    for matrix in range(2):  # three squares of 256 apart, columns of 16 rows of which 12 are taken
        for row in range(12):
            for column in range(32):
                wanted[matrix, row * 48 + column] = x[matrix * 768 + column // 16 * 256 + row * 16 + column % 16]
    assert np.array_equal(y, wanted)


def test_what_a_device_does_not_do_is_refused(blocks):
    with pytest.raises(KernelError, match="dstNzNStride must be 1 in UB, not 3"):
        _run(blocks, np.float16, 4, 16, 16, step=3)
    with pytest.raises(KernelError, match="at most 255 rows"):
        _run(blocks, np.float16, 300, 16, 32)


OWN_NAMES = """
#include "kernel_operator.h"
namespace own {
inline constexpr int64_t Align(int64_t a, int64_t b) { return 100 * a + b; }
template <class T> inline constexpr T AlignDown(T a, T b) { return 100 * a + b; }
inline constexpr uint32_t CeilT(uint32_t a, int32_t b) { return 100 * a + b; }
template <class T> inline constexpr T MaxValue(T a, T b) { return 100 * a + b; }
inline constexpr double MinValue(double a, double b) { return 100 * a + b; }
}
using namespace own;
using namespace AscendC;
extern "C" __global__ __aicore__ void names(GM_ADDR z) {
  auto out = (__gm__ int32_t*)z;
  uint32_t a = 3; uint64_t b = 4;
  out[0] = Align(a, a); out[1] = Align(a, b);
  out[2] = AlignDown(a, a); out[3] = AlignDown<int64_t>(a, b);
  out[4] = CeilT(a, a); out[5] = MaxValue<int>(a, b); out[6] = int32_t(MinValue(3.0f, 4.0f));
}
"""
LIBRARY_NAMES = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void names(GM_ADDR z) {
  auto out = (__gm__ int32_t*)z;
  uint32_t a = 13; uint64_t b = 4;
  out[0] = Align(a, b); out[1] = Align<uint32_t>(a, b);
  out[2] = AlignDown(a, b); out[3] = AlignDown<int64_t>(a, b);
  out[4] = CeilT(a, b); out[5] = MaxValue<int>(a, b); out[6] = int32_t(4 * (MinValue(3.5f, 4.0f) + MaxValue(1.f, 2.f)));
}
"""


@pytest.mark.parametrize(
    ("source", "values"),
    [(OWN_NAMES, [303, 304, 303, 304, 303, 304, 304]), (LIBRARY_NAMES, [16, 16, 12, 12, 4, 13, 22])],
)
def test_functions_of_a_kernel_s_own_go_before_the_library_s_of_their_name(source_file, source, values):
    z = np.zeros(7, np.int32)
    ascendc.compile(source_file("own_names.cpp", source), "names", product="Ascend910B2")(z)
    assert z.tolist() == values


NAMES = """
#include "kernel_operator.h"
#include "adv_api/kernel_tiling.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
struct Sizes { int32_t n; AscendC::tiling::TCubeTiling product; };
void fill(GM_ADDR z, __tiling_data_ptr__ Sizes* sizes) {
  TPipe pipe; TBuf<> buffer;
  pipe.InitBuffer(buffer, 32);
  GlobalTensor<int32_t> out; out.SetGlobalBuffer((__gm__ int32_t*)z);
  auto b = buffer.Get<int32_t>();
  Duplicate(b, int32_t(Align<uint32_t>(sizes->n, 8) + MinValue(3, 4) + CeilT(7, 4)), 8);
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, b, 8);
}
template <class T> void multiply(TPipe& pipe) {
  TBuf<TPosition::A2> a; TBuf<TPosition::B2> b; TBuf<TPosition::CO1> c;
  pipe.InitBuffer(a, 512); pipe.InitBuffer(b, 512); pipe.InitBuffer(c, 1024);
  MmadParams p; p.m = 16; p.n = 16; p.k = 64; p.cmatrixInitVal = false; p.cmatrixSource = true;
  Mmad(c.Get<int32_t>(), a.template Get<T>(), b.template Get<T>(), p);
}
extern "C" __global__ __aicore__ void names(GM_ADDR z, GM_ADDR tiling) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  REGISTER_TILING_DEFAULT(Sizes);
  GET_TILING_DATA_PTR_WITH_STRUCT(Sizes, sizes, tiling);
  fill(z, sizes);
}
extern "C" __global__ __aicore__ void four_bits(GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  TPipe pipe;
  multiply<int4b_t>(pipe);
}
extern "C" __global__ __aicore__ void untold(GM_ADDR z, GM_ADDR tiling) {
#ifdef UNTOLD
  GET_TILING_DATA(sizes, tiling);
#endif
}
"""


def test_names_of_public_headers(tmp_path):
    path = tmp_path / "names.cpp"
    path.write_text(NAMES)
    z = np.zeros(8, np.int32)
    ascendc.compile(path, kernel="names")(z, tiling=np.full(51, 11, np.int32))
    assert (z == 16 + 3 + 2).all()
    # a product the machine has not is refused where it is called
    with pytest.raises(KernelError, match="Mmad of int4b_t is modelled without a bias"):
        ascendc.compile(path, kernel="four_bits")(z)


def test_a_tiling_without_structure_is_told(tmp_path):
    path = tmp_path / "names.cpp"
    path.write_text(NAMES)
    with pytest.raises(CompilationError, match="GET_TILING_DATA must find the structure of the tiling"):
        ascendc.compile(path, kernel="untold", defines=["UNTOLD"])


def test_a_project_may_have_a_header_of_the_name_that_others_stand_for(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "matmul_intf.h").write_text('#pragma once\n#include "adv_api/matmul/matmul_intf.h"\n')
    path = tmp_path / "own.cpp"
    path.write_text("""
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using Half = matmul::MatmulType<AscendC::TPosition::GM, CubeFormat::ND, half>;
extern "C" __global__ __aicore__ void own(GM_ADDR z) { matmul::Matmul<Half, Half, Half> product; }
""")
    ascendc.compile(path, include=[tmp_path], kind="cube")


def test_types_that_a_source_undefines_are_those_of_the_arguments(tmp_path):
    path = tmp_path / "typed.cpp"
    path.write_text("""
#include "kernel_operator.h"
#if defined(ORIG_DTYPE_Y) && ORIG_DTYPE_Y == DT_BF16
#define OUT_BF16
#endif
#ifdef OUT_BF16
#undef DTYPE_SCALE
#define DTYPE_SCALE bfloat16_t
#endif
extern "C" __global__ __aicore__ void typed(GM_ADDR scale, GM_ADDR y) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  AscendC::GlobalTensor<DTYPE_Y> out;
  out.SetGlobalBuffer((__gm__ DTYPE_Y*)y, 4);
  out.SetValue(0, static_cast<DTYPE_Y>(sizeof(DTYPE_SCALE)));
}
""")
    y = np.zeros(4, np.int32)
    ascendc.compile(path)(np.zeros(4, np.uint64), y)
    assert y[0] == 8
