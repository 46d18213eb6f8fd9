"""Folders like msOpProf's: figures that add up to those of the engine, names as documented, whole or not at all."""

import csv
import json
from collections import Counter

import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import TimelineOptions
from npu_sim.errors import ShapeError
from npu_sim.products import get_product
from npu_sim.report.files import OutputFileError, write_folder
from npu_sim.report.op_prof import op_prof_files
from ops.cli.main import main
from ops.studies.cases import case_of_shape, plan_case
from tests.oracles.series import SERIES

CASE = case_of_shape((2, 32, 9, 9), (32, 32, 3, 3), padding=(1,))
WAITS = ("SET_FLAG", "WAIT_FLAG", "PIPE_BARRIER")


def rows_of(content):
    return list(csv.DictReader(content.decode().splitlines()))


def launches_of(alias):
    """Return the launches of a call on a product with their times, all cores' spans kept."""
    chip = get_product(alias)
    launches = plan_case(CASE, chip, 0, ("dx", "dw", "db")).calls.launches
    return chip, [(launch, run_timeline(launch, chip, spans=True)) for launch in launches]


@pytest.mark.parametrize("alias", SERIES)
def test_figures_add_up_to_those_of_the_engine(alias):
    chip, launches = launches_of(alias)
    for launch, result in launches:
        files = op_prof_files(result, launch, is_split=chip.core.is_split)
        prefix = "aiv" if chip.core.is_split and launch.core_kind == "vector" else "aic"
        pipes, memory = rows_of(files["PipeUtilization.csv"]), rows_of(files["Memory.csv"])
        assert len(pipes) == len(memory) == result.core_count
        assert [int(row[f"{prefix}_total_cycles"]) for row in pipes] == list(result.core_cycles)
        for name, pipe in (("cube", "M"), ("mte1", "MTE1"), ("mte2", "MTE2"), ("scalar", "S"), ("vec", "V")):
            busy = sum(float(row.get(f"{prefix}_{name}_time(us)", 0)) for row in pipes) * result.clock_hz / 1e6
            assert busy == pytest.approx(result.busy_cycles_all_cores[pipe], abs=0.01 * result.core_count)
        for field, path in (("GM_to_L1_datas(KB)", "GM->L1"), ("UB_to_GM_datas(KB)", "UB->GM")):
            moved = sum(float(row[field]) for row in memory) * 1024
            assert moved == pytest.approx(result.bytes_by_path.get(path, 0), abs=0.01 * result.core_count)
        read = sum(count for path, count in result.bytes_by_path.items() if path.startswith("GM->"))
        written = sum(count for path, count in result.bytes_by_path.items() if path.endswith("->GM"))
        assert sum(float(row["read_main_memory_datas(KB)"]) for row in memory) * 1024 == pytest.approx(read, abs=1)
        assert sum(float(row["write_main_memory_datas(KB)"]) for row in memory) * 1024 == pytest.approx(written, abs=1)
        (basic,) = rows_of(files["OpBasicInfo.csv"])
        assert (basic["Op Name"], int(basic["Block Dim"])) == (launch.name, launch.core_count)
        assert float(basic["Task Duration(us)"]) == pytest.approx(result.task_seconds() * 1e6, abs=1e-6)


@pytest.mark.parametrize("alias", SERIES)
def test_every_core_has_its_instructions_and_its_trace(alias):
    chip, launches = launches_of(alias)
    for launch, result in launches:
        files = op_prof_files(result, launch, is_split=chip.core.is_split)
        cores = sorted({path.split("/")[1] for path in files if path.count("/") == 2})
        assert len(cores) == result.core_count
        counts, lines = Counter(), Counter()
        for core in cores:
            names = {path.split("/")[2] for path in files if path.startswith(f"simulator/{core}/")}
            assert names == {f"{core}_code_exe.csv", f"{core}_instr_exe.csv", "trace.json"}
            instructions = rows_of(files[f"simulator/{core}/{core}_instr_exe.csv"])
            assert list(instructions[0]) == [
                "instr",
                "addr",
                "pipe",
                "call_count",
                "cycles",
                "running_time(us)",
                "detail",
            ]
            code = rows_of(files[f"simulator/{core}/{core}_code_exe.csv"])
            assert list(code[0]) == ["code", "call_count", "cycles", "running_time(us)"]
            assert all(row["code"].startswith(f"{launch.name}:") for row in code)
            for row in instructions:
                counts[row["instr"]] += int(row["call_count"])
                lines[row["pipe"]] += int(row["cycles"]) if row["instr"] not in WAITS else 0
            # both tables are of the same rows
            for field in ("call_count", "cycles"):
                assert sum(int(row[field]) for row in code) == sum(int(row[field]) for row in instructions)
            events = json.loads(files[f"simulator/{core}/trace.json"])["traceEvents"]
            assert sum(event["ph"] == "X" for event in events) == sum(int(row["call_count"]) for row in instructions)
        assert counts == result.instruction_counts
        for pipe in ("M", "MTE2", "FIX"):
            # flags and barriers occupy a pipe for some cycles, too
            assert lines[pipe] <= result.busy_cycles_all_cores[pipe]
        whole = json.loads(files["simulator/trace.json"])["traceEvents"]
        assert sum(event["ph"] == "X" for event in whole) == result.row_count


