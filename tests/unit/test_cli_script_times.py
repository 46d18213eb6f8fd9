"""``npu-sim perf`` of a Python file: a table and a total a call, what is known about the costs, one trace of all."""

from __future__ import annotations

import json
import re

import pytest

from npu_sim.engines.intervals import bound_launch, task_interval
from npu_sim.engines.timeline import run_timeline
from npu_sim.products import get_product, use_product
from npu_sim.report.explain import recording
from ops.cli.main import main
from ops.studies import launch_trace
from ops.studies.launch_times import describe_parameters

CALLS = """
import sys
import numpy as np
import ops

x = np.ones((1, 16, 6, 5), np.float16)
ops.avg_pool2d_backward(np.ones((1, 16, 3, 2), np.float16), x, kernel_size=2, stride=2)
w = np.ones((32, 16, 3, 2), np.float16)
g = np.ones((1, 32, 3, 5), np.float16)
ops.convolution_backward(g, x, w, stride=[2, 1], padding=[1, 1, 1, 0], dilation=1)
print(sys.argv[1:])
"""
HEADINGS = (
    "aclnnAvgPool2dBackward ({chip}): gradOutput fp16 1x16x3x2, input fp16 1x16x6x5, kernel 2, stride 2",
    "aclnnConvolutionBackward ({chip}): gradOutput fp16 1x32x3x5, input fp16 1x16x6x5, weight fp16 32x16x3x2, "
    "stride 2x1, padding 1x1x1x0",
)
COLUMNS = "launch works on cores cycles us task us low high S V M MTE1 MTE2 MTE3 FIX critical path"
LEGEND = (
    "us: core time; task us: with launch overhead; low, high: where four of five of the published times lie that they "
    "were set by; with ?: a guess, as of kernels of the kind on this architecture none is published. Pipes: occupied "
    "share of the core time on the slowest core. Critical path: fixed is the kernel's prologue and epilogue, barrier "
    "the one between phases, "
    "latency the time until a result can be used, memory what L2 and memory take beyond the cores. Cycle-approximate: "
    "in-order pipes joined by flags are modelled, the cost of each instruction is that of the parameter set. "
    "A call takes its launches one after the other; gaps between launches and the time of the host are not modelled."
)


@pytest.fixture(autouse=True)
def _no_note_of_compilation(monkeypatch):
    monkeypatch.setattr("ops.cli.scripts.note_compilation", lambda: None)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "calls.py"
    path.write_text(CALLS)
    return path


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def made_by_the_script(product):
    """Return the explanations of the calls, made without the command line."""
    with use_product(product), recording() as recorder:
        exec(compile(CALLS, "calls", "exec"), {})
    return recorder.explanations()


def test_perf_of_a_script_says_operator_shapes_launches_and_total_of_each_call(capsys, monkeypatch, script):
    monkeypatch.setenv("COLUMNS", "200")
    made = made_by_the_script("910b")
    capsys.readouterr()
    code, out, err = run(capsys, "perf", script, "--product", "910b", "--", "a", "--b")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "['a', '--b']"
    every = []
    for call, heading in zip(made, HEADINGS, strict=True):
        at = lines.index(heading.format(chip="Ascend910B2"))
        assert " ".join(lines[at + 1].split()) == COLUMNS
        timed = [run_timeline(launch, call.product) for launch in call.launches]
        for number, result in enumerate(timed):
            name, cells = lines[at + 2 + number].split(maxsplit=2)[:2], lines[at + 2 + number].split()
            assert name == [str(number), result.launch]
            assert " ".join(cells).startswith(f"{number} {result.launch} {call.launch_works[number]} ")
            assert f" {result.core_count} {result.total_cycles} {result.seconds() * 1e6:.1f} " in " ".join(cells)
        cycles = sum(result.total_cycles for result in timed)
        times = [sum(result.seconds() for result in timed), sum(result.task_seconds() for result in timed)]
        shown = " ".join(lines[at + 2 + len(timed)].split())
        assert shown.startswith(f"{len(timed)} launches {cycles} {times[0] * 1e6:.1f} {times[1] * 1e6:.1f} ")
        busy = [sum(result.busy_cycles[pipe] for result in timed) for pipe in ("S", "V", "M", "MTE1", "MTE2")]
        assert f" {' '.join(f'{100 * part / cycles:.0f}%' for part in busy)} " in shown
        assert lines[at + 3 + len(timed)] == ""
        every.append(timed)
    count = sum(len(call.launches) for call in made)
    bounds = [bound_launch(launch, call.product) for call in made for launch in call.launches]
    task = task_interval(bounds)
    core = sum(sum(result.seconds() for result in timed) for timed in every)
    # launch after launch, as sums of sums may round to another digit
    whole = sum(result.task_seconds() for timed in every for result in timed)
    rest = lines.index(
        f"2 calls, {count} launches: {core * 1e6:.1f} us, with launch overhead {whole * 1e6:.1f} us "
        f"({task.low_seconds * 1e6:.1f} to {task.high_seconds * 1e6:.1f})"
    )
    legend = " ".join(" ".join(lines[rest + 1 :]).split())
    assert legend.startswith(f"{LEGEND} Ascend910B2 at 1800 MHz, parameter set dav-c220 r")


