"""A mask that is a number of lanes: 0 changes nothing, more than a repeat has is a whole repeat, as documented."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.products import get_product
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;

template <class T> __aicore__ inline void add_one(GM_ADDR x, GM_ADDR y, uint64_t lanes) {
  TPipe pipe;
  TQueBind<QuePosition::VECIN, QuePosition::VECOUT, 1> queue;
  pipe.InitBuffer(queue, 1, 1024);
  GlobalTensor<T> from, to;
  from.SetGlobalBuffer((__gm__ T*)x);
  to.SetGlobalBuffer((__gm__ T*)y);
  auto a = queue.AllocTensor<T>();
  DataCopy(a, from, 1024 / sizeof(T));
  PipeBarrier<PIPE_ALL>();
  Adds(a, a, T(1), lanes, 4, {1, 1, 8, 8});
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, a, 1024 / sizeof(T));
  queue.FreeTensor(a);
}

extern "C" __global__ __aicore__ void of_float(GM_ADDR x, GM_ADDR y, uint64_t lanes) { add_one<float>(x, y, lanes); }
extern "C" __global__ __aicore__ void of_half(GM_ADDR x, GM_ADDR y, uint64_t lanes) { add_one<half>(x, y, lanes); }
"""


@pytest.fixture(scope="module", params=["Ascend910B2", "Ascend310P3"])
def kernels(request, source_file):
    path, chip = source_file("lanes.cpp", SOURCE), get_product(request.param)
    return {np.dtype(t): ascendc.compile(path, f"of_{n}", product=chip) for n, t in (("float", "f4"), ("half", "f2"))}


@pytest.mark.parametrize("lanes", [0, 1, 63, 64, 65, 100, 127, 128, 129, 300])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_lanes_of_each_repeat(kernels, dtype, lanes):
    x = np.arange(1024 // np.dtype(dtype).itemsize).astype(dtype)
    y = np.zeros_like(x)
    run = kernels[np.dtype(dtype)].check(x, y, np.uint64(lanes), blocks=1, outputs=[1])
    assert not run.findings
    wanted = x.reshape(4, -1).copy()
    for repeat in wanted:
        for lane in range(len(repeat)):
            if lane < lanes:
                repeat[lane] += 1
    np.testing.assert_array_equal(y.reshape(4, -1), wanted)
