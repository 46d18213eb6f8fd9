"""Vector kernels in C++: bits, findings at their lines, phases, values that are read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_sim import ascendc
from npu_sim.program.violation import Kind
from tests.ascendc.compiler import require_compiler

require_compiler()

EXAMPLES = Path(__file__).parents[2] / "examples" / "ascendc"
ADD = EXAMPLES / "add_custom.cpp"


@pytest.fixture
def operands():
    rng = np.random.default_rng(5)
    return [rng.standard_normal((8, 2048)).astype(np.float16) for _ in range(2)]


@pytest.mark.parametrize(("blocks", "product"), [(8, "Ascend910B2"), (1, "910_93"), (4, "310p"), (2, "910")])
def test_add_custom_adds(operands, blocks, product):
    x, y = operands
    z = np.empty_like(x)
    run = ascendc.compile(ADD)(x, y, z, blocks=blocks, product=product, outputs=[2])
    assert np.array_equal(z, x + y)
    assert run.findings == ()
    assert run.seconds > 0
    assert run.launches[0].core_count == blocks
    assert run.launches[0].auto_sync


def test_rows_of_a_core_carry_lines_of_the_source(operands):
    x, y = operands
    run = ascendc.compile(ADD).record(x, y, np.zeros_like(x), blocks=8)
    text = ADD.read_text().splitlines()
    launch = run.launches[0]
    lines = {launch.lines[site].line for site in np.unique(run.rows(0)["site"]).tolist()}
    assert any("Add(z, x, y, TILE)" in text[line - 1] for line in lines)
    assert all("(" in text[line - 1] for line in lines)


def mutated(tmp_path, old, new):
    text = ADD.read_text()
    assert old in text
    path = tmp_path / "mutant.cpp"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (
            "pipe_.InitBuffer(outZ_, BUFFERS, TILE * sizeof(half))",
            "pipe_.InitBuffer(outZ_, BUFFERS, TILE)",
            "ErrorWrite",
        ),
        ("DataCopy(y, y_[i * TILE], TILE);", "DataCopy(y, y_[i * TILE], TILE / 2);", "ErrorRead"),
        ("z_[i * TILE], z, TILE)", "z_[i * TILE], z, TILE / 2)", "OutputHole"),
        ("    inX_.FreeTensor(x);\n", "", "stopped"),
        ("first, share_);\n    z_", "first, share_);\n    z_", ""),
    ],
)
def test_seeded_bugs_are_found(tmp_path, operands, old, new, kinds):
    x, y = operands
    run = ascendc.compile(mutated(tmp_path, old, new)).check(x, y, np.zeros_like(x), blocks=8, outputs=[2])
    words = {found.kind.value for found in run.findings} | ({"stopped"} if run.stopped_by else set())
    assert any(word.startswith(kinds) for word in words) if kinds else not words


SOURCE = """
#include "kernel_operator.h"
using namespace AscendC;
// y[i] = (x[i] + 1) * (x[3] + 1): a value of UB steers the scalar unit.
__global__ __aicore__ void reads(GM_ADDR x, GM_ADDR y) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 256);
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  auto t = buffer.Get<float>();
  DataCopy(t, in, 64);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0); WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  Adds(t, t, 1.0f, 64);
  float factor = t.GetValue(3);
  for (int i = 0; i < int(factor); i++) Muls(t, t, 2.0f, 64);
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0); WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(out, t, 64);
}
// Each core leaves its number; behind SyncAll each reads that of the next one.
__global__ __aicore__ void passes(GM_ADDR x, GM_ADDR y) {
  TPipe pipe; TBuf<> buffer; pipe.InitBuffer(buffer, 32);
  GlobalTensor<float> slots, out;
  slots.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  auto t = buffer.Get<float>();
  int core = GetBlockIdx(), cores = GetBlockNum();
  Duplicate(t, float(core), 8);
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0); WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(slots[core * 8], t, 8);
  SyncAll();
  float other = slots.GetValue((core + 1) % cores * 8);
  Duplicate(t, other * 10, 8);
  SetFlag<HardEvent::V_MTE3>(EVENT_ID1); WaitFlag<HardEvent::V_MTE3>(EVENT_ID1);
  DataCopy(out[core * 8], t, 8);
}
// No flag between the load and the addition.
__global__ __aicore__ void races(GM_ADDR x, GM_ADDR y) {
  LocalTensor<float> t(TPosition::VECCALC, 0, 64);
  GlobalTensor<float> in, out;
  in.SetGlobalBuffer((__gm__ float*)x); out.SetGlobalBuffer((__gm__ float*)y);
  DataCopy(t, in, 64);
  Adds(t, t, 1.0f, 64);  // races
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0); WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(out, t, 64);
}
template <class T> __global__ __aicore__ void doubles(GM_ADDR x, GM_ADDR y) {
  LocalTensor<T> t(TPosition::VECCALC, 0, 64);
  GlobalTensor<T> in, out;
  in.SetGlobalBuffer((__gm__ T*)x); out.SetGlobalBuffer((__gm__ T*)y);
  DataCopy(t, in, 64);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0); WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  Muls(t, t, T(2), 64);
  Adds(t, t, T(1), 64);  // needs a barrier
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0); WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopy(out, t, 64);
}
"""


def line_of(words):
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if line.endswith(f"// {words}"))


@pytest.fixture(scope="module")
def source(source_file):
    return source_file("kernels.cpp", SOURCE)


def test_a_value_of_ub_is_what_the_rows_so_far_left(source):
    kernel = ascendc.compile(source, "reads")
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    assert kernel(x, y).findings == ()
    assert np.array_equal(y, (x + 1) * 2**4)
    x[3] = 0
    run = kernel(x, y)
    assert np.array_equal(y, (x + 1) * 2)
    with pytest.raises(ascendc.KernelError, match="GetValue must come in a call that computes"):
        kernel.record(x, y)
    assert len(run.rows()) > 0


def test_cores_wait_for_each_other_at_sync_all(source):
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    run = ascendc.compile(source, "passes")(x, y, blocks=8)
    assert np.array_equal(y.reshape(8, 8)[:, 0], np.roll(np.arange(8), -1) * 10)
    assert run.launches[0].phase_count == 2


def test_a_missing_flag_is_found_at_its_line(source):
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    run = ascendc.compile(source, "races")(x, y)
    assert {found.kind for found in run.findings} <= {Kind.SYNC_READ_HAZARD, Kind.SYNC_WRITE_HAZARD}
    assert {found.line.line for found in run.findings} == {line_of("races")}


def test_barriers_between_vector_instructions_are_the_compilers_unless_told_otherwise(source):
    kernel = ascendc.compile(source, "doubles<float>")
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    assert kernel(x, y).findings == ()
    assert np.array_equal(y, 2 * x + 1)
    found = kernel(x, y, auto_sync=False).findings
    assert {one.kind for one in found} <= {Kind.BARRIER_READ, Kind.BARRIER_WRITE}
    assert {one.line.line for one in found} == {line_of("needs a barrier")}
    assert "auto_sync off" in str(found[0])


def test_a_template_runs_for_the_type_that_is_named(source):
    x, y = np.arange(64, dtype=np.float16), np.zeros(64, np.float16)
    ascendc.compile(source, "doubles<half>")(x, y)
    assert np.array_equal(y, 2 * x + 1)


def test_inputs_stay_and_what_was_written_comes_back(source):
    x, y = np.arange(128, dtype=np.float32)[::2], np.zeros((128,), np.float32)[::2]
    ascendc.compile(source, "doubles<float>")(x, y)
    assert np.array_equal(x, np.arange(0, 128, 2))
    assert np.array_equal(y, 2 * x + 1)
