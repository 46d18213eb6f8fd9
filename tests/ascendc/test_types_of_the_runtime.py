"""Kernels whose headers declare functions of the host with types of AscendCL."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "HEADER"
#include "kernel_operator.h"
aclError Describe(aclDataType type, aclrtStream stream);
extern "C" __global__ __aicore__ void sized(GM_ADDR y) {
  constexpr aclDataType TYPES[] = {ACL_FLOAT, ACL_FLOAT16, ACL_INT32, ACL_BF16};
  AscendC::GlobalTensor<int32_t> numbers;
  numbers.SetGlobalBuffer((__gm__ int32_t*)y);
  for (int i = 0; i < 4; i++) numbers.SetValue(i, int32_t(TYPES[i]));
}
"""


@pytest.mark.parametrize("header", ["acl/acl_base_rt.h", "acl/acl_base.h", "acl/acl.h"])
def test_types_of_ascendcl_are_there_for_kernels(source_file, header):
    path = source_file(f"sized_{header[4:-2]}.cpp", SOURCE.replace("HEADER", header))
    y = np.full(4, -1, np.int32)
    ascendc.compile(path, "sized", product="910b")(y, product="910b")
    assert y.tolist() == [0, 1, 3, 27]  # as the interface numbers them
