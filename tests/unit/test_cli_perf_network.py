"""``npu-sim perf`` of networks in process: figures against the study, sweeps, products, PyTorch models, bad input."""

import json
import re

import pytest

from ops.cli.main import _SWITCHES, _load, main
from ops.studies.launch_times import seconds_words
from ops.studies.network.report import run_network
from ops.studies.network.step import step_of_table

SMALL = ("--model", "alexnet", "--batch", "1", "--layer", "conv3", "--layer", "conv5")


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, tmp_path):
    monkeypatch.setattr("ops.cli.perf_network.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments):
    """Run the program; return exit code, standard output and standard error."""
    code = main(["perf", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def report_of(capsys, *arguments):
    code, out, err = call(capsys, *arguments, "--json", "-")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_figures_are_those_of_the_study(capsys):
    made = report_of(capsys, *SMALL, "--product", "910b", "--product", "310p", "--forward")
    report = run_network(
        lambda batch, mode: step_of_table("alexnet", batch, mode, "fp16"),
        ["910b", "310p"], [0], [1], layers=["conv3", "conv5"], forward=True,
    )  # fmt: skip
    assert made == json.loads(report.to_json())
    assert [(one["product"], one["call_count"]) for one in made["steps"]] == [("910b", 4), ("310p", 4)]
    for step in made["steps"]:
        calls = [call for layer in step["layers"] for call in layer["calls"]]
        assert sum(call["task_seconds"] for call in calls) == pytest.approx(step["task_seconds"])
        assert sum(step["seconds_by_kind"].values()) == pytest.approx(step["task_seconds"])
        assert {call["words"] for call in calls} == {
            "call of aclnnConvolution with a bias",
            "call of aclnnConvolutionBackward with outputMask (true, true, true)",
        }


def test_text_begins_with_the_answer_and_has_each_layer(capsys):
    code, out, _ = call(capsys, *SMALL, "--product", "910b")
    (step,) = report_of(capsys, *SMALL, "--product", "910b")["steps"]
    assert code == 0
    low, high = (seconds_words(step[f"{name}_task_seconds"]) for name in ("low", "high"))
    answer = (
        f"AlexNet, batch 1, takes {seconds_words(step['task_seconds'])} ({low} to {high}) on Ascend910B2 in 2 calls"
    )
    assert " ".join(out.split()).startswith(answer)
    table = {line.split()[0]: line.split() for line in reversed(out.splitlines()) if line.startswith("conv")}
    for layer in step["layers"]:
        ((made,), name) = layer["calls"], layer["names"][0]
        us = made["task_seconds"] * 1e6
        share = 100 * made["task_seconds"] / step["task_seconds"]
        assert table[name][1:3] == [f"{us:.1f}"] * 2
        bounds = [made["low_task_seconds"] * 1e6, made["high_task_seconds"] * 1e6]
        assert [float(cell) for cell in table[name][3:5]] == pytest.approx(bounds, abs=0.051)
        assert bounds[0] < us < bounds[1]
        assert table[name][5] == f"{share:.1f}%"
        results = [made["seconds_by_result"][key] * 1e6 for key in ("dx", "dw", "db", "shared")]
        assert [float(cell) for cell in table[name][6:10]] == pytest.approx(results, abs=0.051)
    text = " ".join(out.split())
    assert "launches that take most of the step" in text
    assert "memory-bound" in text or "compute-bound" in text
    assert "Not timed" not in text
    # what pipes wait for, and the critical path, which adds up
    assert re.search(r"MTE2 \d+% \S+", text)
    assert sum(step["critical_shares"].values()) == pytest.approx(1)
    for pipe, waits in step["wait_shares"].items():
        outside = sum(step["critical_shares"][part] for part in ("phase_barrier", "memory", "kernel_fixed"))
        assert step["pipe_shares"][pipe] + sum(waits.values()) + outside == pytest.approx(1)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_settings_stand_side_by_side_and_fit(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    options = (
        "--model",
        "resnet50",
        "--batch",
        "1,2",
        "--layer",
        "conv5_2c",
        "--layer",
        "conv5_3c",
        "--product",
        "910b",
    )
    code, out, _ = call(capsys, *options, "--product", "910")
    made = report_of(capsys, *options, "--product", "910")
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= width
    lines = out.partition("\n\n")[2].splitlines()
    # a table that does not fit side by side is continued below
    begin = [i for i, line in enumerate(lines) if line.startswith("conv5_2c x2")]
    cells = [word for i in begin for word in lines[i].split()[2:]]
    expected = [
        word
        for step in made["steps"]
        for word in (step["busiest_pipe"], f"{step['task_seconds'] * 1e6:.1f}")
    ]  # fmt: skip
    assert cells == expected
    assert "launches that take most" not in out
    assert "launches that take most" in call(capsys, *options, "--product", "910", "--details")[1]


def test_mask_decides_which_gradients(capsys):
    made = report_of(capsys, "--model", "alexnet", "--batch", "1", "--layer", "conv1", "--product", "910b")
    assert made["steps"][0]["layers"][0]["calls"][0]["gradients"] == ["dw", "db"]
    options = ("--model", "alexnet", "--batch", "1", "--layer", "conv5", "--product", "910b", "--mask", "dw")
    assert report_of(capsys, *options)["steps"][0]["layers"][0]["calls"][0]["gradients"] == ["dw"]


def test_advice_is_printed_where_it_is_asked_for(capsys):
    assert report_of(capsys, *SMALL, "--product", "910b")["steps"][0]["advice"] is None
    (step,) = report_of(capsys, *SMALL, "--product", "910b", "--dtype", "fp32", "--advice")["steps"]
    best = step["advice"][0]
    assert best["gain"] == pytest.approx(1 - best["changed_seconds"] / best["seconds"])
    _, out, _ = call(capsys, *SMALL, "--product", "910b", "--dtype", "fp32", "--advice")
    changed, before = (seconds_words(best[name]) for name in ("changed_seconds", "seconds"))
    line = f"Advice 1: {best['words']}; an image takes {changed} instead of {before}, {100 * best['gain']:.0f}% less"
    assert line in " ".join(out.split())


def test_trace_holds_the_launches_of_the_layer(capsys, tmp_path):
    options = ("--model", "alexnet", "--batch", "1", "--layer", "conv5", "--product", "910b", "--forward")
    code, out, _ = call(capsys, *options, "--trace", "t.json", "--trace-core", "0", "--json", "r.json")
    assert code == 0
    assert out.endswith("written: r.json\nwritten: t.json\n")
    (layer,) = json.loads((tmp_path / "r.json").read_text())["steps"][0]["layers"]
    named = [
        f"conv5: {launch['launch']} ({launch['works_on']})" for made in layer["calls"] for launch in made["launches"]
    ]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["pid"] == "launches"] == named


WRONG = [
    (("--model", "resnet5"), "Model must be one of alexnet, "),
    ((*SMALL, "--batch", "8,x"), "--batch must be integers separated by commas, such as 8,64,56,56, not '8,x'"),
    ((*SMALL, "--batch", "0,8"), "--batch must be in [1, 2147483646], not 0"),
    ((*SMALL, "--mask", "dx,dy"), "--mask must be some of dx,dw,db, not dx,dy"),
    ((*SMALL, "--input", "1,3,8,8"), "--input must be given together with a PyTorch model"),
    (
        (*SMALL, "--layer", "conv9"),
        "Layer must be one of conv1, conv2, conv3, conv4, conv5, fc6, fc7, fc8, not conv9",
    ),
    ((*SMALL, "--x", "1,3,8,8"), "Layers must come from one of FILE, --model and --x, not from --model and --x"),
    ((*SMALL, "--stride", "2"), "--stride must be given together with --x"),
    (("m.py:build", *SMALL), "Layers must come from one of FILE, --model and --x, not from FILE and --model"),
    (("m.py:build", "--product", "910b"), "Python file must exist, but m.py does not"),
    (("m.py:build", "--batch", "4"), "--batch must be given together with --model or --input"),
    (
        (*SMALL, "--trace", "t.json"),
        "--trace must come with one --layer, --product, --cube-math-type and --batch, not ",
    ),
    ((*SMALL, "--trace", "-"), "--trace must be a file, not standard output"),
    ((*SMALL, "--trace-core", "1"), "--trace-core must be given together with --trace or --op-prof"),
    ((*SMALL, "--scope", "launch"), "--scope must be one of call, kernel, not launch"),
    ((*SMALL, "--dtype", "int8"), "dtype must be one of fp16, bf16, fp32, not int8"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message[:60] for _, message in WRONG])
def test_bad_input_is_one_line_exit_2_and_nothing_written(capsys, tmp_path, arguments, message):
    code, out, err = call(capsys, *arguments, "--json", "r.json")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"npu-sim: error: {message}")
    assert list(tmp_path.iterdir()) == []


POOL = ("--model", "resnet50", "--batch", "1", "--dtype", "fp32", "--cube-math-type", "1", "--layer", "pool5",
        "--layer", "conv5_2b", "--forward", "--advice")  # fmt: skip


def test_sums_without_refused_calls_are_marked(capsys):
    _, out, _ = call(capsys, *POOL, "--product", "910b", "--product", "910")
    lines = [line for line in out.splitlines() if line.startswith("pool5")]
    assert [line.count("(1 refused)") for line in lines] == [1]
    text = " ".join(out.split())
    assert "for 910b without 1 refused call:" in text
    assert "for 910 without" not in text
    assert "refused, behind a name or a time: without so many calls that are refused" in text


def test_a_step_without_refused_calls_is_marked(capsys):
    """Both refuse the same: they are compared, and what is compared is not the whole step."""
    _, out, _ = call(capsys, *POOL, "--product", "910b", "--product", "910_93", "--details")
    table = {line.split()[0]: line for line in reversed(out.splitlines()) if line}
    assert [table[name].count("(1 refused)") for name in ("step", "image")] == [2, 2]
    text = " ".join(out.split())
    assert re.search(r"An image takes least on \S+, [^;]*; [^;]*, each without 1 refused call\.", text)
    assert len(re.findall(r"Of [\d.]+ [mu]s without 1 refused call: ", text)) == 2
    assert re.search(r"^3 calls \(1 refused\) ", out, re.MULTILINE)


def test_what_is_refused_everywhere_is_exit_1(capsys):
    code, out, _ = call(capsys, "--model", "r2plus1d_18", "--batch", "1", "--layer", "stem_s", "--product", "310p")
    assert code == 1
    assert out.startswith("Every call is refused.")
    assert "310p: refused, status 161002, stem_s: " in " ".join(out.split())


MODEL = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3))

