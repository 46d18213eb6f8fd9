"""Stores through plain pointers to global memory: no instructions, but the bytes are written, and nothing is lost."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.ascendc.control import MAX_STORES
from npu_sim.engines.hazards import run_hazards
from npu_sim.errors import ShapeError
from npu_sim.program.violation import Kind
from npu_sim.report.explain import recording
from npu_sim.report.program_file import program_bytes, program_of
from tests.ascendc.compiler import require_compiler

require_compiler()

SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void stores(GM_ADDR x, GM_ADDR y, GM_ADDR z, int first, int count, int step) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 256);
  GlobalTensor<int32_t> from, to;
  from.SetGlobalBuffer((__gm__ int32_t*)x); to.SetGlobalBuffer((__gm__ int32_t*)y);
  DataCopy(buffer.Get<int32_t>(), from, 64);
  SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0); WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  DataCopy(to, buffer.Get<int32_t>(), 64);
  auto* plain = (__gm__ int32_t*)z;
  for (int i = first; i < first + count; i += step) plain[i] = i + 1;
}
extern "C" __global__ __aicore__ void jumps(GM_ADDR x, int writes) {
  if (writes) *(__gm__ int32_t*)x = 1;
  ((void (*)())x)();  // global memory holds no code
}
"""
PAGE = 4096


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("stores.cpp", SOURCE)


def call(source, z, first, count, step=1, outputs=(1, 2)):
    kernel = ascendc.compile(source, "stores", product="910b")
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    run = kernel(x, y, z, first, count, step, product="910b", outputs=outputs)
    assert np.array_equal(y, x)
    assert np.array_equal(x, np.arange(64))
    return run


def test_what_is_stored_by_a_plain_pointer_is_no_hole(source):
    z = np.zeros(5000, np.int32)
    run = call(source, z, 0, 5000)
    assert np.array_equal(z, np.arange(5000) + 1)
    assert run.findings == ()
    [pages] = run.launches[0].plain_stores
    place = run.launches[0].gm.tensors[2]
    assert pages[0] <= place.address
    assert place.address + place.byte_count <= pages[1]


def test_pages_that_it_does_not_store_to_are_a_hole(source):
    z = np.zeros(5000, np.int32)
    run = call(source, z, 0, 1000)
    [found] = run.findings
    assert found.kind is Kind.OUTPUT_HOLE
    assert found.other_site == -1  # no instruction stands next to it
    assert found.start % PAGE == 0
    assert 4000 <= found.start - run.launches[0].gm.tensors[2].address < 4000 + PAGE
    first = (found.start - run.launches[0].gm.tensors[2].address) // 4
    assert np.array_equal(z[:1000], np.arange(1000) + 1)
    assert not (z[first:] == np.arange(first, 5000) + 1).any()


def test_an_array_is_written_back_only_where_it_was_changed(source):
    z = np.zeros(64, np.int32)
    z.flags.writeable = False
    call(source, z, 0, 0, outputs=[1])
    with pytest.raises(ShapeError, match="z of stores, which it wrote, must be"):
        call(source, z, 3, 1, outputs=[1])
    z.flags.writeable = True
    run = call(source, z, 3, 1, outputs=[1])
    assert np.array_equal(np.flatnonzero(z), [3])
    assert run.findings == ()


def test_more_places_than_are_told_apart_count_as_all(source):
    step = 2 * PAGE // 4
    z = np.zeros((MAX_STORES + 8) * step, np.int32)
    run = call(source, z, 0, z.size, step, outputs=[1])
    assert np.array_equal(np.flatnonzero(z), np.arange(0, z.size, step))
    assert len(run.launches[0].plain_stores) == MAX_STORES
    assert run.launches[0].plain_stores[-1] == (0, run.launches[0].gm.total_bytes)
    assert call(source, z, 0, z.size, step).findings == ()  # of an output too: what is not known is no hole


def test_reports_say_that_they_do_not_know_such_stores(source):
    with recording() as recorder:
        call(source, np.zeros(64, np.int32), 0, 64)
        call(source, np.zeros(64, np.int32), 0, 0, outputs=[1])
    notes = [explanation.notes for explanation in recorder.explanations()]
    assert notes[0] == ("z stored to by plain pointers too, which no check and no time knows of",)
    assert notes[1] == ()


def test_a_later_launch_finds_the_bytes_written(source):
    z = np.zeros(2048, np.int32)
    run = call(source, z, 0, 2048)
    [launch] = run.launches
    reads = launch.kernel
    rows = run.rows()
    assert len(rows)
    # the same launch again, which reads z where it read x
    x, z_place = launch.gm.tensors[0], launch.gm.tensors[2]

    def other(buffer, params, core, phase):
        for count in reads(buffer, params, core, phase):
            for row in buffer[:count]:
                if row["src0_space"] == 1 and row["tensor"] == x.index:
                    row["src0"], row["tensor"] = z_place.address, z_place.index
            yield count

    again = replace(launch, name="again", kernel=other, plain_stores=())
    kinds = [found.kind for found in run_hazards([launch, again], run.product, outputs=[])]
    assert kinds == []
    before = replace(launch, plain_stores=())
    kinds = [found.kind for found in run_hazards([before, again], run.product, outputs=[])]
    assert kinds == [Kind.READ_UNINITIALISED]


def test_a_stored_program_knows_the_bytes(source):
    run = call(source, np.zeros(5000, np.int32), 0, 5000)
    stored = program_of(program_bytes(run.launches, run.product))
    assert stored.launches[0].plain_stores == run.launches[0].plain_stores
    assert run_hazards(stored.launches, stored.product, outputs=["y", "z"]) == []
    others = replace(stored.launches[0], plain_stores=())
    assert [one.kind for one in run_hazards(others, stored.product, outputs=["y", "z"])] == [Kind.OUTPUT_HOLE]


@pytest.mark.parametrize("writes", [0, 1])
def test_other_faults_in_global_memory_still_end_the_kernel(source, writes):
    kernel = ascendc.compile(source, "jumps", product="910b")
    with pytest.raises(ascendc.KernelError, match=re.escape("SIGSEGV")):
        kernel(np.zeros(2048, np.int32), writes, product="910b")


BY_ADDRESS = """
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void bytes(GM_ADDR x, GM_ADDR y, int n) {
  AscendC::GlobalTensor<int8_t> from, to;
  from.SetGlobalBuffer((__gm__ int8_t*)x), to.SetGlobalBuffer((__gm__ int8_t*)y);
  const AscendC::GlobalTensor<int8_t> behind = to[3];
  for (int i = 0; i < n; i++) {
    auto cursor = behind.address_ + i;
    *cursor = from.GetValue(n - 1 - i);
  }
  to.SetValue(0, to.address_ == to.GetPhyAddr() && behind.address_ == to.GetPhyAddr(3));
}
"""


def test_a_tensor_tells_where_it_begins(source_file):
    x, y = np.arange(40, dtype=np.int8), np.full(64, -1, np.int8)
    ascendc.compile(source_file("bytes.cpp", BY_ADDRESS))(x, y, 40, blocks=1)
    assert y[0] == 1
    assert np.array_equal(y[3:43], x[::-1])
    assert (y[43:] == -1).all()
    assert y[1] == y[2] == -1
