"""Bytes of UB that loads write and leave open: read, they are as unwritten as others, and orders hold for them."""

from __future__ import annotations

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.engines.hazards import run_hazards
from npu_sim.isa import footprint
from npu_sim.isa.codes import Mode
from npu_sim.isa.op import Data, Pipe, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.program.violation import Kind
from tests.oracles import instances, semantics
from tests.oracles.hazards import left_open
from tests.unit.test_hazards import check_against_oracle

CHIP = get_product("910b")
RUNS = footprint.empty_runs()
TABLE = np.array([[0, 8192, 8192, 1]], np.int64)


def test_loads_tell_the_bytes_that_they_leave_open():
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(600):
        rows = instances.data_copy_pad(rng).builder.rows
        at = len(rows) - 1
        count = footprint.left_open_at(rows, at, RUNS)
        told = {byte for touched in footprint.expand(RUNS, count).values() for byte in touched}
        assert told == {byte for _, byte in left_open(rows[at])}
        if rows["src0_space"][at] != Space.GM or rows["mode"][at] & Mode.PAD:
            assert not told
            continue
        memory = {Space.GM: np.full(1 << 17, 0x11, np.uint8), Space.UB: np.full(CHIP.core.ub_bytes, 0x11, np.uint8)}
        machine = semantics.Machine(memory)
        semantics.run(rows[at], machine)
        assert told == set(np.flatnonzero(machine.bytes[Space.UB] == 0xFF).tolist())
        seen += bool(told)
    assert seen > 50


def random_rows(rng, length):
    """Return loads with and without padding, vector instructions on what they bring, and some order between them."""
    builder = ProgramBuilder(CHIP)
    for _ in range(length):
        at, kind = 32 * int(rng.integers(6)), rng.random()
        if kind < 0.4:
            left, right = (int(rng.integers(4)) for _ in range(2))
            builder.data_copy_pad(
                dst_space=Space.UB, dst=at, src_space=Space.GM, src=int(rng.integers(64)),
                block_count=int(rng.integers(1, 4)), block_len=4 * int(rng.integers(1, 12)), src_gap=0,
                dst_gap=int(rng.integers(2)), left_padding=left, right_padding=right,
                mode=int(rng.choice((0, 0, Mode.PAD))), value_bits=0, dtype=Data.FP32, tensor=0,
            )  # fmt: skip
        elif kind < 0.55:
            builder.abs(dst=1024, src=at, dtype=Data.FP32, count=int(rng.integers(1, 40)))
        elif kind < 0.65:
            builder.duplicate(dst=at, dtype=Data.FP32, count=int(rng.integers(1, 40)), value_bits=0)
        elif kind < 0.75:
            builder.data_copy_pad(
                dst_space=Space.GM, dst=4096, src_space=Space.UB, src=at, block_count=1,
                block_len=int(rng.integers(1, 70)), src_gap=0, dst_gap=0, dtype=Data.FP32, tensor=0,
            )  # fmt: skip
        else:
            builder.pipe_barrier(Pipe.ALL)
    rows = builder.rows.copy()
    return rows


def test_reads_of_them_agree_with_brute_force():
    rng = np.random.default_rng(1)
    outcomes = [check_against_oracle([[random_rows(rng, int(rng.integers(3, 40)))]], TABLE) for _ in range(300)]
    assert 30 < sum(outcomes) < 290


def test_many_blocks_of_a_load_fit():
    builder, gm = ProgramBuilder(CHIP), GlobalMemory()
    gm.add("x", 1 << 16, initialised=True)
    gm.add("y", 32, is_output=True, initialised=False)
    for _ in range(4):
        builder.data_copy_pad(
            dst_space=Space.UB, dst=0, src_space=Space.GM, src=0, block_count=2000, block_len=5, src_gap=0, dst_gap=0,
            left_padding=3, right_padding=2, value_bits=0, dtype=Data.INT8, tensor=0,
        )  # fmt: skip
        builder.pipe_barrier(Pipe.ALL)
    builder.abs(dst=1 << 17, src=32 * 1999, dtype=Data.FP32, count=8)
    builder.data_copy(dst_space=Space.GM, dst=gm.tensors[1].address, src_space=Space.UB, src=1 << 17, block_count=1,
                      block_len=1, src_gap=0, dst_gap=0, dtype=Data.FP32, tensor=1)  # fmt: skip
    found = run_hazards(builder.launch(gm, core_kind="vector"), CHIP)
    (found,) = (one for one in found if one.space is Space.UB and one.kind is not Kind.SYNC_READ_HAZARD)
    assert (found.kind, found.start, found.length) == (Kind.READ_UNINITIALISED, 32 * 1999, 32)
    assert found.detail == "Abs (V) reads bytes that row 6 DataCopyPad (MTE2) leaves open"


KERNEL = """\
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void padded(GM_ADDR x, GM_ADDR y, int32_t n, int32_t right, int32_t stored) {
  TPipe pipe;
  TBuf<TPosition::VECCALC> from, to;
  pipe.InitBuffer(from, 512);
  pipe.InitBuffer(to, 512);
  GlobalTensor<float> source, target;
  source.SetGlobalBuffer((__gm__ float*)x);
  target.SetGlobalBuffer((__gm__ float*)y);
  LocalTensor<float> a = from.Get<float>(), b = to.Get<float>();
  DataCopyExtParams in{1, uint32_t(n * 4), 0, 0, 0}, out{1, uint32_t(stored * 4), 0, 0, 0};
  DataCopyPadExtParams<float> pad{false, 0, uint8_t(right), 0};
  DataCopyPad(a, source, in, pad);
  PipeBarrier<PIPE_ALL>();
  Adds(b, a, 1.0f, 16);
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(target, b, out);
}
"""


@pytest.mark.parametrize(
    ("right", "stored", "kinds"),
    [
        (1, 12, [Kind.READ_UNINITIALISED]),
        (1, 11, [Kind.READ_UNUSED]),
        (0, 12, []),  # behind the end without a padding is the first element, as documented
        (0, 11, []),
    ],
)
def test_kernel_that_uses_them_is_told_its_line(tmp_path, right, stored, kinds):
    source = tmp_path / "padded.cpp"
    source.write_text(KERNEL)
    x, y = np.arange(5, 16, dtype=np.float32), np.zeros(16, np.float32)
    run = ascendc.compile(source).check(x, y, 11, right, stored, product="910b")
    assert [one.kind for one in run.findings] == kinds
    assert y[:11].tolist() == (x + 1).tolist()
    line = KERNEL[: KERNEL.index("Adds")].count("\n") + 1
    assert all(f"padded.cpp:{line}:" in str(one) for one in run.findings)
    if stored == 12:
        assert np.isnan(y[11]) if right else y[11] == 6
