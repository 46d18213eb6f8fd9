"""Tables that a kernel defines in global memory itself."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.tables import has_tables
from npu_sim.engines.timeline import run_timeline
from npu_sim.products import get_product
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
{sides}
__gm__ const signed int odd[16] = {{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}};
static volatile uint32_t __gm__ words[16] = {{0, 0, 7}};
template <class T> struct Tables {{
  constexpr static __gm__ T halves[2][8] = {{{{0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5}}}};
}};

extern "C" __global__ __aicore__ void take(GM_ADDR y, GM_ADDR z) {{
  KERNEL_TASK_TYPE_DEFAULT({kind});
  if ASCEND_IS_AIC return;
  TPipe pipe;
  TBuf<> buffer;
  pipe.InitBuffer(buffer, 256);
  auto t = buffer.Get<int32_t>();
  GlobalTensor<int32_t> table, out;
  GlobalTensor<float> floats, reals;
  GlobalTensor<uint32_t> own;
  table.SetGlobalBuffer(const_cast<__gm__ int32_t*>(odd), 16);
  floats.SetGlobalBuffer((__gm__ float*)Tables<float>::halves, 16);
  own.SetGlobalBuffer((__gm__ uint32_t*)words);
  out.SetGlobalBuffer((__gm__ int32_t*)y);
  reals.SetGlobalBuffer((__gm__ float*)z);
  DataCopy(t, table, 16);
  DataCopy(t[16].ReinterpretCast<float>(), floats, 16);
  PipeBarrier<PIPE_ALL>();
  t.SetValue(8, table.GetValue(2) + odd[3]);
  own.SetValue(5, own.GetValue(2) + 1);
  PipeBarrier<PIPE_ALL>();
  t.SetValue(9, own.GetValue(5));
  PipeBarrier<PIPE_ALL>();
  DataCopy(out, t, 16);
  DataCopy(reals, t[16].ReinterpretCast<float>(), 16);
}}
"""


@pytest.mark.parametrize(
    ("kind", "sides"),
    [
        ("KERNEL_TYPE_AIV_ONLY", ""),
        ("KERNEL_TYPE_MIX_AIC_1_1", "#ifdef __DAV_C220_VEC__\n#endif\n#ifdef __DAV_C220_CUBE__\n#endif"),
    ],
)
def test_tables_are_tensors_of_the_call(tmp_path, kind, sides):
    path = tmp_path / "take.cpp"
    path.write_text(SOURCE.format(kind=kind, sides=sides))
    kernel = ascendc.compile(path, product="910b")
    for _ in range(2):  # each call finds them as they are written
        y, z = np.zeros(16, np.int32), np.zeros(16, np.float32)
        run = kernel(y, z, product="910b", outputs=[0, 1])
        assert y.tolist() == [1, 3, 5, 7, 9, 11, 13, 15, 5 + 7, 8, *range(21, 32, 2)]
        assert z.tolist() == [i + 0.5 for i in range(8)] + [0] * 8
        assert not run.findings
    assert run_timeline(run.launches[0], get_product("910b")).total_cycles > 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("const __gm__ int32_t a[4] = {1};", True),
        ("constexpr static __gm__ T a[2]{};", True),
        ("const __gm__ float a[2][3] = {{1}, {2}};", True),
        ("__gm__ const unsigned char a[] = {1};", True),
        ("static const uint8_t __gm__ a[N * 2] = {1};", True),
        ("// __gm__ int a[4] = {1};", False),
        ("auto* p = (__gm__ int32_t*)x; int a[4] = {1};", False),
        ("void f(__gm__ uint8_t* x, int n[4]) { }", False),
    ],
)
def test_which_sources_have_tables(text, found):
    assert has_tables([text]) == found
