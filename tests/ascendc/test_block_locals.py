"""Variables of a kernel that each core has for itself."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
struct Counted { int32_t rounds = 7; bool is_first = true; };
__BLOCK_LOCAL__ __inline__ Counted counted;
__BLOCK_LOCAL__ __inline__ int64_t sum;
// Each core counts in them by its number, and lets the others go on in between.
__global__ __aicore__ void count(GM_ADDR y, int32_t rounds) {
  GlobalTensor<int64_t> out;
  out.SetGlobalBuffer((__gm__ int64_t*)y);
  int64_t own = GetBlockIdx();
  int64_t firsts = 0;
  for (int32_t i = 0; i < rounds; i++) {
    firsts += counted.is_first;
    counted.is_first = false;
    counted.rounds++;
    sum += own + 1;
    SyncAll();
  }
  out.SetValue(4 * own, counted.rounds);
  out.SetValue(4 * own + 1, sum);
  out.SetValue(4 * own + 2, firsts);
}
"""


@pytest.mark.parametrize(("cores", "rounds"), [(1, 3), (4, 5), (24, 2)])
def test_each_core_has_its_own(source_file, cores, rounds):
    kernel = ascendc.compile(source_file("count.cpp", SOURCE), kind="vector")
    for _ in range(2):  # nothing is left for the next call
        y = np.zeros((cores, 4), np.int64)
        kernel(y, rounds, blocks=cores, outputs=[0])
        wanted = [[7 + rounds, (core + 1) * rounds, 1] for core in range(cores)]
        assert y[:, :3].tolist() == wanted
