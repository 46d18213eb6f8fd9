"""What asc_dump_gm, asc_dump_ubuf, asc_dump_l1buf and asc_dump_cbuf print."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.process import KernelError
from tests.ascendc.compiler import require_compiler

require_compiler()

KERNEL = """
#include "kernel_operator.h"
#include "utils/debug/asc_dump.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void product(GM_ADDR a, GM_ADDR b, GM_ADDR c) {
  GlobalTensor<half> A, B; GlobalTensor<float> C;
  A.SetGlobalBuffer((__gm__ half*)a); B.SetGlobalBuffer((__gm__ half*)b); C.SetGlobalBuffer((__gm__ float*)c);
  LocalTensor<half> a1(TPosition::A1, 0, 256), b1(TPosition::B1, 512, 256), a2(TPosition::A2, 0, 256);
  LocalTensor<half> b2(TPosition::B2, 0, 256);
  LocalTensor<float> c1(TPosition::CO1, 0, 256);
  asc_dump_gm<half>((__gm__ half*)A.GetPhyAddr(3), 1, 4);
  DataCopy(a1, A, 256); DataCopy(b1, B, 256);
  SetFlag<HardEvent::MTE2_MTE1>(0); WaitFlag<HardEvent::MTE2_MTE1>(0);
  asc_dump_l1buf((__cbuf__ half*)b1.GetPhyAddr(), 2, 3);
  LoadData(a2, a1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
  LoadData(b2, b1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
  SetFlag<HardEvent::MTE1_M>(0); WaitFlag<HardEvent::MTE1_M>(0);
  Mmad(c1, a2, b2, MmadParams(16, 16, 16, 0, false, true));
  asc_dump_cbuf<float>((__cc__ float*)c1.GetPhyAddr(), 3, 16);
  asc_dump_ubuf<float>((__ubuf__ float*)0, 4, 8);  // no core with a Cube has it
  SetFlag<HardEvent::M_FIX>(0); WaitFlag<HardEvent::M_FIX>(0);
  Fixpipe(C, c1, FixpipeParamsV220(16, 16, 16, 16, false));
}
extern "C" __global__ __aicore__ void local(GM_ADDR x, int32_t which) {
  LocalTensor<int32_t> t(TPosition::VECCALC, 64, 64);
  Duplicate(t, 7, 64);
  asc_dump_ubuf((__ubuf__ int32_t*)t.GetPhyAddr(), 5, 2);
  asc_dump_l1buf((__cbuf__ half*)0, 6, 8);  // no core with a vector unit has it
  if (which == 1) asc_dump_ubuf((__ubuf__ int32_t*)t.GetPhyAddr(), 5, 1 << 20);
  if (which == 2) asc_dump_gm((__gm__ float*)x - (1 << 20), 5, 2);
}
"""


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("dumps.cpp", KERNEL)


def _dumps(printed):
    """Return number, position and values of each dump."""
    found = []
    for head, values in zip(*[iter(printed.splitlines())] * 2, strict=True):
        facts = dict(word.split("=") for word in head.split(": ", 1)[1].split(", "))
        found.append((int(facts["desc"]), facts["position"], [float(v) for v in values.strip("[]").split(", ")]))
    return found


def test_every_buffer_of_a_cube_core_is_printed(source):
    a, b = np.arange(256, dtype=np.float16).reshape(16, 16) % 5, np.eye(16, dtype=np.float16) * 2
    c = np.zeros((16, 16), np.float32)
    run = ascendc.compile(source, kernel="product", kind="cube")(a, b, c, outputs=[2])
    assert (c == 2 * a).all()
    assert _dumps(run.printed) == [
        (1, "GM", a.ravel()[3:7].tolist()),
        (2, "L1", [2, 0, 0]),
        (3, "L0C", (2 * a[0]).tolist()),
    ]
    assert run.findings == ()


def test_ub_is_printed_by_the_cores_that_have_it(source):
    run = ascendc.compile(source, kernel="local", kind="vector")(np.zeros(8), np.int32(0))
    assert _dumps(run.printed) == [(5, "UB", [7, 7])]


def test_a_build_leaves_them_out(source):
    kernel = ascendc.compile(source, kernel="local", kind="vector", defines=["ASCENDC_DUMP=0"])
    assert kernel(np.zeros(8), np.int32(1)).printed == ""


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (1, r"asc_dump_ubuf must read inside the 196608 bytes of UB, not \[64, 4194368\)"),
        (2, r"asc_dump_gm must read inside the .* bytes of GM, not \[-"),
    ],
)
def test_what_is_outside_is_refused(source, which, words):
    with pytest.raises(KernelError, match=words):
        ascendc.compile(source, kernel="local", kind="vector")(np.zeros(8, np.float32), np.int32(which))
