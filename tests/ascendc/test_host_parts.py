"""What a source has of its host: tilings in headers of kernels, bindings of PyTorch, headers that are nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

TILING = """
#include "register/tilingdata_base.h"
namespace optiling {
namespace inner {
BEGIN_TILING_DATA_DEF(SumTilingData)
  TILING_DATA_FIELD_DEF(uint32_t, first);
  TILING_DATA_FIELD_DEF(uint32_t, second);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Sum, SumTilingData)
}
}
"""
KERNEL = """
#include "kernel_operator.h"
{include}
extern "C" __global__ __aicore__ void sum(GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {{
  GET_TILING_DATA(given, tiling);
  AscendC::GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)y);
  out.SetValue(0, given.first + given.second);
}}
"""


@pytest.mark.parametrize(
    ("place", "include"),
    [
        ("op_host/sum_tiling.h", ""),
        ("op_host/sum_tiling.hpp", ""),
        ("op_host/sum.cpp", ""),
        ("op_kernel/sum_tiling.h", ""),
        ("op_kernel/sum_tiling.h", '#include "sum_tiling.h"'),
    ],
)
def test_a_tiling_is_found_wherever_the_project_defines_it(tmp_path, place, include):
    for folder in ("op_host", "op_kernel"):
        (tmp_path / folder).mkdir()
    (tmp_path / place).write_text(TILING)
    source = tmp_path / "op_kernel" / "sum.cpp"
    source.write_text(KERNEL.format(include=include))
    y = np.zeros(8, np.int32)
    ascendc.compile(source)(y, None, tiling=np.array([40, 2], np.uint32))
    assert y[0] == 42


HOST = """
#include <torch/extension.h>
#include "torch_npu/csrc/core/npu/NPUStream.h"
#include "platform/platform_infos_def.h"
#include "acl/acl_prof.h"
#include "kernel_operator.h"
#include "graph/own.h"
using namespace AscendC;

__global__ __vector__ void five(GM_ADDR y) {
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)y);
  out.SetValue(0, NUMBER);
}
#define WITH_LAUNCH(name)                                            \\
  extern "C" __global__ __vector__ void name##_kernel(GM_ADDR y) {  \\
    *(__gm__ int32_t*)y = 6;                                         \\
  }                                                                  \\
  extern "C" void name##_do(uint32_t n, void* stream, uint8_t* y) { \\
    name##_kernel<<<n, nullptr, stream>>>(y);                        \\
  }
WITH_LAUNCH(six)
aclprofTensor of_host(uint32_t type) {
  aclprofTensor made;
  made.type = type;
  return made;
}
namespace host {
at::Tensor run(const at::Tensor& x) {
  five<<<1, 0, nullptr>>>((uint8_t*)x.mutable_data_ptr());
  return x;
}
}
TORCH_LIBRARY(own_ops, m) { m.def("run(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(own_ops, PrivateUse1, m) { m.impl("run", TORCH_FN(host::run)); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &host::run); }
"""


def test_bindings_and_headers_of_the_host_are_left_out(tmp_path):
    path = tmp_path / "five.asc"
    path.write_text(HOST)
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "own.h").write_text("#define NUMBER 5\n")
    y = np.zeros(8, np.int32)
    for name, number in (("five", 5), ("six_kernel", 6)):
        ascendc.compile(path, name)(y)
        assert y[0] == number
