"""Cores go on in the order of their numbers behind a flag of all of them, as behind SyncAll."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.accumulation import default_accumulation
from npu_sim.engines.execute import execute
from npu_sim.engines.execute_options import ExecuteOptions
from npu_sim.products import get_product
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void add_up(GM_ADDR x, GM_ADDR z, int32_t by_flags) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, 256);
  auto own = buffer.Get<float>();
  GlobalTensor<float> from, to;
  from.SetGlobalBuffer((__gm__ float*)x + 64 * GetBlockIdx());
  to.SetGlobalBuffer((__gm__ float*)z);
  DataCopy(own, from, 64);
  if (by_flags) {
    CrossCoreSetFlag<0, PIPE_MTE3>(3);
    CrossCoreWaitFlag(3);
  } else {
    SyncAll();
  }
  SetFlag<HardEvent::MTE2_MTE3>(0);
  WaitFlag<HardEvent::MTE2_MTE3>(0);
  SetAtomicAdd<float>();
  DataCopy(to, own, 64);
  SetAtomicNone();
}
"""
BLOCKS = 6
CHIP = get_product("Ascend910B2")


@pytest.fixture(scope="module")
def kernel(source_file):
    return ascendc.compile(source_file("add_up.cpp", SOURCE), "add_up", product=CHIP)


@pytest.fixture
def numbers():
    """Numbers whose sums depend on the order."""
    rng = np.random.default_rng(5)
    return (rng.standard_normal((BLOCKS, 64)) * 10.0 ** rng.integers(-3, 4, (BLOCKS, 64))).astype(np.float32)


def in_order(numbers, cores):
    total = np.zeros(64, np.float32)
    for core in cores:
        total += numbers[core]
    return total


@pytest.mark.parametrize("by_flags", [0, 1])
def test_sums_are_those_of_cores_in_the_order_of_their_numbers(kernel, numbers, by_flags):
    z = np.zeros(64, np.float32)
    run = kernel(numbers, z, np.int32(by_flags), blocks=BLOCKS, product=CHIP)
    expected = in_order(numbers, range(BLOCKS))
    # the core that came last to the flag would be first
    assert not np.array_equal(in_order(numbers, [BLOCKS - 1, *range(BLOCKS - 1)]), expected)
    np.testing.assert_array_equal(z, expected)
    assert not run.findings


def test_rows_that_are_run_again_add_in_the_same_order(kernel, numbers):
    z = np.zeros(64, np.float32)
    (launch,) = kernel.record(numbers, z, np.int32(1), blocks=BLOCKS, product=CHIP).launches
    tensors = {tensor.name: tensor for tensor in launch.gm.tensors}
    launch.gm.view(tensors["x"], np.float32, numbers.shape)[:] = numbers
    result = launch.gm.view(tensors["z"], np.float32, z.shape)
    result[:] = 0
    execute(launch, CHIP, ExecuteOptions(accumulation=default_accumulation(CHIP, "fp16")))
    np.testing.assert_array_equal(result, in_order(numbers, range(BLOCKS)))
