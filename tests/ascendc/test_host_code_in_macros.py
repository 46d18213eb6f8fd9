"""Macros whose text calls the runtime stay as they are: what is taken out of a source are bodies of host functions."""

from __future__ import annotations

import numpy as np

from npu_sim import ascendc
from npu_sim.ascendc.cores import kind_of
from npu_sim.ascendc.source import read_source
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
#define CHECKED(call)                                   \\
  do {                                                  \\
    if ((call) != ACL_SUCCESS) {                        \\
      printf("%s", aclGetRecentErrMsg());               \\
    }                                                   \\
  } while (0)
#define ONE(x) if (x) { aclrtFree(x); }
extern "C" __global__ __aicore__ void seven(GM_ADDR z) {
  AscendC::GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)z);
  out.SetValue(0, 7);
}
int32_t main() {
  CHECKED(aclInit(nullptr));
  seven<<<1, nullptr, nullptr>>>(nullptr);
  return 0;
}
"""


def test_a_macro_that_calls_the_runtime_is_left_alone(tmp_path):
    path = tmp_path / "seven.asc"
    path.write_text(SOURCE)
    text = read_source(path).text
    assert text.count("\n") == SOURCE.count("\n")
    assert text[: text.index("extern")] == SOURCE[: SOURCE.index("extern")]
    assert "<<<" not in text
    z = np.zeros(1, np.int32)
    ascendc.compile(path)(z, blocks=1)
    assert z[0] == 7


def test_a_launch_that_a_formatter_took_apart_is_host_code_too(tmp_path):
    path = tmp_path / "seven.cpp"
    main = SOURCE.index("int32_t main")
    path.write_text(
        SOURCE[:main] + "void seven_do(uint32_t n, void* s) {\n  seven << <n, nullptr, s >> > (nullptr);\n}\n"
    )
    text = read_source(path).text
    assert text.count("\n") == SOURCE[:main].count("\n") + 3
    assert "<< <" not in text
    z = np.zeros(1, np.int32)
    ascendc.compile(path)(z, blocks=1)
    assert z[0] == 7


def test_a_source_that_asks_for_both_kinds_of_core_is_for_both():
    sides = "#ifdef __DAV_C220_CUBE__\n#elif defined(__DAV_C220_VEC__)\n#endif\n"
    assert kind_of(f"{sides}__global__ __aicore__ void k(GM_ADDR z) {{}}") == ("mix", 2)
    one = "#ifdef __DAV_C220_VEC__\n#endif\n"
    assert kind_of(f"{one}__global__ __aicore__ void k(GM_ADDR z) {{}}") == ("vector", 2)
    said = "KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);"
    assert kind_of(f"{sides}__global__ __aicore__ void k(GM_ADDR z) {{ {said} }}") == ("vector", 2)