def with_input():
    return build(), torch.zeros(2, 3, 8, 8)

def with_loss():
    model = build().half()
    return model, lambda: nn.functional.mse_loss(model(torch.zeros(2, 3, 8, 8).half()), torch.zeros(2, 8, 2, 2).half())

def decides():
    model = build()
    return model, lambda: model(torch.zeros(2, 3, 8, 8)).sum() * float(torch.ones(1).sum().item())

def pools_first():
    return nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(3, 8, 3)), torch.zeros(3, 3, 8, 8)

def nothing():
    return nn.LayerNorm(3)
"""


@pytest.mark.parametrize(
    ("arguments", "batches", "dtype"),
    [
        (("m.py:build", "--input", "2,3,8,8"), [2], "fp32"),
        (("m.py:build", "--input", "2,3,8,8", "--batch", "1,4"), [1, 4], "fp32"),
        (("m.py:with_input",), [2], "fp32"),
        (("m.py:with_loss",), [2], "fp16"),
        (("m.py:build", "--input", "2,3,8,8", "--dtype", "fp16"), [2], "fp16"),
    ],
)
def test_models_are_timed_by_their_shapes(capsys, tmp_path, arguments, batches, dtype):
    pytest.importorskip("torch")
    (tmp_path / "m.py").write_text(MODEL)
    made = report_of(capsys, *arguments, "--product", "910b")
    assert [step["batch"] for step in made["steps"]] == batches
    for step in made["steps"]:
        assert [layer["names"] for layer in step["layers"]] == [["0"], ["2"], ["3"]]
        assert [layer["calls"][0].get("gradients") for layer in step["layers"]] == [
            ["dw", "db"],
            None,
            ["dx", "dw", "db"],
        ]
        assert {made["input_dtype"] for layer in step["layers"] for made in layer["calls"]} == {dtype}
        assert step["layers"][1]["calls"][0]["x_shape"] == [step["batch"], 8, 8, 8]
    assert made["untimed"]["ReLU"] == 1
    _, out, _ = call(capsys, *arguments, "--product", "910b")
    assert "Not timed: ReLU 1" in " ".join(out.split())


def test_the_batch_is_that_of_the_first_layer_whatever_it_is(capsys, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "m.py").write_text(MODEL)
    (step,) = report_of(capsys, "m.py:pools_first", "--product", "910b")["steps"]
    assert step["batch"] == 3
    # nobody wants the gradient of the image
    assert [(layer["names"], len(layer["calls"])) for layer in step["layers"]] == [(["0"], 0), (["1"], 1)]
    code, out, _ = call(capsys, "m.py:pools_first", "--product", "910b", "--product", "910", "--cube-math-type", "1")
    assert code == 0
    table = {line.split()[0]: line.split()[1:] for line in out.partition("\n\n")[2].splitlines()[:3]}
    assert table["0"] == ["-", "-"]
    assert len(table["1"]) == 4
    code, out, _ = call(capsys, "m.py:pools_first", "--product", "910b", "--product", "910")
    assert code == 0
    table = {line.split()[0]: line.split()[1:] for line in out.partition("\n\n")[2].splitlines()[:3]}
    assert (table["0"], table["1"][2:]) == (["-", "-"], ["refused"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("m.py:build",), "The function must return (model, loss) or (model, x, ...)"),
        (("m.py:none",), "m.py must define the function none"),
        (("m.py:build", "--input", "2,4,8,8"), "m.py:build must run, but ends with "),
        (("m.py:decides",), "m.py:decides must run, but ends with "),
        (
            ("m.py:nothing", "--input", "2,3"),
            "The model must run a convolution, a 2D average pooling or a linear layer, but has none",
        ),
    ],
)
def test_models_that_cannot_be_timed_are_refused_in_one_line(capsys, tmp_path, arguments, message):
    pytest.importorskip("torch")
    (tmp_path / "m.py").write_text(MODEL)
    code, out, err = call(capsys, *arguments, "--product", "910b")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"npu-sim: error: {message}")


@pytest.mark.parametrize("module", ["perf", "perf_call", "perf_cases"])
def test_every_option_of_perf_without_a_value_is_known_to_be_one(module):
    """Otherwise the word behind it is taken for its value, and not for what is to be timed."""
    flags = {name for one in _load("perf", module).params if getattr(one, "is_flag", False) for name in one.opts}
    assert flags
    assert flags - {"-h"} <= _SWITCHES
