"""``npu-sim check`` in process: silent on the shipped kernels, exact about kernels with one defect put in."""

import dataclasses
import json
import re

import numpy as np
import pytest

from npu_sim.engines.hazards import emit_rows, run_hazards
from npu_sim.isa.op import Op, Pipe
from npu_sim.isa.row import join_rows
from npu_sim.products import get_product
from npu_sim.program.disassemble import disassemble
from ops.cli.main import main
from ops.studies import checking
from ops.studies.cases import case_of_shape, plan_case
from tests.oracles.series import SERIES

SHAPE = ("--x", "2,20,9,7", "--weight", "20,20,3,3", "--stride", "2", "--padding", "1")
CASE = case_of_shape((2, 20, 9, 7), (20, 20, 3, 3), stride=(2,), padding=(1,))


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, tmp_path):
    monkeypatch.setattr("ops.cli.check.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments):
    """Run the program; return exit code, standard output and standard error."""
    code = main(["check", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def spoiled(launch, spoil):
    """Return ``launch`` with ``spoil(rows, core, phase) -> rows`` applied to what it emits."""

    def kernel(buffer, params, core, phase):
        for count in launch.rows(core, phase, buffer):
            rows = spoil(buffer[:count].copy(), core, phase)
            buffer[: len(rows)] = rows
            yield len(rows)

    return dataclasses.replace(launch, kernel=kernel)


@pytest.fixture
def put_in(monkeypatch):
    """Return a function that puts a defect into a launch of the kernel; which returns the list of spoiled plans."""

    def install(spoil, number=-1):
        plans = []

        def plan(case, chip, mode):
            good = plan_case(case, chip, mode)
            steps = list(good.calls.steps)
            at = steps.index(good.multiplying_steps[0])
            launches = list(steps[at].kernel.launches)
            launches[number] = spoiled(launches[number], spoil)
            kernel = dataclasses.replace(steps[at].kernel, launches=tuple(launches))
            steps[at] = dataclasses.replace(steps[at], kernel=kernel)
            plans.append(dataclasses.replace(good, calls=dataclasses.replace(good.calls, steps=tuple(steps))))
            return plans[-1]

        monkeypatch.setattr(checking, "plan_case", plan)
        return plans

    return install


def program_of(launch, core):
    return join_rows([emit_rows(launch, core, phase) for phase in range(launch.phase_count)])


def without(rows, index):
    """Return rows without the ones at ``index``, byte by byte."""
    keep = np.ones(len(rows), np.bool_)
    keep[index] = False
    return join_rows([rows[at : at + 1] for at in np.flatnonzero(keep)])


def test_check_shipped_kernels_have_no_findings_and_all_instructions_are_counted(capsys):
    code, out, err = call(capsys, *SHAPE, "--json", "-")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["finding_count"] == 0
    assert [row["product"] for row in report["rows"]] == list(SERIES)
    for row in report["rows"]:
        assert row["findings"] == []
        plan = plan_case(CASE, get_product(row["product"]), 1)
        assert [launch["name"] for launch in row["launches"]] == [launch.name for launch in plan.calls.launches]
        for shown, launch in zip(row["launches"], plan.calls.launches, strict=True):
            expected = sum(len(program_of(launch, core)) for core in range(launch.core_count))
            assert (shown["row_count"], shown["core_count"]) == (expected, launch.core_count)


def test_check_text_has_one_line_per_launch_of_the_call_and_the_sum(capsys):
    code, out, _ = call(capsys, "--product", "910", "--cube-math-type", "1", "--layer", "stem", "--layer", "down")
    assert code == 0
    words = "Each layer: every launch of the call of aclnnConvolutionBackward with outputMask (false, true, false)."
    assert " ".join(out.split()).startswith(words)
    lines = [line for line in out.splitlines() if line.endswith(": 0 findings")]
    launches = (
        "Cast (input fp32 -> fp16)",
        "TransData (input NCHW -> NC1HWC0)",
        "Cast (grad_output fp32 -> fp16)",
        "TransData (grad_output NCHW -> NC1HWC0)",
        "MemSet (grad_weight)",
        "Conv3DBackpropFilter (grad_output, input -> grad_weight)",
        "TransData (grad_weight FRACTAL_Z -> NCHW)",
    )
    assert [line.split(": ")[:2] for line in lines] == [
        [f"  {layer}", launch] for layer in ("stem", "down") for launch in launches
    ]
    assert "instructions checked, 0 findings" in " ".join(out.split())


def test_check_text_gives_each_finding_to_its_launch_where_several_have_one_name(capsys, put_in):
    def clear_nothing(rows, core, phase):
        return without(rows, [at for at in np.flatnonzero(rows["pipe"] == Pipe.MTE3) if rows["op"][at] == Op.DATA_COPY])

    put_in(clear_nothing, 0)
    _, out, _ = call(capsys, *SHAPE, "--product", "910", "--json", "r.json")
    with open("r.json", encoding="utf-8") as file:
        (row,) = json.load(file)["rows"]
    counts = [0] * len(row["launches"])
    for finding in row["findings"]:
        counts[finding["launch_number"]] += 1
    shown = [int(line.split(": ")[-1].split()[0]) for line in out.splitlines() if re.search(r": \d+ findings?$", line)]
    assert shown == counts
    transformed = [
        count for launch, count in zip(row["launches"], counts, strict=True) if launch["name"] == "TransData"
    ]
    assert sorted(map(bool, transformed)) == [False, False, True]


def test_check_removed_wait_is_reported_with_both_rows_in_their_windows(capsys, put_in):
    def drop_first_wait_of_the_cube(rows, core, phase):
        waits = np.flatnonzero((rows["op"] == Op.WAIT_FLAG) & (rows["pipe"] == Pipe.M))
        return without(rows, waits[:1]) if core == 2 and len(waits) else rows

    plans = put_in(drop_first_wait_of_the_cube)
    code, out, err = call(capsys, *SHAPE, "--product", "910b", "--json", "-")
    assert (code, err) == (1, "")
    report = json.loads(out)
    expected = run_hazards(plans[0].calls.launches, get_product("910b"))
    findings = report["rows"][0]["findings"]
    assert report["finding_count"] == len(findings) == 1
    assert {findings[0]["text"], *findings[0]["also"]} == {str(violation) for violation in expected}
    expected = [violation for violation in expected if str(violation) == findings[0]["text"]]
    program = program_of(plans[0].multiplying_steps[0].kernel.launches[0], 2)
    conflicts = [finding for finding in findings if finding["name"] == "SYNC_READ_HAZARD"]
    assert conflicts
    for finding, violation in zip(findings, expected, strict=True):
        assert (finding["core"], finding["row"], finding["other_row"]) == (2, violation.row, violation.other_row)
        assert finding["detail"] == violation.detail
        numbers = [finding["row"]] + ([finding["other_row"]] if finding["other_row"] >= 0 else [])
        assert len(finding["windows"]) == len(numbers)
        for window, number in zip(finding["windows"], numbers, strict=True):
            (marked,) = [line for line in window.splitlines() if line.startswith(">")]
            assert marked.startswith(f"> core 2 {number:>7}  tile ")
            assert marked.endswith(disassemble(program[number]))
            first = max(number - 2, 0)
            assert len(window.splitlines()) == min(number + 3, len(program)) - first


def test_check_text_shows_the_finding_and_both_windows(capsys, put_in):
    def drop_first_wait_of_the_cube(rows, core, phase):
        waits = np.flatnonzero((rows["op"] == Op.WAIT_FLAG) & (rows["pipe"] == Pipe.M))
        return without(rows, waits[:1]) if core == 0 and len(waits) else rows

    plans = put_in(drop_first_wait_of_the_cube)
    code, out, _ = call(capsys, *SHAPE, "--product", "910b")
    assert code == 1
    expected = run_hazards(plans[0].calls.launches, get_product("910b"))
    (shown,) = [violation for violation in expected if f"    {violation}\n" in out]
    assert len(expected) > 1
    for violation in expected:
        assert violation is shown or f"      it shows as {violation} too\n" in out
    assert ", 1 finding" in out
    assert out.count("      > core 0 ") == 1 + (shown.other_row >= 0)


def test_check_illegal_instruction_behind_the_first_phase_has_its_number_in_the_core(capsys, put_in):
    def too_many_rows(rows, core, phase):
        bad = np.flatnonzero(rows["op"] == Op.MMAD)
        if core == 1 and phase == 1 and len(bad):
            rows["m"][bad[0]] = 5000
        return rows

    plans = put_in(too_many_rows)
    code, out, _ = call(capsys, *SHAPE, "--product", "910b", "--json", "-")
    assert code == 1
    static = [finding for finding in json.loads(out)["rows"][0]["findings"] if finding["name"] == "FIELD_RANGE"]
    launch = plans[0].multiplying_steps[0].kernel.launches[0]
    number = int(np.flatnonzero(program_of(launch, 1)["op"] == Op.MMAD)[0])
    assert number >= len(emit_rows(launch, 1, 0)) > 0
    assert [(finding["core"], finding["row"]) for finding in static] == [(1, number)]
    (marked,) = [line for line in static[0]["windows"][0].splitlines() if line.startswith(">")]
    assert marked.startswith(f"> core 1 {number:>7}  tile ")
    assert " Mmad " in marked
    assert "m 5000" in marked


def test_check_conflict_between_cores_shows_the_other_core(capsys, put_in):
    def never_atomic(rows, core, phase):
        return without(rows, np.flatnonzero(rows["op"] == Op.SET_ATOMIC))

    plans = put_in(never_atomic)
    code, out, _ = call(capsys, *SHAPE, "--product", "910b", "--json", "-")
    assert code == 1
    findings = json.loads(out)["rows"][0]["findings"]
    between = [
        finding for finding in findings if finding["detail"].endswith(" in the same phase (Conv3DBackpropFilterV2)")
    ]
    assert between
    launch = plans[0].multiplying_steps[0].kernel.launches[0]
    for finding in between:
        other = int(finding["detail"].split(" core ")[1].split()[0])
        assert other != finding["core"]
        marked = [line for line in finding["windows"][1].splitlines() if line.startswith(">")]
        assert len(marked) == 1
        assert marked[0].startswith(f"> core {other} {finding['other_row']:>7} ")
        assert marked[0].endswith(disassemble(program_of(launch, other)[finding["other_row"]]))


def test_check_finding_of_the_second_launch_names_it(capsys, put_in):
    def clear_nothing(rows, core, phase):
        stores = np.flatnonzero(rows["pipe"] == Pipe.MTE3)
        return without(rows, [at for at in stores if rows["op"][at] == Op.DATA_COPY])

    put_in(clear_nothing, 0)
    code, out, _ = call(capsys, *SHAPE, "--product", "910", "--json", "-")
    assert code == 1
    findings = json.loads(out)["rows"][0]["findings"]
    # and so do those behind it, which read what it made of what nobody cleared
    unwritten = {finding["launch"] for finding in findings if finding["name"] == "READ_UNINITIALISED"}
    assert unwritten == {"Conv3DBackpropFilter", "TransData"}
    assert all(finding["detail"].endswith(f"({finding['launch']})") for finding in findings)


def test_check_long_lists_are_cut_in_the_text_only(capsys, put_in):
    def never_wait(rows, core, phase):
        return without(rows, np.flatnonzero(rows["op"] == Op.WAIT_FLAG))

    put_in(never_wait)
    _, text, _ = call(capsys, *SHAPE, "--product", "910b", "--json", "r.json", "--max-findings", "2")
    with open("r.json", encoding="utf-8") as file:
        launches = [finding["launch_number"] for finding in json.load(file)["rows"][0]["findings"]]
    count = max(map(launches.count, launches))
    assert count > 2
    assert f"    ... {count - 2} more; --json has all of them\n" in text
    assert text.endswith("written: r.json\n")


def test_check_only_refused_combinations_is_exit_1(capsys):
    code, out, err = call(capsys, *SHAPE, "--dtype", "bf16", "--product", "910")
    assert (code, err) == (1, "")
    assert out.count("refused, status 161002, 2x20x9x7: gradOutput dtype must be FP32 or FP16, not BF16") == 1
    assert "1 combination: 1 refused; 0 instructions checked, 0 findings" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch", "4"), "--batch must be given together with --model"),
        (("--x", "1,2,3"), "--x must be given together with --weight"),
        (
            ("--x", "512,256,224,224", "--weight", "256,256,1,1", "--product", "910b"),
            "Tensors of 512x256x224x224 must take at most 4096 MiB for the checker, not 50176 MiB",
        ),
        ((*SHAPE, "--json", "nowhere/r.json"), "Output file must be in an existing directory, not nowhere/r.json"),
    ],
)
def test_check_bad_input_is_one_line_exit_2_and_nothing_written(capsys, tmp_path, arguments, message):
    if "--json" not in arguments:
        arguments = (*arguments, "--json", "r.json")
    code, out, err = call(capsys, *arguments)
    assert (code, out, err) == (2, "", f"npu-sim: error: {message}\n")
    assert list(tmp_path.iterdir()) == []
