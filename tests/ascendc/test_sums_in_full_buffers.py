"""ReduceSum of a number of elements where a kernel has all of UB: only the result changes."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
// The source begins at a quarter of UB; what is behind three quarters stays as it came. The last argument says whether
// the temporary tensor is a place of its own, below the source.
extern "C" __global__ __aicore__ void sums(GM_ADDR x, GM_ADDR y, int32_t count, int32_t result, int32_t own) {
  constexpr uint32_t quarter = 49152, all = 4 * quarter / sizeof(TYPE);
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffer;
  pipe.InitBuffer(buffer, 4 * quarter);
  GlobalTensor<TYPE> from, to;
  from.SetGlobalBuffer((__gm__ TYPE*)x);
  to.SetGlobalBuffer((__gm__ TYPE*)y);
  auto room = buffer.Get<TYPE>();
  DataCopy(room, from, all);
  PipeBarrier<PIPE_ALL>();
  auto source = room[quarter / sizeof(TYPE)];
  ReduceSum(room[result], source, own ? room : source, count);
  PipeBarrier<PIPE_ALL>();
  DataCopy(to, room, all);
}
"""


def naive_sum(values):
    """Lanes of a repeat as a tree of neighbours, the repeats one behind the other, each step in the type."""
    dtype, lanes = values.dtype, 256 // values.dtype.itemsize
    total = None
    for first in range(0, len(values), lanes):
        leaf = np.zeros(lanes, dtype)
        part = values[first : first + lanes]
        leaf[: len(part)] = part
        while len(leaf) > 1:
            leaf = (leaf[::2].astype(np.float32) + leaf[1::2].astype(np.float32)).astype(dtype)
        total = leaf[0] if total is None else dtype.type(np.float32(total) + np.float32(leaf[0]))
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_sum_in_a_full_buffer_changes_only_its_result(source_file, dtype):
    rng = np.random.default_rng(3)
    item = np.dtype(dtype).itemsize
    kernel = ascendc.compile(
        source_file("sums.cpp", SOURCE), "sums", defines=[f"TYPE={'float' if item == 4 else 'half'}"], product="910b"
    )
    lanes, start, whole = 256 // item, 49152 // item, 196608 // item
    block = 32 // item
    for count in (1, lanes - 1, lanes, lanes + 1, 5 * lanes, 7 * lanes + 3, start):
        x = rng.uniform(0.5, 1.5, whole).astype(dtype)
        expected = naive_sum(x[start : start + count])
        places = {0, start, start + count // 2 // block * block, start + (count - 1) // block * block, whole - block}
        for result in sorted(places):
            y = np.zeros_like(x)
            run = kernel(x, y, count, result, 0, product="910b")
            wanted = x.copy()
            wanted[result] = expected
            np.testing.assert_array_equal(y.view(f"u{item}"), wanted.view(f"u{item}"))
            assert not [found for found in run.findings if "Buffer" in found.kind.value]
        kernel(x, y, count, start, 1, product="910b")
        assert y[start] == expected
