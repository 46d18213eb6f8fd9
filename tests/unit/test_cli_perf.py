"""``npu-sim perf`` in process: figures against the engine itself, shapes, refusals, traces, bad input."""

import inspect
import json
import re

import numpy as np
import pytest
from test_precision_capture import layer_arrays

import ops
from npu_sim.engines.timeline import run_timeline
from npu_sim.engines.timeline_result import PART_NAMES, STALL_NAMES
from npu_sim.products import get_product
from npu_sim.report.trace import LANES
from ops.cli.main import main
from ops.cli.shapes import DEFAULT_MODE
from ops.studies import launch_trace
from ops.studies.cases import case_of_shape, plan_case
from ops.studies.models.tables import MODELS
from tests.oracles.series import SERIES

SHAPE = ("--x", "2,20,9,7", "--weight", "20,20,3,3", "--stride", "2", "--padding", "1")
CASE = case_of_shape((2, 20, 9, 7), (20, 20, 3, 3), stride=(2,), padding=(1,))


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, tmp_path):
    monkeypatch.setattr("ops.cli.perf.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments):
    """Run the program; return exit code, standard output and standard error."""
    code = main(["perf", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def rows_of(capsys, *arguments):
    code, out, err = call(capsys, *arguments, "--json", "-")
    assert (code, err) == (0, "")
    return json.loads(out)["rows"]


@pytest.mark.parametrize("scope", [None, "call", "kernel"])
@pytest.mark.parametrize("alias", SERIES)
def test_perf_figures_are_those_of_the_launches_of_the_call_or_of_its_kernel(capsys, alias, scope):
    chip = get_product(alias)
    plan = plan_case(CASE, chip, 0, generation="closed")
    (kernel,) = (step.kernel for step in plan.calls.steps if step.step.name == "Conv2DBackpropFilter")
    launches = kernel.launches if scope == "kernel" else plan.calls.launches
    timed = [run_timeline(launch, chip) for launch in launches]
    (row,) = rows_of(capsys, *SHAPE, "--product", alias, *(("--scope", scope) if scope else ()))
    result = row["result"]
    # the kernel has the same time in both
    own = [one.total_cycles for launch, one in zip(launches, timed, strict=True) if launch in kernel.launches]
    assert result["kernel_cycles"] == sum(own)
    assert len(own) == len(kernel.launches)
    cycles = sum(launch.total_cycles for launch in timed)
    assert [launch["launch"] for launch in result["launches"]] == [launch.launch for launch in timed]
    assert result["total_cycles"] == cycles
    assert result["row_count"] == sum(launch.row_count for launch in timed)
    assert result["core_count"] == max(launch.core_count for launch in timed)
    assert result["seconds"] == pytest.approx(cycles / chip.timing_clock_hz, rel=1e-12)
    overhead = sum(launch.launch_nanoseconds for launch in timed) * 1e-9
    assert overhead > 0
    assert result["task_seconds"] == pytest.approx(result["seconds"] + overhead, rel=1e-12)
    for pipe, share in result["pipe_shares"].items():
        assert share == pytest.approx(sum(launch.busy_cycles[pipe] for launch in timed) / cycles, rel=1e-12)
    assert result["pipe_shares"][result["busiest_pipe"]] == max(result["pipe_shares"].values())
    assert set(result["cube_wait_shares"]) == set(STALL_NAMES)
    assert result["cube_wait_shares"][result["largest_cube_wait"]] == max(result["cube_wait_shares"].values())
    # On the slowest cores the Cube is busy or waits, except during barriers between phases and the fixed cost.
    outside = result["critical_shares"]["phase_barrier"] + result["critical_shares"]["kernel_fixed"]
    busy = result["pipe_shares"]["M"]
    assert busy + sum(result["cube_wait_shares"].values()) + outside == pytest.approx(1, rel=1e-12)
    assert set(result["critical_shares"]) == set(PART_NAMES)
    assert sum(result["critical_shares"].values()) == pytest.approx(1, rel=1e-12)
    macs = 2 * 5 * 4 * 20 * 20 * 9
    assert result["macs"] == macs
    # 16 x 16 x 16 multiply-adds per cycle and Cube in fp16 on all four series.
    assert result["cube_utilisation"] == pytest.approx(macs / (4096 * chip.cube_core_count * cycles), rel=1e-12)


@pytest.mark.parametrize(
    ("x", "weight", "options", "expected"),
    [
        ("1,16,30", "32,16,5", ("--stride", "3"), (1, 32, 9)),
        ("1,16,30", "32,8,5", ("--groups", "2", "--padding", "2", "--dilation", "2"), (1, 32, 26)),
        ("2,16,9,8", "16,16,3,2", ("--padding", "1,0,2,3", "--stride", "2,1"), (2, 16, 4, 12)),
        ("1,16,4,6,7", "16,16,2,3,3", ("--padding", "0,1,1", "--stride", "1,2,2"), (1, 16, 3, 3, 4)),
        ("1,16,4,6,7", "16,16,1,1,1", (), (1, 16, 4, 6, 7)),
    ],
)
def test_perf_shape_of_the_output_follows(capsys, x, weight, options, expected):
    (row,) = rows_of(capsys, "--x", x, "--weight", weight, *options, "--product", "910b")
    assert tuple(row["dy_shape"]) == expected
    assert row["result"]["total_cycles"] > 2000


@pytest.mark.parametrize(
    ("options", "compute"),
    [
        ((), "fp16"),
        (("--dtype", "fp32"), "fp32"),
        (("--dtype", "fp32", "--cube-math-type", "ALLOW_FP32_DOWN_PRECISION"), "hf32"),
        (("--dtype", "bf16", "--cube-math-type", "2"), "fp16"),
        (("--dtype", "bf16"), "bf16"),
    ],
)
def test_perf_type_and_mode_decide_what_the_cube_multiplies(capsys, options, compute):
    (row,) = rows_of(capsys, *SHAPE, *options, "--product", "Ascend910_9392")
    assert row["result"]["compute_dtype"] == compute


def test_perf_of_the_step_that_ships_prints_every_series_and_what_is_known(capsys):
    code, out, err = call(capsys, "--no-progress")
    assert (code, err) == (0, "")
    for product in ("310p = Ascend310P3", "910 = Ascend910A", "910b = Ascend910B2", "910_93 = Ascend910_9392"):
        assert f"{product}, cubeMathType 0: " in out
    for layer in ("stem", "down", "depthwise", "pointwise", "dilated", "grouped"):
        assert len(re.findall(rf"^{layer} ", out, re.MULTILINE)) == 6
    refused = "cubeMathType must be 1 (ALLOW_FP32_DOWN_PRECISION) or 2 (USE_FP16) for FP32 tensors, not 0 (KEEP_DTYPE)"
    assert " ".join(out.split()).count(f"refused, status 161002, 6 layers: {refused}") == 2
    assert "24 combinations: 12 refused" in out
    assert "Cycle-approximate" in out
    words = " ".join(out.split())
    assert "uncalibrated: no published measurement to compare with, expect a factor of 2." in words
    assert out.count("numbers): ") == 3
    assert max(map(len, out.splitlines())) <= 100


def test_perf_of_a_calibrated_series_does_not_say_uncalibrated(capsys):
    _, out, _ = call(capsys, *SHAPE, "--product", "910b")
    assert "uncalibrated" not in out
    assert "compared with published measurements of A2/A3" in " ".join(out.split())


def test_perf_text_shows_the_figures_of_the_json_and_their_totals(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    options = ("--layer", "stem", "--layer", "down", "--dtype", "fp16", "--product", "910b")
    results = {row["layer"]: row["result"] for row in rows_of(capsys, *options)}
    _, out, _ = call(capsys, *options)
    table = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith(("stem", "down", "2 calls"))}
    first = {line.split()[0]: line.split() for line in reversed(out.splitlines()) if line.startswith(("stem", "down"))}
    for name, result in results.items():
        figures = first[name]
        assert figures[:4] == [name, "fp16", str(len(result["launches"])), str(result["total_cycles"])]
        assert float(figures[4]) == pytest.approx(result["seconds"] * 1e6, abs=0.051)
        assert float(figures[5]) == pytest.approx(result["task_seconds"] * 1e6, abs=0.051)
        assert float(figures[6]) == pytest.approx(result["low_task_seconds"] * 1e6, abs=0.051)
        assert float(figures[7]) == pytest.approx(result["high_task_seconds"] * 1e6, abs=0.051)
        assert float(figures[8]) == pytest.approx(result["kernel_task_seconds"] * 1e6, abs=0.051)
        assert float(figures[9].rstrip("%")) == pytest.approx(100 * result["cube_utilisation"], abs=0.051)
        pipes = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
        shown = [float(figure.rstrip("%")) for figure in figures[10:17]]
        assert shown == pytest.approx([100 * result["pipe_shares"][pipe] for pipe in pipes], abs=0.51)
    cycles = sum(result["total_cycles"] for result in results.values())
    macs = sum(result["macs"] for result in results.values())
    total = table["2"]
    launches = sum(len(result["launches"]) for result in results.values())
    assert total[:4] == ["2", "calls", str(launches), str(cycles)]
    assert float(total[9].rstrip("%")) == pytest.approx(100 * macs / (4096 * 24 * cycles), abs=0.051)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize(
    ("scope", "timed", "rest"),
    [
        (
            "call",
            "the whole call of aclnnConvolutionBackward with outputMask (false, true, false): the kernel of the weight "
            "gradient and the casts and layout conversions around it",
            ("2 calls ", "task us of the launches, by step", "kernel us", "--scope kernel shows"),
        ),
        (
            "kernel",
            "the kernel of the weight gradient alone, out of the call of aclnnConvolutionBackward with outputMask "
            "(false, true, false): without the casts and layout conversions around it, which can take several times as "
            "much",
            ("2 kernels ", "Cube waits for", "critical path of the kernel", "--scope call times"),
        ),
    ],
)
def test_perf_says_what_it_times_in_text_and_json(capsys, monkeypatch, width, scope, timed, rest):
    monkeypatch.setenv("COLUMNS", str(width))
    options = ("--product", "910b", "--layer", "stem", "--layer", "down")
    options = (*options, "--scope", scope)
    _, out, _ = call(capsys, *options)
    text = " ".join(out.split())
    assert text.startswith(f"Each layer: {timed}. 910b = Ascend910B2")
    for words in rest:
        assert words in text
    assert max(len(line.rstrip()) for line in out.splitlines()) <= width
    report = json.loads(call(capsys, *options, "--json", "-")[1])
    assert (report["scope"], report["timed"]) == (scope, timed)


def test_perf_text_says_where_the_time_of_a_call_goes(capsys):
    (row,) = rows_of(capsys, *SHAPE, "--product", "310p", "--dtype", "fp32", "--cube-math-type", "1")
    _, out, _ = call(capsys, *SHAPE, "--product", "310p", "--dtype", "fp32", "--cube-math-type", "1")
    parts, kernels = {}, {}
    for launch in row["result"]["launches"]:
        parts[launch["step"]] = parts.get(launch["step"], 0.0) + launch["task_seconds"] * 1e6
        if launch["launch"] != launch["step"]:
            kernels[launch["launch"]] = launch["task_seconds"] * 1e6
    assert list(parts) == ["Cast", "TransData", "Conv2DBackpropFilter"]
    assert list(kernels) == ["MemSet", "Conv3DBackpropFilter"]
    text = " ".join(out.split())
    assert ", ".join(f"{name} {us:.1f}" for name, us in parts.items()) in text
    launched = ", ".join(f"{name} {us:.1f}" for name, us in kernels.items())
    assert f"Conv2DBackpropFilter of {row['layer']} launches {launched}." in text
    assert f"{row['result']['high_task_seconds'] * 1e6:.1f}?" in out
    assert f"TransData takes {100 * parts['TransData'] / sum(parts.values()):.0f}% of it" in " ".join(out.split())


def test_perf_of_a_call_that_computes_nothing_times_its_fill(capsys):
    empty = ("--x", "0,16,8,8", "--weight", "16,16,3,3", "--product", "910b")
    (row,) = rows_of(capsys, *empty)
    assert [launch["launch"] for launch in row["result"]["launches"]] == ["MemSet"]
    assert (row["result"]["kernel_cycles"], row["result"]["cube_utilisation"]) == (0, 0.0)
    code, out, _ = call(capsys, *empty, "--scope", "kernel")
    assert (code, "no kernel multiplies" in out) == (0, True)


def test_perf_and_check_default_mode_is_that_of_the_calls():
    parameters = [inspect.signature(call).parameters for call in (ops.convolution_backward, ops.avg_pool2d_backward)]
    assert {names["cube_math_type"].default for names in parameters} == {DEFAULT_MODE} == {0}


def test_case_of_shape_counts_the_places_of_the_window():
    rng = np.random.default_rng(3)
    for _ in range(200):
        extent, kernel, stride, pad, dilation = (int(rng.integers(low, 9)) for low in (1, 1, 1, 0, 1))
        reach = (kernel - 1) * dilation
        places = [at for at in range(-pad, extent + pad, stride) if at + reach < extent + pad]
        if places:
            case = case_of_shape((1, 1, extent), (1, 1, kernel), stride=(stride,), padding=(pad,), dilation=(dilation,))
            assert case.dy_shape == (1, 1, len(places))


def test_perf_captured_layers_keep_their_names_types_and_attributes(capsys, tmp_path):
    np.savez(tmp_path / "own.npz", **layer_arrays("features.0"), **layer_arrays("head"))
    rows = rows_of(capsys, "own.npz", "--layer", "head", "--product", "910b", "--product", "910b")
    assert [(row["layer"], row["input_dtype"]) for row in rows] == [("head", "fp32")]
    arrays = layer_arrays("head")
    assert tuple(rows[0]["dy_shape"]) == arrays["head.dy"].shape
    assert rows[0]["groups"] == int(arrays["head.groups"])


def test_perf_refused_combination_is_one_line_and_exit_1_when_nothing_else_ran(capsys):
    code, out, err = call(capsys, "--dtype", "bf16", "--product", "910", "--product", "310p")
    assert (code, err) == (1, "")
    text = " ".join(out.split())
    assert text.count("refused, ") == 2
    for name in ("Ascend910A", "Ascend310P3"):
        words = "gradOutput dtype must be FP32 or FP16, not BF16 (2D, "
        where = f"{name}, {get_product(name).series_name}; rule 2 grad-output-dtype)"
        assert f"refused, status 161002, 6 layers: {words}{where}" in text


def test_perf_refused_3d_beside_timed_ones_is_exit_0(capsys):
    code, out, _ = call(
        capsys, "--x", "1,16,4,6,7", "--weight", "16,16,2,3,3", "--product", "310p", "--product", "910b"
    )
    assert code == 0
    assert "2 combinations: 1 refused" in out
    assert out.count("refused, status 161002, 1x16x4x6x7: input rank must be 3 or 4") == 1
    assert "rule 12 no-conv3d" in " ".join(out.split())


WRONG = [
    ((*SHAPE, "--model", "resnet50"), "Layers must come from one of FILE, --model and --x, not from --model and --x"),
    (("own.npz", "more.npz"), "ARGUMENTS must be given together with a Python file, not more.npz"),
    (("own.npz", *SHAPE), "Layers must come from one of FILE, --model and --x, not from FILE and --x"),
    (("--batch", "4"), "--batch must be given together with --model or a PyTorch model"),
    (("--forward",), "--forward must be given together with --model or a PyTorch model"),
    (("--stride", "2"), "--stride must be given together with --x"),
    (("--groups", "2", "--model", "resnet50"), "--groups must be given together with --x"),
    (("--x", "1,16,8,8"), "--x must be given together with --weight"),
    (
        ("--x", "1,16,8,nan", "--weight", "16,16,3,3"),
        "--x must be integers separated by commas, such as 8,64,56,56, not '1,16,8,nan'",
    ),
    (
        ("--x", "1,16,8,8", "--weight", "16,16,3,3", "--stride", "1e9"),
        "--stride must be integers separated by commas, such as 8,64,56,56, not '1e9'",
    ),
    (("--x", "1,16,8,8", "--weight", "16,16,3"), "weight must have the rank of x (4), not 3"),
    (("--x", "16,8", "--weight", "16,8"), "x must have rank 3 (NCL), 4 (NCHW) or 5 (NCDHW), not 2"),
    ((*SHAPE, "--scope", "launch"), "--scope must be one of call, kernel, not launch"),
    (
        ("--x", "1,16,8,8", "--weight", "16,16,3,3", "--stride", "0"),
        "stride must be at least 1, not 0",
    ),
    (
        ("--x", "1,16,8,8", "--weight", "16,16,3,3", "--padding", "1,2,3"),
        "padding must have 1 or 2 entries, not 3",
    ),
    (
        ("--x", "1,16,8,8", "--weight", "16,16,3,9"),
        "Kernel must fit into the padded input, but axis 1 has 8 elements and the dilated kernel 9",
    ),
    (("--model", "resnet50", "--batch", "0"), "--batch must be in [1, 2147483646], not 0"),
    (("--model", "resnet50", "--batch", "2147483647"), "--batch must be in [1, 2147483646], not 2147483647"),
    (("--model", "resnet5"), f"Model must be one of {', '.join(MODELS)}, not resnet5"),
    ((*SHAPE, "--layer", "conv1"), "Layer must be one of 2x20x9x7, not conv1 (command line)"),
    ((*SHAPE, "--dtype", "int8"), "dtype must be one of fp16, bf16, fp32, not int8"),
    ((*SHAPE, "--cube-math-type", "4"), "cubeMathType must be one of 0 (KEEP_DTYPE), "),
    ((*SHAPE, "--product", "Ascend999"), "Product must be "),
    (("missing.npz",), "Input file must exist, but missing.npz does not"),
    ((*SHAPE, "--json", "nowhere/r.json"), "Output file must be in an existing directory, not nowhere/r.json"),
    ((*SHAPE, "--trace", "-"), "--trace must be a file, not standard output"),
    ((*SHAPE, "--trace-core", "0"), "--trace-core must be given together with --trace or --op-prof"),
    (
        (*SHAPE, "--trace", "t.json"),
        "--trace must come with one --layer, --product and --cube-math-type, not 4 combinations",
    ),
    ((*SHAPE, "--product", "910b", "--trace", "t.json", "--trace-core", "24"), "Core must be in [0, "),
    ((*SHAPE, "--product", "910b", "--trace", "t.json", "--trace-core", "-1"), "Core must be in [0, "),
    ((*SHAPE, "--product", "910b", "--trace", "./r.json"), "--trace must be another file than r.json"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message[:60] for _, message in WRONG])
def test_perf_bad_input_is_one_line_exit_2_and_nothing_written(capsys, tmp_path, arguments, message):
    if "--json" not in arguments:
        arguments = (*arguments, "--json", "r.json")
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"npu-sim: error: {message}")
    if not message.endswith((" ", ", ")):
        assert err == f"npu-sim: error: {message}\n"
    assert list(tmp_path.iterdir()) == []


def test_perf_json_must_not_replace_the_input(capsys, tmp_path):
    np.savez(tmp_path / "own.npz", **layer_arrays("head"))
    before = (tmp_path / "own.npz").read_bytes()
    code, _, err = call(capsys, "own.npz", "--json", "./own.npz")
    assert (code, err) == (2, "npu-sim: error: --json must not be the input own.npz\n")
    assert (tmp_path / "own.npz").read_bytes() == before


def test_perf_trace_holds_every_row_of_all_launches_one_after_the_other(capsys, tmp_path):
    code, out, _ = call(capsys, *SHAPE, "--product", "910", "--trace", "t.json", "--json", "r.json")
    assert code == 0
    assert out.endswith("written: r.json\nwritten: t.json\n")
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    launches = row["result"]["launches"]
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["schemaVersion"] == 2
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    named = [span["name"] for span in spans if span["pid"] == "launches"]
    assert named == [f"{launch['launch']} ({launch['works_on']})" for launch in launches]
    spans = [span for span in spans if span["pid"] != "launches"]
    assert len(spans) == row["result"]["row_count"]
    assert {event["tid"] for event in spans} <= set(LANES)
    assert len({event["pid"] for event in spans}) == row["result"]["core_count"]
    boundary = launches[0]["task_seconds"] * 1e6
    first = [event for event in spans if event["ts"] < boundary]
    assert len(first) == launches[0]["row_count"]
    last = sum(launch["task_seconds"] for launch in launches[:-1]) + launches[-1]["seconds"]
    assert max(event["ts"] + event["dur"] for event in spans) <= last * 1e6 + 1e-9
    starts = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "s"}
    ends = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "f"}
    waits = sum(launch["instruction_counts"].get("WAIT_FLAG", 0) for launch in row["result"]["launches"])
    assert starts.keys() == ends.keys()
    assert len(starts) == waits
    assert all(starts[flow]["ts"] <= ends[flow]["ts"] for flow in starts)
    lanes = [(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert len(lanes) == len(set(lanes))


def test_perf_trace_of_chosen_cores_only(capsys, tmp_path):
    call(capsys, *SHAPE, "--product", "910b", "--trace", "t.json", "--trace-core", "3", "--trace-core", "1")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {"launches", "core1", "core3"}


def test_perf_trace_that_no_viewer_can_show_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(launch_trace, "TRACE_ROW_LIMIT", 50)
    code, out, err = call(capsys, *SHAPE, "--product", "910b", "--trace", "t.json", "--json", "r.json")
    assert (code, out) == (2, "")
    assert re.fullmatch(
        r"npu-sim: error: Trace must hold at most 50 rows, not about \d+ \(\d+ cores; choose fewer\)\n", err
    )
    assert list(tmp_path.iterdir()) == []


def test_perf_trace_of_a_refused_layer_writes_no_trace(capsys, tmp_path):
    code, out, _ = call(capsys, *SHAPE, "--product", "910", "--dtype", "bf16", "--trace", "t.json")
    assert code == 1
    assert "refused, status 161002" in out
    assert list(tmp_path.iterdir()) == []


def test_perf_takes_paddings_by_name(capsys):
    def document(padding):
        assert main(["perf", "--x", "1,16,9,9", "--weight", "16,16,3,2", "--padding", padding, "--json", "-"]) == 0
        return json.loads(capsys.readouterr().out)["rows"]

    assert document("same") == document("1,1,0,1")
    assert document("valid") == document("0")
