"""``npu-sim check`` of a Python file: static rules beside hazards, and kernels that an error stopped."""

from __future__ import annotations

import json

import pytest
from test_cli_run import DRIVER, run

from npu_sim.engines.hazards import run_hazards

ROWS = """
from dataclasses import replace
from npu_sim.engines.session import recorded_launch
from npu_sim.isa.op import Data, Space
from npu_sim.memory.gm import GlobalMemory
from npu_sim.products import get_product
from npu_sim.program.builder import ProgramBuilder
from npu_sim.report.explain import Explanation, current_recorder

chip = get_product("910b")
gm = GlobalMemory()
x = gm.add("x", 1 << 18, initialised=True)
builder = ProgramBuilder(chip)
{calls}
launch = replace(recorded_launch("rows", [builder.rows], gm), core_kind="{kind}")
current_recorder().add(lambda: Explanation(title="rows", product=chip, launches=(launch,)))
"""
MISPLACED = "builder.duplicate(dst=8, dtype=Data.FP16, count=16, value_bits=0)"
LONG = """
builder.data_copy(dst_space=Space.UB, dst=0, src_space=Space.GM, src=x.address, block_count=5000, block_len=1,
                  dtype=Data.FP16, tensor=x.index)
"""
ATOMIC = """
builder.duplicate(dst=0, dtype=Data.FP32, count=64, value_bits=0)
builder.pipe_barrier()
builder.set_atomic(Data.FP32)
builder.data_copy_pad(dst_space=Space.GM, dst=x.address, src_space=Space.UB, src=0, block_len=154, dtype=Data.FP32,
                      tensor=x.index)
builder.set_atomic(Data.NONE)
"""
BF16 = """
builder.duplicate(dst=0, dtype=Data.FP16, count=128, value_bits=0)
builder.pipe_barrier()
builder.add(dst=512, src0=0, src1=0, dtype=Data.BF16, count=64)
"""


@pytest.fixture(autouse=True)
def _no_note_of_compilation(monkeypatch):
    monkeypatch.setattr("ops.cli.scripts.note_compilation", lambda: None)


@pytest.fixture
def driver(tmp_path):
    """Return a function that writes the Ascend C driver with a line before its End, or without End."""

    def write(before_end="", launched="launch(kernel, 2)", atomic=1, ends=True):
        text = DRIVER.format(cores=2, atomic=atomic, end="", pad=0)
        text = text.replace("    obj.End()", f"    {before_end}\n" + "    obj.End()" * ends)
        text = text.replace("launch(kernel, 2)", launched)
        path = tmp_path / "driver.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("calls", "kind", "words"),
    [
        (LONG, "FieldRange", "block_count must be in [0, 4095], not 5000"),
        (ATOMIC, "FieldRange", "block_len must be whole elements to add them, not 154"),
        (BF16, "Unsupported", "dtype must be one of half, float, int32_t, int16_t, not bfloat16_t"),
    ],
)
def test_check_of_a_script_holds_every_row_to_the_static_rules(capsys, tmp_path, calls, kind, words):
    path = tmp_path / "rows.py"
    path.write_text(ROWS.format(calls=calls, kind="vector"))
    scope: dict[str, object] = {}
    from npu_sim.report.explain import recording

    with recording():
        exec(compile(path.read_text(), str(path), "exec"), scope)
    # the order checker alone has nothing to say
    assert run_hazards(scope["launch"], scope["chip"]) == []
    code, out, _ = run(capsys, "check", path)
    assert code == 1
    assert f"    {kind} core 0 " in out
    assert words in out
    assert out.endswith("1 call, 1 launch: 1 finding\n")
    code, out, _ = run(capsys, "check", path, "--json", "-")
    document = json.loads(out)
    (launch,) = document["launches"]
    assert (code, document["schema_version"], launch["stopped_by"]) == (1, 3, "")
    assert [finding["kind"] for finding in launch["findings"]] == [kind]


def test_check_of_a_script_reports_one_defect_of_one_row_once(capsys, tmp_path):
    """An address that both checkers know to be wrong is one finding."""
    path = tmp_path / "rows.py"
    path.write_text(ROWS.format(calls=MISPLACED, kind="vector"))
    code, out, _ = run(capsys, "check", path)
    assert (code, out.count("ErrorWrite4")) == (1, 1)
    assert out.endswith("1 call, 1 launch: 1 finding\n")


def test_check_of_a_script_keeps_two_reasons_why_one_row_is_not_supported(capsys, tmp_path):
    path = tmp_path / "rows.py"
    path.write_text(ROWS.format(calls=BF16, kind="cube"))
    _, out, _ = run(capsys, "check", path)
    lines = [line for line in out.splitlines() if "row 2 " in line]
    assert ["not bfloat16_t" in lines[0], "must run on a vector core, not on a cube core" in lines[1]] == [True, True]


