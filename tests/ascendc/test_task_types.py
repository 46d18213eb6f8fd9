"""Which cores a kernel runs on where its text names several: by tiling key, and in branches that are left out."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;

// How many cores of each kind came by: a word for each block and core of it.
__aicore__ inline void come_by(GM_ADDR z) {
  auto words = (__gm__ int32_t*)z;
  if (ASCEND_IS_AIC) words[3 * GetBlockIdx()] = 1;
  else words[3 * (GetBlockIdx() / GetTaskRation()) + 1 + GetSubBlockIdx()] = 1;
}

extern "C" __global__ __aicore__ void by_key(GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  if (TILING_KEY_IS(7)) {
    KERNEL_TASK_TYPE(7, KERNEL_TYPE_AIC_ONLY);
    come_by(z);
  } else if (TILING_KEY_IS(10000000000000000001UL)) {
    KERNEL_TASK_TYPE(10000000000000000001UL, KERNEL_TYPE_MIX_AIC_1_1);
    come_by(z);
  } else {
    come_by(z);
  }
}

template <bool both> __global__ __aicore__ void by_branch(GM_ADDR z) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_0);
  if constexpr (both) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
  }
  come_by(z);
}

extern "C" __global__ __aicore__ void by_number(GM_ADDR z, int64_t key) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  KERNEL_TASK_TYPE(key, KERNEL_TYPE_MIX_AIC_1_1);  // no constant: which key it is for is not known
  come_by(z);
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("kinds.cpp", SOURCE)


def cores_of(kernel, *numbers, product="Ascend910B2", **given):
    z = np.zeros((2, 3), np.int32)
    run = kernel(z, *numbers, blocks=2, product=product, **given)
    assert not run.findings
    return z.tolist()


@pytest.mark.parametrize(("key", "cores"), [(7, [1, 0, 0]), (10**19 + 1, [1, 1, 0]), (1, [1, 1, 1]), (0, [1, 1, 1])])
def test_a_tiling_key_has_cores_of_its_own(source, key, cores):
    assert cores_of(ascendc.compile(source, "by_key"), tiling_key=key) == [cores, cores]


@pytest.mark.parametrize(("name", "cores"), [("by_branch<false>", [1, 0, 0]), ("by_branch<true>", [1, 1, 1])])
def test_a_branch_that_the_compiler_leaves_out_names_no_cores(source, name, cores):
    assert cores_of(ascendc.compile(source, name)) == [cores, cores]


def test_a_kind_that_is_given_goes_before_the_text(source):
    kernel = ascendc.compile(source, "by_branch<true>", kind="cube")
    assert cores_of(kernel) == [[1, 0, 0]] * 2


def test_a_key_that_is_no_constant_is_that_of_no_call(source):
    assert cores_of(ascendc.compile(source, "by_number"), np.int64(3)) == [[0, 1, 0]] * 2
