"""What LoadData of feature maps takes from registers besides its parameters."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from tests.ascendc.compiler import require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t times, int32_t bytes) {
  GlobalTensor<half> A, B; GlobalTensor<float> C;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
  LocalTensor<half> a1(TPosition::A1, 0, 256), b1(TPosition::B1, 512, 256), a2(TPosition::A2, 0, 256);
  LocalTensor<half> b2(TPosition::B2, 0, 256);
  LocalTensor<float> c1(TPosition::CO1, 0, 256);
  DataCopy(a1, A, 256); DataCopy(b1, B, 256);
  SetFlag<HardEvent::MTE2_MTE1>(0); WaitFlag<HardEvent::MTE2_MTE1>(0);
  SetLoadDataRepeat({0, uint8_t(times), 0});
  SetLoadDataBoundary(bytes);
  LoadData3DParamsV2<half> p;
  p.l1H = 1; p.l1W = 16; p.channelSize = 16; p.mExtension = 16; p.kExtension = 16;
  LoadData(a2, a1, p);
  p.enTranspose = true;
  LoadData(b2, b1, p);
  SetFlag<HardEvent::MTE1_M>(0); WaitFlag<HardEvent::MTE1_M>(0);
  Mmad(c1, a2, b2, MmadParams(16, 16, 16, 0, false, true));
  SetFlag<HardEvent::M_FIX>(0); WaitFlag<HardEvent::M_FIX>(0);
  Fixpipe<float, float, CFG_ROW_MAJOR>(C, c1, FixpipeParamsV220(16, 16, 16, 16, false));
}
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    path = tmp_path_factory.mktemp("registers") / "product.cpp"
    path.write_text(KERNEL)
    kernel = ascendc.compile(path, kind="cube")

    def call(times, size):
        rng = np.random.default_rng(2)
        a, b = (rng.integers(-4, 5, (16, 16)).astype(np.float16) for _ in range(2))
        c = np.zeros((16, 16), np.float32)
        run = kernel(a, b, c, np.int32(times), np.int32(size), outputs=[2])
        return c, a.astype(np.float32) @ b.astype(np.float32), run

    return call


def test_registers_may_be_set_to_what_a_core_begins_with(product):
    c, exact, run = product(1, 0)
    assert np.array_equal(c, exact)
    assert run.findings == ()


@pytest.mark.parametrize(
    ("times", "size", "words"),
    [
        (2, 0, "SetLoadDataRepeat is modelled with repeatTime 1, not 2"),
        (0, 0, "SetLoadDataRepeat is modelled with repeatTime 1, not 0"),
        (1, 1024, "SetLoadDataBoundary is modelled with 0, for all of L1, not with 1024 bytes"),
    ],
)
def test_loads_that_repeat_or_begin_anew_are_refused(product, times, size, words):
    with pytest.raises(KernelError, match=words):
        product(times, size)
