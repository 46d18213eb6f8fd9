"""``npu-sim warm``: what it refuses, what a task counts, and that nothing is left to compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npu_sim import _jit
from ops.cli.main import main
from ops.studies import warming
from tests.oracles.series import SERIES

pytestmark = pytest.mark.skipif(not _jit.JIT_ENABLED, reason="compiles")

ROOT = Path(__file__).parents[2]


def test_warm_needs_a_place_for_what_it_compiles(capsys, monkeypatch):
    monkeypatch.setattr(_jit, "why_not_kept", lambda: "others can write to /cache")
    assert main(["warm"]) == 2
    assert capsys.readouterr().err == (
        "npu-sim: error: Compiled code must be kept, but others can write to /cache; NUMBA_CACHE_DIR names another "
        "directory\n"
    )


def test_every_kind_of_call_is_a_task_and_every_series_is_in_one():
    assert {kind for kind, _ in warming.TASKS} == set(warming._KINDS)
    for kind in ("weight gradients", "pooling", "convolutions", "forward"):
        assert {series for name, series in warming.TASKS if name == kind} == set(SERIES)


def test_task_counts_what_it_compiles():
    warming._run(("DSL", "310p"))
    assert warming._run(("DSL", "310p")) == 0


COMMANDS = """
import json, sys
from numba.core import event

seen = []


class Listener(event.Listener):
    def on_start(self, event):
        seen.append(event.data["dispatcher"].py_func)

    def on_end(self, event):
        pass


event.register("numba:compile", Listener())
from ops.cli.main import main

found = []
for arguments in json.loads(sys.argv[1]):
    seen.clear()
    code = main(arguments)
    ours = [f"{f.__module__}.{f.__name__}" for f in seen if f.__module__.startswith(("npu_sim.", "ops."))]
    found.append([code, ours])
sys.stderr.write("RESULT" + json.dumps(found))
"""


@pytest.mark.slow
def test_after_warm_no_command_compiles_anything(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "ops.cli.main", "warm"], check=True, env=environment, cwd=tmp_path)
    examples = [
        str(ROOT / "examples" / f"{name}.py") for name in ("aclnn_convolution_backward", "conv3d_backprop_filter")
    ]
    calls = [
        ["precision", "--no-picture"],
        ["perf"],
        ["perf", "--model", "resnet50", "--batch", "1", "--product", "910b"],
        ["perf", "--x", "2,16,20,20", "--weight", "16,16,3,3", "--product", "310p", "--trace", "trace.json"],
        ["check", "--product", "910b"],
        ["check", "--x", "2,16,20,20", "--weight", "16,16,3,3", "--product", "910"],
        *([command, example] for command in ("run", "perf", "check") for example in examples),
        ["run", str(ROOT / "examples" / "tbe_conv3d_backprop_filter.py")],
        ["run", str(ROOT / "examples" / "aclnn_avg_pool2d_backward.py")],
    ]
    command = [sys.executable, "-c", COMMANDS, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    found = json.loads(done.stderr.rpartition("RESULT")[2])
    assert list(zip(map(str, calls), found, strict=True)) == [(str(call), [0, []]) for call in calls]
