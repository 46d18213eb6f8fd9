"""unitFlag: Mmad and Fixpipe hand tiles of L0C to each other without flags of the kernel's own."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.isa.op import Op, Pipe
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
// c[i] = a[i] b in rows of 32, each product of two parts of k, results in as many places of L0C by turns.
extern "C" __global__ __aicore__ void tiles(GM_ADDR a, GM_ADDR b, GM_ADDR c, int32_t count, int32_t places,
                                            int32_t last, int32_t store, int32_t parts, int32_t apart) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
  GlobalTensor<half> left, right;
  GlobalTensor<float> out;
  left.SetGlobalBuffer((__gm__ half*)a);
  right.SetGlobalBuffer((__gm__ half*)b);
  out.SetGlobalBuffer((__gm__ float*)c);
  LocalTensor<half> a1(TPosition::A1, 0, 1024), b1(TPosition::B1, 4096, 1024);
  LocalTensor<half> a2(TPosition::A2, 0, 1024), b2(TPosition::B2, 0, 1024);
  Nd2NzParams whole(1, 32, 32, 0, 32, 32, 1, 0);
  LoadData3DParamsV2<half> p;
  p.l1H = 1; p.l1W = 32; p.channelSize = 32;
  DataCopy(b1, right, whole);
  for (int32_t i = 0; i < count; i++) {
    DataCopy(a1, left[i * 1024], whole);
    SetFlag<HardEvent::MTE2_MTE1>(0); WaitFlag<HardEvent::MTE2_MTE1>(0);
    for (int32_t k = 0; k < 2; k++) {
      p.enTranspose = false;
      p.mStartPt = 0; p.mExtension = 32; p.kStartPt = 16 * k; p.kExtension = 16;
      LoadData(a2[k * 512], a1, p);
      p.enTranspose = true;
      p.mStartPt = 16 * k; p.mExtension = 16; p.kStartPt = 0; p.kExtension = 32;
      LoadData(b2[k * 512], b1, p);
    }
    SetFlag<HardEvent::MTE1_MTE2>(0); WaitFlag<HardEvent::MTE1_MTE2>(0);
    SetFlag<HardEvent::MTE1_M>(0); WaitFlag<HardEvent::MTE1_M>(0);
    LocalTensor<float> sums(TPosition::CO1, i % places * apart, 1024);
    for (int32_t k = 0; k < 2; k++) {
      MmadParams how(32, 32, 16, k ? last : store ? 2 : 0, false, k == 0);
      Mmad(sums, a2[k * 512], b2[k * 512], how);
      PipeBarrier<PIPE_M>();
    }
    SetFlag<HardEvent::M_MTE1>(0); WaitFlag<HardEvent::M_MTE1>(0);
    for (int32_t part = 0; part < parts; part++) {
      FixpipeParamsV220 row(32 / parts, 32, 32, 32, false);
      row.unitFlag = store;
      Fixpipe<float, float, CFG_ROW_MAJOR>(out[i * 1024 + part * 32 / parts], sums[part * 1024 / parts], row);
    }
  }
}
"""
COUNT = 6


@pytest.fixture(scope="module")
def kernel(source_file):
    return ascendc.compile(source_file("tiles.cpp", SOURCE))


def run(kernel, places, last=3, store=3, parts=1, count=COUNT, apart=4096):
    rng = np.random.default_rng(places)
    a = rng.integers(-4, 5, (count, 32, 32)).astype(np.float16)
    b = rng.integers(-4, 5, (32, 32)).astype(np.float16)
    c = np.zeros((count, 32, 32), np.float32)
    numbers = (np.int32(number) for number in (count, places, last, store, parts, apart))
    result = kernel(a, b, c, *numbers, blocks=1, product="910b", outputs=[2])
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    return result


# more places than there are events for: the oldest is waited for
@pytest.mark.parametrize("places", [1, 2, 4, 6])
@pytest.mark.parametrize("parts", [1, 2])
def test_tiles_are_stored_when_they_are_complete_and_filled_when_they_are_stored(kernel, places, parts):
    result = run(kernel, places, parts=parts)
    assert result.findings == ()
    rows = result.rows()
    flags = rows[(rows["op"] == Op.SET_FLAG) & (rows["pipe"] == Pipe.M) & (rows["peer"] == Pipe.FIX)]
    assert len(flags) == COUNT


@pytest.mark.parametrize("apart", [1024, 2048, 3072])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_tile_that_lies_over_parts_of_others_waits_for_them(kernel, apart, parts):
    assert run(kernel, 3, apart=apart, parts=parts).findings == ()


def test_without_it_the_same_kernel_stores_what_is_not_there_yet(kernel):
    result = run(kernel, 2, last=0, store=0)
    assert any(finding.space.name == "L0C" for finding in result.findings)


def test_a_result_may_be_stored_twice_before_it_is_given_up(kernel):
    # 2 keeps the tile: the next Mmad into it would wait for ever
    assert run(kernel, COUNT, store=2, count=2).findings == ()
    line = 1 + SOURCE[: SOURCE.index("Mmad(sums")].count("\n")
    with pytest.raises(ascendc.KernelError, match=rf"emptied by a Fixpipe with unitFlag 3.*tiles\.cpp:{line}\)"):
        run(kernel, 1, store=2)


def test_a_store_of_a_tile_that_no_mmad_closes_is_refused(kernel):
    line = 1 + SOURCE[: SOURCE.index("Fixpipe<float")].count("\n")
    with pytest.raises(ascendc.KernelError, match=rf"behind a Mmad with unitFlag 3 into its tile.*tiles\.cpp:{line}\)"):
        run(kernel, 1, last=2)


def test_a_tile_that_nobody_stores_is_a_finding(kernel):
    result = kernel(
        np.zeros((1, 32, 32), np.float16), np.zeros((32, 32), np.float16), np.zeros((1, 32, 32), np.float32),
        *(np.int32(number) for number in (1, 1, 3, 3, 0, 4096)), blocks=1, product="910b",
    )  # fmt: skip
    assert any("flag" in str(finding).lower() for finding in result.findings)


def test_more_tiles_at_a_time_than_there_are_events_for_are_refused(kernel):
    with pytest.raises(ascendc.KernelError, match="at most 4 tiles of L0C at a time"):
        run(kernel, COUNT, store=2)