@pytest.mark.parametrize(
    ("before_end", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("sys.exit(3)", "SystemExit: 3"),
        (
            "obj.SetStartPosition(99)",
            "ShapeError: hoStartIdx must be in [0, ho - 1 = 3], not 99 (Conv3DBackpropFilter.",
        ),
    ],
)
@pytest.mark.parametrize("launched", ["launch(kernel, 2)", "kernel()"])
def test_check_of_a_kernel_that_an_error_stopped_reports_the_error_and_no_wreckage(
    capsys, driver, before_end, error, launched
):
    path = driver(before_end=before_end, launched=launched)
    code, out, err = run(capsys, "check", path)
    assert code == 1
    assert "the script ended with an error" in err
    assert f"  stopped by {error}" in out
    assert "no wait clears it" not in out
    assert ", only what ran before: 0 findings" in out
    assert out.splitlines()[-1].endswith(": 0 findings, 1 stopped")
    assert "(Ascend910B2), not ended\n" in out
    code, out, _ = run(capsys, "check", path, "--json", "-")
    (launch,) = json.loads(out)["launches"]
    assert launch["stopped_by"].startswith(error)
    assert launch["findings"] == []


def test_perf_of_a_kernel_that_an_error_stopped_says_that_it_did_not_end(capsys, driver):
    caught = "\ntry:\n    launch(kernel, 2)\nexcept ZeroDivisionError:\n    pass"
    path = driver(before_end="1 / 0", launched=caught)
    _, out, _ = run(capsys, "perf", path)
    assert "kernel (Ascend910B2), not ended\n" in out
    assert not json.loads(run(capsys, "perf", path, "--json", "-")[1])["calls"][0]["is_finished"]
    assert json.loads(run(capsys, "perf", driver(), "--json", "-")[1])["calls"][0]["is_finished"]


def test_check_of_a_stopped_launch_whose_error_the_script_caught_still_fails(capsys, driver):
    launched = "\ntry:\n    launch(kernel, 2)\nexcept ZeroDivisionError:\n    pass"
    code, out, _ = run(capsys, "check", driver(before_end="1 / 0", launched=launched))
    assert code == 1
    assert "  stopped by ZeroDivisionError: division by zero" in out
    assert "no wait clears it" not in out


def test_check_of_a_stopped_kernel_keeps_what_was_wrong_before(capsys, driver):
    """The second core overwrites what the first one wrote, and is stopped behind it."""
    path = driver(before_end="if GetBlockIdx() == 1: 1 / 0", atomic=0)
    code, out, _ = run(capsys, "check", path)
    assert code == 1
    assert "    ErrorSync1 core 1 tile 0 row" in out
    assert out.splitlines()[-1] == "1 call, 1 launch: 1 finding, 1 stopped"


def test_check_of_a_kernel_without_its_end_and_without_an_error_finds_the_flags_left_set(capsys, driver):
    code, out, _ = run(capsys, "check", driver(ends=False))
    assert code == 1
    assert "no wait clears it" in out
    assert "stopped" not in out


TBE = """
import numpy as np
from npu_sim import current_product
from ops.tbe import calculate_group, conv3d_backprop_filter
group = {"real_g": 1, "mag_factor": 1, "cin1_g": 1, "cout_g": 16, "cin_ori": 16, "cout_ori": 16}
x, dy = np.ones((1, 2, 1, 3, 3, 16), np.float16), np.ones((1, 1, 1, 2, 2, 16), np.float16)
print(float(conv3d_backprop_filter(x, dy, [16, 2, 16, 2, 2], {"group_dict": group})[0, 7, 3, 5]))
"""


@pytest.mark.parametrize("command", ["run", "perf", "check"])
def test_script_without_product_runs_on_what_it_would_run_on_alone(capsys, tmp_path, command):
    """The DSL's own default is a 910; the default of other calls would refuse it."""
    path = tmp_path / "tbe.py"
    path.write_text(TBE)
    code, out, err = run(capsys, command, path)
    assert (code, out.splitlines()[0], err) == (0, "4.0", "")
    call = "conv3d_backprop_filter (Ascend910A): x 1x2x1x3x3x16, out_backprop 1x1x1x2x2x16, result 1x8x16x16"
    assert (call in " ".join(out.split())) == (command != "run")
    code, _, err = run(capsys, command, path, "--product", "310p")
    assert (code, err) == (0, "")
    code, _, err = run(capsys, command, path, "--product", "910b")
    assert code == 1
    assert "product of conv3d_backprop_filter must be of the series 310, 310p, 910, not Ascend910B2" in err


def test_check_and_explain_of_the_dsl_show_its_launches_and_its_compute_graph(capsys, tmp_path):
    path = tmp_path / "tbe.py"
    path.write_text(TBE)
    _, out, _ = run(capsys, "check", path)
    assert out.splitlines()[-3:] == [
        "  0 MemSet (dw): 0 findings",
        "  1 Conv3DBackpropFilter (x, out_backprop -> dw): 0 findings",
        "1 call, 2 launches: 0 findings",
    ]
    _, out, _ = run(capsys, "run", path, "--explain")
    assert "schedule: L0B filled by load3d" in out
    assert [line.split() for line in out.splitlines() if line.strip().startswith("tensor ")] == [
        ["tensor", "buffer", "shape"]
    ]
