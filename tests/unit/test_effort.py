"""How much a study takes: counted where it is little, scaled where it is much, announced and asked for."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from npu_sim.engines.timeline import run_timeline
from npu_sim.errors import ShapeError
from npu_sim.products import get_product
from npu_sim.units import MIB
from ops.cli import effort as shown
from ops.cli.main import main
from ops.studies import checking, effort
from ops.studies.calls.convolutions import gradient_requests
from ops.studies.calls.request_items import read_call
from ops.studies.capture import load_example
from ops.studies.cases import CaseSet, case_of_shape, cases_of_capture, cases_of_model, plan_case, steps_of
from ops.studies.default_shapes import default_shapes
from ops.studies.effort import Effort, checking_effort, count_rows, precision_effort, timing_effort
from ops.studies.layers import Capture, Layer
from ops.studies.precision_results import StudyOptions
from ops.studies.scope import SCOPES
from tests.oracles.series import SERIES, UNIFIED

SHAPE = ("--x", "2,20,9,7", "--weight", "20,20,3,3", "--stride", "2", "--padding", "1", "--product", "910b")


def cases(batch=2):
    return CaseSet(source="test", cases=(case_of_shape((batch, 20, 9, 7), (20, 20, 3, 3), padding=(1,)),))


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, tmp_path):
    for command in ("perf", "check", "precision", "scripts"):
        monkeypatch.setattr(f"ops.cli.{command}.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("product", SERIES)
def test_effort_of_small_programs_is_counted_to_the_last_row(product, scope):
    chip = get_product(product)
    steps = steps_of(plan_case(cases().cases[0], chip, 0, generation="closed"), scope)
    rows = sum(run_timeline(launch, chip).row_count for step in steps for launch in step.kernel.launches)
    found = timing_effort(gradient_requests(cases().cases, (0,)), (product,), scope)
    assert (found.instructions, found.is_bound, found.bytes) == (rows, False, 0)
    assert timing_effort(gradient_requests(cases().cases, (0, 2)), (product, product), scope).instructions == 2 * rows


@pytest.mark.parametrize("product", ["310p", "910b"])
@pytest.mark.parametrize("layer", ["conv1", "conv2_1b", "conv4_2a"])
def test_effort_of_a_large_batch_is_scaled_from_a_small_one(monkeypatch, product, layer):
    several = cases_of_model("resnet50", 96).select([layer])
    exact = timing_effort(gradient_requests(several.cases, (0,)), (product,), "call").instructions
    counted = []

    def count(launches, budget):
        counted.append(count_rows(launches, budget))
        return counted[-1]

    monkeypatch.setattr(effort, "count_rows", count)
    monkeypatch.setattr(effort, "_BUDGET_ROWS", exact // 4)
    scaled = timing_effort(gradient_requests(several.cases, (0,)), (product,), "call")
    assert not scaled.is_bound
    assert len(counted) > 1
    # fewer images are converted on fewer cores, and each core adds dW once whatever its share
    assert exact / 1.8 < scaled.instructions < exact * 1.8
    # no more than the budget and a chunk was ever emitted
    assert max(rows for rows, _ in counted) <= exact // 4 + 4096


def test_effort_of_one_image_too_large_to_count_is_estimated_from_first_cores(monkeypatch):
    exact = timing_effort(gradient_requests(cases(1).cases, (0,)), ("910b",), "kernel").instructions
    monkeypatch.setattr(effort, "_LAST_BUDGET_ROWS", exact // 2)
    found = timing_effort(gradient_requests(cases(1).cases, (0,)), ("910b",), "kernel")
    assert not found.is_bound
    assert exact / 1.8 < found.instructions < exact * 1.8


def test_effort_of_rows_without_end_is_a_lower_bound_above_what_may_start_unasked():
    # 2^31 channels of one pixel
    given = {"in_shape": [2**16, 2**15, 1, 1], "in_format": "NCHW", "out_format": "NC1HWC0", "in_dtype": "float16"}
    request = read_call("transdata", given, "910", "call")
    found = timing_effort([request], ("910",), "call")
    assert found.is_bound
    assert found.seconds > shown.LIMIT_SECONDS


def test_effort_of_what_is_refused_is_none():
    assert (
        timing_effort(gradient_requests(cases_of_capture(load_example(), "bf16").cases, (0, 1)), UNIFIED, "call")
        == Effort()
    )


def layers_of(found):
    """The cases as captured layers of zeros."""
    layers = tuple(
        Layer(
            name=one.name, x=np.zeros(one.x_shape, np.float16), dy=np.zeros(one.dy_shape, np.float16),
            weight_shape=one.weight_shape, stride=one.stride, padding=one.padding, dilation=one.dilation,
            groups=one.groups,
        )
        for one in found.cases
    )  # fmt: skip
    return Capture(source="test", layers=layers)


def test_effort_of_precision_counts_from_a_second_on(monkeypatch):
    capture, options = layers_of(cases()), StudyOptions(products=("910b",), cube_math_types=(0,))
    assert precision_effort(capture, options) == Effort()
    # below a second once, above it in so many runs
    monkeypatch.setattr(effort, "MACS_PER_SECOND", cases().cases[0].macs * 50)
    assert precision_effort(capture, options) == Effort()
    assert 2 <= precision_effort(capture, options, 100).seconds < 3
    monkeypatch.setattr(effort, "MACS_PER_SECOND", cases().cases[0].macs / 50)
    found = precision_effort(capture, options)
    assert found.seconds == pytest.approx(50, rel=0.01)
    # what is computed is the published kernel
    requests = [replace(one, generation="published") for one in gradient_requests(cases().cases, (0,))]
    assert found.instructions == timing_effort(requests, ("910b",), "kernel").instructions
    assert found.bytes > 8 * 4 * 2 * 20 * (9 * 7 + 9 * 7)


def test_effort_of_precision_has_goldens_peers_and_comparisons(monkeypatch):
    monkeypatch.setattr(effort, "TIMING_ROWS_PER_SECOND", math.inf)
    monkeypatch.setattr(effort, "MACS_PER_SECOND", 1e3)
    for rate in ("GOLDEN_MACS_PER_SECOND", "PEER_MACS_PER_SECOND", "COMPARED_PER_SECOND"):
        monkeypatch.setattr(effort, rate, math.inf)
    capture = default_shapes()
    given = {"products": ("910b", "310p"), "layers": ("conv2d fp16",), "gradients": ("y",), "cube_math_types": (0,)}
    macs = 4 * 32 * 28 * 28 * 32 * 9
    results = 4 * 32 * 28 * 28

    def seconds(**changes):
        return precision_effort(capture, StudyOptions(**given | changes)).seconds

    assert seconds() == pytest.approx(2 * macs / 1e3)
    monkeypatch.setattr(effort, "GOLDEN_MACS_PER_SECOND", 1e3)
    # one golden of the tensors, one of what each call multiplies at most
    assert seconds() == pytest.approx((2 + 3) * macs / 1e3)
    assert seconds(standards=("double-benchmark-l1",)) == seconds()
    monkeypatch.setattr(effort, "PEER_MACS_PER_SECOND", 1e2)
    assert seconds() == pytest.approx((2 + 3) * macs / 1e3)
    assert seconds(standards=("double-benchmark-l1",)) == pytest.approx((2 + 3 + 30) * macs / 1e3)
    monkeypatch.setattr(effort, "COMPARED_PER_SECOND", 1.0)
    assert seconds() == pytest.approx((2 + 3) * macs / 1e3 + 2 * 2 * results)


def test_a_call_whose_rows_are_all_counted_is_planned_once(monkeypatch):
    planned = []

    def counted(case, *given, **options):
        planned.append(case)
        return plan_case(case, *given, **options)

    monkeypatch.setattr("ops.studies.calls.convolutions.plan_case", counted)
    one = CaseSet(source="test", cases=cases().cases[:1])
    assert checking_effort(one, ("910b",), (0,)).instructions > 0
    assert planned == list(one.cases)


def test_effort_of_checking_needs_memory_and_refuses_what_does_not_fit():
    plan = plan_case(cases().cases[0], get_product("910b"), 0)
    assert checking_effort(cases(), ("910b",), (0,)).bytes == 2 * plan.calls.gm.total_bytes
    large = CaseSet(source="test", cases=(case_of_shape((512, 256, 224, 224), (256, 256, 1, 1)),))
    with pytest.raises(
        ShapeError, match=r"^Tensors of 512x256x224x224 must take at most 4096 MiB for the checker, not 50176 MiB$"
    ):
        checking_effort(large, ("910b",), (0,))


SCRIPT = """
import numpy as np, ops
ops.avg_pool2d_backward(np.ones((1, 16, 3, 2), np.float16), np.ones((1, 16, 6, 5), np.float16), kernel_size=2, stride=2)
"""


@pytest.mark.parametrize("command", ["perf", "check", "precision", "perf file", "check file"])
def test_large_work_in_a_pipe_is_refused_with_its_figures_and_done_with_yes(capsys, monkeypatch, tmp_path, command):
    (tmp_path / "calls.py").write_text(SCRIPT)
    arguments = {"perf": SHAPE, "check": SHAPE, "precision": ("--layer", "stem", "--product", "910b", "--no-picture")}
    words = [*command.replace("file", "calls.py").split(), *arguments.get(command, ())]
    monkeypatch.setattr(shown, "LIMIT_SECONDS", 0)
    for rate in ("TIMING_ROWS_PER_SECOND", "CHECKING_ROWS_PER_SECOND", "MACS_PER_SECOND"):
        monkeypatch.setattr(effort, rate, 1e3)
    monkeypatch.setattr("ops.cli.script_times.TIMING_ROWS_PER_SECOND", 1e3)
    monkeypatch.setattr("ops.cli.script_checks.CHECKING_ROWS_PER_SECOND", 1e3)
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    rule = "Work must take at most about 0 minutes and 8.0 GiB of memory without --yes, not "
    assert err.startswith(f"npu-sim: error: {rule}about ")
    assert err.count("\n") == 1
    figures = err.removeprefix(f"npu-sim: error: {rule}")
    code, out, err = call(capsys, *words, "--yes", "--json", "-")
    assert (code, json.loads(out)["schema_version"] > 0) == (0, True)
    assert err == f"npu-sim: {figures}"


def test_small_work_is_not_announced(capsys):
    assert call(capsys, "perf", *SHAPE)[::2] == (0, "")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("", 130)])
def test_large_work_on_a_terminal_asks(capsys, monkeypatch, answer, code):
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(shown, "LIMIT_SECONDS", 0)
    monkeypatch.setattr(shown, "sys", SimpleNamespace(stdin=terminal, stderr=terminal))

    def confirm(text, err):
        assert (text, err) == ("go on?", True)
        if not answer:
            raise KeyboardInterrupt
        return answer == "y\n"

    monkeypatch.setattr(shown.typer, "confirm", confirm)
    found, _, err = call(capsys, "perf", *SHAPE)
    assert found == code
    assert err.startswith("npu-sim: about ")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Effort(seconds=0.4), "about 0 instructions, little memory, 0 seconds"),
        (
            Effort(instructions=123_456, seconds=119, bytes=150 * MIB),
            "about 120,000 instructions, 0.1 GiB of memory, 119 seconds",
        ),
        (
            Effort(instructions=26_789_000_000, seconds=2679),
            "about 27,000,000,000 instructions, little memory, 45 minutes",
        ),
        (
            Effort(instructions=7, is_bound=True, seconds=9000, bytes=9000 * MIB),
            "at least 7 instructions, 8.8 GiB of memory, 2 hours",
        ),
        (Effort(instructions=99, seconds=1e6), "about 99 instructions, little memory, 12 days"),
    ],
)
def test_effort_in_words(found, words):
    assert shown.effort_words(found) == words


def test_interrupted_large_work_ends_with_130_and_one_line():
    program = [sys.executable, "-m", "ops.cli.main", "perf", "--model", "resnet50", "--batch", "100000", "--yes"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    line = process.stderr.readline()
    while line and "instructions" not in line:
        line = process.stderr.readline()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert line.startswith("npu-sim: about ")
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "npu-sim: error: interrupted"
    assert "Traceback" not in err


def test_layers_that_differ_in_their_names_only_are_checked_once(monkeypatch):
    (case,) = cases().cases
    other = case_of_shape((2, 20, 9, 7), (24, 20, 3, 3), padding=(1,))
    every = CaseSet(source="test", cases=(case, other, replace(case, name="again")))
    apart = CaseSet(source="test", cases=(case, other))
    assert checking_effort(every, ("910b",), (0,)) == checking_effort(apart, ("910b",), (0,))
    planned = []
    monkeypatch.setattr(checking, "plan_case", lambda case, *rest: planned.append(case.name) or plan_case(case, *rest))
    rows = checking.run_check(every, ("910b", "310p"), (0,)).rows
    assert planned == [case.name, other.name] * 2
    assert [row.case.name for row in rows] == [case.name, other.name, "again"] * 2
    assert [row.product for row in rows] == ["910b"] * 3 + ["310p"] * 3
    assert rows[2].launches == rows[0].launches != rows[1].launches