def test_perf_of_a_script_names_the_tensor_that_each_conversion_converts(script):
    made = made_by_the_script("910b")[1]
    names = [f"{launch.name}: {works}" for launch, works in zip(made.launches, made.launch_works, strict=True)]
    assert names == [
        "ReduceSum: grad_output -> grad_bias",
        "TransData: grad_output NCHW -> NC1HWC0",
        "MemSet: weight",
        "TransData: weight NCHW -> FRACTAL_Z",
        "Conv3DBackpropInputV2: grad_output, weight -> grad_input",
        "TransData: grad_input NC1HWC0 -> NCHW",
        "TransData: input NCHW -> NC1HWC0",
        "Conv3DBackpropFilterV2: grad_output, input -> grad_weight",
        "TransData: grad_weight FRACTAL_Z -> ND",
        "Cast: grad_weight fp32 -> fp16",
    ]
    made = made_by_the_script("910")[1]
    names = [f"{launch.name}: {works}" for launch, works in zip(made.launches, made.launch_works, strict=True)]
    at = names.index("MemSet: grad_weight")
    assert names[at + 1] == "Conv3DBackpropFilter: grad_output, input -> grad_weight"


@pytest.mark.parametrize("width", [80, 100])
def test_perf_of_a_script_fits_the_screen(capsys, monkeypatch, script, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run(capsys, "perf", script, "--product", "310p")
    assert max(map(len, out.splitlines())) <= width
    assert out.count("critical path") == 2


@pytest.mark.parametrize(
    ("product", "words"),
    [
        ("310p", "uncalibrated: no published measurement to compare with, expect a factor of 2."),
        ("910b", "compared with published measurements of A2/A3."),
    ],
)
def test_perf_of_a_script_says_whether_the_costs_are_calibrated(capsys, script, product, words):
    _, out, _ = run(capsys, "perf", script, "--product", product)
    assert " ".join(out.split()).endswith(words)
    assert ("uncalibrated" in out) == (product == "310p")
    _, out, _ = run(capsys, "perf", script, "--product", product, "--json", "-")
    chip = get_product(product)
    document = json.loads(out)
    assert document["products"] == {chip.name: describe_parameters(chip)}
    assert document["note"] == LEGEND[LEGEND.index("Cycle-approximate") :]


def test_perf_of_a_script_json_has_the_calls_and_which_launch_belongs_to_which(capsys, script):
    made = made_by_the_script("910")
    capsys.readouterr()
    code, out, _ = run(capsys, "perf", script, "--product", "910", "--json", "-")
    document = json.loads(out)
    assert code == 0
    for number, (call, known) in enumerate(zip(document["calls"], made, strict=True)):
        launches = [launch for launch in document["launches"] if launch["call_number"] == number]
        assert [launch["works_on"] for launch in launches] == list(known.launch_works)
        assert f"{call['title']} ({call['product']}): {call['call']}" == HEADINGS[number].format(chip="Ascend910A")
        assert call["launch_count"] == len(launches)
        assert call["total_cycles"] == sum(launch["total_cycles"] for launch in launches)
        task = task_interval(bound_launch(launch, known.product) for launch in known.launches)
        assert (call["low_task_seconds"], call["high_task_seconds"]) == (task.low_seconds, task.high_seconds)
        assert call["task_seconds"] == pytest.approx(sum(launch["task_seconds"] for launch in launches), rel=1e-12)
        for launch in launches:
            assert sum(launch["critical_parts"].values()) == launch["total_cycles"]


def test_perf_of_a_script_traces_all_launches_one_after_the_other(capsys, script, tmp_path):
    target = tmp_path / "trace.json"
    code, out, _ = run(capsys, "perf", script, "--product", "910b", "--trace", target)
    assert code == 0
    assert out.endswith(f"written: {target}\n")
    made = made_by_the_script("910b")
    events = json.loads(target.read_text())["traceEvents"]
    lane = [event for event in events if event["pid"] == "launches"]
    names, start, rows = [], 0.0, 0
    for number, call in enumerate(made):
        for launch, works in zip(call.launches, call.launch_works, strict=True):
            timed = run_timeline(launch, call.product)
            bar = lane[len(names)]
            names.append(f"call {number}, {call.title}: {launch.name} ({works})")
            assert (bar["ts"], bar["dur"]) == pytest.approx((start, timed.seconds() * 1e6), rel=1e-12)
            inside = [e for e in events if e["ph"] == "X" and e["pid"] != "launches" and start <= e["ts"]]
            inside = [e for e in inside if e["ts"] + e["dur"] <= start + timed.seconds() * 1e6 + 1e-9]
            assert len(inside) == timed.row_count
            rows += timed.row_count
            start += timed.task_seconds() * 1e6
    assert [bar["name"] for bar in lane] == names
    details = [event["args"]["detail"] for event in events if event.get("name") == "TRANS_DATA_TO_5HD"]
    assert details
    assert all(re.match(r"dst_list=\d+(,\d+){15} src_list=\d+(,\d+){15} ", detail) for detail in details)
    assert sum(event["ph"] == "X" for event in events) == rows + len(names)


def test_perf_of_a_script_traces_chosen_cores_of_the_launches_that_have_them(capsys, script, tmp_path):
    target = tmp_path / "trace.json"
    assert run(capsys, "perf", script, "--trace", target, "--trace-core", 1)[0] == 0
    assert {event["pid"] for event in json.loads(target.read_text())["traceEvents"]} == {"core1", "launches"}


def test_perf_of_a_script_trace_that_no_viewer_can_show_is_refused(capsys, monkeypatch, script, tmp_path):
    monkeypatch.setattr(launch_trace, "TRACE_ROW_LIMIT", 50)
    code, _, err = run(capsys, "perf", script, "--trace", tmp_path / "trace.json")
    made = made_by_the_script("910b")
    launches = [launch for call in made for launch in call.launches]
    rows = sum(run_timeline(launch, made[0].product).row_count for launch in launches)
    cores = max(launch.core_count for launch in launches)
    text = f"Trace must hold at most 50 rows, not about {rows} ({cores} cores; choose fewer)"
    assert (code, err) == (2, f"npu-sim: error: {text}\n")
    assert not (tmp_path / "trace.json").exists()
