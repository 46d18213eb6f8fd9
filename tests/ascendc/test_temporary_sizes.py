"""What host code is told of temporary buffers is what functions of the library need, and no more."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import host_program, require_compiler

require_compiler()

FUNCTIONS = [
    "Sigmoid",
    "Tanh",
    "Log",
    "Log2",
    "Log10",
    "Floor",
    "Ceil",
    "Trunc",
    "Round",
    "Frac",
    "Sign",
    "Sin",
    "Cos",
    "Tan",
    "Erf",
    "Erfc",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
]
COUNT = 300

HOST = """
#include <cstdio>
#include "tiling/tiling_api.h"
int main() {
  uint32_t most, least;
  ge::Shape shape(std::vector<int64_t>{30, 10});
  AscendC::TensorShape row{{300}}, one{{1}}, matrix{{7, 48}};
  for (uint32_t size : {4, 2}) {
#define SAY(Name) AscendC::Get##Name##MaxMinTmpSize(shape, size, false, most, least); printf("%u %u ", most, least);
    CALLS
    AscendC::GetPowerMaxMinTmpSize(row, one, false, size, false, most, least); printf("%u %u ", most, least);
    AscendC::GetXorMaxMinTmpSize(row, 2, false, most, least); printf("%u %u ", most, least);
    AscendC::GetSumMaxMinTmpSize(48, size, false, most, least); printf("%u %u ", most, least);
    AscendC::GetMeanMaxMinTmpSize(48, size, size, false, most, least); printf("%u %u ", most, least);
    least = AscendC::GetSoftMaxMinTmpSize(matrix, size, false);
    printf("%u %u\\n", AscendC::GetSoftMaxMaxTmpSize(matrix, size, false), least);
  }
  AscendC::tiling::SoftMaxTiling t;
  AscendC::SoftMaxTilingFunc(matrix, 4, 1024, t);
  for (uint32_t i = 0; i < 16; i++) printf("%u ", ((uint32_t*)&t)[i]);
}
"""

KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T> __global__ __aicore__ void apply(GM_ADDR x, GM_ADDR y, int32_t which, uint32_t room,
                                                    GM_ADDR tiling) {
  GET_TILING_DATA_WITH_STRUCT(SoftMaxTiling, t, tiling);
  GlobalTensor<T> in, out;
  in.SetGlobalBuffer((__gm__ T*)x); out.SetGlobalBuffer((__gm__ T*)y);
  TPipe pipe; TBuf<TPosition::VECCALC> a, b, c;
  pipe.InitBuffer(a, 2048); pipe.InitBuffer(b, 2048); pipe.InitBuffer(c, room);
  LocalTensor<T> from = a.Get<T>(), to = b.Get<T>();
  LocalTensor<uint8_t> free = c.Get<uint8_t>();
  DataCopy(from, in, 336);
  SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);
  Duplicate(to, T(0), 336);
  int32_t next = 0;
#define TRY(F) if (which == next++) F(to, from, free, 300);
  CALLS
  if (which == next++) Power(to, from, T(3), free, 300);
  if (which == next++)
    Xor(to.template ReinterpretCast<int16_t>(), from.template ReinterpretCast<int16_t>(),
        from.template ReinterpretCast<int16_t>(), free, 300);
  if (which == next++) Sum(to, from, free, SumParams{7, 48, 48});
  if (which == next++) Mean(to, from, free, MeanParams{7, 48, 48});
  if (which == next++) SoftMax<T>(to, from, free, t, SoftMaxShapeInfo{7, 48, 7, 48});
  SetFlag<HardEvent::V_MTE3>(0); WaitFlag<HardEvent::V_MTE3>(0);
  DataCopy(out, to, 336);
}
"""
NAMES = [*FUNCTIONS, "Power", "Xor", "Sum", "Mean", "SoftMax"]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Most and least bytes of each function, by the size of the type; the tiling."""
    program = host_program(
        tmp_path_factory.mktemp("sizes"), HOST.replace("CALLS", " ".join(f"SAY({name})" for name in FUNCTIONS))
    )
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    *sizes, tiling = [np.array(line.split(), int) for line in said]
    return {4: sizes[0].reshape(-1, 2), 2: sizes[1].reshape(-1, 2)}, tiling


@pytest.mark.parametrize(("cpp", "dtype"), [("float", np.float32), ("half", np.float16)])
def test_the_least_size_is_enough_and_the_most_is_all_that_helps(told, source_file, cpp, dtype):
    path = source_file("apply.cpp", KERNEL.replace("CALLS", " ".join(f"TRY({name})" for name in FUNCTIONS)))
    kernel = ascendc.compile(path, f"apply<{cpp}>")
    sizes, tiling = told
    tiling = tiling.astype(np.uint32)
    given = np.random.default_rng(3).uniform(0.1, 0.9, 336).astype(dtype)
    for which, (name, (most, least)) in enumerate(zip(NAMES, sizes[np.dtype(dtype).itemsize], strict=True)):
        x = given + dtype(name == "Acosh")
        seen = {}
        for room in (least, most, most + 2048):
            y = np.zeros(336, dtype)
            run = kernel(x, y, which, np.uint32(room), tiling=tiling)
            seen[room] = y, run.rows().size
            assert not [one for one in run.findings if "ErrorWrite3" not in str(one)]  # what is filled and not read
        assert np.array_equal(seen[least][0], seen[most][0]), name
        assert seen[most][1] == seen[most + 2048][1] <= seen[least][1], name
        if least > 256:
            # of element by element a kernel may have less: down to blocks of 32 bytes of each part
            few = least if name == "SoftMax" else least * 32 // (64 * np.dtype(dtype).itemsize)
            for room in (max(least - 32, few), few):
                y = np.zeros(336, dtype)
                assert not kernel(x, y, which, np.uint32(room), tiling=tiling).refused
                assert np.array_equal(y, seen[most][0]), name
            with pytest.raises(ascendc.KernelError, match=f"{name} must be given a temporary buffer of at least {few}"):
                kernel(x, np.zeros(336, dtype), which, np.uint32(few - 32), tiling=tiling)


def test_the_tiling_of_softmax_has_the_sizes_of_the_matrix(told):
    # 1024 bytes hold 256 floats, so 4 rows of 48 and a block
    assert told[1].tolist() == [7, 48, 336, 7, 8, 56, 4, 48, 192, 4, 8, 32, 1, 3, 144, 24]