def test_cores_are_called_as_the_tool_calls_them():
    found = {}
    for alias in ("910b", "310p"):
        chip, launches = launches_of(alias)
        for launch, result in launches:
            files = op_prof_files(result, launch, is_split=chip.core.is_split)
            kind = launch.core_kind if chip.core.is_split else "unified"
            found.setdefault(kind, {path.split("/")[1] for path in files if path.count("/") == 2})
            head = rows_of(files["PipeUtilization.csv"])[0]
            assert ("sub_block_id" in head) == chip.core.is_split
    assert {"core0.cubecore0", "core1.cubecore0"} <= found["cube"]
    assert {"core0.veccore0", "core0.veccore1", "core1.veccore0"} <= found["vector"]
    assert {"core0", "core1"} <= found["unified"]


def test_operations_are_those_of_the_products():
    _, launches = launches_of("910b")
    (result,) = (result for launch, result in launches if launch.name.startswith("Conv3DBackpropFilter"))
    (launch,) = (launch for launch, _ in launches if launch.name.startswith("Conv3DBackpropFilter"))
    rows = rows_of(op_prof_files(result, launch, is_split=True)["ArithmeticUtilization.csv"])
    done = sum(int(row["aic_cube_fops"]) for row in rows)
    # whole fractals are multiplied, so no less than the definition and not many times as much
    assert 2 * CASE.macs <= done <= 4 * CASE.macs
    assert sum(int(row["aic_cube_total_instr_number"]) for row in rows) == result.instruction_counts["MMAD"]


def test_chosen_cores_alone_have_files_and_lines():
    chip, launches = launches_of("910b")
    launch, _ = launches[0]
    result = run_timeline(launch, chip, spans=True, options=TimelineOptions(span_cores=(1,)))
    files = op_prof_files(result, launch, is_split=True)
    assert {path.split("/")[1] for path in files if path.count("/") == 2} == {"core0.veccore1"}
    assert len(rows_of(files["Memory.csv"])) == 1
    with pytest.raises(ShapeError, match="must be one with spans"):
        op_prof_files(run_timeline(launch, chip), launch, is_split=True)


def test_folder_appears_whole_or_not_at_all(tmp_path):
    write_folder(tmp_path / "a", {"x/y.csv": b"1", "z": b"2"})
    assert (tmp_path / "a/x/y.csv").read_bytes() == b"1"
    with pytest.raises(OutputFileError, match="must not exist yet"):
        write_folder(tmp_path / "a", {})
    with pytest.raises(OutputFileError, match="must be writable"):
        write_folder(tmp_path / "b", {"x": b"", "x/y": b""})
    with pytest.raises(OutputFileError, match="must be writable"):
        write_folder(tmp_path / "none/b", {"x": b""})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


SHAPE = ("perf", "--x", "2,20,9,7", "--weight", "20,20,3,3", "--product", "910b")


@pytest.mark.parametrize(
    "arguments",
    [
        SHAPE,
        ("perf", "--model", "alexnet", "--layer", "conv5", "--batch", "1", "--product", "910b", "--trace-core", "0"),
        ("perf", "transdata", "--in-shape", "2,20,9,7", "--in-format", "NCHW", "--out-format", "NC1HWC0",
         "--product", "910b"),
    ],
)  # fmt: skip
def test_commands_write_the_folder(capsys, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--op-prof", "."]) == 0
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("OPPROF_2")
    assert f"written: {folder.name}" in capsys.readouterr().out
    assert list(folder.glob("TransData/0/simulator/core0.veccore0/core0.veccore0_instr_exe.csv"))


def test_command_refuses_what_it_cannot_write(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main([*SHAPE, "--op-prof", "none"]) == 2
    assert "Output folder of --op-prof must exist, but none does not" in capsys.readouterr().err
    assert main([*SHAPE, "--product", "310p", "--op-prof", "."]) == 2
    assert "--op-prof must come with one --layer" in capsys.readouterr().err
    assert main([*SHAPE, "--trace-core", "0"]) == 2
    assert "--trace-core must be given together with --trace or --op-prof" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
